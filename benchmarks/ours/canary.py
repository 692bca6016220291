"""How long other tasks wait for the event loop while N tasks are declared, and while all of them are due."""

import asyncio
import gc
from pathlib import Path

import duly
from benchmarks import witness, workload
from benchmarks.clocks import LeapingClock
from benchmarks.noting_store import NotingStore
from benchmarks.ours.tick import LEAD_SECONDS
from benchmarks.watching import Canary, collector_pauses

NOISE_SECONDS = 0.5


async def measure(folder: Path, tasks: int, *, freeze: bool = False) -> dict[str, float]:
    """A canary before (the machine's own noise), during initialize(), and during the tick.

    `freeze` calls gc.freeze() after initialize(), as `duly run` does.
    """
    clock = LeapingClock()
    store = NotingStore(folder / "store.db")
    scheduler = duly.Scheduler(store, clock=clock)
    due = clock.due_minute()
    registrations = workload.tasks(tasks, workload.distinct(due), witness.callback)
    with collector_pauses() as pauses:
        canary = Canary()
        await asyncio.sleep(NOISE_SECONDS)
        await canary.hush()
        figures = canary.figures(pauses, "noise")
    with collector_pauses() as pauses:
        canary = Canary()
        await scheduler.initialize(registrations)
        await canary.hush()
        figures |= canary.figures(pauses, "initialize") | {"initialize_collector_ms": 1000 * pauses.longest}
    if freeze:
        gc.collect()
        gc.freeze()
    started, durable = witness.expect(tasks), store.expect(2 * tasks)
    with collector_pauses() as pauses:
        canary = Canary()
        clock.leap_to(due, LEAD_SECONDS)
        await started.wait()
        await durable.wait()
        await asyncio.sleep(LEAD_SECONDS)
        await canary.hush()
        figures |= canary.figures(pauses, "tick") | {"tick_collector_ms": 1000 * pauses.longest}
    await scheduler.stop()
    witness.check(tasks)
    return {"tasks": float(tasks), **figures}
