"""Thousands of tasks due at once, on the system's clock, event loop and threads: what a burst may hold and write."""

import asyncio
import math
from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import duly
from duly.core.changes import Batch
from duly.core.task import Start
from duly.engine.loop import FIRST_CHUNK_STARTS
from duly.stores import Outcome, SqliteStore

TASKS = 3_000


class CountingStore(SqliteStore):
    """The embedded store, and how often it is asked to write until all ends are durable."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writes = self.changes = 0
        self.chunks: list[int] = []
        self.complete = asyncio.Event()

    async def write(self, batch: Batch, number: int, trace: Iterable[tuple[Any, ...]] = ()) -> Outcome:
        answer = await super().write(batch, number, trace)
        if not self.complete.is_set():
            self.writes += 1
            self.changes += batch.count
            if starts := sum(isinstance(change, Start) for change in batch.singles()):
                self.chunks.append(starts)
            if self.changes >= 2 * TASKS:
                self.complete.set()
        return answer


async def test_a_burst_is_written_in_few_commits_and_holds_few_tasks_of_the_event_loop(tmp_path: Path) -> None:
    """Fsyncs ≤ 2·⌈N/5000⌉ + 20 a tick; callbacks that return at once are gone before the next ones begin."""
    store = CountingStore(tmp_path / "many.db")
    started = most_alive = 0

    async def job() -> None:
        nonlocal started, most_alive
        started += 1
        if started % 100 == 0:
            most_alive = max(most_alive, len(asyncio.all_tasks()))

    scheduler = duly.Scheduler(store)
    before = len(asyncio.all_tasks())
    # A new task whose expression matches this very minute is due at once.
    await scheduler.initialize([(f"{n}", "* * * * *", job, timedelta(minutes=1)) for n in range(TASKS)])
    await store.complete.wait()
    await scheduler.stop()

    assert started >= TASKS
    assert store.writes <= 2 * math.ceil(TASKS / 5_000) + 20
    assert 0 < most_alive - before <= 10
    # The first callbacks wait for a small commit, and those after them never for long.
    assert store.chunks[0] == FIRST_CHUNK_STARTS
    assert all(later <= 2 * earlier for earlier, later in pairwise(store.chunks))


async def test_the_end_of_a_run_is_written_without_waiting_for_others_that_go_on(tmp_path: Path) -> None:
    """SPEC 3.9: only in a burst do ends wait for company; one that comes alone is durable at once."""
    over = asyncio.Event()
    stored: list[int] = []

    class Store(SqliteStore):
        async def write(self, batch: Batch, number: int, trace: Iterable[tuple[Any, ...]] = ()) -> Outcome:
            answer = await super().write(batch, number, trace)
            stored.append(batch.count)
            if sum(stored) >= 3:  # both starts, and the end of the short one
                over.set()
            return answer

    release = asyncio.Event()

    async def long() -> None:
        await release.wait()

    async def short() -> None:
        pass

    scheduler = duly.Scheduler(Store(tmp_path / "two.db"))
    await scheduler.initialize(
        [("long", "* * * * *", long, timedelta(minutes=1)), ("short", "* * * * *", short, timedelta(minutes=1))]
    )
    await asyncio.wait_for(over.wait(), 30)
    assert not release.is_set()
    release.set()
    await scheduler.stop()
