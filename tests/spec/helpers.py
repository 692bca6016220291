"""Helpers for the conformance tests: callbacks that follow a script, and functions that read what a scheduler did.

What a scheduler did is read from its events and, through read-only connections, from its file.
"""

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Final, TypeVar

from duly.events import Event, TaskRunStarted
from duly.testing import SimulatedHost

E = TypeVar("E", bound=Event)

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)


class CallbackError(Exception):
    """The error of failing callbacks here."""


@dataclass(frozen=True)
class Step:
    """One run of a callback: work for some simulated seconds, then return or raise."""

    seconds: float = 0
    error: BaseException | None = None


def succeeds(*, after: float = 0) -> Step:
    """Return, after some seconds of simulated work."""
    return Step(after)


def fails(*, after: float = 0, error: BaseException | None = None) -> Step:
    """Raise, after some seconds of simulated work."""
    return Step(after, error or CallbackError("it did not work"))


class Script:
    """A coroutine callback that takes one step per run, and repeats the last one for ever."""

    def __init__(self, host: SimulatedHost, *steps: Step) -> None:
        self._host = host
        self._steps = steps or (succeeds(),)
        self.calls = 0

    async def __call__(self) -> None:
        step = self._steps[min(self.calls, len(self._steps) - 1)]
        self.calls += 1
        if step.seconds:
            await self._host.sleep(step.seconds)
        if step.error is not None:
            raise step.error


async def succeed() -> None:
    """A callback that returns at once."""


async def fail() -> None:
    """A callback that raises at once."""
    raise CallbackError("it did not work")


# --- events ----------------------------------------------------------------------------------------------------------


def told(host: SimulatedHost, kind: type[E], name: str | None = None) -> list[E]:
    """The events of one kind, of one task or of all."""
    return [
        event for event in host.events if isinstance(event, kind) and (name is None or event.fields["taskName"] == name)
    ]


def started(host: SimulatedHost, name: str = "task") -> list[datetime]:
    """When a task started."""
    return [event.actual_time for event in told(host, TaskRunStarted, name)]


def starts(host: SimulatedHost, name: str = "task") -> list[str]:
    """The wall clock, without its date, at each start of a task: `12:00:00`, `12:00:01.500000`."""
    return [when.time().isoformat() for when in started(host, name)]


def order(host: SimulatedHost) -> list[str]:
    """The names of the tasks, start by start."""
    return [event.task_name for event in told(host, TaskRunStarted)]


def story(host: SimulatedHost, *names: str) -> list[str]:
    """The names of the events about these tasks, in the order in which they were reported."""
    return [event.name for event in host.events if event.fields.get("taskName") in names]


# --- the file --------------------------------------------------------------------------------------------------------


def rows(path: Path, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """The rows of a store's file, read as another program would: read-only."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query, values)]


def stored(path: Path, name: str = "task") -> dict[str, Any]:
    """The record of a task that is in force."""
    found = rows(
        path, "SELECT * FROM tasks JOIN states USING (generation) WHERE retired_at IS NULL AND name = ?", [name]
    )
    assert len(found) == 1, f"{len(found)} records of {name!r}"
    return found[0]


def history(path: Path, name: str = "task") -> list[dict[str, Any]]:
    """The run records of a task, oldest first."""
    return rows(path, "SELECT runs.* FROM runs JOIN tasks USING (generation) WHERE name = ? ORDER BY seq", [name])


def microseconds(when: datetime) -> int:
    """An aware datetime as the store writes instants."""
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def seconds(when: datetime) -> int:
    """An aware datetime as the store writes minutes."""
    return microseconds(when) // 1_000_000


def minutes(first: str, last: str) -> list[str]:
    """Every minute of a day from one to another, both included, as `starts` shows them."""
    begin, end = (datetime.fromisoformat(f"2000-01-01T{text}") for text in (first, last))
    return [(begin + index * MINUTE).time().isoformat() for index in range((end - begin) // MINUTE + 1)]


def distinct(values: Iterable[object]) -> bool:
    """Whether no value comes twice."""
    listed = list(values)
    return len(listed) == len(set(listed))


# --- real schedulers -------------------------------------------------------------------------------------------------


class ManualClock:
    """A `duly.Clock` that moves only when the test says so, for real threads and a real loop."""

    def __init__(self, at: str = "2024-06-01T12:00:00+00:00") -> None:
        self._now = microseconds(datetime.fromisoformat(at))
        self._elapsed = 0.0
        self._sleepers: list[tuple[int, asyncio.Event]] = []

    def now(self) -> int:
        return self._now

    def elapsed(self) -> float:
        return self._elapsed

    def zone(self) -> tzinfo:
        return UTC

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        if instant <= self._now:
            await asyncio.sleep(0)
            return
        sleeper = (instant, wake)
        self._sleepers.append(sleeper)
        try:
            await wake.wait()
        finally:
            self._sleepers.remove(sleeper)

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake what waited for it."""
        self._now += int(seconds * 1_000_000)
        self._elapsed += seconds
        for instant, wake in self._sleepers:
            if instant <= self._now:
                wake.set()


class Ear:
    """An `on_event` that can be awaited."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    def of(self, kind: type[E], name: str | None = None) -> list[E]:
        """The reported events of one kind, about one task or all."""
        return [
            event
            for event in self.events
            if isinstance(event, kind) and (name is None or event.fields["taskName"] == name)
        ]

    async def hear(self, kind: type[E], name: str | None = None, *, times: int = 1) -> list[E]:
        """Wait until an event has been reported that often."""
        async with asyncio.timeout(30):
            while len(self.of(kind, name)) < times:
                self._news.clear()
                await self._news.wait()
        return self.of(kind, name)
