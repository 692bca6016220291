"""Many runs in one life, and what the process has in use every so often: it must not grow (SPEC 5, bounded history).

Run as a module: `python -m tests.system.load_growth STORE RUNS SAMPLES SECONDS`. Tasks on the loop and in threads, some
of them failing, on a clock so fast that there is always something due; one line of JSON per sample.
"""

import asyncio
import dataclasses
import gc
import itertools
import json
import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import duly
from tests.system.clocks import AcceleratedClock

HISTORY: Final = 2_000
TASKS_ON_LOOP, TASKS_IN_THREADS, FAILING = 900, 50, 50
NOON: Final = 1_748_865_600_000_000


@dataclasses.dataclass(frozen=True)
class Sample:
    """The resources of the process after a number of runs."""

    runs: int
    resident_bytes: int
    objects: int
    threads: int
    descriptors: int
    store_bytes: int
    log_bytes: int
    run_rows: int


def _sample(store: Path, runs: int, rows: int) -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if sys.platform == "linux" else 0
    log = Path(f"{store}-wal")
    return Sample(
        runs=runs,
        resident_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
        objects=len(gc.get_objects()),
        threads=threading.active_count(),
        descriptors=len(os.listdir("/dev/fd")),
        store_bytes=store.stat().st_size,
        log_bytes=log.stat().st_size if log.exists() else 0,
        run_rows=rows,
    )


def _rows(store: Path) -> int:
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])
    finally:
        connection.close()


async def live(store: Path, runs: int, samples: int, seconds: float, tell: Callable[[Sample], None]) -> None:
    """Run tasks until there were `runs`, with `samples` on the way; then go on until `seconds` have passed as well."""
    until = time.monotonic() + seconds
    done = 0
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()
    target = 0

    def count() -> None:
        nonlocal done
        done += 1
        if done >= target:
            reached.set()

    async def quick() -> None:
        count()

    async def fails() -> None:
        count()
        raise ValueError("as it was told")

    def in_a_thread() -> None:
        loop.call_soon_threadsafe(count)

    clock = AcceleratedClock(NOON, 3600)
    scheduler = duly.Scheduler(store, clock=clock, history=HISTORY)
    kinds: list[tuple[int, str, Any]] = [
        (TASKS_ON_LOOP, "quick", quick),
        (TASKS_IN_THREADS, "thread", in_a_thread),
        (FAILING, "fails", fails),
    ]
    await scheduler.initialize(
        [
            (f"{kind} {number}", "* * * * *", callback, timedelta(minutes=7))
            for many, kind, callback in kinds
            for number in range(many)
        ]
    )
    for number in itertools.count(1):
        if number > samples and time.monotonic() > until:
            break
        target = runs * number // samples
        reached.clear()
        if done < target:
            await reached.wait()
        tell(_sample(store, done, _rows(store)))
    clock.slow_down()
    await scheduler.stop()


PANELS: Final = (
    ("resident_bytes", "resident memory, MB", 1e6),
    ("objects", "objects, thousands", 1e3),
    ("threads", "threads", 1),
    ("descriptors", "file handles", 1),
    ("store_bytes", "store, MB", 1e6),
    ("log_bytes", "write-ahead log, MB", 1e6),
)


def plot(samples: Sequence[Sample]) -> str:
    """The samples as an SVG picture: one panel for each thing that must not grow."""
    width, height, left, top = 300, 120, 50, 30
    last = max(sample.runs for sample in samples)
    parts = []
    for index, (name, title, unit) in enumerate(PANELS):
        x0, y0 = left + (index % 2) * (width + 90), top + (index // 2) * (height + 70)
        values = [getattr(sample, name) / unit for sample in samples]
        highest = max(*values, 1e-9) * 1.15
        points = " ".join(
            f"{x0 + width * sample.runs / last:.1f},{y0 + height - height * value / highest:.1f}"
            for sample, value in zip(samples, values, strict=True)
        )
        parts += [
            f'<text x="{x0}" y="{y0 - 8}">{title}: {values[0]:.4g} to {values[-1]:.4g}</text>',
            f'<path d="M{x0},{y0} v{height} h{width}" fill="none" stroke="#999"/>',
            f'<polyline points="{points}" fill="none" stroke="#06c" stroke-width="1.5"/>',
            f'<text x="{x0 - 6}" y="{y0 + 5}" text-anchor="end">{highest:.3g}</text>',
            f'<text x="{x0 + width}" y="{y0 + height + 16}" text-anchor="end">{last:,} runs</text>',
        ]
    size = f'width="{2 * (width + 90)}" height="{3 * (height + 70) + 10}"'
    style = 'font-family="sans-serif" font-size="12" fill="#333"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<g {style}>\n{body}\n</g>\n</svg>\n'


def main() -> None:
    """Live, and print the samples."""
    store, runs, samples, seconds = sys.argv[1:]
    logging.getLogger("duly").setLevel(logging.CRITICAL + 1)  # failures are the test's own

    def tell(sample: Sample) -> None:
        print(json.dumps(dataclasses.asdict(sample)), flush=True)

    asyncio.run(live(Path(store), int(runs), int(samples), float(seconds), tell))


if __name__ == "__main__":
    main()
