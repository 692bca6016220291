"""Watchers beside a measurement: collector pauses, the event loop's latency, processor time."""

import asyncio
import contextlib
import gc
import math
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal


class Pauses:
    """The pauses of the garbage collector, each with its begin and end."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []
        self._begun = 0.0

    def __call__(self, phase: Literal["start", "stop"], info: dict[str, Any]) -> None:
        """As gc.callbacks has it."""
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self.spans.append((self._begun, time.perf_counter()))

    @property
    def longest(self) -> float:
        """The longest pause, in seconds."""
        return max((end - begin for begin, end in self.spans), default=0.0)

    @property
    def total(self) -> float:
        """All pauses together, in seconds."""
        return sum((end - begin for begin, end in self.spans), 0.0)

    def within(self, begin: float, end: float) -> float:
        """How much of a stretch of time was paused, in seconds."""
        return sum((max(0.0, min(end, stop) - max(begin, start)) for start, stop in self.spans), 0.0)


@contextlib.contextmanager
def collector_pauses() -> Iterator[Pauses]:
    """Record the pauses while inside the block."""
    pauses = Pauses()
    gc.callbacks.append(pauses)
    try:
        yield pauses
    finally:
        gc.callbacks.remove(pauses)


class Canary:
    """A task that should run every few milliseconds, and notes how late it ran."""

    PERIOD_SECONDS = 0.002

    def __init__(self) -> None:
        self.waits: list[tuple[float, float, float]] = []
        """When it should have run, when it did, and for how long the thread waited for a processor meanwhile."""
        self._queue = RunQueue()
        self._task = asyncio.get_running_loop().create_task(self._sing())

    async def _sing(self) -> None:
        while True:
            should, queued = time.perf_counter() + self.PERIOD_SECONDS, self._queue.seconds()
            await asyncio.sleep(self.PERIOD_SECONDS)
            self.waits.append((should, time.perf_counter(), self._queue.seconds() - queued))

    async def hush(self) -> None:
        """End it."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._queue.close()

    def figures(self, pauses: Pauses, name: str) -> dict[str, float]:
        """Its worst waits, in milliseconds: as they were, without the collector's share, and without the system's."""
        late = [1000 * (did - should) for should, did, _ in self.waits]
        blocked = [1000 * (did - should - pauses.within(should, did)) for should, did, _ in self.waits]
        running = [wait - 1000 * queued for wait, (_, _, queued) in zip(blocked, self.waits, strict=True)]
        return {
            f"{name}_blocked_max_ms": max(blocked, default=0.0),
            f"{name}_running_max_ms": max(0.0, *running) if running else 0.0,
            f"{name}_late_max_ms": max(late, default=0.0),
            f"{name}_late_median_ms": median(late) if late else 0.0,
            f"{name}_over_20_ms": float(sum(wait > 20 for wait in blocked)),
        }


class RunQueue:
    """For how long this thread was ready to run while the system gave its processor to others."""

    def __init__(self) -> None:
        try:
            self._file: int | None = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = None  # not Linux

    def seconds(self) -> float:
        """Since the thread began; 0 where the system does not say it."""
        return 0.0 if self._file is None else int(os.pread(self._file, 100, 0).split()[1]) / 1e9

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Processor:
    """Processor time of the event loop's thread and of all others, from here on."""

    def __init__(self) -> None:
        self._loop, self._all = time.thread_time(), time.process_time()

    def figures(self) -> tuple[float, float]:
        """Seconds of this thread, and of all the others."""
        loop, everything = time.thread_time() - self._loop, time.process_time() - self._all
        return loop, max(0.0, everything - loop)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that this share of all values does not exceed.

    It is a value that was measured; of fewer than a thousand values, 99.9 is the largest.
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(round(percent * len(ordered) / 100, 6)) - 1)]


def resident_bytes() -> int:
    """How much memory this process occupies."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    return 1024 * int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
