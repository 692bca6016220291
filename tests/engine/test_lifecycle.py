"""initialize() and stop() around event loops: one that goes away under a scheduler, and a second one beside it."""

import asyncio
import contextlib
import sqlite3
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.events import Event, TaskRunCompleted, TaskRunStarted
from duly.stores.sqlite.lock import read_holder
from tests.engine.helpers import EVERY_MINUTE, noop, registration
from tests.spec.helpers import Ear, ManualClock

HOUR = timedelta(hours=1)
NEVER_TODAY = "0 0 1 1 *"


async def start_once(scheduler: duly.Scheduler, clock: ManualClock | None = None) -> None:
    """A life in which a task runs; in the next minute if there is a clock to move."""
    if clock is not None:
        clock.advance(60)
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()

    await scheduler.initialize([("task", EVERY_MINUTE, work, HOUR)])
    await asyncio.wait_for(begun.wait(), 30)
    await asyncio.wait_for(scheduler.stop(), 30)


def test_a_scheduler_is_used_again_after_its_event_loop_went_away_while_stop_waited(store: Path) -> None:
    """SPEC 3.11, 4.1: the stop() is gone with its event loop; it holds nothing back on the next one."""
    clock = ManualClock()
    scheduler = duly.Scheduler(store, clock=clock)

    async def leave_while_stop_waits() -> None:
        begun = asyncio.Event()

        async def endless() -> None:
            begun.set()
            await asyncio.Event().wait()

        await scheduler.initialize([("task", EVERY_MINUTE, endless, HOUR)])
        await asyncio.wait_for(begun.wait(), 30)
        stopping = asyncio.create_task(scheduler.stop())
        await asyncio.sleep(0)
        assert not stopping.done()

    asyncio.run(leave_while_stop_waits())
    for _ in range(2):
        asyncio.run(start_once(scheduler, clock))


def test_a_scheduler_whose_event_loop_was_closed_under_it_is_used_again(store: Path) -> None:
    """SPEC 3.11: nothing was cancelled, so nothing has released the store until the next call does."""
    scheduler = duly.Scheduler(store, clock=ManualClock())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(scheduler.initialize([registration("task", NEVER_TODAY)]))
    pending: list[Any] = list(asyncio.all_tasks(loop))
    loop.close()
    assert read_holder(str(store)).alive
    asyncio.run(start_once(scheduler))
    assert not read_holder(str(store)).alive
    forsake(pending)


def test_a_stop_on_an_event_loop_that_was_closed_holds_nothing_back_on_the_next(store: Path) -> None:
    """SPEC 3.11, 4.3: nothing starts while a stop() is open, but this one will never return."""
    clock = ManualClock()
    scheduler = duly.Scheduler(store, clock=clock)
    loop = asyncio.new_event_loop()
    pending: list[Any] = []

    async def leave_while_stop_waits() -> None:
        begun = asyncio.Event()

        async def endless() -> None:
            begun.set()
            await asyncio.Event().wait()

        await scheduler.initialize([("task", EVERY_MINUTE, endless, HOUR)])
        await asyncio.wait_for(begun.wait(), 30)
        pending.append(asyncio.ensure_future(scheduler.stop()))
        await asyncio.sleep(0)

    loop.run_until_complete(leave_while_stop_waits())
    pending += asyncio.all_tasks(loop) - set(pending)
    loop.close()
    asyncio.run(start_once(scheduler, clock))
    forsake(pending)


def forsake(pending: list[Any]) -> None:
    """End the tasks of an event loop that was closed under them; asyncio would complain about them."""
    for task in pending:
        task._log_destroy_pending = False
        with contextlib.suppress(RuntimeError):
            task.get_coro().close()


def test_a_scheduler_that_runs_on_one_event_loop_refuses_calls_on_another(store: Path) -> None:
    """SPEC 4.2: a call would touch what belongs to the other event loop; nothing is changed."""
    clock = ManualClock()
    scheduler = duly.Scheduler(store, clock=clock)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(scheduler.initialize([registration("task", NEVER_TODAY)]))
        with pytest.raises(RuntimeError, match="runs on another event loop"):
            asyncio.run(scheduler.initialize([]))
        with pytest.raises(RuntimeError, match="runs on another event loop"):
            asyncio.run(scheduler.stop())
        loop.run_until_complete(scheduler.stop())
    finally:
        loop.close()
    assert not read_holder(str(store)).alive
    asyncio.run(start_once(scheduler, clock))


