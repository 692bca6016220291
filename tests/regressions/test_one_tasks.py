"""`duly simulate` of one task began with "1 tasks", and one start was "1 starts"."""

from pathlib import Path

import pytest

from tests.cli.program import duly

ONE = """
from datetime import timedelta
registrations = [("backup", "0 3 * * *", lambda: None, timedelta(minutes=5))]
"""


@pytest.mark.parametrize(
    ("arguments", "beginning"),
    [
        (
            ("simulate", "tasks.py", "--from", "2024-05-01", "--to", "2024-05-02"),
            "1 task, 2024-05-01 00:00 to 2024-05-02 00:00, Africa/Lagos: 1 start\n",
        ),
        (("next", "tasks.py", "--merged", "-n", "1"), "1 task, "),
    ],
    ids=["simulate", "next"],
)
def test_one_task_is_one_task(tmp_path: Path, arguments: tuple[str, ...], beginning: str) -> None:
    """In the first line for people."""
    (tmp_path / "tasks.py").write_text(ONE)
    done = duly(*arguments, folder=tmp_path)
    assert done.code == 0, done
    assert done.out.startswith(beginning)
