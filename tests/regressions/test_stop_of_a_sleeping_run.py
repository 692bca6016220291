"""stop() on a simulated host hung for ever, without a word, while a callback was in host.sleep()."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.events import TaskRunCompleted, TaskRunFailed
from duly.testing import SimulatedHost
from tests.spec.helpers import told
from tests.stores.helpers import full_disk

LIMIT_SECONDS = 60.0
"""Of the world, for a test that used to hang."""


def on(host: SimulatedHost, seconds: float) -> list[Any]:
    async def work() -> None:
        await host.sleep(seconds)

    return [("work", "* * * * *", work, timedelta(minutes=1))]


async def within_limits(stop: Any) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        await stop


async def test_time_passes_while_stop_waits_for_a_callback_that_sleeps() -> None:
    """Exactly as long as the callback takes."""
    async with SimulatedHost("2026-11-16T12:00:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize(on(host, 150))
        await host.advance(seconds=10)
        await within_limits(scheduler.stop())
        assert host.now.isoformat() == "2026-11-16T12:02:30+00:00"
        (completed,) = told(host, TaskRunCompleted)
        assert completed.duration == pytest.approx(150_000)


async def test_a_stop_that_begins_before_the_first_round_waits_as_well() -> None:
    """The run has not even gone to sleep."""
    async with SimulatedHost("2026-11-16T12:00:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize(on(host, 30))
        await host.advance()
        await within_limits(asyncio.gather(scheduler.stop(), scheduler.stop()))
        assert told(host, TaskRunCompleted)


async def test_a_test_that_moves_the_clock_itself_comes_first() -> None:
    """A stop() in a task of its own: time passes as the test says."""
    async with SimulatedHost("2026-11-16T12:00:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize(on(host, 150))
        await host.advance(seconds=10)
        stop = asyncio.create_task(scheduler.stop())
        for seconds in range(20, 140, 10):
            await host.advance(seconds=10)
            assert not stop.done()
            assert host.now.isoformat() == f"2026-11-16T12:{seconds // 60:02}:{seconds % 60:02}+00:00"
        await host.advance(seconds=30)
        assert stop.done()


async def test_a_time_limit_ends_while_stop_waits() -> None:
    """The callback waits for something that never comes."""
    async with SimulatedHost("2026-11-16T12:00:00", "UTC") as host:

        async def stuck() -> None:
            await asyncio.Event().wait()

        scheduler = host.scheduler(run_timeout=timedelta(minutes=5))
        await scheduler.initialize([("stuck", "0 12 * * *", stuck, timedelta(hours=1))])
        await host.advance(seconds=1)
        await within_limits(scheduler.stop())
        assert told(host, TaskRunFailed)


async def test_a_stop_that_cannot_store_its_ends_gives_up_after_its_time(tmp_path: Path) -> None:
    """SPEC 4.3: thirty seconds of the host, and none of the world."""
    async with SimulatedHost("2026-11-16T12:00:00", "UTC", tmp_path / "duly.db") as host:
        scheduler, begun = host.scheduler(), host.now
        await scheduler.initialize(on(host, 5))
        await host.advance(seconds=1)
        with full_disk(), pytest.raises(duly.StopSchedulerError):
            await within_limits(scheduler.stop())
        assert timedelta(seconds=35) <= host.now - begun <= timedelta(minutes=2)


async def test_what_a_callback_waits_for_in_real_time_is_waited_for() -> None:
    """No time passes on the host meanwhile."""
    async with SimulatedHost("2026-11-16T12:00:00", "UTC") as host:

        async def in_the_world() -> None:
            await asyncio.sleep(0.2)

        scheduler = host.scheduler()
        await scheduler.initialize([("job", "* * * * *", in_the_world, timedelta(minutes=1))])
        await host.advance()
        await within_limits(scheduler.stop())
        assert host.now.isoformat() == "2026-11-16T12:00:00+00:00"
        assert told(host, TaskRunCompleted)
