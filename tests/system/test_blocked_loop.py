"""A callback that blocks the event loop is named, in the log and to observers; one that only takes long is not."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.engine.watchdog import BLOCKED_SECONDS, LOOK_SECONDS
from duly.events import WARNING, Event, EventLoopBlocked, TaskRunCompleted, TaskRunStarted
from duly.stores.port import Blockage
from duly.stores.sqlite.lock import LockFile, read_holder
from tests.cli.program import duly as command
from tests.system.children import DELAY, MINUTELY, PATIENCE_SECONDS, scheduler_on

pytestmark = pytest.mark.real_time


async def run_once(store: Path, callbacks: dict[str, Callable[[], Any]]) -> list[Event]:
    """Run each callback once; what was reported."""
    told: list[Event] = []
    all_ended = asyncio.Event()

    def listen(event: Event) -> None:
        told.append(event)
        if sum(isinstance(each, TaskRunCompleted) for each in told) == len(callbacks):
            all_ended.set()

    scheduler = scheduler_on(store, on_event=listen)
    await scheduler.initialize([(name, MINUTELY, callback, DELAY) for name, callback in callbacks.items()])
    await asyncio.wait_for(all_ended.wait(), PATIENCE_SECONDS)
    await asyncio.sleep(0)
    await scheduler.stop()
    return told


def block(seconds: float = 2.5 * BLOCKED_SECONDS) -> None:
    """A call that no coroutine should make."""
    time.sleep(seconds)


def blockages(told: list[Event]) -> list[EventLoopBlocked]:
    return [event for event in told if isinstance(event, EventLoopBlocked)]


async def blocks_at_once() -> None:
    block()


async def blocks_later() -> None:
    await asyncio.sleep(0.01)
    block()
    await asyncio.sleep(0.01)


def returns_what_blocks() -> Awaitable[None]:
    return blocks_later()


@pytest.mark.parametrize("callback", [blocks_at_once, blocks_later, returns_what_blocks])
async def test_the_task_whose_callback_blocks_the_event_loop_is_named(callback: Callable[[], Any], store: Path) -> None:
    """At once or after an await, on the event loop or awaited there for a thread; beside a task that does not block."""

    async def waits() -> None:
        await asyncio.sleep(2 * BLOCKED_SECONDS)

    told = await run_once(store, {"waits": waits, "blocks": callback})
    (blocked,) = blockages(told)
    started = {event.task_name: event.run_id for event in told if isinstance(event, TaskRunStarted)}
    assert (blocked.task_name, blocked.run_id, blocked.level) == ("blocks", started["blocks"], WARNING)
    assert blocked.blocked_ms >= 1000 * BLOCKED_SECONDS  # of 2.5 s
    assert "duly-watchdog" not in {thread.name for thread in threading.enumerate()}


async def test_a_callback_that_takes_long_and_lets_others_run_is_not_reported(store: Path) -> None:
    """Busy in short steps, asleep, or in a thread: the event loop turns."""

    async def busy() -> None:
        until = time.monotonic() + 2 * BLOCKED_SECONDS
        while time.monotonic() < until:
            time.sleep(0.05)  # noqa: ASYNC251
            await asyncio.sleep(0)

    async def sleeps() -> None:
        await asyncio.sleep(2 * BLOCKED_SECONDS)

    assert blockages(await run_once(store, {"busy": busy, "sleeps": sleeps, "in a thread": block})) == []


async def test_an_application_that_blocks_the_event_loop_itself_is_not_held_against_a_task(store: Path) -> None:
    """The report names the callback that is being executed."""

    async def sleeps() -> None:
        await asyncio.sleep(1.5 * BLOCKED_SECONDS)

    running = asyncio.create_task(run_once(store, {"sleeps": sleeps}))
    await asyncio.sleep(0.3)
    block()
    assert blockages(await running) == []


async def test_observers_see_it_while_it_lasts_and_afterwards(store: Path) -> None:
    """The holder notes it beside its name in the lock file; `duly status` shows it, and it goes with the holder."""
    seen: list[Blockage] = []

    def observe() -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (blockage := read_holder(str(store)).blockage) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert blockage is not None
        seen.append(blockage)

    async def stubborn() -> None:
        observer = threading.Thread(target=observe)
        observer.start()
        observer.join()  # blocks the event loop until the observer has seen that

    ended = asyncio.Event()
    scheduler = scheduler_on(store, on_event=lambda event: ended.set() if isinstance(event, EventLoopBlocked) else None)
    await scheduler.initialize([("stubborn", MINUTELY, stubborn, DELAY)])
    await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)
    (during,) = seen
    after = read_holder(str(store))
    assert during.task == "stubborn"
    assert after.alive
    assert after.blockage is not None
    # Counted from when it was found; a look may come late.
    assert after.blockage.blocked_ms >= during.blocked_ms >= 1000 * (BLOCKED_SECONDS - 2 * LOOK_SECONDS)
    status = await asyncio.to_thread(command, "status", "--store", store, folder=store.parent)
    assert "the event loop was blocked for " in status.out
    assert " by stubborn, until " in status.out
    shown = await asyncio.to_thread(command, "status", "--store", store, "--json", folder=store.parent)
    assert shown.json["holder"]["blockage"]["task"] == "stubborn"
    assert shown.json["holder"]["blockage"]["blockedMs"] == after.blockage.blocked_ms
    await scheduler.stop()
    assert read_holder(str(store)).blockage is None


@pytest.mark.parametrize("name", ["x" * 10_000, "\U0001f389" * 10_000, "\n" * 500, "ä" * 300])
def test_the_lock_file_stays_one_however_a_task_is_called(name: str, tmp_path: Path) -> None:
    """A lock file that is too long would be refused at the next start, as a file of somebody else."""
    from datetime import UTC, datetime

    from duly.core.moments import Instant

    lock = LockFile(str(tmp_path / "state.db"))
    lock.acquire(datetime.now(UTC))
    lock.note_blockage(Blockage(name, Instant(0), 5))
    text = lock.path.read_text()
    assert len(text.encode()) < 1024
    assert json.loads(text)["blocked"]["ms"] == 5
    lock.disown()  # as if the process had died: the text stays
    again = LockFile(str(tmp_path / "state.db"))
    again.acquire(datetime.now(UTC))
    assert read_holder(str(tmp_path / "state.db")).blockage is None
    again.release()


async def test_nothing_is_watched_while_nothing_runs(store: Path) -> None:
    """The thread sleeps until the next start, and ends with the scheduler."""
    scheduler = duly.Scheduler(store)
    await scheduler.initialize([("yearly", "0 0 1 1 *", blocks_at_once, DELAY)])
    assert "duly-watchdog" not in {thread.name for thread in threading.enumerate()}
    await scheduler.stop()
