"""Wrong registrations, and stores that somebody has damaged: what initialize() must refuse, and with which error."""

import contextlib
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import duly
from duly.stores.sqlite.trace import export

WRONGS: Final[dict[str, type[duly.DulyError]]] = {
    "cron": duly.CronExpressionInvalidError,
    "duplicate": duly.ScheduleDuplicateTaskError,
    "delay": duly.NegativeRetryDelayError,
    "shape": duly.RegistrationShapeError,
    "name": duly.InvalidRegistrationError,
    "list": duly.RegistrationsNotArrayError,
}

_DAMAGES: Final[dict[str, tuple[str, type[duly.DulyError]]]] = {
    "missing": ("UPDATE states SET run = 5, run_cause = NULL, last_attempt_at = 1", duly.TaskMissingFieldError),
    "structure": ("DELETE FROM states", duly.TaskInvalidStructureError),
    "type": ("UPDATE tasks SET delay_ms = 'soon'", duly.TaskInvalidTypeError),
    "value": ("UPDATE tasks SET cron = '* * *'", duly.TaskInvalidValueError),
    "version": ("PRAGMA user_version = 99", duly.StoreVersionError),
    "corrupted": ("", duly.StoreCorruptedError),
}

DAMAGES: Final = {kind: error for kind, (_, error) in _DAMAGES.items()}


def spoil(registrations: list[Any], wrong: str) -> Any:
    """An argument of initialize() with something wrong in it, or nothing."""
    second = timedelta(seconds=1)
    if not wrong:
        return registrations
    if wrong == "list":
        return {"tasks": registrations}
    more: dict[str, list[Any]] = {
        "cron": [("wrong", "* * *", print, second)],
        "duplicate": [("wrong", "* * * * *", print, second)] * 2,
        "delay": [("wrong", "* * * * *", print, -second)],
        "shape": [("wrong", "* * * * *", print)],
        "name": [("", "* * * * *", print, second)],
    }
    return registrations + more[wrong]


def stored_tasks(store: Path) -> dict[str, tuple[str, int]]:
    """The declarations in force, in the order of their names; nothing if there is no store yet."""
    if not store.exists() or not store.stat().st_size:
        return {}
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        try:
            found = connection.execute(
                "SELECT name, cron, delay_ms FROM tasks WHERE retired_at IS NULL ORDER BY name"
            ).fetchall()
        except sqlite3.OperationalError:  # its tables are not there yet
            return {}
    return {name: (cron, delay_ms) for name, cron, delay_ms in found}


def exported(store: Path) -> bytes:
    """The trace of a store whose history was cut short; nothing if there is none."""
    if not stored_tasks(store):
        return b""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        return b"".join(export(connection, clean=False))


def can_be_done(store: Path) -> bool:
    """Whether there are records to damage; if so, they are in one file from here on."""
    if not stored_tasks(store):
        return False
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return True


def do(store: Path, kind: str) -> type[duly.DulyError]:
    """Damage a free store; returns how initialize() must refuse it."""
    statement, error = _DAMAGES[kind]
    if not statement:
        store.write_bytes(b"\0" * 8192)
        return error
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement)
    return error
