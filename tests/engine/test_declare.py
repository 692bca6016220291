"""A first initialize() turns stored rows into tasks, most of them with their registrations at once."""

import asyncio
from datetime import UTC, timedelta, tzinfo
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import duly
from duly.core.moments import zone_name
from duly.core.record import EqualRows, read_equal
from duly.core.registration import Registrations, read_registrations
from duly.core.resolution import NO_MARKS, resolve
from duly.core.steps import finish
from duly.core.task import AwaitingRun, Interrupted
from duly.engine.declare import Existing, Loading
from duly.errors import (
    ScheduleTaskError,
    StoreError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskListMismatchError,
    TaskTryDeserializeError,
)
from duly.events import SchedulerInitializationCompleted
from duly.stores import SqliteStore
from duly.stores.port import Replacement
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.core.helpers import at, on_the_loop
from tests.engine.helpers import engine_of, registration
from tests.spec.helpers import ManualClock, told
from tests.stores.helpers import query

NOW = at("2025-06-15T12:00:30")
HOURLY, DAILY = "0 * * * *", "0 3 * * *"
SETTLED = (5, 60, None, None, None, None, 0, 0, None, None, None, 1, None, None, None)
CUT_SHORT = (5, 60, 50, None, None, None, 0, 0, 7, "cron", 40, 1, None, None, None)


def declared_as(*names: str, cron: str = HOURLY) -> Registrations:
    return finish(read_registrations([(name, cron, on_the_loop, timedelta(seconds=1)) for name in names]))


def rows(first: int, *names: Any, cron: str = HOURLY, state: tuple[Any, ...] = SETTLED) -> EqualRows:
    return EqualRows(range(first, first + len(names)), list(names), (cron, 1_000, *state))


def loaded(declared: Registrations, *records: EqualRows) -> Existing:
    return finish(Loading(declared, NO_MARKS, NOW, UTC, restart=True).load(records))


def test_tasks_that_are_declared_in_their_order_have_their_registrations_at_once() -> None:
    """SPEC 5.1: preserved; the name is the caller's own text, not a second copy."""
    declared = declared_as("task a", "task b", "task c")
    copies = [name.encode().decode() for name in declared.names]
    found = loaded(declared, rows(1, *copies[:2]), rows(3, copies[2], state=CUT_SHORT))
    assert not found.others
    assert found.count == 3
    assert found.preserved is not None
    assert [each.callback for each in found.tasks()] == 3 * [on_the_loop]
    assert [(each.generation, each.name) for each in found.tasks()] == [(1, "task a"), (2, "task b"), (3, "task c")]
    assert all(each.name is name for each, name in zip(found.tasks(), declared.names, strict=True))
    assert [type(each.state) for each in found.tasks()] == [AwaitingRun, AwaitingRun, Interrupted]
    assert [(index, each.name) for index, each in found.preserved.interrupted] == [(2, "task c")]


def test_a_name_that_is_found_in_its_order_and_elsewhere_again_appears_twice() -> None:
    """SPEC 5.5: the index of the store forbids it; a damaged one may not."""
    for records in (
        [rows(1, "a", "b"), rows(3, "a")],
        [rows(1, "a"), rows(2, "a", "b")],
        [rows(1, "x", "a"), rows(3, "a"), rows(4, "b")],
        [rows(1, "a", "b"), rows(3, "a", cron=DAILY)],
        [rows(1, "x"), rows(2, "a", "b"), rows(4, "x")],
    ):
        with pytest.raises(TaskInvalidValueError, match="appears twice"):
            loaded(declared_as("a", "b"), *records)


def test_the_first_bad_row_is_named_though_a_later_one_is_noticed_before_it() -> None:
    """SPEC 5.5: as a check row by row would name it."""
    records = [rows(1, "a", "b"), rows(3, "a", cron=DAILY), rows(4, "c", state=("x", *SETTLED[1:]))]
    with pytest.raises(TaskInvalidValueError, match="appears twice"):
        loaded(declared_as("a", "b", "c"), *records)
    with pytest.raises(TaskInvalidTypeError):
        loaded(declared_as("a", "b", "c"), records[0], records[2])


