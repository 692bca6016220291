"""A power failure while SQLite created the database left a store that was refused for ever.

SQLite turns an empty file into a database with a rollback journal, before the first WAL. Its removal is not durable at
once: after a power failure it may exist again, and SQLite told a reader that must not roll it back that the store was
read-only.
"""

import asyncio
import struct
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from tests.stores.helpers import contents, integrity, stored_tasks

JOURNAL = (bytes.fromhex("d9d505f920a163d7") + struct.pack(">5L", 0, 0x5EED, 0, 512, 4096)).ljust(512, b"\0")
PAGE = (b"SQLite format 3\0" + bytes.fromhex("1000020200402020") + struct.pack(">2L", 1, 1)).ljust(4096, b"\0")


async def _nothing() -> None:
    pass


def start(store: Path) -> None:
    """A first start-up, and a stop."""

    async def life() -> None:
        scheduler = duly.Scheduler(store)
        await scheduler.initialize([("a", "0 0 1 1 *", _nothing, timedelta(hours=1))])
        await scheduler.stop()

    asyncio.run(life())


@pytest.mark.parametrize("wal", [None, b"", bytes(32)], ids=["no WAL", "an empty WAL", "a WAL of no frames"])
@pytest.mark.parametrize("length", [0, 1, 100, 512, 2048, 4096])
def test_a_journal_of_the_first_start_up_is_rolled_back_by_the_next_one(
    tmp_path: Path, length: int, wal: bytes | None
) -> None:
    """SPEC 4.5: however much of the first page survived, the next start is a first start-up."""
    store = tmp_path / "state.db"
    store.write_bytes(PAGE[:length])
    (tmp_path / "state.db-journal").write_bytes(JOURNAL)
    if wal is not None:
        (tmp_path / "state.db-wal").write_bytes(wal)
    start(store)
    assert set(stored_tasks(store)) == {"a"}
    assert integrity(store) == "ok"
    assert not (tmp_path / "state.db-journal").exists()


@pytest.mark.parametrize("journal", [b"", b"my diary", bytes(512)], ids=["empty", "of something else", "zeros"])
def test_a_file_of_something_else_with_a_journal_is_refused_and_stays_as_it_is(tmp_path: Path, journal: bytes) -> None:
    """SPEC 5.5: SQLite takes a few bytes for an empty database; that does not make the file a store of duly."""
    store = tmp_path / "state.db"
    store.write_bytes(b"a shopping list")
    (tmp_path / "state.db-journal").write_bytes(journal)
    with pytest.raises(duly.StoreError):
        start(store)
    assert contents(store) == {"": b"a shopping list"}
    assert (tmp_path / "state.db-journal").read_bytes() == journal
