"""A hundred thousand tasks due in one minute: constant work for each, counted and not timed."""

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from duly.core.changes import Batch
from duly.engine.loop import CHUNK_STARTS_MAX
from duly.events import Event, PollCompleted, TaskStartDelayed
from duly.stores import Outcome, SqliteStore
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.conftest import require
from tests.counts import count

TASKS = count(100_000, 20_000)


class CountingStore(SqliteStore):
    """The embedded store, and how often it is asked to write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, worker=Inline(), synchronous="OFF")
        self.writes = 0
        self.changes = 0

    async def write(self, batch: Batch, number: int, trace: Iterable[tuple[Any, ...]] = ()) -> Outcome:
        self.writes += 1
        self.changes += batch.count
        return await super().write(batch, number, trace)


async def test_a_hundred_thousand_tasks_due_in_one_minute_start_once_each_at_constant_cost(tmp_path: Path) -> None:
    """SPEC 3.2: each starts once; evaluations and writes per due task are constant, commits per chunk."""
    starts: Counter[int] = Counter()
    polls: list[Event] = []

    def task(number: int) -> tuple[str, str, object, timedelta]:
        async def job() -> None:
            starts[number] += 1

        return f"task-{number}", "30 12 * * *", job, timedelta(minutes=1)

    async with SimulatedHost("2024-05-01T12:29:30", "Europe/Berlin") as host:
        store = CountingStore(tmp_path / "many.db")
        scheduler = host.scheduler(store, on_event=polls.append)
        await scheduler.initialize([task(number) for number in range(TASKS)])
        await host.advance(seconds=29)
        before = store.writes
        assert not starts

        await host.advance(seconds=31)

        assert len(starts) == TASKS
        assert set(starts.values()) == {1}
        assert store.changes == 2 * TASKS
        assert store.writes - before <= 2 * math.ceil(TASKS / CHUNK_STARTS_MAX) + 20
        evaluated = sum(event.tasks_evaluated for event in polls if isinstance(event, PollCompleted))
        assert evaluated == TASKS
        assert not any(isinstance(event, TaskStartDelayed) for event in polls)
        await scheduler.stop()


async def test_waiting_for_a_slot_costs_a_constant_per_start(tmp_path: Path) -> None:
    """With a limit, each freed slot looks at one more task, not at all that wait."""
    polls: list[Event] = []
    running = most = 0

    async with SimulatedHost("2024-05-01T12:29:30", "Europe/Berlin") as host:

        async def job() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await host.sleep(1)
            running -= 1

        scheduler = host.scheduler(on_event=polls.append, max_concurrency=10)
        tasks = [(f"task-{number}", "30 12 * * *", job, timedelta(minutes=1)) for number in range(500)]
        await scheduler.initialize(tasks)
        await host.advance(minutes=2)

        evaluated = sum(event.tasks_evaluated for event in polls if isinstance(event, PollCompleted))
        executed = sum(event.tasks_executed for event in polls if isinstance(event, PollCompleted))
        assert (executed, most) == (500, 10)
        assert evaluated == 500


SYNCED_TASKS = 12_000

# A program of its own, so that it can be watched from outside: one tick on the embedded store, as durable as it is in
# production, between two syncs of a file that is not the store's.
ONE_DURABLE_TICK = """
import asyncio, os, sys
from datetime import timedelta
from duly.stores import SqliteStore
from duly.threads import Inline
from duly.testing import SimulatedHost

async def main(folder, tasks):
    marker = os.open(f"{folder}/marker", os.O_CREAT | os.O_WRONLY)
    started = 0

    async def job():
        nonlocal started
        started += 1

    async with SimulatedHost("2024-05-01T12:29:30", "Europe/Berlin") as host:
        scheduler = host.scheduler(SqliteStore(f"{folder}/many.db", worker=Inline()))
        await scheduler.initialize([(f"{n}", "30 12 * * *", job, timedelta(minutes=1)) for n in range(tasks)])
        os.fsync(marker)
        await host.advance(minutes=1)
        os.fsync(marker)
        assert started == tasks, started
        await scheduler.stop()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.system
def test_a_tick_syncs_a_few_times_for_thousands_of_starts_and_ends(tmp_path: Path) -> None:
    """Fsyncs ≤ 2·⌈N/5000⌉ + 20 a tick, counted where they happen, at the system's door."""
    require("strace", "it counts system calls; on Debian and Ubuntu: apt-get install strace")
    log = tmp_path / "strace.log"
    watch = ["strace", "-f", "--seccomp-bpf", "-y", "-e", "trace=fsync,fdatasync", "-o", str(log)]
    program = [sys.executable, "-c", ONE_DURABLE_TICK, str(tmp_path), str(SYNCED_TASKS)]
    done = subprocess.run([*watch, *program], capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("this host lets nobody watch a process")
    assert done.returncode == 0, done.stderr
    synced = [line for line in log.read_text().splitlines() if "sync(" in line]
    begun, ended = (index for index, line in enumerate(synced) if f"{tmp_path}/marker" in line)
    tick = synced[begun + 1 : ended]
    assert all(f"{tmp_path}/many.db" in line for line in tick)
    # At least one for the starts and one for the ends: a tick that syncs nothing is not durable.
    assert 2 <= len(tick) <= 2 * math.ceil(SYNCED_TASKS / 5_000) + 20
