"""SPEC 10.2: standby. A scheduler runs here as soon as no other one holds the store."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.core.changes import Batch
from duly.core.moments import Instant
from duly.events import (
    ERROR,
    Event,
    SchedulerInitializationFailed,
    SchedulerInitializationStarted,
    StandbyEnded,
    StandbyFailed,
    StandbyStarted,
    TaskRunStarted,
)
from duly.stores import Outcome, Persisted, Replacement, SqliteStore, Store
from duly.stores.port import EmbeddedStore, Holder, TraceRow
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.spec.helpers import succeed, told

DELAY = timedelta(minutes=1)
DECLARED = [("job", "* * * * *", succeed, DELAY)]
STANDBY = (StandbyStarted, StandbyEnded, StandbyFailed)


def host() -> SimulatedHost:
    return SimulatedHost("2026-11-16T12:00:30", "UTC")


def standby_events(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, STANDBY)]


# --- a store that is free --------------------------------------------------------------------------------------------


async def test_a_free_store_is_used_at_once_and_leaving_stops_the_scheduler() -> None:
    """Only the events of a scheduler are reported: it did not have to wait."""
    async with host() as computer:
        async with duly.standby(computer.scheduler(), DECLARED) as standby:
            assert not standby.holding  # entering does not wait
            await standby.held()
            assert standby.holding
            await computer.advance(minutes=1)
            assert len(told(computer, TaskRunStarted)) == 2
        assert not standby.holding
        await standby.held()  # it did hold
        await computer.advance(minutes=5)
        assert len(told(computer, TaskRunStarted)) == 2
        assert standby_events(computer.events) == []


async def test_a_store_in_memory_is_used_at_once() -> None:
    """Each scheduler has its own."""
    async with (
        host() as computer,
        duly.standby(computer.scheduler(":memory:"), DECLARED) as one,
        duly.standby(computer.scheduler(":memory:"), DECLARED) as other,
    ):
        await one.held()
        await other.held()
        assert (one.holding, other.holding) == (True, True)


async def test_a_store_object_that_another_scheduler_uses_is_waited_for() -> None:
    """SPEC 5.7: in memory, too, it has one holder."""
    async with host() as computer:
        store = SqliteStore(":memory:", worker=Inline())
        holder = computer.scheduler(store)
        await holder.initialize(DECLARED)
        async with duly.standby(computer.scheduler(store), DECLARED) as standby:
            await computer.advance(seconds=3)
            assert not standby.holding
            await holder.stop()
            await computer.advance(seconds=1)
            assert standby.holding


class SharedStore:
    """A store that says of no scheduler that it holds it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def open(self, identifier: str, at: Instant) -> Persisted:
        return await self._store.open(identifier, at)

    async def replace(self, replacement: Replacement, number: int) -> None:
        await self._store.replace(replacement, number)

    async def has_replaced(self, number: int) -> bool:
        return await self._store.has_replaced(number)

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        return await self._store.write(batch, number, trace)

    def touch(self) -> None:
        self._store.touch()

    async def close(self) -> None:
        await self._store.close()

    def abandon(self) -> None:
        self._store.abandon()


async def test_on_a_shared_store_the_scheduler_simply_runs() -> None:
    """There is nothing to look at."""
    store = SharedStore(SqliteStore(":memory:", worker=Inline()))
    assert isinstance(store, Store)
    assert not isinstance(store, EmbeddedStore)
    async with host() as computer, duly.standby(computer.scheduler(store), DECLARED) as standby:
        await standby.held()
        assert standby.holding


# --- a store that another scheduler holds ----------------------------------------------------------------------------


