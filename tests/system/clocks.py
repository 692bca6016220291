"""Clocks for real processes: one that runs faster than the world and can be stepped, one whose minute does not end.

Both follow from the kernel's monotonic clock, which all processes of a machine share and which goes on while one of
them is stopped: a test can tell what a frozen process will read when it wakes up.
"""

import asyncio
import time
from datetime import tzinfo
from typing import Final

from duly.clock import SystemClock, doze
from duly.core.moments import MICROSECONDS, Instant

MINUTE: Final = 60 * MICROSECONDS


class AcceleratedClock:
    """`factor` seconds of wall and steady time in one second of the world. Equal arguments, equal time."""

    def __init__(self, begins: int, factor: float, *, origin: float | None = None, zone: tzinfo | None = None) -> None:
        self.factor = factor
        self.origin = time.monotonic() if origin is None else origin
        """The moment of the kernel's clock at which this one shows `begins`."""
        self._begins = begins
        self._zone = zone
        self._stepped = 0
        self._passed = 0.0  # before the origin

    def now(self) -> Instant:
        """The wall clock, with all steps."""
        return Instant(self._begins + self._stepped + int(self.elapsed() * MICROSECONDS))

    def elapsed(self) -> float:
        """The steady clock."""
        return self._passed + (time.monotonic() - self.origin) * self.factor

    def zone(self) -> tzinfo:
        """The zone it was given, or the host's, as TZ says."""
        return self._zone or SystemClock().zone()

    def step(self, seconds: float) -> None:
        """Set the wall clock, as an administrator or a time server would; the steady clock does not notice."""
        self._stepped += int(seconds * MICROSECONDS)

    def slow_down(self) -> None:
        """Go on at the world's pace: stop() has a patience of 30 s, in which a real disk must be able to answer."""
        self._passed, self.origin, self.factor = self.elapsed(), time.monotonic(), 1

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """Wait on the event loop's timer, which counts seconds of the world."""
        await doze((instant - self.now()) / MICROSECONDS / self.factor, wake)


class LongMinute:
    """The host's clock at the beginning of its next minute, which does not end: it stands still a second before.

    Nothing else falls due while a test is under way, however long a busy machine takes for it.
    """

    _LONGEST_SECONDS: Final = 59.0

    def __init__(self) -> None:
        self._origin = time.monotonic()
        self._begins = SystemClock().now() // MINUTE * MINUTE + MINUTE

    def now(self) -> Instant:
        """The host's wall clock, less than a minute fast."""
        return Instant(self._begins + int(self.elapsed() * MICROSECONDS))

    def elapsed(self) -> float:
        """The steady clock, which stands still when the other does: no clock has been stepped."""
        return min(time.monotonic() - self._origin, self._LONGEST_SECONDS)

    def zone(self) -> tzinfo:
        """The host's."""
        return SystemClock().zone()

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """Wait for an instant of this minute, or, for any later one, until somebody wakes the scheduler."""
        if instant >= self._begins + MINUTE:
            await wake.wait()
        else:
            await doze((instant - self.now()) / MICROSECONDS, wake)
