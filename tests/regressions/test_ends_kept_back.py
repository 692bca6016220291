"""Ends waited to be written for as long as more of them came, and a crash would have repeated all those runs."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from duly.core.changes import Batch
from duly.core.task import End
from duly.stores import SqliteStore
from duly.stores.port import Outcome, TraceRow
from duly.testing import SimulatedHost
from duly.threads import Inline

TASKS = 1_000
BURST = 100
WORK_MICROSECONDS = 2_000


class PunctualStore(SqliteStore):
    """A real store that notes how old the ends are that it is given."""

    host: SimulatedHost
    oldest_microseconds = 0
    ends = 0

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        ends = [self.host._clock.wall - change.at for change in batch.singles() if isinstance(change, End)]
        self.ends += len(ends)
        self.oldest_microseconds = max(self.oldest_microseconds, *ends, 0)
        return await super().write(batch, number, trace)


async def test_ends_are_written_soon_also_while_more_of_them_come(tmp_path: Path) -> None:
    """SPEC 3.9: the window in which a crash repeats a run that has ended is kept short."""
    store = PunctualStore(tmp_path / "store.db", worker=Inline(), synchronous="OFF")
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        store.host = host
        begin = asyncio.Event()

        def work(rounds: int) -> object:
            async def one_after_the_other() -> None:
                await begin.wait()
                for _ in range(rounds):
                    await asyncio.sleep(0)
                if rounds:
                    host._clock.pass_by(WORK_MICROSECONDS)

            return one_after_the_other

        tasks = [
            (f"t{index}", "0 12 * * *", work(max(0, index - BURST)), timedelta(minutes=5)) for index in range(TASKS)
        ]
        await host.scheduler(store).initialize(tasks)
        await host.advance(seconds=1)
        begin.set()
        await host.advance(seconds=10)
    assert store.ends == TASKS
    assert store.oldest_microseconds < 200_000  # all of them together take ten times as long