async def test_waiting_is_announced_once_and_says_who_holds_the_store() -> None:
    """Hours of looks leave one event, and nothing of a failure."""
    async with host() as computer:
        holder = computer.scheduler(trace=False, monitor=False)
        await holder.initialize([])
        before = len(computer.events)
        async with duly.standby(computer.scheduler(), DECLARED) as standby:
            await computer.advance(hours=2)
            (started,) = computer.events[before:]
            assert isinstance(started, StandbyStarted)
            assert set(started.holder) == {"pid", "host", "since"}
            assert not standby.holding
            await holder.stop()
            await computer.advance(seconds=1)
            assert standby.holding
            assert standby_events(computer.events) == [started, StandbyEnded(holding=True)]
            assert told(computer, SchedulerInitializationFailed) == []


class CountingStore(SqliteStore):
    """Counts the looks at its holder."""

    looks = 0

    def holder(self) -> Holder:
        self.looks += 1
        return super().holder()


@pytest.mark.parametrize("seconds", [1, 60])
async def test_it_looks_as_often_as_it_is_told_to(seconds: int, tmp_path: Path) -> None:
    """Waiting costs a look per second, or per minute."""
    async with SimulatedHost("2026-11-16T12:00:30", "UTC", tmp_path / "state.db") as computer:
        await computer.scheduler().initialize(DECLARED)
        store = CountingStore(tmp_path / "state.db", worker=Inline())
        every = timedelta(seconds=seconds)
        async with duly.standby(computer.scheduler(store), DECLARED, look_every=every) as standby:
            await computer.advance()
            assert store.looks == 1
            await computer.advance(minutes=10)
            assert store.looks == 1 + 600 // seconds
            assert not standby.holding


async def test_of_two_that_stand_by_the_slower_one_goes_on_waiting_silently() -> None:
    """Losing the race is not an event, neither the attempt nor its failure."""
    async with host() as computer:
        holder = computer.scheduler()
        await holder.initialize(DECLARED)
        async with duly.standby(computer.scheduler(), DECLARED) as one:
            async with duly.standby(computer.scheduler(), DECLARED) as other:
                await computer.advance(seconds=5)
                await holder.stop()
                begun = len(told(computer, SchedulerInitializationStarted))
                await computer.advance(minutes=5)
                assert one.holding != other.holding
                assert len(told(computer, SchedulerInitializationStarted)) == begun + 1
                assert told(computer, SchedulerInitializationFailed) == []
                winner_was_other = other.holding
            await computer.advance(seconds=2)
            assert one.holding
        ended = [event.holding for event in told(computer, StandbyEnded)]
        assert ended == ([True, True] if winner_was_other else [True, False])


async def test_minutes_that_passed_while_nobody_held_the_store_are_served_once() -> None:
    """SPEC 3.2: a take-over is a restart."""
    async with host() as computer:
        holder = computer.scheduler()
        await holder.initialize(DECLARED)
        await holder.stop()
        await computer.advance(minutes=5)
        async with duly.standby(computer.scheduler(), DECLARED) as standby:
            await standby.held()
            await computer.advance(seconds=1)
            assert len(told(computer, TaskRunStarted)) == 1


async def test_a_standby_that_is_left_while_it_waits_says_so_and_leaves_the_holder_alone() -> None:
    """A task that awaits held() gets an error; otherwise it would wait for ever."""
    async with host() as computer:
        holder = computer.scheduler()
        await holder.initialize(DECLARED)
        async with duly.standby(computer.scheduler(), DECLARED) as standby:
            waiting = asyncio.create_task(standby.held())
            await computer.advance(seconds=2)
        with pytest.raises(RuntimeError, match="left before the store was free"):
            await waiting
        assert standby_events(computer.events)[1:] == [StandbyEnded(holding=False)]
        await computer.advance(minutes=1)
        assert told(computer, TaskRunStarted)


async def test_a_standby_that_is_left_before_its_first_look_says_so_too() -> None:
    """Nothing of it has run by then."""
    async with host() as computer:
        async with duly.standby(computer.scheduler(), DECLARED) as standby:
            pass
        with pytest.raises(RuntimeError, match="left before the store was free"):
            await asyncio.wait_for(standby.held(), 30)
        assert computer.events == []


