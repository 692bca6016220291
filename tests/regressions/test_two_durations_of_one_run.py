"""A run took 8 ms in the log and 101 ms in history, which counted the time until its start was on disk."""

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

from duly.core.changes import Batch
from duly.events import Event, TaskRunCompleted, TaskRunFailed
from duly.insight.run import run_report
from duly.stores import Outcome, SqliteReader, SqliteStore
from duly.stores.port import RunSelection, TraceRow
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.cli.program import duly

DISK_SECONDS = 5.0


class SlowDisk(SqliteStore):
    """Every write takes five seconds."""

    host: SimulatedHost

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        await self.host.sleep(DISK_SECONDS)
        return await super().write(batch, number, trace)


def durations(store: Path, host: SimulatedHost) -> dict[int, float | None]:
    """How long each run took, as history has it."""
    now = int(host.now.timestamp() * 1_000_000)
    reader = SqliteReader(store, lambda: now)
    reports = reader.read(lambda view: [run_report(record) for record in view.runs(RunSelection())])
    return {report.run_id: report.duration_ms for report in reports}


def reported(events: Sequence[Event]) -> dict[int, float]:
    """How long each run took, as its event says."""
    return {event.run_id: event.duration for event in events if isinstance(event, TaskRunCompleted | TaskRunFailed)}


async def test_a_run_takes_as_long_in_history_as_in_its_event(tmp_path: Path) -> None:
    """From the call of its callback to its return, whether it succeeds, fails, or is withdrawn meanwhile."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2026-11-16T12:00:00", "UTC", path) as host:
        store = SlowDisk(path, worker=Inline(), synchronous="OFF")
        store.host = host

        async def quick() -> None: ...

        async def works() -> None:
            await host.sleep(3)

        async def fails() -> None:
            await host.sleep(2)
            raise ValueError

        async def withdrawn() -> None:
            await host.sleep(40)

        scheduler = host.scheduler(store)
        delay = timedelta(hours=1)
        declared = [("quick", quick), ("works", works), ("fails", fails), ("withdrawn", withdrawn)]
        tasks = [(name, "0 * * * *", callback, delay) for name, callback in declared]
        await scheduler.initialize(tasks)
        await host.advance(seconds=20)
        await scheduler.initialize(tasks[:3])
        await host.advance(hours=2)
        await scheduler.stop()
        told = reported(host.events)
        assert sorted(told.values()) == [0, 0, 0, 2000, 2000, 2000, 3000, 3000, 3000, 40_000]
        assert durations(path, host) == told


async def test_every_text_about_a_run_says_how_long_its_callback_took(tmp_path: Path) -> None:
    """The table of history, each run in full, the sparkline beneath, and an explanation counted from the start."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2026-11-16T12:00:00", "UTC", path) as host:
        store = SlowDisk(path, worker=Inline(), synchronous="OFF")
        store.host = host

        async def works() -> None:
            await host.sleep(3)

        scheduler = host.scheduler(store)
        await scheduler.initialize([("works", "0 * * * *", works, timedelta(hours=1))])
        await host.advance(seconds=20)
        await scheduler.stop()

    def shown(*command: str) -> str:
        return duly(*command, "--store", "state.db", folder=tmp_path, TZ="UTC", COLUMNS="200").out

    table, sparkline = shown("history", "works").split("\n\n")
    assert re.search(r" 0 ms +3 s +success ", table)
    assert "1 run, median 3 s, longest 3 s" in sparkline
    assert "took 3 s" in shown("history", "-v", "works")
    assert "it succeeded at 12:00:08, after 3 s" in shown("explain", "works", "--at", "2026-11-16T12:00")


async def test_runs_of_many_starts_that_end_together_each_take_their_time(tmp_path: Path) -> None:
    """More different starts in one write than one statement tells apart."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2026-11-16T12:00:00", "UTC", path) as host:
        store = SlowDisk(path, worker=Inline(), synchronous="OFF")
        store.host = host

        async def until_one() -> None:
            await host.sleep(3600 - (host.now.minute * 60 + host.now.second) % 3600)

        scheduler = host.scheduler(store)
        await scheduler.initialize([(f"at {n}", f"{n} 12 * * *", until_one, timedelta(hours=1)) for n in range(50)])
        await host.advance(hours=2)
        await scheduler.stop()
        told = reported(host.events)
        assert len(set(told.values())) == 50
        assert durations(path, host) == told
