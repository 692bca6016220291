"""Chance from a seed, the same on every Python, and simulated threads whose calls begin when the dice say so.

Every seed gives one of the orders that real threads and timers could have produced just as well.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from duly.engine.pacing import breathe
from duly.threads import JOIN_SECONDS

T = TypeVar("T")

_MASK: Final = (1 << 64) - 1
_HESITATION_ROUNDS_MAX: Final = 3


class Dice:
    """A stream of numbers that depends on the seed alone (SplitMix64): not on the Python, its hashes or its library."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) * bound) >> 64

    def choice(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self.below(len(options))]


class SeededWorker:
    """A simulated thread of a store: calls take some rounds of the event loop each, one after the other.

    A caller may be cancelled while it waits; its call still runs.
    """

    size = 1

    def __init__(self, dice: Dice, alive: Callable[[], object]) -> None:
        self._dice = dice
        self._alive = alive
        self._calls: deque[Callable[[], None]] = deque()
        self._busy = False

    async def run(self, call: Callable[[], T]) -> T:
        """Run one call after all earlier ones."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def perform() -> None:
            self._alive()
            try:
                result = call()
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self._calls.append(perform)
        if not self._busy:
            self._busy = True
            self._hesitate(self._dice.below(_HESITATION_ROUNDS_MAX + 1))
        return await answer

    def close(
        self, last: Callable[[], object] | None = None, *, wait: bool = True, seconds: float = JOIN_SECONDS
    ) -> None:
        """Run what is left, then `last`."""
        while self._calls:
            self._calls.popleft()()
        if last is not None:
            last()

    def _hesitate(self, rounds: int) -> None:
        loop = asyncio.get_running_loop()
        if rounds:
            loop.call_soon(self._hesitate, rounds - 1)
            return
        if self._calls:
            self._calls.popleft()()
        if self._calls:
            loop.call_soon(self._hesitate, self._dice.below(_HESITATION_ROUNDS_MAX + 1))
        else:
            self._busy = False


class SeededPool:
    """Simulated threads for callbacks: a call begins some rounds of the event loop later, and takes no time."""

    def __init__(self, size: int, dice: Dice) -> None:
        self.size = size
        self._dice = dice

    async def run(self, call: Callable[[], T]) -> T:
        """Run the call here, some rounds of the event loop later."""
        for _ in range(self._dice.below(_HESITATION_ROUNDS_MAX + 1)):
            await breathe()
        return call()

    def close(
        self, last: Callable[[], object] | None = None, *, wait: bool = True, seconds: float = JOIN_SECONDS
    ) -> None:
        """There is nothing to end."""
        if last is not None:
            last()
