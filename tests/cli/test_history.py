"""`duly history`: runs with lateness, duration, outcome and error; filters; sparklines."""

import signal
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from duly.cli.commands.history import sparkline
from tests.cli.program import Service, Terminal, ago, duly, failing, fingerprint, simulated, write_target


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Ten minutes of a growing task, a failing one, and one that is no longer declared."""
    async with simulated(tmp_path / "state.db", ago(minutes=20).replace(second=0, microsecond=0)) as host:
        seconds = iter(range(1, 100))

        async def grows() -> None:
            await host.sleep(next(seconds))

        scheduler = host.scheduler()
        gone = ("gone", "* * * * *", grows, timedelta(hours=1))
        fails = ("fails", "* * * * *", failing, timedelta(seconds=25))
        await scheduler.initialize([("grows", "* * * * *", grows, timedelta(hours=1)), fails])
        await host.advance(minutes=4, seconds=30)
        await scheduler.initialize([gone, fails])
        await host.advance(minutes=1, seconds=45)  # nothing is under way then
        await scheduler.initialize([fails])
        await scheduler.stop()
    return tmp_path


def test_runs_are_told_with_all_that_is_known(folder: Path) -> None:
    """Due minute, start, lateness, duration, outcome, error; also of tasks that are no longer declared."""
    before = fingerprint(folder)
    told = duly("history", "grows", "--store", "state.db", "--json", folder=folder).json
    assert fingerprint(folder) == before
    assert [run["durationMs"] for run in told["runs"]] == [1000, 2000, 3000, 4000, 5000]
    assert {run["outcome"] for run in told["runs"]} == {"success"}
    assert {run["latenessMs"] for run in told["runs"]} == {0}
    assert {run["cause"] for run in told["runs"]} == {"cron"}
    starts = [datetime.fromisoformat(run["startedAt"]) for run in told["runs"]]
    assert starts == sorted(starts)
    assert told["matching"] == 5
    assert told["historyBegins"] == told["runs"][0]["startedAt"]
    assert set(told["runs"][0]) == {
        "runId", "task", "expression", "cause", "scheduledTime", "startedAt", "endedAt", "latenessMs", "durationMs",
        "outcome", "error", "attempt", "key", "traceback", "host",
    }  # fmt: skip
    assert duly("history", "gone", "--store", "state.db", "--json", folder=folder).json["matching"] == 3


def test_the_table_ends_with_a_sparkline_for_each_task(folder: Path) -> None:
    """Durations one character each, the longest highest, and a summary beside it."""
    shown = duly("history", "--store", "state.db", "--limit", "4", folder=folder, PYTHONIOENCODING="utf-8")
    lines = shown.out.splitlines()
    assert lines[0].split() == ["run", "task", "due", "start", "late", "took", "outcome", "why", "error"]
    assert len(lines[1:5]) == 4
    assert "grows  ▂▄▅▇█  5 runs, median 3 s, longest 5 s" in shown.out
    assert "fails  " in shown.out
    assert "earlier runs are not shown" in shown.err
    assert shown.code == 0


def test_one_run_that_is_not_shown_is_one_run(folder: Path) -> None:
    """Of a task with three runs, two are asked for."""
    shown = duly("history", "gone", "--store", "state.db", "--limit", "2", folder=folder)
    assert "note: 1 earlier run is not shown (--limit 0 shows all)" in shown.err


async def test_on_80_columns_names_outcomes_and_errors_are_whole(tmp_path: Path) -> None:
    """The error stands beneath its run; what there was no room for is named."""
    name = "copy-the-warehouse"
    async with simulated(tmp_path / "state.db", ago(days=2).replace(second=0, microsecond=0)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([(name, "* * * * *", failing, timedelta(seconds=25))])
        await host.advance(seconds=30)
        await scheduler.stop()
    with Terminal("history", "--store", "state.db", folder=tmp_path, columns=80, NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    lines = [line.rstrip() for line in terminal.shown.splitlines()]
    assert lines[0].split() == ["run", "task", "start", "late", "took", "outcome", "why"]
    error = "  error: ConnectionError: the upstream service is asleep"
    assert [line.split()[1] for line in (lines[1], lines[3])] == [name, name]
    assert [line.split()[-2:] for line in (lines[1], lines[3])] == [["failure", "cron"], ["retry", "#2"]]
    assert (lines[2], lines[4], lines[5]) == (error, error, "too narrow for: due")


def test_without_unicode_the_sparkline_is_plain(folder: Path) -> None:
    """A terminal that cannot show the bars gets letters instead of an error."""
    shown = duly("history", "grows", "--store", "state.db", folder=folder, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert shown.code == 0
    assert shown.out.isascii()
    assert ".:=*#" in shown.out


def test_filters_combine(folder: Path) -> None:
    """By outcome, by time and by number, on what is left the latest."""
    failed = duly("history", "--store", "state.db", "--outcome", "failure", "--json", folder=folder).json
    assert {run["task"] for run in failed["runs"]} == {"fails"}
    assert failed["runs"][0]["error"] == "ConnectionError: the upstream service is asleep"
    middle = failed["runs"][4]["startedAt"]
    since = duly("history", "--store", "state.db", "--outcome", "failure", "--since", middle, "--json", folder=folder)
    until = duly("history", "--store", "state.db", "--outcome", "failure", "--until", middle, "--json", folder=folder)
    assert since.json["runs"] == failed["runs"][4:]
    assert until.json["runs"] == failed["runs"][:4]
    both = duly("history", "--store", "state.db", "--outcome", "success", "--outcome", "failure", folder=folder)
    assert "success" in both.out
    assert "failure" in both.out
    nothing = duly("history", "--store", "state.db", "--until", "2001-01-01", folder=folder)
    assert (nothing.code, nothing.out) == (0, "")
    assert "no such runs on record; the history begins " in nothing.err


@pytest.mark.parametrize(
    "filtered", [["--since", "2100-01-01"], ["--until", "2001-01-01"], ["--outcome", "interrupted"]], ids=" ".join
)
def test_a_filter_that_no_run_passes_is_not_said_to_leave_no_runs_on_record(filtered: list[str], folder: Path) -> None:
    """The task has runs; in the table and run by run."""
    for more in ([], ["-v"]):
        nothing = duly("history", "grows", "--store", "state.db", *filtered, *more, folder=folder)
        assert (nothing.code, nothing.out) == (0, "")
        assert "no such runs of grows on record; the history begins " in nothing.err


async def test_a_task_without_runs_on_record_is_said_to_have_none(folder: Path) -> None:
    """Nothing was left out: the task has not run."""
    async with simulated(folder / "state.db", ago(minutes=10)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("yearly", "0 0 1 1 *", failing, timedelta(hours=1))])
        await scheduler.stop()
    nothing = duly("history", "yearly", "--store", "state.db", folder=folder)
    assert "no runs of yearly on record; the history begins " in nothing.err


def test_a_run_under_way_and_an_interrupted_one_are_told(tmp_path: Path) -> None:
    """History proper hears of a run when it ends; the command adds what is under way, or was cut short by a crash."""
    write_target(tmp_path, '[("backup", "* * * * *", endless, timedelta(0))]')
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("TaskRunStarted")
        (run,) = duly("history", "--store", "state.db", "--json", folder=tmp_path).json["runs"]
        assert (run["outcome"], run["endedAt"], run["durationMs"]) == ("running", None, None)
        service.send(signal.SIGKILL)
        service.end()
    (run,) = duly("history", "--store", "state.db", "--json", folder=tmp_path).json["runs"]
    assert (run["outcome"], run["endedAt"]) == ("interrupted", None)
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("TaskRunStarted")
        first, second = duly("history", "--store", "state.db", "--json", folder=tmp_path).json["runs"]
    assert (first["outcome"], second["outcome"], second["cause"]) == ("interrupted", "running", "interrupted")
    assert second["latenessMs"] is None


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (["grows", "gone"], {"grows", "gone"}),
        (["g*"], {"grows", "gone"}),
        (["fails", "go??"], {"fails", "gone"}),
        (["[fg]*", "grows"], {"fails", "grows", "gone"}),
        (["grows", "grows"], {"grows"}),
    ],
)
def test_several_names_and_patterns_are_joined(asked: list[str], shown: set[str], folder: Path) -> None:
    """Orphaned tasks are found as well; each row names its task, and each task has its line of durations."""
    told = duly("history", *asked, "--store", "state.db", "--limit", "0", "--json", folder=folder).json
    everything = duly("history", "--store", "state.db", "--limit", "0", "--json", folder=folder).json["runs"]
    assert told["runs"] == [run for run in everything if run["task"] in shown]
    assert told["matching"] == len(told["runs"])
    lines = duly("history", *asked, "--store", "state.db", folder=folder).out.splitlines()
    compared = lines[lines.index("") + 1 :]
    assert {line.split()[0] for line in compared} == shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grow"], "did you mean grows?"),
        (["grows", "fail"], "did you mean fails?"),
        (["x*"], "no task matches 'x*'"),
        (["nothing-like-it"], "the store has fails, gone, grows"),
        (["--since", "yesterday"], "'yesterday' is not a moment such as"),
        (["--outcome", "late"], "'late' is not one of"),
        (["--limit", "-1"], "--limit"),
    ],
)
def test_wrong_usage_is_one_message(arguments: list[str], message: str, folder: Path) -> None:
    """Exit code 2, with a suggestion where there is one."""
    ended = duly("history", *arguments, "--store", "state.db", folder=folder)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert ended.err.count("error:") == 1


def test_a_sparkline_shows_proportions() -> None:
    """The longest is full, and nothing is empty."""
    assert sparkline([0, 50, 100]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
