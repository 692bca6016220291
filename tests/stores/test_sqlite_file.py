"""The files of a store: what is taken for a database, how it is opened, and what is left if it came to nothing."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from duly.errors import StoreError
from duly.stores.sqlite import file
from duly.stores.sqlite.file import create, discard, exists, identity, is_database, kind, stamp, written_files
from tests.stores.helpers import without_privileges


def make_database(path: Path) -> Path:
    """A database with one table."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.commit()
    return path


def test_a_database_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    """A text, an empty file, a folder and a missing one are not taken for a store."""
    assert is_database(make_database(tmp_path / "state.db"))
    (tmp_path / "text").write_text("SQLite format 4")
    (tmp_path / "empty").touch()
    for name in ("text", "empty", "missing", "."):
        assert not is_database(tmp_path / name), name


def test_an_empty_file_with_a_wal_is_a_database(tmp_path: Path) -> None:
    """Its content is still in the WAL."""
    (tmp_path / "empty").touch()
    (tmp_path / "empty-wal").write_bytes(b"x")
    assert is_database(tmp_path / "empty")
    (tmp_path / "text").write_text("no")
    (tmp_path / "text-wal").write_bytes(b"x")
    assert not is_database(tmp_path / "text")


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    """Reading it would wait for a writer, and take what is meant for somebody else."""
    os.mkfifo(tmp_path / "pipe")
    assert not is_database(tmp_path / "pipe")


def test_a_link_has_the_kind_of_its_target_unless_it_is_asked_itself(tmp_path: Path) -> None:
    """Links lead to stores, and nowhere else where that matters."""
    make_database(tmp_path / "state.db")
    (tmp_path / "link").symlink_to(tmp_path / "state.db")
    (tmp_path / "loose").symlink_to(tmp_path / "nowhere")
    assert kind(tmp_path / "link") == kind(tmp_path / "state.db") != 0
    assert kind(tmp_path / "link", follow_links=False) == kind(tmp_path / "loose", follow_links=False) != 0
    assert kind(tmp_path / "loose") == kind(tmp_path / "state.db" / "below") == 0


def test_a_file_that_is_made_is_private_and_new(tmp_path: Path) -> None:
    """A failed first initialize() removes only files that it made itself."""
    path = tmp_path / "state.db"
    create(str(path))
    assert (path.stat().st_mode & 0o777, path.stat().st_size) == (0o600, 0)
    with pytest.raises(FileExistsError):
        create(str(path))


@pytest.mark.parametrize("keep_file", [False, True])
def test_a_database_that_came_to_nothing_leaves_nothing_or_an_empty_file(tmp_path: Path, keep_file: bool) -> None:
    """SPEC 4.5: with all of its helpers, those that are there."""
    path = make_database(tmp_path / "state.db")
    for suffix in ("-wal", "-journal"):
        (tmp_path / f"state.db{suffix}").write_bytes(b"x")
    discard(str(path), keep_file=keep_file)
    assert [(each.name, each.stat().st_size) for each in tmp_path.iterdir()] == ([("state.db", 0)] if keep_file else [])


def test_a_file_is_known_by_its_number_and_a_change_by_its_stamp(tmp_path: Path) -> None:
    """A name may stand for another file from one moment to the next."""
    path = make_database(tmp_path / "state.db")
    first, stamped = identity(str(path)), stamp(str(path))
    assert first is not None
    assert written_files(str(path)) == (first, None)
    assert exists(str(path))
    with path.open("ab") as opened:
        assert identity(opened.fileno()) == first
        opened.write(b"x")
    assert (identity(str(path)), stamp(str(path)) == stamped) == (first, False)
    (tmp_path / "other").write_bytes(path.read_bytes())
    (tmp_path / "other").rename(path)
    assert identity(str(path)) != first
    path.unlink()
    assert (identity(str(path)), stamp(str(path)), exists(str(path))) == (None, None, False)


@pytest.mark.parametrize(("changes", "readable"), [(0, True), (1, True), (99, False)])
def test_a_copy_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int, readable: bool) -> None:
    """Files that change while they are copied are copied again; a store that never stands still is refused."""
    path = make_database(tmp_path / "state.db")
    (tmp_path / "state.db-journal").touch()  # as if power had failed: it is read from a copy
    copy = shutil.copyfile
    left = changes

    def copy_and_change(source: str, target: str) -> None:
        nonlocal left
        copy(source, target)
        if left:
            left -= 1
            make_change(path, left)

    monkeypatch.setattr(shutil, "copyfile", copy_and_change)
    if not readable:
        with (
            pytest.raises(StoreError, match="changes faster than it can be read"),
            file.opened(str(path), beside=False),
        ):
            pass
        return
    with file.opened(str(path), beside=False) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (changes,)
    assert not (tmp_path / "state.db-wal").exists()


