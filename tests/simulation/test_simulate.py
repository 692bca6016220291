"""What-if simulations: the real scheduler on a simulated host, with stand-ins for the callbacks."""

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly.core.moments import Instant, as_datetime, instant_of
from duly.core.registration import Registration, read_registrations
from duly.core.steps import finish
from duly.insight.json_form import json_form
from duly.simulation.plot import Load, load_per_minute
from duly.simulation.result import Simulation, TaskSummary
from duly.simulation.scenario import Downtime, Scenario
from duly.simulation.simulate import drawn, run_scenario
from duly.testing import SimulatedHost

BERLIN = ZoneInfo("Europe/Berlin")


async def nothing() -> None:
    """A callback that succeeds."""


def moment(text: str) -> Instant:
    return instant_of(datetime.fromisoformat(text).replace(tzinfo=BERLIN))


def registrations(tasks: Sequence[tuple[str, str]]) -> list[Registration]:
    return list(
        finish(read_registrations([(name, cron, nothing, timedelta(minutes=5)) for name, cron in tasks])).singles()
    )


async def simulated(begin: str, end: str, tasks: Sequence[tuple[str, str]], **what: Any) -> Simulation:
    return await run_scenario(Scenario(registrations(tasks), moment(begin), moment(end), BERLIN, **what))


def summary(outcome: Simulation, name: str) -> TaskSummary:
    return next(each for each in outcome.tasks if each.task == name)


def clock(outcome: Simulation) -> list[str]:
    return [f"{as_datetime(start.at, BERLIN):%d %H:%M:%S}" for start in outcome.starts]


async def test_every_due_minute_starts_once_and_skipped_ones_are_counted() -> None:
    """SPEC 2.2, 2.3: over both changes of the clocks."""
    spring = await simulated("2024-03-30T00:00", "2024-04-02T00:00", [("t", "30 2 * * *"), ("h", "0 * * * *")])
    assert clock(spring)[:2] == ["30 00:00:00", "30 01:00:00"]
    assert (summary(spring, "t").starts, summary(spring, "t").skipped) == (2, 1)
    assert (summary(spring, "h").starts, summary(spring, "h").skipped) == (71, 1)
    autumn = await simulated("2024-10-27T00:00", "2024-10-28T00:00", [("h", "0 * * * *")])
    assert (summary(autumn, "h").starts, summary(autumn, "h").repeated) == (24, 1)


async def test_the_end_is_not_part_of_the_stretch() -> None:
    """A day has as many starts as due minutes, not one more."""
    outcome = await simulated("2024-05-01T00:00", "2024-05-02T00:00", [("t", "0 0 * * *")])
    assert clock(outcome) == ["01 00:00:00"]


async def test_downtime_is_served_once() -> None:
    """SPEC 3.2: one start for all that was missed; the summary counts them and how late the first one was."""
    down = [Downtime(moment("2024-05-01T01:10"), moment("2024-05-01T05:00"))]
    outcome = await simulated("2024-05-01T00:00", "2024-05-01T06:00", [("t", "0 * * * *")], down=down)
    assert clock(outcome) == ["01 00:00:00", "01 01:00:00", "01 05:00:00"]
    assert outcome.starts[2].serves == 4
    assert (summary(outcome, "t").missed, summary(outcome, "t").longest_lateness_ms) == (3, 3 * 3_600_000)


async def test_a_stop_waits_for_what_runs() -> None:
    """SPEC 4.3: `--down` is graceful; a run under way ends, and succeeds."""
    down = [Downtime(moment("2024-05-01T00:10"), moment("2024-05-01T00:20"))]
    outcome = await simulated(
        "2024-05-01T00:00", "2024-05-01T03:00", [("t", "0 * * * *")], down=down, durations={"t": 3000}
    )
    assert [run.outcome for run in outcome.starts] == ["success", "success", "success"]
    assert clock(outcome)[1] == "01 01:00:00"


async def test_a_crash_interrupts_and_the_run_is_started_again() -> None:
    """SPEC 3.7: at once."""
    outcome = await simulated(
        "2024-05-01T00:00",
        "2024-05-01T02:00",
        [("t", "0 * * * *")],
        crashes=[moment("2024-05-01T01:00:10")],
        durations={"t": 60},
    )
    assert [(run.cause, run.outcome) for run in outcome.starts] == [
        ("cron", "success"),
        ("cron", "interrupted"),
        ("interrupted", "success"),
    ]
    assert clock(outcome)[2] == "01 01:00:10"
    assert (summary(outcome, "t").interrupted, summary(outcome, "t").restarts) == (1, 1)


async def test_a_crash_while_it_is_down_is_noted() -> None:
    """There is nothing to kill, and a note says so."""
    down = [Downtime(moment("2024-05-01T00:10"), moment("2024-05-01T00:50"))]
    crashes = [moment("2024-05-01T00:30")]
    outcome = await simulated("2024-05-01T00:00", "2024-05-01T02:00", [("t", "0 * * * *")], down=down, crashes=crashes)
    assert outcome.notes == ["the crash at 2024-05-01 00:30 found nothing running"]
    assert len(outcome.starts) == 2


async def test_failures_come_at_their_rate_and_are_retried() -> None:
    """SPEC 3.4: each failure is followed by a retry, or by the next due minute."""
    outcome = await simulated(
        "2024-05-01T00:00", "2024-05-11T00:00", [("t", "0 * * * *"), ("sound", "0 * * * *")], failure_rates={"t": 0.3}
    )
    counted = summary(outcome, "t")
    assert 0.2 < counted.failures / counted.starts < 0.4
    assert counted.retries == counted.failures
    assert summary(outcome, "sound").failures == 0


