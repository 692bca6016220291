"""Who else can change a file that this user is about to rely on."""

import os
import stat
from pathlib import Path
from typing import Final

from duly.cli.output import note
from duly.text import plain

_ROOT: Final = 0
_warned: set[str] = set()


def others_with_power_over(path: str | Path) -> str | None:
    """Why a file is in the hands of others: its owner is neither this user nor root, or everybody may write to it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    if found.st_uid not in (os.geteuid(), _ROOT):
        return f"is owned by another user (uid {found.st_uid})"
    if found.st_mode & stat.S_IWOTH:
        return f"can be changed by every user (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def warn_of_others(path: str | Path, consequence: str) -> None:
    """Say once, on standard error, what others can do through a file. It is used all the same: root may mean to."""
    why = others_with_power_over(path)
    if why is not None and str(path) not in _warned:
        _warned.add(str(path))
        note(f"{plain(path)} {why}, who can {consequence}", "warning", "bold yellow")
