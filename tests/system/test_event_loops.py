"""On real event loops, the stock one and uvloop: one after the other, beside an application, and torn down."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from duly.events import Event, TaskInterrupted, TaskRunStarted
from duly.stores import Replacement, SqliteStore
from tests.conftest import require
from tests.stores.helpers import history, integrity, stored_state, stored_tasks
from tests.system.children import DELAY, MINUTELY, NEVER_TODAY, PATIENCE_SECONDS, nothing, scheduler_on
from tests.system.leftovers import left_over, open_files


def _stock() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _uvloop() -> asyncio.AbstractEventLoop:
    require("uvloop", "pip install duly[uvloop]")
    import uvloop

    return uvloop.new_event_loop()


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": _stock, "uvloop": _uvloop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """`asyncio.run` on each kind of event loop: a new one each time, torn down afterwards."""
    factory = LOOPS[request.param]

    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main, PATIENCE_SECONDS))

    return run


Run = Callable[[Coroutine[Any, Any, None]], None]


# --- event loops -----------------------------------------------------------------------------------------------------


def test_it_runs_on_the_stock_loop_and_on_uvloop_and_leaves_nothing_behind(run: Run, store: Path) -> None:
    """SPEC 4.3: first runs at once, on the loop and in threads; no threads, tasks or files left after stop."""
    threads: list[str] = []

    async def main() -> None:
        both = [asyncio.Event(), asyncio.Event()]
        loop = asyncio.get_running_loop()

        async def on_the_loop() -> None:
            both[0].set()

        def in_a_thread() -> None:
            threads.append(threading.current_thread().name)
            loop.call_soon_threadsafe(both[1].set)

        before = asyncio.all_tasks()
        scheduler = scheduler_on(store)
        await scheduler.initialize(
            [("loop", MINUTELY, on_the_loop, DELAY), ("thread", MINUTELY, in_a_thread, DELAY)],
        )
        assert asyncio.all_tasks() > before
        for each in both:
            await each.wait()
        assert left_over()
        await scheduler.stop()
        assert asyncio.all_tasks() == before

    run(main())
    assert threads
    assert threads[0] != threading.main_thread().name
    assert left_over() == []
    assert open_files() == set()
    # More than one of each, if a minute began meanwhile.
    assert set(history(store)) == {("loop", "cron", "success"), ("thread", "cron", "success")}


def test_one_scheduler_object_lives_in_one_event_loop_after_the_other(run: Run, store: Path) -> None:
    """SPEC 4.1: after a stop, a new `asyncio.run` may initialise the same object again."""
    scheduler = scheduler_on(store)

    async def main() -> None:
        await scheduler.initialize([("a", NEVER_TODAY, nothing, DELAY)])
        await scheduler.stop()

    for _ in range(3):
        run(main())
    assert set(stored_tasks(store)) == {"a"}


async def test_a_scheduler_that_runs_on_one_loop_says_so_on_another(store: Path) -> None:
    """Two event loops in two threads: a call on the second raises, names the reason, and breaks nothing."""
    scheduler = scheduler_on(store)
    await scheduler.initialize([("a", NEVER_TODAY, nothing, DELAY)])

    def elsewhere() -> list[str]:
        errors = []
        calls: list[Callable[[], Coroutine[Any, Any, None]]] = [lambda: scheduler.initialize([]), scheduler.stop]
        for call in calls:
            try:
                asyncio.run(call())
            except RuntimeError as error:
                errors.append(str(error))
        return errors

    errors = await asyncio.to_thread(elsewhere)
    assert len(errors) == 2
    assert all("another event loop" in error for error in errors)
    assert set(stored_tasks(store)) == {"a"}
    await scheduler.stop()


async def test_it_lives_inside_an_application_that_was_there_before_it(store: Path) -> None:
    """With `asyncio.run` and inside an existing application: a server answers before, while and after it runs."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_unix_connection(address)
        writer.write(b"hello\n")
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return line

    address = str(store.with_name("socket"))
    server = await asyncio.start_unix_server(answer, address)
    ticking = asyncio.create_task(asyncio.Event().wait())
    try:
        assert await ask() == b"hello\n"
        ran, release = asyncio.Event(), threading.Event()

        def blocking() -> None:
            asyncio.run_coroutine_threadsafe(_set(ran), loop)
            release.wait(PATIENCE_SECONDS)

        loop = asyncio.get_running_loop()
        scheduler = scheduler_on(store)
        await scheduler.initialize([("blocking", MINUTELY, blocking, DELAY)])
        await ran.wait()
        assert await ask() == b"hello\n"  # a blocked thread does not block the application
        stopping = asyncio.create_task(scheduler.stop())
        assert await ask() == b"hello\n"
        assert not stopping.done()
        release.set()
        await asyncio.wait_for(stopping, PATIENCE_SECONDS)
        assert await ask() == b"hello\n"
        assert not ticking.done()
    finally:
        ticking.cancel()
        server.close()
        await server.wait_closed()


