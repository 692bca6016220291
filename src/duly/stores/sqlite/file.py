"""Where an embedded store lives: whether it can live there, how to read it untouched, whether it is still there.

`os.path.exists` is not asked: it takes a file that cannot be looked at for one that is not there, and a store that is
not there is made anew.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from duly.errors import StoreError


def check_place(path: str) -> None:
    """Say what keeps a store from being there, if anything does."""
    folder = Path(path).parent
    found = kind(path, follow_links=False)
    if found == stat.S_IFDIR:
        raise StoreError(f"{path} is a folder", store=path, hint="name a file inside it")
    if found == stat.S_IFLNK:
        # Links have been followed before. A lock beside this one would not be seen beside what it leads to.
        raise StoreError(f"{path} is a link that cannot be followed", store=path, hint="name the file itself")
    if kind(folder) != stat.S_IFDIR:
        raise StoreError(
            f"The folder {folder} does not exist", store=path, hint="create it, or correct the store's path"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(
            f"The folder {folder} is not writable",
            store=path,
            hint="SQLite keeps its journal and duly its lock beside the store",
        )
    if found and not os.access(path, os.R_OK | os.W_OK):
        raise StoreError(f"{path} is not readable and writable", store=path, hint="check its owner and mode")


def kind(path: str | Path, *, follow_links: bool = True) -> int:
    """What has this name, in the words of `stat`; 0 if nothing has. Raises if that cannot be told."""
    try:
        return stat.S_IFMT((os.stat if follow_links else os.lstat)(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def is_being_created(path: str) -> bool:
    """Whether somebody makes a database of the file just now, or died while doing so."""
    return exists(path + "-journal")


@contextlib.contextmanager
def readable(path: str) -> Iterator[tuple[str, str]]:
    """Which file to read, and in which mode of SQLite, so that the store stays as it is."""
    if not is_being_created(path):
        # Without a WAL there is no holder, so the file stands still: `immutable` spares it even SQLite's helpers.
        yield path, "mode=ro" if exists(path + "-wal") else "immutable=1"
        return
    # The power failed while the file became a database. SQLite has to roll that back, here in a copy.
    with tempfile.TemporaryDirectory(prefix="duly-") as folder:
        copy = os.path.join(folder, "store")
        for suffix in ("", "-journal", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(path + suffix, copy + suffix)
        yield copy, "mode=rw"


def create(path: str) -> None:
    """Make an empty file that nobody else can read: what tasks are called and why they failed is nobody's business.

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
    """Of the file that has this name or descriptor now; None if there is none."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return Identity(found.st_dev, found.st_ino)


def written_files(store: str) -> tuple[Identity | None, ...]:
    """Those that a connection writes to: the main one and its WAL, as they are now."""
    return identity(store), identity(store + "-wal")
