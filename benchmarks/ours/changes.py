"""A re-initialisation that overrides many of N tasks while the scheduler runs."""

import time
from pathlib import Path

import duly
from benchmarks import witness, workload
from benchmarks.clocks import LeapingClock
from benchmarks.watching import Canary, collector_pauses


async def measure(folder: Path, tasks: int, changed: int) -> dict[str, float]:
    """Give `changed` of them another expression, in one call; then make the same call again, which changes nothing."""
    clock = LeapingClock()
    await clock.make_room(58)
    expressions = workload.dormant(clock.due_minute())
    registrations = workload.tasks(tasks, expressions, witness.callback)
    scheduler = duly.Scheduler(folder / "store.db", clock=clock)
    await scheduler.initialize(registrations)
    every = max(1, tasks // changed)
    for index in range(0, every * changed, every):
        name, _, callback, delay = registrations[index]
        registrations[index] = name, expressions[(index + 1) % len(expressions)], callback, delay
    with collector_pauses() as pauses:
        canary = Canary()
        begun = time.perf_counter()
        await scheduler.initialize(registrations)
        took = time.perf_counter() - begun
        await canary.hush()
    again = time.perf_counter()
    await scheduler.initialize(registrations)
    again = time.perf_counter() - again
    await scheduler.stop()
    return {
        "tasks": float(tasks),
        "changed": float(changed),
        "reinitialize_s": took,
        "unchanged_s": again,
        **canary.figures(pauses, "reinitialize"),
    }
