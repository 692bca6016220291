"""How fast `duly verify` reads and judges a trace, from the bytes of a file to the verdict, on one core.

    python -m benchmarks.child ours.checker '{"events": 2000000}'

The trace is that of a busy scheduler: every task due in every minute, one run in a hundred fails and is tried again
half a minute later, a wake-up each minute. Processor time is measured, because it does not depend on
how busy the machine is otherwise. Memory is the growth of the process's peak from a trace of a tenth to the whole one.
"""

import resource
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from duly.core.moments import Delay, Instant
from duly.formal import BT, IE, IS, RE, RG, RS, WK, Event, Header, Report, Writer, check

BEGIN = 1_748_865_600_000_000
SECOND = 1_000_000
FAILING = 100  # one in this many
ROUNDS = 3


def measure(folder: Path, events: int = 2_000_000, tasks: int = 1_000) -> dict[str, float]:
    """Events per second for the safety properties, and for all: the best of some rounds."""
    short, long = folder / "short.jsonl", folder / "long.jsonl"
    write(short, events // 10, tasks)
    count = write(long, events, tasks)
    _judge(short, bounded=True)
    before = _peak_bytes()
    safety = _best(partial(_judge, long, bounded=False))
    everything = _best(partial(_judge, long, bounded=True))
    return {
        "events": float(count),
        "tasks": float(tasks),
        "bytes_an_event": long.stat().st_size / count,
        "safety_events_a_second": count / safety,
        "all_events_a_second": count / everything,
        "peak_growth_mib": (_peak_bytes() - before) / (1 << 20),
    }


def _judge(path: Path, *, bounded: bool) -> Report:
    with path.open("rb") as file:
        report = check(file, bounded=bounded)
    assert not report.violated
    assert report.sealed
    return report


def _best(judge: "partial[Report]") -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        judge()
        best = min(best, time.process_time() - begun)
    return best


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def write(path: Path, events: int, tasks: int) -> int:
    """Write a trace of at least `events` events; returns how many."""
    with path.open("wb") as file:
        writer = Writer(file.write, Header("a busy scheduler"))
        for event in _trace(events, tasks):
            writer.add(event)
        writer.seal(clean=False)
    return writer.count


def _trace(events: int, tasks: int) -> Iterator[Event]:
    begin = Instant(BEGIN - 30 * SECOND)
    yield BT(1, begin, "boot-1", 0)
    yield IS(2, begin, 1)
    names = [f"task-{number:05d}" for number in range(1, tasks + 1)]
    for generation, name in enumerate(names, 1):
        yield RG(2 + generation, begin, name, generation, "new", "* * * * *", Delay(30_000), "UTC", begin, "loop")
    yield IE(3 + tasks, begin, 1, tasks, "", "restart", None, None, "UTC")
    seq, run, minute = 3 + tasks, 0, 0
    while seq < events:
        due = BEGIN + minute * 60 * SECOND
        seq += 1
        yield WK(seq, Instant(due), due - BEGIN)
        failed: list[tuple[int, str]] = []
        for offset, retried in ((0, False), (30 * SECOND + 1_000_000, True)):
            chosen = failed if retried else list(enumerate(names, 1))
            cause = "retry" if retried else "cron"
            for slots, (generation, name) in enumerate(chosen):
                seq += 1
                yield RS(seq, Instant(due + offset + 2_000), name, generation, run + generation, cause, slots)
            for generation, name in chosen:
                seq += 1
                fails = not retried and (run // tasks + generation) % FAILING == 0
                if fails:
                    failed.append((generation, name))
                yield RE(seq, Instant(due + offset + 9_000 + generation), name, generation, run + generation, not fails)
            run += tasks
        minute += 1
