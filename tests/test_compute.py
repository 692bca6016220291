"""Tests are repeated if, and only if, they were not in time on a machine that gave them no compute."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import compute
from tests.compute import Compute
from tests.programs import environment

HEAD = """
from pathlib import Path
import pytest
from tests import compute, conftest
from tests.compute import Compute, NotInTimeError
from tests.conftest import *

Compute.was_short = property(lambda self: {short})

@pytest.fixture(scope="module")
def shared():
    yield "made anew, whenever it is needed"

def times():
    file = Path("times")
    file.write_text(file.read_text() + "x" if file.exists() else "x")
    return len(file.read_text())
"""


def outcome(folder: Path, body: str, *, short: bool) -> tuple[int, int, str]:
    """How often a test was run on such a machine, how it ended, and what was reported."""
    (folder / "test_something.py").write_text(body)
    (folder / "conftest.py").write_text(HEAD.format(short=short))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = real_time\nasyncio_mode = auto\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:sugar", "-p", "no:cacheprovider", "test_something.py"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return len((folder / "times").read_text()), done.returncode, done.stdout


LATE_ONCE = """
import pytest
from conftest import times
from tests.compute import NotInTimeError

@pytest.mark.real_time
def test_late(tmp_path, shared):
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "left").touch()
    if times() == 1:
        raise NotInTimeError("the run had not begun")
"""


def test_a_test_that_was_late_on_a_busy_machine_is_repeated_with_new_fixtures(tmp_path: Path) -> None:
    """And the report names it: it passed, but not at once."""
    times, code, told = outcome(tmp_path, LATE_ONCE, short=True)
    assert (times, code) == (2, 0), told
    assert "1 passed" in told
    assert "test_something.py::test_late: of " in told


def test_a_test_that_was_late_on_an_idle_machine_has_failed(tmp_path: Path) -> None:
    """Then the reason is not the machine."""
    times, code, told = outcome(tmp_path, LATE_ONCE, short=False)
    assert (times, code) == (1, 1), told
    assert "repeated" not in told


@pytest.mark.parametrize(
    ("failure", "times_expected"),
    [
        ("raise NotInTimeError('never')", 1 + compute.REPEATS_MAX),
        ("await asyncio.wait_for(asyncio.Event().wait(), 0.01)", 1 + compute.REPEATS_MAX),
        ("subprocess.run(['sleep', '9'], timeout=0.01)", 1 + compute.REPEATS_MAX),
        ("assert ['a', 'a'] == ['a'], 'started twice'", 1),
        ("raise RuntimeError('of no kind that speaks of time')", 1),
    ],
)
def test_what_is_wrong_fails_however_busy_the_machine_is(tmp_path: Path, failure: str, times_expected: int) -> None:
    """A wrong fact at once, and patience that is over each time after a few repeats."""
    body = f"""
import asyncio, subprocess
from conftest import times
from tests.compute import NotInTimeError

async def test_wrong():
    times()
    {failure}
"""
    times, code, told = outcome(tmp_path, body, short=True)
    assert (times, code) == (times_expected, 1), told
    assert "1 failed" in told


def test_a_thread_that_is_woken_late_and_a_processor_that_is_waited_for_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement itself, with Linux's file in the test's hands."""
    pressure = tmp_path / "cpu"
    monkeypatch.setattr(compute, "PRESSURE", pressure)
    pressure.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 total=0\n")
    calm = Compute(with_thread=False).begin()
    calm.end()
    assert not calm.was_short
    pressed = Compute(with_thread=False).begin()
    pressure.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=60000005\nfull avg10=0.00 total=0\n")
    pressed.end()
    assert pressed.was_short
    pressure.unlink()
    unknown = Compute(with_thread=False).begin()
    unknown.end()
    assert not unknown.was_short
    monkeypatch.setattr(compute, "GAP_SECONDS_MAX", -1.0)
    late = Compute(with_thread=True).begin()
    late.end()
    assert late.was_short
