"""The clock of a shared store, as one of its hosts knows it: what decides when a task is due (SPEC 9.11)."""

import asyncio
from datetime import tzinfo
from typing import Final

from duly.clock import Clock
from duly.core.moments import MICROSECONDS

FLOOR_AHEAD_MAX: Final = 1 * MICROSECONDS
"""A past instant that lies further ahead than this shows that the clock of the store was set back."""

DRIFT_MAX: Final = 0.001
"""How much slower than a host's steady clock that of the store may run while it is adjusted: twice what NTP allows."""


class SharedClock:
    """An estimate of the store's clock that is never ahead of it, between one answer and the next.

    An answer says what that clock showed at some moment after the question was sent and before the answer arrived; this
    host's own steady clock counts from there. Its wall clock takes no part. An answer that was long under way says
    less than the one before it, which then stays. Instants that stand in the log are past, and so is what it has shown
    itself: it never shows less than the latest of them.
    """

    def __init__(self, host: Clock) -> None:
        self.steady = host
        """The clock of this host itself."""
        self._heard: tuple[int, int] | None = None
        """Microseconds from the steady clock to that of the store, and when it was heard; None: no answer yet."""
        self._floor = 0
        """The latest instant that is known to be past."""

    def hear(self, clock: int, sent: float | None = None) -> None:
        """An answer that has just arrived says what the clock of the store showed; from any thread.

        Args:
            clock: what it showed.
            sent: the reading of the steady clock before the question was sent, if that is known.
        """
        arrived = self._elapsed_microseconds()
        offset = clock - arrived
        if self._heard is not None and sent is not None:
            before, since = self._heard
            before -= int((arrived - since) * DRIFT_MAX)
            if before <= clock - round(sent * MICROSECONDS):  # else the clock of the store was set back
                offset = max(offset, before)
        self._heard = offset, arrived

    def passed(self, instant: int) -> None:
        """An entry of the log bears this instant."""
        self._floor = max(self._floor, instant)

    def now(self) -> int:
        """The clock of the store, or this host's own before the first answer."""
        if self._heard is None:
            return self.steady.now()
        offset, _ = self._heard
        estimate = self._elapsed_microseconds() + offset
        if estimate >= self._floor:
            self._floor = estimate
            return estimate
        if self._floor - estimate > FLOOR_AHEAD_MAX:
            self._floor = 0
            return estimate
        return self._floor

    def _elapsed_microseconds(self) -> int:
        # Rounded: cut off, two readings of one moment can differ by one, and the store refuses a stamp ahead of it.
        return round(self.steady.elapsed() * MICROSECONDS)

    def elapsed(self) -> float:
        """This host's steady clock."""
        return self.steady.elapsed()

    def zone(self) -> tzinfo:
        """This host's zone."""
        return self.steady.zone()

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """Wait on this host's clock, for as long as the store's needs."""
        await self.steady.sleep_until(self.steady.now() + instant - self.now(), wake)
