"""A function that `duly import apscheduler` calls is a part of TARGET: what it raises was called a defect of duly.

So was a function that needs arguments, and what the settings of a Celery application raise when they are first read. A
coroutine function was refused, with a warning of Python about a coroutine that was never awaited.
"""

from pathlib import Path

import pytest

from tests.cli.program import duly

JOBS = """
from apscheduler.schedulers.background import BackgroundScheduler

def broken():
    raise ConnectionError("the database is asleep")

def needs(a):
    pass

async def late():
    return BackgroundScheduler(timezone="Africa/Lagos")

class Forgetful(BackgroundScheduler):
    def get_jobs(self):
        raise ConnectionError("the job store is asleep")

forgetful = Forgetful(timezone="Africa/Lagos")

def made():
    print("made")
    scheduler = BackgroundScheduler(timezone="Africa/Lagos")
    scheduler.add_job(needs, "cron", ["a"], hour=3, id="nightly")
    return scheduler
"""


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("broken", "jobs.py:broken raised when it was called: ConnectionError: the database is asleep"),
        ("needs", "jobs.py:needs() cannot be called without arguments: missing a required argument: 'a'"),
        ("late", "jobs.py:late is a value of type coroutine, not an APScheduler scheduler"),
        ("forgetful", "jobs.py:forgetful raised when its jobs were read: ConnectionError: the job store is asleep"),
    ],
)
def test_what_is_wrong_with_a_function_that_makes_a_scheduler_is_said(
    tmp_path: Path, attribute: str, message: str
) -> None:
    """One message and the code of a TARGET, as for the functions of other commands."""
    (tmp_path / "jobs.py").write_text(JOBS)
    done = duly("import", "apscheduler", f"jobs.py:{attribute}", folder=tmp_path)
    assert (done.code, done.out) == (3, ""), done
    assert done.err.startswith(f"error: {message}\n")
    assert "Warning" not in done.err
    assert "Traceback" not in done.err


def test_what_such_a_function_prints_is_no_part_of_the_result(tmp_path: Path) -> None:
    """The result is a file of Python on standard output."""
    (tmp_path / "jobs.py").write_text(JOBS)
    done = duly("import", "apscheduler", "jobs.py:made", folder=tmp_path)
    assert done.code == 0, done
    assert not any(line == "made" for line in done.out.splitlines())
    assert "made\n" in done.err


def test_settings_of_celery_that_cannot_be_loaded_are_an_error_in_the_target(tmp_path: Path) -> None:
    """Celery loads them when they are first needed, which is here."""
    (tmp_path / "jobs.py").write_text(
        "from celery import Celery\napp = Celery('shop')\napp.config_from_object('nowhere')\n"
    )
    done = duly("import", "celery", "jobs.py", folder=tmp_path)
    assert (done.code, done.out) == (3, ""), done
    reason = "ModuleNotFoundError: No module named 'nowhere'"
    assert done.err.startswith(f"error: jobs.py raised when its settings were read: {reason}\n")
