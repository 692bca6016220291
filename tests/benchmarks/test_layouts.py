"""The comparison of layouts compares two that hold the same states."""

from pathlib import Path

import pytest

from benchmarks import layouts
from benchmarks.layouts import LAYOUTS, WORKLOADS, Part, Spans, Workload, write


@pytest.mark.parametrize("workload", WORKLOADS)
def test_both_layouts_hold_the_same_states_after_starts_and_after_ends(tmp_path: Path, workload: str) -> None:
    """Every task is there, running after its start and at rest after its end."""
    made = WORKLOADS[workload](7_000)
    contents = {name: write(tmp_path / f"{name}.db", layout, made, 7_000).contents for name, layout in LAYOUTS.items()}
    assert contents["rows"] == contents["spans"]
    started, ended = contents["rows"]
    assert [generation for generation, *_ in started] == list(range(1, 7_001))
    assert sorted(run for *_, run in started if run is not None) == list(range(1, 7_001))
    assert all(run is None and success > attempt for _, attempt, success, run in ended if success is not None)


def test_a_part_cuts_the_spans_it_lies_in(tmp_path: Path) -> None:
    """In the middle of one, over the border of two, several in one, and all of them."""
    before = [Part(1, 10, 100, 1, None), Part(11, 20, 200, 2, None)]
    steps = [
        [Part(4, 5, 300, 3, 70)],
        [Part(9, 12, 400, 4, None)],
        [Part(14, 14, 500, 5, None), Part(16, 17, 600, 6, None)],
    ]
    (after_steps, _) = write(tmp_path / "steps.db", Spans, Workload(before, steps, []), 20).contents
    attempts = {generation: attempt for generation, attempt, _, _ in after_steps}
    assert [attempts[generation] for generation in range(1, 21)] == (
        [100] * 3 + [300] * 2 + [100] * 3 + [400] * 4 + [200] + [500] + [200] + [600] * 2 + [200] * 3
    )
    assert [run for *_, run in after_steps if run is not None] == [70, 71]
    everything = Workload(before, [*steps, [Part(1, 20, 700, 7, None)]], [])
    (after_all, _) = write(tmp_path / "all.db", Spans, everything, 20).contents
    assert {attempt for _, attempt, _, _ in after_all} == {700}


def test_layouts_that_differ_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure of a layout that loses states would mean nothing."""
    monkeypatch.setattr(layouts.Spans, "assign", lambda self, parts: None)
    with pytest.raises(RuntimeError, match="different states after neighbours"):
        layouts.measure(tmp_path, 10)


def test_the_program_prints_a_row_for_each_workload_and_layout(capsys: pytest.CaptureFixture[str]) -> None:
    """Six rows below the heading."""
    assert layouts.main(["--tasks", "10", "--rounds", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8
