"""The rows of an embedded store as they leave it for a shared one, or arrive from there."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Final

from duly.core.moments import Instant, as_datetime
from duly.errors import StoreError
from duly.stores.sqlite import schema
from duly.stores.sqlite.damage import check_indexes, check_whole
from duly.stores.sqlite.faults import naming_faults
from duly.stores.sqlite.file import check_place, create, discard, exists, kind, opened
from duly.stores.sqlite.lock import LockFile, read_holder
from duly.stores.transfer import DECLARATION, MARK, RUN, STATE, Content, Extent, Row

_TABLES: Final = (("tasks", DECLARATION), ("states", STATE), ("marks", MARK), ("runs", RUN))


class SqliteContent:
    """The rows of a file, in one read transaction."""

    def __init__(self, connection: sqlite3.Connection, last_sign: Instant | None) -> None:
        self._connection = connection
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        self.zone: str | None = meta.get("zone")
        self.highest_generation = int(meta["generation"])
        self.highest_run = int(meta["run"])
        self.last_sign = last_sign
        counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table, _ in _TABLES]
        self.extent = Extent(*counts)
        (self.interrupted,) = connection.execute(
            "SELECT count(*) FROM states WHERE run IS NOT NULL AND run NOT IN (SELECT run FROM runs)"
        ).fetchone()

    def schedulers(self) -> Iterator[Row]:
        """Key, identifier and arrival of each scheduler."""
        return self._connection.execute("SELECT key, identifier, since FROM schedulers ORDER BY key")

    def declarations(self) -> Iterator[Row]:
        """All declarations, in force or in history."""
        return self._rows("tasks", DECLARATION)

    def states(self) -> Iterator[Row]:
        """The states of those in force."""
        return self._rows("states", STATE)

    def marks(self) -> Iterator[Row]:
        """The marks of withdrawn declarations."""
        return self._rows("marks", MARK)

    def runs(self) -> Iterator[Row]:
        """The history."""
        return self._rows("runs", RUN)

    def _rows(self, table: str, columns: tuple[str, ...]) -> Iterator[Row]:
        return self._connection.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1")


@contextlib.contextmanager
def leaving(path: Path) -> Iterator[Content]:
    """The content of a file that no scheduler holds; of an older layout as this version would have it."""
    real = os.path.realpath(path)
    with naming_faults(real, "read"), opened(real, beside=False) as connection, contextlib.ExitStack() as stack:
        connection.execute("BEGIN")
        check_whole(connection, real)
        version = schema.recognise(connection, real)
        check_indexes(connection, real)
        if version < schema.VERSION:
            connection.execute("ROLLBACK")  # a backup reads in a transaction of its own
            connection = stack.enter_context(contextlib.closing(schema.migrated_copy(connection)))
            connection.execute("BEGIN")
        yield SqliteContent(connection, read_holder(real).last_poll_at)


def check_free(path: Path) -> None:
    """Raise a StoreError unless a new store can be made here: nothing is there, or an empty file."""
    real = os.path.realpath(path)
    with naming_faults(real, "create"):
        check_place(real)
        if kind(real) and (os.path.getsize(real) or exists(f"{real}-wal") or exists(f"{real}-journal")):
            raise StoreError(
                f"{path} is not empty", store=real, hint="name a file that does not exist yet: nothing is overwritten"
            )


def arrive(
    path: Path, content: Content, done: Callable[[int], object], check: Callable[[], None], *, at: Instant
) -> None:
    """Make a store of this content, in one transaction; `done` is called with the number of rows so far.

    `check` is called before the commit, and may raise. `at` is now. The lock is held meanwhile, so that no scheduler
    begins on half a store. If it fails, nothing is left.
    """
    check_free(path)
    real = os.path.realpath(path)
    lock = LockFile(real)
    with naming_faults(real, "create"):
        lock.acquire(as_datetime(at, UTC))
    try:
        with naming_faults(real, "create"):
            check_free(path)  # once more, now that no other process can create it in between
            was_there = bool(kind(real))
            if not was_there:
                create(real)
            try:
                with contextlib.closing(sqlite3.connect(real, isolation_level=None)) as connection:
                    _fill(connection, content, done)
                    check()
                    connection.execute("COMMIT")
            except BaseException:
                discard(real, keep_file=was_there)
                raise
    finally:
        lock.release()
    if content.last_sign is not None:
        # The time of the lock file is that of the last poll, and nothing has polled here yet.
        os.utime(lock.path, ns=(1000 * content.last_sign, 1000 * content.last_sign))


def _fill(connection: sqlite3.Connection, content: Content, done: Callable[[int], object]) -> None:
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    schema.create(connection)
    connection.executemany("INSERT INTO schedulers VALUES (?, ?, ?)", content.schedulers())
    number = 0

    def counted(rows: Iterator[Row]) -> Iterator[Row]:
        nonlocal number
        for row in rows:
            yield row
            number += 1
            if number % 1000 == 0:
                done(number)

    sources = (content.declarations, content.states, content.marks, content.runs)
    for (table, columns), rows in zip(_TABLES, sources, strict=True):
        names, places = ", ".join(columns), ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", counted(rows()))
    schema.complete(connection)
    values = {"zone": content.zone, "generation": content.highest_generation, "run": content.highest_run}
    connection.executemany("UPDATE meta SET value = ? WHERE key = ?", [(value, key) for key, value in values.items()])
    done(number)
