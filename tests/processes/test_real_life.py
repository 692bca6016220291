"""On the real clock, with real threads, signals and deaths: what an application does to a scheduler."""

import asyncio
import contextlib
import gc
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
from duly.events import Event, TaskInterrupted, TaskRunStarted
from duly.stores import Replacement, SqliteStore
from tests.conftest import require
from tests.processes.children import DELAY, MINUTELY, NEVER_TODAY, PATIENCE_SECONDS, Child, nothing, scheduler_on
from tests.stores.helpers import full_disk, history, integrity, stored_state, stored_tasks


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


def left_over() -> list[str]:
    """Threads of ours that are still alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("duly")]


def open_files() -> set[str]:
    """What this process has open under its temporary folder, as far as the system tells."""
    gc.collect()
    found = set()
    for descriptor in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/dev/fd/{descriptor}")
            if "state" in target:
                found.add(target)
    return found


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
    """Two event loops in two threads: the second is told to call where the scheduler lives, and nothing breaks."""
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
    """SPEC 3.11: a second Ctrl-C, say: whoever comes next finds the store free, and the run interrupted."""
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


def test_a_process_that_forgets_to_stop_ends_and_its_runs_are_interrupted(store: Path) -> None:
    """SPEC 3.11: the process still exits without hanging, also with a thread that never returns."""
    with Child("leave_without_stop", store) as child:
        child.hear("leaving")
        assert child.exit_code() == 0
        assert "Traceback" not in child.complaints()
    with Child("report", store, "loop", "thread") as successor:
        assert {successor.hear("TaskInterrupted")["taskName"] for _ in range(2)} == {"loop", "thread"}
        successor.tell()
        successor.hear("stopped")


# --- signals and deaths ----------------------------------------------------------------------------------------------


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
    """SPEC 5.2, 4.5: one transaction, also for SIGKILL; and whatever it left, the next process can use."""
    if existing:
        asyncio.run(_declare(store, "old"))
    with Child("declare_many", store, 20_000) as child:
        child.hear("loaded")
        child.tell()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not os.path.exists(f"{store}-wal"):  # its transaction has begun
            assert time.monotonic() < deadline
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
