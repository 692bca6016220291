"""All N tasks due in one minute: when the first and the last callback began, and when all ends were durable."""

import gc
import inspect
import logging
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import duly
from benchmarks import witness, workload
from benchmarks.clocks import LeapingClock, clock_for
from benchmarks.noting_store import NotingStore
from benchmarks.watching import Processor, collector_pauses
from duly.events import Event

LEAD_SECONDS = 0.3
"""How long before the boundary everything is in place."""


async def measure(
    folder: Path,
    tasks: int,
    expressions: str = "distinct",
    *,
    system_clock: bool = False,
    blocking: bool = False,
    freeze: bool = False,
    listen: bool = False,
    log: bool = False,
    lead_seconds: float = LEAD_SECONDS,
    **options: Any,
) -> dict[str, float] | None:
    """Initialize, wait for the boundary, and see every task through to its durable end.

    `freeze` calls gc.freeze() after initialize(), as `duly run` does; `listen` gives an on_event; `log` writes INFO to
    a file; `lead_seconds` is the real time that passes before the boundary. Any other option goes to the scheduler.
    """
    if not options.keys() <= inspect.signature(duly.Scheduler).parameters.keys():
        return None
    heard = 0

    def hear(event: Event) -> None:
        nonlocal heard
        heard += 1

    if listen:
        options["on_event"] = hear
    if log:
        write_log_to(folder / "duly.log", logging.INFO)
    clock = clock_for(system=system_clock)
    store = NotingStore(folder / "store.db")
    scheduler = duly.Scheduler(store, clock=clock, **options)
    callback = witness.blocking_callback if blocking else witness.callback
    minute, registrations = await initialize(scheduler, clock, tasks, expressions, callback)
    if freeze:
        gc.collect()
        gc.freeze()
    started = witness.expect(tasks)
    durable = store.expect(2 * tasks)
    with collector_pauses() as pauses:
        due = clock.leap_to(minute, lead_seconds)
        processor = Processor()
        await started.wait()
        loop_until_last, others_until_last = processor.figures()
        await durable.wait()
        loop_cpu, other_cpu = processor.figures()
    wal = wal_bytes(store)
    stopping = time.perf_counter()
    await scheduler.stop()
    stopped = time.perf_counter() - stopping
    witness.check(tasks)
    assert witness.first is not None
    assert len(registrations) == tasks
    return {
        "tasks": float(tasks),
        "first_start_s": witness.first - due,
        "last_start_s": witness.last - due,
        "ends_durable_s": max(0.0, store.durable_at - witness.last),
        "cpu_until_last_start_s": loop_until_last + others_until_last,
        "cpu_us_a_run": 1e6 * (loop_until_last + others_until_last) / tasks,
        "loop_cpu_s": loop_cpu,
        "writer_cpu_s": other_cpu,
        "commits": float(store.commits),
        "wal_mb": wal / 1e6,
        "stop_s": stopped,
        "collector_longest_ms": 1000 * pauses.longest,
        "collector_total_s": pauses.total,
        "events": float(heard),
    }


async def initialize(
    scheduler: duly.Scheduler, clock: LeapingClock, tasks: int, expressions: str, callback: workload.Callback
) -> tuple[datetime, list[workload.Registration]]:
    """Declare tasks that are all due in one minute; returns which, and keeps hold of them as a caller would."""
    await clock.make_room(workload.room_seconds(tasks))
    due = clock.due_minute()
    registrations = workload.tasks(tasks, workload.SETS[expressions](due), callback)
    await scheduler.initialize(registrations)
    return due, registrations


def wal_bytes(store: NotingStore) -> int:
    """How large the write-ahead log has become."""
    return os.path.getsize(f"{store.path}-wal")


def write_log_to(path: Path, level: int) -> None:
    """Log to a file, one line per record, as an application would."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.getLogger("duly").addHandler(handler)
    logging.getLogger("duly").setLevel(level)