def test_every_record_is_checked_as_it_is_without_registrations() -> None:
    """SPEC 5.5: the error does not depend on what is declared."""
    for seed in range(100):
        check_with_and_without_registrations(seed)


def check_with_and_without_registrations(seed: int) -> None:
    dice = Random(seed)
    names: list[Any] = [f"t{number}" for number in range(12)]
    if dice.random() < 0.7:
        names[dice.randrange(12)] = dice.choice(["t3", "t8", "", None, 5, b"t3"])
    cuts = sorted(dice.sample(range(1, 12), 3))
    records = [
        rows(begin + 1, *names[begin:end], cron=dice.choice([HOURLY, DAILY]), state=dice.choice([SETTLED, CUT_SHORT]))
        for begin, end in zip([0, *cuts], [*cuts, 12], strict=True)
    ]
    if dice.random() < 0.3:
        records[dice.randrange(4)] = rows(1, "q", state=("x", *SETTLED[1:]))

    def raised(work: Any) -> tuple[type, str] | None:
        try:
            work()
        except Exception as error:
            return type(error), str(error)
        return None

    expected = raised(lambda: list(read_equal(records)))
    for declared in (declared_as(*(f"t{number}" for number in range(12))), declared_as("t8", "q"), declared_as()):
        assert raised(lambda declared=declared: loaded(declared, *records)) == expected


def test_what_is_left_is_resolved_as_before() -> None:
    """SPEC 5.1: new, overridden, orphaned, beside those that were found in their order."""
    declared = finish(
        read_registrations(
            [
                (name, cron, on_the_loop, timedelta(seconds=1))
                for name, cron in zip("anbc", (HOURLY, HOURLY, DAILY, DAILY), strict=True)
            ]
        )
    )
    found = loaded(declared, rows(1, "a", "b", "o"), rows(4, "c", cron=DAILY))
    result = finish(
        resolve(
            declared,
            found.others,
            now=NOW,
            zone=UTC,
            new_generations=count(9).__next__,
            order=found.order,
            preserved=found.preserved,
        )
    )
    assert {each.name for each in result.preserved.tasks} == {"a", "c"}
    assert [each.name for each in result.added] == ["n"]
    assert [each.new.name for each in result.overridden] == ["b"]
    assert [each.task.name for each in result.orphaned] == ["o"]


def test_a_record_that_cannot_be_read_is_an_error_whatever_is_declared() -> None:
    """SPEC 5.5."""
    with pytest.raises(TaskTryDeserializeError):
        loaded(declared_as("a", "b"), rows(1, "a"), rows(2, "b", cron="at noon"))


# --- calls -----------------------------------------------------------------------------------------------------------


