"""Rows that leave a file for another store, or arrive in one: what is checked, what is made, what is left alone."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duly.core.moments import Instant
from duly.errors import StoreCorruptedError, StoreError
from duly.stores.sqlite import transfer
from duly.stores.sqlite.lock import LockFile, read_holder
from duly.stores.sqlite.transfer import arrive, check_free, leaving
from tests.stores.helpers import change, everything, files_in, query, stored_tasks
from tests.stores.made import Row, Run, make_store

NOON = 1_714_564_800_000_000
LAST_POLL = Instant(NOON - 3_600_000_001)


def nothing(*_: object) -> None:
    """Neither progress nor an objection."""


def move(origin: Path, target: Path, done: Callable[[int], object] = nothing) -> None:
    """Copy a store from one file to another."""
    with leaving(origin) as content:
        arrive(target, content, done, nothing, at=Instant(NOON))


def leave(path: Path) -> None:
    """Open a store as for a copy, and copy nothing."""
    with leaving(path):
        pass


def made(path: Path, tasks: int = 3) -> Path:
    """A store with rows in each table: tasks and their states, a run, a mark, two schedulers."""
    runs: list[Run] = [(7, 1, "cron", NOON, NOON + 1, NOON + 2, "failure", "no space left")]
    rows = [Row(f"task {number:04}", last_attempt_at=NOON) for number in range(tasks)]
    make_store(path, rows, runs, schedulers=(0, NOON), zone="Europe/Berlin")
    change(path, "UPDATE meta SET value = ? WHERE key = 'generation'", tasks)
    change(path, "UPDATE meta SET value = 7 WHERE key = 'run'")
    change(path, "INSERT INTO marks VALUES ('gone', 59, 60)")
    return path


@pytest.fixture
def origin(store: Path) -> Path:
    """A store that nobody holds."""
    return made(store)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file that does not exist yet."""
    return tmp_path / "copy.db"


# --- what arrives ----------------------------------------------------------------------------------------------------


def layout(path: Path) -> list[tuple[Any, ...]]:
    """Tables and indices, as statements."""
    return query(path, "SELECT type, name, sql FROM sqlite_master ORDER BY name")


def test_every_row_arrives_in_the_layout_of_a_scheduler(origin: Path, target: Path) -> None:
    """SPEC 5.1, 5.4: the schedulers that records name among them, and the index that keeps names apart."""
    move(origin, target)
    before, after = everything(origin), everything(target)
    assert all(after[name] for name in ("tasks", "states", "runs", "marks", "schedulers", "meta"))
    assert after == before
    assert layout(target) == layout(origin)
    assert query(target, "PRAGMA integrity_check") == [("ok",)]


def test_progress_is_told_every_thousand_rows_and_at_the_end(store: Path, target: Path) -> None:
    """Of 1,100 tasks with a state each, a mark and a run."""
    counted: list[int] = []
    move(made(store, tasks=1_100), target, counted.append)
    assert counted == [1_000, 2_000, 2_202]


def test_the_last_poll_of_a_copy_is_that_of_its_origin(origin: Path, target: Path) -> None:
    """Nothing has polled there yet: `duly status` must not take the moment of the copy for a sign of life."""
    lock = Path(f"{origin}.lock")
    lock.touch()
    os.utime(lock, ns=(0, 1_000 * LAST_POLL))
    move(origin, target)
    found = os.stat(f"{target}.lock")
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000 * LAST_POLL, 1_000 * LAST_POLL)
    holder = read_holder(str(target))
    assert (holder.alive, holder.last_poll_at) == (False, LAST_POLL)


def test_a_store_without_a_sign_of_life_arrives_all_the_same(origin: Path, target: Path) -> None:
    """Its lock file was not copied with it."""
    with leaving(origin) as content:
        assert content.last_sign is None
    move(origin, target)
    assert stored_tasks(target) == stored_tasks(origin)


