"""A file that cannot be examined is never taken for a missing one: the commands say so, and change nothing."""

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import click
import pytest

from duly.cli.commands.simulate import check_plot
from duly.cli.commands.status import status
from duly.cli.commands.trace import export
from duly.cli.commands.verify import verify
from duly.cli.output import Exit, Failure, failure_of
from duly.cli.target import parse_target
from duly.errors import DulyError, StoreUnusedError
from tests.cli.program import ago, duly, fingerprint, nothing, simulated, write_target
from tests.conftest import require
from tests.stores.helpers import contents_of, without_privileges

HOUR = timedelta(hours=1)
HISTORY = ("history", "--store", "state.db", "--json")
PLAN = ("plan", "tasks.py", "--store", "state.db", "--json")
VERIFY = ("verify", "state.db", "--json")


def unanswered(call: str, file: Path) -> list[str]:
    """A disk that answers nothing but EIO when this call asks for this file."""
    require("strace", "apt-get install strace")
    return [
        "strace",
        "-f",
        "-qq",
        "-o",
        os.devnull,
        "-P",
        str(file),
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:error=EIO",
    ]


@pytest.mark.parametrize(
    ("command", "call", "suffix"),
    [
        (PLAN, "%%stat", ""),  # would plan for a store that is yet to be made
        (HISTORY, "%%stat", ""),
        (HISTORY, "%%stat", "-wal"),  # would read the main file alone, and nothing is in there yet
        (HISTORY, "%%stat", "-shm"),
        (HISTORY, "openat", ".lock"),  # would take a living holder for none, and its run for interrupted
        (VERIFY, "%%stat", "-wal"),
    ],
)
async def test_a_disk_that_does_not_answer_is_not_an_empty_one(
    tmp_path: Path, command: tuple[str, ...], call: str, suffix: str
) -> None:
    """SPEC 4.3: one message with the system's reason, the code of a store that cannot be read, and no answer."""
    write_target(tmp_path, '[("task", "* * * * *", quick, timedelta(hours=1))]')
    async with simulated(tmp_path / "state.db", ago(minutes=5)) as host:
        await host.scheduler(trace=True).initialize([("task", "* * * * *", nothing, HOUR)])
        await host.advance(minutes=2)
        before = fingerprint(tmp_path)
        assert before["state.db-wal"]
        assert duly(*command, folder=tmp_path).code == Exit.OK
        ended = duly(*command, folder=tmp_path, under=unanswered(call, tmp_path / f"state.db{suffix}"))
        assert fingerprint(tmp_path) == before
    assert (ended.code, ended.out) == (Exit.STORE, "")
    assert "error: " in ended.err
    assert "input/output error" in ended.err.lower()
    assert "Traceback" not in ended.err
    assert (f"state.db{suffix}" if suffix == ".lock" else "state.db") in ended.err


# --- as another user -------------------------------------------------------------------------------------------------


def refusal(attempt: Callable[[], object]) -> tuple[str, Exit, bool]:
    """The answer to another user: the message, the exit code, and whether the store would count as unused."""

    def tried() -> tuple[str, Exit, bool]:
        try:
            attempt()
        except Failure as failure:
            return failure.message, failure.code, False
        except DulyError as error:
            return failure_of(error).message, failure_of(error).code, isinstance(error, StoreUnusedError)
        return "nothing", Exit.OK, False

    return without_privileges(tried)


async def _used(path: Path) -> None:
    async with simulated(path, ago(minutes=5)) as host:
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize([("task", "* * * * *", nothing, HOUR)])
        await host.advance(minutes=1)
        await scheduler.stop()


@pytest.fixture
def used(public_folder: Path) -> Path:
    """A store that other users can be kept out of."""
    path = public_folder / "state.db"
    asyncio.run(_used(path))
    path.chmod(0o644)
    return path


def test_a_store_in_a_folder_that_may_not_be_entered_is_not_a_missing_one(used: Path) -> None:
    """The folder is there, and the store may be in it: neither `plan` nor a person may conclude that it is not."""
    used.parent.chmod(0o600)
    message, code, unused = refusal(lambda: contents_of(used))
    assert message == f"Store {used} cannot be used: Permission denied"
    assert (code, unused) == (Exit.STORE, False)


def test_a_missing_store_is_missing_also_where_the_folder_may_not_be_listed(used: Path) -> None:
    """A folder that may be entered, and not listed, shows that a name is missing; only suggestions need a list."""
    used.parent.chmod(0o711)
    message, code, unused = refusal(lambda: contents_of(used.with_name("stat.db")))
    assert message == f"no such store: {used.with_name('stat.db')}"
    assert (code, unused) == (Exit.STORE, True)


def test_a_holder_that_may_not_be_seen_is_not_a_dead_one(used: Path) -> None:
    """Other users may read the store, and not its lock file: the holder is unknown, and no holder is reported."""
    Path(f"{used}.lock").chmod(0o000)
    message, code, _ = refusal(lambda: contents_of(used))
    assert message == f"The lock file {used}.lock cannot be read: Permission denied"
    assert code is Exit.STORE


def called(command: click.Command, *arguments: str | Path) -> Callable[[], object]:
    """A command with these arguments, as the command line calls it."""
    return lambda: command.main([*map(str, arguments)], prog_name="duly", standalone_mode=False)


@pytest.mark.parametrize(
    ("command", "arguments"), [(status, ["--store"]), (export, []), (verify, [])], ids=["status", "export", "verify"]
)
def test_a_store_that_may_not_be_read_is_no_wrong_usage(
    used: Path, command: click.Command, arguments: list[str]
) -> None:
    """The documented exit code, whatever the command."""
    used.chmod(0o000)
    message, code, unused = refusal(called(command, *arguments, used))
    assert message == f"{used} cannot be read: permission denied"
    assert (code, unused) == (Exit.STORE, False)


def test_a_trace_is_not_written_over_what_may_be_a_store(used: Path) -> None:
    """A user who may write to a folder may replace a file that he cannot read: a store would be lost."""
    theirs = used.with_name("theirs.db")
    theirs.write_bytes(used.read_bytes())
    theirs.chmod(0o000)
    Path(f"{used}.lock").chmod(0o644)
    used.parent.chmod(0o777)
    message, code, _ = refusal(called(export, "-o", theirs, used))
    assert message == f"{theirs} cannot be looked at: permission denied"
    assert code is Exit.STORE
    theirs.chmod(0o644)
    assert theirs.read_bytes() == used.read_bytes()


def test_a_target_or_the_place_of_a_picture_that_may_not_be_seen_is_not_a_missing_one(public_folder: Path) -> None:
    """It is not a defect of duly either."""
    folder = public_folder / "folder"
    folder.mkdir()
    target = write_target(folder, "[]")
    folder.chmod(0o600)
    message, code, _ = refusal(lambda: parse_target(str(target)))
    assert message == f"{target} cannot be looked at: permission denied"
    assert code is Exit.TARGET
    inside = folder / "inside"
    picture = inside / "load.svg"
    message, code, _ = refusal(lambda: check_plot(picture))
    assert message == f"{picture} cannot be looked at: permission denied"
    assert code is Exit.STORE
