"""One due task among N: how long after the boundary it starts, and what such a minute costs."""

import asyncio
import contextlib
import math
import sqlite3
import time
from datetime import datetime
from pathlib import Path
from statistics import median

import duly
from benchmarks import witness, workload
from benchmarks.clocks import clock_for
from benchmarks.noting_store import NotingStore
from benchmarks.read_side import make_store
from benchmarks.watching import percentile

LEAD_SECONDS = 0.2
AWAY_SECONDS = 5.0
"""A process that has other work than this one's must leave this much time round the boundary free."""

READY = "ready"
"""The file that appears in the folder when the tasks are declared."""


async def measure(
    folder: Path,
    tasks: int,
    minutes: int = 10,
    *,
    history: int = 0,
    system_clock: bool = False,
    ahead_seconds: float = 0.0,
    warm_up: int = 0,
) -> dict[str, float]:
    """Watch one task that is due each minute, for some minutes, among tasks that sleep.

    With `history` the store has as many run records from the beginning, and keeps as many. `ahead_seconds` shifts the
    minutes against those of another process; the first `warm_up` of them are not counted.
    """
    clock = clock_for(system=system_clock)
    clock.leap(round(ahead_seconds * 1_000_000))
    path = folder / "store.db"
    registrations = _others(path, tasks, history, clock.due_minute())
    registrations.append(("due", "* * * * *", witness.callback, workload.RETRY_DELAY))
    store = NotingStore(path)
    scheduler = duly.Scheduler(store, clock=clock, history=history or 100_000)
    await clock.make_room(workload.room_seconds(tasks))
    first = witness.expect(1)  # a new task runs at once if its expression matches this very minute
    await scheduler.initialize(registrations)
    await first.wait()
    (folder / READY).touch()
    late: list[float] = []
    used: list[float] = []
    between: list[float] = []
    for number in range(warm_up + minutes):
        durable = store.expect(2)
        started = witness.expect(1)
        boundary = clock.leap_to_boundary(LEAD_SECONDS)
        if system_clock:
            await asyncio.sleep(max(0.0, boundary - AWAY_SECONDS - time.perf_counter()))
            if between:
                between[-1] = time.process_time() - between[-1]
        await asyncio.sleep(0)  # what the leap itself costs is not the minute's
        before = time.process_time()
        await started.wait()
        await durable.wait()
        if number >= warm_up:
            used.append(time.process_time() - before)
            late.append(witness.last - boundary)
        if system_clock:
            await asyncio.sleep(boundary + AWAY_SECONDS - time.perf_counter())
            between.append(time.process_time())
    await scheduler.stop()
    _check_that_they_were_known(path, len(registrations))
    return {
        "tasks": float(tasks),
        "minutes": float(minutes),
        "history": float(history),
        "late_ms": 1000 * median(late),
        "late_p999_ms": 1000 * percentile(late, 99.9),
        "late_max_ms": 1000 * max(late),
        "cpu_ms_a_minute": 1000 * median(used),
        # The last one has no end.
        "between_cpu_ms": 1000 * max(between[:-1], default=0.0),
    }


def _others(path: Path, tasks: int, history: int, due: datetime) -> list[workload.Registration]:
    """The tasks that sleep; if there shall be a history, the store exists and knows them."""
    expressions = workload.dormant(due)
    if not history:
        return workload.tasks(tasks - 1, expressions, witness.callback)
    some = expressions[: math.gcd(tasks, 1_000)]  # each of them for as many tasks, as the store is made
    make_store(path, tasks, history, some)
    return workload.tasks(tasks, some, witness.callback)


def _check_that_they_were_known(path: Path, tasks: int) -> None:
    """A store whose tasks were declared anew would have no history of theirs."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (generation,) = connection.execute("SELECT max(generation) FROM tasks").fetchone()
    if generation != tasks:
        raise RuntimeError(f"{tasks} declarations were expected in the store, there are {generation}")
