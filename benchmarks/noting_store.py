"""A store that notes how much it was given to write, and when that was durable."""

import asyncio
import time
from pathlib import Path
from typing import Any

from duly.core.changes import Batch
from duly.stores import Outcome, SqliteStore


class NotingStore(SqliteStore):
    """The SQLite store as it is, with these notes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.commits = 0
        self.changes = 0
        self.durable_at = 0.0  # perf_counter() when the last write had been durable
        self._expected = 0
        self._complete: asyncio.Event | None = None

    def expect(self, changes: int) -> asyncio.Event:
        """Count from here; the event is set when `changes` of them are durable."""
        self.commits = self.changes = 0
        self._expected, self._complete = changes, asyncio.Event()
        return self._complete

    async def write(self, batch: Batch, number: int, *others: Any, **more: Any) -> Outcome:
        """Write, and note it."""
        begun = time.perf_counter()
        outcome = await super().write(batch, number, *others, **more)
        self.durable_at = time.perf_counter()
        self.note_commit(self.durable_at - begun)
        self.commits += 1
        self.changes += batch.count
        if self._complete is not None and self.changes >= self._expected:
            self._complete.set()
        return outcome

    def note_commit(self, seconds: float) -> None:
        """Called after each commit with the time it took, as the scheduler sees it: for measurements that want it."""
