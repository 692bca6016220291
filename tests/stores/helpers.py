"""Helpers for tests of stores: looking into a store from outside, and a disk that takes nothing."""

import contextlib
import os
import pickle
import resource
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from duly.clock import SystemClock
from duly.stores import SqliteReader, View
from duly.stores.port import KnownTask, RunRecord, RunSelection, Snapshot

T = TypeVar("T")


def read(path: Path | str, question: Callable[[View], T]) -> T:
    """Ask a store something as the command line does."""
    return SqliteReader(path, SystemClock().now).read(question)


@dataclass(frozen=True)
class Contents:
    """The content of a small store, all of it."""

    snapshot: Snapshot
    tasks: list[KnownTask]
    runs: list[RunRecord]
    """Earliest start first."""


def contents_of(path: Path | str) -> Contents:
    """All that the commands would show of a store."""
    return read(
        path,
        lambda view: Contents(view.snapshot(), list(view.tasks()), list(view.runs(RunSelection(), oldest_first=True))),
    )


def query(path: Path | str, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    """Ask a store something from outside, read-only, as an operator's tool would."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(statement, arguments).fetchall()


def change(path: Path | str, statement: str, *arguments: object) -> None:
    """Change a store that nobody holds, as nothing but damage or a careless hand would."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement, arguments)


def older_layout(path: Path | str, version: int) -> None:
    """Give a store that nobody holds the layout that an earlier version of the schema had."""
    taken_away = {
        2: "DROP INDEX tasks_retired; DROP TABLE marks; "
        "ALTER TABLE states DROP COLUMN first_started_at; ALTER TABLE states DROP COLUMN first_scheduled; "
        "ALTER TABLE states DROP COLUMN attempt; ALTER TABLE runs DROP COLUMN traceback; "
        "ALTER TABLE runs DROP COLUMN first_started_at; ALTER TABLE runs DROP COLUMN attempt; "
        "ALTER TABLE runs DROP COLUMN called_at;",
        1: "DROP TABLE trace; DROP TABLE segments;",
    }
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        for each in range(found - 1, version - 1, -1):
            connection.executescript(f"{taken_away[each]} PRAGMA user_version = {each};")


def constrain_tasks(path: Path | str, condition: str) -> None:
    """From now on SQLite itself refuses rows of `tasks` that do not meet a condition, in whatever transaction.

    Not by a trigger: a store that brings code of its own is refused as a whole.
    """
    column = "retired_at INTEGER"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        changed = connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'tasks' AND instr(sql, ?)",
            (column, f"{column} CHECK ({condition})", column),
        )
        assert changed.rowcount == 1


def table(path: Path | str, name: str) -> list[tuple[Any, ...]]:
    """All rows of a table, in a fixed order."""
    return query(path, f"SELECT * FROM {name} ORDER BY 1")


def everything(path: Path | str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables."""
    names = [name for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: table(path, name) for name in names}


def stored_tasks(path: Path | str) -> dict[str, tuple[str, int]]:
    """The declarations in force: name to cron text and delay in milliseconds."""
    found = query(path, "SELECT name, cron, delay_ms FROM tasks WHERE retired_at IS NULL")
    return {name: (cron, delay_ms) for name, cron, delay_ms in found}


def stored_state(path: Path | str, name: str) -> dict[str, Any]:
    """The state of a declaration in force, by column."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        row = connection.execute(
            "SELECT s.* FROM states s JOIN tasks t USING (generation) WHERE t.retired_at IS NULL AND t.name = ?",
            (name,),
        ).fetchone()
    return dict(row)


def history(path: Path | str) -> list[tuple[str, str, str]]:
    """The run records, oldest first: name, cause, outcome."""
    return [
        (str(name), str(cause), str(outcome))
        for name, cause, outcome in query(
            path, "SELECT t.name, r.cause, r.outcome FROM runs r JOIN tasks t USING (generation) ORDER BY r.seq"
        )
    ]


def integrity(path: Path | str) -> str:
    """SQLite's own findings about the file: `ok` is nothing."""
    return str(query(path, "PRAGMA integrity_check")[0][0])


def contents(path: Path | str) -> dict[str, bytes]:
    """The bytes of the main file and of its WAL; a file that does not exist is left out, and so is a WAL of none."""
    found = {suffix: Path(f"{path}{suffix}") for suffix in ("", "-wal")}
    return {
        suffix: file.read_bytes()
        for suffix, file in found.items()
        if file.exists() and (file.stat().st_size or not suffix)
    }


def files_in(folder: Path) -> set[str]:
    """The names of the files in a folder."""
    return {path.name for path in folder.iterdir()}


def create_empty(path: Path) -> None:
    """A file of no bytes."""
    path.touch()


@contextlib.contextmanager
def full_disk(*, room: int = 0) -> Iterator[None]:
    """While inside, the kernel lets this process write no file beyond its first `room` bytes, as a full disk would.

    Nothing may print in here: where output is captured in a file, that write is refused as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def without_privileges(work: Callable[[], T]) -> T:
    """Do it in a child process that may not write everywhere, as root may; the answer must be picklable."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Later Pythons warn when a process with threads forks; the child uses none of the parent's.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            answer = pickle.dumps(work())
        except BaseException as error:
            answer = pickle.dumps(RuntimeError(repr(error)))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    outcome: T = pickle.loads(answer)
    if isinstance(outcome, RuntimeError):
        raise outcome
    return outcome