def test_an_event_loop_that_goes_away_while_stop_waits_for_the_store_releases_it(store: Path) -> None:
    """SPEC 3.11: no callback runs and nothing polls any more; only the end of a run is not on disk yet."""
    clock = ManualClock()

    async def leave_while_the_store_fails() -> sqlite3.Connection:
        ear = Ear()
        scheduler = duly.Scheduler(store, on_event=ear, clock=clock)
        returned = asyncio.Event()

        async def work() -> None:
            await returned.wait()

        await scheduler.initialize([("task", EVERY_MINUTE, work, HOUR)])
        await ear.hear(TaskRunStarted)
        blocker = sqlite3.connect(store, isolation_level=None, check_same_thread=False)
        blocker.execute("BEGIN IMMEDIATE")
        returned.set()
        stopping = asyncio.create_task(scheduler.stop())
        await ear.hear(duly.events.StoreFault)
        assert not stopping.done()
        return blocker

    with contextlib.closing(asyncio.run(leave_while_the_store_fails())):
        until = time.monotonic() + 30
        while read_holder(str(store)).alive and time.monotonic() < until:
            time.sleep(0.01)
        assert not read_holder(str(store)).alive
    asyncio.run(start_once(duly.Scheduler(store, clock=clock), clock))


async def test_calls_one_after_the_other_return_in_their_order(store: Path) -> None:
    """SPEC 4.2: each waits for all before it, even if one of those is cancelled before its turn."""
    scheduler = duly.Scheduler(store, clock=ManualClock())
    order: list[int] = []

    async def call(number: int) -> None:
        await (scheduler.stop() if number % 3 == 2 else scheduler.initialize([("task", NEVER_TODAY, noop, HOUR)]))
        order.append(number)

    calls = [asyncio.create_task(call(number)) for number in range(9)]
    await asyncio.sleep(0)
    calls[4].cancel()
    await asyncio.wait(calls)
    assert order == [0, 1, 2, 3, 5, 6, 7, 8]
    await scheduler.stop()


# --- what has happened when a call returns ---------------------------------------------------------------------------


