"""One due task among N: how long after the boundary it starts, and what such a minute costs."""

import asyncio
import time
from pathlib import Path
from statistics import median

import duly
from benchmarks import witness, workload
from benchmarks.clocks import clock_for
from benchmarks.noting_store import NotingStore

LEAD_SECONDS = 0.2


async def measure(folder: Path, tasks: int, minutes: int = 10, *, system_clock: bool = False) -> dict[str, float]:
    """Watch one task that is due each minute, for some minutes, among tasks that sleep."""
    clock = clock_for(system=system_clock)
    store = NotingStore(folder / "store.db")
    scheduler = duly.Scheduler(store, clock=clock)
    await clock.make_room(workload.room_seconds(tasks))
    registrations = workload.tasks(tasks - 1, workload.dormant(clock.due_minute()), witness.callback)
    registrations.append(("due", "* * * * *", witness.callback, workload.RETRY_DELAY))
    first = witness.expect(1)  # a new task runs at once if its expression matches this very minute
    await scheduler.initialize(registrations)
    await first.wait()
    late: list[float] = []
    used: list[float] = []
    for _ in range(minutes):
        durable = store.expect(2)
        started = witness.expect(1)
        boundary = clock.leap_to_boundary(LEAD_SECONDS)
        await asyncio.sleep(0)  # what the leap itself costs is not the minute's
        before = time.process_time()
        await started.wait()
        await durable.wait()
        used.append(time.process_time() - before)
        late.append(witness.last - boundary)
    await scheduler.stop()
    return {
        "tasks": float(tasks),
        "late_ms": 1000 * median(late),
        "late_max_ms": 1000 * max(late),
        "cpu_ms_a_minute": 1000 * median(used),
    }
