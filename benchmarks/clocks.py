"""The system's clock, and one that leaps over seconds in which nothing happens; docs/guide.md says what a clock is."""

import asyncio
import time
from datetime import datetime, tzinfo

import tzlocal

MINUTE = 60_000_000
"""In microseconds, as a clock counts."""


class LeapingClock:
    """The system's time, except that `leap()` lets a stretch of it pass at once.

    Both the wall clock and the steady one leap, so to the scheduler time has passed, and no clock was stepped. Between
    leaps time is real: what is measured after a minute boundary is measured in real seconds.
    """

    minutes_ahead = 4
    """How many boundaries ahead the minute lies that tasks are declared for: time enough to declare a million."""

    def __init__(self) -> None:
        self._ahead = 0  # microseconds
        self._sleeper: tuple[int, asyncio.Event] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.looks = 0
        """How often the scheduler went to sleep: one more than it woke up."""

    def now(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1_000 + self._ahead

    def elapsed(self) -> float:
        """The steady clock."""
        return time.monotonic() + self._ahead / 1_000_000

    def zone(self) -> tzinfo:
        """The host's zone."""
        return tzlocal.get_localzone()

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """Wait for the instant, in real time or by a leap."""
        self.looks += 1
        if wake.is_set() or instant <= self.now():
            await asyncio.sleep(0)
            return
        self._sleeper = instant, wake
        self._arm()
        try:
            await wake.wait()
        finally:
            self._sleeper = None
            self._disarm()

    def leap(self, microseconds: int) -> None:
        """Let time pass at once; a sleeper wakes up that much earlier."""
        self._ahead += microseconds
        if self._sleeper is not None:
            self._disarm()
            self._arm()

    async def make_room(self, seconds: float) -> None:
        """Let a minute begin, if the next boundary is not at least that far away."""
        left = MINUTE - self.now() % MINUTE
        if left < seconds * 1_000_000:
            self.leap(left)

    def leap_to_boundary(self, lead_seconds: float) -> float:
        """Leap until shortly before the next minute; returns when that begins, on the scale of `perf_counter()`."""
        left = MINUTE - self.now() % MINUTE
        self.leap(max(0, left - int(lead_seconds * 1_000_000)))
        return self.next_boundary()

    def due_minute(self) -> datetime:
        """A minute that is far enough ahead, on the host's wall clock."""
        instant = (self.now() // MINUTE + self.minutes_ahead) * MINUTE
        return datetime.fromtimestamp(instant / 1_000_000, self.zone())

    def leap_to(self, due: datetime, lead_seconds: float) -> float:
        """Leap until shortly before a minute begins; returns when that is, on the scale of `perf_counter()`."""
        left = round(due.timestamp() * 1_000_000) - self.now()
        if left < lead_seconds * 1_000_000:
            raise RuntimeError("declaring the tasks took so long that they were due before")
        self._skip(left - int(lead_seconds * 1_000_000))
        here, now = time.perf_counter(), self.now()
        return here + due.timestamp() - now / 1_000_000

    def _skip(self, microseconds: int) -> None:
        self.leap(microseconds)

    def next_boundary(self) -> float:
        """When the next minute begins, on the scale of `perf_counter()`."""
        here, now = time.perf_counter(), self.now()
        return here + (MINUTE - now % MINUTE) / 1_000_000

    def _arm(self) -> None:
        assert self._sleeper is not None
        instant, wake = self._sleeper
        self._timer = asyncio.get_running_loop().call_later(max(0.0, (instant - self.now()) / 1_000_000), wake.set)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PatientClock(LeapingClock):
    """The system's time without leaps: asking for the next minute waits for it."""

    minutes_ahead = 1

    def _skip(self, microseconds: int) -> None:
        """Do nothing: real time passes."""

    async def make_room(self, seconds: float) -> None:
        """Wait for a minute to begin, if the next boundary is not at least that far away."""
        left = (MINUTE - self.now() % MINUTE) / 1_000_000
        if left < seconds:
            await asyncio.sleep(left)

    def leap_to_boundary(self, lead_seconds: float) -> float:
        """When the next minute begins, on the scale of `perf_counter()`; it is not leaped to."""
        return self.next_boundary()


def clock_for(*, system: bool) -> LeapingClock:
    """The clock of a measurement."""
    return PatientClock() if system else LeapingClock()
