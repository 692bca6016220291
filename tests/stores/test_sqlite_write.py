"""The statements of the embedded store: whichever way a batch is written, each run gets its own number and end."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from duly.core.changes import Batch, Ends, Starts, SuccessBlock
from duly.core.moments import Instant
from duly.core.task import Task
from duly.stores import SqliteStore
from duly.stores.sqlite import write
from duly.stores.sqlite.write import CALLS_MAX, INSTANTS_MAX, OFFSET_BITS
from tests.stores.contract import NOON, at, ended, living, start, task
from tests.stores.helpers import query

TASKS = 120


def in_order(tasks: list[Task]) -> list[Task]:
    """Neighbours: nearly every burst."""
    return tasks


def from_the_end(tasks: list[Task]) -> list[Task]:
    """As many as there are numbers between the first and the last, in the wrong order."""
    return tasks[::-1]


def two_exchanged(tasks: list[Task]) -> list[Task]:
    """The first and the last are where they belong, and two between them are not."""
    return [*tasks[:5], tasks[6], tasks[5], *tasks[7:]]


def with_a_gap(tasks: list[Task]) -> list[Task]:
    """One of them does not start."""
    return tasks[:50] + tasks[51:]


def by_chance(tasks: list[Task]) -> list[Task]:
    """Every third of them, in no order."""
    return random.Random(5).sample(tasks, TASKS // 3)


@pytest.mark.parametrize("order", [in_order, from_the_end, two_exchanged, with_a_gap, by_chance])
@pytest.mark.parametrize("instants", [1, 2, INSTANTS_MAX, INSTANTS_MAX + 1])
@pytest.mark.parametrize("withdrawn", [0, 3])
async def test_each_run_has_its_own_number_and_end_whatever_the_order_of_a_burst(
    store: Path, order: Callable[[list[Task]], list[Task]], instants: int, withdrawn: int
) -> None:
    """SPEC 3.9: neighbours are written by range, others by their numbers; SPEC 5.3: withdrawn ones are history."""
    tasks = [task(number) for number in range(1, TASKS + 1)]
    due = order(tasks)
    async with living(SqliteStore(store)) as life:
        await life.declare(added=tasks)
        starts = Starts()
        grounds = start(due[0], 0, at(NOON, 1)).grounds
        starts.add(due, 1_001, grounds)
        await life.store.write(Batch(starts.blocks), life.take_number())
        assert query(store, "SELECT run, generation FROM states WHERE run IS NOT NULL ORDER BY run") == [
            (run, each.generation) for run, each in enumerate(due, 1_001)
        ]
        await life.declare(orphaned=due[10 : 10 + withdrawn])
        ends = Ends()
        expected = []
        for number, each in enumerate(due):
            over = Instant(at(NOON, 2) + 1_000 * (number * instants // len(due)))
            ends.add(SuccessBlock(over, grounds, [each], [1_001 + number], at(NOON, 1.5)))
            expected.append((1_001 + number, each.generation, over, at(NOON, 1.5)))
        assert len(ends.blocks) == instants
        await life.store.write(Batch(ends.blocks), life.take_number())
    kept = query(store, "SELECT run, generation, ended_at, called_at FROM runs ORDER BY seq")
    in_force = [row for row in expected if row[1] not in {each.generation for each in due[10 : 10 + withdrawn]}]
    assert sorted(kept) == sorted(expected)
    assert kept[: len(in_force)] == in_force, "in the order of their ends; withdrawn ones follow"
    states = query(store, "SELECT generation, last_success_at FROM states WHERE last_success_at IS NOT NULL")
    assert sorted(states) == sorted((generation, over) for _, generation, over, _ in in_force)
    assert query(store, "SELECT count(*) FROM states WHERE run IS NOT NULL OR run_cause IS NOT NULL") == [(0,)]


@pytest.mark.parametrize("bursts", [2, CALLS_MAX, CALLS_MAX + 1])
async def test_each_run_keeps_the_moment_of_its_own_call(store: Path, bursts: int) -> None:
    """SPEC 3.9: ends of several bursts become durable together."""
    tasks = [task(number) for number in range(1, bursts + 1)]
    async with living(SqliteStore(store)) as life:
        await life.declare(added=tasks)
        ends = Ends()
        for number, each in enumerate(tasks):
            begun = start(each, number + 1, at(NOON, number))
            await life.write(begun)
            ends.add(SuccessBlock(at(NOON, 50), begun.grounds, [each], [begun.run], at(NOON, number + 0.5)))
        await life.store.write(Batch(ends.blocks), life.take_number())
    kept = query(store, "SELECT started_at, called_at FROM runs ORDER BY run")
    assert kept == [(at(NOON, number), at(NOON, number + 0.5)) for number in range(bursts)]


@pytest.mark.parametrize("milliseconds", [0, (1 << OFFSET_BITS) - 1, 1 << OFFSET_BITS, (1 << OFFSET_BITS) + 1])
async def test_ends_that_lie_far_apart_are_written_together(store: Path, milliseconds: int) -> None:
    """SPEC 3.9: a store that took no writes for a while has ends of a quarter of an hour, and more, to write."""
    tasks = [task(number) for number in (1, 2, 3, 4)]
    first, last = tasks[0], tasks[2]  # not neighbours
    ended_at = [at(NOON, 2), Instant(at(NOON, 2) + 1_000 * milliseconds)]
    async with living(SqliteStore(store)) as life:
        await life.declare(added=tasks)
        starts = Starts()
        grounds = start(first, 1, at(NOON, 1)).grounds
        starts.add([first, last], 1, grounds)
        await life.store.write(Batch(starts.blocks), life.take_number())
        ends = Ends()
        for number, each in enumerate((first, last)):
            ends.add(SuccessBlock(ended_at[number], grounds, [each], [number + 1], at(NOON, 1)))
        await life.store.write(Batch(ends.blocks), life.take_number())
    assert query(store, "SELECT generation, ended_at FROM runs ORDER BY run") == [(1, ended_at[0]), (3, ended_at[1])]
    assert query(store, "SELECT generation, last_success_at FROM states ORDER BY generation") == [
        *[(1, ended_at[0]), (2, None), (3, ended_at[1]), (4, None)],
    ]


async def test_a_withdrawn_declaration_is_forgotten_when_history_no_longer_names_it(store: Path) -> None:
    """SPEC 5.1: at the next start; otherwise a file would grow with every task that was ever renamed."""
    ran, never = task(1, "ran"), task(2, "never ran")
    async with living(SqliteStore(store)) as life:
        await life.declare(added=[ran, never, task(3, "stays")])
        begun = start(ran, 1, at(NOON, 1))
        await life.write(begun)
        await life.write(ended(begun, at(NOON, 2)))
        await life.declare(orphaned=[ran, never])
    for history, names in ((10, ["ran", "stays"]), (0, ["stays"])):
        async with living(SqliteStore(store, history=history), f"with {history}") as life:
            await life.declare()
        assert query(store, "SELECT name FROM tasks ORDER BY name") == [(name,) for name in names]


@pytest.mark.parametrize("together", [5, 6, 100])
async def test_many_declarations_keep_their_names_however_many_are_written_together(
    store: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """SPEC 5.1: each name belongs to its generation."""
    monkeypatch.setattr(write, "DECLARED_TOGETHER_MAX", together)
    async with living(SqliteStore(store)) as life:
        await life.declare(added=[task(number) for number in range(3, 15)])
    assert query(store, "SELECT generation, name FROM tasks ORDER BY generation") == [
        (number, f"task {number}") for number in range(3, 15)
    ]
