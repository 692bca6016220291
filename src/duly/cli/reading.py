"""A store, read without changing it, also while a scheduler runs on it.

Nothing is created or changed beside an existing `-shm`, which every reader of a live SQLite file shares. A snapshot is
consistent: one read transaction, or a file that stood still meanwhile.
"""

import contextlib
import difflib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from duly.cli.holding import Holder, read_lock
from duly.cli.output import Exit, Failure, fail, failure_of
from duly.cli.time_text import host_zone, now
from duly.core.moments import Instant, zone_name
from duly.core.record import FIELDS, StoredTask, read_records
from duly.core.task import Running
from duly.errors import DulyError, StoreError, StoreVersionError, TaskInvalidStructureError
from duly.stores.port import Declaration, RunRecord
from duly.stores.sqlite import schema
from duly.stores.sqlite.faults import naming_faults
from duly.stores.sqlite.file import exists, kind
from duly.text import plain

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_ATTEMPTS: Final = 5


class UnusedStore(Failure):
    """There is no store yet: no file, or nothing in it."""

    def __init__(self, path: object, why: str, hint: str | None) -> None:
        super().__init__(f"{why}: {path}", hint, Exit.STORE)


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task in force, as the store knows it."""

    stored: StoredTask
    known_since: Instant
    run_cause: str | None
    run_scheduled: Instant | None
    interrupted: bool
    """Running by its record, but nobody runs it: a crash cut it short, and it has not started again yet."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.stored.name

    @property
    def running(self) -> bool:
        """Whether a living scheduler runs it now."""
        return isinstance(self.stored.state, Running) and not self.interrupted


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a store says at one moment."""

    path: Path
    at: Instant
    zone: tzinfo
    """The zone in use: the one in which the store was last used, the host's if that has no name here."""

    host_zone: tzinfo
    """The zone of the host this is read on, in which the next initialize() here would go on."""

    holder: Holder
    tasks: list[KnownTask]
    runs: list[RunRecord]
    """History, earliest start first; what a bounded history has dropped is not there."""

    declarations: list[Declaration]
    schedulers: dict[int, tuple[str, Instant]]
    """Identifiers of the schedulers that wrote here, and when each of them first did."""

    last_errors: dict[int, str]
    """The error of the latest failure that history knows, by generation."""

    @property
    def history_begins(self) -> Instant | None:
        """The start of the earliest run that history has."""
        return self.runs[0].started_at if self.runs else None

    def task(self, name: str) -> KnownTask:
        """The task in force of a name, or the end of the command with a suggestion."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise unknown_task(name, [task.name for task in self.tasks])


def unknown_task(name: str, known: Sequence[str]) -> Failure:
    """The failure that a name which the store does not know leads to."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        hint = f"did you mean {plain(close[0])}?"
    elif known:
        shown = ", ".join(sorted(map(plain, known))[:8])
        hint = f"the store has {shown}" + (f" and {len(known) - 8} more" if len(known) > 8 else "")
    else:
        hint = "the store has no tasks"
    return Failure(f"no task is called {plain(name)!r}", hint, Exit.USAGE)


def store_option(command: F) -> F:
    """`--store PATH`, which every command that reads has; the parameter is `store`.

    What may not be read is told by who reads it, with the exit code of a store; click would call it wrong usage.
    """
    return click.option(
        "--store",
        required=True,
        envvar="DULY_STORE",
        show_envvar=True,
        type=click.Path(readable=False, path_type=Path),
        help="The store: the SQLite file a scheduler keeps its state in.",
    )(command)


def read_store(path: Path, *, runs: bool = True) -> Snapshot:
    """Read all of a store, `runs` included or not; anything that keeps it from being read ends the command."""
    return reading_from(path, lambda real, connection: _snapshot(real, connection, runs=runs))


def reading_from(path: Path, read: Callable[[Path, sqlite3.Connection], T]) -> T:
    """Read something of a store, in one transaction; `read` is called again if a scheduler arrived or left meanwhile.

    It gets the store's real path and the connection. Anything that keeps it from being read ends the command.
    """
    real = os.path.realpath(path)
    try:
        with naming_faults(real, "read"):
            _check_place(path, real)
            return _retrying(real, lambda connection: read(Path(real), connection))
    except DulyError as error:
        raise failure_of(error) from error