async def _set(event: asyncio.Event) -> None:
    event.set()


# --- an event loop that is torn down ---------------------------------------------------------------------------------


def test_a_loop_torn_down_without_stop_releases_the_store_and_its_runs_are_interrupted(run: Run, store: Path) -> None:
    """SPEC 3.11: such a run has no outcome; it is interrupted at the next start, in the same process or another."""
    events: list[Event] = []

    async def forgetful() -> None:
        begun = asyncio.Event()

        async def endless() -> None:
            begun.set()
            await asyncio.Event().wait()

        await scheduler.initialize([("endless", MINUTELY, endless, DELAY)])
        await begun.wait()

    async def careful() -> None:
        ran = asyncio.Event()
        await scheduler.initialize([("endless", MINUTELY, lambda: _set(ran), DELAY)])
        await ran.wait()
        await scheduler.stop()

    scheduler = scheduler_on(store, on_event=events.append)
    run(forgetful())
    assert left_over() == []
    assert open_files() == set()
    assert history(store) == []
    assert stored_state(store, "endless")["run"] is not None
    run(careful())
    causes = [event.cause for event in events if isinstance(event, TaskRunStarted)]
    assert causes[:2] == ["cron", "interrupted"]  # and a third, if a minute began meanwhile
    assert [outcome for _, _, outcome in history(store)][:2] == ["interrupted", "success"]


def test_a_loop_torn_down_while_stop_waits_releases_the_store_all_the_same(run: Run, store: Path) -> None:
    """SPEC 3.11: as a second Ctrl-C does: the next scheduler finds the store free, and the run interrupted."""
    events: list[Event] = []

    async def impatient() -> None:
        begun = asyncio.Event()

        async def endless() -> None:
            begun.set()
            await asyncio.Event().wait()

        scheduler = scheduler_on(store)
        await scheduler.initialize([("endless", MINUTELY, endless, DELAY)])
        await begun.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(scheduler.stop(), 0.05)

    async def careful() -> None:
        scheduler = scheduler_on(store, on_event=events.append)
        await scheduler.initialize([("endless", MINUTELY, nothing, DELAY)])
        await scheduler.stop()

    run(impatient())
    assert left_over() == []
    assert open_files() == set()
    run(careful())
    assert [event.task_name for event in events if isinstance(event, TaskInterrupted)] == ["endless"]


class SlowStore(SqliteStore):
    """The embedded store, with a commit of initialize() that gives the test time to do something meanwhile."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.committing = asyncio.Event()

    async def replace(self, replacement: Replacement, number: int) -> None:
        """Say that the commit is under way."""
        self.committing.set()
        await super().replace(replacement, number)


def test_a_loop_torn_down_while_initialize_commits_releases_the_store_all_the_same(run: Run, store: Path) -> None:
    """SPEC 3.11, 4.3: all of it, or nothing; and nothing of the scheduler is left in the way."""

    async def hasty() -> None:
        slow = SlowStore(store)
        keep.append(asyncio.ensure_future(scheduler_on(slow).initialize([("a", NEVER_TODAY, nothing, DELAY)])))
        await slow.committing.wait()

    async def careful() -> None:
        scheduler = scheduler_on(store)
        await scheduler.initialize([("b", NEVER_TODAY, nothing, DELAY)])
        await scheduler.stop()

    keep: list[asyncio.Task[None]] = []
    run(hasty())
    assert left_over() == []
    assert open_files() == set()
    assert (set(stored_tasks(store)) == {"a"}) if store.exists() and store.stat().st_size else True
    run(careful())
    assert set(stored_tasks(store)) == {"b"}
    assert integrity(store) == "ok"
