"""`duly plan tasks.py --html tasks.py` replaced the user's source by a page.

A trace that `duly verify` read was lost in the same way, and of two outputs of `simulate` to one file the first one.
"""

import os
from pathlib import Path

import pytest

from tests.cli.program import duly, write_target
from tests.reference import ROOT

TIMES = ("--from", "2024-05-01T12:00", "--to", "2024-05-01T13:00")
TASKS = '[("kept", "0 0 1 1 *", quick, timedelta(hours=1))]\nopen("imported", "w").close()'
TRACE = "late-run-dropped.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with targets, names of one of them, and a trace."""
    write_target(tmp_path, TASKS)
    write_target(tmp_path, TASKS, "tasks.svg")
    os.symlink("tasks.py", tmp_path / "link.html")
    os.link(tmp_path / "tasks.py", tmp_path / "second.html")
    (tmp_path / "package").mkdir()
    write_target(tmp_path / "package", TASKS, "__init__.py")
    (tmp_path / TRACE).write_bytes((ROOT / "examples" / "traces" / TRACE).read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "option", "output"),
    [
        (("plan", "tasks.py", "--store", "state.db"), "--html", "tasks.py"),
        (("plan", "tasks.py:registrations", "--store", "state.db"), "--html", "./tasks.py"),
        (("plan", "tasks:registrations", "--store", "state.db"), "--html", "tasks.py"),
        (("plan", "package:registrations", "--store", "state.db"), "--html", "package/__init__.py"),
        (("plan", "tasks.py", "--store", "state.db"), "--html", "link.html"),
        (("plan", "tasks.py", "--store", "state.db"), "--html", "second.html"),
        (("simulate", "tasks.py", *TIMES), "--html", "tasks.py"),
        (("simulate", "./tasks.svg", *TIMES), "--plot", "tasks.svg"),
        (("verify", TRACE), "--html", TRACE),
    ],
)
def test_what_a_command_reads_is_not_replaced(
    folder: Path, arguments: tuple[str, ...], option: str, output: str
) -> None:
    """Wrong usage, by whatever name the file is given; nothing is imported or written."""
    before = {each: each.read_bytes() for each in folder.rglob("*.*") if each.is_file()}
    done = duly(*arguments, option, output, folder=folder)
    assert (done.code, done.out) == (2, ""), done
    assert done.err == (
        f"error: {option}: {Path(output)} is what the command reads: it would be lost\nhint: name another file\n"
    )
    assert {each: each.read_bytes() for each in folder.rglob("*.*") if each.is_file()} == before
    assert not (folder / "imported").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_two_outputs_are_two_files(folder: Path, exists: bool) -> None:
    """Wrong usage, too: one of them would be lost."""
    if exists:
        (folder / "a.svg").write_text("an earlier picture")
    done = duly("simulate", "tasks.py", *TIMES, "--plot", "a.svg", "--html", "./a.svg", folder=folder)
    assert (done.code, done.out) == (2, ""), done
    assert done.err == "error: --plot and --html name the same file: a.svg\nhint: name two files\n"
    assert not (folder / "imported").exists()
