"""Which declared set is in force (SPEC 9.13 to 9.17): every history of hosts that join, go, re-initialise and wait.

    python -m formal.editions           the rule holds; and four tempting other rules, each with a history against it

A set is one of three letters, and an edition is its number: the place in the list of sets as they were first seen, or
last given to a running scheduler. In every history:

    D1  the set in force changes only when a host comes or calls initialize, or once after the wait of SPEC 9.17
    D2  while a host that declares the set in force lives, the joining of an older set does not change it
    D3  after that wait, if any host lives, one of them declares the set in force: somebody can run all of it
    D4  what is in force and declared by a living host is the highest edition among the living
    D5  a host that joins with the newest set has it in force when initialize returns
    D6  a host that declares the set in force declares the edition in force: it is not outdated
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from formal.state_graph import Broken, Move, StateGraph, Verdict

SETS: Final = "ABC"


class Rule(Enum):
    """Which edition a joining set is put in force as."""

    ADOPTED = "adopted"
    LAST_CALL_WINS = "the last call wins"
    KNOWN_NEVER_OVERRIDES = "a known set never overrides"
    NO_REINSTATEMENT = "nothing is reinstated"
    CALLER_ALONE = "a set that comes back has its new number for the caller alone"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long histories are."""

    hosts: int = 3
    editions: int = 6


class Editions(NamedTuple):
    """The sets that the store knows, and which of them living hosts declare."""

    known: str  # the set of edition n is the nth letter
    living: tuple[int, ...]  # editions of the hosts that live, in their order
    in_force: int  # 0 before the first
    waited: bool  # two leases have passed since a host came, went or called

    def set_of(self, edition: int) -> str:
        """The set that an edition is the number of; none before the first."""
        return self.known[edition - 1] if edition else ""


class Rollouts:
    """The model: one rule, within bounds."""

    def __init__(self, rule: Rule = Rule.ADOPTED, bounds: Bounds | None = None) -> None:
        self._rule = rule
        self._bounds = bounds or Bounds()
        self.start = Editions("", (), 0, waited=False)

    def compact(self, state: Editions) -> Editions:
        """The state: it is small."""
        return state

    def moves(self, state: Editions) -> Iterator[Move[Editions]]:
        """All that can happen next."""
        declared = state.in_force in state.living
        if declared and state.in_force != state.living[-1]:
            raise Broken("D4 a living host declares a newer set than the one in force")
        if any(each != state.in_force and state.set_of(each) == state.set_of(state.in_force) for each in state.living):
            raise Broken("D6 a host is outdated, and declares the set in force")
        room = len(state.known) < self._bounds.editions
        if room and len(state.living) < self._bounds.hosts:
            for name in SETS:
                yield self._joining(state, name)
        for place, edition in enumerate(state.living):
            name, rest = state.set_of(edition), (*state.living[:place], *state.living[place + 1 :])
            without = state._replace(living=rest, waited=False)
            yield Move("go", f"a host with {name} goes", without)
            if room:
                for new in SETS:
                    yield Move(
                        "again", f"a host goes over from {name} to {new}", self.declared(without, new, again=True)
                    )
        if not state.waited:
            yield Move("wait", "two leases pass", state._replace(waited=True))
        elif state.living and not declared:
            if self._rule is Rule.NO_REINSTATEMENT:
                raise Broken("D3 no living host declares what is in force, for ever")
            highest = state.living[-1]
            after = state._replace(in_force=highest, waited=False)
            yield Move("reinstate", f"{state.set_of(highest)} is reinstated", after)

    def _joining(self, state: Editions, name: str) -> Move[Editions]:
        after = self.declared(state, name)
        move = Move("join", f"a host with {name} joins", after)
        highest = after.living[-1]
        if after.in_force != state.in_force and (
            after.in_force != highest or (state.in_force in state.living and after.in_force < state.in_force)
        ):
            raise Broken(f"{move.label}: D2 an old set comes back")
        if highest not in state.living and after.in_force != highest:
            raise Broken(f"{move.label}: D5 the newest set is not in force")
        return move

    def declared(self, state: Editions, name: str, *, again: bool = False) -> Editions:
        """A host declares a set: for the first time, or `again`, which is an explicit act."""
        if state.in_force and state.set_of(state.in_force) == name:
            return state._replace(living=_with(state.living, state.in_force), waited=False)
        if again or name not in state.known:
            known, edition = state.known + name, len(state.known) + 1
        else:
            known, edition = state.known, state.known.rindex(name) + 1
        in_force = edition if self._overrides(state, edition) else state.in_force
        living = state.living
        if self._rule is not Rule.CALLER_ALONE:
            living = tuple(edition if state.set_of(each) == name else each for each in living)
        return Editions(known, _with(living, edition), in_force, waited=False)

    def _overrides(self, state: Editions, edition: int) -> bool:
        if self._rule is Rule.LAST_CALL_WINS:
            return True
        if self._rule is Rule.KNOWN_NEVER_OVERRIDES:
            return edition > state.in_force
        return all(edition > other for other in state.living)


def _with(living: tuple[int, ...], edition: int) -> tuple[int, ...]:
    return tuple(sorted((*living, edition)))


def explore(rule: Rule, bounds: Bounds | None = None) -> Verdict:
    """Every history of a rule."""
    return StateGraph(Rollouts(rule, bounds)).verdict()


def main() -> int:
    """Print what holds; 0 if the adopted rule does, and no other."""
    found = {rule: explore(rule) for rule in Rule}
    for rule, verdict in found.items():
        print(f"{rule.value:28} {verdict}", *(f"    {step}" for step in verdict.way), sep="\n")
    return 0 if [rule for rule, verdict in found.items() if verdict.holds] == [Rule.ADOPTED] else 1


if __name__ == "__main__":
    sys.exit(main())
