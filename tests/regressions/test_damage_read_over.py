"""A store that had lost its last bytes, or whose index was damaged, was accepted and stayed damaged.

SQLite reads what a file lacks as zeros, and does not compare an index with its table. Text that is not UTF-8 was a bare
`StoreError`, and a file of one byte "a database of something else".
"""

import asyncio
import contextlib
import os
import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.stores.sqlite import damage
from tests.cli import program
from tests.stores.helpers import change, contents, query, read, stored_tasks

TASKS = 300


async def _nothing() -> None:
    pass


def _registrations(tasks: int = TASKS) -> list[Any]:
    return [(f"task {index:04}", "0 0 1 1 *", _nothing, timedelta(hours=1)) for index in range(tasks)]


def _live(store: Path, tasks: int = TASKS) -> None:
    """Start and stop a scheduler."""

    async def life() -> None:
        scheduler = duly.Scheduler(store)
        await scheduler.initialize(_registrations(tasks))
        await scheduler.stop()

    asyncio.run(life())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of some tasks that no scheduler holds."""
    path = tmp_path / "state.db"
    _live(path)
    return path


def assert_refused(store: Path, words: str) -> None:
    """By a scheduler and by the commands, as damage, with the file as it was."""
    before = contents(store)
    with pytest.raises(duly.StoreCorruptedError, match=words):
        _live(store)
    assert contents(store) == before
    with pytest.raises(duly.StoreCorruptedError, match=words):
        read(store, lambda view: view.names(limit=1))
    ended = program.duly("status", "--store", store, folder=store.parent)
    assert (ended.code, ended.out) == (4, ""), ended
    assert words in ended.err
    assert contents(store) == before


@pytest.mark.parametrize("lost", [1, 100, 1_000, 4_095, 4_097])
def test_a_store_that_lost_its_last_bytes_is_refused(store: Path, lost: int) -> None:
    """SPEC 5.5: whatever stood in them, even if nothing."""
    size = store.stat().st_size
    os.truncate(store, size - lost)
    assert_refused(store, f"it has {size - lost:,} bytes instead of {size:,}" if lost < 4_096 else "is damaged")


def test_a_store_with_bytes_after_its_last_page_is_refused(store: Path) -> None:
    """SPEC 5.5: duly never writes part of a page."""
    with store.open("ab") as file:
        file.write(b"more")
    assert_refused(store, "instead of")


def _killed(store: Path, folder: Path, tasks: int) -> Path:
    """The remains of a scheduler that is killed after its initialize(): the file, and the WAL with its writes."""
    left = folder / "left.db"

    async def life() -> None:
        scheduler = duly.Scheduler(store)
        await scheduler.initialize(_registrations(tasks))
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{store}{suffix}", f"{left}{suffix}")
        await scheduler.stop()

    asyncio.run(life())
    return left


@pytest.mark.parametrize("lost", [1, 100, 1_000, 4_096, 10_000])
def test_what_the_wal_holds_may_be_missing_in_the_file(tmp_path: Path, lost: int) -> None:
    """SPEC 3.9: the power failed during a checkpoint, which was writing the last pages of the file."""
    store = tmp_path / "state.db"
    left = _killed(store, tmp_path, TASKS)
    whole = store.read_bytes()  # with all that the WAL holds
    left.write_bytes(whole[:-lost])
    assert read(left, lambda view: view.count_tasks()) == TASKS
    _live(left)
    assert len(stored_tasks(left)) == TASKS
    assert query(left, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("lost", [1, 5_000])
def test_a_wal_that_does_not_hold_what_is_missing_does_not_excuse_it(store: Path, tmp_path: Path, lost: int) -> None:
    """SPEC 5.5: a WAL of a few changes beside a file that was cut."""
    left = _killed(store, tmp_path, TASKS)
    os.truncate(left, left.stat().st_size - lost)
    assert_refused(left, "instead of")


def test_a_running_scheduler_whose_file_has_yet_to_grow_can_be_read(store: Path) -> None:
    """SPEC 5.4: new pages are in the WAL alone until the next checkpoint."""

    async def life() -> None:
        scheduler = duly.Scheduler(store)
        await scheduler.initialize(_registrations(3 * TASKS))
        ((pages,),) = query(store, "PRAGMA page_count")
        assert os.stat(store).st_size < pages * 4096
        assert await asyncio.to_thread(read, store, lambda view: view.count_tasks()) == 3 * TASKS
        await scheduler.stop()

    asyncio.run(life())


def _flip_in_index(store: Path, text: bytes) -> None:
    """Flip a bit of a name, or of a scheduler's identifier, in the one page that has no rows."""
    content = bytearray(store.read_bytes())
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    rows = {at for at, page in enumerate(pages) if b"0 0 1 1 *" in page}
    (page,) = [at for at, page in enumerate(pages) if text in page and at not in rows]
    content[page * 4096 + pages[page].index(text) + 3] ^= 1
    store.write_bytes(content)


