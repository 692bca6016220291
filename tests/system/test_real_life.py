"""On the real clock, with real threads, signals and deaths: what an application does to a scheduler."""

import asyncio
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.clock import SystemClock
from duly.core.moments import Instant
from tests.compute import NotInTimeError
from tests.stores.helpers import full_disk, history, integrity, stored_state, stored_tasks
from tests.system.children import DELAY, MINUTELY, NEVER_TODAY, PATIENCE_SECONDS, Child, nothing, scheduler_on
from tests.system.leftovers import left_over, open_files

# --- several schedulers, blocking callbacks --------------------------------------------------------------------------


async def test_two_schedulers_on_two_stores_in_one_process(tmp_path: Path) -> None:
    """Two schedulers on two stores in one process know nothing of each other."""
    ran: dict[str, asyncio.Event] = {"first": asyncio.Event(), "second": asyncio.Event()}
    schedulers = {name: scheduler_on(tmp_path / f"{name}.db") for name in ran}

    def callback(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            ran[name].set()

        return run

    for name, scheduler in schedulers.items():
        await scheduler.initialize([("same name", MINUTELY, callback(name), DELAY)])
    for event in ran.values():
        await asyncio.wait_for(event.wait(), PATIENCE_SECONDS)
    await schedulers["first"].stop()
    await schedulers["second"].initialize([])
    await schedulers["second"].stop()
    assert set(stored_tasks(tmp_path / "first.db")) == {"same name"}
    assert stored_tasks(tmp_path / "second.db") == {}
    assert left_over() == []


async def test_blocking_callbacks_run_side_by_side_and_stop_waits_for_them(store: Path) -> None:
    """SPEC 1.3, 3.10, 4.3: two of them meet at a barrier, which one after the other they never could."""
    barrier = threading.Barrier(3)

    def meet() -> None:
        barrier.wait(PATIENCE_SECONDS)

    scheduler = scheduler_on(store)
    await scheduler.initialize([("a", MINUTELY, meet, DELAY), ("b", MINUTELY, meet, DELAY)])
    await asyncio.to_thread(barrier.wait, PATIENCE_SECONDS)
    await scheduler.stop()
    assert sorted(history(store)) == [("a", "cron", "success"), ("b", "cron", "success")]
    assert left_over() == []


async def test_stop_from_a_worker_thread_of_a_callback_raises_instead_of_deadlocking(store: Path) -> None:
    """SPEC 4.3: calls from its worker thread are inside as well; the scheduler goes on."""
    loop = asyncio.get_running_loop()
    said: asyncio.Future[str] = loop.create_future()

    def suicidal() -> None:
        try:
            asyncio.run_coroutine_threadsafe(scheduler.stop(), loop).result(PATIENCE_SECONDS)
        except duly.StopSchedulerError as error:
            loop.call_soon_threadsafe(said.set_result, error.details["hint"])

    scheduler = scheduler_on(store)
    await scheduler.initialize([("suicidal", MINUTELY, suicidal, DELAY)])
    assert "set an event" in await asyncio.wait_for(said, PATIENCE_SECONDS)
    await scheduler.stop()
    assert ("suicidal", "cron", "success") in history(store)


async def test_initialize_from_a_worker_thread_of_a_callback_takes_effect(store: Path) -> None:
    """SPEC 4.2: without a waiting stop there is nothing to deadlock on."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def reconfigure() -> None:
        call = scheduler.initialize([("next", NEVER_TODAY, nothing, DELAY)])
        asyncio.run_coroutine_threadsafe(call, loop).result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(done.set)

    scheduler = scheduler_on(store)
    await scheduler.initialize([("first", MINUTELY, reconfigure, DELAY)])
    await asyncio.wait_for(done.wait(), PATIENCE_SECONDS)
    await scheduler.stop()
    assert set(stored_tasks(store)) == {"next"}
    assert history(store) == [("first", "cron", "success")]


async def test_a_failed_first_initialize_leaves_no_thread_and_no_open_file(store: Path) -> None:
    """SPEC 4.5: resources released: after a bad registration, a bad place, a held store and a cancellation."""
    before = asyncio.all_tasks()
    with pytest.raises(duly.RegistrationError):
        await scheduler_on(store).initialize([()])
    with pytest.raises(duly.StoreError):
        await scheduler_on(store / "missing" / "state.db").initialize([])
    holder = scheduler_on(store)
    await holder.initialize([])
    threads = sorted(left_over())
    with pytest.raises(duly.StoreLockedError):
        await scheduler_on(store).initialize([])
    assert sorted(left_over()) == threads
    await holder.stop()
    for rounds in range(6):
        scheduler = scheduler_on(store)
        call = asyncio.ensure_future(scheduler.initialize([("a", NEVER_TODAY, nothing, DELAY)]))
        for _ in range(rounds):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        await scheduler.stop()  # in case it went through: all or nothing
        assert left_over() == []
        assert open_files() == set()
    assert asyncio.all_tasks() == before


# --- signals and deaths ----------------------------------------------------------------------------------------------


def test_a_process_that_forgets_to_stop_ends_and_its_runs_are_interrupted(store: Path) -> None:
    """SPEC 3.11: the process still exits without hanging, even with a thread that never returns."""
    with Child("leave_without_stop", store) as child:
        child.hear("leaving")
        assert child.exit_code() == 0
        assert "Traceback" not in child.complaints()
    with Child("report", store, "loop", "thread") as successor:
        assert {successor.hear("TaskInterrupted")["taskName"] for _ in range(2)} == {"loop", "thread"}
        successor.tell()
        successor.hear("stopped")


def test_a_process_killed_in_the_middle_of_a_run_restarts_that_run_at_the_next_start(store: Path) -> None:
    """SPEC 3.7, 3.9: the start was durable, so the next process finds it interrupted, and starts it at once."""
    with Child("work", store) as first:
        started = first.hear("TaskRunStarted")
        first.hear("begun")
        first.kill()
    with Child("work", store) as second:
        interrupted = second.hear("TaskInterrupted")
        assert (interrupted["taskName"], interrupted["interruptions"]) == ("long", 1)
        assert interrupted["startedAt"] == started["actualTime"]
        again = second.hear("TaskRunStarted")
        assert again["cause"] == "interrupted"
        assert again["scheduledTime"] == started["actualTime"]
        assert again["runId"] > started["runId"]
        second.hear("begun")
        second.tell()
        second.hear("ended")
        assert second.hear("TaskRunCompleted")["runId"] == again["runId"]
        second.tell()
        second.hear("stopped")
        assert second.exit_code() == 0
    assert [outcome for _, _, outcome in history(store)][:2] == ["interrupted", "success"]
    assert stored_state(store, "long")["interruptions"] == 0
    assert integrity(store) == "ok"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_handler_that_stops_lets_running_callbacks_end(store: Path, number: int) -> None:
    """SPEC 4.3: the documented way to end: an event, then stop(); nothing is cut short, nothing interrupted."""
    with Child("serve_until_terminated", store) as child:
        assert {child.hear_one_of("begun", "blocking")[0] for _ in range(2)} == {"begun", "blocking"}
        child.signal(number)
        assert child.hear("stopped") == []
        assert child.exit_code() == 0
    assert sorted(history(store)) == [("blocking", "cron", "success"), ("gracious", "cron", "success")]
    assert {stored_state(store, name)["run"] for name in ("blocking", "gracious")} == {None}


def test_callbacks_may_fork(store: Path) -> None:
    """SPEC 1.3, 5.7: a process forked inside a callback neither hangs the scheduler nor harms its store."""
    with Child("fork_in_callbacks", store) as child:
        assert child.hear("codes") == [7, 7, 7]
        child.hear("stopped")
        assert child.exit_code() == 0
    assert integrity(store) == "ok"
    assert set(history(store)) == {
        ("loop", "cron", "success"),
        ("thread", "cron", "success"),
        ("multiprocessing", "cron", "success"),
    }


@pytest.mark.parametrize("existing", [False, True], ids=["the first", "a later one"])
def test_a_process_killed_in_the_middle_of_initialize_leaves_all_of_it_or_nothing(store: Path, existing: bool) -> None:
    """SPEC 5.2, 4.5: one transaction, even under SIGKILL; and the next process can use whatever it left."""
    if existing:
        asyncio.run(_declare(store, "old"))
    with Child("declare_many", store, 20_000) as child:
        child.hear("loaded")
        child.tell()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not os.path.exists(f"{store}-wal"):  # its transaction has begun
            if time.monotonic() > deadline:
                raise NotInTimeError("its transaction has not begun")
        child.kill()
    if not existing:
        assert _declared(store) in (0, 20_000)
    else:
        assert _declared(store) in (1, 20_000)
    asyncio.run(_declare(store, "next"))
    assert set(stored_tasks(store)) == {"next"}
    assert integrity(store) == "ok"


def _declared(store: Path) -> int:
    try:
        return len(stored_tasks(store))
    except sqlite3.OperationalError:  # there is no table yet
        return 0


async def _declare(store: Path, name: str) -> None:
    scheduler = scheduler_on(store)
    await scheduler.initialize([(name, NEVER_TODAY, nothing, DELAY)])
    await scheduler.stop()


class HastyClock(SystemClock):
    """A wall clock that begins at noon, and a steady one, both a hundred times as fast as the host's."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def now(self) -> Instant:
        """A fast wall clock."""
        return Instant(1_704_110_400_000_000 + int(1_000_000 * self.elapsed()))

    def elapsed(self) -> float:
        """A fast steady clock."""
        return 100 * (time.monotonic() - self._begun)

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """A hundredth of the wait."""
        timer = asyncio.get_running_loop().call_later(max(0, instant - self.now()) / 100_000_000, wake.set)
        try:
            await wake.wait()
        finally:
            timer.cancel()


async def test_a_stop_that_gives_up_releases_thread_file_and_lock(store: Path) -> None:
    """SPEC 4.3: 30 s after the last callback ended it raises; nothing of it is left, and the store is free."""
    begun, release = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await release.wait()

    before = asyncio.all_tasks()
    scheduler = duly.Scheduler(store, clock=HastyClock())
    await scheduler.initialize([("a", MINUTELY, work, DELAY)])
    await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
    with full_disk():
        release.set()
        stopping = asyncio.ensure_future(scheduler.stop())
        await asyncio.wait([stopping], timeout=PATIENCE_SECONDS)
        await asyncio.sleep(0)
    assert isinstance(stopping.exception(), duly.StopSchedulerError)
    assert asyncio.all_tasks() == before
    assert left_over() == []
    assert open_files() == set()
    await _declare(store, "next")
