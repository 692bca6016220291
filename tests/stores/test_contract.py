"""The contract that every store keeps: what the port promises, asked of each implementation in the same words.

A store is put through the lives of schedulers here without any scheduler: changes are made by the pure core, written,
and read back by a second opening, which must find exactly the states that the core ended with.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from duly import parse_cron
from duly.core.moments import Delay, Instant, Minute, begin
from duly.core.record import FIELDS, read_records
from duly.core.registration import Kind
from duly.core.resolution import Orphan, Override, Resolution
from duly.core.task import (
    MARK_TOLERANCE,
    AwaitingRun,
    Cause,
    Change,
    Correction,
    End,
    Grounds,
    Owed,
    Running,
    Start,
    Task,
    TaskState,
    corrected,
    fail,
    grounds_for,
    interrupt,
    newly_declared,
    succeed,
)
from duly.errors import StoreError
from duly.stores import Persisted, Replacement, SqliteStore, Store
from tests.stores.helpers import query

NOON = Minute(1_704_110_400)  # 2024-01-01T12:00Z
AT_NOON = begin(NOON)
HOUR = 3600
DELAY = Delay(300_000)


def at(minute: int, seconds: float = 0) -> Instant:
    """An instant within a minute."""
    return Instant(minute * 1_000_000 + int(seconds * 1_000_000))


class Place:
    """Where a store under test keeps its state, and how to look at what the port does not show."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self._shared = SqliteStore(":memory:") if path == ":memory:" else None

    def store(self, *, history: int = 100_000) -> SqliteStore:
        """A store on this place; what is in memory lives in one object."""
        if self._shared is not None:
            self._shared.history = history
            return self._shared
        return SqliteStore(self.path, history=history)

    def runs(self) -> list[tuple[Any, ...]]:
        """The run records, oldest first."""
        statement = (
            "SELECT run, generation, cause, scheduled, started_at, ended_at, outcome, error FROM runs ORDER BY seq"
        )
        if self._shared is None:
            return query(self.path, statement)
        assert self._shared._connection is not None
        return self._shared._connection.execute(statement).fetchall()


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path / "state.db" if request.param == "file" else ":memory:")


@dataclass
class Life:
    """One scheduler's time with a store: numbers its calls, applies to tasks in memory what it has written."""

    store: Store
    persisted: Persisted
    now: Instant
    number: int = field(init=False)

    def __post_init__(self) -> None:
        self.number = self.persisted.next_number

    async def declare(
        self,
        *,
        added: Sequence[Task] = (),
        overridden: Sequence[tuple[Task, Task]] = (),
        orphaned: Sequence[Task] = (),
        correction: Correction | None = None,
        zone: str = "UTC",
    ) -> None:
        """What an initialize() does to the store."""
        resolution = Resolution(
            self.now,
            added=list(added),
            overridden=[Override(old, old.state, new, ()) for old, new in overridden],
            orphaned=[Orphan(task, None, ()) for task in orphaned],
        )
        await self.store.replace(Replacement(resolution, correction, zone, self.now), self.take_number())

    async def write(self, *changes: Change) -> None:
        """One batch."""
        assert not await self.store.write(changes, self.take_number())

    def take_number(self) -> int:
        """The number of the next call."""
        number, self.number = self.number, self.number + 1
        return number


@contextlib.asynccontextmanager
async def living(store: Store, identifier: str = "first", now: Instant = AT_NOON) -> AsyncIterator[Life]:
    """Own a store for a while."""
    life = Life(store, await store.open(identifier, now), now)
    try:
        yield life
    finally:
        await store.close()


async def found(place: Place) -> dict[str, Any]:
    """What the next scheduler would find: name to record, checked and converted."""
    async with living(place.store(), "visitor") as life:
        return {record.name: record for record in read_records(life.persisted.records)}


