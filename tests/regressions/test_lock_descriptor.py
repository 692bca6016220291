"""The lock file's descriptor was closed by one thread while another one used it, or a forked process inherited it.

The store's thread takes the lock again if its file was removed, and releases it; the loop's thread sets the file's time
at each poll, and callbacks fork. Both threads are held at the point in question, so the race happens every time.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly.errors import StoreLockedError
from duly.stores.sqlite import lock as lockfile
from duly.stores.sqlite.lock import LockFile
from tests.programs import environment

NOW = datetime(2024, 6, 15, 12, tzinfo=UTC)
PATIENCE_SECONDS = 60.0


class Watched:
    """The module's own lock; sets an event when a thread has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.awaited = threading.Event()

    def acquire(self, blocking: bool = True) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        if blocking:
            self.awaited.set()
        return blocking and self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> "Watched":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched()
    monkeypatch.setattr(lockfile, "_changing", watched)
    return watched


@pytest.fixture
def lock(tmp_path: Path) -> LockFile:
    lock = LockFile(str(tmp_path / "state.db"))
    lock.acquire(NOW)
    return lock


def taken_anew(lock: LockFile) -> None:
    assert lock.keep()


@pytest.mark.parametrize("change", [taken_anew, LockFile.release])
def test_a_descriptor_in_use_is_not_closed_and_no_strangers_file_is_touched(
    lock: LockFile,
    watched: Watched,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[LockFile], None],
) -> None:
    """SPEC 5.7: closing it waits until it is not in use; otherwise its number could mean another file by then."""
    os.unlink(lock.path)
    stranger = tmp_path / "stranger"
    stranger.touch()
    set_time = os.utime
    set_time(stranger, (0, 0))

    def change_and_tell() -> None:
        change(lock)
        watched.awaited.set()  # without having waited, if it comes to that

    other = threading.Thread(target=change_and_tell)

    def set_time_late(descriptor: int) -> None:
        other.start()
        assert watched.awaited.wait(PATIENCE_SECONDS)
        opened = os.open(stranger, os.O_RDONLY)  # gets the number, if that is free again
        try:
            set_time(descriptor)
        finally:
            os.close(opened)

    with monkeypatch.context() as patched:
        patched.setattr(os, "utime", set_time_late)
        lock.touch()
    other.join(PATIENCE_SECONDS)
    assert not other.is_alive()
    assert stranger.stat().st_mtime == 0
    lock.release()


def test_a_descriptor_that_is_being_changed_is_left_alone_and_nobody_waits(
    lock: LockFile, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 4.6: a slow disk does not keep the loop waiting: taking the lock sets the time as well."""
    os.unlink(lock.path)
    take = lockfile._lock
    times: list[object] = []

    def take_while_the_loop_looks(descriptor: int) -> None:
        loop = threading.Thread(target=lock.touch)
        loop.start()
        loop.join(PATIENCE_SECONDS)
        assert not loop.is_alive()
        assert not watched.awaited.is_set()
        take(descriptor)

    monkeypatch.setattr(os, "utime", times.append)
    monkeypatch.setattr(lockfile, "_lock", take_while_the_loop_looks)
    assert lock.keep()
    assert not times
    lock.touch()
    assert len(times) == 1
    lock.release()


_FORK = """
import os, sys, threading
from datetime import UTC, datetime
from duly.stores.sqlite import lock as lockfile

take, reached, children = lockfile._lock, threading.Event(), []
os.register_at_fork(before=reached.set)  # hooks of this kind come in reverse order: before duly's own

def take_while_another_thread_forks(descriptor):
    take(descriptor)
    other.start()
    assert reached.wait(60)

def fork():
    child = os.fork()
    if not child:
        os.close(1)  # a reader of that pipe waits for the holder alone
        os.read(0, 1)
        os._exit(0)
    children.append(child)

other = threading.Thread(target=fork)
lockfile._lock = take_while_another_thread_forks
sys.setswitchinterval(60)  # the thread that announced its fork does it before the other one goes on
lock = lockfile.LockFile(sys.argv[1])
lock.acquire(datetime(2024, 6, 15, 12, tzinfo=UTC))
other.join()
print(children[0], flush=True)
"""


def test_a_fork_while_the_lock_is_being_taken_does_not_inherit_it(tmp_path: Path) -> None:
    """SPEC 5.7: a dead holder's store is free, even if a process that it forked at that moment is still running."""
    store = str(tmp_path / "state.db")
    reader, writer = os.pipe()
    try:
        holder = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _FORK, store],
            env=environment(),
            stdin=reader,
            stdout=subprocess.PIPE,
            check=True,
            timeout=PATIENCE_SECONDS,
        )
        assert Path("/proc", holder.stdout.decode().strip()).exists() or sys.platform != "linux"
        lock = LockFile(store)
        lock.acquire(NOW)
        with pytest.raises(StoreLockedError, match=str(os.getpid())):
            LockFile(store).acquire(NOW)
        lock.release()
    finally:
        os.close(writer)  # the child sees the end of its input, and is gone
        os.close(reader)
