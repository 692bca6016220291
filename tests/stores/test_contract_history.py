"""The contract of every store about what was: runs that outlive their declaration, clocks set back, and history."""

from itertools import count

import pytest

from duly.core.moments import Delay, Minute, begin
from duly.core.resolution import Mark
from duly.core.task import (
    SERVED_AHEAD_SECONDS_MAX,
    Correction,
    End,
    corrected,
    newly_declared,
)
from tests.stores.contract import AT_NOON, DELAY, HOUR, NOON, Place, at, ended, found, living, rows_of, start, task

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
    near = Minute(NOON + SERVED_AHEAD_SECONDS_MAX)
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


@pytest.mark.parametrize("way", ["write", "replace"])
async def test_a_correction_lowers_marks_and_known_since_together(place: Place, way: str) -> None:
    """SPEC 2.5, 5.1: of tasks that never started, of tasks that did, and of names that are gone; as the core does."""
    near, far = Minute(NOON + SERVED_AHEAD_SECONDS_MAX), Minute(NOON + SERVED_AHEAD_SECONDS_MAX + 60)
    soon, later = Minute(near - 600), Minute(far + 600)  # known since less, or more, than 3 hours ahead
    cases = {
        "served too far, known soon": (soon, far),
        "served too far, known later": (later, far),
        "served near, known later": (later, near),
        "served near, known soon": (soon, near),
        "served long ago, known later": (later, Minute(NOON - 600)),
        "nothing served, known later": (later, None),
        "nothing served, known soon": (soon, None),
    }
    states = {name: newly_declared(known, served) for name, (known, served) in cases.items()}
    marks = {name: Mark(served, AT_NOON) for name, (_, served) in cases.items() if served is not None}
    marks |= {"gone, too far": Mark(far, at(far)), "gone, near": Mark(near, at(near))}
    numbers = count(1)
    for known in (soon, later):
        async with living(place.store(), now=begin(known)) as life:
            tasks = [task(next(numbers), name) for name in cases if cases[name][0] == known]
            for each in tasks:
                each.state = states[each.name]
            if known == soon:
                tasks.append(task(next(numbers), "started", mark=soon))
            await life.declare(added=tasks, marks=marks)
            if known == soon:
                begun = start(tasks[-1], 1, at(far, 1))
                await life.write(begun)
                await life.write(ended(begun, at(far, 2)))
    correction = Correction(at(NOON, 1), NOON)
    async with living(place.store(), "second", now=at(NOON, 1)) as life:
        await life.declare(correction=None if way == "write" else correction)
        if way == "write":
            await life.write(correction)
    rows = {row["name"]: row for row in await rows_of(place)}
    for name, state in states.items():
        right = corrected(state, correction.now, NOON, DELAY)
        assert rows[name]["served_through"] == right.served_through, name
        known = cases[name][0]
        lowered = known == later or name.startswith("served too far")
        assert rows[name]["known_since"] == (correction.now if lowered else begin(known)), name
    assert (rows["started"]["served_through"], rows["started"]["known_since"]) == (NOON, correction.now)
    async with living(place.store(), "visitor") as life:
        kept = life.persisted.marks
    assert kept == {**marks, **{name: Mark(NOON, correction.now) for name, mark in marks.items() if mark[0] == far}}


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