def make_change(path: Path, number: int) -> None:
    (path.parent / "state.db-journal").unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO t VALUES (?)", (number,))
        connection.commit()
    (path.parent / "state.db-journal").touch()


# --- how a store is opened for reading -------------------------------------------------------------------------------


def never_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def copyfile(source: str, target: str) -> None:
        raise AssertionError(f"{source} is copied")

    monkeypatch.setattr(shutil, "copyfile", copyfile)


def make_wal(path: Path) -> sqlite3.Connection:
    """A database with a row that only its WAL has; while the connection is open, so is the WAL."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (a)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("INSERT INTO t VALUES (1)")
    return connection


def rows(path: Path, *, beside: bool) -> int:
    with file.opened(str(path), beside=beside) as connection:
        return int(connection.execute("SELECT count(*) FROM t").fetchone()[0])


def test_a_store_that_nobody_holds_is_read_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of gigabytes is not copied, and nothing is created beside it."""
    path = make_database(tmp_path / "state.db")
    never_copied(monkeypatch)
    assert rows(path, beside=False) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["state.db"]


def test_a_store_in_use_is_read_in_its_place_with_what_its_wal_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of files that change all the time would never be of one moment."""
    path = tmp_path / "state.db"
    with closing(make_wal(path)):
        never_copied(monkeypatch)
        assert rows(path, beside=False) == 1


def test_files_without_the_index_of_their_wal_are_read_in_a_copy_unless_it_may_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup stays as it is when it is looked at; a scheduler is about to write beside its store anyway."""
    with closing(make_wal(tmp_path / "live.db")):
        for suffix in ("", "-wal"):
            shutil.copyfile(tmp_path / f"live.db{suffix}", tmp_path / f"state.db{suffix}")
    path = tmp_path / "state.db"
    before = {each.name for each in tmp_path.iterdir()}
    assert rows(path, beside=False) == 1
    assert {each.name for each in tmp_path.iterdir()} == before
    never_copied(monkeypatch)
    assert rows(path, beside=True) == 1


@pytest.mark.parametrize(("shm", "wal", "shared"), [(0o666, 0o644, True), (0o644, 0o644, False), (0o666, 0o600, False)])
def test_a_user_that_may_not_take_part_in_the_locking_reads_a_copy(
    public_folder: Path, monkeypatch: pytest.MonkeyPatch, shm: int, wal: int, shared: bool
) -> None:
    """A user who may only read the files cannot tell SQLite that a page is still being read."""
    path = public_folder / "state.db"
    with closing(make_wal(path)):
        os.chmod(path, 0o644)
        os.chmod(f"{path}-shm", shm)
        os.chmod(f"{path}-wal", wal)
        assert without_privileges(lambda: file._may_share(str(path))) is shared


@pytest.mark.parametrize(("mode", "refused"), [(0o777, None), (0o555, "is not writable")])
def test_a_folder_is_asked_before_anything_is_tried(public_folder: Path, mode: int, refused: str | None) -> None:
    """SPEC 1.5: SQLite would only say that it cannot open a file."""
    folder = public_folder / "folder"
    folder.mkdir()
    folder.chmod(mode)

    def message() -> str | None:
        try:
            file.check_place(str(folder / "state.db"))
        except StoreError as error:
            return error.message
        return None

    found = without_privileges(message)
    assert found == (None if refused is None else f"The folder {folder} {refused}")


def hot_journal(path: Path) -> bytes:
    """The files beside a database while a transaction is being written that a crash interrupts."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # so that pages are written before the commit
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 3000,)] * 20)
        journal = Path(f"{path}-journal").read_bytes()
        connection.execute("COMMIT")
    assert journal[:1] != b"\0"  # it counts: SQLite would roll back
    return journal


def test_a_transaction_that_a_crash_cut_short_is_rolled_back_in_a_copy(tmp_path: Path) -> None:
    """The files stay as they are, for the scheduler that comes next, and for people who look into the matter."""
    path = make_database(tmp_path / "state.db")
    journal = hot_journal(path)
    Path(f"{path}-journal").write_bytes(journal)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert rows(path, beside=True) == 0
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_journal_that_goes_while_files_are_copied_goes_from_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction was completed meanwhile. In the copy it would be rolled back."""
    path = make_database(tmp_path / "state.db")
    journal = hot_journal(path)
    Path(f"{path}-journal").write_bytes(journal)
    copy = shutil.copyfile

    def copy_and_complete(source: str, target: str) -> None:
        copy(source, target)
        if str(source).endswith("-journal"):
            os.unlink(source)

    monkeypatch.setattr(shutil, "copyfile", copy_and_complete)
    assert rows(path, beside=False) == 20


def test_a_store_that_was_read_is_let_go(tmp_path: Path) -> None:
    """Even if the connection is still known to somebody: a scheduler may want to remove the file."""
    with file.opened(str(make_database(tmp_path / "state.db")), beside=False) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
