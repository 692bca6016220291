"""A failure was kept and shown without what it was raised from, and a group without its members.

History said "unhandled errors in a TaskGroup (2 sub-exceptions)", the text log of `duly run` showed the frames of the
last exception alone, and no traceback was kept anywhere.
"""

import asyncio
from datetime import timedelta
from pathlib import Path

from duly.testing import SimulatedHost
from tests.cli.program import Service, duly

TASKS = """
import asyncio
from datetime import timedelta


def read_rows():
    raise OSError("disk full")


async def wraps():
    try:
        read_rows()
    except OSError as error:
        raise RuntimeError("import failed") from error


async def groups():
    async with asyncio.TaskGroup() as group:
        group.create_task(wraps())


registrations = [(each.__name__, "* * * * *", each, timedelta(hours=1)) for each in (wraps, groups)]
"""


async def test_history_has_the_first_exception_of_a_group_its_causes_and_the_traceback(tmp_path: Path) -> None:
    """In the store, in `duly history -v` and in the JSON forms of history and explain."""

    async def row(number: int) -> None:
        try:
            raise OSError("disk full")
        except OSError as error:
            raise ValueError(f"row {number}") from error

    async def load() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(row(number))

    async with SimulatedHost("2024-06-01T12:00", "UTC", tmp_path / "state.db") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("load", "0 12 * * *", load, timedelta(hours=1))])
        await host.advance(minutes=1)
        await scheduler.stop()

    reason = "first: ValueError: row 0; caused by OSError: disk full"
    whole = duly("history", "--store", "state.db", "-v", folder=tmp_path).out
    assert reason in whole
    assert "key        load/1/2024-06-01T12:00:00.000000Z" in whole
    assert 'raise OSError("disk full")' in whole
    assert "engine/runner.py" not in whole
    (run,) = duly("history", "--store", "state.db", "--json", folder=tmp_path).json["runs"]
    assert run["error"].endswith(reason)
    assert run["traceback"] is None
    (run,) = duly("history", "--store", "state.db", "--json", "-v", folder=tmp_path).json["runs"]
    assert "ValueError: row 1" in run["traceback"]
    explained = duly("explain", "load", "--at", "2024-06-01T12:00", "--store", "state.db", "--json", folder=tmp_path)
    assert explained.json["run"]["traceback"] == run["traceback"]


def test_the_text_log_shows_what_an_exception_was_raised_from_and_the_members_of_a_group(tmp_path: Path) -> None:
    """`duly run`, for people."""
    (tmp_path / "tasks.py").write_text(TASKS)
    with Service("tasks.py", "--store", "state.db", "--log-format", "text", folder=tmp_path) as service:
        service.expect_text("RuntimeError: import failed; caused by OSError: disk full")
        service.expect_text('raise OSError("disk full")')
        service.expect_text("direct cause")
        service.expect_text("first: RuntimeError: import failed")
        service.expect_text('|     raise OSError("disk full")')
