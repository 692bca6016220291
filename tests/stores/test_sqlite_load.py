"""The answer of the embedded store when it is opened: blocks of equal rows, which say what the single rows say."""

import sqlite3
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from duly.core.record import FIELDS, EqualRows, read_equal, read_records
from duly.errors import (
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskTryDeserializeError,
)
from duly.stores.sqlite import load as loading
from duly.stores.sqlite import schema
from duly.stores.sqlite.load import load_records
from tests.core.helpers import stored_tasks

HOURLY = "0 * * * *"
DAILY = "0 3 * * *"


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """A store's tables, empty."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.create(connection)
    schema.complete(connection)
    yield connection
    connection.close()


def put(connection: sqlite3.Connection, generation: int, name: Any, cron: str = HOURLY, **state: Any) -> None:
    """One declaration in force, with its state."""
    connection.execute("INSERT INTO tasks VALUES (?, ?, ?, 1000, 5, NULL)", (generation, name, cron))
    fields = {"served_through": 60, "failures": 0, "interruptions": 0, "written_by": 1, **state}
    connection.execute(
        f"INSERT INTO states (generation, {', '.join(fields)}) VALUES (?{', ?' * len(fields)})",
        (generation, *fields.values()),
    )


def row_by_row(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """All rows, by the plainest of all queries."""
    declared, state = (", ".join(names) for names in (FIELDS[2:5], FIELDS[5:]))
    return connection.execute(
        f"SELECT generation, name, {declared}, {state} FROM tasks JOIN states USING (generation) "
        "WHERE retired_at IS NULL ORDER BY generation"
    ).fetchall()


def rows_of(records: list[EqualRows]) -> list[Any]:
    """The rows of blocks one by one."""
    return [row for block in records for row in block.rows()]


@pytest.mark.parametrize("seed", range(40))
def test_blocks_say_what_the_rows_say(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """SPEC 5.5: with gaps, retired declarations, running tasks, and blocks that end where a span does."""
    dice = Random(seed)
    monkeypatch.setattr(loading, "SPAN_GENERATIONS", dice.choice([2, 5, 1_000]))
    monkeypatch.setattr(loading, "EQUAL_ROWS_MIN", dice.choice([0, 3, 1_000]))
    monkeypatch.setattr(loading, "JUDGED_RUNS_MIN", dice.choice([0, 4, 1_000]))
    monkeypatch.setattr(loading, "_row_by_row", None)  # reading row by row instead would fail
    generation = dice.choice([0, 1, 7])
    for index in range(dice.randrange(60)):
        generation += dice.choice([1, 1, 1, 1, 2, 9])
        state: dict[str, Any] = {}
        if dice.random() < 0.2:
            state = {"last_attempt_at": 100, "last_success_at": dice.choice([200, 300])}
        elif dice.random() < 0.1:
            state = {"last_attempt_at": 100, "run": index + 1, "run_cause": "cron", "run_scheduled": 60}
        put(connection, generation, f"täsk {index}", dice.choice([HOURLY, HOURLY, HOURLY, DAILY]), **state)
        if dice.random() < 0.1:  # a declaration that history still names
            generation += 1
            connection.execute("INSERT INTO tasks VALUES (?, ?, ?, 1000, 5, 9)", (generation, f"täsk {index}", HOURLY))
    records = load_records(connection)
    plain = row_by_row(connection)
    assert rows_of(records) == plain
    assert stored_tasks(records) == list(read_records(plain))


def test_a_million_tasks_would_be_a_few_blocks(connection: sqlite3.Connection) -> None:
    """Values that tasks share are read, checked and kept once for each run of neighbours."""
    for generation in range(1, 2_001):
        put(connection, generation, f"{generation}", HOURLY if generation <= 1_000 else DAILY)
    records = load_records(connection)
    assert [len(each.names) for each in records] == [1_000, 1_000]
    states = {id(each.state) for each in read_equal(records)}
    assert len(states) == 1


@pytest.mark.parametrize("equal", [1, 3, 50])
def test_rows_that_differ_are_found_by_both_kinds_of_queries(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, equal: int
) -> None:
    """SPEC 5.5: one query for each run of equal rows, or a self-join where runs are short, give the same blocks."""
    for generation in range(1, 301):
        put(connection, generation, f"{generation}", last_attempt_at=100, last_success_at=200 + generation // equal)
    found = []
    for least in (0, 16, 10**9):
        monkeypatch.setattr(loading, "EQUAL_ROWS_MIN", least)
        found.append(load_records(connection))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 300 // equal + (equal > 1)
    assert rows_of(found[0]) == row_by_row(connection)


def test_few_tasks_with_numbers_far_apart_are_read_row_by_row(connection: sqlite3.Connection) -> None:
    """After years of overriding there are more generations than anybody wants to go through."""
    for generation in (1, 10**9, 10**15):
        put(connection, generation, f"{generation}")
    assert rows_of(load_records(connection)) == row_by_row(connection)


@pytest.mark.parametrize("name", ["with\0nul", b"bytes", ""])
def test_a_name_that_cannot_be_is_found_however_it_is_read(connection: sqlite3.Connection, name: Any) -> None:
    """SPEC 5.5: a bad record raises its error; NUL, which separates names on the way, is in none of ours."""
    for generation, each in zip(count(1), ("a", name, "b")):
        put(connection, generation, each)
    records = load_records(connection)
    assert [row[1] for row in rows_of(records)] == ["a", name, "b"]
    if name != "with\0nul":  # who registers checks that; to who loads it is a name like any other
        with pytest.raises(TaskInvalidTypeError if isinstance(name, bytes) else TaskInvalidValueError):
            list(read_equal(records))


@pytest.mark.parametrize(
    "statement", ["DELETE FROM states WHERE generation = 2", "DELETE FROM tasks WHERE generation = 2"]
)
def test_a_task_without_a_state_and_a_state_without_a_task_are_noticed(
    connection: sqlite3.Connection, statement: str
) -> None:
    """SPEC 5.5: nothing is loaded from half a record."""
    for generation in range(1, 4):
        put(connection, generation, f"{generation}")
    connection.execute(statement)
    with pytest.raises(TaskInvalidStructureError):
        load_records(connection)


def test_as_many_states_as_tasks_that_are_not_theirs_are_noticed(connection: sqlite3.Connection) -> None:
    """SPEC 5.5: one task has lost its state, and one state its task; the other numbers agree."""
    for generation in range(1, 5):
        put(connection, generation, f"{generation}", last_attempt_at=generation)
    connection.execute("DELETE FROM states WHERE generation = 2")
    connection.execute("DELETE FROM tasks WHERE generation = 3")
    with pytest.raises(TaskTryDeserializeError):
        list(read_equal(load_records(connection)))


def test_a_state_beyond_the_last_task_does_not_stand_in_for_one_that_is_missing(connection: sqlite3.Connection) -> None:
    """SPEC 5.5: the counts agree, and the tasks have no gap; the last one must not be given its neighbour's state."""
    for generation in range(1, 5):
        put(connection, generation, f"{generation}", last_attempt_at=100, last_success_at=200)
    connection.execute("DELETE FROM tasks WHERE generation = 4")
    connection.execute("DELETE FROM states WHERE generation = 3")
    with pytest.raises(TaskTryDeserializeError):
        list(read_equal(load_records(connection)))


def test_a_name_that_appears_twice_is_named_also_in_blocks() -> None:
    """SPEC 5.5: the index of the store forbids it; a damaged one may not."""
    rest = (HOURLY, 1000, 5, 60, None, None, None, None, 0, 0, None, None, None, 1, None, None, None)
    for blocks in (
        [EqualRows([1, 2], ["a", "a"], rest)],
        [EqualRows([1], ["a"], rest), EqualRows([2, 3], ["b", "a"], rest)],
    ):
        with pytest.raises(TaskInvalidValueError, match="appears twice"):
            list(read_equal(blocks))
    (found,) = read_equal([EqualRows([1, 2], ["a", "b"], rest)])
    assert (found.generations, found.names) == ([1, 2], ["a", "b"])
