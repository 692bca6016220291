"""Where an embedded store lives: whether it can live there, how to read it untouched, whether it is still there."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from duly.errors import StoreError


def check_place(path: str) -> None:
    """Say what keeps a store from being there, if anything does."""
    folder = Path(path).parent
    if os.path.isdir(path):
        raise StoreError(f"{path} is a folder", store=path, hint="name a file inside it")
    if not folder.is_dir():
        raise StoreError(
            f"The folder {folder} does not exist", store=path, hint="create it, or correct the store's path"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(
            f"The folder {folder} is not writable",
            store=path,
            hint="SQLite keeps its journal and duly its lock beside the store",
        )
    if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
        raise StoreError(f"{path} is not readable and writable", store=path, hint="check its owner and mode")


def is_being_created(path: str) -> bool:
    """Whether somebody makes a database of the file just now, or died while doing so."""
    return os.path.exists(path + "-journal")


@contextlib.contextmanager
def readable(path: str) -> Iterator[tuple[str, str]]:
    """Which file to read, and in which mode of SQLite, so that the store stays as it is."""
    if not is_being_created(path):
        # Without a WAL there is no holder, so the file stands still: `immutable` spares it even SQLite's helpers.
        yield path, "mode=ro" if os.path.exists(path + "-wal") else "immutable=1"
        return
    # The power failed while the file became a database. SQLite has to roll that back, here in a copy.
    with tempfile.TemporaryDirectory(prefix="duly-") as folder:
        copy = os.path.join(folder, "store")
        for suffix in ("", "-journal", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(path + suffix, copy + suffix)
        yield copy, "mode=rw"


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
