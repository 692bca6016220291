"""Thousands of tasks that are due in the same minute, on three hosts: when the last of them is started.

One scheduler at a time has the machine to itself.
"""

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.children import Sample
from benchmarks.cluster import judge
from benchmarks.cluster.faults import rolling
from benchmarks.cluster.host import adapter
from benchmarks.cluster.plan import SCHEDULERS, Size
from benchmarks.cluster.server import Server
from benchmarks.cluster.trio import HOSTS, Trio
from benchmarks.cluster.witness import BEGIN
from benchmarks.cluster.work import Tasks, at_minute

PROCESSES_SECONDS = 6.0
"""How long the processes of a trio take to start, generously, beyond the pauses between them."""

QUIET_SECONDS = 2.0
"""After the last task was started, it is watched for this long whether any is started again."""

ATTEMPTS = 3


def run(name: str, tasks: int, server: Server, size: Size, folder: Path, tell: Callable[[str], None]) -> Sample:
    """Tasks of one scheduler that fall due together."""
    module = SCHEDULERS[name][0]
    setup = adapter(module).SETUP_US
    needed = PROCESSES_SECONDS + (len(HOSTS) - 1) * size.rolling_s + setup * tasks / 1_000_000
    for attempt in range(ATTEMPTS):
        database = f"due_{module}_{tasks}"
        due = (time.time() + needed) // 60 * 60 + 60
        tell(f"due: {tasks:,} tasks of {name} in {due - time.time():.0f} s")
        work = [Tasks("task", at_minute(due), number=tasks)]
        trio = Trio(module, server.create(database), folder / f"{database}_{attempt}", work)
        try:
            trio.prepare()
            rolling([trio], size.rolling_s)
            if trio.wait_until_ready(due - 1):
                return _watch(trio, tasks, due, size.due_patience_s)
            if trio.exits:
                raise RuntimeError(f"a host has ended: {trio.last_words(trio.exits[0][1])}")
        finally:
            trio.kill()
            server.drop(database)
        needed *= 2
    raise RuntimeError(f"the set-up of {tasks:,} tasks took longer than expected, {ATTEMPTS} times")


def _watch(trio: Trio, tasks: int, due: float, patience_s: float) -> Sample:
    until = due + patience_s
    time.sleep(max(0.0, due - time.time()))
    started: set[str] = set()
    last = due
    while time.time() < until and (len(started) < tasks or time.time() < last + QUIET_SECONDS):
        time.sleep(0.25)
        begins = [step for step in trio.news() if step.what == BEGIN]
        started.update(step.task for step in begins)
        last = max([last, *(step.at for step in begins)])
    trio.kill()
    due_tasks = judge.due_together(judge.runs_of(trio.steps()), tasks, due, until)
    facts: dict[str, float | None] = {
        "tasks": tasks,
        "started": due_tasks.started,
        "runs": due_tasks.runs,
        "first_start_s": due_tasks.first_start_s,
        "last_start_s": due_tasks.last_start_s,
        "patience_s": patience_s,
        **{f"on {host}": float(due_tasks.by_host.get(host, 0)) for host in trio.hosts},
    }
    return {fact: float(value) for fact, value in facts.items() if value is not None}
