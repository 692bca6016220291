"""Ends that settle together: each task is asked for itself whether it owes a start."""

import asyncio
import json
import logging
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly.core.task import Task
from duly.engine.settle import ReplacedRuns
from duly.events import Event, PollStarted, StoreRecovered, TaskRunCompleted, TaskRunFailed
from duly.testing import SimulatedHost
from tests.engine.helpers import EVERY_MINUTE, engine_of, registration, works
from tests.spec.helpers import ManualClock, Script, Step, fails, starts, succeeds, told
from tests.stores.contract import NOON, at, start, task
from tests.stores.helpers import full_disk, query

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


async def test_tasks_of_one_expression_that_end_together_all_owe_their_minute() -> None:
    """SPEC 3.3: none is forgotten because its neighbour was asked."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        work = works(host, 61)
        await host.scheduler().initialize([registration(name, EVERY_MINUTE, work) for name in "abc"])
        await host.advance(seconds=70)
        assert [starts(host, name) for name in "abc"] == [["12:00:00", "12:01:01"]] * 3


async def test_a_success_is_announced_with_how_long_it_took_whatever_the_wall_clock_did(host: SimulatedHost) -> None:
    """SPEC 7: the duration is measured on the steady clock, if something listens when the callback is called."""
    await host.scheduler().initialize([registration("a", EVERY_MINUTE, works(host, 5))])
    await host.advance(seconds=2)
    await host.set_clock(host.now + timedelta(seconds=10))
    await host.advance(seconds=10)
    (completed,) = told(host, TaskRunCompleted)
    assert completed.duration == pytest.approx(5000, abs=1)


async def test_a_success_that_nobody_measured_is_announced_to_a_log_that_was_made_wordier_meanwhile(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SPEC 7: its duration is that of its stamps."""
    clock, called, go_on = ManualClock(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        called.set()
        await go_on.wait()

    scheduler = duly.Scheduler(store, clock=clock)
    with caplog.at_level(logging.WARNING, "duly"):
        await scheduler.initialize([registration("a", EVERY_MINUTE, work)])
        await asyncio.wait_for(called.wait(), 30)
    clock.advance(3)
    go_on.set()
    await asyncio.wait_for(engine_of(scheduler).runner.all_returned.wait(), 30)  # and the end is not durable yet
    with caplog.at_level(logging.INFO, "duly"):
        await asyncio.wait_for(scheduler.stop(), 30)
    (record,) = [each for each in caplog.records if getattr(each, "event", None) == "TaskRunCompleted"]
    assert record.fields["duration"] == 3000.0  # type: ignore[attr-defined]


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


@pytest.mark.parametrize("step", [succeeds(after=63), fails(after=63)], ids=["success", "failure"])
async def test_the_trace_tells_of_a_step_back_between_an_end_and_the_next_start(
    host: SimulatedHost, store: Path, step: Step
) -> None:
    """Instants of a task decrease only after a CK, even if the step was too small to be announced."""
    scheduler = host.scheduler(trace=True)
    await scheduler.initialize([registration("a", callback=Script(host, step, succeeds()))])
    await host.advance(seconds=62)
    with full_disk():
        await host.advance(seconds=1.01)
        await host.set_clock(host.now - timedelta(seconds=0.9))
    while not told(host, StoreRecovered):
        await host.advance(seconds=0.05)
    await host.advance(seconds=1)
    await scheduler.stop()
    told_of = [json.loads(line) for (line,) in query(store, "SELECT line FROM trace ORDER BY seq")]
    end = next(number for number, line in enumerate(told_of) if line[0] == "RE")
    assert [line[0] for line in told_of[end:][:3]] == ["RE", "CK", "RS"]
    assert told_of[end][2] > told_of[end + 2][2]


@pytest.mark.parametrize("step", [succeeds(after=3), fails(after=3)], ids=["success", "failure"])
async def test_an_end_that_is_durable_in_its_own_instant_tells_of_no_step(
    host: SimulatedHost, store: Path, step: Step
) -> None:
    """SPEC 2.5: nobody set the clock back."""
    scheduler = host.scheduler(trace=True)
    await scheduler.initialize([registration("a", callback=Script(host, step))])
    await host.advance(minutes=2)
    await scheduler.stop()
    assert query(store, "SELECT line FROM trace WHERE line LIKE '[\"CK\"%'") == []


async def test_an_end_after_which_nothing_is_owed_wakes_nobody(host: SimulatedHost) -> None:
    """SPEC 2.4: the next poll is that of the next minute."""
    polls: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, PollStarted | TaskRunCompleted):
            polls.append(f"{event.name} {host.now:%H:%M:%S}")

    await host.scheduler(on_event=listen).initialize([registration("a", HOURLY, works(host, 5))])
    await host.advance(seconds=50)
    assert polls == ["PollStarted 12:00:30", "TaskRunCompleted 12:00:35", "PollStarted 12:01:00"]


# --- runs of replaced declarations -----------------------------------------------------------------------------------


def running(generation: int) -> Task:
    """A task of one name that runs."""
    each = task(generation, "a")
    start(each, generation, at(NOON, 60))
    return each


def test_a_declaration_waits_for_the_latest_run_of_an_earlier_one_of_its_name() -> None:
    """SPEC 5.3: two of them go on only if somebody wrote the first one off, in a shared store."""
    first, second, third = running(1), running(2), task(3, "a")
    replaced = ReplacedRuns()
    replaced.withdraw([first])
    replaced.withdraw([second])
    replaced.adopt([third, task(4, "b")])
    assert replaced.ended(first) is None
    assert third.predecessor_runs
    assert replaced.ended(second) is third
    assert not third.predecessor_runs
    assert replaced.ended(second) is None


def test_a_declaration_that_is_withdrawn_while_it_waits_is_not_waited_for() -> None:
    """SPEC 5.3: the run that it waited for goes on alone, here or on another host."""
    first, second, elsewhere = running(1), task(2, "a"), task(3, "b")
    elsewhere.predecessor_runs = True
    replaced = ReplacedRuns()
    replaced.withdraw([first])
    replaced.adopt([second])
    replaced.withdraw([second, elsewhere])
    assert replaced.ended(first) is None
