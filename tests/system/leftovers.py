"""Leftovers of a scheduler in its process."""

import contextlib
import gc
import os
import threading

BESIDE = ("duly-pings", "duly-web")
"""Threads beside schedulers, which live as long as their process: another test may have begun them."""


def left_over() -> list[str]:
    """Threads of schedulers that are still alive."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("duly") and not name.startswith(BESIDE)]


def open_files() -> set[str]:
    """The open files of this process under its temporary folder, as far as the system tells."""
    gc.collect()
    found = set()
    for descriptor in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/dev/fd/{descriptor}")
            if "state" in target:
                found.add(target)
    return found
