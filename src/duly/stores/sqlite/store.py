"""The embedded store: one SQLite file in WAL mode with `synchronous=FULL`, and one thread that writes to it.

Loading uses a read-only connection; the read-write one opens only after every check has passed, so a store that is
refused stays as it was, byte for byte. Batches are written by set-based statements: a tick of thousands of tasks that
start for the same reason is one UPDATE, during which the interpreter is free for the event loop.
"""

import asyncio
import contextlib
import os
import sqlite3
import weakref
from collections.abc import Iterable
from datetime import UTC
from enum import Enum, auto
from typing import Any, Final

from duly.core.changes import Batch
from duly.core.moments import Instant, as_datetime
from duly.core.resolution import NO_MARKS, Mark
from duly.errors import StoreCorruptedError, StoreError, StoreLockedError
from duly.stores.port import (
    COMPLETE,
    DEFAULT_HISTORY,
    Blockage,
    Holder,
    Outcome,
    Persisted,
    Replacement,
    TraceRow,
    TraceRows,
)
from duly.stores.postgres.url import check_path
from duly.stores.sqlite import schema
from duly.stores.sqlite.damage import check_indexes, check_whole
from duly.stores.sqlite.faults import naming_faults
from duly.stores.sqlite.file import Identity, check_place, create, discard, exists, opened, written_files
from duly.stores.sqlite.load import load_records
from duly.stores.sqlite.lock import LockFile, holder_named, read_holder, this_process
from duly.stores.sqlite.trace import Tracing
from duly.stores.sqlite.write import Statements
from duly.threads import DaemonThreads, Threads

CHECKPOINT_PAGES: Final = 8_000  # the WAL is folded in about every 32 MB; a tick of many tasks pays for it rarely
CACHE_KIB: Final = 32 * 1024  # so that a large initialize() does not write and read its pages again and again

_stores: "weakref.WeakSet[SqliteStore]" = weakref.WeakSet()
_left_open: list[sqlite3.Connection] = []


class Found(Enum):
    """The content of the store's path before this scheduler wrote there."""

    NOTHING = auto()
    EMPTY_FILE = auto()
    NO_TABLES = auto()
    """A database without a single table: a first initialize() was killed before its commit."""
    STORE = auto()
    ANOTHER = auto()
    """Nothing when it was opened, and a file that another process made since."""


class Stage(Enum):
    """How far the store has come since it was opened."""

    LOADED = auto()
    """No initialize() has been applied yet."""
    IN_USE = auto()
    ABANDONED = auto()
    """Nothing more is recorded."""


class Claim(Enum):
    """Whether the file is still this scheduler's alone."""

    HELD = auto()
    IN_DOUBT = auto()
    """The lock was lost for a while, and the file has not been asked yet whether another scheduler wrote to it."""
    LOST = auto()


