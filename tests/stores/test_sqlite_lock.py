"""The lock beside a store: what a refused holder leaves behind, what observers see, and what a lost lock file means."""

import errno
import fcntl
import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly.core.moments import Instant, instant_of
from duly.errors import StoreError, StoreLockedError
from duly.stores.port import Blockage, Holder
from duly.stores.sqlite.lock import LockFile, holder_named, read_holder

SINCE = datetime(2024, 1, 1, 12, tzinfo=UTC)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


@pytest.fixture
def holder(store: Path) -> LockFile:
    """Somebody who holds the lock of that store."""
    lock = LockFile(str(store))
    lock.acquire(SINCE)
    return lock


def test_a_refused_holder_leaves_no_file_open(store: Path, holder: LockFile) -> None:
    """SPEC 5.7: a program that tries again and again would run out of descriptors."""
    before = open_files()
    for _ in range(3):
        with pytest.raises(StoreLockedError):
            LockFile(str(store)).acquire(SINCE)
    assert open_files() == before
    holder.release()
    assert open_files() == before - 1


def test_a_file_that_is_not_a_lock_file_is_refused_and_left_alone(store: Path) -> None:
    """A store called `uv` would otherwise empty `uv.lock`: a longer text, a second name, a pipe."""
    path = Path(f"{store}.lock")
    before = open_files()
    path.write_text("x" * 1025)
    with pytest.raises(StoreError, match="is too long for a lock file"):
        LockFile(str(store)).acquire(SINCE)
    assert path.read_text() == "x" * 1025
    path.write_text("x" * 1024)
    lock = LockFile(str(store))
    lock.acquire(SINCE)
    lock.release()
    os.link(path, f"{store}.other")
    with pytest.raises(StoreError, match="has another name as well"):
        LockFile(str(store)).acquire(SINCE)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match="is not a regular file"):
        LockFile(str(store)).acquire(SINCE)
    assert open_files() == before


def test_the_holder_is_named_while_it_holds(store: Path, holder: LockFile) -> None:
    """SPEC 5.7: process, host, and since when; afterwards the file is empty, and stays."""
    found = read_holder(str(store))
    assert (found.alive, found.pid, found.since) == (True, os.getpid(), instant_of(SINCE))
    assert found.host == json.loads(holder.path.read_text())["host"]
    assert found.last_poll_at == holder.path.stat().st_mtime_ns // 1000
    with pytest.raises(StoreLockedError) as caught:
        LockFile(str(store)).acquire(SINCE)
    assert caught.value.details["holder"]["pid"] == os.getpid()
    holder.release()
    holder.release()
    assert holder.path.read_text() == ""
    found = read_holder(str(store))
    assert (found.alive, found.pid, found.host, found.since) == (False, None, None, None)
    assert found.last_poll_at is not None


