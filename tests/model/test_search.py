"""Model checking of the real core: every state that can be reached, against every property.

FORMAL A8, B2: exhaustive for the instances below, with any number of crashes, stops, re-initialisations and minutes.
The numbers of states and transitions are pinned: if a change of the core changes them, review it and pin the new ones.
"""

import pytest

from tests.model.search import Search
from tests.model.words import Instance

ONE_TASK = Instance(sets=("x", "x'", ""), fails="x", neglect_max=1)
"""One task: overridden, removed, added again; a loop that may lag behind."""

TWO_TASKS = Instance(sets=("xy", "x'y", "y"), fails="x")
"""Two tasks, one of which may fail and is overridden, removed and added again, even into the other's group."""


def explored(instance: Instance) -> tuple[int, int]:
    search = Search(instance)
    search.check_liveness()
    print(f"{search.states:,} states, {search.transitions:,} transitions")
    return search.states, search.transitions


def test_one_task_through_everything_that_can_happen() -> None:
    """SPEC 7.2, 7.5: S1 to S6b, E2, EW, decision equals obligation, store equals memory, L1, L2."""
    assert explored(ONE_TASK) == (2_282, 13_098)


def test_one_task_that_is_never_declared_otherwise() -> None:
    """No override and no removal: what is left of the model."""
    assert explored(Instance(sets=("x",), fails="x")) == (722, 2_626)


@pytest.mark.slow
def test_two_tasks_through_everything_that_can_happen() -> None:
    """Two tasks that meet: one decision, one queue, one group, one stop."""
    assert explored(TWO_TASKS) == (23_670, 134_224)
