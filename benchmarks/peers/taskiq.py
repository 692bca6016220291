"""taskiq: its scheduler loop with label schedules, and an in-memory broker that runs the coroutines.

It checks once per second and sends what matches the present minute, so tasks for this very minute are sent at its first
check, without waiting for the next minute. Measured: processor time (which is what the comparison uses) and seconds
from that check to the start of the last coroutine.
"""

import asyncio
import contextlib
import math
import time
from datetime import UTC, datetime
from pathlib import Path

from taskiq import InMemoryBroker, TaskiqScheduler
from taskiq.cli.scheduler.run import SchedulerLoop
from taskiq.schedule_sources import LabelScheduleSource

from benchmarks import witness
from benchmarks.peers.common import figures

ROOM_SECONDS = 5


async def measure(folder: Path, tasks: int) -> dict[str, float]:
    """One task with a schedule for each; the loop is the one that `taskiq scheduler` runs."""
    broker = InMemoryBroker(max_async_tasks=tasks)
    # A set-up that takes long may end in another minute, so it is made for the one that will be.
    begun = time.perf_counter()
    now = datetime.now(UTC)
    if now.second > 60 - ROOM_SECONDS - tasks / 5_000:
        await asyncio.sleep(60 - now.second)
    now = datetime.now(UTC)
    cron = f"{now.minute} {now.hour} * * *"
    for index in range(tasks):
        broker.register_task(
            witness.callback, task_name=f"task-{index}", schedule=[{"cron": cron, "schedule_id": f"{index}"}]
        )
    scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])
    for source in scheduler.sources:
        await source.startup()
    await scheduler.startup()
    took = time.perf_counter() - begun
    started = witness.expect(tasks)
    look = math.ceil(time.time())
    look_at = time.perf_counter() + look - time.time()
    used = time.process_time()
    loop = asyncio.get_running_loop().create_task(SchedulerLoop(scheduler).run())
    await started.wait()
    used = time.process_time() - used
    loop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loop
    await scheduler.shutdown()
    witness.check(tasks)
    return figures(tasks, look_at, initialize_s=took, cpu_until_last_start_s=used)
