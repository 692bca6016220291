"""One running holder for a store, known by name: an advisory lock on a file beside it.

The kernel releases the lock when the holder dies, however it dies, so a dead holder's store is free and a reused
process number does no harm. The file is never removed: a lock on a removed file would keep no other scheduler away.
"""

import contextlib
import json
import os
import select
import socket
import stat
import sys
import threading
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duly.core.moments import Instant, as_datetime, instant_of
from duly.errors import StoreError, StoreLockedError
from duly.stores.port import Blockage, Holder
from duly.stores.sqlite.file import identity
from duly.text import plain

if sys.platform != "win32":
    import fcntl

_HOLDER_BYTES_MAX = 1024
"""A longer file was not written by duly: a store called `uv` would otherwise empty `uv.lock`."""

_NAME_CHARACTERS_MAX = 100
"""Of a task in the text: with these it is always shorter than that."""

_OBSERVERS_MAX = 10_000
_PATIENCE_ROUNDS = 50

_held: "weakref.WeakSet[LockFile]" = weakref.WeakSet()
_changing = threading.RLock()
"""Held while a descriptor is opened, used by another thread than its own, or closed: its number may be a stranger's
afterwards. A fork waits for it as well, because a child could not give back a lock that is not recorded yet."""


class LockFile:
    """The lock beside a store; its text names the holder, its modification time is the last poll."""

    def __init__(self, store: str) -> None:
        self._store = store
        self.path = Path(store + ".lock")
        self._descriptor: int | None = None
        self._since: datetime | None = None

    def acquire(self, since: datetime) -> None:
        """Take the lock, or say who has it."""
        self._since = since
        try:
            with _changing:
                descriptor = self._descriptor = self._take()
                _held.add(self)
        except BlockingIOError:
            raise StoreLockedError(self._store, _name_of_holder(self.path)) from None
        _write(descriptor, this_process(since))

    def _take(self) -> int:
        """A descriptor with the lock; raises BlockingIOError if another holder has it."""
        try:
            # No link is followed: what lies at the other end of one would be overwritten.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self.path, flags, 0o600)
        except OSError as cause:
            raise StoreError(
                f"Cannot create the lock file {self.path}: {cause.strerror}",
                store=self._store,
                hint="the folder of the store must be writable",
                cause=cause,
            ) from cause
        try:
            _check_ours(descriptor, self.path, self._store)
            _lock(descriptor)
        except (StoreError, BlockingIOError):
            os.close(descriptor)
            raise
        except OSError as cause:
            os.close(descriptor)
            raise StoreError(
                f"Cannot lock {self.path}: {cause.strerror}",
                store=self._store,
                hint="keep the store on a local file system that supports flock",
                cause=cause,
            ) from cause
        return descriptor

    def keep(self) -> bool:
        """Take the lock anew if its file was removed, so that others see it; raises if one of them has it already.

        True if that was needed: another holder may have had it in between.
        """
        held, since = self._descriptor, self._since
        if held is None or since is None or identity(str(self.path)) == identity(held):
            return False
        self.acquire(since)
        with _changing:
            _close(held)
        return True

    def touch(self) -> None:
        """Set the modification time to now, from any thread; skipped while the lock is taken, which sets it too."""
        if not _changing.acquire(blocking=False):
            return
        try:
            if self._descriptor is not None:
                with contextlib.suppress(OSError):
                    os.utime(self._descriptor)
        finally:
            _changing.release()

    def note_blockage(self, blockage: Blockage) -> None:
        """Add the latest blockage of the event loop to the text, from any thread."""
        name = plain(blockage.task, longest=_NAME_CHARACTERS_MAX)
        noted = {"task": name, "at": as_datetime(blockage.at, UTC).isoformat(), "ms": blockage.blocked_ms}
        with _changing:
            if self._descriptor is not None and self._since is not None:
                _write(self._descriptor, {**this_process(self._since), "blocked": noted})

    def release(self) -> None:
        """Let others in; releasing twice is fine."""
        with _changing:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)
                _close(descriptor)

    def disown(self) -> None:
        """In a forked child: the lock stays with the parent, and must not outlive it here."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _close(descriptor)


def this_process(since: datetime) -> dict[str, Any]:
    """How this process names itself as a holder."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": since.isoformat(timespec="seconds")}


