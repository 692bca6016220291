"""Notices that source files have changed, by looking at them now and then."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from duly.clock import Clock
from duly.core.moments import MICROSECONDS

_PERIOD: Final = MICROSECONDS // 4


class Signature(NamedTuple):
    """What differs when a file has been written or replaced."""

    inode: int
    size: int
    modified_ns: int


def signature(path: Path) -> Signature | None:
    """The present signature of a file; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return Signature(status.st_ino, status.st_size, status.st_mtime_ns)


async def pause(clock: Clock, microseconds: int) -> None:
    """Let time pass. A clock sets the event it was given when the time has come, so each pause has its own."""
    await clock.sleep_until(clock.now() + microseconds, asyncio.Event())


async def watch(
    clock: Clock, files: Callable[[], Mapping[Path, Signature | None]], changed: Callable[[Path], None]
) -> None:
    """Call `changed` whenever a file differs from when it was loaded or last looked at, and has stood still since.

    `files` are those to look at, as they were when they were loaded.
    """
    seen: dict[Path, Signature | None] = {}
    while True:
        before = {path: signature(path) for path in files()}
        await pause(clock, _PERIOD)
        for path, loaded in files().items():
            present = signature(path)
            # Editors replace files: one that is missing for a moment has not changed yet, nor one being written.
            if present is None or present != before.get(path, present):
                continue
            if seen.setdefault(path, loaded) != present:
                seen[path] = present
                changed(path)
