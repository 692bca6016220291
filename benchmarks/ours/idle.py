"""N tasks of which none is due: processor time, wake-ups and writes of a minute."""

import asyncio
import gc
import os
import resource
import time
from pathlib import Path

import duly
from benchmarks import witness, workload
from benchmarks.clocks import clock_for

SETTLE_SECONDS = 0.3


async def measure(folder: Path, tasks: int, minutes: int = 2, *, system_clock: bool = False) -> dict[str, float]:
    """Watch `minutes` boundaries go by.

    Between boundaries the scheduler sleeps, so with a clock that leaps, a minute costs what a whole one would.
    """
    clock = clock_for(system=system_clock)
    store = folder / "store.db"
    scheduler = duly.Scheduler(store, clock=clock)
    await clock.make_room(workload.room_seconds(tasks))
    registrations = workload.tasks(tasks, workload.dormant(clock.due_minute()), witness.callback)
    await scheduler.initialize(registrations)
    gc.collect()
    await asyncio.sleep(SETTLE_SECONDS)
    files = [store, Path(f"{store}-wal")]
    before = [_fingerprint(file) for file in files]
    used, switches, looks = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw, clock.looks
    for _ in range(minutes):
        boundary = clock.leap_to_boundary(SETTLE_SECONDS)
        await asyncio.sleep(boundary - time.perf_counter() + SETTLE_SECONDS)
    used = time.process_time() - used
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - switches
    looks = clock.looks - looks
    written = sum(was != _fingerprint(file) for was, file in zip(before, files, strict=True))
    await scheduler.stop()
    witness.check(0)
    return {
        "tasks": float(tasks),
        "minutes": float(minutes),
        "cpu_ms_a_minute": 1000 * used / minutes,
        "wake_ups_a_minute": looks / minutes,
        # One of these a minute is this measurement's own sleep.
        "context_switches_a_minute": switches / minutes,
        "files_written": float(written),
    }


def _fingerprint(file: Path) -> tuple[int, int, int]:
    """A value that changes with any write to the file; computing it does not count as an access."""
    status = os.stat(file)
    return status.st_ino, status.st_size, status.st_mtime_ns
