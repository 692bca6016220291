"""The command line as a whole: help, version, suggestions, completion, codes, colour."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from zoneinfo import ZoneInfo

import click
import pytest

from docs.site import manual
from duly.cli import app
from duly.cli.app import COMMANDS
from duly.cli.commands.completion import SHELLS
from duly.cli.file_watch import pause
from duly.cli.output import Exit
from duly.clock import SystemClock
from duly.core.moments import instant_of
from duly.insight.moment_text import parse_duration, parse_moment
from tests.cli.program import Terminal, ago, duly, environment, nothing, simulated


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A folder with a store."""
    async with simulated(tmp_path / "state.db", ago(minutes=1)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize(
            [("täglich", "0 0 1 1 *", nothing, timedelta(0)), ("jetzt", "* * * * *", nothing, timedelta(0))]
        )
        await host.advance(seconds=1)
        await scheduler.stop()
    return tmp_path


def test_the_script_and_the_module_are_the_same_program(tmp_path: Path) -> None:
    """`duly` and `python -m duly`."""
    script = Path(sys.executable).with_name("duly")
    result = subprocess.run([script, "--version"], capture_output=True, text=True, check=True, env=environment())
    assert result.stdout == duly("--version", folder=tmp_path).out
    assert result.stdout.startswith(f"duly {version('duly')} ")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str, tmp_path: Path) -> None:
    """One line, and no traceback."""
    program = f"import sys; sys.modules[{missing!r}] = None; from duly.__main__ import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment(), cwd=tmp_path
    )
    assert result.returncode == 2
    assert result.stderr == (
        f'error: the command line of duly needs the package {missing}\nhint: pip install "duly[cli]"\n'
    )


def test_help_lists_every_command(tmp_path: Path) -> None:
    """`duly --help` in the order of the table."""
    listed = duly("--help", folder=tmp_path)
    assert listed.code == 0
    lines = listed.out.split("Commands:")[1].splitlines()
    shown = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert shown[: len(COMMANDS)] == list(COMMANDS)


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS,
        *("trace export", "import crontab", "import celery", "import apscheduler"),
        *("store sql", "store install", "store check"),
    ],
)
def test_every_command_has_help_with_an_example_and_json(command: str, tmp_path: Path) -> None:
    """`--help` with an example, and `--json`; groups leave the latter to their commands, mcp speaks a protocol."""
    text = duly(*command.split(), "--help", folder=tmp_path)
    assert (text.code, text.err) == (0, "")
    example = text.out.split("Example:")[1].split("Options:")[0]
    assert f"duly {command}" in example
    without = ("mcp", "web", "completion")  # the first two serve documents themselves, the last prints a script
    assert "--json" in text.out or "Commands:" in text.out or command in without


def test_the_summary_of_every_command_is_shown_whole(tmp_path: Path) -> None:
    """On a terminal of 80 columns, where longer ones would end in dots."""
    for group in ([], ["import"], ["trace"], ["store"]):
        shown = duly(*group, "--help", folder=tmp_path, COLUMNS="80").out
        summaries = shown.split("Commands:\n")[1].split("\n\n")[0].splitlines()
        assert [line for line in summaries if not line.endswith(".") or line.endswith("...")] == []


def test_without_a_command_there_is_help_and_a_usage_code(tmp_path: Path) -> None:
    """On standard error: a script that left out the command must not take help for a result."""
    result = duly(folder=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert "Usage: duly" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats"], "no such command: stats; did you mean status?"),
        (["frobnicate"], "no such command: frobnicate; there are run, plan"),
        (["status", "--stor", "x"], "no such option: --stor; did you mean --store?"),
        (["--frob"], "no such option: --frob\n"),
        (["status"], "Missing option '--store'"),
        (["completion"], "error: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish\n"),
        (["trace"], "Missing command"),
        (["import"], "Missing command"),
        (["status", "a", "--store", "x"], "Got unexpected extra argument"),
    ],
)
def test_wrong_usage_is_one_message_with_a_hint(arguments: list[str], message: str, tmp_path: Path) -> None:
    """Exit code 2, one error, one hint, no traceback, nothing on standard output."""
    result = duly(*arguments, folder=tmp_path)
    assert (result.code, result.out) == (Exit.USAGE, "")
    assert message in result.err
    assert result.err.count("error:") == 1
    assert result.err.count("hint:") == 1
    assert "--help" in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        *(["status", "--store", ""], ["plan", "tasks.py", "--store", ""], ["run", "tasks.py", "--store", ""]),
        *(["verify", ""], ["trace", "export", ""], ["copy", "", "b.db"], ["copy", "a.db", ""]),
    ],
    ids=" ".join,
)
def test_an_empty_name_of_a_store_is_wrong_usage(arguments: list[str], folder: Path) -> None:
    """It is what a shell makes of a variable that is not set."""
    (folder / "tasks.py").write_text("registrations = []")
    result = duly(*arguments, folder=folder)
    assert (result.code, result.out) == (Exit.USAGE, "")
    assert "it is empty: name a file or a URL, and see whether a variable is unset" in result.err
    assert "folder" not in result.err


