"""The measurement of the read side works, and can fail."""

from pathlib import Path

import pytest

from benchmarks import read_side
from benchmarks.read_side import Command, Cost, Size, commands, daily_expressions, make_store, measure
from tests.stores.helpers import contents_of, integrity, read


def test_the_stores_it_makes_are_stores(tmp_path: Path) -> None:
    """As many tasks and runs as were asked for, and nothing that duly would not write."""
    path = tmp_path / "made.db"
    make_store(path, 3_000, 500, daily_expressions())
    found = contents_of(path)
    assert (len(found.tasks), len(found.runs)) == (3_000, 500)
    assert len({task.stored.expression.text for task in found.tasks}) == 1_000
    assert {run.outcome for run in found.runs} == {"success", "failure"}
    assert read(path, lambda view: view.extent()).runs == 500
    assert integrity(path) == "ok"


@pytest.mark.system
def test_every_command_answers(tmp_path: Path) -> None:
    """On small stores; what it prints is there, and about what was asked."""
    called = commands(tmp_path, Size(tasks=2_000, runs=2_000, listed=1_500))
    answers = {}
    for command in called:
        output = tmp_path / "output"
        cost = measure(command.arguments, command.environment, output)
        assert cost.cpu_s > 0
        assert 10 < cost.memory_mb < 100
        answers[command.shown.replace(f"{tmp_path}/", "")] = output.read_text()
    assert "1,950 more tasks" in answers["duly status --store tasks.db"]
    assert "task-7" in answers["duly history task-7 --store tasks.db --limit 5"]
    assert "task-7 at " in answers["duly explain task-7 --at 2h --store runs.db"]
    assert "plain,task-1999" in answers["duly history --store tasks.db task-1⇥"]
    assert answers["duly status --limit 0 --store listed.db"].count("task-") >= 1_500
    assert answers["duly status --json --store listed.db"].count('"task":') == 1_500
    assert answers["duly next listed.py"].count("task-") == 1_500


@pytest.mark.parametrize(("cpu_s", "memory_mb", "code"), [(0.5, 50.0, 0), (3.0, 50.0, 1), (0.5, 101.0, 1)])
def test_a_budget_that_is_exceeded_ends_it_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cpu_s: float, memory_mb: float, code: int
) -> None:
    """Processor time beyond `duly --version`, or memory."""
    monkeypatch.setattr(read_side, "commands", lambda *_: [Command("nothing", ["status"], 2)])
    costs = {("--version",): Cost(0.3, 30.0), ("status",): Cost(0.3 + cpu_s, memory_mb)}
    monkeypatch.setattr(read_side, "measure", lambda arguments, *_: costs[tuple(arguments)])
    assert read_side.main(["--rounds", "1"]) == code
    assert f"| `duly status` | nothing | {cpu_s:.2f} s | 2 s | {memory_mb:.0f} MB | 100 MB |" in capsys.readouterr().out
