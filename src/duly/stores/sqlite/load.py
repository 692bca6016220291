"""Reads all records of the embedded store, in blocks of equal rows.

Neighbouring rows are mostly equal but for their names, because rows lie in the order of their expressions. SQLite
compares each row with the one before it and returns only rows that differ, with the names between them as one text: a
million rows become a few thousand, and the interpreter is free for the event loop while SQLite searches.
"""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from duly.core.record import FIELDS, EqualRows
from duly.errors import TaskInvalidStructureError

SPAN_GENERATIONS: Final = 20_000
"""Generations read per query: Python spends a millisecond or two on their names."""

_DECLARED: Final = FIELDS[2:5]
_STATE: Final = FIELDS[5:]
_OF_TASKS: Final = frozenset(FIELDS[:5])

ROW: Final = ", ".join(f"{'t' if name in _OF_TASKS else 's'}.{name}" for name in FIELDS)
"""The columns of a record, where `tasks` is called t and `states` s."""


def load_records(connection: sqlite3.Connection) -> list[EqualRows]:
    """Every declaration in force with its state; inside the caller's transaction."""
    first, last, count = connection.execute("SELECT min(generation), max(generation), count(*) FROM tasks").fetchone()
    spans = range(first or 0, (last or -1) + 1, SPAN_GENERATIONS)
    try:
        if len(spans) > 100 + count // 10:
            raise _OutOfOrderError  # few tasks with numbers far apart: a long life, and most of its spans are empty
        records = [each for begin in spans for each in _span(connection, begin)]
    except (_OutOfOrderError, sqlite3.OperationalError, sqlite3.DataError):
        records = _row_by_row(connection)
    check_count(connection, sum(len(each.names) for each in records))
    return records


def check_count(connection: sqlite3.Connection, tasks: int) -> None:
    """Raise if there is not exactly one state per task in force."""
    (states,) = connection.execute("SELECT count(*) FROM states").fetchone()
    if states != tasks:
        raise TaskInvalidStructureError(states, f"{states} states for {tasks} tasks")


class _OutOfOrderError(Exception):
    """A row is not as duly writes it; reading row by row can say which."""


def _row_by_row(connection: sqlite3.Connection) -> list[EqualRows]:
    """Read each row by itself: for a damaged store, and for generations that lie far apart."""
    rows = connection.execute(
        f"SELECT {ROW} FROM tasks AS t LEFT JOIN states AS s ON s.generation = t.generation "
        "WHERE t.retired_at IS NULL ORDER BY t.generation"
    )
    connection.text_factory = _text
    try:
        return [EqualRows.single(row) for row in rows]
    finally:
        connection.text_factory = str


def _text(stored: bytes) -> str | bytes:
    """Text of a row; bytes if it is not UTF-8, so that the check of the row names the task and the field."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def _span(connection: sqlite3.Connection, first: int) -> Iterator[EqualRows]:
    """The records of some consecutive generations."""
    span = {"first": first, "last": first + SPAN_GENERATIONS - 1}
    in_force = "FROM tasks NOT INDEXED WHERE retired_at IS NULL AND generation BETWEEN :first AND :last"
    stated = "FROM states WHERE generation BETWEEN :first AND :last"
    low, high, count, text, strange = connection.execute(
        # NUL is in no name (SPEC 1.4), so it can stand between them.
        "SELECT min(generation), max(generation), count(*), group_concat(name, char(0)), "
        f"total(typeof(name) != 'text') {in_force}",
        span,
    ).fetchone()
    extent = connection.execute(f"SELECT min(generation), max(generation), count(*) {stated}", span).fetchone()
    if extent != (low, high, count) or strange:
        raise _OutOfOrderError
    if not count:
        return
    generations: Sequence[int] = range(low, high + 1)
    if len(generations) != count:  # there are gaps, which are the same in both tables
        numbers = "SELECT group_concat(generation) "
        (here,), (there,) = (connection.execute(numbers + each, span).fetchone() for each in (in_force, stated))
        generations = list(map(int, here.split(",")))
        if here != there or sorted(generations) != generations:
            raise _OutOfOrderError
    names = text.split("\0")
    if len(names) != count:
        raise _OutOfOrderError
    declared = _changes(connection, "tasks", _DECLARED, span)
    states = _changes(connection, "states", _STATE, span)
    begins = [bisect_left(generations, each) for each in sorted(declared.keys() | states.keys())]
    said: tuple[Any, ...] = ()
    state: tuple[Any, ...] = ()
    for begin, end in pairwise((*begins, len(generations))):
        said = declared.get(generations[begin], said)
        state = states.get(generations[begin], state)
        if not said or not state:
            raise _OutOfOrderError
        yield EqualRows(generations[begin:end], names[begin:end], said + state)


def _changes(
    connection: sqlite3.Connection, table: str, fields: Sequence[str], span: dict[str, int]
) -> dict[int, tuple[Any, ...]]:
    """Some columns of the rows in which any of them differs from the row before, by generation."""
    in_force = "new.retired_at IS NULL AND " if table == "tasks" else ""
    before = "old.generation IS NULL OR new.generation = :first"
    if table == "tasks":
        before += " OR old.retired_at IS NOT NULL"
    rows = connection.execute(
        f"SELECT new.generation, {_columns('new', fields)} FROM {table} AS new NOT INDEXED "
        f"LEFT JOIN {table} AS old ON old.generation = new.generation - 1 "
        f"WHERE {in_force}new.generation BETWEEN :first AND :last "
        f"AND ({before} OR ({_columns('new', fields)}) IS NOT ({_columns('old', fields)}))",
        span,
    )
    return {row[0]: row[1:] for row in rows}


def _columns(table: str, fields: Sequence[str]) -> str:
    return ", ".join(f"{table}.{name}" for name in fields)
