"""The memory of a declared task beyond its registration, and what a million runs leave behind."""

import asyncio
import gc
import os
import tracemalloc
from pathlib import Path

import duly
from benchmarks import witness, workload
from benchmarks.clocks import LeapingClock
from benchmarks.noting_store import NotingStore
from benchmarks.watching import resident_bytes

LEAD_SECONDS = 0.05
REST_SECONDS = 0.5
SETTLING_SECONDS = 0.000_05
"""For each task, generously: tracing makes everything slower."""

WARM_UP_RUNS = 120_000
"""The store keeps 100,000 run records: growth begins to count when it is full."""


async def measure(folder: Path, tasks: int, runs: int = 0, *, warm_up_runs: int = WARM_UP_RUNS) -> dict[str, float]:
    """Bytes per task with all declared; or, given `runs`, bytes that these left behind."""
    return await (_growth(folder, tasks, runs, warm_up_runs) if runs else _held(folder, tasks))


async def _held(folder: Path, tasks: int) -> dict[str, float]:
    clock = LeapingClock()
    await clock.make_room(50)  # tracing makes everything slower
    registrations = workload.tasks(tasks, workload.spread(clock.due_minute()), witness.callback)
    scheduler = duly.Scheduler(folder / "store.db", clock=clock)
    gc.collect()
    resident = resident_bytes()
    tracemalloc.start()
    await scheduler.initialize(registrations)
    gc.collect()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    resident = resident_bytes() - resident
    await scheduler.stop()
    assert len(registrations) == tasks
    return {
        "tasks": float(tasks),
        "bytes_a_task": held / tasks,
        "peak_bytes_a_task": peak / tasks,
        "resident_bytes_a_task": resident / tasks,  # with what the allocator keeps, and the tracer's own
    }


async def _growth(folder: Path, tasks: int, runs: int, warm_up_runs: int) -> dict[str, float]:
    clock = LeapingClock()
    store = NotingStore(folder / "store.db")
    scheduler = duly.Scheduler(store, clock=clock)
    registrations = workload.tasks(tasks, ["* * * * *"], witness.callback)
    started = witness.expect(tasks)
    await clock.make_room(workload.room_seconds(tasks))
    await scheduler.initialize(registrations)
    await started.wait()
    tracemalloc.start()
    # Traced from here on: states that tasks share at first drift apart with their runs, up to one for each task. That
    # is bounded by the tasks, so it belongs to what is held, not to what runs leave behind.
    await _tick_on(clock, store, tasks, warm_up_runs)
    before, resident, size = await _at_rest(store)
    await _tick_on(clock, store, tasks, runs)
    after, resident_after, size_after = await _at_rest(store)
    tracemalloc.stop()
    await scheduler.stop()
    return {
        "tasks": float(tasks),
        "runs": float(runs),
        "grown_kb": (after - before) / 1000,
        "resident_grown_kb": (resident_after - resident) / 1000,  # with what the allocator keeps, and the tracer's own
        "store_grown_kb": (size_after - size) / 1000,
    }


async def _tick_on(clock: LeapingClock, store: NotingStore, tasks: int, runs: int) -> None:
    for _ in range(-(-runs // tasks)):
        started, durable = witness.expect(tasks), store.expect(2 * tasks)
        clock.leap_to_boundary(LEAD_SECONDS)
        await started.wait()
        await durable.wait()
        # Durable ends are still being settled: a next minute that came now would find its tasks running.
        await asyncio.sleep(LEAD_SECONDS + tasks * SETTLING_SECONDS)
        witness.check(tasks)


async def _at_rest(store: NotingStore) -> tuple[int, int, int]:
    await asyncio.sleep(REST_SECONDS)  # the last ends are still being settled
    return _sizes(store)


def _sizes(store: NotingStore) -> tuple[int, int, int]:
    gc.collect()
    return tracemalloc.get_traced_memory()[0], resident_bytes(), os.path.getsize(store.path)
