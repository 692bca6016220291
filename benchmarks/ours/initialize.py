"""Declare N tasks: cold, on a store that does not exist yet, and warm, on one that has them all."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duly
from benchmarks import witness, workload
from benchmarks.clocks import LeapingClock
from duly.stores.sqlite.damage import check_indexes


def measure(folder: Path, tasks: int, *, plain: bool = False) -> dict[str, float]:
    """Cold in a process of its own, warm in this one: neither inherits the other's memory.

    `plain` adds what nobody can do without, in a process of its own as well: a loop that builds as many registrations,
    and one insert of them into SQLite. A part of the warm one is measured by itself: the comparison of the index of
    names with the table.
    """
    store = folder / "store.db"
    cold = _in_a_process_of_its_own("initialize", store, tasks)
    warm = asyncio.run(initialize(store, tasks))
    figures = {
        "tasks": float(tasks),
        "cold_s": cold,
        "warm_s": warm,
        "indexes_s": _comparing_indexes(store),
        "store_mb": os.path.getsize(store) / 1e6,
    }
    if plain:
        least = _in_a_process_of_its_own("plain", folder / "plain.db", tasks)
        figures |= {"plain_s": least, "cold_ratio": cold / least, "warm_ratio": warm / least}
    return figures


def _in_a_process_of_its_own(what: str, store: Path, tasks: int) -> float:
    # Unlike a benchmark's child it leaves its store behind.
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.ours.initialize", what, str(store), str(tasks)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return float(told.stdout)


def _comparing_indexes(store: Path) -> float:
    """Seconds for the comparison that every first initialize() makes; the file is in the system's cache, as there."""
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
        begun = time.perf_counter()
        check_indexes(connection, str(store))
        return time.perf_counter() - begun


async def initialize(store: Path, tasks: int) -> float:
    """Seconds from the call to its return, the registrations being at hand."""
    clock = LeapingClock()
    await clock.make_room(workload.room_seconds(tasks))
    registrations = workload.tasks(tasks, workload.spread(clock.due_minute()), witness.callback)
    scheduler = duly.Scheduler(store, clock=clock)
    begun = time.perf_counter()
    await scheduler.initialize(registrations)
    took = time.perf_counter() - begun
    await scheduler.stop()
    return took


async def plain(store: Path, tasks: int) -> float:
    """Seconds for building the registrations in a loop, and inserting them into SQLite in one transaction."""
    expressions = workload.spread(LeapingClock().due_minute())
    begun = time.perf_counter()
    registrations = workload.tasks(tasks, expressions, witness.callback)
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE tasks (number INTEGER PRIMARY KEY, name TEXT, cron TEXT, delay_ms INTEGER)")
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO tasks (name, cron, delay_ms) VALUES (?, ?, 300000)",
            ((name, cron) for name, cron, _, _ in registrations),
        )
        connection.execute("COMMIT")
    return time.perf_counter() - begun


if __name__ == "__main__":
    _, chosen, path, number = sys.argv
    programs: dict[str, Callable[[Path, int], object]] = {"initialize": initialize, "plain": plain}
    print(asyncio.run(programs[chosen](Path(path), int(number))))  # type: ignore[arg-type]