async def test_another_task_does_not_change_which_runs_fail() -> None:
    """Failures depend on the seed and the task alone, whatever else is simulated."""
    stretch = ("2024-05-01T00:00", "2024-05-03T00:00")
    rates = {"t": 0.5, "u": 0.5}
    alone = await simulated(*stretch, [("t", "0 * * * *")], failure_rates=rates)
    beside = await simulated(*stretch, [("u", "5 * * * *"), ("t", "0 * * * *")], failure_rates=rates)
    other = await simulated(*stretch, [("t", "0 * * * *")], failure_rates=rates, seed=1)

    def luck(outcome: Simulation) -> list[tuple[Instant, str]]:
        return [(run.at, run.outcome) for run in outcome.starts if run.task == "t"]

    assert luck(alone) == luck(beside)
    assert luck(alone) != luck(other)
    assert 0 <= drawn(0, "t", 1) < 1


async def test_the_summary_counts_what_is_owed_at_the_end() -> None:
    """A stretch that ends in downtime leaves something owed."""
    down = [Downtime(moment("2024-05-01T01:10"), moment("2024-05-01T04:00"))]
    outcome = await simulated("2024-05-01T00:00", "2024-05-01T04:00", [("t", "0 * * * *")], down=down)
    assert (summary(outcome, "t").starts, summary(outcome, "t").still_owed) == (2, 2)


async def test_the_load_counts_starts_and_callbacks_under_way() -> None:
    """The picture of `--plot` below the timeline."""
    outcome = await simulated(
        "2024-05-01T00:00", "2024-05-01T00:10", [("a", "0 * * * *"), ("b", "1 * * * *")], durations={"a": 120, "b": 30}
    )
    assert load_per_minute(outcome) == [
        Load(moment("2024-05-01T00:00"), starts=1, under_way=1),
        Load(moment("2024-05-01T00:01"), starts=1, under_way=2),
        Load(moment("2024-05-01T00:02"), starts=0, under_way=1),
    ]


async def test_a_simulation_has_one_json_form() -> None:
    """Moments in the zone that was simulated, as docs/commands.md describes it."""
    down = [Downtime(moment("2024-05-01T01:10"), moment("2024-05-01T05:00"))]
    outcome = await simulated("2024-05-01T00:00", "2024-05-01T06:00", [("t", "0 * * * *")], down=down)
    form = json_form(outcome, BERLIN)
    assert list(form) == ["zone", "from", "to", "seed", "down", "crashes", "notes", "tasks", "starts"]
    assert form["down"] == [{"from": "2024-05-01T01:10:00+02:00", "to": "2024-05-01T05:00:00+02:00"}]
    assert form["tasks"] == [
        {
            "task": "t",
            "expression": "0 * * * *",
            "starts": 3,
            "failures": 0,
            "retries": 0,
            "interrupted": 0,
            "restarts": 0,
            "missed": 3,
            "skipped": 0,
            "repeated": 0,
            "latest": "2024-05-01T05:00:00+02:00",
            "longestLatenessMs": 10_800_000,
            "stillOwed": 0,
        }
    ]


async def test_looks_that_are_left_out_change_nothing() -> None:
    """A simulated host without idle looks: the same starts, retries and ends, at the same instants."""

    async def starts(*, idle_looks: bool) -> list[str]:
        async with SimulatedHost("2024-10-26T22:00:30", BERLIN, idle_looks=idle_looks) as host:
            count = 0

            async def flaky() -> None:
                nonlocal count
                count += 1
                await host.sleep(200 if count % 4 == 0 else 100)
                if count % 3 == 0:
                    raise OSError("every third")

            tasks = [("a", "0,7 * * * *", flaky, timedelta(seconds=90)), ("b", "* 2 * * *", nothing, timedelta(1))]
            await host.scheduler(run_timeout=timedelta(seconds=190)).initialize(tasks)
            await host.advance(hours=3)
            await host.jump(hours=3)
            await host.advance(hours=4)
            return [f"{event.name} {event.fields}" for event in host.events]

    all_of_it = await starts(idle_looks=True)
    assert {line.split()[0] for line in all_of_it} >= {"TaskRunFailed", "TaskRetryStarted", "TaskRunOverdue"}
    assert await starts(idle_looks=False) == all_of_it


async def test_a_clock_that_is_set_is_noticed_without_idle_looks_too() -> None:
    """SPEC 2.5: what was jumped over is missed, and served once."""
    async with SimulatedHost("2024-05-01T12:00:30", BERLIN, idle_looks=False) as host:
        await host.scheduler().initialize([("t", "0 0 * * *", nothing, timedelta(1))])
        await host.set_clock("2024-05-02T12:00:30")
        await host.advance(minutes=1)
        assert [event.name for event in host.events if event.name in ("ClockJumped", "TaskRunStarted")] == [
            "ClockJumped",
            "TaskRunStarted",
        ]


@pytest.mark.slow
@pytest.mark.skipif(sys.gettrace() is not None, reason="tracing makes it ten times slower")
async def test_a_year_of_a_hundred_daily_tasks() -> None:
    """About 36,500 runs, one for each due minute that exists; the reported progress only grows, up to 1."""
    tasks = [(f"t{number}", f"{number * 7 % 60} {number * 5 % 24} * * *") for number in range(100)]
    shares: list[float] = []
    scenario = Scenario(registrations(tasks), moment("2024-01-01T00:00"), moment("2025-01-01T00:00"), BERLIN)
    outcome = await run_scenario(scenario, shares.append)
    assert len(outcome.starts) == 100 * 366 - sum(each.skipped for each in outcome.tasks)
    assert sum(each.skipped for each in outcome.tasks) > 0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
