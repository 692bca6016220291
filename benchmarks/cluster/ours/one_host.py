"""All N tasks due in one minute on one host: when the last callback began, on PostgreSQL instead of SQLite."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duly
from benchmarks import witness, workload
from benchmarks.cluster.ours.noting import NotingStore
from benchmarks.cluster.ours.place import place

LEASE = timedelta(seconds=30)
ENDS_SECONDS_MAX = 60.0


ATTEMPTS = 5


class TooLateError(RuntimeError):
    """The tasks were due before all hosts had declared them."""


def rooms(tasks: int, hosts: int = 1) -> Iterator[float]:
    """How long hosts have to declare or load so many tasks before they are due: more with each attempt."""
    for attempt in range(ATTEMPTS):
        yield (4 + 1.5 * hosts + tasks / 10_000) * 2**attempt


async def measure(folder: Path, url: str, tasks: int, expressions: str = "distinct") -> dict[str, float]:
    """Initialize, wait for the boundary, and see every task through to its durable end."""
    for room in rooms(tasks):
        with contextlib.suppress(TooLateError):
            return await _attempt(url, tasks, expressions, room)
    raise TooLateError(f"declaring {tasks:,} tasks took longer than expected, {ATTEMPTS} times")


async def _attempt(url: str, tasks: int, expressions: str, room: float) -> dict[str, float]:
    with place(url) as here:
        store = NotingStore(url, schema=here.schema, lease=LEASE)
        await asyncio.to_thread(store.install)
        due = here.shift_clock(room)
        scheduler = duly.Scheduler(store)
        registrations = workload.tasks(tasks, workload.SETS[expressions](due), witness.callback)
        begun = time.perf_counter()
        await scheduler.initialize(registrations)
        initialized = time.perf_counter() - begun
        started = witness.expect(tasks)
        if here.seconds_until(due) < 0.5:
            await scheduler.stop()
            raise TooLateError
        due_at = time.perf_counter() + here.seconds_until(due)
        used, database = time.process_time(), here.server_seconds()
        await started.wait()
        used = time.process_time() - used
        deadline = time.monotonic() + ENDS_SECONDS_MAX
        while store.notes.ends < tasks and time.monotonic() < deadline:  # noqa: ASYNC110 -- noted in another thread
            await asyncio.sleep(0.01)
        database_after = here.server_seconds()
        await scheduler.stop()
        witness.check(tasks)
        assert witness.first is not None
        sample = {
            "tasks": float(tasks),
            "initialize_s": initialized,
            "first_start_s": witness.first - due_at,
            "last_start_s": witness.last - due_at,
            "ends_durable_s": store.notes.durable_at - here.wall_time_of(due),
            "writes": float(store.notes.writes),
            "refused": float(store.notes.refused),
            "cpu_until_last_start_s": used,
        }
        if database is not None and database_after is not None:
            sample["database_cpu_s"] = database_after - database
        return sample
