"""Processor time of a PostgreSQL server's processes, as Linux counts it; None where it does not."""

import os
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def of_process(pid: int) -> float | None:
    """Seconds that a process has used, to the microsecond or better."""
    try:
        return int((PROC / str(pid) / "schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def of_processes(pids: Iterable[int]) -> float | None:
    """Seconds that some processes have used together; None if one of them is not there."""
    times = [of_process(pid) for pid in pids]
    return None if None in times or not times else sum(time for time in times if time is not None)


def parent_of(pid: int) -> int | None:
    """The process that a process is a child of."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def of_server(postmaster: int) -> float | None:
    """Seconds of a whole server: of its postmaster, of all that it started and that run, and of those that ended."""
    fields = _stat(postmaster)
    if not fields:
        return None
    ended = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    children = (int(each.name) for each in PROC.iterdir() if each.name.isdecimal())
    living = [of_process(pid) or 0.0 for pid in children if pid == postmaster or parent_of(pid) == postmaster]
    return ended + sum(living)


def _stat(pid: int) -> list[str]:
    """The fields after the name of the program, which may hold blanks: state, parent, …"""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
