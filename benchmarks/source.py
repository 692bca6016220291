"""The code that is measured: the commit of this checkout, and a digest of src/duly, which survives a rebase."""

import hashlib
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
DIGITS = 12
"""Of a commit and of a digest, as the results show them."""


class Source(NamedTuple):
    """Which code was measured; both are empty in results of earlier versions of this program."""

    commit: str = ""
    """Empty where there is no repository; "… with changes" if src/duly differs from it."""

    source: str = ""
    """The digest of src/duly."""

    def __str__(self) -> str:
        commit = f"commit {self.commit}, " if self.commit else ""
        return f"{commit}src/duly {self.source}" if self.source else ""


def source(root: Path = ROOT) -> Source:
    """The code of a checkout, as it is now."""
    return Source(_commit(root), digest(root / "src" / "duly"))


def digest(folder: Path) -> str:
    """The beginning of a SHA-256 of all files in a folder, and of their names; what Python compiled does not count."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content = path.read_bytes()
            found.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
            found.update(content)
    return found.hexdigest()[:DIGITS]


def _commit(root: Path) -> str:
    try:
        head = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", "src/duly")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head[:DIGITS] + (" with changes" if changed else "")


def _git(root: Path, *command: str) -> str:
    asked = ["git", "-C", str(root), *command]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
