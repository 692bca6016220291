"""The statements of the embedded store: whichever way a batch is written, each run gets its own number and end."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from duly.core.changes import Batch, Ends, Starts, SuccessBlock
from duly.core.moments import Instant
from duly.core.task import Task
from duly.stores import SqliteStore
from duly.stores.sqlite.write import INSTANTS_MAX
from tests.stores.contract import NOON, at, living, start, task
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
