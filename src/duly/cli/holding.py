"""Who holds a store, and when a scheduler last looked: the lock file, read without creating it or keeping the lock."""

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from duly.core.moments import Instant, instant_of
from duly.errors import StoreError
from duly.stores.sqlite.lock import read_holder

if sys.platform != "win32":
    import fcntl


class Holder(NamedTuple):
    """What the lock file tells."""

    alive: bool
    """Whether a living scheduler holds the store."""

    pid: int | None
    host: str | None
    since: Instant | None
    """Who wrote the file; after a crash that is who held the store last. A graceful end leaves it empty."""

    last_poll: Instant | None
    """The file's modification time: when a scheduler last looked. None: there is no such file."""


def read_lock(store: Path) -> Holder:
    """Who holds a store, and when a scheduler last looked; without creating the lock file or keeping the lock.

    Raises a StoreError if that cannot be told: a holder that cannot be seen is not a dead one.
    """
    path = Path(f"{store}.lock")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Holder(alive=False, pid=None, host=None, since=None, last_poll=None)
    except OSError as cause:
        raise StoreError(
            f"The lock file {path} cannot be read: {cause.strerror}",
            store=str(store),
            hint="only its lock tells whether a scheduler holds the store: check its owner and mode",
            cause=cause,
        ) from cause
    try:
        # In this order: a graceful end empties the file before the lock is gone.
        alive = _is_locked(descriptor)
        last_poll = Instant(os.fstat(descriptor).st_mtime_ns // 1000)
    finally:
        os.close(descriptor)
    text = read_holder(path)
    pid, host = text.get("pid"), text.get("host")
    return Holder(
        alive,
        pid if isinstance(pid, int) else None,
        host if isinstance(host, str) else None,
        _since(text.get("since")),
        last_poll,
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


def _since(text: object) -> Instant | None:
    try:
        return instant_of(datetime.fromisoformat(str(text)))
    except (ValueError, TypeError):
        return None
