"""Every interleaving of two hosts on the real core and the pure store, and each guard removed.

The numbers of states and transitions are pinned: if a change of core or store changes them, review it and pin the new
ones.
"""

import pytest

from formal.state_graph import Verdict
from tests.model.hosts import HOSTS, STORES, Instance, explore

SMALL = Instance(hours=0, repeats=0, failures=0)
"""A host freezes or dies at any moment, is buried, and may come back; both want to start the same task."""

LARGER = {
    "a request arrives twice": (Instance(hours=0, failures=0), (3_576, 7_264)),
    "an hour begins": (Instance(faults=0, repeats=0, failures=0), (2_101, 3_926)),
    "two tasks": (Instance(tasks="xy", hours=0, repeats=0, failures=0), (3_612, 6_918)),
    "a callback fails": (Instance(faults=0, repeats=0), (5_147, 9_510)),
}
NOTICED_BY = {
    "the premise of a start": "S2: starts although nothing is owed",
    "the premise, and that no other host runs the task": "S1: starts while run",
    "the fence": "EW: host",
    "a number takes effect once": "takes a task for",
    "the position belongs to the decision": "S2: starts although nothing is owed",
    "entries are read in order": "takes a task for",
    "refused starts are not learnt": "takes a task for",
    "burials are learnt": "takes a task for",
}


def held(found: Verdict) -> tuple[int, int]:
    print(found)
    assert found.holds, found.way
    return found.states, found.transitions


def test_every_interleaving_of_two_hosts_meets_every_property() -> None:
    """SPEC 9.5, 9.9, 9.10: judged by the checker, by what a host would load, and by what callbacks overlap."""
    assert held(explore(SMALL)) == (1_804, 3_416)


@pytest.mark.slow
@pytest.mark.parametrize("what", LARGER)
def test_more_may_happen(what: str) -> None:
    instance, counts = LARGER[what]
    assert held(explore(instance)) == counts


@pytest.mark.parametrize("guard", [*STORES, *HOSTS])
def test_each_guard_is_needed(guard: str) -> None:
    """Without it a property is violated; the way there is a shortest one."""
    repeats = int(guard == "a number takes effect once")
    found = explore(Instance(hours=0, repeats=repeats, failures=0, without=guard))
    print(found, *found.way, sep="\n")
    assert NOTICED_BY[guard] in found.way[-1]
