"""One burst: N tasks due in the same minute, from there to the end of stop(), in processor time.

`python -m benchmarks.burst N FOLDER` prints the seconds. Only public names of duly are used, and nothing here imports
duly but this module: `benchmarks.compare` runs it with one version on the path after another.
"""

import asyncio
import gc
import sys
import time
from pathlib import Path

import duly
from benchmarks import witness, workload
from benchmarks.clocks import LeapingClock

LEAD_SECONDS = 0.3


async def measure(folder: Path, tasks: int) -> float:
    """Declare, let the minute come, and stop; stop() returns when every end is durable."""
    clock = LeapingClock()
    scheduler = duly.Scheduler(folder / "store.db", clock=clock)
    await clock.make_room(workload.room_seconds(tasks))
    due = clock.due_minute()
    await scheduler.initialize(workload.tasks(tasks, workload.distinct(due), witness.callback))
    started = witness.expect(tasks)
    # A full collection would go through every declaration, and falls into one burst and not into the next by chance.
    gc.collect()
    gc.freeze()
    clock.leap_to(due, LEAD_SECONDS)
    begun = time.process_time()
    await started.wait()
    await scheduler.stop()
    used = time.process_time() - begun
    witness.check(tasks)
    return used


if __name__ == "__main__":
    print(asyncio.run(measure(Path(sys.argv[2]), int(sys.argv[1]))))
