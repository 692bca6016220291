"""A message of several lines stood twice below the error of a TARGET, if the exception had a cause or was a group."""

from pathlib import Path

import pytest

from tests.cli.program import duly

MESSAGE = r'"first line\nsecond line"'


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(f"raise ValueError({MESSAGE})", id="alone"),
        pytest.param(f"raise ValueError({MESSAGE}) from OSError('disk full')", id="cause"),
        pytest.param(f"try:\n    1 / 0\nexcept ArithmeticError:\n    raise ValueError({MESSAGE})", id="context"),
        pytest.param(f"raise ExceptionGroup({MESSAGE}, [ValueError('bad row')])", id="group"),
    ],
)
def test_a_message_of_several_lines_is_shown_once(source: str, tmp_path: Path) -> None:
    """The error line has its first line; what the traceback ends with, or what stands below it, has all."""
    (tmp_path / "tasks.py").write_text(source)
    lines = duly("check", "tasks.py", folder=tmp_path).err.splitlines()
    assert lines[0].endswith(": first line")
    assert len([line for line in lines if line.lstrip(" |").startswith("second line")]) == 1
