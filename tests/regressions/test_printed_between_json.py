"""Prints of TARGET while it was imported, and of callbacks, stood between the JSON of a command."""

import json
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly.cli.streams import PrintedLines
from duly.run_context import CurrentRun, entered
from tests.cli.program import Service, Terminal, duly, environment
from tests.conftest import require

NOISY = r"""
import os, subprocess, sys
from datetime import timedelta

print("loaded", flush=True)
subprocess.run(["echo", "loaded by a child"], check=True)

def job():
    print("half", "a line", end=" ")
    print("and\nthe rest")
    print(b"\xff\xe9".decode("latin-1"), "\udc80", flush=True)
    sys.stdout.write("not ended")
    sys.stdout.buffer.write(b"")
    sys.stderr.write("to standard error\n")
    subprocess.run(["echo", "by a child"], stdout=sys.stdout, check=True)
    os.system("echo by another child")

def make():
    print("called")
    return registrations

registrations = [("job", "* * * * *", job, timedelta(minutes=5))]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a target that prints."""
    (tmp_path / "noisy.py").write_text(NOISY)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "noisy.py:make", "--store", "state.db", "--json"),
        ("next", "noisy.py:make", "--json"),
        ("simulate", "noisy.py:make", "--from", "2024-05-01T12:00", "--to", "2024-05-01T12:05", "--json"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_json_is_json_while_a_target_prints(folder: Path, arguments: tuple[str, ...]) -> None:
    """Its prints, and those of its child processes, go to standard error."""
    done = duly(*arguments, folder=folder)
    assert (done.code, done.json["command"]) == (0, arguments[0])
    assert done.err.splitlines() == ["loaded", "loaded by a child", "called"]


def test_what_an_importer_loads_may_print(folder: Path) -> None:
    """`duly import` writes Python to standard output."""
    (folder / "app.py").write_text(
        "from celery import Celery\nfrom celery.schedules import crontab\nprint('loaded')\n"
        "app = Celery()\napp.conf.timezone = 'Africa/Lagos'\n"
        "app.conf.beat_schedule = {'a': {'task': 'a', 'schedule': crontab(hour=3, minute=0)}}\n"
    )
    done = duly("import", "celery", "app.py:app", folder=folder)
    assert (done.code, done.err.splitlines()[0]) == (0, "loaded"), done
    compile(done.out, "imported", "exec")


def test_prints_are_records_of_the_json_log(folder: Path) -> None:
    """Every line of standard output is JSON; `Service` reads each of them as such."""
    with Service("noisy.py:make", "--store", "state.db", folder=folder) as service:
        service.expect("TaskRunCompleted")
        service.send(signal.SIGTERM)
        ended = service.end()
    printed = [line["message"] for line in service.lines if line["event"] == "LogRecord" and line["logger"] == "stdout"]
    assert printed == ["loaded", "called", "half a line and", "the rest", "ÿé \\udc80", "not ended"]
    assert ended.code == 0
    others = ["loaded by a child", "to standard error", "by a child", "by another child"]
    assert ended.err.splitlines() == others


IN_THREADS = """
import sys, threading
from datetime import timedelta

together = threading.Barrier(3)

def job(name):
    for part in range(3):
        together.wait(60)
        print(name, part, end=" ", flush=part == 1)
    together.wait(60)
    print("ends" if name == "a" else "", end="\\n" if name == "a" else "")
    sys.stdout.buffer.write(b"of " + name.encode())

registrations = [(name, "* * * * *", lambda name=name: job(name), timedelta(minutes=5)) for name in "abc"]
"""


def test_parts_of_lines_are_joined_with_those_of_the_same_run(tmp_path: Path) -> None:
    """Callbacks in threads print parts of lines in turns; they were joined under the run that ended the line."""
    (tmp_path / "threads.py").write_text(IN_THREADS)
    with Service("threads.py", "--store", "state.db", folder=tmp_path) as service:
        ended = {(line["taskName"], line["runId"]) for line in (service.expect("TaskRunCompleted") for _ in range(3))}
        before_the_end = len(service.lines)
        service.send(signal.SIGTERM)
        assert service.end().code == 0
    printed = [line for line in service.lines if line.get("logger") == "stdout"]
    assert sorted((line["taskName"], line["message"]) for line in printed) == [
        ("a", "a 0 a 1 a 2 ends"),
        ("a", "of a"),
        ("b", "b 0 b 1 b 2 of b"),
        ("c", "c 0 c 1 c 2 of c"),
    ]
    assert {(line["taskName"], line["runId"]) for line in printed} == ended
    assert all(line in service.lines[:before_the_end] for line in printed)  # not when the process ends


def test_nothing_is_kept_of_a_run_that_has_ended() -> None:
    """A service runs for months."""
    at = datetime(2024, 1, 1, tzinfo=UTC)
    taken: list[tuple[str, int | None]] = []
    lines = PrintedLines(lambda line, run: taken.append((line, None if run is None else run.run_id)))
    lines.write(b"outside")
    for number in range(1, 4):
        with entered(CurrentRun("job", number, at, at, "manual", 1, "key")):
            lines.write(b"half" if number < 3 else b"x" * 70_000)
        lines.end_run("job", number)
    assert list(lines._begun) == [None]
    lines.write(b" of them\r\nlast")
    lines.close()
    assert taken == [("half", 1), ("half", 2), ("x" * 70_000, 3), ("outside of them", None), ("last", None)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_end_of_a_line_that_was_handed_on_makes_no_empty_one(end: str) -> None:
    """`print` writes it apart from the text; an empty line that was meant is handed on."""
    taken: list[str] = []
    lines = PrintedLines(lambda line, _run: taken.append(line))
    for written in ("x" * 70_000, "", end, end, "y" * 70_000, f"rest{end}", end, "z" * 70_000, f"{end}after{end}"):
        lines.write(written.encode())
    assert taken == ["x" * 70_000, "", "y" * 70_000, "rest", "", "z" * 70_000, "after"]


def test_prints_stay_prints_in_the_log_for_people(folder: Path) -> None:
    """On a terminal they stand between the lines, as they were printed."""
    with Terminal("run", "noisy.py:make", "--store", "state.db", folder=folder) as terminal:
        terminal.expect("half a line and\r\nthe rest\r\n")
        terminal.expect("by another child")
        terminal.press_until("\x03", "stopping")  # os.system() ignores Ctrl-C while its child runs
        assert terminal.end() == 0


@pytest.mark.system
def test_the_documented_pipe_into_jq_passes_over_what_is_not_json(folder: Path) -> None:
    """docs/operations.md: the journal has standard error, too."""
    log = 'by a child\n{"level": "warning", "event": "ClockJumped"}\nTraceback: x\n{"level": "info"}\n'
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert """| jq -R 'fromjson? | select(.level == "warning")'`""" in page
    require("jq", "apt-get install jq")
    done = subprocess.run(
        ["jq", "-c", "-R", 'fromjson? | select(.level == "warning")'],
        input=log,
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert json.loads(done.stdout)["event"] == "ClockJumped"
