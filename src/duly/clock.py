"""Time: the `Clock` protocol, and the system's clock.

Only this module reads the time or waits for an instant. All others are given a clock, so that a test, a simulation or
a replay can pass its own.
"""

import asyncio
import time
from datetime import tzinfo
from typing import Protocol, runtime_checkable

import tzlocal

from duly.core.moments import MICROSECONDS
from duly.errors import HostZoneError


@runtime_checkable
class Clock(Protocol):
    """The scheduler's source of time. A clock of your own can run faster, stand still, or replay."""

    def now(self) -> int:
        """The wall clock: microseconds since the epoch (1970-01-01T00:00:00Z). It may be set, even back."""
        ...

    def elapsed(self) -> float:
        """Seconds since some fixed moment. They never go back, whatever the wall clock does."""
        ...

    def zone(self) -> tzinfo:
        """The host's time zone; every initialize() asks for it."""
        ...

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """Return when `now()` has reached an instant, or as soon as the event is set.

        Measure the wait in passing time: if the wall clock is set meanwhile, the loop finds that out after the wait.
        The clock may set the event itself when the time has come. It must await and never block, because the event loop
        belongs to the application. Ends, retries and `stop()` set the event: a clock that ignores it delays them all.

        Parameters:
            instant: microseconds since the epoch; at most a minute ahead.
            wake: the event that ends the wait early.
        """
        ...


class SystemClock:
    """The host's clock and zone."""

    def now(self) -> int:
        """The host's wall clock."""
        return time.time_ns() // 1_000

    def elapsed(self) -> float:
        """The host's steady clock."""
        return time.monotonic()

    def zone(self) -> tzinfo:
        """The host's zone, read again: TZ or the system's setting may have changed since the last time."""
        try:
            return tzlocal.reload_localzone()
        except Exception as cause:
            said = str(cause.args[0] if cause.args else cause)  # a KeyError's own text is quoted
            reason = said.strip().split("\n")[0].strip(" .")
            raise HostZoneError(f"The host's time zone cannot be determined: {reason}", cause=cause) from cause

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """Wait on the event loop's timer."""
        await doze((instant - self.now()) / MICROSECONDS, wake)


def boottime() -> float:
    """Seconds since some fixed moment that count on while the machine is suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()  # on macOS it counts suspended time


async def doze(seconds: float, wake: asyncio.Event) -> None:
    """Return after `seconds` of the event loop's own time, or as soon as `wake` is set."""
    if wake.is_set() or seconds <= 0:
        await asyncio.sleep(0)
        return
    # Not asyncio.timeout(): it wakes its task by cancelling it, and the engine takes a cancelled task to mean that
    # the event loop is being torn down.
    timer = asyncio.get_running_loop().call_later(seconds, wake.set)
    try:
        await wake.wait()
    finally:
        timer.cancel()
