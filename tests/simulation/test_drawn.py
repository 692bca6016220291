"""Hypothesis draws histories, and shrinks failing ones, with the generator and the oracles of the seeded histories."""

import pytest
from hypothesis import HealthCheck, find, given, settings

from tests.counts import count
from tests.simulation.executor import check, execute
from tests.simulation.histories import Declared, Doing, History, Initialize, Pass, Step
from tests.simulation.strategies import histories
from tests.simulation.test_harness import lose_retries


@given(history=histories())
@settings(max_examples=count(150, 30), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_drawn_histories(history: History) -> None:
    """FORMAL D4: hypothesis generates, the simulator executes, the oracles judge; a failure prints a test to paste."""
    check(history)


@pytest.mark.slow
def test_hypothesis_makes_a_failing_history_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bug in place, what is found is about as small as it can be: one declaration, and a run that fails."""
    lose_retries(monkeypatch)
    smallest = find(
        histories(),
        lambda history: bool(execute(history).wrongs),
        settings=settings(max_examples=2_000, suppress_health_check=list(HealthCheck)),
    )
    assert execute(smallest).wrongs
    assert not smallest.faults
    assert smallest.seed == 0
    assert len(smallest.steps) <= 4
    assert 1 <= len(failing(smallest.steps)) <= 2


def failing(steps: tuple[Step, ...]) -> list[Doing]:
    """Runs that do not succeed."""
    tasks: list[Declared] = [task for step in steps if isinstance(step, Initialize) for task in step.tasks]
    return [doing for task in tasks for doing in task.doings if doing.end != "returns"]


def test_a_history_of_nothing_but_time_passes() -> None:
    """The smallest there is."""
    assert check(History(steps=(Pass(seconds=60),))).simulated_seconds >= 60
