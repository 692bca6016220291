"""arq: the scan of a worker's cron jobs, with a stand-in for Redis that takes every job at once.

Measured: one `run_cron()` at whose moment every job is due, which hands all of them to the queue and computes when each
comes next. Neither the queue nor the callbacks are counted.
"""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from arq import cron
from arq.worker import Worker

from benchmarks import witness


class Queue:
    """Takes every job at once."""

    def __init__(self) -> None:
        self.jobs = 0

    async def enqueue_job(self, name: str, **options: Any) -> None:
        """Count it."""
        self.jobs += 1


async def callback(context: dict[Any, Any]) -> None:
    """arq's callbacks take a context."""
    await witness.callback()


async def measure(folder: Path, tasks: int) -> dict[str, float]:
    """Daily jobs; the moments are arguments, so nothing has to be waited for."""
    due = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=2)
    queue = Queue()
    begun = time.perf_counter()
    worker = Worker(
        cron_jobs=[cron(callback, name=f"task-{i}", hour=due.hour, minute=due.minute) for i in range(tasks)],
        redis_pool=queue,  # type: ignore[arg-type, unused-ignore]
        handle_signals=False,
        timezone=UTC,  # type: ignore[arg-type, unused-ignore]
    )
    await worker.run_cron(due - timedelta(seconds=30), 0.5)  # the first scan computes when each job comes
    took = time.perf_counter() - begun
    if queue.jobs:
        raise RuntimeError("jobs were due before their time")
    used, scanned_at = time.process_time(), time.perf_counter()
    await worker.run_cron(due, 0.5)
    scan = time.perf_counter() - scanned_at
    if queue.jobs != tasks:
        raise RuntimeError(f"{tasks} jobs were due, {queue.jobs} were queued")
    return {
        "tasks": float(tasks),
        "initialize_s": took,
        "last_start_s": scan,
        "cpu_until_last_start_s": time.process_time() - used,
    }