async def rows_of(place: Place) -> list[dict[str, Any]]:
    """What the next scheduler would find, field by field."""
    async with living(place.store(), "visitor") as life:
        rows = [dict(zip(FIELDS, row, strict=True)) for row in life.persisted.records]
        return sorted(rows, key=lambda row: int(row["generation"]))


async def nothing() -> None:
    """A callback that is never called here."""


def task(
    generation: int, name: str | None = None, *, cron: str = "* * * * *", delay: Delay = DELAY, mark: Minute = NOON
) -> Task:
    """A task as resolve() makes them."""
    return Task(
        generation, name or f"task {generation}", parse_cron(cron), delay, newly_declared(mark), nothing, Kind.LOOP
    )


def start(each: Task, run: int, now: Instant, *, earliest: Minute | None = None) -> Start:
    """The start that a task owes now, applied in memory as the loop does once it is durable."""
    minute = Minute(now // 1_000_000 - now // 1_000_000 % 60)
    owed = None
    if minute > each.state.served_through:
        owed = Owed(earliest or minute, minute)
    grounds = grounds_for(each.state, owed, now, minute)
    assert grounds is not None
    each.state = grounds.after
    return Start(each, run, grounds)


def ended(begun: Start, now: Instant, error: str | None = None) -> End:
    """The end of a run, applied in memory."""
    state = begun.task.state
    assert isinstance(state, Running)
    if error is None:
        begun.task.state = succeed(state, now)
        return End(begun.task, begun.run, begun.grounds, now)
    after = begun.task.state = fail(state, now, begun.task.delay)
    return End(begun.task, begun.run, begun.grounds, now, error, after.pending_retry_until, after.failures)


# --- opening ---------------------------------------------------------------------------------------------------------


async def test_a_store_is_a_store(place: Place) -> None:
    """The port is what `Scheduler(store=...)` accepts."""
    assert isinstance(place.store(), Store)


async def test_a_new_store_holds_nothing(place: Place) -> None:
    """SPEC 3, 5.1: the first scheduler finds no task, no zone, and counters at their beginning."""
    async with living(place.store()) as life:
        assert list(life.persisted.records) == []
        assert life.persisted.identifiers == {}
        assert life.persisted.zone is None
        assert (life.persisted.next_generation, life.persisted.next_run, life.persisted.next_number) == (1, 1, 1)


async def test_opening_alone_changes_nothing(place: Place) -> None:
    """SPEC 4.5: until replace() the store is as it was, however often it is opened."""
    async with living(place.store()) as life:
        await life.declare(added=[task(1)])
    before = await rows_of(place)
    for identifier in ("second", "third"):
        async with living(place.store(), identifier) as life:
            assert set(life.persisted.identifiers.values()) == {"first"}
    assert await rows_of(place) == before


async def test_closing_twice_is_fine_and_a_closed_store_can_be_opened_again(place: Place) -> None:
    """SPEC 4.1: stop and initialize, again and again."""
    store = place.store()
    for there in range(3):
        async with living(store) as life:
            assert len(life.persisted.records) == there
            await life.declare(added=[task(1 + there, f"t{there}")])
        await store.close()
    assert (await found(place)).keys() == {"t0", "t1", "t2"}


async def test_an_abandoned_store_takes_no_more_writes(place: Place) -> None:
    """SPEC 3.11: nothing more is recorded; what was durable is, on a disk, found by the next scheduler."""
    store = place.store()
    life = Life(store, await store.open("first", AT_NOON), AT_NOON)
    one = task(1)
    await life.declare(added=[one])
    store.abandon()
    with pytest.raises(StoreError):
        await life.write(start(one, 1, at(NOON)))
    await store.close()
    if place.path != ":memory:":  # what lives in memory does not outlive its process
        assert [row["run"] for row in await rows_of(place)] == [None]


# --- replace ---------------------------------------------------------------------------------------------------------


async def test_what_is_declared_is_found_again(place: Place) -> None:
    """SPEC 5.1: configuration, mark and key come back as they were written, whatever a task is called."""
    names = ["plain", "with 'quotes' and \"more\"", "ünïcödé ☂", "line\nbreak", " blank ", "x" * 5_000, "nul-free \x01"]
    tasks = [task(index, name, cron=f"{index} 3 * * *", delay=Delay(index)) for index, name in enumerate(names, 1)]
    async with living(place.store()) as life:
        await life.declare(added=tasks, zone="Europe/Berlin")
    async with living(place.store(), "second") as life:
        records = {record.name: record for record in read_records(life.persisted.records)}
        assert life.persisted.zone == "Europe/Berlin"
        assert life.persisted.identifiers == {1: "first"}
        assert life.persisted.scheduler_key == 2
        assert life.persisted.next_generation == len(names) + 1
    assert set(records) == set(names)
    for each in tasks:
        record = records[each.name]
        assert (record.generation, record.expression.text, record.delay) == (
            each.generation,
            each.expression.text,
            each.delay,
        )
        assert record.state == each.state
        assert record.written_by == 1


async def test_overridden_and_orphaned_declarations_are_gone_and_the_rest_is_untouched(place: Place) -> None:
    """SPEC 5.1, 5.4: one replacement adds, overrides and removes; a preserved record is not rewritten."""
    kept, old, gone = task(1, "kept"), task(2, "changed"), task(3, "gone")
    async with living(place.store()) as life:
        await life.declare(added=[kept, old, gone])
        await life.write(start(kept, 1, at(NOON, 1)), start(old, 2, at(NOON, 1)), start(gone, 3, at(NOON, 1)))
    before = next(row for row in await rows_of(place) if row["name"] == "kept")
    new = task(4, "changed", cron="5 * * * *", delay=Delay(0))
    async with living(place.store(), "second") as life:
        await life.declare(added=[task(5, "fresh")], overridden=[(old, new)], orphaned=[gone])
    rows = {row["name"]: row for row in await rows_of(place)}
    assert set(rows) == {"kept", "changed", "fresh"}
    assert rows["kept"] == before
    assert (rows["changed"]["generation"], rows["changed"]["cron"], rows["changed"]["delay_ms"]) == (4, "5 * * * *", 0)
    assert rows["changed"]["run"] is rows["changed"]["last_attempt_at"] is None
    assert {rows[name]["written_by"] for name in ("changed", "fresh")} == {2}


async def test_a_replacement_that_fails_changes_nothing(place: Place) -> None:
    """SPEC 5.2: all of an initialize(), or nothing: here its last task violates the store's own rules."""
    one, gone = task(1, "kept"), task(2, "gone")
    async with living(place.store()) as life:
        await life.declare(added=[one, gone])
    before = await rows_of(place)
    async with living(place.store(), "second") as life:
        with pytest.raises(StoreError):
            await life.declare(
                added=[task(4, "fresh"), task(5, "kept")],  # a second one of that name in force
                overridden=[(one, task(3, "kept", cron="1 * * * *"))],
                orphaned=[gone],
            )
    assert await rows_of(place) == before
    async with living(place.store(), "third") as life:
        assert set(life.persisted.identifiers.values()) == {"first"}
        assert life.persisted.next_generation == 3


async def test_a_first_replacement_that_fails_leaves_a_new_store(place: Place) -> None:
    """SPEC 4.5: and the next attempt, by the same or another scheduler, finds nothing in its way."""
    store = place.store()
    async with living(store) as life:
        with pytest.raises(StoreError):
            await life.declare(added=[task(1, "twice"), task(2, "twice")])
    async with living(place.store(), "second") as life:
        assert list(life.persisted.records) == []
        assert life.persisted.identifiers == {}
        await life.declare(added=[task(1, "once")])
    assert [row["name"] for row in await rows_of(place)] == ["once"]


async def test_a_scheduler_keeps_its_key_and_every_other_one_gets_its_own(place: Place) -> None:
    """SPEC 5.4: an integer key into a table of identifiers."""
    keys: dict[str, int] = {}
    for identifier in ("a", "b", "a", "c", "b"):
        async with living(place.store(), identifier) as life:
            assert keys.setdefault(identifier, life.persisted.scheduler_key) == life.persisted.scheduler_key
            await life.declare()
            assert life.persisted.identifiers.items() <= {key: name for name, key in keys.items()}.items()
    assert len(set(keys.values())) == 3


# --- write -----------------------------------------------------------------------------------------------------------


async def test_each_state_is_found_again_as_it_was(place: Place) -> None:
    """SPEC 3, 3.9: every way a task can stand, written change by change, comes back equal."""
    tasks = {name: task(index, name) for index, name in enumerate(STATES, 1)}
    run = 0
    async with living(place.store()) as life:
        await life.declare(added=list(tasks.values()))
        for name, steps in STATES.items():
            each, now = tasks[name], at(NOON, 1)
            begun: Start | None = None
            for step in steps:
                now = Instant(now + 400_000_000)
                if step == "start":
                    run += 1
                    begun = start(each, run, now)
                    await life.write(begun)
                else:
                    assert begun is not None
                    await life.write(ended(begun, now, None if step == "succeed" else f"it {step}s"))
    records = await found(place)
    for name, each in tasks.items():
        assert records[name].state == each.state, name
        assert (records[name].run is not None) == (STATES[name][-1:] == ("start",)), name
    async with living(place.store(), "second") as life:
        assert life.persisted.next_run == run + 1


STATES: dict[str, tuple[str, ...]] = {
    "new": (),
    "running": ("start",),
    "succeeded": ("start", "succeed"),
    "failed": ("start", "fail"),
    "failed twice": ("start", "fail", "start", "fail"),
    "retrying": ("start", "fail", "start"),
    "recovered": ("start", "fail", "start", "succeed"),
    "failed after success": ("start", "succeed", "start", "fail"),
    "running after all that": ("start", "succeed", "start", "fail", "start", "succeed", "start"),
}


async def test_an_interrupted_run_is_found_counted_and_continued(place: Place) -> None:
    """SPEC 3.7: interruptions in a row survive, and end with an end."""
    one = task(1)
    async with living(place.store(), "life 0") as life:
        await life.declare(added=[one])
        begun = start(one, 1, at(NOON, 1))
        await life.write(begun)
    run, now = 1, at(NOON, 1)
    for count in (1, 2, 3):
        async with living(place.store(), f"life {count}") as life:
            (record,) = read_records(life.persisted.records)
            assert isinstance(record.state, Running)
            now = Instant(now + 600_000_000)
            one.state = interrupt(record.state, now, DELAY, restart=True)
            assert one.state.interruptions == count
            await life.declare()
            run += 1
            begun = start(one, run, now)
            assert begun.grounds.cause is Cause.INTERRUPTED
            await life.write(begun)
    async with living(place.store(), "life 4") as life:
        await life.declare()
        await life.write(ended(begun, now))
    (record,) = (await found(place)).values()
    assert record.state == one.state == AwaitingRun(one.state.served_through, now, now, None)
    outcomes = [(number, outcome) for number, *_, outcome, _ in place.runs()]
    assert outcomes == [(1, "interrupted"), (2, "interrupted"), (3, "interrupted"), (4, "interrupted"), (4, "success")]


async def test_a_batch_is_written_whole_or_not_at_all(place: Place) -> None:
    """SPEC 3.9: group commit is atomic: one impossible change keeps all of its batch out."""
    tasks = [task(index) for index in range(1, 6)]
    async with living(place.store()) as life:
        await life.declare(added=tasks)
        first = [start(each, each.generation, at(NOON, 1)) for each in tasks[:2]]
        await life.write(*first)
        before = list(place.runs())
        good: list[Change] = [
            ended(first[0], at(NOON, 2)),
            start(tasks[2], 3, at(NOON, 2)),
            start(tasks[3], 4, at(NOON, 2)),
        ]
        impossible = start(tasks[4], 5, at(NOON, 2))
        beyond = replace(impossible.grounds, scheduled=Instant(1 << 80))  # no store has such a number
        with pytest.raises((StoreError, OverflowError)):
            await life.write(*good, Start(tasks[4], 5, beyond))
        assert place.runs() == before
    assert [row["run"] for row in await rows_of(place)] == [1, 2, None, None, None]


async def test_thousands_of_changes_of_many_kinds_fit_into_one_batch(place: Place) -> None:
    """SPEC 3.10: a tick of many tasks is one commit, and every single one is found again."""
    tasks = [task(index, delay=Delay(index % 7 * 1000)) for index in range(1, 3_001)]
    async with living(place.store()) as life:
        await life.declare(added=tasks)
        shared: dict[TaskState, Grounds] = {}
        starts: list[Start] = []
        for each in tasks:
            state = each.state
            begun = start(each, each.generation, at(NOON, 1))
            starts.append(begun._replace(grounds=shared.setdefault(state, begun.grounds)))
        await life.write(*starts)
        ends = [
            ended(begun, at(NOON, 2 + begun.run % 3), None if begun.run % 4 else f"error of {begun.run}")
            for begun in starts
        ]
        more = [start(begun.task, 3_000 + begun.run, at(NOON + 600)) for begun in starts[:1_000]]
        await life.write(*ends, *more)
    records = await found(place)
    assert {name: record.state for name, record in records.items()} == {each.name: each.state for each in tasks}
    assert {name: record.run for name, record in records.items() if record.run} == {
        begun.task.name: begun.run for begun in more
    }
    assert len(place.runs()) == 3_000
    errors = {number: error for number, *_, error in place.runs() if error is not None}
    assert errors == {number: f"error of {number}" for number in range(4, 3_001, 4)}


# --- numbers ---------------------------------------------------------------------------------------------------------


async def test_a_write_that_was_applied_does_nothing_under_the_same_number(place: Place) -> None:
    """A commit can succeed and still report a fault: the repeated call finds its number taken."""
    one = task(1)
    async with living(place.store()) as life:
        await life.declare(added=[one])
        begun = start(one, 1, at(NOON, 1))
        number = life.take_number()
        await life.store.write([begun], number)
        await life.store.write([begun], number)
        end = ended(begun, at(NOON, 2), "once")
        number = life.take_number()
        for _ in range(3):
            await life.store.write([end], number)
        assert len(place.runs()) == 1
    (record,) = (await found(place)).values()
    assert record.state == one.state


async def test_a_replacement_that_was_applied_does_nothing_under_the_same_number(place: Place) -> None:
    """The same for initialize(): nothing is inserted twice, and nothing fails because it is there already."""
    old = task(1, "old")
    async with living(place.store()) as life:
        replacement = Replacement(Resolution(life.now, added=[old, task(2, "gone")]), None, "UTC", life.now)
        number = life.take_number()
        for _ in range(2):
            await life.store.replace(replacement, number)
        new = task(3, "old", cron="1 * * * *")
        resolution = Resolution(
            life.now, added=[task(4, "fresh")], overridden=[Override(old, old.state, new, ())], orphaned=[]
        )
        number = life.take_number()
        for _ in range(2):
            await life.store.replace(Replacement(resolution, None, "UTC", life.now), number)
    assert [(row["generation"], row["name"]) for row in await rows_of(place)] == [(2, "gone"), (3, "old"), (4, "fresh")]


async def test_a_write_that_failed_is_not_lost_when_a_replacement_overtakes_it(place: Place) -> None:
    """SPEC 4.6: an initialize() may commit between a batch's failure and its repetition under its own number."""
    one = task(1)
    async with living(place.store()) as life:
        await life.declare(added=[one])
        begun = start(one, 1, at(NOON, 1))
        await life.write(begun)
        failed = life.take_number()  # a write under this number met a fault, and was not applied
        await life.declare(added=[task(2)])
        await life.store.write([ended(begun, at(NOON, 2))], failed)
        assert len(place.runs()) == 1
    assert (await found(place))[one.name].state == one.state


async def test_a_replacement_that_failed_is_not_lost_when_a_write_overtakes_it(place: Place) -> None:
    """SPEC 5.2: a batch may commit between an initialize()'s failure and its repetition under its own number."""
    one = task(1)
    async with living(place.store()) as life:
        await life.declare(added=[one])
        begun = start(one, 1, at(NOON, 1))
        await life.write(begun)
        failed = life.take_number()  # a replacement under this number met a fault, and was not applied
        await life.write(ended(begun, at(NOON, 2)))
        resolution = Resolution(life.now, added=[task(2, "fresh")])
        await life.store.replace(Replacement(resolution, None, "UTC", life.now), failed)
    assert set(await found(place)) == {one.name, "fresh"}


async def test_a_store_can_be_asked_whether_a_replacement_was_applied(place: Place) -> None:
    """SPEC 5.2: who was told twice that it failed asks, and believes what is in the store."""
    async with living(place.store()) as life:
        assert not await life.store.has_replaced(life.number)
        await life.declare(added=[task(1)])
        applied = life.number - 1
        await life.write(start(task(1), 1, at(NOON)))
        assert await life.store.has_replaced(applied)
        assert not await life.store.has_replaced(life.number)


async def test_numbers_grow_from_life_to_life(place: Place) -> None:
    """What the next scheduler counts from is beyond everything used before, also by tasks and runs long gone."""
    one = task(1)
    async with living(place.store()) as life:
        await life.declare(added=[one])
        begun = start(one, 7, at(NOON, 1))
        await life.write(begun)
        await life.write(ended(begun, at(NOON, 2)))
        await life.declare(orphaned=[one], added=[task(9)])
        last = life.number - 1
    for history in (0, 10):
        async with living(place.store(history=history), f"history {history}") as life:
            assert life.persisted.next_number > last
            assert life.persisted.next_run == 8
            assert life.persisted.next_generation == 10
            await life.declare()


async def test_ends_of_one_batch_are_kept_to_the_microsecond(place: Place) -> None:
    """SPEC 3.9: what is durable is what was, also around a step of the clock, however ends are written together."""
    microseconds = [5_000_123, 5_001_000, 5_001_123, 4_500_000, 1_300_000_123, 5_001_123, 2**20 * 1000 + 5_000_123]
    tasks = [task(n, f"t{n}") for n, _ in enumerate(microseconds, 1)]
    async with living(place.store()) as life:
        await life.declare(added=tasks)
        starts = [start(each, run, at(NOON, 1)) for run, each in enumerate(tasks, 1)]
        await life.write(*starts)
        moments = [Instant(at(NOON, 0) + after) for after in microseconds]
        await life.write(*(ended(begun, moment) for begun, moment in zip(starts, moments, strict=True)))
        assert [row[5] for row in place.runs()] == moments
    records = await found(place)
    assert {name: record.state for name, record in records.items()} == {each.name: each.state for each in tasks}


# --- runs that outlive their declaration -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, "it failed"])
async def test_the_end_of_a_withdrawn_declaration_is_history_and_nothing_else(place: Place, error: str | None) -> None:
    """SPEC 5.3: it does not touch the declaration that has taken its name, and arms no retry."""
    old, gone = task(1, "changed"), task(2, "gone")
    async with living(place.store()) as life:
        await life.declare(added=[old, gone])
        starts = [start(old, 1, at(NOON, 1)), start(gone, 2, at(NOON, 1))]
        await life.write(*starts)
        new = task(3, "changed", cron="5 * * * *")
        await life.declare(overridden=[(old, new)], orphaned=[gone])
        before = new.state
        await life.write(*(End(each.task, each.run, each.grounds, at(NOON, 5), error) for each in starts))
        assert [(run, generation, outcome, text) for run, generation, *_, outcome, text in place.runs()] == [
            (1, 1, "failure" if error else "success", error),
            (2, 2, "failure" if error else "success", error),
        ]
    records = await found(place)
    assert set(records) == {"changed"}
    assert records["changed"].state == before


async def test_runs_that_nobody_ended_become_history_once(place: Place) -> None:
    """SPEC 3.7: the next scheduler notes them as interrupted, one record each, however often it is restarted."""
    tasks = [task(1), task(2)]
    async with living(place.store()) as life:
        await life.declare(added=tasks)
        await life.write(*(start(each, each.generation, at(NOON, 1)) for each in tasks))
    for identifier in ("second", "third"):
        async with living(place.store(), identifier) as life:
            await life.declare()
    async with living(place.store(), "fourth"):
        assert [(run, ended_at, outcome) for run, *_, ended_at, outcome, _ in place.runs()] == [
            (1, None, "interrupted"),
            (2, None, "interrupted"),
        ]


# --- corrections -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["write", "replace"])
async def test_a_correction_lowers_exactly_what_lies_too_far_ahead(place: Place, way: str) -> None:
    """SPEC 2.5: marks more than 3 hours ahead, retries beyond now + delay; the store agrees with the core."""
    future = Minute(NOON + 20 * HOUR)
    near = Minute(NOON + MARK_TOLERANCE)
    tasks = {
        "far": task(1, "far", mark=future),
        "at the limit": task(2, "at the limit", mark=near),
        "just beyond": task(3, "just beyond", mark=Minute(near + 60)),
        "past": task(4, "past", mark=Minute(NOON - HOUR)),
        "far retry": task(5, "far retry", mark=future),
        "near retry": task(6, "near retry", mark=Minute(NOON - 60), delay=Delay(90_000)),
        "zero delay": task(7, "zero delay", mark=future, delay=Delay(0)),
        "running": task(8, "running", mark=future),
        "never ran": task(9, "never ran", mark=future),
        "never ran, at the limit": task(10, "never ran, at the limit", mark=near),
    }
    async with living(place.store(), now=begin(future)) as life:
        await life.declare(added=list(tasks.values()))
        for name, each in tasks.items():
            if name.startswith("never"):
                continue
            now = at(each.state.served_through + 60, 1)
            begun = start(each, each.generation, now)
            await life.write(begun)
            if name != "running":
                failed = "it failed" if name in ("far retry", "near retry", "zero delay") else None
                await life.write(ended(begun, now, failed))
    correction = Correction(at(NOON, 1), NOON)
    async with living(place.store(), "second", now=at(NOON, 1)) as life:
        if way == "write":
            await life.declare()
            await life.write(correction)
            await life.write(correction)  # once and durably: there is nothing left to lower
        else:
            await life.declare(correction=correction)
    before = {name: each.state.served_through for name, each in tasks.items()}
    for each in tasks.values():
        each.state = corrected(each.state, correction.now, correction.minute, each.delay)
    records = await found(place)
    assert {name: record.state for name, record in records.items()} == {
        name: each.state for name, each in tasks.items()
    }
    lowered = {name for name, record in records.items() if record.state.served_through != before[name]}
    assert lowered == {"far", "just beyond", "far retry", "zero delay", "running", "never ran"}
    assert {records[name].state.served_through for name in lowered - {"never ran"}} == {NOON}
    assert records["never ran"].state.served_through == NOON - 60  # this minute may be owed
    retries = {row["name"]: row["pending_retry_until"] for row in await rows_of(place) if row["pending_retry_until"]}
    assert retries == {
        "far retry": correction.now + 300_000_000,
        "near retry": at(NOON - 60, 1) + 90_000_000,
        "zero delay": correction.now + 1_000_000,
    }
    known = {row["name"]: row["known_since"] for row in await rows_of(place)}
    assert set(known.values()) == {correction.now}  # a `knownSince` in the future likewise


async def test_a_correction_leaves_a_known_since_of_the_past_alone(place: Place) -> None:
    """SPEC 2.5: lowered, never raised."""
    async with living(place.store(), now=begin(Minute(NOON - HOUR))) as life:
        await life.declare(added=[task(1)])
        await life.write(Correction(at(NOON), NOON))
    assert [row["known_since"] for row in await rows_of(place)] == [begin(Minute(NOON - HOUR))]


# --- history ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0, 1, 10, 25])
async def test_history_keeps_the_newest_records_and_no_more(place: Place, bound: int) -> None:
    """The number of run records kept is bounded; scheduling never needs them."""
    one, two = task(1), task(2, delay=Delay(0))
    async with living(place.store(history=bound)) as life:
        await life.declare(added=[one, two])
        for index in range(20):
            now = at(NOON + 60 * index, 1)
            starts = [start(one, 2 * index + 1, now), start(two, 2 * index + 2, now)]
            await life.write(*starts)
            await life.write(ended(starts[0], now), ended(starts[1], now, "no"))
            assert len(place.runs()) <= bound
        assert [run for run, *_ in place.runs()] == list(range(41 - min(bound, 40), 41))
    records = await found(place)
    assert {record.name: record.state for record in records.values()} == {each.name: each.state for each in (one, two)}


async def test_a_smaller_bound_takes_effect_at_the_next_start(place: Place) -> None:
    """The option may change between two lives."""
    one = task(1)
    async with living(place.store()) as life:
        await life.declare(added=[one])
        for index in range(10):
            begun = start(one, index + 1, at(NOON + 60 * index, 1))
            await life.write(begun)
            await life.write(ended(begun, at(NOON + 60 * index, 2)))
    async with living(place.store(history=3), "second") as life:
        await life.declare()
        assert [run for run, *_ in place.runs()] == [8, 9, 10]


async def test_history_tells_what_a_run_was_and_why(place: Place) -> None:
    """One record a run: cause, what it served, when it began and ended, how, and with which words."""
    one = task(1, mark=Minute(NOON - 600))
    async with living(place.store()) as life:
        await life.declare(added=[one])
        first = start(one, 1, at(NOON, 1), earliest=Minute(NOON - 540))
        await life.write(first)
        await life.write(ended(first, at(NOON, 2), "RuntimeError: Ünglück\nsecond line"))
        second = start(one, 2, at(NOON + 303))
        await life.write(second)
        await life.write(ended(second, at(NOON + 304)))
        assert place.runs() == [
            (1, 1, "cron", begin(NOON), at(NOON, 1), at(NOON, 2), "failure", "RuntimeError: Ünglück\nsecond line"),
            (
                2,
                1,
                second.grounds.cause.value,
                second.grounds.scheduled,
                at(NOON + 303),
                at(NOON + 304),
                "success",
                None,
            ),
        ]


async def test_a_task_that_history_still_names_can_be_declared_again(place: Place) -> None:
    """SPEC 5.1: orphaned, and later new: history tells the two declarations apart."""
    first = task(1, "again")
    async with living(place.store()) as life:
        await life.declare(added=[first])
        begun = start(first, 1, at(NOON, 1))
        await life.write(begun)
        await life.write(ended(begun, at(NOON, 2)))
        await life.declare(orphaned=[first])
        second = task(2, "again", cron="3 * * * *")
        await life.declare(added=[second])
        begun = start(second, 2, at(NOON + 180))
        await life.write(begun)
        await life.write(ended(begun, at(NOON + 181)))
        assert [(run, generation) for run, generation, *_ in place.runs()] == [(1, 1), (2, 2)]
    records = await found(place)
    assert records["again"].generation == 2
    assert records["again"].expression.text == "3 * * * *"
