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
    """What a failed first initialize() removes must be what it made itself."""
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
