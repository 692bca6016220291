"""The cost of a run on the event loop's thread beyond a bare `create_task`, in the same process."""

import asyncio
import gc
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import duly
from benchmarks import witness
from benchmarks.clocks import LeapingClock
from benchmarks.noting_store import NotingStore
from benchmarks.ours.tick import LEAD_SECONDS, initialize
from benchmarks.watching import Processor

CHUNK = 5_000  # as many callbacks as the scheduler starts with one commit


async def measure(folder: Path, tasks: int, *, collector: bool = True) -> dict[str, float]:
    """The bare tasks before and after the scheduler's, because a heap that has grown makes all of them slower.

    `collector=False` switches the garbage collector off, which leaves the work itself.
    """
    clock = LeapingClock()
    store = NotingStore(folder / "store.db")
    scheduler = duly.Scheduler(store, clock=clock)
    due, registrations = await initialize(scheduler, clock, tasks, "distinct", witness.callback)
    if not collector:
        gc.disable()
    before = await _bare(tasks)
    started, durable = witness.expect(tasks), store.expect(2 * tasks)
    clock.leap_to(due, LEAD_SECONDS)
    processor = Processor()
    await started.wait()
    await durable.wait()
    await asyncio.sleep(LEAD_SECONDS)  # durable ends are still being settled
    loop, others = processor.figures()
    witness.check(tasks)
    after = await _bare(tasks)
    await scheduler.stop()
    assert len(registrations) == tasks
    bare = (before + after) / 2
    return {
        "tasks": float(tasks),
        "loop_us_a_run": 1e6 * loop / tasks,
        "bare_us_a_task": 1e6 * bare / tasks,
        "overhead_us_a_run": 1e6 * (loop - bare) / tasks,
        "writer_us_a_run": 1e6 * others / tasks,
    }


async def _bare(tasks: int) -> float:
    """Processor time of `tasks` bare asyncio tasks with the same callback, in seconds."""
    witness.expect(tasks)
    loop = asyncio.get_running_loop()
    begun = time.thread_time()
    for first in range(0, tasks, CHUNK):
        calls: list[Coroutine[Any, Any, None]] = [witness.callback() for _ in range(min(CHUNK, tasks - first))]
        alive = [loop.create_task(call) for call in calls]
        await alive[-1]
        await asyncio.sleep(0)
    used = time.thread_time() - begun
    witness.check(tasks)
    return used