def _check_place(path: Path, real: str) -> None:
    """End the command if there is nothing to read; raises if that cannot be told: such a store is not an unused one."""
    found = kind(real)
    if found == stat.S_IFDIR:
        fail(f"{path} is a folder", "name the store itself, a file", Exit.STORE)
    if not found:
        folder = os.path.dirname(real)
        if kind(folder) != stat.S_IFDIR:
            fail(f"no such store: {path}", f"the folder {path.parent} does not exist", Exit.STORE)
        close = difflib.get_close_matches(path.name, _stores_in(folder), n=1, cutoff=0.5)
        hint = f"did you mean {path.with_name(close[0])}?" if close else "the first `duly run` on it creates it"
        raise UnusedStore(path, "no such store", hint)
    if not os.access(real, os.R_OK):
        fail(f"{path} cannot be read: permission denied", "check its owner and mode", Exit.STORE)
    if os.path.getsize(real) == 0 and not exists(real + "-wal"):
        raise UnusedStore(path, "no scheduler has used this store yet", None)


def _stores_in(folder: str) -> list[str]:
    """The names of the stores in a folder; none where they may not be listed, for they are only suggested."""
    try:
        return [name.removesuffix(".lock") for name in os.listdir(folder) if name.endswith(".lock")]
    except OSError:
        return []


# --- opening ---------------------------------------------------------------------------------------------------------


def _retrying(path: str, read: Callable[[sqlite3.Connection], T]) -> T:
    """Read in the way that fits what lies there; again, if a scheduler arrived or left in between."""
    fault: sqlite3.Error | StoreError | None = None
    for _ in range(_ATTEMPTS):
        before = _standing(path)
        try:
            with naming_faults(path, "read"), _connection(path, live=before[0]) as connection:
                answer = read(connection)
        except _Moved:
            continue
        except (StoreError, DulyError) as error:
            # Read while it changed under us, or really damaged: if it stood still, it is damaged.
            if _standing(path) == before:
                raise
            fault = error if isinstance(error, StoreError) else None
            continue
        if before[0] or _standing(path) == before:
            return answer
    raise fault or StoreError(f"Store {path} changes faster than it can be read", store=path, hint="try again")


def _standing(path: str) -> tuple[bool, object]:
    """Whether there is a write-ahead log, and what shows that the file itself has not changed.

    A log that cannot be looked at raises: without it the store would be told as it was some time ago.
    """
    file = _mark(path)
    return file is not None and exists(path + "-wal"), file


def _mark(path: str) -> tuple[int, int, int] | None:
    """What differs when a file has been written or replaced; None if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class _Moved(Exception):  # noqa: N818  # it is no error: whoever hears of it tries again
    """The store was written to while it was copied, so that the copy may be of several moments."""


@contextlib.contextmanager
def _connection(path: str, *, live: bool) -> Iterator[sqlite3.Connection]:
    """A read transaction. Without a log the file stands still, and `immutable` spares it even SQLite's helpers."""
    if not live:
        with _transaction(path, "immutable=1") as connection:
            yield connection
    elif exists(path + "-shm") and _may_share(path):
        with _transaction(path, "mode=ro") as connection:
            yield connection
    else:
        # A log without its index: a copy of files, or another user's. SQLite would create the index beside the store.
        with tempfile.TemporaryDirectory(prefix="duly-read-") as folder:
            copy = os.path.join(folder, "store")
            before = _mark(path), _mark(path + "-wal")
            shutil.copyfile(path + "-wal", copy + "-wal")
            shutil.copyfile(path, copy)
            if (_mark(path), _mark(path + "-wal")) != before:
                raise _Moved
            with _transaction(copy, "mode=rw") as connection:
                yield connection


def _may_share(path: str) -> bool:
    """Whether this user can take part in the locking that reading a live store needs."""
    return os.access(path + "-shm", os.R_OK | os.W_OK) and os.access(path + "-wal", os.R_OK)


@contextlib.contextmanager
def _transaction(path: str, mode: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"file:{quote(os.fsencode(path))}?{mode}", uri=True, isolation_level=None, timeout=5)
    try:
        connection.execute("BEGIN")
        yield connection
        connection.execute("ROLLBACK")
    finally:
        connection.close()


# --- reading ---------------------------------------------------------------------------------------------------------


def _snapshot(path: Path, connection: sqlite3.Connection, *, runs: bool) -> Snapshot:
    version = recognise(str(path), connection)
    if version < schema.VERSION:
        with contextlib.closing(_migrated_copy(connection)) as copy:
            return _read_all(path, copy, runs=runs)
    return _read_all(path, connection, runs=runs)


