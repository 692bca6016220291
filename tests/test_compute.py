"""Tests are repeated if, and only if, they were not in time on a machine that gave them no compute."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import compute
from tests.compute import Compute
from tests.programs import environment

FAILURES = {
    "raise NotInTimeError('never')": 1 + compute.REPEATS_MAX,
    "await asyncio.wait_for(asyncio.Event().wait(), 0.01)": 1 + compute.REPEATS_MAX,
    "subprocess.run(['sleep', '9'], timeout=0.01)": 1 + compute.REPEATS_MAX,
    "assert ['a', 'a'] == ['a'], 'started twice'": 1,
    "raise RuntimeError('of no kind that speaks of time')": 1,
}
"""A test, and how often it is run on a machine that gives no compute."""

HEAD = """
from tests.compute import Compute
from tests.conftest import *

Compute.was_short = property(lambda self: {short})
"""

TESTS = f"""
import asyncio, subprocess
from pathlib import Path
import pytest
from tests.compute import NotInTimeError

@pytest.fixture(scope="module")
def shared():
    yield "made anew, whenever it is needed"

def times(name):
    with open(name, "a") as file:
        file.write("x")
    return Path(name).stat().st_size

@pytest.mark.real_time
def test_late(tmp_path, shared):
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "left").touch()
    if times("late") == 1:
        raise NotInTimeError("the run had not begun")

@pytest.mark.parametrize("number", range({len(FAILURES)}))
async def test_wrong(number):
    times(f"wrong {{number}}")
    match number:
{chr(10).join(f"        case {number}: {failure}" for number, failure in enumerate(FAILURES))}
"""


class Report(NamedTuple):
    """A run of those tests: how it ended, and how often each of them was run."""

    code: int
    told: str
    times: dict[str, int]


def run_of(folder: Path, *, short: bool) -> Report:
    """Run the tests above, on a machine that gives them compute, or none."""
    (folder / "test_something.py").write_text(TESTS)
    (folder / "conftest.py").write_text(HEAD.format(short=short))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = real_time\nasyncio_mode = auto\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "asyncio", "-p", "no:cacheprovider", "-rA", "test_something.py"],
        cwd=folder,
        env=environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    files = (*folder.glob("late"), *folder.glob("wrong *"))
    return Report(done.returncode, done.stdout, {each.name: each.stat().st_size for each in files})


@pytest.fixture(scope="module")
def on_a_busy_machine(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Every test is late there through no fault of its own."""
    return run_of(tmp_path_factory.mktemp("busy"), short=True)


def test_a_test_that_was_late_on_a_busy_machine_is_repeated_with_new_fixtures(on_a_busy_machine: Report) -> None:
    """And the report names it: it passed, but not at once."""
    _, told, times = on_a_busy_machine
    assert times["late"] == 2, told
    assert "PASSED test_something.py::test_late\n" in told
    assert "test_something.py::test_late: of " in told


def test_a_test_that_was_late_on_an_idle_machine_has_failed(tmp_path: Path) -> None:
    """Then the reason is not the machine."""
    code, told, times = run_of(tmp_path, short=False)
    assert set(times.values()) == {1}, told
    assert code == 1
    assert "FAILED test_something.py::test_late" in told
    assert "repeated" not in told


@pytest.mark.parametrize(("failure", "times_expected"), FAILURES.items())
def test_what_is_wrong_fails_however_busy_the_machine_is(
    on_a_busy_machine: Report, failure: str, times_expected: int
) -> None:
    """A wrong fact at once, and patience that is over each time after a few repeats."""
    code, told, times = on_a_busy_machine
    number = list(FAILURES).index(failure)
    assert times[f"wrong {number}"] == times_expected, told
    assert f"FAILED test_something.py::test_wrong[{number}]" in told
    assert code == 1


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
