"""A clock that runs faster than the world and can be stepped: the clock seam of docs/guide.md, for real processes.

Everything follows from the kernel's monotonic clock, which all processes of a machine share and which goes on while one
of them is stopped: the test can tell what a frozen process will read when it wakes up.
"""

import asyncio
import time
from datetime import tzinfo

from duly.clock import SystemClock, doze
from duly.core.moments import MICROSECONDS, Instant


class AcceleratedClock:
    """`factor` seconds of wall and steady time in one second of the world; the zone is the host's, as TZ says."""

    def __init__(self, begins: int, factor: int, *, origin: float | None = None) -> None:
        self.factor = factor
        self.origin = time.monotonic() if origin is None else origin
        self._begins = begins
        self._stepped = 0
        self._passed = 0.0  # before the origin

    def now(self) -> Instant:
        """The wall clock, with all steps."""
        return Instant(self._begins + self._stepped + int(self.elapsed() * MICROSECONDS))

    def elapsed(self) -> float:
        """The steady clock."""
        return self._passed + (time.monotonic() - self.origin) * self.factor

    def zone(self) -> tzinfo:
        """The host's zone, read as every duly reads it."""
        return SystemClock().zone()

    def step(self, seconds: float) -> None:
        """Set the wall clock, as an administrator or a time server would; the steady clock does not notice."""
        self._stepped += int(seconds * MICROSECONDS)

    def slow_down(self) -> None:
        """Go on at the world's pace: stop() has a patience of 30 s, in which a real disk must be able to answer."""
        self._passed, self.origin, self.factor = self.elapsed(), time.monotonic(), 1

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """Wait on the event loop's timer, which counts seconds of the world."""
        await doze((instant - self.now()) / MICROSECONDS / self.factor, wake)
