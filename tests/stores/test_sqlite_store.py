"""The embedded store itself: its path, its one thread, and what it does with a file that is not as it was left."""

import asyncio
import gc
import os
import shutil
import sqlite3
import tempfile
import threading
from pathlib import Path

import pytest

from duly.core.moments import Instant
from duly.errors import StoreCorruptedError, StoreError
from duly.stores import SqliteStore
from duly.stores.port import Blockage
from duly.stores.sqlite.lock import read_holder
from duly.threads import Inline
from tests.stores.contract import AT_NOON, Life, living, task
from tests.stores.helpers import change, contents, create_empty, query, stored_tasks, without_privileges

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


async def test_a_simulated_host_does_not_wait_for_the_disk(store: Path) -> None:
    """It has no power to lose: what is asked for is asked of SQLite, whatever the library's own setting is."""
    async with living(SqliteStore(store, worker=Inline(), synchronous="OFF")) as life:
        await life.declare(added=[task(1, "task")])
        connection = life.store._connection  # type: ignore[attr-defined]
        assert connection.execute("PRAGMA synchronous").fetchone() == (0,)


async def test_a_store_that_was_closed_leaves_no_thread_behind(store: Path) -> None:
    """SPEC 4.3: a stop releases the thread too."""
    before = set(threading.enumerate())
    async with living(SqliteStore(store)) as life:
        await life.declare(added=[task(1, "task")])
        assert set(threading.enumerate()) - before
    assert not set(threading.enumerate()) - before


def test_a_forked_child_leaves_the_store_to_its_parent(store: Path) -> None:
    """SPEC 5.7: the child has the connection in its memory, but it is not the scheduler."""
    kept = SqliteStore(store, worker=Inline())

    async def begin() -> Life:
        life = Life(kept, await kept.open("first", AT_NOON), AT_NOON)
        await life.declare(added=[task(1, "before")])
        return life

    life = asyncio.run(begin())

    def attempt() -> str:
        try:
            asyncio.run(life.declare(added=[task(2, "in the child")]))
        except StoreError as error:
            return error.message
        return "written"

    assert without_privileges(attempt) == f"Store {store} was abandoned"
    asyncio.run(life.declare(added=[task(2, "in the parent")]))
    asyncio.run(kept.close())
    assert set(stored_tasks(store)) == {"before", "in the parent"}


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


async def test_a_store_in_memory_ends_when_it_is_abandoned() -> None:
    """As it would with the death of its process: the next scheduler finds nothing, and declares anew."""
    kept = SqliteStore(":memory:", worker=Inline())
    async with living(kept) as life:
        await life.declare(added=[task(1, "before")])
        kept.abandon()
    async with living(kept) as life:
        assert not life.persisted.records
        await life.declare(added=[task(1, "after")])
    async with living(kept) as life:
        assert [row[1] for block in life.persisted.records for row in block.rows()] == ["after"]


async def test_a_store_in_memory_frees_its_memory_when_nothing_refers_to_it() -> None:
    """It outlives a stop, so no stop can do that."""
    kept = SqliteStore(":memory:", worker=Inline())
    async with living(kept) as life:
        await life.declare(added=[task(1, "task")])
    connection = kept._connection
    assert connection is not None
    del kept, life
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


async def test_a_replacement_that_was_not_applied_is_still_the_first(store: Path) -> None:
    """SPEC 5.4: the answer is no, the replacement is tried again, and names its scheduler in the store."""
    await use(store)
    async with living(SqliteStore(store, worker=Inline()), "second") as life:
        assert not await life.store.has_replaced(life.number)
        await life.declare(added=[task(2, "another")])
        assert await life.store.has_replaced(life.number - 1)
    assert query(store, "SELECT identifier FROM schedulers ORDER BY key") == [("first",), ("second",)]


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


async def left_by_a_crash(folder: Path, store: Path) -> None:
    """Make the files that a scheduler leaves which dies before its first checkpoint."""
    async with living(SqliteStore(folder / "alive.db", worker=Inline())) as life:
        await life.declare(added=[task(1, "task")])
        for suffix in ("", "-wal"):
            shutil.copyfile(folder / f"alive.db{suffix}", f"{store}{suffix}")


async def test_a_store_that_a_crash_left_is_opened_without_room_for_a_copy(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 4.5: a command copies a store that it must not touch; a scheduler is about to use it."""
    await left_by_a_crash(tmp_path, store)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    async with living(SqliteStore(store, worker=Inline())) as life:
        assert len(life.persisted.records)


async def test_a_program_that_folds_the_wal_in_meanwhile_does_not_make_a_store_look_cut(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 5.5: the size of the file and the pages in its WAL are compared as they were at one moment."""
    await left_by_a_crash(tmp_path, store)
    another = sqlite3.connect(store, isolation_level=None, timeout=0)
    measure, measured = os.path.getsize, 0

    def measured_before_a_checkpoint(path: str) -> int:
        nonlocal measured
        measured += 1
        size = measure(path)
        if measured == 2:  # the first time it was only asked whether there is anything
            another.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return size

    monkeypatch.setattr(os.path, "getsize", measured_before_a_checkpoint)
    async with living(SqliteStore(store, worker=Inline())) as life:
        assert len(life.persisted.records)
    another.close()


def damage_index(store: Path, index: str, text: bytes) -> None:
    """Flip a bit of a text in the first page of an index."""
    ((page, size),) = query(
        store, "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = ?", index
    )
    content = bytearray(store.read_bytes())
    content[content.index(text, (page - 1) * size, page * size)] ^= 1
    store.write_bytes(content)


async def test_an_index_that_disagrees_with_its_table_is_damage(store: Path) -> None:
    """SPEC 5.5: SQLite would find out in the midst of a write."""
    await use(store, "task 0007")
    damage_index(store, "tasks_in_force", b"task 0007")
    before = contents(store)
    with pytest.raises(StoreCorruptedError, match="index tasks_in_force"):
        await use(store)
    assert contents(store) == before


async def test_a_scheduler_whose_name_duly_did_not_write_is_damage(store: Path) -> None:
    """SPEC 5.5, 5.4: one among others that are right."""
    await use(store)
    change(store, "INSERT INTO schedulers VALUES (2, x'00', 0)")
    with pytest.raises(StoreCorruptedError, match="has a scheduler without a valid key or name"):
        await use(store)


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
