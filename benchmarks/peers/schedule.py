"""schedule: `every().day.at(...)`, plain functions, nothing on disk.

Its documentation has a loop that calls `run_pending()` and sleeps for a second. Measured: one `run_pending()` that
finds everything due, until its last function starts; the second that the loop may have slept is not counted.
"""

import time
from datetime import datetime, timedelta
from pathlib import Path

import schedule

from benchmarks import witness
from benchmarks.peers.common import figures


async def measure(folder: Path, tasks: int) -> dict[str, float]:
    """Jobs for a second of the day that comes soon; then one `run_pending()` right after it."""
    scheduler = schedule.Scheduler()
    witness.expect(tasks)
    begun = time.perf_counter()
    lead = timedelta(seconds=2 + tasks / 10_000)
    due = (datetime.now() + lead).replace(microsecond=0)
    for _ in range(tasks):
        scheduler.every().day.at(due.strftime("%H:%M:%S")).do(witness.blocking_callback)
    took = time.perf_counter() - begun
    left = due.timestamp() - time.time()
    if left < 0:
        raise RuntimeError("the set-up took longer than expected")
    time.sleep(left + 0.01)  # noqa: ASYNC251 -- nothing else runs on this loop
    used, looked_at = time.process_time(), time.perf_counter()
    scheduler.run_pending()
    used = time.process_time() - used
    witness.check(tasks)
    return figures(tasks, looked_at, initialize_s=took, cpu_until_last_start_s=used)
