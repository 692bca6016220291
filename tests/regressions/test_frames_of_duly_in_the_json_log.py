"""The traceback of a failure in the JSON log began with frames of duly, which the text log and history leave out."""

import json
from pathlib import Path

import pytest

from tests.cli.program import Service, duly

TARGET = """
from datetime import timedelta

def upstream():
    raise ConnectionError("the upstream service is asleep")

def blocking():
    upstream()

async def coroutine():
    upstream()

def raises():
    try:
        upstream()
    except ConnectionError as error:
        raise RuntimeError("no stock") from error

registrations = [(each.__name__, "* * * * *", each, timedelta(hours=5)) for each in (blocking, coroutine, raises)]
"""


def frames(traceback: str) -> list[str]:
    """The functions of its frames."""
    return [line.rpartition(" in ")[2] for line in traceback.splitlines() if line.startswith("  File ")]


SHOWN = {
    "blocking": ["blocking", "upstream"],
    "coroutine": ["coroutine", "upstream"],
    "raises": ["raises", "upstream", "raises"],  # the cause, and then what was raised from it
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with tasks that fail."""
    (tmp_path / "tasks.py").write_text(TARGET)
    return tmp_path


@pytest.mark.parametrize("task", SHOWN)
def test_the_json_of_one_run_by_hand_has_the_frames_of_the_callback(folder: Path, task: str) -> None:
    """And the same ones as the text."""
    done = duly("run", "--once", task, "tasks.py", "--log-format", "json", folder=folder)
    *_, failed = map(json.loads, done.out.splitlines())
    assert (done.code, failed["event"]) == (1, "TaskRunFailed")
    assert frames(failed["traceback"]) == SHOWN[task]
    assert failed["traceback"].startswith("Traceback (most recent call last):\n")
    text = duly("run", "--once", task, "tasks.py", "--log-format", "text", folder=folder)
    assert frames(text.out) == SHOWN[task]


def test_the_json_log_of_a_scheduler_has_the_tracebacks_of_history(folder: Path) -> None:
    """To the letter."""
    with Service("tasks.py", "--store", "state.db", folder=folder) as service:
        failures = [service.expect("TaskRunFailed") for _ in SHOWN]
    logged = {each["taskName"]: each["traceback"] for each in failures}
    done = duly("history", "-v", "--store", "state.db", "--json", folder=folder)
    assert {run["task"]: run["traceback"] for run in done.json["runs"]} == logged
    assert {name: frames(traceback) for name, traceback in logged.items()} == SHOWN
