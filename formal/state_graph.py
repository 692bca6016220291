"""Every state that a small model can reach, breadth first, in little memory; and the shortest way to a violation.

A model says how it begins and what can happen next; what must not happen it reports by raising `Broken`. States are
numbered in the order in which they are found, so the way to a state along first finders is a shortest one.
"""

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Broken(Exception):  # noqa: N818  no fault of the program, but what it looks for
    """A property does not hold; the text says which."""


class Move(NamedTuple, Generic[S]):
    """The possible next steps: who acts, what that is in words, and the state after it."""

    actor: str
    label: str
    after: S


class Model(Protocol[S]):
    """A model of something small."""

    @property
    def start(self) -> S:
        """The state in which it begins."""
        ...

    def moves(self, state: S) -> Iterable[Move[S]]:
        """All that can happen next. Raises Broken if a property does not hold in this state or on the way on."""
        ...

    def compact(self, state: S) -> S:
        """An equal state that shares its parts with others, for there are a million of them."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a search: how much it has seen, and the way to a violation, whose last line names it."""

    states: int
    transitions: int
    way: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every property holds in every state."""
        return not self.way

    def __str__(self) -> str:
        seen = f"{self.states:,} states, {self.transitions:,} transitions"
        return f"{seen}: {'every property holds' if self.holds else f'{self.way[-1]} ({len(self.way)} steps)'}"


class StateGraph(Generic[S]):
    """The states of a model and the moves between them."""

    def __init__(self, model: Model[S]) -> None:
        self._model = model
        self._numbers: dict[S, int] = {model.start: 0}
        self._states: list[S] = [model.start]
        self._finders = array("I", [0])
        self._to = array("I")  # by transition: the state after it, and who acts; grouped by the state before it
        self._by = bytearray()
        self._first = array("I", [0])  # by state: its first transition
        self._actors: dict[str, int] = {}
        self.broken: tuple[int, str] | None = None
        """The first state in which a property does not hold, and which; the search ends there."""
        self._search()

    def _search(self) -> None:
        number = 0
        while number < len(self._states):
            try:
                for actor, _, state in self._model.moves(self._states[number]):
                    after = self._numbers.get(state)
                    if after is None:
                        state = self._model.compact(state)
                        after = self._numbers[state] = len(self._states)
                        self._states.append(state)
                        self._finders.append(number)
                    self._to.append(after)
                    self._by.append(self._actors.setdefault(actor, len(self._actors)))
            except Broken as broken:
                self.broken = number, str(broken)
                return
            self._first.append(len(self._to))
            number += 1

    @property
    def transitions(self) -> int:
        """How many moves there are."""
        return len(self._to)

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[S]:
        """The states, in the order of their numbers."""
        return iter(self._states)

    def way_to(self, number: int) -> list[str]:
        """The steps of a shortest way to a state."""
        labels: list[str] = []
        while number:
            finder = self._finders[number]
            state = self._states[number]
            labels.append(next(move.label for move in self._model.moves(self._states[finder]) if move.after == state))
            number = finder
        return labels[::-1]

    def reaching(self, good: Callable[[S], bool], *, without: set[str]) -> bytearray:
        """For each state, whether moves lead from it to a good one, if these actors do not act."""
        absent = {number for actor, number in self._actors.items() if actor in without}
        begins = array("I", bytes(4 * (len(self) + 1)))
        for after, by in zip(self._to, self._by, strict=True):
            if by not in absent:
                begins[after + 1] += 1
        for number in range(len(self)):
            begins[number + 1] += begins[number]
        before, places = array("I", bytes(4 * begins[-1])), begins[:-1]
        for number in range(len(self)):
            for transition in range(self._first[number], self._first[number + 1]):
                if self._by[transition] not in absent:
                    after = self._to[transition]
                    before[places[after]] = number
                    places[after] += 1
        reached = bytearray(len(self))
        queue = deque(number for number, state in enumerate(self._states) if good(state))
        for number in queue:
            reached[number] = 1
        while queue:
            number = queue.popleft()
            for source in before[begins[number] : begins[number + 1]]:
                if not reached[source]:
                    reached[source] = 1
                    queue.append(source)
        return reached

    def verdict(self, number: int | None = None, what: str = "") -> Verdict:
        """The verdict of the search, or that a state which it has found is wrong."""
        if self.broken is not None:
            number, what = self.broken
        way = () if number is None else (*self.way_to(number), what)
        return Verdict(len(self), self.transitions, way)
