"""The comparisons of two versions, and of imports: they run, and they say no where the bound is passed."""

from pathlib import Path

import pytest

from benchmarks import compare, import_cost
from tests.programs import ROOT

SRC = ROOT / "src"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder that looks as if another version were in it."""
    (tmp_path / "duly").mkdir()
    (tmp_path / "duly" / "__init__.py").touch()
    return tmp_path


@pytest.mark.parametrize(("new_seconds", "code"), [(1.02, 0), (1.04, 1)])
def test_the_new_code_may_take_three_per_cent_more(
    old: Path, monkeypatch: pytest.MonkeyPatch, new_seconds: float, code: int
) -> None:
    """Medians are compared, so one round in which the machine stood still changes nothing; the order alternates."""
    asked: list[Path] = []

    def cpu_seconds(src: Path, tasks: int) -> float:
        asked.append(src)
        if src == old:
            return 1.0
        return 99.0 if asked.count(src) == 1 else new_seconds

    monkeypatch.setattr(compare, "cpu_seconds", cpu_seconds)
    assert compare.main([str(old), str(SRC), "--rounds", "3", "--tasks", "10"]) == code
    assert asked == [old, SRC, SRC, old, old, SRC]


def test_another_bound_can_be_given(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded store may have become 2 % slower by hosts that share another one."""
    monkeypatch.setattr(compare, "cpu_seconds", lambda src, tasks: 1.0 if src == old else 1.025)
    assert compare.main([str(old), str(SRC), "--rounds", "1", "--tasks", "10"]) == 0
    assert compare.main([str(old), str(SRC), "--rounds", "1", "--tasks", "10", "--at-most", "1.02"]) == 1


@pytest.mark.parametrize(("old_src", "message"), [("nowhere", "holds no duly"), (str(SRC), "the same folder")])
def test_what_cannot_be_compared_is_named(old_src: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage is one message, and nothing is measured."""
    with pytest.raises(SystemExit):
        compare.main([old_src, str(SRC)])
    assert message in capsys.readouterr().err


def test_a_burst_is_measured_in_a_process_of_its_own() -> None:
    """The smallest one there is."""
    assert compare.cpu_seconds(SRC, 10) > 0


@pytest.mark.parametrize(("seconds", "code"), [(0.34, 0), (0.35, 1)])
def test_an_import_may_take_two_and_four_tenths_of_asyncio(
    monkeypatch: pytest.MonkeyPatch, seconds: float, code: int
) -> None:
    """Both beyond an empty interpreter."""
    used = {"pass": 0.1, "import asyncio": 0.2, "import duly": seconds}
    monkeypatch.setattr(import_cost, "cpu_seconds", lambda program, src: used[program])
    assert import_cost.main(["--rounds", "3"]) == code


def test_imports_are_measured_in_processes_of_their_own() -> None:
    """One round; what it comes to is not this test's business."""
    seconds = import_cost.measured(SRC, 1)
    assert 0 < seconds["empty"] < seconds["duly"]
