"""Watches source files for changes, four times a second."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from duly.clock import Clock
from duly.core.moments import MICROSECONDS

_PERIOD: Final = MICROSECONDS // 4


class Signature(NamedTuple):
    """Inode, size and time of a file: at least one differs when it has been written or replaced."""

    inode: int
    size: int
    modified_ns: int


def signature(path: Path) -> Signature | None:
    """The present signature of a file; None if there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return Signature(status.st_ino, status.st_size, status.st_mtime_ns)


async def pause(clock: Clock, microseconds: int) -> None:
    """Let time pass. The clock sets the event that it is given, so each pause has an event of its own."""
    await clock.sleep_until(clock.now() + microseconds, asyncio.Event())


async def watch(
    clock: Clock, files: Callable[[], Mapping[Path, Signature | None]], changed: Callable[[Path], None]
) -> None:
    """Call `changed` whenever a file differs from its last known signature and was not written for a quarter second.

    `files` returns the files to watch, with their signatures when they were loaded.
    """
    seen: dict[Path, Signature | None] = {}
    while True:
        before = {path: signature(path) for path in files()}
        await pause(clock, _PERIOD)
        for path, loaded in files().items():
            present = signature(path)
            # Editors replace files: one that is missing, or still being written, has not changed yet.
            if present is None or present != before.get(path, present):
                continue
            if seen.setdefault(path, loaded) != present:
                seen[path] = present
                changed(path)
