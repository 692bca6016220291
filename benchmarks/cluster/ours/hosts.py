"""All N tasks due in one minute on several hosts: first and last start, durable ends, shares, refusals, the log."""

import contextlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster.ours.counting_host import LEASE
from benchmarks.cluster.ours.one_host import ATTEMPTS, TooLateError, rooms
from benchmarks.cluster.ours.place import Place, place
from benchmarks.cluster.ours.plain_host import PlainHost

QUIET_SECONDS = 1.5
"""Hosts that have written nothing for this long have done their work: what others left they take after a second."""

ACQUAINTED_SECONDS = LEASE.total_seconds() / 6 + 1
"""Hosts hear of those that joined after them with their next beat, six times per lease. Until then shares overlap."""

HOSTS_THAT_JOIN = 4
"""In the time that a process takes to start, generously: hosts of one process join one after the other."""

BURST_SECONDS_MAX = 120.0
END_SECONDS_MAX = 60.0


def measure(
    folder: Path,
    url: str,
    tasks: int,
    hosts: int,
    expressions: str = "distinct",
    *,
    together: int = 1,
    commit_s: float = 0,
) -> dict[str, float]:
    """Start the hosts one after the other, let the minute come, and ask each of them what it has seen.

    `together` hosts share a process: fifty interpreters do not fit beside the database on a small machine. `commit_s`
    makes each commit take at least so long.
    """
    burst = Burst(url, tasks, expressions, hosts // together, together, commit_s)
    for room in rooms(tasks, max(burst.processes, hosts // HOSTS_THAT_JOIN)):
        with contextlib.suppress(TooLateError):
            return _attempt(burst, room + ACQUAINTED_SECONDS)
    raise TooLateError(f"declaring {tasks:,} tasks took longer than expected, {ATTEMPTS} times")


@dataclass(frozen=True)
class Burst:
    """The tasks of a measurement, and the hosts that share them."""

    url: str
    tasks: int
    expressions: str
    processes: int
    together: int  # hosts of a process
    commit_s: float


def _attempt(burst: Burst, room: float) -> dict[str, float]:
    tasks = burst.tasks
    with place(burst.url) as here:
        PlainHost(burst.url, here.schema).install()
        if burst.commit_s:
            here.slow_commits(burst.commit_s)
        due = here.shift_clock(room)
        arguments = [burst.url, here.schema, str(tasks), burst.expressions, due.isoformat(), str(burst.together)]
        command = [sys.executable, "-m", "benchmarks.cluster.ours.counting_host", *arguments]
        processes: list[subprocess.Popen[str]] = []
        try:
            for _ in range(burst.processes):
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
                processes.append(process)
                assert process.stdout is not None
                if process.stdout.readline() != "ready\n":
                    raise RuntimeError("a host has ended before it was ready")
            if (left := here.seconds_until(due)) < ACQUAINTED_SECONDS:
                raise TooLateError
            log_before, database = here.number(LOG_BYTES), here.server_seconds()
            _wait_until_over(here, left)
            database_after = here.server_seconds()
            seen = [_ask(process) for process in processes]
            log_bytes = here.number(LOG_BYTES) - log_before
        finally:
            for process in processes:
                process.kill()
                process.communicate()
        sample = figures(seen, tasks, here.wall_time_of(due))
        if sample["shortest_write_s"] < burst.commit_s:
            raise RuntimeError(f"a write took {sample['shortest_write_s']:.4f} s: commits are not slow")
        sample["log_bytes_a_run"] = log_bytes / tasks
        sample["spare_s"] = left
        if database is not None and database_after is not None:
            sample["database_cpu_s"] = database_after - database
        return sample


LOG_BYTES = "select coalesce(sum(pg_column_size(log.*)), 0) from log"


def figures(seen: list[dict[str, float]], tasks: int, due: float) -> dict[str, float]:
    """The observations of all hosts together."""
    starts = [host["starts"] for host in seen]
    if sum(starts) != tasks:
        raise RuntimeError(f"{tasks:,} starts were due, {sum(starts):,.0f} were seen")
    refused = sum(host["refused"] for host in seen)
    busy = [host for host in seen if "first_at" in host]
    return {
        "tasks": float(tasks),
        "first_start_s": min(host["first_at"] for host in busy) - due,
        "last_start_s": max(host["last_at"] for host in busy) - due,
        "ends_durable_s": max(host["durable_at"] for host in seen) - due,
        "share_least_percent": 100 * min(starts) / tasks,
        "share_most_percent": 100 * max(starts) / tasks,
        "refused": refused,
        "refused_percent": 100 * refused / (tasks + refused),
        "writes": sum(host["writes"] for host in seen),
        "shortest_write_s": min(host["shortest_write_s"] for host in seen),
        "busy_hosts": sum(host["busy_hosts"] for host in seen),
        "hosts_cpu_s": sum(host["cpu_s"] for host in seen),
        "initialize_first_s": seen[0]["initialize_s"],
        "initialize_last_s": seen[-1]["initialize_s"],
    }


def _wait_until_over(here: Place, seconds: float) -> None:
    """Wait for the minute, and until nothing has been written for a while."""
    time.sleep(seconds + 0.5)
    written, since = 0, time.monotonic()
    until = since + BURST_SECONDS_MAX
    while time.monotonic() < min(until, since + QUIET_SECONDS):
        time.sleep(0.25)
        if (now := here.number("select max(seq) from log")) != written:
            written, since = now, time.monotonic()


def _ask(process: "subprocess.Popen[str]") -> dict[str, float]:
    process.terminate()
    output, _ = process.communicate(timeout=END_SECONDS_MAX)
    sample: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return sample
