"""Which declared set is in force: the adopted rule in every history, four tempting other rules, and the store itself.

The numbers of states and transitions are pinned: if a change of the model changes them, review it and pin the new ones.
"""

import random

import pytest

from duly.stores.shared import Act, EditionAnswer, EditionVerdict
from formal.editions import Bounds, Rollouts, Rule, explore
from formal.state_graph import StateGraph
from tests.counts import count
from tests.stores.shared_hosts import TaskSet, TestHost, in_force
from tests.stores.shared_stores import MemoryStoreUnderTest

COUNTS = (32_186, 179_047)


def test_the_adopted_rule_holds_in_every_history() -> None:
    """SPEC 9.13 to 9.17: D1 to D6, with three hosts, three sets and six editions."""
    found = explore(Rule.ADOPTED)
    print(found)
    assert found.holds, found.way
    assert (found.states, found.transitions) == COUNTS


def test_the_set_in_force_changes_only_when_a_host_comes_or_calls_or_after_the_wait() -> None:
    """D1: a host that goes changes nothing, and time alone changes nothing; a reinstatement follows a wait."""
    model = Rollouts(bounds=Bounds(editions=3))
    for state in StateGraph(model):
        for move in model.moves(state):
            if move.actor in ("go", "wait"):
                assert move.after.in_force == state.in_force
            if move.actor == "reinstate":
                assert state.waited


@pytest.mark.parametrize(
    ("rule", "way"),
    [
        (
            Rule.LAST_CALL_WINS,
            ["a host with A joins", "a host with B joins", "a host with A joins: D2 an old set comes back"],
        ),
        (
            Rule.KNOWN_NEVER_OVERRIDES,
            [
                "a host with A joins",
                "a host goes over from A to B",
                "a host with B goes",
                "a host with A joins: D5 the newest set is not in force",
            ],
        ),
        (
            Rule.NO_REINSTATEMENT,
            [
                "a host with A joins",
                "a host with B joins",
                "a host with B goes",
                "two leases pass",
                "D3 no living host declares what is in force, for ever",
            ],
        ),
        (
            Rule.CALLER_ALONE,
            [
                "a host with A joins",
                "a host with B joins",
                "a host goes over from B to A",
                "D6 a host is outdated, and declares the set in force",
            ],
        ),
    ],
    ids=lambda value: value.value if isinstance(value, Rule) else "",
)
def test_a_tempting_other_rule_is_refuted_by_a_history(rule: Rule, way: list[str]) -> None:
    """Each by its shortest one."""
    assert list(explore(rule).way) == way


# --- the store -------------------------------------------------------------------------------------------------------

SHARED_TASK = ("0 * * * *", 60_000)
SETS: dict[str, TaskSet] = {name: {"s": SHARED_TASK, name.lower(): SHARED_TASK} for name in "ABC"}


class Rollout:
    """A shared store and its hosts, beside the model of which set is in force."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._model = Rollouts()
        self.state = self._model.start
        self.store = MemoryStoreUnderTest()
        self.hosts: list[TestHost] = []
        self._joined = 0

    def join(self) -> None:
        self._joined += 1
        host, name = TestHost(self.store, f"{self._joined:032x}"), self._chance.choice("ABC")
        self.state = self._model.declared(self.state, name)
        self._add(host, host.join(SETS[name]))

    def go(self) -> None:
        self._without_one().leave()

    def declare_again(self) -> None:
        host, name = self._without_one(), self._chance.choice("ABC")
        self.state = self._model.declared(self.state, name, again=True)
        self._add(host, host.declare(SETS[name], Act.REDECLARE))

    def reinstate(self) -> None:
        """The highest edition among the living is put in force, if no host declares the one in force."""
        host = max(self.hosts, key=_edition)
        is_alone = self.state.in_force not in self.state.living
        if is_alone:
            self.state = self.state._replace(in_force=_edition(host))
        answer = host.declare(host.tasks, Act.REINSTATE)
        assert (answer.verdict is EditionVerdict.APPLIED) == is_alone

    def _without_one(self) -> TestHost:
        host = self.hosts.pop(self._chance.randrange(len(self.hosts)))
        living = [*self.state.living]
        living.remove(_edition(host))
        self.state = self.state._replace(living=tuple(living))
        return host

    def _add(self, host: TestHost, answer: EditionAnswer) -> None:
        assert answer.verdict is not EditionVerdict.AGAIN
        self.hosts.append(host)
        assert answer.edition == _edition(host)


def _edition(host: TestHost) -> int:
    """The edition that a host declares, as the store has it."""
    edition: int = host.row()["edition"]
    return edition


@pytest.mark.parametrize("part", range(4))
def test_the_store_follows_the_rule(part: int) -> None:
    """SPEC 9.13 to 9.17: in seeded histories, the model and the functions of a shared store put the same in force."""
    for seed in range(count(150, 15)):
        chance = random.Random(f"{part} {seed}")
        rollout = Rollout(chance)
        for _ in range(25):
            acts = [rollout.join] * (len(rollout.hosts) < 4)
            acts += [rollout.go, rollout.declare_again, rollout.reinstate] * bool(rollout.hosts)
            chance.choice(acts)()
            assert in_force(rollout.store).edition == rollout.state.in_force
            assert tuple(sorted(map(_edition, rollout.hosts))) == rollout.state.living
