"""A scheduler that could not find out whether another one had held its lost lock did not ask again, and wrote.

After the lock file was removed and the lock taken again, the store is asked whether another scheduler has written to it
meanwhile. An I/O error at that moment was reported, and the next attempt wrote without asking.
"""

import errno
import os
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.events import StoreFault
from duly.stores.sqlite import SqliteStore
from duly.stores.sqlite.lock import LockFile
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.spec.workload import Workload
from tests.stores.helpers import everything

_NOW = datetime(2024, 6, 15, 12, tzinfo=UTC)


class Unanswering:
    """A connection that fails once, at one query."""

    def __init__(self, connection: sqlite3.Connection, question: str) -> None:
        self._connection = connection
        self._question = question
        self.refused = 0

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        if statement == self._question and not self.refused:
            self.refused += 1
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(statement, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


async def _nothing() -> None:
    pass


async def test_who_lost_the_lock_asks_until_it_is_answered_before_it_writes(tmp_path: Path) -> None:
    """SPEC 5.7: another scheduler had the store in between; what it declared stays."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-06-15T12:00:30", tz="UTC", store=path) as host:
        store = SqliteStore(path, worker=Inline())
        await host.scheduler(store, trace=True).initialize([Workload(host).task("ours")])
        await host.advance(minutes=2)
        os.unlink(f"{path}.lock")
        second = duly.Scheduler(path, trace=True)
        await second.initialize([("theirs", "0 0 1 1 *", _nothing, timedelta(0))])
        await second.stop()
        left = everything(path)
        assert store._connection is not None
        connection = Unanswering(store._connection, "PRAGMA data_version")
        store._connection = connection  # type: ignore[assignment]
        await host.advance(minutes=5)
        assert connection.refused == 1
        assert everything(path) == left
        assert any(isinstance(event, StoreFault) for event in host.events)


def test_a_close_that_complains_has_closed_and_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 4.3: a network disk may report a lost write at the close; stop() does not raise an OSError for that."""
    lock = LockFile(str(tmp_path / "state.db"))
    lock.acquire(_NOW)
    close = os.close

    def complain(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", complain)
        lock.release()
    again = LockFile(str(tmp_path / "state.db"))
    again.acquire(_NOW)
    os.unlink(again.path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "close", complain)
        assert again.keep(), "taken anew, and said so"
    again.release()