def _migrated_copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """An older layout, brought up to this version in memory; the file itself changes when a scheduler takes it."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("ROLLBACK")  # a backup reads in a transaction of its own
    connection.backup(copy)
    connection.execute("BEGIN")
    copy.execute("BEGIN")
    schema.migrate(copy)
    copy.execute("COMMIT")
    return copy


def _read_all(path: Path, connection: sqlite3.Connection, *, runs: bool) -> Snapshot:
    at = now()
    holder = read_lock(path)
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    schedulers = {
        key: (identifier, Instant(since))
        for key, identifier, since in connection.execute("SELECT key, identifier, since FROM schedulers")
    }
    declarations = [
        Declaration(*row)
        for row in connection.execute(
            "SELECT generation, name, cron, delay_ms, known_since, retired_at FROM tasks ORDER BY generation"
        )
    ]
    tasks = _tasks(connection, holder, newest=max(schedulers, default=0))
    past = _runs(connection, {each.generation: each for each in declarations}, tasks) if runs else []
    here = host_zone()
    zone = _zone_in_use(meta.get("zone"), here)
    errors = dict(
        connection.execute(
            "SELECT generation, error FROM runs WHERE seq IN "
            "(SELECT max(seq) FROM runs WHERE outcome = 'failure' GROUP BY generation)"
        )
    )
    return Snapshot(path, at, zone, here, holder, tasks, past, declarations, schedulers, errors)


def _zone_in_use(name: object, here: tzinfo) -> tzinfo:
    if not isinstance(name, str) or name == zone_name(here):
        return here
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return here


def recognise(path: str, connection: sqlite3.Connection) -> int:
    """The version of a store's layout. Raises a StoreError if it is none, or a newer one."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application_id == version == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
        raise UnusedStore(path, "no scheduler has used this store yet", None)
    if application_id != schema.APPLICATION_ID:
        raise StoreError(f"{path} is a database of something else", store=path, hint="name the store of a scheduler")
    schema.check_harmless(connection, path)
    if not 1 <= version <= schema.VERSION:
        raise StoreVersionError(path, version, schema.VERSION)
    return int(version)


def _tasks(connection: sqlite3.Connection, holder: Holder, newest: int) -> list[KnownTask]:
    columns = ", ".join(f"{'t' if name in _OF_TASKS else 's'}.{name}" for name in FIELDS)
    rows = connection.execute(
        f"SELECT {columns} FROM tasks t LEFT JOIN states s USING (generation) WHERE t.retired_at IS NULL"
    ).fetchall()
    states = connection.execute("SELECT count(*) FROM states").fetchone()[0]
    if states != len(rows):
        raise TaskInvalidStructureError(states, f"{states} states for {len(rows)} tasks")
    # Whoever arrives writes runs that nobody ended into history; until they start again the state still names them.
    told = {
        run
        for (run,) in connection.execute(
            "SELECT s.run FROM states s JOIN runs r ON r.run = s.run WHERE r.outcome = 'interrupted'"
        )
    }
    tasks = []
    for row, stored in zip(rows, read_records(rows), strict=True):
        known = dict(zip(FIELDS, row, strict=True))
        dead = not holder.alive or stored.run in told or stored.written_by != newest
        interrupted = stored.run is not None and dead
        tasks.append(KnownTask(stored, known["known_since"], known["run_cause"], known["run_scheduled"], interrupted))
    return sorted(tasks, key=lambda task: task.name)


_OF_TASKS: Final = frozenset(FIELDS[:5])


def _runs(
    connection: sqlite3.Connection, declarations: dict[int, Declaration], tasks: list[KnownTask]
) -> list[RunRecord]:
    past = []
    seen = set()
    for run, generation, *rest in connection.execute(
        "SELECT run, generation, cause, scheduled, started_at, ended_at, outcome, error FROM runs ORDER BY seq"
    ):
        declaration = declarations.get(generation)
        name, cron = (declaration.task, declaration.expression) if declaration is not None else ("?", "?")
        past.append(RunRecord(run, name, generation, cron, *rest))
        seen.add(run)
    for task in tasks:
        state, run = task.stored.state, task.stored.run
        if run is not None and run not in seen and isinstance(state, Running):
            outcome = "interrupted" if task.interrupted else "running"
            past.append(
                RunRecord(
                    run,
                    task.name,
                    task.stored.generation,
                    task.stored.expression.text,
                    str(task.run_cause),
                    Instant(task.run_scheduled or 0),
                    state.last_attempt_at,
                    None,
                    outcome,
                    None,
                )
            )
    return sorted(past, key=lambda run: (run.started_at, run.run_id))