class SlowEar(Ear):
    """A listener that takes a second for each event: longer than the event loop may be kept from its work."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def __call__(self, event: Event) -> None:
        self._clock.advance(1)
        super().__call__(event)


async def test_a_call_returns_or_raises_when_all_that_it_reports_has_been_reported(store: Path) -> None:
    """SPEC 4.1: a program that logs, and exits when stop() has returned, loses no line of it."""
    clock = ManualClock()
    ear = SlowEar(clock)
    scheduler = duly.Scheduler(store, clock=clock, on_event=ear)
    with pytest.raises(duly.RegistrationShapeError):
        await scheduler.initialize([()])
    assert ear.events[-1].name == "SchedulerInitializationFailed"
    finish = asyncio.Event()

    async def work() -> None:
        await finish.wait()

    await scheduler.initialize([registration(f"task {number}", callback=work) for number in range(20)])
    assert "SchedulerInitializationCompleted" in {event.name for event in ear.events}
    await ear.hear(TaskRunStarted)
    finish.set()
    await scheduler.stop()
    assert ear.events[-1].name == "SchedulerStopped"
    assert len(ear.of(TaskRunStarted)) == len(ear.of(TaskRunCompleted)) > 0


def test_an_event_loop_that_goes_away_without_a_stop_releases_the_store(store: Path) -> None:
    """SPEC 3.11: the next scheduler, in this process or another, finds it free."""
    asyncio.run(duly.Scheduler(store).initialize([registration("task", NEVER_TODAY)]))
    until = time.monotonic() + 30
    while read_holder(str(store)).alive and time.monotonic() < until:
        time.sleep(0.01)  # the store's thread lets go
    assert not read_holder(str(store)).alive
    asyncio.run(start_once(duly.Scheduler(store)))


async def test_a_stop_leaves_no_task_behind(store: Path) -> None:
    """SPEC 4.3: everything is released; an application that goes on would otherwise gather them."""
    before = asyncio.all_tasks()
    for _ in range(2):
        scheduler = duly.Scheduler(store, run_timeout=HOUR)
        await scheduler.initialize([("task", NEVER_TODAY, noop, HOUR), ("thread", NEVER_TODAY, print, HOUR)])
        assert asyncio.all_tasks() > before
        await scheduler.stop()
        await asyncio.sleep(0)  # a task that was cancelled ends in the next round
        assert asyncio.all_tasks() == before
        assert not scheduler._lifecycle.under_way


async def test_every_scheduler_has_an_identifier_of_its_own_that_it_keeps(store: Path) -> None:
    """SPEC 5.4: drawn at its first initialize(), and not again after a stop()."""

    def known() -> list[str]:
        with contextlib.closing(sqlite3.connect(store)) as connection:
            return [name for (name,) in connection.execute("SELECT identifier FROM schedulers ORDER BY key")]

    first, second = duly.Scheduler(store), duly.Scheduler(store)
    for scheduler in (first, first, second):
        await scheduler.initialize([("task", NEVER_TODAY, noop, HOUR)])
        await scheduler.stop()
    names = known()
    assert len(names) == len(set(names)) == 2
    assert all(len(name) == 32 for name in names)


@pytest.mark.parametrize("rounds", range(8))
async def test_a_cancelled_initialize_is_over_when_it_raises(store: Path, rounds: int) -> None:
    """SPEC 4.3: all or nothing, and nothing of it goes on behind its caller's back; the next call has its turn."""
    scheduler = duly.Scheduler(store)
    call = asyncio.ensure_future(scheduler.initialize([("task", NEVER_TODAY, noop, HOUR)]))
    for _ in range(rounds):
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0)
    assert {task.get_name() for task in asyncio.all_tasks()} <= {
        asyncio.current_task().get_name(),  # type: ignore[union-attr]
        *("duly-loop", "duly-journal"),  # if it went through
    }
    await asyncio.wait_for(scheduler.initialize([("task", NEVER_TODAY, noop, HOUR)]), 30)
    await asyncio.wait_for(scheduler.stop(), 30)


async def test_a_store_that_another_scheduler_holds_is_reported_as_a_failure(store: Path) -> None:
    """SPEC 5.7: unless it is a standby, which expects that."""
    ear = Ear()
    holder, other = duly.Scheduler(store), duly.Scheduler(store, on_event=ear)
    await holder.initialize([])
    with pytest.raises(duly.StoreLockedError):
        await other.initialize([])
    assert ear.events[-1].name == "SchedulerInitializationFailed"
    await holder.stop()


async def test_a_reinitialisation_goes_on_with_the_loop_that_polls(store: Path) -> None:
    """SPEC 4.1: two loops would decide about the same tasks."""
    scheduler = duly.Scheduler(store, clock=ManualClock())
    for _ in range(3):
        await scheduler.initialize([("task", NEVER_TODAY, noop, HOUR)])
        await asyncio.sleep(0)
    assert [task.get_name() for task in asyncio.all_tasks()].count("duly-loop") == 1
    await scheduler.stop()


@pytest.mark.parametrize("registrations", [[("task", NEVER_TODAY, noop, HOUR)], [()]], ids=["good", "bad"])
@pytest.mark.parametrize("rounds", range(4))
async def test_a_cancelled_initialize_gives_asyncio_no_reason_to_complain(
    store: Path, rounds: int, registrations: Any
) -> None:
    """SPEC 4.3: whether it was undone, went through, or failed meanwhile."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    scheduler = duly.Scheduler(store)
    call = asyncio.ensure_future(scheduler.initialize(registrations))
    for _ in range(rounds):
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    await asyncio.sleep(0)
    await scheduler.stop()
    assert complaints == []
