"""Files that another user had prepared in the place of duly's own were followed, and their SQL was executed."""

import contextlib
import os
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

import duly


async def _nothing() -> None:
    pass


async def _store_at(path: Path) -> None:
    scheduler = duly.Scheduler(path)
    await scheduler.initialize([("a", "0 0 1 1 *", _nothing, timedelta(hours=1))])
    await scheduler.stop()


async def test_a_view_in_the_place_of_a_table_is_not_asked(tmp_path: Path) -> None:
    """A view with the name of a table that counts for ever would keep its reader busy for ever."""
    store = tmp_path / "store.db"
    await _store_at(store)
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("DROP TABLE meta")
        connection.execute(
            "CREATE VIEW meta AS WITH RECURSIVE n(key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM n) "
            "SELECT key, key AS value FROM n"
        )
    with pytest.raises(duly.StoreError, match="holds a view"):
        await _store_at(store)


async def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    """The file that it points to would be emptied, with the rights of the scheduler's user."""
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    (tmp_path / "store.db.lock").symlink_to(precious)
    with pytest.raises(duly.StoreError, match="lock file"):
        await _store_at(tmp_path / "store.db")
    assert precious.read_text() == "do not touch"


@pytest.mark.parametrize("kind", ["another name", "a pipe", "another program's lock file"])
async def test_what_is_in_the_place_of_the_lock_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    """A store called `uv` would have emptied `uv.lock`; a second name of a file leads to it as a link does."""
    lock = tmp_path / "store.db.lock"
    precious = tmp_path / "precious"
    if kind == "a pipe":
        os.mkfifo(lock)
    elif kind == "another name":
        precious.write_text("{}")
        lock.hardlink_to(precious)
    else:
        lock.write_text("version = 1\n" * 1_000)
    before = b"" if kind == "a pipe" else lock.read_bytes()
    with pytest.raises(duly.StoreError, match="lock"):
        await _store_at(tmp_path / "store.db")
    assert kind == "a pipe" or lock.read_bytes() == before
    assert not (tmp_path / "store.db").exists()
