"""Facts about the machine, without which a figure means nothing."""

import os
import platform
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

SYNCS = 50


def facts(scratch: Path, versions: dict[str, str]) -> dict[str, str]:
    """The head of the tables; `versions` are the other interpreters that were measured."""
    load = os.getloadavg()[0]
    cores = os.cpu_count() or 1
    return {
        "processor": f"{cores} cores, {_processor()}",
        "memory": f"{_memory_gib():.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, {_file_system(scratch)}",
        "Python": ", ".join([platform.python_version(), *versions.values()]),
        "SQLite": sqlite3.sqlite_version,
        "fsync": _fsync(scratch),
        "load before": f"{load:.1f}" + (" (other work was going on)" if load > 0.5 else ""),
    }


def version_of(interpreter: str) -> str:
    """Which Python it is, exactly."""
    import subprocess

    code = "import platform; print(platform.python_version())"
    return subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _file_system(folder: Path) -> str:
    """The kind of file system that the stores lie on."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return sys.platform
    inside = [(len(mount[1]), mount[2]) for mount in mounts if folder.resolve().is_relative_to(mount[1])]
    return max(inside, default=(0, "unknown file system"))[1]


def _fsync(folder: Path) -> str:
    """How long it takes until 4 KiB at the end of a file are on disk, as a commit does it."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            took.append(1000 * (time.perf_counter() - begun))
    return f"{median(took):.2f} ms ({min(took):.2f}–{max(took):.2f})"
