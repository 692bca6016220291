"""The embedded store on a SQLite whose disk is ours: its own statements, through apsw and a VFS that sees every step.

A VFS is invisible to the standard library's sqlite3, so the store is given a stand-in for that module; all of its own
code runs unchanged. The files are real, and so is their shared memory.
"""

import contextlib
import sqlite3
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

Hook = Callable[[str, str], None]
"""Called with the operation and the file before each one; may raise an apsw error in its place."""


class WatchedFile(apsw.VFSFile):
    """A file of the store."""

    def __init__(self, vfs: "WatchedVFS", name: Any, flags: Any) -> None:
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        self.name = Path(filename or "temporary").name
        self._vfs = vfs
        # As SQLite's own file system does it: the first sync of a new journal also covers its folder.
        journal = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL
        self._syncs_folder = bool(flags[0] & journal) and not Path(filename).exists()
        super().__init__(vfs.base_vfs or "", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        """Read, unless the hook says otherwise."""
        self._vfs.hook("read", self.name)
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        """Write, and tell."""
        self._vfs.hook("write", self.name)
        self._vfs.told("write", self.name, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        """Change the size, and tell."""
        self._vfs.hook("truncate", self.name)
        self._vfs.told("truncate", self.name, newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Synchronise, and tell when that is done."""
        self._vfs.hook("sync", self.name)
        super().xSync(flags)
        self._vfs.told("sync", self.name)
        if self._syncs_folder:
            self._syncs_folder = False
            self._vfs.told("sync folder")

    def xFileSize(self) -> int:  # noqa: N802
        """Ask for the size, unless the hook says otherwise."""
        self._vfs.hook("size", self.name)
        return super().xFileSize()


class WatchedVFS(apsw.VFS):
    """The file system of one test."""

    def __init__(self, name: str, told: Callable[..., None], hook: Hook) -> None:
        self.base_vfs = "unix"
        self.told = told
        self.hook = hook
        super().__init__(name, self.base_vfs)

    def xOpen(self, name: Any, flags: Any) -> WatchedFile:  # noqa: N802
        """Open a file, and tell if it may be created by that."""
        filename = name.filename() if isinstance(name, apsw.URIFilename) else name
        short = Path(filename or "temporary").name
        self.hook("open", short)
        if flags[0] & apsw.SQLITE_OPEN_CREATE:
            self.told("create", short)
        return WatchedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Remove a file, and tell."""
        short = Path(filename).name
        self.hook("delete", short)
        super().xDelete(filename, syncdir)
        self.told("unlink", short)
        if syncdir:
            self.told("sync folder")


class Rows:
    """A cursor whose statement has been carried out: apsw would only begin it."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def fetchone(self) -> Any:
        """The next row, or None."""
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class Connection:
    """As much of `sqlite3.Connection` as the store uses, with its errors."""

    def __init__(self, path: str, vfs: str) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        self._connection = self._do(lambda: apsw.Connection(path, flags=flags, vfs=vfs))

    def _do(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except apsw.Error as error:
            raise fault(error) from error

    def execute(self, statement: str, arguments: Any = ()) -> Rows:
        """Carry out a statement to its end."""
        rows = self._do(lambda: self._connection.execute(statement, arguments).fetchall())
        return Rows(rows, self._connection.changes())

    def executemany(self, statement: str, arguments: Any) -> Rows:
        """Carry it out for each."""
        self._do(lambda: self._connection.executemany(statement, arguments).fetchall())
        return Rows([], -1)

    @property
    def in_transaction(self) -> bool:
        """Whether one is open."""
        return bool(self._connection.in_transaction)

    def close(self) -> None:
        """Close, with the checkpoint that belongs to it; SQLite keeps faults of that to itself, and apsw does not."""
        with contextlib.suppress(apsw.Error):
            self._connection.close(True)


def fault(error: apsw.Error) -> sqlite3.Error:
    """The error that the standard library would have raised."""
    code = getattr(error, "extendedresult", 0) or getattr(error, "result", 0)
    name = apsw.mapping_extended_result_codes.get(code) or apsw.mapping_result_codes.get(code & 0xFF, "SQLITE_ERROR")
    raised = sqlite3.OperationalError(str(error))
    raised.sqlite_errorname = str(name)
    return raised


def stand_in(vfs: str) -> types.SimpleNamespace:
    """For the name `sqlite3` in the store's module."""

    def connect(path: str, **_: Any) -> Connection:
        return Connection(path, vfs)

    return types.SimpleNamespace(
        connect=connect,
        Connection=sqlite3.Connection,
        Error=sqlite3.Error,
        sqlite_version=sqlite3.sqlite_version,
        sqlite_version_info=sqlite3.sqlite_version_info,
    )


def no_fault(operation: str, file: str) -> None:
    """A hook that lets everything pass."""