class Unsure(SqliteStore):
    """The embedded store, whose replacements can fail before they are made, or after."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, worker=Inline(), synchronous="OFF")
        self.faults: list[str] = []
        self.ready = asyncio.Event()
        self.ready.set()

    async def replace(self, replacement: Replacement, number: int) -> None:
        await self.ready.wait()
        fault = self.faults.pop(0) if self.faults else ""
        if fault != "before":
            await super().replace(replacement, number)
        if fault:
            raise StoreError("the disk is not sure", store=self.path)


async def test_a_replacement_that_is_in_the_store_after_two_faults_has_taken_effect(
    host: SimulatedHost, store: Path
) -> None:
    """SPEC 4.6: a commit can succeed and still report a fault, twice."""
    disk = Unsure(store)
    scheduler = host.scheduler(disk)
    await scheduler.initialize([registration("a")])
    disk.faults = ["after", "after"]
    await scheduler.initialize([registration("b")])
    assert [task.name for task in engine_of(scheduler).agenda.tasks()] == ["b"]


async def test_a_replacement_that_is_not_in_the_store_after_two_faults_has_failed(
    host: SimulatedHost, store: Path
) -> None:
    """SPEC 4.6: everything is as it was."""
    disk = Unsure(store)
    scheduler = host.scheduler(disk)
    await scheduler.initialize([registration("a")])
    disk.faults = ["before", "before"]
    with pytest.raises(ScheduleTaskError):
        await scheduler.initialize([registration("b")])
    assert [task.name for task in engine_of(scheduler).agenda.tasks()] == ["a"]
    await scheduler.initialize([registration("b")])


async def test_a_fault_names_no_task_where_there_is_none(host: SimulatedHost, store: Path) -> None:
    """SPEC 4.6."""
    disk = Unsure(store)
    disk.faults = ["before", "before"]
    with pytest.raises(StoreError):
        await host.scheduler(disk).initialize([])


async def test_a_call_that_is_given_up_while_it_commits_takes_effect(host: SimulatedHost, store: Path) -> None:
    """SPEC 4.2: it goes through to its end, even without its caller."""
    disk = Unsure(store)
    scheduler = host.scheduler(disk)
    await scheduler.initialize([registration("a")])
    disk.ready.clear()
    calling = asyncio.ensure_future(scheduler.initialize([registration("b")]))
    for _ in range(20):
        await asyncio.sleep(0)
    calling.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    disk.ready.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(calling, 30)
    assert [task.name for task in engine_of(scheduler).agenda.tasks()] == ["b"]


async def test_a_list_that_differs_from_the_stored_one_is_refused_however_many_tasks_are_the_same(
    host: SimulatedHost,
) -> None:
    """SPEC 5.4: one task is as it was, one is gone, and one is new."""
    scheduler = host.scheduler()
    await scheduler.initialize([registration("a"), registration("b", DAILY)])
    await scheduler.stop()
    with pytest.raises(TaskListMismatchError):
        await host.scheduler(on_mismatch="refuse").initialize([registration("a"), registration("c")])


async def test_a_first_call_takes_all_tasks(host: SimulatedHost) -> None:
    """SPEC 5.1: those that are preserved count, too."""
    for _ in range(2):
        scheduler = host.scheduler()
        await scheduler.initialize([registration("a"), registration("b")])
        await scheduler.stop()
    completed = told(host, SchedulerInitializationCompleted)
    counts = [(each.total_registrations, each.scheduled_count, each.skipped_count) for each in completed]
    assert counts == [(2, 2, 0), (2, 2, 0)]


async def test_the_trace_begins_with_the_steady_clock_of_the_process(host: SimulatedHost, store: Path) -> None:
    """FORMAL: BT, in microseconds."""
    await host.advance(seconds=3)
    scheduler = host.scheduler(trace=True)
    await scheduler.initialize([])
    await scheduler.stop()
    ((line,),) = query(store, "SELECT line FROM trace WHERE line LIKE '[\"BT\"%'")
    assert line.endswith(",3000000]")


async def test_a_name_that_was_removed_before_a_restart_does_not_run_its_minute_again(host: SimulatedHost) -> None:
    """SPEC 5.1: also if it is declared again by a later call only."""
    called: list[str] = []

    async def note() -> None:
        called.append(f"{host.now:%H:%M:%S}")

    scheduler = host.scheduler()
    await scheduler.initialize([registration("a"), registration("b", callback=note)])
    await host.advance(seconds=5)
    await scheduler.initialize([registration("a")])
    await scheduler.stop()
    scheduler = host.scheduler()
    await scheduler.initialize([registration("a")])
    await host.advance(seconds=5)
    await scheduler.initialize([registration("a"), registration("b", callback=note)])
    await host.advance(minutes=1)
    assert called == ["12:00:30", "12:01:00"]


class MovingClock(ManualClock):
    """The clock of a host that is carried from zone to zone."""

    place: tzinfo = UTC

    def zone(self) -> tzinfo:
        return self.place


async def test_a_later_call_goes_by_the_zone_that_the_host_has_now(store: Path) -> None:
    """SPEC 2.3: whether its tasks change or not."""
    clock = MovingClock()
    scheduler = duly.Scheduler(store, clock=clock)
    await scheduler.initialize([registration("a", "0 3 * * *")])
    for name in ("Asia/Tokyo", "Asia/Tokyo", "America/Lima"):
        clock.place = ZoneInfo(name)
        await scheduler.initialize([registration("a", "0 3 * * *")])
        assert zone_name(engine_of(scheduler).agenda.zone) == name
        assert query(store, "SELECT value FROM meta WHERE key = 'zone'") == [(name,)]
    await scheduler.stop()
