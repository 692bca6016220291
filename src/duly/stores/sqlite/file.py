"""The files of an embedded store: whether they can be there, how to read them untouched, whether they still are there.

`os.path.exists` is not asked: it takes a file that cannot be looked at for one that is not there, and a store that is
not there is made anew.
"""

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from duly.errors import StoreError

_ATTEMPTS: Final = 5
_MAGIC: Final = b"SQLite format 3\0"
_PARTS: Final = ("-journal", "-wal", "")
"""The endings of a store's file names, in the order in which the files are copied."""


def check_place(path: str) -> None:
    """Raise a StoreError if no store can be at this path."""
    folder = Path(path).parent
    found = kind(path, follow_links=False)
    if found == stat.S_IFDIR:
        raise StoreError(f"{path} is a folder", store=path, hint="name a file inside it")
    if found == stat.S_IFLNK:
        # Links were followed before. A lock file beside the link would not be seen beside the file it leads to.
        raise StoreError(f"{path} is a link that cannot be followed", store=path, hint="name the file itself")
    if kind(folder) != stat.S_IFDIR:
        raise StoreError(
            f"The folder {folder} does not exist", store=path, hint="create it, or correct the store's path"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(
            f"The folder {folder} is not writable",
            store=path,
            hint="make it writable: SQLite keeps its journal, and duly its lock, beside the store",
        )
    if found and not os.access(path, os.R_OK | os.W_OK):
        raise StoreError(f"{path} is not readable and writable", store=path, hint="check its owner and mode")


def kind(path: str | Path, *, follow_links: bool = True) -> int:
    """The file type, as `stat` has it; 0 if there is no file. Raises if the file system does not answer."""
    try:
        return stat.S_IFMT((os.stat if follow_links else os.lstat)(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def is_database(path: str | Path) -> bool:
    """Whether a file is a database, as stores are, even one whose content is still in its WAL. Raises if unsure."""
    if kind(path) != stat.S_IFREG:  # a pipe could be read only once
        return False
    with open(path, "rb") as file:
        begin = file.read(len(_MAGIC))
    return begin == _MAGIC or (not begin and exists(f"{path}-wal"))


def is_being_created(path: str) -> bool:
    """Whether another process is making a database of the file, or died while doing so."""
    return exists(path + "-journal")


@contextlib.contextmanager
def opened(path: str, *, beside: bool) -> Iterator[sqlite3.Connection]:
    """Open a store for reading, in the way in which its files stay as they are.

    `beside`: SQLite may create its shared-memory file beside the store, because this process is about to use it.
    """
    if is_being_created(path):
        # The power failed while the file became a database. SQLite has to roll that back, here in a copy.
        reading = _copied(path)
    elif not exists(path + "-wal"):
        # Without a WAL there is no holder, so the file stands still: `immutable` spares it even SQLite's helpers.
        reading = _connected(path, "immutable=1")
    elif beside or _may_share(path):
        reading = _connected(path, "mode=ro")
    else:
        # A WAL without its index: a copy of files, or another user's. SQLite would create the index beside the store.
        reading = _copied(path)
    with reading as connection:
        yield connection


def _may_share(path: str) -> bool:
    """Whether this user can take part in the locking that reading a live store needs."""
    return exists(path + "-shm") and os.access(path + "-shm", os.R_OK | os.W_OK) and os.access(path + "-wal", os.R_OK)


@contextlib.contextmanager
def _connected(path: str, mode: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"file:{quote(os.fsencode(path))}?{mode}", uri=True, isolation_level=None, timeout=5)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")  # nothing that a file defines may call what could do harm
        # `mode=ro` keeps a store from being written; this also a copy, which SQLite may have to roll back.
        connection.execute("PRAGMA query_only = ON")
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def _copied(path: str) -> Iterator[sqlite3.Connection]:
    """Open a private copy of all files, which is of one moment."""
    with tempfile.TemporaryDirectory(prefix="duly-read-") as folder:
        copy = os.path.join(folder, "store")
        for _ in range(_ATTEMPTS):
            before = [stamp(path + suffix) for suffix in _PARTS]
            for suffix in _PARTS:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(copy + suffix)
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(path + suffix, copy + suffix)
            if [stamp(path + suffix) for suffix in _PARTS] == before:
                break
        else:
            raise restless(path)
        with _connected(copy, "mode=rw") as connection:
            yield connection


def restless(path: str) -> StoreError:
    """The error of a store that was never still while it was read."""
    return StoreError(f"Store {path} changes faster than it can be read", store=path, hint="try again")


def create(path: str) -> None:
    """Make an empty file that only its owner can read: names of tasks and texts of errors may be confidential.

    Exclusively, because what a failed first initialize() removes must be what it made itself.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def discard(path: str, *, keep_file: bool) -> None:
    """Leave nothing of a database that came to nothing; or an empty file, where that was."""
    for suffix in ("-journal", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
    if keep_file:
        os.truncate(path, 0)
    else:
        os.unlink(path)


def exists(path: str) -> bool:
    """Whether a file has this name; raises if that cannot be told."""
    return identity(path) is not None


class Identity(NamedTuple):
    """Which file a name stands for, whatever it is called."""

    device: int
    number: int


def identity(file: str | int) -> Identity | None:
    """The identity of the file at a path or descriptor; None if there is no file."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return Identity(found.st_dev, found.st_ino)


def written_files(store: str) -> tuple[Identity | None, ...]:
    """The identities of the files that a connection writes to: the database and its WAL."""
    return identity(store), identity(store + "-wal")


class Stamp(NamedTuple):
    """Changes whenever a file is written or replaced."""

    inode: int
    size: int
    modified_ns: int


def stamp(path: str) -> Stamp | None:
    """The present stamp of a file; None if there is no file. Raises if the file system does not answer."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns)
