"""Prints of TARGET while it was imported came out on standard output, if standard error took nothing.

They stood before the JSON document there; with PYTHONUNBUFFERED, TARGET was refused instead.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import duly, environment


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("printed", ['print("noise")', 'print("noise" * 5_000)', 'print("noise", flush=True)'])
def test_what_standard_error_does_not_take_is_dropped(printed: str, unbuffered: str, tmp_path: Path) -> None:
    """Also the beginning of a long text, and what was flushed."""
    (tmp_path / "tasks.py").write_text(f"registrations = []\n{printed}")
    command = [sys.executable, "-m", "duly", "check", "tasks.py", "--json"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(PYTHONUNBUFFERED=unbuffered),
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )
    assert done.returncode == 0
    assert json.loads(done.stdout)["valid"] is True
    assert "noise" in duly("check", "tasks.py", "--json", folder=tmp_path, PYTHONUNBUFFERED=unbuffered).err
