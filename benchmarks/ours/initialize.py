"""Declare N tasks: cold, on a store that does not exist yet, and warm, on one that has them all."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import duly
from benchmarks import witness, workload
from benchmarks.clocks import LeapingClock


def measure(folder: Path, tasks: int) -> dict[str, float]:
    """Cold in a process of its own, warm in this one: neither inherits the other's memory."""
    store = folder / "store.db"
    # Unlike a benchmark's child it leaves its store behind.
    cold = subprocess.run(
        [sys.executable, "-m", "benchmarks.ours.initialize", str(store), str(tasks)],
        check=True,
        capture_output=True,
        text=True,
    )
    warm = asyncio.run(initialize(store, tasks))
    return {
        "tasks": float(tasks),
        "cold_s": float(cold.stdout),
        "warm_s": warm,
        "store_mb": os.path.getsize(store) / 1e6,
    }


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


if __name__ == "__main__":
    print(asyncio.run(initialize(Path(sys.argv[1]), int(sys.argv[2]))))
