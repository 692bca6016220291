"""Files that someone prepared in the place of duly's own were followed and obeyed; found by asking what could be."""

import contextlib
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
    """A view that counts for ever under the name of a table would keep whoever reads it busy for ever."""
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
    """What lies at its other end would be emptied, with the rights of who runs the scheduler."""
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    (tmp_path / "store.db.lock").symlink_to(precious)
    with pytest.raises(duly.StoreError, match="lock file"):
        await _store_at(tmp_path / "store.db")
    assert precious.read_text() == "do not touch"
