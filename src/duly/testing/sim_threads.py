"""Chance from a seed, the same on every Python: who goes first, and how long what a thread would do takes.

Seed 0 is the plain order, in which everything happens as it came and at once. Any other seed is one of the orders that
threads and timers could have produced just as well.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from duly.clock import breathe

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
    """A store's calls take some rounds of the event loop, one after the other, as those of a thread do.

    Whoever waits for a call may be cancelled; the call itself goes on.
    """

    def __init__(self, dice: Dice, alive: Callable[[], object]) -> None:
        self._dice = dice
        self._alive = alive
        self._calls: deque[Callable[[], None]] = deque()
        self._busy = False

    async def call(self, work: Callable[[], T]) -> T:
        """Run one call after all earlier ones."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def perform() -> None:
            self._alive()
            try:
                result = work()
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

    def finish(self, work: Callable[[], None]) -> None:
        """Run what is left, and a last call."""
        while self._calls:
            self._calls.popleft()()
        work()

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
    """Blocking callbacks begin some rounds of the event loop later, as those of a thread do; they take no time."""

    def __init__(self, size: int, dice: Dice | None = None) -> None:
        self.size = size
        self._dice = dice

    async def run(self, callback: Callable[[], Any]) -> Any:
        """Call it here, in its turn."""
        if self._dice is not None:
            for _ in range(self._dice.below(_HESITATION_ROUNDS_MAX + 1)):
                await breathe()
        return callback()

    def close(self, *, wait: bool) -> None:
        """There is nothing to close."""
