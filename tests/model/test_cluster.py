"""The protocol of a shared store, model checked: every interleaving of two hosts, and each guard removed.

`formal/cluster.py` is the model. The numbers of states and transitions are pinned: if a change of the model changes
them, review it and pin the new ones.
"""

import pytest

from formal.cluster import CONFIGURATIONS, EXTENDED_GUARDS, GUARDS, SECOND_LINES, Configuration, explore, main
from formal.state_graph import Verdict
from tests.counts import share

SMALL = Configuration(dues=1, leases=(1, 1), other_writes=False)
"""The first configuration with one minute and leases of one tick: what `make test` has time for."""

LARGE_ENOUGH = {
    "in_order": Configuration(dues=1, leases=(1, 1)),
    "blocked": Configuration(leases=(1, 1), other_writes=False),
    "free_on_burial": Configuration(leases=(1, 1), other_writes=False),
}
"""The further circumstances in which a missing guard is noticed: a write about another task, or a second minute."""

COUNTS = {
    "first": (1_305_216, 6_653_648),
    "looks": (75_213, 388_493),
    "leases": (58_541, 274_519),
    "burials": (360_184, 2_201_632),
    "replacements": (229_973, 1_123_887),
}
NOTICED_BY = {
    "gate": "C1",
    "from_send": "C8",
    "patience": "C8",
    "same_beat": "C8",
    "gone": "C6",
    "premise": "C7",
    "numbers": "C5",
    "in_order": "C7",
    "durable": "C4",
    "blocked": "C1",
    "bump": "C7",
    "free_on_burial": "C5",
    "interrupted": "C5",
    "from_answer": "C8",
    "their_lease": "C8",
    "burier_lives": "C6",
    "inherited_block": "C1",
}

NEED_ALL_OF_THE_GRAPH = ("numbers", "free_on_burial", "interrupted")
"""Guards without which nothing is wrong in any one state: something that should come never does."""


def held(found: Verdict) -> tuple[int, int]:
    print(found)
    assert found.holds, found.way
    return found.states, found.transitions


def noticed(found: Verdict, by: str) -> None:
    print(found)
    assert found.way[-1].startswith(f"{by} "), found.way


def test_a_small_configuration_holds() -> None:
    """SPEC 9.4 to 9.10, 9.16: C1 to C8."""
    assert held(explore(SMALL)) == (14_993, 67_672)


@pytest.mark.parametrize("guard", share(list(GUARDS), 5))
def test_each_guard_is_needed(guard: str) -> None:
    """Without it a property is violated, and the shortest way there is known."""
    noticed(explore(LARGE_ENOUGH.get(guard, SMALL), (guard,)), NOTICED_BY[guard])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_each_configuration_holds(name: str) -> None:
    """All states that there are: hosts freeze, messages are late, lost, repeated, or outlive their sender."""
    assert held(explore(CONFIGURATIONS[name])) == COUNTS[name]


@pytest.mark.slow
@pytest.mark.parametrize("guard", [each for each in GUARDS if each not in NEED_ALL_OF_THE_GRAPH])
def test_each_guard_is_needed_in_the_first_configuration(guard: str) -> None:
    """The configuration that holds with all of them."""
    noticed(explore(CONFIGURATIONS["first"], (guard,)), NOTICED_BY[guard])


@pytest.mark.soak
@pytest.mark.parametrize("guard", NEED_ALL_OF_THE_GRAPH)
def test_a_guard_that_needs_all_of_the_graph_is_needed_in_the_first_configuration(guard: str) -> None:
    """However few the minutes of the soak are; `test_each_guard_is_needed` shows it in a small configuration."""
    noticed(explore(CONFIGURATIONS["first"], (guard,)), NOTICED_BY[guard])


@pytest.mark.parametrize("guard", share(list(EXTENDED_GUARDS), 2))
def test_each_guard_of_an_extension_is_needed(guard: str) -> None:
    """`from_answer`, the lease that counts, a burier that lives, a block that is inherited."""
    name, _ = EXTENDED_GUARDS[guard]
    noticed(explore(CONFIGURATIONS[name], (guard,)), NOTICED_BY[guard])


@pytest.mark.slow
@pytest.mark.parametrize("pair", SECOND_LINES)
def test_behind_a_missing_guard_there_is_a_second_line(pair: tuple[str, str]) -> None:
    """Without both, and only then, an end is recorded over another run."""
    noticed(explore(CONFIGURATIONS["first"], pair), "C7" if "premise" in pair else "C2")


def test_the_command_shows_the_shortest_counterexample(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["durable"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last == "C4 a callback begins before its start is durable"
    assert main(["courage"]) == 2
    assert "no such guard: courage" in capsys.readouterr().err