def test_completion_knows_commands_and_options(folder: Path) -> None:
    """Bash asks through the environment, as its script sets up."""
    words = duly(folder=folder, _DULY_COMPLETE="bash_complete", COMP_WORDS="duly sta", COMP_CWORD="1")
    assert words.out.split() == ["plain,status"]
    options = duly(folder=folder, _DULY_COMPLETE="bash_complete", COMP_WORDS="duly run --log-f", COMP_CWORD="2")
    assert options.out.split() == ["plain,--log-format"]
    values = duly(folder=folder, _DULY_COMPLETE="bash_complete", COMP_WORDS="duly run --log-format j", COMP_CWORD="3")
    assert values.out.split() == ["plain,json"]


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_prints_the_script_that_packages_install(shell: str, tmp_path: Path) -> None:
    """Click's own variable of the environment prints it as well, and `share` has it."""
    printed = duly("completion", shell, folder=tmp_path)
    assert (printed.code, printed.err) == (0, "")
    assert printed.out in [text for name, text in manual.files().items() if "man" not in name]
    assert printed.out.strip() == duly(folder=tmp_path, _DULY_COMPLETE=f"{shell}_source").out.strip()


def test_the_script_of_bash_completes(tmp_path: Path) -> None:
    """In a real bash, as the documented line sets it up."""
    (tmp_path / "duly").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m duly "$@"\n')
    (tmp_path / "duly").chmod(0o755)
    typed = 'COMP_WORDS=(duly completion z); COMP_CWORD=2; _duly_completion duly z completion; echo "${COMPREPLY[@]}"'
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f'eval "$(duly completion bash)"; {typed}'],
        capture_output=True, text=True, check=False, env=environment(PATH=path), cwd=tmp_path,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("zsh\n", "")


@pytest.mark.parametrize(
    ("words", "store", "expected"),
    [
        ("duly history --store state.db j", "", ["plain,jetzt"]),
        ("duly explain ", "state.db", ["plain,jetzt", "plain,täglich"]),
        ("duly explain --store state.db t", "", ["plain,täglich"]),
        ("duly history ", "", []),
        ("duly history ", "missing.db", []),
        ("duly history ", "app.py", []),
        ("duly next --tz europe/berl", "", ["plain,Europe/Berlin"]),
        ("duly run ta", "", ["file,ta"]),
        ("duly trace ", "", ["plain,export"]),
        ("duly completion ", "", ["plain,bash", "plain,zsh", "plain,fish"]),
        ("duly verify st", "", ["file,st"]),
    ],
)
def test_completion_knows_tasks_zones_and_files(words: str, store: str, expected: list[str], folder: Path) -> None:
    """Names of tasks come from the store on the command line; without one there are none, and never an error."""
    (folder / "app.py").write_text("no store")
    number = str(len(words.split(" ")) - 1)
    result = duly(folder=folder, _DULY_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=number, DULY_STORE=store)
    assert (result.out.split(), result.err) == (expected, "")


def test_colour_only_on_a_terminal_and_not_against_no_color(folder: Path) -> None:
    """A pipe gets plain text, a terminal colour, a terminal with NO_COLOR plain text."""
    assert "\x1b[" not in duly("status", "--store", "state.db", folder=folder).out
    with Terminal("status", "--store", "state.db", folder=folder) as terminal:
        terminal.end()
    assert "\x1b[" in terminal.shown
    with Terminal("status", "--store", "state.db", folder=folder, NO_COLOR="1") as terminal:
        terminal.end()
    assert "\x1b[" not in terminal.shown


def test_every_reading_command_has_json_with_a_head(folder: Path) -> None:
    """The command, and the version of the shapes; in ASCII where the stream is, in UTF-8 elsewhere."""
    for command in ("status", "history"):
        document = duly(command, "--store", "state.db", "--json", folder=folder).json
        assert (document["command"], document["format"]) == (command, 1)
    ascii_only = duly("status", "--store", "state.db", "--json", folder=folder, PYTHONIOENCODING="ascii")
    assert ascii_only.out.isascii()
    assert "täglich" in [task["task"] for task in json.loads(ascii_only.out)["tasks"]]


def test_the_store_may_come_from_the_environment(folder: Path) -> None:
    """DULY_STORE stands in for --store."""
    assert duly("history", folder=folder, DULY_STORE="state.db").code == 0


def test_a_reader_that_has_enough_is_no_error_message(folder: Path) -> None:
    """`duly history | head -1` prints nothing on standard error."""
    command = f"{sys.executable} -m duly history --store state.db --json | head -c 1"
    result = subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr) == ("{", "")