@pytest.mark.parametrize("text", ["", "x", "{}"])
def test_where_files_cannot_be_locked_the_text_is_all_there_is_to_know(
    store: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A graceful end empties the file."""
    Path(f"{store}.lock").write_text(text)

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    assert read_holder(str(store)).alive == bool(text)
    before = open_files()
    with pytest.raises(StoreError, match=r"Cannot lock .*: No locks available"):
        LockFile(str(store)).acquire(SINCE)
    assert open_files() == before


def test_a_shorter_name_replaces_a_longer_one_whole(store: Path) -> None:
    """The text of an earlier holder that was killed does not stick out behind the new one."""
    path = Path(f"{store}.lock")
    path.write_text(json.dumps({"pid": 1, "host": "h" * 900, "since": "2024"}))
    lock = LockFile(str(store))
    lock.acquire(SINCE)
    assert json.loads(path.read_text())["pid"] == os.getpid()
    lock.release()


def test_a_poll_is_the_modification_time_while_the_lock_is_held(store: Path, holder: LockFile) -> None:
    """Without it nobody could tell a holder that hangs."""
    os.utime(holder.path, (1, 1))
    holder.touch()
    assert holder.path.stat().st_mtime > 1
    holder.release()
    os.utime(holder.path, (1, 1))
    holder.touch()
    assert holder.path.stat().st_mtime == 1


def test_a_lock_file_that_was_removed_is_made_again_and_held(store: Path, holder: LockFile) -> None:
    """Others see the lock again, the old file is let go, and the caller hears of it once."""
    before = open_files()
    assert not holder.keep()
    holder.path.unlink()
    assert holder.keep()
    assert not holder.keep()
    assert open_files() == before
    assert read_holder(str(store)).pid == os.getpid()
    with pytest.raises(StoreLockedError):
        LockFile(str(store)).acquire(SINCE)
    holder.release()
    assert not holder.keep()
    assert not read_holder(str(store)).alive


BLOCKAGE = Blockage("import", instant_of(SINCE), 1_500)


def test_a_blocked_event_loop_is_noted_beside_the_name_while_the_lock_is_held(store: Path, holder: LockFile) -> None:
    """An observer sees what a scheduler cannot say itself: its event loop does not turn."""
    before = read_holder(str(store))
    assert before.blockage is None
    holder.note_blockage(BLOCKAGE)
    found = read_holder(str(store))
    assert found.blockage == BLOCKAGE
    assert (found.alive, found.pid, found.host, found.since) == (True, before.pid, before.host, before.since)
    holder.release()
    holder.note_blockage(BLOCKAGE)
    assert holder.path.read_text() == ""


@pytest.mark.parametrize("letter", ["n", "ä", "語", "🕰"])
def test_a_lock_file_stays_ours_however_long_the_name_of_the_task_that_blocked(
    store: Path, holder: LockFile, letter: str
) -> None:
    """SPEC 5.7: a holder that is killed leaves the text, and a text that is too long would keep the next one out."""
    holder.note_blockage(Blockage(2_000 * letter, BLOCKAGE.at, 2_000))
    holder.disown()  # as if it had been killed
    found = read_holder(str(store))
    assert not found.alive
    assert found.blockage is not None
    assert found.blockage.task.startswith(letter)
    successor = LockFile(str(store))
    successor.acquire(SINCE)
    successor.release()


@pytest.mark.parametrize(
    "text",
    [
        "no object",
        {},
        {"at": "2024-01-01T12:00:00+00:00", "ms": 1},
        {"task": "a", "ms": 1},
        {"task": "a", "at": "yesterday", "ms": 1},
        {"task": "a", "at": "2024-01-01T12:00:00+00:00"},
        {"task": "a", "at": "2024-01-01T12:00:00+00:00", "ms": True},
        {"task": 7, "at": "2024-01-01T12:00:00+00:00", "ms": 1},
    ],
)
def test_a_text_that_does_not_say_what_blocked_and_when_says_nothing(text: object) -> None:
    """A lock file may be edited, or be of another version."""
    found = holder_named({"pid": "7", "host": 7, "blocked": text}, alive=True, last_poll_at=Instant(5))
    assert found == Holder(alive=True, pid=None, host=None, since=None, last_poll_at=Instant(5), blockage=None)


def test_looking_at_a_lock_leaves_no_file_open_and_the_lock_free(store: Path, holder: LockFile) -> None:
    """A dashboard looks again and again."""
    before = open_files()
    for _ in range(3):
        assert read_holder(str(store)).alive
    assert open_files() == before
    holder.release()
    assert not read_holder(str(store)).alive
    holder.acquire(SINCE)
    holder.release()


def test_a_lock_file_that_cannot_be_opened_is_not_taken_for_a_free_store(store: Path) -> None:
    """SPEC 5.7: a holder that cannot be seen is not a dead one."""
    Path(f"{store}.lock").symlink_to(f"{store}.lock")
    with pytest.raises(StoreError, match=r"The lock file .*\.lock cannot be read: ") as caught:
        read_holder(str(store))
    assert caught.value.details["store"] == str(store)


def test_an_observer_that_never_lets_go_keeps_a_scheduler_out(store: Path) -> None:
    """SPEC 5.7: a scheduler without the lock is not alone, whatever the reason; it does not wait for ever either."""
    Path(f"{store}.lock").touch()
    with open(f"{store}.lock", "rb") as observer:
        fcntl.flock(observer, fcntl.LOCK_SH)
        with pytest.raises(StoreLockedError):
            LockFile(str(store)).acquire(SINCE)
    alone = LockFile(str(store))
    alone.acquire(SINCE)
    alone.release()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the worker of a parallel run has threads
def test_a_lock_that_is_released_is_free_although_a_forked_child_lives_on(store: Path, holder: LockFile) -> None:
    """SPEC 5.7: the lock belongs to the open file, which a child shares with its parent."""
    reading, writing = os.pipe()
    begun, begin = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.write(begin, b"x")
        os.read(reading, 1)  # until the parent has seen what it wants to
        os._exit(0)
    try:
        os.close(reading)
        os.read(begun, 1)
        assert read_holder(str(store)).alive
        holder.release()
        another = LockFile(str(store))
        another.acquire(SINCE)
        another.release()
    finally:
        for descriptor in (writing, begun, begin):
            os.close(descriptor)
        os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the worker of a parallel run has threads
def test_a_forked_child_leaves_its_parents_lock_and_takes_its_own_in_any_thread(store: Path, holder: LockFile) -> None:
    """SPEC 5.7: the parent's stays with the parent; nothing that was held while forking is held in the child."""
    child = os.fork()
    if not child:
        taken: list[bool] = []

        def take() -> None:
            LockFile(f"{store}.other").acquire(SINCE)
            taken.append(True)

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        thread.join(20)
        os._exit(0 if taken and not holder.keep() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert read_holder(str(store)).alive
    assert not read_holder(f"{store}.other").alive
    holder.release()
    assert not read_holder(str(store)).alive
