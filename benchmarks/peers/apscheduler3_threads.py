"""APScheduler 3 with plain functions: BackgroundScheduler, a thread pool of a given size, its job store in memory.

Its pool is the executor that its documentation names for functions that block. Without `misfire_grace_time=None` it
drops what it cannot start within a second of its time. Measured: from the due second to the start of the last function.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

from benchmarks import witness
from benchmarks.peers.common import tick


async def measure(folder: Path, tasks: int, threads: int, patience_s: float = 900) -> dict[str, float]:
    """With a pool of `threads` threads; nothing is on disk."""

    async def set_up(jobs: int, due: datetime) -> Callable[[], Awaitable[None]]:
        scheduler = BackgroundScheduler(
            jobstores={"default": MemoryJobStore()},
            executors={"default": ThreadPoolExecutor(threads)},
            job_defaults={"misfire_grace_time": None, "coalesce": True},
        )
        scheduler.start()
        for index in range(jobs):
            trigger = CronTrigger(hour=due.hour, minute=due.minute, second=due.second)
            scheduler.add_job(witness.blocking_callback, trigger, id=f"task-{index}")

        async def stop() -> None:
            scheduler.shutdown(wait=True)

        return stop

    return await tick(set_up, tasks, patience_s=patience_s)
