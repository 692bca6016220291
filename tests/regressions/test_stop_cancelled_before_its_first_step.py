"""A stop() whose work was cancelled before its first step never gave up its turn: all later calls waited for ever."""

import asyncio
from pathlib import Path

import pytest

import duly
from duly.events import TaskRunStarted
from tests.engine.helpers import registration
from tests.spec.helpers import Ear, ManualClock

NEVER_TODAY = "0 0 1 1 *"


@pytest.mark.parametrize("rounds", [1, 2])
async def test_a_stop_that_something_cancelled_before_its_turn_holds_nothing_back(store: Path, rounds: int) -> None:
    """SPEC 4.3: a tool that cancels tasks of the event loop may hit its work, perhaps before the first step of that."""
    ear = Ear()
    scheduler = duly.Scheduler(store, clock=ManualClock(), on_event=ear)
    await scheduler.initialize([registration("a", NEVER_TODAY)])
    calls = [asyncio.create_task(scheduler.initialize([registration("b")])), asyncio.create_task(scheduler.stop())]
    for _ in range(rounds):
        await asyncio.sleep(0)
    (stopping,) = [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "_stop"]
    stopping.cancel()
    await asyncio.wait(calls, timeout=30)
    assert [call.cancelled() for call in calls] == [False, True]
    await ear.hear(TaskRunStarted, "b")
    await asyncio.wait_for(scheduler.stop(), 30)