class SqliteStore:
    """The embedded store on a path, or `":memory:"` for one that ends with the scheduler's life.

    Parameters:
        path: the path of the file.
        history: how many run records are kept; a scheduler sets it from its own option.
        worker: for the simulated host, where there are no threads.
        synchronous: for the simulated host, where there is no power to lose.

    Raises:
        TypeError: the path is not text.
        ValueError: the path is empty.
        StoreError: the path is a URL.
    """

    in_memory: bool
    path: str
    tracing: Tracing

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        history: int = DEFAULT_HISTORY,
        worker: Threads | None = None,
        synchronous: str = "FULL",
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"the store's path must be a str or a Path, got {type(path).__name__}")
        text = os.fspath(path)
        if not isinstance(text, str):
            raise TypeError(f"the store's path must be text, got {text!r}")
        check_path(text)
        if not text or "\0" in text:
            raise ValueError(f"the store's path must be non-empty text, got {text!r}")
        self.in_memory = text == ":memory:"
        # Links are followed once and for all: two names of one file are one store, with one lock.
        self.path = text if self.in_memory else os.path.realpath(text)
        self.tracing = Tracing()
        self._statements = Statements(identifier="", key=0, history=history)
        self._synchronous = synchronous
        self._worker: Threads = worker if worker is not None else DaemonThreads(1, "duly-store")
        self._lock = None if self.in_memory else LockFile(self.path)
        self._connection: sqlite3.Connection | None = None
        self._files: tuple[Identity | None, ...] = ()  # the files that the connection writes to
        self._version: Any = None  # changes when another process writes
        self._found = Found.NOTHING
        self._found_version = 0
        self._stage = Stage.LOADED
        self._claim = Claim.HELD
        self._holder: dict[str, Any] | None = None  # the scheduler that opened it, until it is closed
        _stores.add(self)

    def __repr__(self) -> str:
        return f"SqliteStore({self.path!r})"

    @property
    def history(self) -> int:
        """How many run records are kept."""
        return self._statements.history

    @history.setter
    def history(self, records: int) -> None:
        self._statements.history = records

    # --- the port ----------------------------------------------------------------------------------------------------

    async def open(self, identifier: str, at: Instant) -> Persisted:
        """Take ownership and load, changing nothing.

        Parameters:
            identifier: the scheduler that opens it.
            at: now, for the name of the holder.

        Raises:
            StoreLockedError: a running scheduler holds it.
            StoreError: it cannot be used: damaged, written by a newer duly, not a store, or SQLite is too old.
            TaskTryDeserializeError: a record is not what duly writes.
        """
        if self._holder is not None:
            # Another scheduler was given this very object, and lives: it must not notice.
            raise StoreLockedError(self.path, self._holder)
        self._holder = this_process(as_datetime(at, UTC))
        self._stage = Stage.LOADED
        try:
            return await self._worker.run(lambda: self._open(identifier, at))
        except BaseException:
            await self.close()
            raise

    async def replace(self, replacement: Replacement, number: int) -> None:
        """Apply all of an initialize(), or nothing.

        Parameters:
            replacement: all that it changes.
            number: grows by one with each new call; a repeated one has its own.

        Raises:
            StoreError: the store failed; it is then as it was before, or as after the call.
        """
        await self._worker.run(lambda: self._replace(replacement, number))

    async def has_replaced(self, number: int) -> bool:
        """Whether a replacement is in the file.

        Parameters:
            number: the number of the replacement.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._worker.run(lambda: self._has_replaced(number))

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        """Make a batch durable; the lock makes this scheduler the only writer, so nothing is refused.

        Parameters:
            batch: the changes.
            number: grows by one with each new call; a repeated one has its own.
            trace: rows to add to the trace in the same transaction.

        Raises:
            StoreError: the store failed; it is then as it was before, or as after the call.
        """
        await self._worker.run(lambda: self._write(batch, number, trace))
        return COMPLETE

    def touch(self) -> None:
        """Set the lock file's modification time: the last poll."""
        if self._lock is not None:
            self._lock.touch()

    def holder(self) -> Holder:
        """Which scheduler holds the store; one in memory can only be held by a scheduler that has this object."""
        if not self.in_memory:
            return read_holder(self.path)
        return holder_named(self._holder or {}, alive=self._holder is not None, last_poll_at=None)

    def note_blockage(self, blockage: Blockage) -> None:
        """Write it beside the holder's name into the lock file.

        Parameters:
            blockage: the callback, and for how long it has blocked the event loop.
        """
        if self._lock is not None:
            self._lock.note_blockage(blockage)

    async def close(self) -> None:
        """Close the file, release the lock, end the thread."""
        with contextlib.suppress(asyncio.CancelledError):
            await self._worker.run(self._release)
        self._worker.close()
        self._holder = None

    def abandon(self) -> None:
        """Record nothing more and release everything; what is being written now still completes."""
        self._stage = Stage.ABANDONED
        self._worker.close(self._release)
        self._holder = None

    # --- loading -----------------------------------------------------------------------------------------------------

    def _open(self, identifier: str, at: Instant) -> Persisted:
        if sqlite3.sqlite_version_info < schema.OLDEST_LIBRARY:
            raise StoreError(
                f"SQLite {sqlite3.sqlite_version} is too old",
                store=self.path,
                hint=f"duly needs at least {'.'.join(map(str, schema.OLDEST_LIBRARY))}",
            )
        self._statements.identifier = identifier
        if self._lock is None:
            return self._open_memory()
        with naming_faults(self.path, "load"):
            check_place(self.path)
            try:
                self._found_version = self._recognise()
            except StoreError:
                if not self._lock.path.exists():  # otherwise it shows whether another process is creating the file
                    raise
            self._lock.acquire(as_datetime(at, UTC))
            try:
                # Once more, now that no other process can create it in between.
                self._found_version = self._recognise()
                return self._load()
            except BaseException:
                self._lock.release()
                raise

    def _open_memory(self) -> Persisted:
        if self._connection is None:
            self._connection = self._connect(":memory:")
            # It outlives a stop, so only the end of this object closes it.
            weakref.finalize(self, self._connection.close)
        (application_id,) = self._connection.execute("PRAGMA application_id").fetchone()
        self._found = Found.STORE if application_id == schema.APPLICATION_ID else Found.NOTHING
        return self._read_all(self._connection) if self._found is Found.STORE else self._nothing_yet()

    def _recognise(self) -> int:
        """The schema version of what is there; 0 for nothing yet, an error for anything that is not ours."""
        self._found = Found.NOTHING
        if not exists(self.path):
            return 0
        self._found = Found.EMPTY_FILE
        if os.path.getsize(self.path) == 0 and not exists(self.path + "-wal"):
            return 0
        with self._reader() as connection:
            connection.execute("BEGIN")
            check_whole(connection, self.path)
            version = schema.recognise(connection, self.path)
        self._found = Found.STORE if version else Found.NO_TABLES
        return version

    @contextlib.contextmanager
    def _reader(self) -> Any:
        with naming_faults(self.path, "load"), opened(self.path, beside=True) as connection:
            yield connection

    def _load(self) -> Persisted:
        if self._found is not Found.STORE:
            return self._nothing_yet()
        with self._reader() as connection:
            check_indexes(connection, self.path)
            if self._found_version == schema.VERSION:
                return self._read_all(connection)
            # An older layout; the file changes when initialize() commits.
            with contextlib.closing(schema.migrated_copy(connection)) as copy:
                return self._read_all(copy)

    def _nothing_yet(self) -> Persisted:
        self._statements.key = 1
        return Persisted((), {}, 1, None, NO_MARKS, next_generation=1, next_run=1, next_number=1)

    def _read_all(self, connection: sqlite3.Connection) -> Persisted:
        with naming_faults(self.path, "load"):
            connection.execute("BEGIN")
            try:
                meta = dict(connection.execute("SELECT key, value FROM meta"))
                identifiers = dict(connection.execute("SELECT key, identifier FROM schedulers"))
                marks = connection.execute("SELECT name, served_through, retired_at FROM marks").fetchall()
                records = load_records(connection)
            finally:
                connection.execute("ROLLBACK")
        for name in schema.COUNTERS:
            if type(meta.get(name)) is not int:
                raise StoreCorruptedError(f"{self.path} has no valid counter {name!r}", store=self.path)
        if not all(type(key) is int and type(name) is str for key, name in identifiers.items()):
            raise StoreCorruptedError(f"{self.path} has a scheduler without a valid key or name", store=self.path)
        if not all(tuple(map(type, mark)) == (str, int, int) for mark in marks):
            raise StoreCorruptedError(f"{self.path} has a mark without a valid name or minute", store=self.path)
        known = {identifier: key for key, identifier in identifiers.items()}
        key = self._statements.key = known.get(self._statements.identifier, max(identifiers, default=0) + 1)
        return Persisted(
            records,
            identifiers,
            key,
            meta.get("zone"),
            {name: Mark(served_through, retired_at) for name, served_through, retired_at in marks},
            next_generation=meta["generation"] + 1,
            next_run=meta["run"] + 1,
            next_number=max(meta["replaced"], meta["written"]) + 1,
        )

    # --- writing -----------------------------------------------------------------------------------------------------

    def _connect(self, path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
        try:
            if path != ":memory:":
                connection.execute("PRAGMA busy_timeout = 1000")
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                if mode != "wal":
                    raise StoreError(
                        f"Store {path} does not support write-ahead logging (journal mode {mode})",
                        store=path,
                        hint="keep the store on a local file system",
                    )
                connection.execute(f"PRAGMA synchronous = {self._synchronous}")
                connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
                connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
                connection.execute(f"PRAGMA journal_size_limit = {4096 * CHECKPOINT_PAGES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _writer(self) -> sqlite3.Connection:
        if self._stage is Stage.ABANDONED:
            raise StoreError(f"Store {self.path} was abandoned", store=self.path)
        if self._connection is None:
            if self._found in (Found.NOTHING, Found.ANOTHER) or not exists(self.path):
                try:
                    create(self.path)
                except FileExistsError:
                    self._found = Found.ANOTHER  # and not this scheduler's to remove
                    raise
            self._begin_writing()
        elif not self.in_memory:
            self._stay_in_place()
        assert self._connection is not None
        return self._connection

    def _begin_writing(self) -> None:
        connection = self._connect(self.path)
        try:
            self._files = written_files(self.path)
            self._version = connection.execute("PRAGMA data_version").fetchone()
        except BaseException:
            connection.close()
            raise
        self._connection, self._claim = connection, Claim.HELD

    def _stay_in_place(self) -> None:
        """Check that the next start will find what is written now: SQLite goes on writing to a removed file."""
        assert self._lock is not None and self._connection is not None
        if self._lock.keep():
            self._claim = Claim.IN_DOUBT
        if self._claim is Claim.IN_DOUBT:
            changed = self._connection.execute("PRAGMA data_version").fetchone() != self._version
            self._claim = Claim.LOST if changed else Claim.HELD
            if changed:
                self._lock.release()
        if self._claim is Claim.LOST:
            raise StoreError(
                f"Another scheduler used {self.path} after its lock file was removed",
                store=self.path,
                hint="stop this scheduler; the runs that it had under way count as interrupted",
            )
        main, wal = written_files(self.path)
        if main != self._files[0]:
            raise StoreError(
                f"Store {self.path} was {'removed' if main is None else 'replaced'} while in use",
                store=self.path,
                hint="put the file back; or stop this scheduler, and start again with the file that is there",
            )
        if wal != self._files[1]:
            self._begin_new_wal()

    def _begin_new_wal(self) -> None:
        """The WAL has lost its name, and would be lost: fold it into the file while it can still be read."""
        assert self._connection is not None
        refused, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if refused:
            raise StoreError(
                f"The WAL of store {self.path} was removed, and another program is reading the store",
                store=self.path,
                hint="find out what removes files beside the store, and stop it",
            )
        connection, self._connection = self._connection, None
        connection.close()
        self._begin_writing()

    @contextlib.contextmanager
    def _transaction(self, operation: str) -> Any:
        with naming_faults(self.path, operation):
            connection = self._writer()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
                if not self.in_memory and self._files[1] is None:
                    self._files = written_files(self.path)  # the WAL of a new file is born with its first transaction
            except BaseException:
                if connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    def _replace(self, replacement: Replacement, number: int) -> None:
        first = self._stage is Stage.LOADED
        created = first and self._found is not Found.STORE
        try:
            with self._transaction("initialize") as connection:
                if created:
                    schema.create(connection)
                elif first and not self.in_memory:
                    schema.migrate(connection)
                if not self._statements.already(connection, "replaced", number):
                    if first:
                        self._statements.arrive(connection, replacement)
                    self._statements.apply(connection, replacement)
                    if created:
                        schema.complete(connection)
                    self._trace(connection, replacement.trace)
                    self._statements.finished(connection, "replaced", number)
        except BaseException:
            if first:
                self._undo_creation()
            raise
        self._found, self._stage = Found.STORE, Stage.IN_USE

    def _has_replaced(self, number: int) -> bool:
        with naming_faults(self.path, "initialize"):
            if self._found not in (Found.STORE, Found.ANOTHER):
                return False
            applied = self._statements.already(self._writer(), "replaced", number)
            if applied:
                self._stage = Stage.IN_USE
            return applied

    def _trace(self, connection: sqlite3.Connection, trace: TraceRows | None) -> None:
        if trace is None:
            self.tracing.interrupt(connection)
            return
        if trace.registers is not None:
            self.tracing.begin(connection, self._statements.identifier, trace.registers)
        self.tracing.append(connection, trace.rows)

    def _undo_creation(self) -> None:
        """A first initialize() failed: leave no file where none was, and an empty one where that was."""
        if self.in_memory or self._found not in (Found.NOTHING, Found.EMPTY_FILE):
            return
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        with contextlib.suppress(OSError):
            discard(self.path, keep_file=self._found is Found.EMPTY_FILE)

    def _write(self, batch: Batch, number: int, trace: Iterable[TraceRow]) -> None:
        with self._transaction("write") as connection:
            if not self._statements.already(connection, "written", number):
                self._statements.write(connection, batch)
                if trace:
                    self.tracing.append(connection, trace)
                self._statements.finished(connection, "written", number)

    # --- letting go --------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        # A store in memory outlives a stop, as a file would, but not the death of its process.
        if self._connection is not None and (self._stage is Stage.ABANDONED or not self.in_memory):
            connection, self._connection = self._connection, None
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        if self._lock is not None:
            self._lock.release()

    def disown(self) -> None:
        """Leave the file and the lock to the process that this one was forked from."""
        if self._connection is not None:
            _left_open.append(self._connection)
            self._connection = None
        self._stage = Stage.ABANDONED


def _disown_all() -> None:
    """In a forked child: the stores are the parent's, and closing their connections here could disturb it."""
    for store in list(_stores):
        store.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
