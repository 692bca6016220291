"""Which sizes of a store's file are whole, given what its WAL holds and which of its pages are free."""

import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from duly.errors import StoreCorruptedError
from duly.stores.sqlite import damage
from duly.stores.sqlite.damage import check_indexes, check_whole, has_few_tasks

PAGE_BYTES = 512
SALTS, EARLIER_SALTS = b"thisturn", b"lastturn"


class Frame(NamedTuple):
    """A page in a WAL."""

    page: int
    salts: bytes = SALTS


def write_wal(store: Path, *frames: Frame) -> None:
    """A WAL with these pages, one after the other."""
    content = struct.pack(">8xL4x8s8x", PAGE_BYTES, SALTS)
    for frame in frames:
        content += struct.pack(">L4x8s8x", *frame) + bytes(PAGE_BYTES)
    Path(f"{store}-wal").write_bytes(content)


class Answers:
    """A database of four pages, as SQLite would describe it whatever its file holds."""

    def __init__(self, store: Path, *, free: int) -> None:
        self._answers = {"page_size": PAGE_BYTES, "page_count": 4, "freelist_count": free}
        self._store = store

    def execute(self, question: str) -> "Answers":
        self._answer = self._answers.get(question.removeprefix("PRAGMA "), str(self._store).encode())
        return self

    def fetchone(self) -> tuple[object]:
        return (self._answer,)


def fault_of(store: Path, size: int, *, free: int = 0) -> StoreCorruptedError | None:
    store.write_bytes(bytes(size))
    try:
        check_whole(cast(sqlite3.Connection, Answers(store, free=free)), str(store))
    except StoreCorruptedError as error:
        return error
    return None


def is_whole(store: Path, size: int, *, free: int = 0) -> bool:
    return fault_of(store, size, free=free) is None


@pytest.mark.parametrize(
    ("size", "whole"), [(2048, True), (2047, False), (1537, False), (1536, False), (2049, False), (2560, True)]
)
def test_a_file_without_a_wal_has_every_page_and_no_part_of_one_more(store: Path, size: int, whole: bool) -> None:
    """SPEC 5.5: a file that was cut or copied in part is damaged, wherever the cut is."""
    assert is_whole(store, size) is whole


def test_damage_says_how_long_the_file_is_and_should_be(store: Path) -> None:
    """SPEC 1.5: the text for people, the details for programs."""
    error = fault_of(store, 1_500)
    assert error is not None
    assert error.message == f"Store {store} is damaged: it has 1,500 bytes instead of 2,048"
    assert (error.details["bytes"], error.details["expectedBytes"]) == (1_500, 2_048)


@pytest.mark.parametrize(
    ("size", "in_wal", "whole"),
    [
        (1536, [4], True),
        (1636, [4], True),
        (1536, [3], False),
        (1024, [4], False),
        (1024, [4, 3], True),
        (1124, [3, 4], True),
        (1124, [4], False),
        (2049, [1], True),  # a checkpoint was about to make it longer
    ],
)
def test_a_page_that_a_wal_holds_may_be_missing_or_cut(store: Path, size: int, in_wal: list[int], whole: bool) -> None:
    """SPEC 3.9: the power failed while a checkpoint wrote pages from the WAL to the end of the file."""
    write_wal(store, *map(Frame, in_wal))
    assert is_whole(store, size) is whole


def test_pages_of_an_earlier_round_of_the_wal_do_not_count(store: Path) -> None:
    """SPEC 5.5: SQLite writes a WAL again from its beginning; what is left behind that is old."""
    write_wal(store, Frame(3), Frame(4, EARLIER_SALTS))
    assert not is_whole(store, 1024)
    assert is_whole(store, 1536 + 512)
    write_wal(store, Frame(3), Frame(4, EARLIER_SALTS), Frame(4))
    assert not is_whole(store, 1024)


def test_a_wal_that_ends_in_a_page_or_in_its_header_holds_what_is_before(store: Path) -> None:
    """SPEC 3.9: the power fails at any byte."""
    write_wal(store, Frame(4), Frame(3))
    content = Path(f"{store}-wal").read_bytes()
    Path(f"{store}-wal").write_bytes(content[:-1])
    assert is_whole(store, 1536)
    assert not is_whole(store, 1024)
    Path(f"{store}-wal").write_bytes(content[:31])
    assert not is_whole(store, 1536)


def test_free_pages_at_the_end_need_not_be_there_but_are_not_cut(store: Path) -> None:
    """SPEC 5.5: SQLite writes no free page, but what it writes it writes whole."""
    assert is_whole(store, 1536, free=1)
    assert not is_whole(store, 1024, free=1)
    assert is_whole(store, 1024, free=2)
    assert not is_whole(store, 1636, free=1)
    write_wal(store, Frame(3))
    assert is_whole(store, 1124, free=1)
    write_wal(store, Frame(4))
    assert not is_whole(store, 1124, free=2)


def test_the_page_on_which_sqlite_takes_its_locks_is_not_missed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never written. Here it is the fourth page, and not one a gigabyte away."""
    monkeypatch.setattr(damage, "_PENDING_BYTE", 3 * PAGE_BYTES)
    assert is_whole(store, 1536)
    assert not is_whole(store, 1024)


@pytest.mark.parametrize(("tasks", "few"), [(2, True), (3, True), (4, False)])
def test_few_tasks_are_as_many_as_a_command_compares_in_no_time(
    monkeypatch: pytest.MonkeyPatch, tasks: int, few: bool
) -> None:
    """A command on a store of a million tasks would otherwise take a second longer."""
    monkeypatch.setattr(damage, "_FEW_TASKS", 3)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE tasks (name)")
        connection.executemany("INSERT INTO tasks VALUES (?)", [("a",)] * tasks)
        assert has_few_tasks(connection) is few


def test_a_value_that_its_table_forbids_is_left_to_the_reading_of_the_row() -> None:
    """SPEC 5.5: that names the task and the field; here only the indexes are compared with their tables."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE schedulers (name)")
        connection.execute("CREATE TABLE tasks (name TEXT CHECK (name != 'b'), cron TEXT NOT NULL)")
        connection.execute("CREATE INDEX by_name ON tasks (name)")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("INSERT INTO tasks VALUES ('b', '* * * * *')")
        connection.execute("PRAGMA ignore_check_constraints = OFF")
        assert connection.execute("PRAGMA integrity_check(tasks)").fetchone() == ("CHECK constraint failed in tasks",)
        check_indexes(connection, "state.db")
