"""The simulation with fresh seeds, for as long as there is time; seeds that fail are kept."""

import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import soak_seconds
from tests.simulation.executor import execute
from tests.simulation.generation import history_of
from tests.simulation.histories import as_test
from tests.simulation.shrinking import KEPT, shrunk


@pytest.mark.soak
def test_fresh_seeds_find_nothing() -> None:
    """`make soak MINUTES=n` goes on with fresh seeds, and keeps the seed of a failure."""
    until = time.monotonic() + soak_seconds()
    tried, failed, years = 0, Counter[str](), 0.0
    while time.monotonic() < until:
        seed = secrets.randbits(62)
        result = execute(history_of(seed))
        tried += 1
        years += result.simulated_seconds / (365 * 86_400)
        if result.wrongs:
            failed[keep(seed, result.wrongs)] += 1
    print(f"{tried} histories, {years:.2f} simulated years, {sum(failed.values())} failures")
    assert not failed, f"kept in {KEPT.resolve()}: {dict(failed)}"


def keep(seed: int, wrongs: list[str]) -> str:
    """Write down a seed that failed, and the smallest test for it; returns what was wrong, in one line."""
    smallest = shrunk(history_of(seed), lambda history: bool(execute(history).wrongs), attempts_max=300)
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(f"# seed {seed}\n" + "".join(f"# {wrong.splitlines()[0]}\n" for wrong in wrongs[:5]))
        file.write(as_test(smallest, name=f"seed_{seed}") + "\n\n")
    return wrongs[0].splitlines()[0]


def test_a_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file holds the seed, what was wrong, and a test that runs."""
    monkeypatch.setattr(sys.modules[__name__], "KEPT", tmp_path / "kept.txt")
    assert keep(17, ["S1 violated", "more"]) == "S1 violated"
    kept = (tmp_path / "kept.txt").read_text()
    assert kept.startswith("# seed 17\n# S1 violated\n# more\n")
    assert "def test_seed_17() -> None:" in kept
    namespace: dict[str, Any] = {}
    exec(compile(kept, "kept", "exec"), namespace)
    namespace["test_seed_17"]()  # it runs; nothing is wrong with this one
