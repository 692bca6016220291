"""Warns of files that other users can change, before they are relied on."""

import os
import stat
from pathlib import Path
from typing import Final

from duly.cli.output import note
from duly.text import plain

_ROOT: Final = 0
_warned: set[str] = set()


def reason_for_distrust(path: str | Path) -> str | None:
    """Why other users can change a file: its owner is neither this user nor root, or every user may write to it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    if found.st_uid not in (os.geteuid(), _ROOT):
        return f"is owned by another user (uid {found.st_uid})"
    # In a folder with the sticky bit, such as /tmp, everybody may add files, and only owners replace theirs.
    sticky_folder = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & stat.S_IWOTH and not sticky_folder:
        return f"can be changed by every user (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def warn_of_other_users(path: str | Path, consequence: str) -> None:
    """Warn once, on standard error, of what other users can do through a file; it is used anyway."""
    why = reason_for_distrust(path)
    if why is not None and str(path) not in _warned:
        _warned.add(str(path))
        note(f"{plain(path)} {why}: {consequence}", "warning", "bold yellow")
