"""The clock of a simulated host: wall time, passing time, and the sleepers that wait for it."""

import asyncio
from collections.abc import Callable
from datetime import tzinfo
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Final

from duly.core.moments import MICROSECONDS, Instant
from duly.engine.pacing import breathe
from duly.testing.sim_threads import Dice

_MINUTE: Final = 60 * MICROSECONDS


class SimulatedClock:
    """A clock that is moved by hand, and wakes sleepers whose time has come."""

    def __init__(self, wall: Instant, zone: tzinfo, dice: Dice | None = None) -> None:
        self.wall = wall
        self.passed = 0  # microseconds
        self.signs_of_life = 0
        self.naps: set[asyncio.Event] = set()
        """Callbacks that are asleep, by the event that will wake each."""
        self.waking: set[asyncio.Event] = set()
        """Sleepers whose time has come, and that have not gone on yet."""
        self.put_off: Callable[[int, asyncio.Event], int] | None = None
        """Until when a poll can wait that was wanted at an instant."""
        self._zone = zone
        self._sleepers: list[tuple[int, int, asyncio.Event, list[bool]]] = []
        self._wanted: dict[asyncio.Event, tuple[int, list[bool]]] = {}  # when polls that were put off would have come
        self._unsettled: set[asyncio.Event] = set()  # sleepers from before the wall clock was set
        self._tickets = count()
        self._dice = dice

    def now(self) -> Instant:
        """The wall clock."""
        self.signs_of_life += 1
        return self.wall

    def elapsed(self) -> float:
        """The steady clock."""
        return self.passed / MICROSECONDS

    def boottime(self) -> float:
        """The steady clock of the machine, which here is never suspended by itself."""
        self.signs_of_life += 1
        return self.passed / MICROSECONDS

    def zone(self) -> tzinfo:
        """The host's zone."""
        return self._zone

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """Sleep until an instant of the wall clock as it goes now, or until woken; a poll may be put off."""
        later = instant if self.put_off is None else self.put_off(instant, wake)
        wanted = self.passed + instant - self.wall if later > instant else None
        await self.sleep(later - self.wall, wake, wanted)

    async def nap(self, microseconds: int) -> None:
        """Sleep for a stretch of passing time, as callbacks do."""
        wake = asyncio.Event()
        self.naps.add(wake)
        try:
            await self.sleep(microseconds, wake)
        finally:
            self.naps.discard(wake)

    async def sleep(self, microseconds: int, wake: asyncio.Event, wanted: int | None = None) -> None:
        """Sleep for a stretch of passing time, or until woken."""
        self.signs_of_life += 1
        if wake.is_set() or microseconds <= 0:
            await breathe()
            return
        asleep = [True]
        heappush(self._sleepers, (self.passed + microseconds, next(self._tickets), wake, asleep))
        if wanted is not None:
            self._wanted[wake] = (wanted, asleep)
        try:
            await wake.wait()
        finally:
            asleep[0] = False
            self._wanted.pop(wake, None)
            self._unsettled.discard(wake)
            self.waking.discard(wake)
            self.signs_of_life += 1

    def restore_polls(self) -> None:
        """The wall clock is about to be set: polls that were put off come again at the minutes they were wanted at."""
        self._unsettled.update(wake for _, _, wake, asleep in self._sleepers if asleep[0])
        for wake, (wanted, asleep) in self._wanted.items():
            minutes = max(0, (self.passed - wanted) // _MINUTE + 1)
            heappush(self._sleepers, (wanted + minutes * _MINUTE, next(self._tickets), wake, asleep))

    def next_alarm(self) -> int | None:
        """When the next sleeper wants to be woken, in passing time."""
        while self._sleepers and not self._sleepers[0][3][0]:
            heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def put_off_again(self) -> None:
        """Put off the next poll if the reason it was wanted for, when its loop fell asleep, is gone."""
        alarm, _, wake, asleep = self._sleepers[0]
        if self.put_off is None or wake in self._wanted or wake in self._unsettled:
            return  # put off already, or the wall clock has been set, which the poll must find
        instant = self.wall + alarm - self.passed
        later = self.put_off(instant, wake)
        if later > instant:
            heapreplace(self._sleepers, (self.passed + later - self.wall, next(self._tickets), wake, asleep))
            self._wanted[wake] = (alarm, asleep)

    def pass_by(self, microseconds: int) -> None:
        """Let time pass, and wake the sleepers whose time has come."""
        self.wall = Instant(self.wall + microseconds)
        self.passed += microseconds
        woken: list[asyncio.Event] = []
        while (alarm := self.next_alarm()) is not None and alarm <= self.passed:
            _, _, wake, asleep = heappop(self._sleepers)
            asleep[0] = False
            self.naps.discard(wake)
            woken.append(wake)
        self.waking.update(woken)
        while woken:
            # Sleepers of the same moment, or of an earlier one, wake in the order of the dice.
            woken.pop(0 if self._dice is None else self._dice.below(len(woken))).set()


class SimulatedTicker:
    """Calls a function again and again in simulated time, on the event loop."""

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def start(self, call: Callable[[], float | None], seconds: float, last: Callable[[], object]) -> None:
        """Call it from now on, and again this long after each call has returned; at the end call `last`.

        A call that returns a number of seconds wants to be called again that soon.
        """
        self._task = asyncio.get_running_loop().create_task(self._tick(call, seconds, last))

    def hurry(self) -> None:
        """Call it at once."""
        self._bell.set()

    def stop(self) -> None:
        """Call it no more."""
        self._over = True
        self._bell.set()

    async def _tick(self, call: Callable[[], float | None], seconds: float, last: Callable[[], object]) -> None:
        while not self._over:
            sooner = call()
            self._clock.waking.add(self._bell)  # no time passes before the event loop has heard what came of it
            await breathe()
            self._clock.waking.discard(self._bell)
            await self._clock.sleep(int((seconds if sooner is None else sooner) * MICROSECONDS), self._bell)
            self._bell.clear()
        last()
