"""The mark of a declaration was forgotten when its name was removed, and made up when it had never started.

A task that was removed and declared again within one minute ran that minute twice. A task that had
never started and was overridden after a small step back of the clock missed minutes that it owed: the minute before it
became known counted as served by a start. Scheduler, monitor and reference agreed on both:
docs/decisions/0010-what-an-oracle-shares.md says why.
"""

import io
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from duly.formal.checking import Report, check
from duly.formal.properties import Value
from duly.stores.sqlite.trace import export
from duly.testing import SimulatedHost

DELAY = timedelta(seconds=60)


def judged(path: Path) -> Report:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return check(io.BytesIO(b"".join(export(connection, clean=True))))
    finally:
        connection.close()


class Runs:
    """A task that notes when it is called."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self.at: list[str] = []

    async def __call__(self) -> None:
        self.at.append(self._host.now.strftime("%H:%M:%S"))


@pytest.mark.parametrize("restarted", [False, True], ids=["same process", "another process"])
@pytest.mark.parametrize("history", [0, 1_000])
async def test_a_task_that_is_removed_and_declared_again_runs_a_minute_once(
    tmp_path: Path, restarted: bool, history: int
) -> None:
    """SPEC 5.1: the mark of a removed name is kept for a day, whatever `history` is."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-06-03T12:00:05", "UTC", path) as host:
        run = Runs(host)
        task = ("x", "* * * * *", run, DELAY)
        scheduler = host.scheduler(trace=True, history=history)
        await scheduler.initialize([task])
        await host.advance(seconds=5)
        await scheduler.initialize([])
        await host.advance(seconds=5)
        if restarted:
            await scheduler.stop()
            scheduler = host.scheduler(trace=True, history=history)
        await scheduler.initialize([task])
        await host.advance(seconds=30)
        assert run.at == ["12:00:05"]
        await host.advance(minutes=1)
        assert run.at == ["12:00:05", "12:01:00"]
        await scheduler.stop()
    assert {verdict.value for verdict in judged(path).verdicts.values()} == {Value.SATISFIED}


async def test_a_name_that_is_declared_again_after_a_small_step_back_is_silent_until_its_mark(tmp_path: Path) -> None:
    """SPEC 2.5, 5.1: up to 3 hours ahead, what was served is not served again; further ahead it is lowered."""
    for clock, silent_minutes in (("2024-06-03T11:30:10", 30), ("2024-06-03T08:30:10", 0)):  # served: 12:00
        path = tmp_path / f"{silent_minutes}.db"
        async with SimulatedHost("2024-06-03T12:00:05", "UTC", path) as host:
            run = Runs(host)
            task = ("x", "* * * * *", run, DELAY)
            scheduler = host.scheduler(trace=True)
            await scheduler.initialize([task])
            await host.advance(seconds=5)
            await scheduler.initialize([])
            await host.set_clock(clock)
            await host.advance(seconds=70)
            await scheduler.initialize([task])
            await host.advance(minutes=max(1, silent_minutes - 3))
            assert run.at[1:] == ([] if silent_minutes else ["08:32:00"])
            await host.advance(minutes=5)
            assert run.at[1] == ("12:01:00" if silent_minutes else "08:32:00")
            await scheduler.stop()
        assert {verdict.value for verdict in judged(path).verdicts.values()} == {Value.SATISFIED}


async def test_a_task_that_never_started_is_overridden_after_a_small_step_back_and_owes_its_minutes(
    tmp_path: Path,
) -> None:
    """SPEC 3.1, 5.1: no start has served anything, so nothing is silenced."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-06-03T02:56", "UTC", path) as host:
        run = Runs(host)
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize([("x", "0 * * * *", run, timedelta(seconds=1))])
        await host.advance(seconds=1)
        await host.set_clock("2024-06-03T01:56:10")
        await host.advance(seconds=70)
        await scheduler.initialize([("x", "0 * * * *", run, timedelta(seconds=5))])
        await host.advance(minutes=70)
        assert run.at == ["02:00:00", "03:00:00"]
        await scheduler.stop()
    assert {verdict.value for verdict in judged(path).verdicts.values()} == {Value.SATISFIED}


async def test_a_task_that_is_overridden_twice_does_not_serve_a_minute_again(tmp_path: Path) -> None:
    """SPEC 5.1: what a start has served is remembered through a declaration that never starts, and a restart."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-06-03T11:50:05", "UTC", path) as host:
        run = Runs(host)
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize([("x", "50 * * * *", run, timedelta(seconds=1))])
        await host.advance(minutes=10)
        await scheduler.initialize([("x", "50 * * * *", run, timedelta(seconds=2))])  # served: 11:50; known: 12:00
        await host.advance(seconds=1)
        await host.set_clock("2024-06-03T11:40:00")
        await host.advance(seconds=70)
        await scheduler.stop()
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize([("x", "50 * * * *", run, timedelta(seconds=3))])  # known: 11:41
        await host.advance(minutes=80)
        assert run.at == ["11:50:05", "12:50:00"]
        await scheduler.stop()
    assert {verdict.value for verdict in judged(path).verdicts.values()} == {Value.SATISFIED}


async def test_when_a_task_became_known_is_lowered_together_with_what_it_has_served(tmp_path: Path) -> None:
    """SPEC 2.5: 3 h 4 min ahead and 2 h 59 min ahead: both, durably."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-06-03T02:55", "UTC", path) as host:
        run = Runs(host)
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize([("x", "0 * * * *", run, DELAY)])
        await host.advance(minutes=61)
        await host.set_clock("2024-06-02T23:56:10")
        await host.advance(hours=2)
        assert run.at == ["03:00:00", "00:00:00", "01:00:00"]
        await scheduler.stop()
    connection = sqlite3.connect(path)
    ((known_since,),) = connection.execute("SELECT known_since FROM tasks").fetchall()
    connection.close()
    assert known_since // 60_000_000 == 1_717_372_620 // 60  # the poll of 23:57, the first that saw it
