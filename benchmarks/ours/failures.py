"""N due tasks of which one in a hundred fails and is tried again after delays of one to three seconds."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from statistics import median

import duly
from benchmarks import witness, workload
from benchmarks.clocks import LeapingClock
from benchmarks.ours.tick import LEAD_SECONDS, write_log_to

ONE_IN = 100
DELAYS_SECONDS = (1.0, 1.2, 1.5, 2.0, 3.0)


async def measure(folder: Path, tasks: int) -> dict[str, float]:
    """All are due at once; each failing one fails once. Failures are logged to a file, with their tracebacks."""
    write_log_to(folder / "duly.log", 30)
    failing = max(1, tasks // ONE_IN)
    failed_at: dict[int, float] = {}
    lateness: list[float] = []
    over = asyncio.Event()

    def failing_task(index: int, expression: str) -> workload.Registration:
        delay = DELAYS_SECONDS[index % len(DELAYS_SECONDS)]

        async def fail_once() -> None:
            await witness.callback()
            if index not in failed_at:
                failed_at[index] = time.perf_counter()
                raise ConnectionError("the upstream service is asleep")
            lateness.append(time.perf_counter() - failed_at[index] - delay)
            if len(lateness) == failing:
                over.set()

        return f"failing-{index}", expression, fail_once, timedelta(seconds=delay)

    clock = LeapingClock()
    due = clock.due_minute()
    expressions = workload.distinct(due)
    registrations = workload.tasks(tasks - failing, expressions, witness.callback)
    registrations += [failing_task(index, expressions[index % len(expressions)]) for index in range(failing)]
    scheduler = duly.Scheduler(folder / "store.db", clock=clock)
    await scheduler.initialize(registrations)
    started = witness.expect(tasks)
    boundary = clock.leap_to(due, LEAD_SECONDS)
    await started.wait()
    last_start = witness.last - boundary
    await over.wait()
    ended = time.perf_counter() - boundary
    await scheduler.stop()
    witness.check(tasks + failing)
    return {
        "tasks": float(tasks),
        "failures": float(failing),
        "last_start_s": last_start,
        "retry_late_ms": 1000 * median(lateness),
        "retry_late_max_ms": 1000 * max(lateness),
        "last_retry_s": ended,
    }
