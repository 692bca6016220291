"""A step of the wall clock while a start was being committed was never reported."""

import asyncio
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import duly
from duly.core.changes import Batch
from duly.events import ClockJumped, Event
from duly.stores import SqliteStore
from duly.stores.port import Outcome, TraceRow
from tests.system.clocks import AcceleratedClock
from tests.system.time_judging import at

NOON = at("2025-06-02T12:00:00")


class SteppingStore(SqliteStore):
    """A real store; while it writes for the first time, the administrator sets the clock an hour ahead."""

    clock: AcceleratedClock
    stepped = False

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        if batch.count and not self.stepped:
            self.stepped = True
            self.clock.step(3600)
        return await super().write(batch, number, trace)


async def test_a_step_while_a_start_is_being_committed_is_told(tmp_path: Path) -> None:
    """SPEC 2.4, 2.5: the loop read the clock again after the commit, and did not compare it with the reading before."""
    store = SteppingStore(tmp_path / "store.db")
    store.clock = clock = AcceleratedClock(NOON, 1)
    told: asyncio.Queue[ClockJumped] = asyncio.Queue()

    def listen(event: Event) -> None:
        if isinstance(event, ClockJumped):
            told.put_nowait(event)

    async def nothing() -> None:
        pass

    scheduler = duly.Scheduler(store, clock=clock, on_event=listen, trace=True)
    await scheduler.initialize([("task", "* * * * *", nothing, timedelta(minutes=5))])
    jump = await asyncio.wait_for(told.get(), timeout=30)
    assert abs(jump.jump_ms - 3_600_000) < 60_000
    await scheduler.stop()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        (steps,) = connection.execute("SELECT count(*) FROM trace WHERE line LIKE '[\"CK\"%'").fetchone()
    assert steps == 1, "the trace says so as well"
