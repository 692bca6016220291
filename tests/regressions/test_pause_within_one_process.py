"""`duly explain` listed what may have kept a start off the record, and left out a scheduler that was merely stopped."""

from datetime import timedelta
from pathlib import Path

from duly.testing import SimulatedHost
from tests.cli.program import duly


async def test_a_scheduler_that_was_stopped_and_initialized_again_is_among_the_reasons(tmp_path: Path) -> None:
    """It arrives at a store once, so that no absence is on record."""

    async def work() -> None: ...

    async with SimulatedHost("2024-06-01T11:30", "UTC", tmp_path / "state.db") as host:
        scheduler, tasks = host.scheduler(), [("job", "0 12 * * *", work, timedelta(hours=1))]
        await scheduler.initialize(tasks)
        await scheduler.stop()
        await host.advance(hours=2)
        await scheduler.initialize(tasks)
        await host.advance(minutes=1)
        await scheduler.stop()
    said = duly("explain", "job", "--at", "2024-06-01T12:00", "--store", "state.db", "--json", folder=tmp_path)
    reason = next(each for each in said.json["reasons"] if each["code"] == "noDowntimeOnRecord")
    assert "the scheduler was stopped and initialised again in the same process" in reason["text"]