# --- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-31T01:50", "2024-03-31T01:50:00+01:00"),
        ("2024-03-31 12:00:30", "2024-03-31T12:00:30+02:00"),
        ("2024-03-31", "2024-03-31T00:00:00+01:00"),
        ("2024-10-27T02:30", "2024-10-27T02:30:00+02:00"),
        ("2024-10-27T02:30+01:00", "2024-10-27T02:30:00+01:00"),
        ("2024-03-31T00:00Z", "2024-03-31T01:00:00+01:00"),
        ("01:50", "2024-04-01T01:50:00+02:00"),
        ("9:05", "2024-04-01T09:05:00+02:00"),
        ("now", "2024-04-01T12:00:00+02:00"),
        ("2h", "2024-04-01T10:00:00+02:00"),
        ("1d12h", "2024-03-30T23:00:00+01:00"),
    ],
)
def test_moments_are_read_as_people_write_them(text: str, expected: str) -> None:
    """In a zone, with an offset, of today, or as time passed: `2h` counts real hours, not those of the wall clock."""
    at = instant_of(datetime(2024, 4, 1, 12, 0, tzinfo=ZoneInfo("Europe/Berlin")))
    assert parse_moment(text, ZoneInfo("Europe/Berlin"), at).isoformat() == expected


@pytest.mark.parametrize(
    "text", ["0001-01-01", "0001-01-02T23:59", "0001-01-01T00:00+14:00", "9999-12-30", "9999-12-31T23:59Z", "700000d"]
)
@pytest.mark.parametrize("zone", ["America/Adak", "UTC", "Pacific/Kiritimati"])
def test_a_moment_outside_of_the_calendar_is_refused(text: str, zone: str) -> None:
    """The minutes around it could not be shown in every zone."""
    with pytest.raises(ValueError, match="is outside of the calendar, which goes from 0001-01-03 to 9999-12-29"):
        parse_moment(text, ZoneInfo(zone), instant_of(datetime(1900, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize("text", ["", "soon", "25:00", "2024-13-01", "3", "--2h", "2h later", "99999999d"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    """With a ValueError, which the command line turns into one message."""
    with pytest.raises(ValueError):
        parse_moment(text, UTC, instant_of(ago(minutes=0)))


def test_durations_are_read_as_people_write_them() -> None:
    """Numbers with units, added up; anything else is refused."""
    assert parse_duration("1h30m") == timedelta(minutes=90)
    assert parse_duration("1.5s") == timedelta(seconds=1.5)
    assert parse_duration("250ms") == timedelta(milliseconds=250)
    for text in ("", "5", "5x", "m5", "1 h", "9" * 400 + "d"):
        with pytest.raises(ValueError):
            parse_duration(text)


async def test_one_pause_after_the_other_takes_its_time() -> None:
    """A clock sets the event that it is given: with one event for both, the second pause would not wait."""
    clock = SystemClock()
    begun = clock.elapsed()
    await pause(clock, 20_000)
    await pause(clock, 20_000)
    assert clock.elapsed() - begun >= 0.039


def _all_commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, group
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _all_commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(path, each, id=" ".join(path)) for path, each in _all_commands(app.duly)]
)
def test_help_is_whole_and_speaks_of_values_in_words(path: tuple[str, ...], command: click.Command) -> None:
    """No summary is cut on a terminal of 80 columns, and no value is named after a type of Python or of click."""
    context = click.Context(command, info_name=" ".join(("duly", *path)), terminal_width=80)
    text = command.get_help(context)
    summaries = text.partition("Commands:")[2]
    assert "..." not in summaries
    values = [each for each in command.params if isinstance(each, click.Option) and not each.is_flag]
    for option in values:
        shown = option.make_metavar(context)
        assert isinstance(option.type, click.Choice) or re.fullmatch("[A-Z]+([=/|.][A-Z.]+)*", shown), shown
        assert not shown.startswith(("INTEGER", "TEXT", "FLOAT", "FILENAME"))


@pytest.mark.parametrize("text", ["90m", "-90m", "90m ago", "1h30m ago"])
def test_a_duration_means_that_long_ago_however_it_is_written(text: str) -> None:
    """`--since -90m` is what some tools want."""
    at = instant_of(datetime(2024, 5, 1, 12, tzinfo=UTC))
    assert parse_moment(text, UTC, at) == datetime(2024, 5, 1, 10, 30, tzinfo=UTC)


@pytest.mark.parametrize(("text", "reason"), [("yesterday", ", now"), ("2024-13-01", "(month must be in 1..12")])
def test_what_is_not_a_moment_gets_a_reason_without_the_words_of_python(text: str, reason: str) -> None:
    """The message says what is wrong with a number, and not that a text is not in ISO format."""
    with pytest.raises(ValueError, match="is not a moment such as") as caught:
        parse_moment(text, UTC, instant_of(datetime(2024, 5, 1, tzinfo=UTC)))
    assert reason in str(caught.value)
    assert "isoformat" not in str(caught.value)