async def test_registrations_can_be_replaced_while_it_waits() -> None:
    """The registrations count as they are when the store is free."""
    async with host() as computer:
        holder = computer.scheduler()
        await holder.initialize([])
        async with duly.standby(computer.scheduler(), []) as standby:
            await computer.advance(seconds=2)
            standby.registrations = DECLARED
            await holder.stop()
            await computer.advance(minutes=1)
            assert {event.task_name for event in told(computer, TaskRunStarted)} == {"job"}


async def test_a_scheduler_that_runs_already_gets_the_registrations() -> None:
    """It holds the store itself, so it does not wait."""
    async with host() as computer:
        scheduler = computer.scheduler()
        await scheduler.initialize([])
        async with duly.standby(scheduler, DECLARED) as standby:
            await standby.held()
            await computer.advance(minutes=1)
            assert told(computer, TaskRunStarted)


# --- errors ----------------------------------------------------------------------------------------------------------


async def test_registrations_are_checked_when_the_wait_begins() -> None:
    """Not when the holder dies, perhaps at night: the error ends the standby, and the application goes on."""
    async with host() as computer:
        holder = computer.scheduler()
        await holder.initialize(DECLARED)
        with pytest.raises(duly.CronExpressionInvalidError) as on_leaving:  # noqa: PT012
            async with duly.standby(computer.scheduler(), [("job", "* * * *", succeed, DELAY)]) as standby:
                with pytest.raises(duly.CronExpressionInvalidError) as awaited:
                    await standby.held()
                assert not standby.holding
        assert on_leaving.value is awaited.value
        (failed,) = standby_events(computer.events)
        assert failed == StandbyFailed("CronExpressionInvalidError", str(awaited.value))
        assert failed.level == ERROR


async def test_an_error_at_the_take_over_ends_the_standby() -> None:
    """Any error but that another one was faster: here, tasks that differ from the stored ones."""
    async with host() as computer:
        holder = computer.scheduler()
        await holder.initialize(DECLARED)
        with pytest.raises(duly.TaskListMismatchError):  # noqa: PT012
            async with duly.standby(computer.scheduler(on_mismatch="refuse"), []) as standby:
                await computer.advance(seconds=2)
                await holder.stop()
                await computer.advance(seconds=2)
                with pytest.raises(duly.TaskListMismatchError):
                    await standby.held()
                await computer.advance(minutes=5)  # and it does not try again
        assert [type(event) for event in standby_events(computer.events)] == [StandbyStarted, StandbyFailed]


async def test_what_the_block_raises_is_raised_and_the_scheduler_is_stopped() -> None:
    """As with any context manager."""
    async with host() as computer:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with duly.standby(computer.scheduler(), DECLARED) as standby:
                await standby.held()
                raise ZeroDivisionError
        assert not standby.holding


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        (("state.db", DECLARED), {}, (TypeError, "standby takes a duly.Scheduler, got str")),
        ((duly.Scheduler, DECLARED), {}, (TypeError, "standby takes a duly.Scheduler, got type")),
        ((None, DECLARED), {"look_every": 1}, (TypeError, "look_every must be a timedelta, got int")),
        ((None, DECLARED), {"look_every": timedelta(0)}, (ValueError, "more than zero and at most a minute, got 0:00")),
        ((None, DECLARED), {"look_every": timedelta(hours=1)}, (ValueError, "at most a minute, got 1:00:00")),
    ],
)
async def test_wrong_usage_is_refused_when_it_is_entered(
    arguments: tuple[Any, Any], options: dict[str, Any], expected: tuple[type[Exception], str]
) -> None:
    """Nothing is started."""
    scheduler = arguments[0] if arguments[0] is not None else duly.Scheduler(":memory:")
    with pytest.raises(expected[0], match=expected[1]):
        async with duly.standby(scheduler, arguments[1], **options):
            pytest.fail("entered")
