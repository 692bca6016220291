"""The embedded store itself: its path, its one thread, and what it does with a file that is not as it was left."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from duly.core.moments import Instant
from duly.errors import StoreCorruptedError, StoreError
from duly.stores import SqliteStore
from duly.stores.port import Blockage
from duly.stores.sqlite.lock import read_holder
from duly.threads import Inline
from tests.stores.contract import AT_NOON, living, task
from tests.stores.helpers import change, contents, create_empty, stored_tasks

BLOCKAGE = Blockage("import", Instant(5), 1_500)


async def use(store: Path, name: str = "task") -> None:
    """A scheduler comes, declares a task, and goes."""
    async with living(SqliteStore(store, worker=Inline())) as life:
        await life.declare(added=[task(1, name)])


@pytest.mark.parametrize("path", ["", "a\0b", "\0"])
def test_a_path_that_no_file_can_have_is_refused_when_the_store_is_made(path: str) -> None:
    """SPEC 1.5: and not when a scheduler is initialised with it."""
    with pytest.raises(ValueError, match="must be non-empty text"):
        SqliteStore(path)


def test_a_store_shows_its_path(store: Path) -> None:
    """In a debugger, and in the message of an assertion."""
    assert repr(SqliteStore(store)) == f"SqliteStore({os.path.realpath(store)!r})"


async def test_all_work_of_a_store_is_done_by_one_thread(store: Path) -> None:
    """SPEC 3.9: writes reach the disk in their order, and none overlaps another."""
    kept = SqliteStore(store)
    release = threading.Event()
    idents: list[int] = []

    def first() -> None:
        release.wait(30)
        idents.append(threading.get_ident())

    def second() -> None:
        idents.append(threading.get_ident())

    waiting = [asyncio.ensure_future(kept._worker.run(work)) for work in (first, second)]
    await asyncio.sleep(0.05)
    assert idents == []
    release.set()
    await asyncio.gather(*waiting)
    assert len(set(idents)) == 1
    await kept.close()


async def test_what_is_written_is_on_the_disk_when_the_write_has_returned(store: Path) -> None:
    """SPEC 3.9: SQLite's word for that is FULL; no test can cut the power, and `synchronous=NORMAL` loses commits."""
    async with living(SqliteStore(store, worker=Inline())) as life:
        await life.declare(added=[task(1, "task")])
        connection = life.store._connection  # type: ignore[attr-defined]
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_place_without_write_ahead_logging_is_refused(store: Path) -> None:
    """SPEC 3.9: without it a reader would keep the scheduler from writing. A temporary database is such a place."""
    with pytest.raises(StoreError, match="does not support write-ahead logging"):
        SqliteStore(store)._connect("")


async def test_a_store_in_memory_has_no_lock_file_to_note_a_blockage_in(tmp_path: Path) -> None:
    """Nothing outside of the process could read it."""
    kept = SqliteStore(":memory:", worker=Inline())
    async with living(kept):
        kept.note_blockage(BLOCKAGE)
        kept.touch()
        assert kept.holder().alive
        assert kept.holder().blockage is None
    assert not kept.holder().alive
    on_disk = SqliteStore(tmp_path / "state.db", worker=Inline())
    async with living(on_disk):
        on_disk.note_blockage(BLOCKAGE)
        assert read_holder(on_disk.path).blockage == BLOCKAGE


async def test_a_file_that_was_removed_between_two_lives_of_one_store_begins_anew(store: Path) -> None:
    """SPEC 4.1, 4.5: what was found the last time says nothing about now."""
    kept = SqliteStore(store, worker=Inline())
    async with living(kept) as life:
        await life.declare(added=[task(1, "before")])
    os.unlink(store)
    async with living(kept) as life:
        assert not life.persisted.records
        await life.declare(added=[task(1, "after")])
    assert set(stored_tasks(store)) == {"after"}


async def test_an_empty_file_is_empty_again_after_a_first_initialize_that_failed(store: Path) -> None:
    """SPEC 4.5: and where there was no file, there is none."""
    for before in ({}, {"": b""}):
        if before:
            create_empty(store)
        async with living(SqliteStore(store, worker=Inline())) as life:
            with pytest.raises(StoreError):
                await life.declare(added=[task(1, "twice"), task(2, "twice")])
        assert contents(store) == before


async def test_a_file_that_another_process_made_meanwhile_is_not_written_to_and_not_removed(store: Path) -> None:
    """SPEC 5.7: it is not this scheduler's, although the lock is."""
    async with living(SqliteStore(store, worker=Inline())) as life:
        create_empty(store)
        with pytest.raises(StoreError):
            await life.declare(added=[task(1, "task")])
        assert contents(store) == {"": b""}
    assert contents(store) == {"": b""}


async def test_a_store_that_was_cut_is_refused_before_anything_is_loaded(store: Path) -> None:
    """SPEC 5.5: SQLite would read what is missing as zeros."""
    await use(store)
    os.truncate(store, len(contents(store)[""]) - 1)
    before = contents(store)
    with pytest.raises(StoreCorruptedError, match="instead of"):
        await use(store)
    assert contents(store) == before


@pytest.mark.parametrize(
    "mark",
    ["('a', 'noon', 5)", "('a', 5, 'noon')", "(x'61', 5, 5)", "('a', 5.5, 5)"],
    ids=["minute", "day", "name", "part"],
)
async def test_a_mark_that_duly_did_not_write_is_damage(store: Path, mark: str) -> None:
    """SPEC 5.5, 5.1: a minute that was served could be served again."""
    await use(store)
    change(store, f"INSERT INTO marks VALUES {mark}")
    with pytest.raises(StoreCorruptedError, match="has a mark without a valid name or minute"):
        await SqliteStore(store, worker=Inline()).open("second", AT_NOON)


@pytest.mark.parametrize("used", [False, True], ids=["by nobody", "by another"])
async def test_a_lock_that_was_lost_matters_only_if_another_scheduler_has_used_the_store(
    store: Path, used: bool
) -> None:
    """SPEC 5.7: its file was removed; it is made again, and what another one wrote meanwhile is not overwritten."""
    async with living(SqliteStore(store, worker=Inline())) as life:
        await life.declare(added=[task(1, "first")])
        os.unlink(f"{store}.lock")
        if used:
            change(store, "UPDATE meta SET value = 'Asia/Tokyo' WHERE key = 'zone'")
            for _ in range(2):
                with pytest.raises(StoreError, match="Another scheduler used"):
                    await life.declare(added=[task(2, "second")])
            assert not read_holder(str(store)).alive
        else:
            await life.declare(added=[task(2, "second")])
            assert read_holder(str(store)).alive
    assert set(stored_tasks(store)) == ({"first"} if used else {"first", "second"})