def test_a_copy_is_private_whatever_the_umask(origin: Path, target: Path) -> None:
    """Names of tasks and reasons of failures are private: 0600."""
    old = os.umask(0o022)
    try:
        move(origin, target)
    finally:
        os.umask(old)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_copy_waits_for_the_disk(origin: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 3.9: SQLite's word for that is FULL, whatever the library's own setting is; no test can cut the power."""
    settings: list[object] = []

    class Hasty(sqlite3.Connection):
        """A connection of a library that does not wait unless it is asked to."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            super().execute("PRAGMA synchronous = OFF")

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql == "COMMIT":
                settings.extend(super().execute("PRAGMA synchronous").fetchone())
            return super().execute(sql, parameters)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Hasty))
    move(origin, target)
    assert settings == [2]


# --- what leaves -----------------------------------------------------------------------------------------------------


def test_a_store_that_lost_its_last_byte_does_not_leave(origin: Path) -> None:
    """SPEC 5.5: SQLite would read what is missing as zeros."""
    os.truncate(origin, origin.stat().st_size - 1)
    with pytest.raises(StoreCorruptedError, match="bytes instead of"):
        leave(origin)


def test_a_store_whose_index_disagrees_with_its_table_does_not_leave(origin: Path) -> None:
    """SPEC 5.5: the copy would be whole, and hide that rows of its origin cannot be trusted."""
    ((page, size),) = query(
        origin,
        "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = 'tasks_in_force'",
    )
    content = bytearray(origin.read_bytes())
    content[content.index(b"task 0001", (page - 1) * size, page * size)] ^= 1
    origin.write_bytes(content)
    with pytest.raises(StoreCorruptedError, match="index tasks_in_force"):
        leave(origin)


def test_nothing_is_made_beside_a_store_that_leaves(origin: Path, tmp_path: Path) -> None:
    """A backup of files may have a WAL without its index, which SQLite would make there; what it holds is read."""
    backup = tmp_path / "backup"
    backup.mkdir()
    with closing(sqlite3.connect(origin, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO marks VALUES ('late', 59, 60)")
        for name in (origin.name, f"{origin.name}-wal"):
            shutil.copyfile(origin.with_name(name), backup / name)
    before = files_in(backup)
    with leaving(backup / origin.name) as content:
        assert [mark[0] for mark in content.marks()] == ["gone", "late"]
        assert files_in(backup) == before
    assert files_in(backup) == before


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [("missing/copy.db", "does not exist"), ("folder", "is a folder")],
)
def test_a_place_where_no_store_can_be_is_not_free(tmp_path: Path, name: str, message: str) -> None:
    """Its fault is said before anything is copied."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match=message):
        check_free(tmp_path / name)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_an_empty_file_with_a_companion_is_not_free(target: Path, suffix: str) -> None:
    """Its content may be there still: SQLite would take what lies beside a new file for its own."""
    companion = Path(f"{target}{suffix}")
    target.touch()
    check_free(target)
    companion.write_bytes(b"content")
    with pytest.raises(StoreError, match="is not empty"):
        check_free(target)
    assert companion.read_bytes() == b"content"


def test_nothing_is_made_beside_a_file_that_is_not_free(origin: Path, target: Path, tmp_path: Path) -> None:
    """It belongs to somebody else: no lock file either."""
    target.write_text("something")
    with pytest.raises(StoreError, match="is not empty"):
        move(origin, target)
    assert files_in(tmp_path) == {origin.name, target.name}
    assert target.read_text() == "something"


def test_a_store_that_another_process_made_meanwhile_is_left_alone(
    origin: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 5.7: it was not there at the first look, and the lock was free again before the copy had it."""

    class Late(LockFile):
        """A lock that is had after another process has made a store, and ended."""

        def acquire(self, since: datetime) -> None:
            make_store(target, [Row("theirs")])
            super().acquire(since)

    monkeypatch.setattr(transfer, "LockFile", Late)
    with pytest.raises(StoreError, match="is not empty"):
        move(origin, target)
    assert set(stored_tasks(target)) == {"theirs"}
