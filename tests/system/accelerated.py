"""A clock that runs faster than the host's, and that all processes of one machine can share."""

import asyncio
import time
from datetime import tzinfo
from zoneinfo import ZoneInfo

from duly.clock import doze
from duly.core.moments import MICROSECONDS


class AcceleratedClock:
    """Shows `wall` (microseconds since the epoch) at the moment `origin` of the steady clock, and runs `speed` times
    faster from there on. The steady clock is one for the whole machine: equal arguments, equal time."""

    def __init__(self, wall: int, origin: float, speed: float = 60.0, zone: str = "UTC") -> None:
        self.speed = speed
        self._wall = wall
        self._origin = origin
        self._zone = ZoneInfo(zone)

    def now(self) -> int:
        """Wall time."""
        return self._wall + int((time.monotonic() - self._origin) * self.speed * MICROSECONDS)

    def elapsed(self) -> float:
        """Passing time, as fast as the wall clock."""
        return (time.monotonic() - self._origin) * self.speed

    def zone(self) -> tzinfo:
        """The zone it was given."""
        return self._zone

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """Wait for a real timer of a fraction of the time."""
        await doze((instant - self.now()) / MICROSECONDS / self.speed, wake)
