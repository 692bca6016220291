"""Reads all records of the embedded store, in blocks of equal rows.

Neighbouring rows are mostly equal but for their names, because rows lie in the order of their expressions. SQLite
searches for the rows that differ from those before them, and returns the names between them as one text: a million rows
become a few thousand, and the interpreter is free for the event loop while SQLite searches.
"""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from duly.core.record import FIELDS, EqualRows
from duly.errors import TaskInvalidStructureError

SPAN_GENERATIONS: Final = 20_000
"""Generations read per query: Python spends a millisecond or two on their names."""

EQUAL_ROWS_MIN: Final = 16
"""Where fewer rows than this are equal on average, a query for each run of them takes longer than a self-join."""

JUDGED_RUNS_MIN: Final = 8
"""How many runs of equal rows make an average."""

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
    tasks = _Rows(connection, "tasks", _DECLARED, "retired_at IS NULL AND ", first, first + SPAN_GENERATIONS - 1)
    states = _Rows(connection, "states", _STATE, "", first, first + SPAN_GENERATIONS - 1)
    # NUL is in no name (SPEC 1.4), so it can stand between them.
    count, text = tasks.one("count(*), group_concat(name, char(0))", "typeof(name) = 'text'")
    extent = tasks.extent()
    if states.extent() != extent or states.one("count(*)") != (count,):
        raise _OutOfOrderError
    if not count:
        return
    low, high = extent
    generations: Sequence[int] = range(low, high + 1)
    if len(generations) != count:  # there are gaps, which are the same in both tables
        here, there = (each.one("group_concat(generation)")[0] for each in (tasks, states))
        generations = list(map(int, here.split(",")))
        if here != there or sorted(generations) != generations:
            raise _OutOfOrderError
    names = text.split("\0")
    if not len(names) == count == len(generations):
        raise _OutOfOrderError
    declared, stated = tasks.changes(), states.changes()
    begins = [bisect_left(generations, each) for each in sorted(declared.keys() | stated.keys())]
    said: tuple[Any, ...] = ()
    state: tuple[Any, ...] = ()
    for begin, end in pairwise((*begins, len(generations))):
        said = declared.get(generations[begin], said)
        state = stated.get(generations[begin], state)
        yield EqualRows(generations[begin:end], names[begin:end], said + state)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some columns of the rows of one table in a span of generations."""

    connection: sqlite3.Connection
    table: str
    fields: Sequence[str]
    condition: str  # which rows count
    first: int
    last: int

    def one(self, what: str, condition: str = "true") -> tuple[Any, ...]:
        """The one row that an aggregate returns."""
        query = f"SELECT {what} {self._source()} AND {condition}"
        row: tuple[Any, ...] = self.connection.execute(query, (self.first, self.last)).fetchone()
        return row

    def extent(self) -> tuple[Any, Any]:
        """The lowest and the highest generation; by two queries, each of which reads one row."""
        return self.one("min(generation)")[0], self.one("max(generation)")[0]

    def changes(self) -> dict[int, tuple[Any, ...]]:
        """The first row, and each row that differs from the one before it, by generation.

        A query compares rows with a given one and ends at the first that differs. For a million equal states that takes
        half as long as `changes_by_join`, which looks up the predecessor of every row.
        """
        columns = ", ".join(self.fields)
        source = f"SELECT generation, {columns} {self._source()}"
        different = f"{source} AND ({columns}) IS NOT ({', '.join('?' * len(self.fields))}) ORDER BY generation LIMIT 1"
        found: dict[int, tuple[Any, ...]] = {}
        row = self.connection.execute(f"{source} ORDER BY generation LIMIT 1", (self.first, self.last)).fetchone()
        while row is not None:
            generation, *values = row
            found[generation] = tuple(values)
            if len(found) > JUDGED_RUNS_MIN and generation - self.first < EQUAL_ROWS_MIN * len(found):
                return found | replace(self, first=generation).changes_by_join()
            row = self.connection.execute(different, (generation + 1, self.last, *values)).fetchone()
        return found

    def changes_by_join(self) -> dict[int, tuple[Any, ...]]:
        """As `changes`, in one query, whose time does not depend on how many rows differ."""
        old, new = (", ".join(f"{table}.{name}" for name in self.fields) for table in ("old", "new"))
        rows = self.connection.execute(
            f"SELECT new.generation, {new} FROM (SELECT * {self._source()}) AS new "
            f"LEFT JOIN (SELECT * {self._source()}) AS old ON old.generation = new.generation - 1 "
            f"WHERE old.generation IS NULL OR ({new}) IS NOT ({old})",
            2 * (self.first, self.last),
        )
        return {row[0]: row[1:] for row in rows}

    def _source(self) -> str:
        return f"FROM {self.table} NOT INDEXED WHERE {self.condition}generation BETWEEN ? AND ?"
