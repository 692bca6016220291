"""Ends that settle together: each task is asked for itself whether it owes a start."""

from datetime import timedelta

import pytest

from duly.events import TaskRunFailed
from duly.testing import SimulatedHost
from tests.engine.helpers import EVERY_MINUTE, registration, works
from tests.spec.helpers import starts, told

HOURLY = "0 * * * *"


@pytest.mark.parametrize("crons", [(HOURLY, EVERY_MINUTE), (EVERY_MINUTE, HOURLY)])
async def test_tasks_that_end_together_owe_what_their_own_expressions_say(crons: tuple[str, str]) -> None:
    """SPEC 3.3: a minute that fell due inside a run is owed at its end, whatever the neighbour in the batch owes."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        work = works(host, 61)
        names = dict(zip(crons, ("a", "b"), strict=True))
        await host.scheduler().initialize([registration(name, cron, work) for cron, name in names.items()])
        await host.advance(seconds=70)
        assert starts(host, names[EVERY_MINUTE]) == ["12:00:00", "12:01:01"]
        assert starts(host, names[HOURLY]) == ["12:00:00"]


async def test_a_failure_is_announced_with_what_was_raised_and_how_long_it_took(host: SimulatedHost) -> None:
    """SPEC 7: the exception travels with the event, for `exc_info`."""
    error = ValueError("no")

    async def fail() -> None:
        await host.sleep(2)
        raise error

    await host.scheduler().initialize([registration("a", EVERY_MINUTE, fail, timedelta(hours=1))])
    await host.advance(seconds=10)
    (failed,) = told(host, TaskRunFailed)
    assert failed.exception is error
    assert failed.duration == pytest.approx(2000, abs=1)