def test_an_index_of_names_that_disagrees_with_its_table_is_refused(store: Path) -> None:
    """SPEC 5.5: SQLite would find out in the midst of a write."""
    _flip_in_index(store, b"task 0007")
    assert_refused(store, "index tasks_in_force")


def test_an_index_of_schedulers_that_disagrees_with_its_table_is_refused(store: Path) -> None:
    """SPEC 5.5: the other index that the store has."""
    ((page,),) = query(store, "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_schedulers_1'")
    ((identifier,),) = query(store, "SELECT identifier FROM schedulers")
    content = bytearray(store.read_bytes())
    content[content.index(identifier.encode(), (page - 1) * 4096, page * 4096) + 3] ^= 1
    store.write_bytes(content)
    assert_refused(store, "sqlite_autoindex_schedulers_1")


def test_a_damaged_page_of_an_index_is_told_in_one_line(store: Path) -> None:
    """SPEC 5.5: SQLite puts a line about the database before it."""
    ((page,),) = query(store, "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_schedulers_1'")
    content = bytearray(store.read_bytes())
    content[(page - 1) * 4096 + 7] += 11  # bytes that no cell has
    store.write_bytes(content)
    assert_refused(store, "Fragmentation of 0 bytes reported as 11")
    with pytest.raises(duly.StoreCorruptedError) as caught:
        read(store, lambda view: view.names(limit=1))
    assert "***" not in caught.value.message
    assert "\n" not in caught.value.message


def test_text_of_a_row_that_is_not_utf8_is_damage(store: Path) -> None:
    """SPEC 5.5: a scheduler names the task and the field, a command says what is wrong."""
    change(store, "UPDATE tasks SET cron = CAST(x'302030FF' AS TEXT) WHERE generation = 7")
    before = contents(store)
    with pytest.raises(duly.TaskInvalidTypeError) as caught:
        _live(store)
    assert caught.value.details["field"] == "cron"
    assert caught.value.details["taskName"] == "task 0006"
    ended = program.duly("status", "--store", store, folder=store.parent)
    assert (ended.code, contents(store)) == (4, before)
    assert "is damaged: it holds text that is not UTF-8" in ended.err


def test_a_file_of_one_byte_is_not_a_database(tmp_path: Path) -> None:
    """SPEC 5.5: SQLite takes one byte for an empty file; only beside its journal is it one."""
    store = tmp_path / "state.db"
    store.write_bytes(b"S")
    assert_refused(store, "is not a database")


def test_a_store_of_another_size_of_page_is_checked_by_its_own(store: Path) -> None:
    """SPEC 5.5: an operator may have rebuilt it with `VACUUM`."""
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA page_size = 1024")
        connection.execute("VACUUM")
    _live(store)
    assert len(stored_tasks(store)) == TASKS
    os.truncate(store, store.stat().st_size - 1)
    assert_refused(store, "instead of")


def test_of_very_many_tasks_the_index_is_compared_before_a_name_is_said_to_be_unknown(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 5.5: a command that finds a name does not wait for all the others."""
    monkeypatch.setattr(damage, "_FEW_TASKS", TASKS - 1)
    _flip_in_index(store, b"task 0007")
    assert len(read(store, lambda view: view.declarations("task 0008"))) == 1
    with pytest.raises(duly.StoreCorruptedError, match="tasks_in_force"):
        read(store, lambda view: view.declarations("task 0007"))
