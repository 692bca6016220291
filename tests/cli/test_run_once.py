"""`duly run --once`: one task by hand, without a store; and `--tz`, another zone than the host's."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.program import Outcome, Service, duly

TARGET = """
import asyncio, datetime, pathlib, sys, threading, time
from datetime import timedelta

import duly

def note(text):
    pathlib.Path("noted").write_text(text)

async def ok():
    run = duly.current_run()
    note(f"{run.task} {run.cause} {run.attempt} {run.started_at == run.scheduled_time} {run.key.partition('/')[0]}")

def blocking():
    note(f"{duly.current_run().task} {threading.current_thread() is threading.main_thread()}")

def returns_a_coroutine():
    return ok()

async def fails():
    raise ConnectionError("the upstream service is asleep")

def leaves():
    sys.exit(3)

async def cancels():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)

async def endless():
    await asyncio.Event().wait()

def zone():
    note(f"{datetime.datetime.now().astimezone().tzname()} {time.tzname[0]}")

DELAY = timedelta(minutes=1)
registrations = [(each.__name__, "0 0 1 1 *", each, DELAY) for each in
    (ok, blocking, returns_a_coroutine, fails, leaves, cancels, endless, zone)]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TARGET)
    return tmp_path


def once(folder: Path, task: str, *options: str) -> Outcome:
    return duly("run", "--once", task, "tasks.py", *options, folder=folder)


@pytest.mark.parametrize(
    ("task", "noted"),
    [
        ("ok", "ok manual 1 True ok"),
        ("blocking", "blocking False"),
        ("returns_a_coroutine", "returns_a_coroutine manual 1 True returns_a_coroutine"),
    ],
)
def test_a_task_runs_once_and_knows_that_it_was_started_by_hand(folder: Path, task: str, noted: str) -> None:
    """SPEC 10.1: `current_run()` is set; coroutine functions run on the event loop, others in a thread."""
    done = once(folder, task)
    assert (done.code, done.err) == (0, "")
    assert (folder / "noted").read_text() == noted
    started, completed = map(json.loads, done.out.splitlines())
    assert (started["event"], started["taskName"], started["cause"]) == ("TaskRunStarted", task, "manual")
    assert completed["event"] == "TaskRunCompleted"
    assert sorted(each.name for each in folder.iterdir()) == ["noted", "tasks.py"]  # no store


@pytest.mark.parametrize(
    ("task", "options", "error"),
    [
        ("fails", [], "ConnectionError: the upstream service is asleep"),
        ("leaves", [], "SystemExit: 3"),
        ("cancels", [], "CancelledError"),
        ("endless", ["--run-timeout", "100ms"], "the run took longer than run_timeout, 0.1 s"),
    ],
)
def test_a_failure_is_shown_and_exits_with_1(folder: Path, task: str, options: list[str], error: str) -> None:
    """As in the log of a scheduler, without a retry."""
    done = once(folder, task, *options)
    assert done.code == 1
    failed = json.loads(done.out.splitlines()[-1])
    assert failed["event"] == "TaskRunFailed"
    assert error in failed["error"]
    assert "nextRetryAt" not in failed
    assert failed["traceback"].count("Traceback") == (task != "endless")
    assert (f"in {task}" in failed["traceback"]) == (task != "endless")
    shown = once(folder, task, *options, "--log-format", "text")
    assert f"start      {task}  by hand, without a store" in shown.out
    assert f"failed     {task}  after " in shown.out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--once", "oks", "tasks.py"], 2, "tasks.py has no task 'oks'\nhint: did you mean ok?"),
        (["--once", "something-else", "tasks.py"], 2, "hint: it has ok, blocking, returns_a_coroutine"),
        (["--once", "ok", "missing.py"], 3, "no such file: missing.py"),
        (["--once", "ok", "tasks.py", "--watch"], 2, "leave out --watch"),
        (["--once", "ok", "tasks.py", "--store", "state.db"], 2, "leave out --store"),
        (["--once", "ok", "tasks.py", "--max-concurrency", "2"], 2, "leave out --max-concurrency"),
        (["--once", "ok", "tasks.py", "--web-token-file", "token"], 2, "leave out --web-token-file"),
        (["tasks.py"], 2, "Missing option '--store'"),
        (["--once", "ok", "tasks.py", "--tz", "Europe/Berln"], 2, "did you mean Europe/Berlin?"),
    ],
)
def test_wrong_usage_is_one_message(folder: Path, arguments: list[str], code: int, message: str) -> None:
    """Nothing runs."""
    done = duly("run", *arguments, folder=folder)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert not (folder / "noted").exists()


def test_another_zone_is_that_of_the_scheduler_and_of_the_callbacks(folder: Path) -> None:
    """As if the process had been started with TZ; `plan` takes the same option."""
    assert once(folder, "zone", "--tz", "Asia/Tokyo").code == 0
    assert (folder / "noted").read_text() == "JST JST"
    with Service("tasks.py", "--store", "state.db", "--tz", "Asia/Tokyo", folder=folder) as service:
        assert service.expect("ProgramReady")["zone"] == "Asia/Tokyo"
        service.send(signal.SIGTERM)
        assert service.end().code == 0
    arguments = ("plan", "tasks.py", "--store", "state.db")
    assert "Asia/Tokyo  →  Africa/Lagos" in duly(*arguments, folder=folder).out
    same = duly(*arguments, "--tz", "Asia/Tokyo", folder=folder)
    assert "→" not in same.out
    assert "Nothing changes: 8 preserved" in same.out