def _write(descriptor: int, text: Mapping[str, Any]) -> None:
    """Write the text of a lock file. It is a courtesy to people; the lock itself needs no space on a full disk."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"), 0)


def _close(descriptor: int) -> None:
    """Close it. An error would only mean that the text has not reached the disk; the lock is released even so."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


def _check_ours(descriptor: int, path: Path, store: str) -> None:
    """Raise a StoreError if the file is not a lock file of ours: its text would be overwritten."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        reason = "is not a regular file"
    elif found.st_nlink > 1:
        reason = "has another name as well"
    elif found.st_size > _HOLDER_BYTES_MAX:
        reason = "is too long for a lock file"
    else:
        return
    raise StoreError(f"{path} {reason}", store=store, hint="duly needs that name for its lock: rename the store")


def _lock(descriptor: int) -> None:
    """Take the lock, past observers: to see whether a holder lives they share the lock for a moment."""
    for _ in range(_OBSERVERS_MAX):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            # Refused as well if a scheduler holds it; shared only with processes that just look.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    raise BlockingIOError


def _name_of_holder(path: Path) -> dict[str, Any]:
    """The holder of the lock; waits a moment for a holder that has just taken it to write its name."""
    for _ in range(_PATIENCE_ROUNDS):
        if holder := _text_of(path):
            return holder
        select.select([], [], [], 0.01)
    return {}


def _text_of(path: Path) -> dict[str, Any]:
    """The text that a holder wrote into a lock file, as far as it can be read."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


# --- for observers ---------------------------------------------------------------------------------------------------


def read_holder(store: str) -> Holder:
    """Which process holds a store, and when a scheduler last looked; creates no lock file and keeps no lock.

    Raises a StoreError if that cannot be told: a holder that cannot be seen is not a dead one.
    """
    path = Path(f"{store}.lock")
    try:
        with _changing:  # a child forked meanwhile would keep the shared lock of the look
            return _look(path)
    except FileNotFoundError:
        return Holder(alive=False, pid=None, host=None, since=None, last_poll_at=None)
    except OSError as cause:
        raise StoreError(
            f"The lock file {path} cannot be read: {cause.strerror}",
            store=store,
            hint="only this file shows whether a scheduler holds the store: check its owner and mode",
            cause=cause,
        ) from cause


def _look(path: Path) -> Holder:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # In this order: a graceful end empties the file before the lock is gone.
        alive = _is_locked(descriptor)
        last_poll_at = Instant(os.fstat(descriptor).st_mtime_ns // 1000)
    finally:
        os.close(descriptor)
    return holder_named(_text_of(path), alive=alive, last_poll_at=last_poll_at)


def holder_named(text: Mapping[str, Any], *, alive: bool, last_poll_at: Instant | None) -> Holder:
    """The holder that names itself so, as far as that can be read."""
    pid, host = text.get("pid"), text.get("host")
    return Holder(
        alive,
        pid if isinstance(pid, int) else None,
        host if isinstance(host, str) else None,
        _moment(text.get("since")),
        last_poll_at,
        _blockage(text.get("blocked")),
    )


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without such locks: what is written there is all there is to know
        return os.fstat(descriptor).st_size > 0
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _blockage(text: object) -> Blockage | None:
    if not isinstance(text, dict):
        return None
    task, at, milliseconds = text.get("task"), _moment(text.get("at")), text.get("ms")
    if not isinstance(task, str) or at is None or type(milliseconds) is not int:
        return None
    return Blockage(task, at, milliseconds)


def _moment(text: object) -> Instant | None:
    try:
        return instant_of(datetime.fromisoformat(str(text)))
    except (ValueError, TypeError):
        return None


# --- forks -----------------------------------------------------------------------------------------------------------


def _disown_all() -> None:
    for lock in list(_held):
        lock.disown()
    _changing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_disown_all)
