"""An event loop in which time passes only when nothing is ready, and a seed picks which ready callback goes first.

It has no sockets, no signals and no threads. Waiting for something that nothing can bring about is a `Deadlock`, at
once. In each round the callbacks that were ready at its beginning run in the order of the dice; seed 0 is the order
of every other event loop. asyncio promises that order; the scheduler must not need it.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from selectors import BaseSelector, SelectorKey
from typing import Any, TypeVar

from duly.testing.sim_threads import Dice

T = TypeVar("T")


_ROUNDS_MAX = 5_000
"""Rounds in which something was ready, one after the other: more than any honest burst takes."""


_LAST_ROUNDS = 50


class Deadlock(Exception):  # noqa: N818 - it is the name of the thing
    """Everything waits, and nothing is left that could end it."""


class _Ready(deque[Any]):
    """The queue of ready callbacks; those of one round leave it in the order of the dice."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = Dice(seed)
        self.round_left: int | None = None

    def popleft(self) -> Any:
        if self.round_left is None:
            self.round_left = len(self)
        place = self._dice.below(self.round_left)
        self.round_left -= 1
        self.rotate(-place)
        picked = super().popleft()
        self.rotate(place)
        return picked


class _Nothing(BaseSelector):
    """Nothing ever happens but time: waiting for some of it lets it pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ready: _Ready | None = None
        self.rounds = 0
        self.waiting_for_rest: list[asyncio.Future[None]] = []

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        self.rounds += 1
        if timeout == 0:
            if self.rounds > _ROUNDS_MAX:
                raise Deadlock("something runs on and on, and nothing comes to rest")
        else:
            self._rest(timeout)
        if self.ready is not None:
            self.ready.round_left = None  # the next round begins
        return []

    def _rest(self, timeout: float | None) -> None:
        """Nothing is ready: wake what waited for that, or let time pass."""
        self.rounds = 0
        waiting, self.waiting_for_rest = self.waiting_for_rest, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
        if waiting:
            return
        if timeout is None:
            raise Deadlock("everything waits for something that will never come")
        self.now += timeout

    def register(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        raise OSError("a simulated process has no files to wait for")

    def unregister(self, fileobj: Any) -> SelectorKey:
        raise KeyError(fileobj)

    def get_map(self) -> dict[Any, SelectorKey]:
        return {}


class SeededLoop(asyncio.BaseEventLoop):
    """The loop. `_ready` and `_selector` have been what `BaseEventLoop` uses them for since they were written."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._selector = selector = _Nothing()
        self._clock_resolution = 1e-9
        if seed:
            selector.ready = self._ready = _Ready(seed)

    def time(self) -> float:
        """Seconds that have passed in here."""
        return self._selector.now

    async def rest(self) -> None:
        """Wait until nothing is ready but what waits here; no time passes."""
        rest = self.create_future()
        self._selector.waiting_for_rest.append(rest)
        await rest

    def _process_events(self, events: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread wakes this loop."""

    def abandon(self) -> None:
        """Cancel what is left, and give it some rounds to end in; nothing waits for what does not."""
        self._selector.rounds = 0
        left = asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        for _ in range(_LAST_ROUNDS):
            if all(task.done() for task in left):
                break
            self.call_soon(self.stop)
            self.run_forever()
        for task in left:
            if task.done() and not task.cancelled():
                task.exception()  # heard: it was told what it was

    def close(self) -> None:
        """Forget everything that was to be done."""
        self._ready.clear()
        super().close()


def run(work: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """`asyncio.run` in a seeded loop; tasks that are left running are cancelled, with a few rounds to end in."""
    loop = SeededLoop(seed)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.abandon()
        loop.close()
