"""The store's part of a burst: processor time of the database for N starts, and for their ends with history."""

import time
from pathlib import Path

from benchmarks.cluster.ours.place import place
from benchmarks.cluster.ours.plain_host import PlainHost, arrivals

CHUNK = 5_000
"""Starts of one commit, as in a scheduler's burst."""


def measure(folder: Path, url: str, tasks: int) -> dict[str, float] | None:
    """One host writes everything, chunk by chunk."""
    with place(url) as here:
        host = PlainHost(url, here.schema)
        host.install()
        first = host.join(arrivals(tasks, ["0 0 1 1 *"]))
        chunks = [range(begin, min(begin + CHUNK, first + tasks)) for begin in range(first, first + tasks, CHUNK)]
        before = host.database_seconds()
        begun, used = time.perf_counter(), time.process_time()
        started = [host.start(chunk) for chunk in chunks]
        between = host.database_seconds()
        between_s = time.perf_counter() - begun
        ended = [host.end(chunk, run) for chunk, (_, run) in zip(chunks, started, strict=True)]
        after = host.database_seconds()
        took, used = time.perf_counter() - begun, time.process_time() - used
        refused = sum(len(answer.refused) for answer, _ in started) + sum(len(answer.fenced) for answer in ended)
        if refused:
            raise RuntimeError(f"{refused} starts or ends were refused, with one host")
        if here.number("select count(*) from runs") != min(tasks, 100_000):
            raise RuntimeError("history lacks runs")
        if before is None or between is None or after is None:
            return None
        host.functions.close()
        return {
            "tasks": float(tasks),
            "starts_database_s": between - before,
            "ends_database_s": after - between,
            "starts_s": between_s,
            "ends_s": took - between_s,
            "host_cpu_s": used,
        }
