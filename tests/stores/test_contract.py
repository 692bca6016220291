"""The contract that every store keeps: what the port promises, asked of each implementation in the same words.

A store is put through the lives of schedulers here without any scheduler: changes are made by the pure core, written,
and read back by a second opening, which must find exactly the states that the core ended with.
"""

from dataclasses import replace

import pytest

from duly.core.changes import Batch
from duly.core.moments import Delay, Instant, Minute
from duly.core.resolution import Mark, Override, Resolution
from duly.core.task import (
    AwaitingRun,
    Cause,
    Change,
    Grounds,
    Running,
    Start,
    TaskState,
    interrupt,
)
from duly.errors import StoreError
from duly.stores import Replacement, Store
from tests.core.helpers import stored_tasks
from tests.stores.contract import (
    AT_NOON,
    DELAY,
    HOUR,
    NOON,
    Life,
    Place,
    at,
    ended,
    found,
    living,
    rows_of,
    start,
    task,
)

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
            assert len(list(stored_tasks(life.persisted.records))) == there
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
        records = {record.name: record for record in stored_tasks(life.persisted.records)}
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


@pytest.mark.parametrize("gap", [0, 1, 2, 3])
async def test_declarations_keep_their_numbers_where_those_have_gaps(place: Place, gap: int) -> None:
    """Many that differ only in their names are written together, but only if their numbers follow one another."""
    numbers = [*range(1, 11), *range(11 + gap, 21 + gap)]
    async with living(place.store()) as life:
        await life.declare(added=[task(number, f"task {number}") for number in numbers])
    assert [(row["generation"], row["name"]) for row in await rows_of(place)] == [
        (number, f"task {number}") for number in numbers
    ]


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


async def test_the_marks_of_withdrawn_names_are_kept_for_a_day(place: Place) -> None:
    """SPEC 5.1: the next scheduler finds what a withdrawn declaration has served; a later mark takes its place.

    A day counts from the minute that was served.
    """
    early, late = Mark(NOON, AT_NOON), Mark(Minute(NOON + 60), at(NOON, seconds=1))
    async with living(place.store()) as life:
        assert life.persisted.marks == {}
        await life.declare(added=[task(1)], marks={"täsk": early, "x": early, "y": early, "quoted \"'\\": early})
    async with living(place.store()) as life:
        assert life.persisted.marks == dict.fromkeys(["täsk", "x", "y", "quoted \"'\\"], early)
        await life.declare(marks={"x": late})
    a_day = 24 * HOUR * 1_000_000
    async with living(place.store(), now=Instant(AT_NOON + a_day)) as life:
        assert (life.persisted.marks["x"], life.persisted.marks["y"]) == (late, early)
        await life.declare()
    async with living(place.store(), now=Instant(AT_NOON + a_day + 1)) as life:
        assert (life.persisted.marks["x"], life.persisted.marks["y"]) == (late, early)
        await life.declare(orphaned=[task(1)])
    async with living(place.store()) as life:
        assert life.persisted.marks == {"x": late}


async def test_marks_are_written_with_the_declarations_or_not_at_all(place: Place) -> None:
    """SPEC 5.2: one transaction."""
    kept = Mark(NOON, AT_NOON)
    async with living(place.store()) as life:
        await life.declare(added=[task(1)], marks={"kept": kept})
        with pytest.raises(StoreError):
            await life.declare(added=[task(1)], marks={"kept": Mark(Minute(NOON + 60), AT_NOON), "lost": kept})
    async with living(place.store()) as life:
        assert life.persisted.marks == {"kept": kept}


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


@pytest.mark.parametrize("error", [None, "it failed"])
async def test_an_interrupted_run_is_found_counted_and_continued(place: Place, error: str | None) -> None:
    """SPEC 3.7: interruptions in a row survive, and end with an end, whatever that is."""
    one = task(1)
    async with living(place.store(), "life 0") as life:
        await life.declare(added=[one])
        begun = start(one, 1, at(NOON, 1))
        await life.write(begun)
    run, now = 1, at(NOON, 1)
    for count in (1, 2, 3):
        async with living(place.store(), f"life {count}") as life:
            (record,) = stored_tasks(life.persisted.records)
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
        await life.write(ended(begun, now, error))
    (record,) = (await found(place)).values()
    assert record.state == one.state
    if error is None:
        assert one.state == AwaitingRun(one.state.served_through, now, now, None)
    (row,) = await rows_of(place)
    assert row["interruptions"] == 0
    outcomes = [(number, outcome) for number, *_, outcome, _ in place.runs()]
    interrupted = [(1, "interrupted"), (2, "interrupted"), (3, "interrupted"), (4, "interrupted")]
    assert outcomes == [*interrupted, (4, "success" if error is None else "failure")]


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
        await life.store.write(Batch.of([begun]), number)
        await life.store.write(Batch.of([begun]), number)
        end = ended(begun, at(NOON, 2), "once")
        number = life.take_number()
        for _ in range(3):
            await life.store.write(Batch.of([end]), number)
        assert len(place.runs()) == 1
    (record,) = (await found(place)).values()
    assert record.state == one.state


async def test_a_replacement_that_was_applied_does_nothing_under_the_same_number(place: Place) -> None:
    """A repeated initialize() inserts nothing twice, and does not fail because rows exist already."""
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
        await life.store.write(Batch.of([ended(begun, at(NOON, 2))]), failed)
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
    """The next scheduler counts from numbers beyond all that were used before, even by tasks and runs long gone."""
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
