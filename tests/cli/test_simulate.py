"""`duly simulate`: the real scheduler through simulated time, with stand-in callbacks."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly.cli.plotting import load_per_minute
from duly.cli.simulation import Outcome, Scenario, Tally, drawn, let_pass
from duly.core.registration import read_registrations
from duly.core.steps import finish
from duly.testing import SimulatedHost
from tests.cli.program import Terminal, duly, nothing, write_target

BERLIN = ZoneInfo("Europe/Berlin")
TASKS = (
    '[("backup", "30 2 * * *", quick, timedelta(minutes=5)), ("poll", "0,30 * * * *", broken, timedelta(minutes=1))]'
)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).astimezone(UTC)


async def simulated(begin: str, end: str, tasks: Sequence[tuple[str, str]], **what: Any) -> Outcome:
    declared = [(name, cron, nothing, timedelta(minutes=5)) for name, cron in tasks]
    scenario = Scenario(
        list(finish(read_registrations(declared)).singles()), moment(begin), moment(end), BERLIN, **what
    )
    return await let_pass(scenario)


def tally(outcome: Outcome, name: str) -> Tally:
    return next(each for each in outcome.tallies if each.task == name)


def clock(outcome: Outcome) -> list[str]:
    return [f"{run.at.astimezone(BERLIN):%d %H:%M:%S}" for run in outcome.runs]


async def test_every_due_minute_starts_once_and_skipped_ones_are_counted() -> None:
    """SPEC 2.2, 2.3: over both changes of the clocks."""
    spring = await simulated("2024-03-30T00:00", "2024-04-02T00:00", [("t", "30 2 * * *"), ("h", "0 * * * *")])
    assert clock(spring)[:2] == ["30 00:00:00", "30 01:00:00"]
    assert (tally(spring, "t").starts, tally(spring, "t").skipped) == (2, 1)
    assert (tally(spring, "h").starts, tally(spring, "h").skipped) == (71, 1)
    autumn = await simulated("2024-10-27T00:00", "2024-10-28T00:00", [("h", "0 * * * *")])
    assert (tally(autumn, "h").starts, tally(autumn, "h").repeated) == (24, 1)


async def test_the_end_is_not_part_of_the_stretch() -> None:
    """A day has as many starts as due minutes, not one more."""
    outcome = await simulated("2024-05-01T00:00", "2024-05-02T00:00", [("t", "0 0 * * *")])
    assert clock(outcome) == ["01 00:00:00"]


async def test_downtime_is_served_once() -> None:
    """SPEC 3.2: one start for all that was missed; the summary counts them and how late the first one was."""
    down = [(moment("2024-05-01T01:10"), moment("2024-05-01T05:00"))]
    outcome = await simulated("2024-05-01T00:00", "2024-05-01T06:00", [("t", "0 * * * *")], down=down)
    assert clock(outcome) == ["01 00:00:00", "01 01:00:00", "01 05:00:00"]
    assert (outcome.runs[2].serves, outcome.runs[2].missed) == (4, 3)
    assert (tally(outcome, "t").missed, tally(outcome, "t").longest_lateness) == (3, 3 * 3600)


async def test_a_stop_waits_for_what_runs() -> None:
    """SPEC 4.3: `--down` is graceful; a run under way ends, and succeeds."""
    down = [(moment("2024-05-01T00:10"), moment("2024-05-01T00:20"))]
    outcome = await simulated(
        "2024-05-01T00:00", "2024-05-01T03:00", [("t", "0 * * * *")], down=down, durations={"t": 3000}
    )
    assert [run.outcome for run in outcome.runs] == ["success", "success", "success"]
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
    assert [(run.cause, run.outcome) for run in outcome.runs] == [
        ("cron", "success"),
        ("cron", "interrupted"),
        ("interrupted", "success"),
    ]
    assert clock(outcome)[2] == "01 01:00:10"
    assert (tally(outcome, "t").interrupted, tally(outcome, "t").restarts) == (1, 1)


async def test_a_crash_while_it_is_down_is_noted() -> None:
    """There is nothing to kill, and the reader hears of it."""
    down = [(moment("2024-05-01T00:10"), moment("2024-05-01T00:50"))]
    crashes = [moment("2024-05-01T00:30")]
    outcome = await simulated("2024-05-01T00:00", "2024-05-01T02:00", [("t", "0 * * * *")], down=down, crashes=crashes)
    assert outcome.notes == ["the crash at 2024-05-01 00:30 found nothing running"]
    assert len(outcome.runs) == 2


async def test_failures_come_at_their_rate_and_are_retried() -> None:
    """SPEC 3.4: each failure is followed by a retry, or by the next due minute."""
    outcome = await simulated(
        "2024-05-01T00:00", "2024-05-11T00:00", [("t", "0 * * * *"), ("sound", "0 * * * *")], failure_rates={"t": 0.3}
    )
    counted = tally(outcome, "t")
    assert 0.2 < counted.failures / counted.starts < 0.4
    assert counted.retries == counted.failures
    assert tally(outcome, "sound").failures == 0


async def test_another_task_does_not_change_this_ones_luck() -> None:
    """The same seed, the same failures of the same task, whatever else is simulated; another seed, others."""
    stretch = ("2024-05-01T00:00", "2024-05-03T00:00")
    rates = {"t": 0.5, "u": 0.5}
    alone = await simulated(*stretch, [("t", "0 * * * *")], failure_rates=rates)
    beside = await simulated(*stretch, [("u", "5 * * * *"), ("t", "0 * * * *")], failure_rates=rates)
    other = await simulated(*stretch, [("t", "0 * * * *")], failure_rates=rates, seed=1)

    def luck(outcome: Outcome) -> list[tuple[datetime, str]]:
        return [(run.at, run.outcome) for run in outcome.runs if run.task == "t"]

    assert luck(alone) == luck(beside)
    assert luck(alone) != luck(other)
    assert 0 <= drawn(0, "t", 1) < 1


async def test_what_is_owed_at_the_end_is_told() -> None:
    """A stretch that ends in downtime leaves something owed."""
    down = [(moment("2024-05-01T01:10"), moment("2024-05-01T04:00"))]
    outcome = await simulated("2024-05-01T00:00", "2024-05-01T04:00", [("t", "0 * * * *")], down=down)
    assert (tally(outcome, "t").starts, tally(outcome, "t").still_owed) == (2, 2)


async def test_the_load_counts_starts_and_callbacks_under_way() -> None:
    """What `--plot` draws below the timeline."""
    outcome = await simulated(
        "2024-05-01T00:00", "2024-05-01T00:10", [("a", "0 * * * *"), ("b", "1 * * * *")], durations={"a": 120, "b": 30}
    )
    minutes, starts, under_way = load_per_minute(outcome)
    assert [(f"{minute:%M}", *numbers) for minute, *numbers in zip(minutes, starts, under_way, strict=True)] == [
        ("00", 1, 1),
        ("01", 1, 2),
        ("02", 0, 1),
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


# --- the program -----------------------------------------------------------------------------------------------------


def test_a_timeline_and_a_summary(tmp_path: Path) -> None:
    """Starts with their lateness, and one line for each task; callbacks of the target are not called."""
    target = write_target(tmp_path, TASKS)
    done = duly(
        "simulate", target, "--from", "2024-03-30", "--to", "2024-04-02", "--down",
        "2024-04-01T01:10..2024-04-01T06:00", "--limit", "0", folder=tmp_path, TZ="Europe/Berlin",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "2 tasks, 2024-03-30 00:00 to 2024-04-02 00:00, Europe/Berlin: 135 starts"
    assert "Mon 2024-04-01 01:10:00  stopped" in lines
    assert "Mon 2024-04-01 06:00:00  backup  success      late by 3 h 30 min" in lines
    assert "Mon 2024-04-01 06:00:00  poll    success      late by 4 h 30 min, serves 10 occurrences" in lines
    [row] = [line.split() for line in lines if line.startswith("backup ")]
    assert row == ["backup", "2", "-", "-", "-", "1", "1", "-", "2024-04-01", "06:00", "3", "h", "30", "min"]
    assert not list(tmp_path.glob("*.db*"))


def test_the_json_shape(tmp_path: Path) -> None:
    """docs/commands.md, simulate: all starts, whatever --limit says."""
    target = write_target(tmp_path, TASKS)
    done = duly(
        "simulate", target, "--from", "2024-05-01", "--to", "2024-05-02", "--fail", "*=100%", "--duration", "poll=90s",
        "--crash-at", "2024-05-01T12:00:10", "--limit", "1", "--json", folder=tmp_path, TZ="Europe/Berlin",
    )  # fmt: skip
    assert done.code == 0, done.err
    backup, poll = done.json["tasks"]
    assert backup["failures"] == backup["starts"] > 200
    assert (poll["interrupted"], poll["restarts"]) == (1, 1)
    assert done.json["starts"][0] == {
        "task": "poll",
        "at": "2024-05-01T00:00:00+02:00",
        "cause": "cron",
        "outcome": "failure",
        "owedSince": "2024-05-01T00:00:00+02:00",
        "latenessMs": 0,
        "serves": 1,
        "durationMs": 90000,
    }
    assert len(done.json["starts"]) == backup["starts"] + poll["starts"]


@pytest.mark.parametrize("name", ["picture.svg", "picture.png"])
def test_a_picture(tmp_path: Path, name: str) -> None:
    """`--plot` draws the timeline and the load per minute."""
    target = write_target(tmp_path, TASKS)
    done = duly("simulate", target, "--from", "2024-05-01", "--to", "2024-05-02", "--plot", name, folder=tmp_path)
    assert done.code == 0, done.err
    drawn_file = (tmp_path / name).read_bytes()
    assert drawn_file.startswith(b"<?xml" if name.endswith("svg") else b"\x89PNG")
    assert len(drawn_file) > 5000


def test_without_matplotlib_it_says_what_to_install_before_it_simulates(tmp_path: Path) -> None:
    """Extra `duly[plot]`: a clear message when it is missing."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
    target = write_target(tmp_path, TASKS)
    path = f"{Path(__file__).parents[2] / 'src'}:{tmp_path}"
    done = duly(
        "simulate", target, "--from", "2024-05-01", "--to", "2034-05-02", "--plot", "p.svg", folder=tmp_path,
        PYTHONPATH=path,
    )  # fmt: skip
    assert done.code == 2
    assert 'pip install "duly[plot]"' in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fail", "bakup=1"], "did you mean backup?"),
        (["--fail", "backup=2"], "use a number from 0 to 1"),
        (["--fail", "backup"], "is not TASK=VALUE"),
        (["--duration", "poll=soon"], "not a duration"),
        (["--down", "2024-05-01T01:00"], "is not FROM..TO"),
        (["--down", "2024-05-01T03:00..2024-05-01T01:00"], "is not before"),
        (["--down", "2024-06-01..2024-06-02"], "is not between --from and --to"),
        (["--crash-at", "never"], "--crash-at: 'never' is not a moment"),
        (["--plot", "picture.txt"], "ends neither in .svg nor in .png"),
        (["--to", "2024-04-01"], "is not before --to"),
    ],
)
def test_wrong_usage(tmp_path: Path, options: list[str], message: str) -> None:
    """One clear message, the documented exit code, no traceback."""
    target = write_target(tmp_path, TASKS)
    done = duly("simulate", target, "--from", "2024-05-01", "--to", "2024-05-02", *options, folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_on_80_columns_the_summary_is_whole(tmp_path: Path) -> None:
    """Columns in which nothing is counted go first; what there is no room for is named."""
    name = "copy-the-warehouse"
    target = write_target(tmp_path, TASKS.replace("poll", name))
    what = [
        "--from", "2024-03-30", "--to", "2024-04-02", "--tz", "Europe/Berlin", "--fail", f"{name}=0.5",
        "--down", "2024-03-31T05:10..2024-03-31T08:00",
    ]  # fmt: skip
    with Terminal("simulate", target, *what, folder=tmp_path, columns=80, NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    lines = [line.rstrip() for line in terminal.shown.splitlines()]
    begin = next(number for number, line in enumerate(lines) if line.startswith("task "))
    headings, backup, copy, left_out = lines[begin : begin + 4]
    assert headings.split() == ["task", "starts", "failures", "retries", "missed", "skipped", "longest", "lateness"]
    assert backup.split() == ["backup", "2", "-", "-", "-", "1", "-"]
    assert copy.split()[0] == name
    assert left_out == "too narrow for: interrupted, repeated, latest start"
    assert max(map(len, (headings, backup, copy))) <= 80


def test_a_progress_bar_on_a_terminal_only(tmp_path: Path) -> None:
    """It is drawn on standard error, and gone at the end."""
    target = write_target(tmp_path, TASKS)
    with Terminal("simulate", target, "--from", "2024-05-01", "--to", "2024-06-01", folder=tmp_path) as terminal:
        terminal.expect("simulating")
        assert terminal.end() == 0
    assert "31" in terminal.shown


@pytest.mark.slow
@pytest.mark.skipif(sys.gettrace() is not None, reason="tracing makes it ten times slower")
async def test_a_year_of_a_hundred_daily_tasks() -> None:
    """About 36,500 runs; one for each due minute that exists, and the progress told only grows, to 1."""
    tasks = [(f"t{number}", f"{number * 7 % 60} {number * 5 % 24} * * *") for number in range(100)]
    shares: list[float] = []
    declared = [(name, cron, nothing, timedelta(minutes=5)) for name, cron in tasks]
    registrations = list(finish(read_registrations(declared)).singles())
    scenario = Scenario(registrations, moment("2024-01-01T00:00"), moment("2025-01-01T00:00"), BERLIN)
    outcome = await let_pass(scenario, shares.append)
    assert len(outcome.runs) == 100 * 366 - sum(each.skipped for each in outcome.tallies)
    assert sum(each.skipped for each in outcome.tallies) > 0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
