"""N tasks that are due every minute, for some minutes: lateness, processor time, the size of the files, checkpoints."""

import asyncio
import os
import time
from array import array
from itertools import pairwise
from pathlib import Path
from statistics import median

import duly
from benchmarks import workload
from benchmarks.clocks import LeapingClock, clock_for
from benchmarks.noting_store import NotingStore
from benchmarks.watching import percentile

LEAD_SECONDS = 0.3
SETTLING_SECONDS = 0.000_02
"""For each task, generously: durable ends are still being settled."""

BEGIN_SECOND = 38
"""The second of the minute in which the tasks are declared, so that they are at rest when the next one begins."""

QUIET_SECONDS = 20, 40
"""The part of a minute in which this process should have nothing to do: another one may use it."""


class TimedStore(NotingStore):
    """Notes how long each commit took, and whether it folded the WAL into the database."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.plain: list[float] = []
        self.folding: list[float] = []
        self._folded_at = 0

    def note_commit(self, seconds: float) -> None:
        """With a WAL, nothing but a checkpoint writes to the database itself."""
        written_at = os.stat(self.path).st_mtime_ns
        (self.plain if written_at == self._folded_at else self.folding).append(seconds)
        self._folded_at = written_at


class Starts:
    """The callback of every task, and the moments at which it was called."""

    def __init__(self) -> None:
        self.moments = array("d")
        self._expected = 0
        self._complete = asyncio.Event()

    def expect(self, calls: int) -> asyncio.Event:
        """Forget the moments; the event is set by the last of `calls`."""
        self.moments = array("d")
        self._expected, self._complete = calls, asyncio.Event()
        return self._complete

    async def callback(self) -> None:
        """Note the moment."""
        self.moments.append(time.perf_counter())
        if len(self.moments) == self._expected:
            self._complete.set()


async def measure(folder: Path, tasks: int, minutes: int, *, system_clock: bool = False) -> dict[str, float]:
    """Declare the tasks, which run at once for the first time, and watch some minutes."""
    clock = clock_for(system=system_clock)
    store = TimedStore(folder / "store.db")
    scheduler = duly.Scheduler(store, clock=clock)
    starts = Starts()
    registrations = workload.tasks(tasks, ["* * * * *"], starts.callback)
    if system_clock:
        await asyncio.sleep((BEGIN_SECOND - time.time()) % 60)
    else:
        await clock.make_room(30)
    started, durable = starts.expect(tasks), store.expect(2 * tasks)
    await scheduler.initialize(registrations)
    await started.wait()
    await durable.wait()
    await asyncio.sleep(LEAD_SECONDS + tasks * SETTLING_SECONDS)
    watched = _Watched()
    store.plain.clear()
    store.folding.clear()
    used, begun = time.process_time(), time.perf_counter()
    for _ in range(minutes):
        await _watch_a_minute(clock, store, starts, tasks, watched, real=system_clock)
    used = time.process_time() - used
    lasted = time.perf_counter() - begun if system_clock else 60.0 * minutes
    await scheduler.stop()
    late = [moment - boundary for boundary, moments in watched.bursts for moment in moments]
    gaps = [after - before for _, moments in watched.bursts for before, after in pairwise(moments)]
    return {
        "tasks": float(tasks),
        "minutes": float(minutes),
        "late_p50_ms": 1000 * percentile(late, 50),
        "late_p99_ms": 1000 * percentile(late, 99),
        "late_p999_ms": 1000 * percentile(late, 99.9),
        "late_max_ms": 1000 * max(late),
        "first_start_ms": 1000 * median(moments[0] - boundary for boundary, moments in watched.bursts),
        "gap_max_ms": 1000 * max(gaps, default=0.0),
        "ends_durable_s": max(watched.durable),
        "cpu_percent": 100 * used / lasted,
        "quiet_cpu_ms": 1000 * max(watched.quiet, default=0.0),
        "commits": float(len(store.plain) + len(store.folding)),
        "commit_median_ms": 1000 * median(store.plain) if store.plain else 0.0,
        "commit_max_ms": 1000 * max(store.plain, default=0.0),
        "checkpoints": float(len(store.folding)),
        "checkpoint_median_ms": 1000 * median(store.folding) if store.folding else 0.0,
        "checkpoint_max_ms": 1000 * max(store.folding, default=0.0),
        "file_max_mb": max(file for file, _ in watched.sizes),
        "wal_max_mb": max(wal for _, wal in watched.sizes),
        **{f"minute {number}: file_mb": file for number, (file, _) in enumerate(watched.sizes, 1)},
        **{f"minute {number}: wal_mb": wal for number, (_, wal) in enumerate(watched.sizes, 1)},
    }


class _Watched:
    """The notes, minute by minute."""

    def __init__(self) -> None:
        self.bursts: list[tuple[float, array[float]]] = []  # boundary, and the moment of each start
        self.durable: list[float] = []
        self.quiet: list[float] = []  # processor time in QUIET_SECONDS
        self.sizes: list[tuple[float, float]] = []


async def _watch_a_minute(
    clock: LeapingClock, store: TimedStore, starts: Starts, tasks: int, watched: _Watched, *, real: bool
) -> None:
    started, durable = starts.expect(tasks), store.expect(2 * tasks)
    boundary = clock.leap_to_boundary(LEAD_SECONDS)
    await started.wait()
    await durable.wait()
    watched.durable.append(store.durable_at - boundary)
    await asyncio.sleep(LEAD_SECONDS + tasks * SETTLING_SECONDS)
    if len(starts.moments) != tasks:
        raise RuntimeError(f"{tasks} starts were due, {len(starts.moments)} were seen")
    watched.bursts.append((boundary, starts.moments))
    watched.sizes.append(_sizes(store))
    if real:
        quiet_from, quiet_until = QUIET_SECONDS
        await asyncio.sleep(boundary + quiet_from - time.perf_counter())
        used = time.process_time()
        await asyncio.sleep(boundary + quiet_until - time.perf_counter())
        watched.quiet.append(time.process_time() - used)


def _sizes(store: TimedStore) -> tuple[float, float]:
    """The size of the database and of its WAL, in megabytes."""
    return os.path.getsize(store.path) / 1e6, os.path.getsize(f"{store.path}-wal") / 1e6
