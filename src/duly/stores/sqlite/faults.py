"""Faults of SQLite and of the operating system, as `StoreError`s."""

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Final

from duly.errors import StoreCorruptedError, StoreError

_FAULTS: Final[dict[str, tuple[type[StoreError], str, str]]] = {
    "SQLITE_NOTADB": (StoreCorruptedError, "is not a database", "give duly a file of its own, or restore a backup"),
    "SQLITE_CORRUPT": (StoreCorruptedError, "is damaged", "restore a backup of the store"),
    "SQLITE_FULL": (StoreError, "cannot grow: the disk is full", "make room; nothing that was recorded is lost"),
    "SQLITE_READONLY": (StoreError, "is read-only", "make the file and its folder writable"),
    "SQLITE_CANTOPEN": (StoreError, "cannot be opened", "check the path, its folder and their permissions"),
    "SQLITE_BUSY": (StoreError, "is locked by another program", "let no other program write to the store"),
    "SQLITE_LOCKED": (StoreError, "is locked by another program", "let no other program write to the store"),
    "SQLITE_IOERR": (StoreError, "cannot be read or written", "check the disk"),
    "SQLITE_PERM": (StoreError, "cannot be accessed", "check its owner and mode"),
}


@contextlib.contextmanager
def naming_faults(store: str, operation: str) -> Iterator[None]:
    """Raise a `StoreError` that says what is wrong and what to do, in place of what the library raises."""
    try:
        yield
    except sqlite3.Error as cause:
        raise _fault(store, operation, cause) from cause
    except UnicodeError as cause:
        # Text that is none; SQLite's complaint about such a schema quotes it, so that not even that can be raised.
        raise StoreCorruptedError(
            f"Store {store} is damaged", store=store, hint="restore a backup of the store", cause=cause
        ) from cause
    except OSError as cause:
        raise StoreError(
            f"Store {store} cannot be used: {cause.strerror or cause}", store=store, cause=cause
        ) from cause


def _fault(store: str, operation: str, cause: sqlite3.Error) -> StoreError:
    code = getattr(cause, "sqlite_errorname", "") or ""
    if not code and str(cause).startswith("Could not decode to UTF-8"):  # the sqlite3 module's own, about a row's text
        return StoreCorruptedError(
            f"Store {store} is damaged: it holds text that is not UTF-8",
            store=store,
            hint="restore a backup of the store",
            operation=operation,
            cause=cause,
        )
    for prefix, (kind, text, hint) in _FAULTS.items():
        if code.startswith(prefix):
            return kind(f"Store {store} {text}", store=store, hint=hint, operation=operation, code=code, cause=cause)
    return StoreError(f"Store {store} failed: {cause}", store=store, operation=operation, code=code, cause=cause)
