"""Starts and ends of single tasks on several hosts: how many pass the one lock of all writers, and how long one waits.

`python -m benchmarks.cluster.ours.mutex URL SCHEMA NUMBER SECONDS` is one such host: it says `ready`, writes from the
moment its input ends, and says how long each write took.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.cluster.ours.place import place
from benchmarks.cluster.ours.plain_host import PlainHost, arrivals

TASKS = 64
PATIENCE_SECONDS = 120.0


def measure(folder: Path, url: str, hosts: int, seconds: float) -> dict[str, float]:
    """Let all hosts write at once for some seconds, each its own task."""
    with place(url) as here:
        PlainHost(url, here.schema).install()
        processes: list[subprocess.Popen[str]] = []
        try:
            processes.append(_host(url, here.schema, 0, seconds))
            _await_ready(processes[0])  # it declares the tasks that the others find
            processes += [_host(url, here.schema, number, seconds) for number in range(1, hosts)]
            for process in processes[1:]:
                _await_ready(process)
            database = here.server_seconds()
            for process in processes:
                assert process.stdin is not None
                process.stdin.close()
            took = [each for process in processes for each in _took(process)]
            database_after = here.server_seconds()
        finally:
            for process in processes:
                process.kill()
                process.wait()
        sample = {
            "hosts": float(hosts),
            "writes_a_second": len(took) / seconds,
            "median_ms": 1000 * median(took),
            "worst_s": max(took),
        }
        if database is not None and database_after is not None:
            sample["database_us_a_write"] = 1e6 * (database_after - database) / len(took)
        return sample


def _host(url: str, schema: str, number: int, seconds: float) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.cluster.ours.mutex", url, schema, str(number), str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _await_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError("a host has ended before it was ready")


def _took(process: "subprocess.Popen[str]") -> list[float]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if process.wait(PATIENCE_SECONDS) or not line:
        raise RuntimeError("a host has ended while it wrote")
    took: list[float] = json.loads(line)
    return took


def write(url: str, schema: str, number: int, seconds: float) -> list[float]:
    """Start a task and end it, again and again; how long each write took."""
    host = PlainHost(url, schema)
    generation = host.join(arrivals(TASKS, ["0 0 1 1 *"])) + number
    print("ready", flush=True)
    sys.stdin.read()
    took: list[float] = []
    until = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < until:
        answer, run = host.start([generation])
        took.append(time.perf_counter() - begun)
        if answer.refused:
            raise RuntimeError("a start was refused, though nobody else writes this task")
        begun = time.perf_counter()
        host.end([generation], run)
        took.append(time.perf_counter() - begun)
    host.functions.close()
    return took


if __name__ == "__main__":
    print(json.dumps(write(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
