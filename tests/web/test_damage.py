"""Stores whose records duly did not write: pages and the API say that a store is damaged, and never fail themselves."""

import asyncio
import contextlib
import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from duly.core.moments import MICROSECONDS
from tests.stores.made import Row, make_store
from tests.web.conftest import Stage, client
from tests.web.stage import FixedClock

AT = 1_790_000_000 * MICROSECONDS
MINUTE = AT // MICROSECONDS // 60 * 60
PAGES = (
    "/", "/tasks", "/tasks?sort=next", "/tasks?state=owed", "/runs", "/task?name=one", "/task?name=gone", "/calendar",
    "/about", "/metrics", "/api/v1/status", "/api/v1/runs", "/api/v1/explain?task=one", "/api/v1/load",
)  # fmt: skip
VALUES = ("x", b"\xff", 2**62, None)


def undamaged(path: Path) -> Path:
    """A store with a task that has failed, one that was cut short, one that waits, and one that is gone."""
    waits = Row("waits", served_through=MINUTE, last_attempt_at=AT, last_success_at=AT)
    rows = [
        replace(waits, name="one", last_failure_at=AT, failures=2, pending_retry_until=AT + 60 * MICROSECONDS),
        replace(waits, name="two", run=7, run_cause="cron", run_scheduled=AT),
        waits,
        replace(waits, name="gone", retired_at=AT),
    ]
    runs = [
        (number, generation, "cron", AT, AT, AT, outcome, error)
        for number, (generation, outcome, error) in enumerate(
            [(1, "failure", "no"), (1, "failure", "no"), (3, "success", None), (4, "interrupted", None)], 1
        )
    ]
    return make_store(path, rows, runs, schedulers=(AT - 3600 * MICROSECONDS, AT))


def columns(path: Path) -> Iterator[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        for (table,) in tables.fetchall():
            for _, column, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
                yield table, column


def damaged(source: Path, path: Path, table: str, column: str, value: object) -> bool:
    """A copy in which a column holds a value; False if SQLite does not take it."""
    shutil.copy(source, path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
        except sqlite3.Error:
            return False
        connection.commit()
    return True


async def answers(path: Path) -> dict[str, tuple[int, str]]:
    app = Stage(path, FixedClock(AT + 60 * MICROSECONDS, ZoneInfo("UTC"))).dashboard()
    async with client(app) as opened:
        found = {place: await opened.get(place) for place in PAGES}
    return {place: (answer.status_code, answer.text) for place, answer in found.items()}


def test_pages_of_a_store_without_damage_are_whole(tmp_path: Path) -> None:
    """Otherwise the tests below would hold error pages against error pages."""
    path = undamaged(tmp_path / "state.db")
    assert {status for status, _ in asyncio.run(answers(path)).values()} == {200}
    assert len({table for table, _ in columns(path)}) >= 5


@pytest.mark.parametrize("value", VALUES, ids=["text", "bytes", "beyond the calendar", "null"])
def test_no_value_of_any_column_makes_a_page_fail(tmp_path: Path, value: object) -> None:
    source = undamaged(tmp_path / "state.db")
    judged = 0
    for table, column in columns(source):
        path = tmp_path / f"{table}-{column}.db"
        if not damaged(source, path, table, column, value):
            continue
        judged += 1
        for place, (status, text) in asyncio.run(answers(path)).items():
            assert status in {200, 404, 503}, (table, column, place)
            assert "defect of duly" not in text, (table, column, place)
            assert not re.search(r"cannot be read: \w+Error", text), (table, column, place)
        path.unlink()
    assert judged > 5
