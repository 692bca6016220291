"""Breadth-first search through every world that can be reached, with checks of each world and of each cycle.

Safety: the monitor judges every transition; in every state the decision is what the monitor calls owed, and memory says
what the store says. The first violation ends the search; because the search is breadth-first, its trace is a shortest
one.

Liveness, on the finished graph: a promise is broken for ever only on a cycle along which it stays open. Under weak
fairness (a poll, a commit, an end, the completion of a stop happens eventually if it stays possible) such a cycle
needs, for each of these, a state on it where it is impossible or a step on it that takes it. Those cycles lie within
strongly connected parts of the states in which the promise is open.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from tests.model.freezing import Frozen, freeze, thaw
from tests.model.words import Instance, Move
from tests.model.world import World, Wrong

FAIR: Final = ("look", "commit", "end", "stop completes")
_FAIR_BITS: Final = {what: 1 << number for number, what in enumerate(FAIR)}
_STOPPING: Final = 4  # beside one bit for each task that is owed


class Found(AssertionError):  # noqa: N818  no fault of the search, but what it looks for
    """A violation, and the moves that lead to it."""

    def __init__(self, property_id: str, sentence: str, path: list[Move]) -> None:
        self.property = property_id
        self.path = path
        lines = (f"  {number:2}. {move}" for number, move in enumerate(path, 1))
        super().__init__(f"{sentence}, after\n" + "\n".join(lines))


class Search:
    """The graph of one instance."""

    def __init__(self, instance: Instance, *, states_max: int = 1 << 62) -> None:
        self.instance = instance
        self.states = 0
        self.transitions = 0
        self._parents: list[tuple[int, Move]] = []
        self._open = bytearray()  # by state: which tasks are owed, whether a stop is open
        self._able = bytearray()  # by state: which fair moves are possible
        self._edges = array("I")  # successors, state after state
        self._taken = bytearray()  # by edge: the fair move that it is
        self._first = array("I")
        self._run(states_max)

    def _run(self, states_max: int) -> None:
        first = freeze(World(self.instance))
        numbers: dict[Frozen, int] = {first: 0}
        self._parents.append((-1, Move("")))
        queue = deque([first])
        while queue and len(numbers) <= states_max:
            frozen = queue.popleft()
            number = numbers[frozen]
            moves = self._look_at(frozen, number)
            self._first.append(len(self._edges))
            for move in moves:
                world = thaw(frozen, self.instance)
                try:
                    world.make(move)
                except Wrong as wrong:
                    raise Found(wrong.property, str(wrong), [*self.path(number), move]) from wrong
                after = freeze(world)
                known = numbers.setdefault(after, len(numbers))
                if known == len(self._parents):
                    self._parents.append((number, move))
                    queue.append(after)
                self._edges.append(known)
                self._taken.append(_FAIR_BITS.get(move.what, 0))
        self._first.append(len(self._edges))
        self.states, self.transitions = len(numbers), len(self._edges)

    def _look_at(self, frozen: Frozen, number: int) -> list[Move]:
        world = thaw(frozen, self.instance)
        moves = world.moves()
        owed = sum(1 << bit for bit, name in enumerate("xy") if world.up and world.monitor.obliged(name, world.now))
        self._open.append(owed | _STOPPING * (world.open_stops > 0))
        self._able.append(sum({_FAIR_BITS.get(move.what, 0) for move in moves}))
        try:
            world.check_store()
            world.rehearse()
        except Wrong as wrong:
            raise Found(wrong.property, str(wrong), self.path(number)) from wrong
        return moves

    def path(self, number: int) -> list[Move]:
        """The moves that lead to a state."""
        path: list[Move] = []
        while number > 0:
            number, move = self._parents[number]
            path.append(move)
        return path[::-1]

    # --- liveness ----------------------------------------------------------------------------------------------------

    def check_liveness(self) -> None:
        """L1 for each task, and L2. Raises Found."""
        for property_id, bit in (("L1", 1), ("L1", 2), ("L2", _STOPPING)):
            for part in self._parts(lambda state, bit=bit: bool(self._open[state] & bit)):  # type: ignore[misc]
                if self._is_fair(part):
                    raise Found(property_id, f"{property_id}: stays open on a cycle", self.path(min(part)))

    def _is_fair(self, part: list[int]) -> bool:
        """Whether the part allows going round for ever without starving a fair move."""
        inside = set(part)
        taken, always = 0, 0xFF
        turns = False
        for state in part:
            always &= self._able[state]
            for edge in range(self._first[state], self._first[state + 1]):
                if self._edges[edge] in inside:
                    turns = True
                    taken |= self._taken[edge]
        return turns and not always & ~taken

    def _parts(self, among: Callable[[int], bool]) -> Iterator[list[int]]:
        """The strongly connected parts of some states (Tarjan, without recursion)."""
        order: dict[int, int] = {}
        low: dict[int, int] = {}
        stack: list[int] = []
        on_stack: set[int] = set()
        for root in range(self.states):
            if root in order or not among(root):
                continue
            work = [(root, self._first[root])]
            order[root] = low[root] = len(order)
            stack.append(root)
            on_stack.add(root)
            while work:
                state, edge = work[-1]
                if edge < self._first[state + 1]:
                    work[-1] = (state, edge + 1)
                    after = self._edges[edge]
                    if not among(after):
                        continue
                    if after not in order:
                        order[after] = low[after] = len(order)
                        stack.append(after)
                        on_stack.add(after)
                        work.append((after, self._first[after]))
                    elif after in on_stack:
                        low[state] = min(low[state], order[after])
                    continue
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[state])
                if low[state] == order[state]:
                    part: list[int] = []
                    while not part or part[-1] != state:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    yield part
