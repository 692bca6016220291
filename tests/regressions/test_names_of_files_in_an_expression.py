"""`duly check 0 3 1 1 *`, unquoted, advised to quote what the shell had made of it: `0 3 1 1 side.py tasks.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from duly.cli.quoting import _may_be_a_field
from tests.cli.program import duly, environment


@pytest.mark.parametrize("command", ["check", "next"])
def test_names_of_files_are_no_fields(command: str, tmp_path: Path) -> None:
    """A real shell replaces them."""
    for name in ("tasks.py", "side.py"):
        (tmp_path / name).touch()
    line = f"{sys.executable} -m duly {command} 0 3 1 1 *"
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"quote the expression, as in duly {command} '0 3 * * *': the shell replaces * with" in done.stderr
    assert ".py" not in done.stderr


def test_a_folder_of_one_file_looks_no_different(tmp_path: Path) -> None:
    for name in ("Makefile", "src", os.path.join("src", "tasks.py")):
        done = duly("check", "0", "3", "1", "1", name, folder=tmp_path)
        assert "the shell replaces * with the names of files" in done.err


def test_fields_of_any_dialect_are_told_from_names_of_files() -> None:
    """Fields are still joined to the line to type instead."""
    fields = ["0", "59", "*", "?", "1-5", "*/15", "1,2-7/2", "L", "LW", "15W", "5L", "FRI#2", "MON-FRI", "mon,wed"]
    fields += ["january", "Sept", "H", "H/15", "2027"]
    assert [each for each in fields if not _may_be_a_field(each)] == []
    names = ["tasks.py", "side_effects", "README", "docs", "src", "a", "state.db", "2027-report", "x.1", "Wednesdays"]
    assert [each for each in names if _may_be_a_field(each)] == []
