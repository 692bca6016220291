"""The layout of a store: which files are recognised as stores, and what becomes of one that cannot be migrated."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from duly.errors import StoreError
from duly.stores import SqliteStore
from duly.stores.sqlite.schema import complete, create, migrate, migrated_copy, recognise
from duly.threads import Inline
from tests.stores.contract import AT_NOON
from tests.stores.helpers import older_layout


def make_store(path: Path) -> Path:
    """A store without tasks."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        create(connection)
        complete(connection)
    return path


def test_a_store_carries_the_name_of_its_program_in_its_header(store: Path) -> None:
    """SPEC 5.5: tools such as file(1) read it there, and so do versions of duly that are older and newer."""
    assert make_store(store).read_bytes()[68:72] == b"duly"


@pytest.mark.parametrize(("size", "journal", "empty"), [(0, False, True), (1, True, True), (1, False, False)])
def test_a_byte_is_taken_for_nothing_only_if_sqlite_left_it(store: Path, size: int, journal: bool, empty: bool) -> None:
    """SPEC 4.5: a first initialize() that was killed leaves nothing, or one byte beside a journal."""
    store.write_bytes(bytes(size))
    if journal:
        Path(f"{store}-journal").touch()
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        if empty:
            assert recognise(connection, str(store)) == 0
        else:
            with pytest.raises(StoreError, match="is a database of something else"):
                recognise(connection, str(store))


def test_an_older_store_that_lacks_a_table_is_not_read_as_a_newer_one(store: Path) -> None:
    """SPEC 5.5: what is missing is damage, and not an empty table."""
    older_layout(make_store(store), 2)
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("DROP TABLE states")
        with pytest.raises(sqlite3.OperationalError, match="no such table: states"):
            migrated_copy(connection)


def test_a_store_of_this_version_is_not_migrated(store: Path) -> None:
    """A file that needs no change is not changed."""
    before = make_store(store).read_bytes()
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        migrate(connection)
    assert store.read_bytes() == before


@pytest.mark.parametrize(("library", "taken"), [((3, 32, 3), False), ((3, 33, 0), True)])
async def test_a_library_that_lacks_what_duly_needs_is_refused(
    monkeypatch: pytest.MonkeyPatch, library: tuple[int, int, int], taken: bool
) -> None:
    """SPEC 1.5: with the version that is needed, instead of a syntax error in the midst of a write."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", library)
    store = SqliteStore(":memory:", worker=Inline())
    if taken:
        assert (await store.open("a", AT_NOON)).next_run == 1
    else:
        with pytest.raises(StoreError, match="is too old") as caught:
            await store.open("a", AT_NOON)
        assert caught.value.details["hint"] == "duly needs at least 3.33.0"
    await store.close()
