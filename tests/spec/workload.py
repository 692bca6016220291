"""Callbacks that write down what happened to them, for tests of the lifecycle and of persistence."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, timedelta, tzinfo

from duly.events import Event
from duly.testing import SimulatedHost

Registration = tuple[str, str, Callable[[], object], timedelta]

MINUTELY = "* * * * *"
HOURLY = "0 13-23 * * *"  # the hosts of these tests begin at 12:00:30: from the next hour on
NEVER_TODAY = "0 0 1 1 *"
DELAY = timedelta(minutes=5)


class Workload:
    """The runs on a host: `begun` and `ended` hold (label, wall clock)."""

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host
        self.begun: list[tuple[str, str]] = []
        self.ended: list[tuple[str, str]] = []
        self.alive: Counter[str] = Counter()

    def callback(
        self, label: str, *, takes: float = 0, fails: bool | Sequence[bool] = False
    ) -> Callable[[], Awaitable[None]]:
        """A callback that works for `takes` seconds and then fails, always or as the sequence says."""
        outcomes = None if isinstance(fails, bool) else list(fails)

        async def run() -> None:
            self.begun.append((label, self.clock()))
            self.alive[label] += 1
            try:
                if takes:
                    await self.host.sleep(takes)
            finally:
                self.alive[label] -= 1
            self.ended.append((label, self.clock()))
            if (outcomes.pop(0) if outcomes else False) if outcomes is not None else fails:
                raise RuntimeError(f"{label} failed")

        return run

    def task(
        self,
        name: str,
        cron: str = MINUTELY,
        *,
        label: str | None = None,
        takes: float = 0,
        fails: bool | Sequence[bool] = False,
        delay: timedelta = DELAY,
    ) -> Registration:
        """A registration whose callback writes itself down as `label`, by default the task's name."""
        return (name, cron, self.callback(label or name, takes=takes, fails=fails), delay)

    def clock(self) -> str:
        """The wall clock as HH:MM:SS."""
        return self.host.now.strftime("%H:%M:%S")

    def starts(self, label: str) -> list[str]:
        """When a label's callback began."""
        return [when for what, when in self.begun if what == label]

    def ends(self, label: str) -> list[str]:
        """When a label's callback ended."""
        return [when for what, when in self.ended if what == label]


def sequence(host: SimulatedHost, *kinds: type[Event]) -> list[str]:
    """The names of the events of these kinds, in order."""
    return [event.name for event in host.events if isinstance(event, kinds)]


def outcome(task: "asyncio.Task[None]") -> BaseException | str:
    """How an awaited call went: an exception, or a word."""
    if not task.done():
        return "pending"
    if task.cancelled():
        return "cancelled"
    return task.exception() or "returned"


class RestlessClock:
    """A wall clock that stands still at noon, and a steady clock that advances a second at each reading: every step of
    work seems too long, so a large initialize() makes every pause that it may make."""

    def __init__(self) -> None:
        self.minutes = 0
        self._ticks = itertools.count()

    def now(self) -> int:
        """2024-01-01T12:00Z, and as many minutes later as the test says."""
        return (1_704_110_400 + 60 * self.minutes) * 1_000_000

    def elapsed(self) -> float:
        """A second more each time."""
        return float(next(self._ticks))

    def zone(self) -> tzinfo:
        """UTC."""
        return UTC

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """For ever, or until woken."""
        if instant <= self.now():
            await asyncio.sleep(0)
            return
        await wake.wait()
