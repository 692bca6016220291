"""A stretch of time on a simulated host: the real scheduler, stand-in callbacks, and what came of it.

Whether a run fails is drawn from the seed, the task's name and the number of its run alone: adding a task, or changing
another one's rate, does not change this one's luck.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import Final

from duly.core.moments import MICROSECONDS, Minute, as_datetime, instant_of, minute_of
from duly.core.occurrences import next_after
from duly.core.registration import Registration
from duly.events import Event, TaskInterrupted, TaskRunCompleted, TaskRunFailed, TaskRunStarted
from duly.insight.zone_changes import leaps
from duly.scheduler import Scheduler
from duly.testing import SimulatedHost

_STEPS: Final = 200
"""How often progress is told."""


class StandInFailure(Exception):  # noqa: N818  # what a stand-in raises when the dice say so; no defect
    """Raised by a stand-in callback."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated: the tasks, the stretch of time, and what goes wrong in it.

    All moments are in UTC: within one zone of its own, Python compares and subtracts wall clocks.
    """

    registrations: Sequence[Registration]
    begin: datetime
    end: datetime
    zone: tzinfo
    seed: int = 0
    down: Sequence[tuple[datetime, datetime]] = ()
    crashes: Sequence[datetime] = ()
    failure_rates: Mapping[str, float] = field(default_factory=dict)
    durations: Mapping[str, float] = field(default_factory=dict)  # seconds

    @property
    def last(self) -> datetime:
        """The last moment: `end` itself is not part of the stretch."""
        return self.end - timedelta(microseconds=1)


@dataclass(slots=True)
class SimulatedRun:
    """One start and what became of it."""

    task: str
    run: int
    cause: str
    at: datetime
    owed_since: datetime
    serves: int
    """How many occurrences this start served: one as a rule, several after downtime or a long run, none for a retry."""

    missed: int
    """How many of these had passed before the minute of the start."""

    outcome: str = "running"
    duration: float | None = None  # seconds

    @property
    def lateness(self) -> float:
        """Seconds between what was owed first and the start."""
        return (self.at - self.owed_since).total_seconds()


@dataclass(slots=True)
class Tally:
    """The sum of one task's runs."""

    task: str
    cron: str
    starts: int = 0
    failures: int = 0
    retries: int = 0
    restarts: int = 0
    interrupted: int = 0
    latest: datetime | None = None
    longest_lateness: float = 0.0
    missed: int = 0
    """Occurrences that passed without a start in their minute, and that a later start served, all at once."""

    skipped: int = 0
    """Minutes that the expression names and the zone skips."""

    repeated: int = 0
    """Minutes that occur twice, and were due the first time only."""

    still_owed: int = 0
    """Occurrences that nothing has served when the stretch ends."""


@dataclass(slots=True)
class Outcome:
    """All that happened."""

    scenario: Scenario
    runs: list[SimulatedRun]
    tallies: list[Tally]
    notes: list[str]


Progress = Callable[[float], object]
"""Told how far it has come, from 0 to 1."""


async def let_pass(scenario: Scenario, progress: Progress = lambda _: None) -> Outcome:
    """Let the stretch pass, on a host of its own."""
    ledger = _Ledger(scenario)
    async with SimulatedHost(scenario.begin, scenario.zone, idle_looks=False) as host:
        host._callbacks_only_sleep = True
        world = _World(scenario, host)
        await world.start()
        for when, what in _deeds(scenario, progress):
            if when > host.now:  # a stop that took its time may have overtaken it
                await host.advance_to(min(when, scenario.last))
            await what(world)
            ledger.hear_all(host.events)
            host.events.clear()  # a year of them need not be kept
    return Outcome(scenario, ledger.runs, ledger.tallies(), world.notes)


# --- what happens when -----------------------------------------------------------------------------------------------

_Deed = Callable[["_World"], Awaitable[None]]


def _deeds(scenario: Scenario, progress: Progress) -> Iterator[tuple[datetime, _Deed]]:
    """Moments and what happens then, in order; the first of those at one moment comes first."""
    deeds: list[tuple[datetime, int, _Deed]] = []
    for begin, end in scenario.down:
        deeds.append((begin, 1, _World.go_down))
        deeds.append((end, 0, _World.come_back))
    deeds += [(crash, 2, _World.crash) for crash in scenario.crashes]
    deeds = [deed for deed in deeds if scenario.begin <= deed[0] < scenario.end]
    length = (scenario.end - scenario.begin) / _STEPS

    def told(share: float) -> _Deed:
        async def tell(_: _World) -> None:
            progress(share)

        return tell

    deeds += [(scenario.begin + step * length, 3, told(step / _STEPS)) for step in range(_STEPS + 1)]
    deeds.sort(key=lambda deed: deed[:2])
    for when, _, what in deeds:
        yield when, what


class _World:
    """The host, the scheduler that lives on it now, and the stand-ins."""

    def __init__(self, scenario: Scenario, host: SimulatedHost) -> None:
        self.notes: list[str] = []
        self._scenario = scenario
        self._host = host
        self._scheduler: Scheduler | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._counts: dict[str, int] = {}
        self._declared = [
            (each.name, each.expression.text, self._stand_in(each.name), timedelta(milliseconds=each.delay))
            for each in scenario.registrations
        ]

    def _stand_in(self, name: str) -> Callable[[], Awaitable[None]]:
        rate = self._scenario.failure_rates.get(name, 0.0)
        duration = self._scenario.durations.get(name, 0.0)

        async def stand_in() -> None:
            number = self._counts[name] = self._counts.get(name, 0) + 1
            if duration:
                await self._host.sleep(duration)
            if rate and drawn(self._scenario.seed, name, number) < rate:
                raise StandInFailure(f"run {number} of {name} drew a failure")

        return stand_in

    async def start(self) -> None:
        """A new process."""
        self._scheduler = self._host.scheduler(history=0, monitor=False)
        await self._scheduler.initialize(self._declared)

    async def go_down(self) -> None:
        """A graceful stop, as at a deploy: runs under way end first."""
        if self._scheduler is None:
            return
        self._stopping = asyncio.get_running_loop().create_task(self._scheduler.stop())
        self._scheduler = None
        await self._host.advance()

    async def come_back(self) -> None:
        """Start again, when the stop is over."""
        if self._scheduler is not None or self._stopping is None:
            return
        while not self._stopping.done():
            await self._host.advance(seconds=1)
        self._stopping = None
        await self.start()

    async def crash(self) -> None:
        """`kill -9`, and a new process at once."""
        if self._scheduler is None:
            self.notes.append(f"the crash at {self._host.now:%Y-%m-%d %H:%M} found nothing running")
            return
        await self._host.crash()
        await self.start()


def drawn(seed: int, name: str, number: int) -> float:
    """A number from 0 to below 1, the same for the same run whatever else is simulated."""
    digest = hashlib.blake2b(f"{seed}\0{number}\0{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / (1 << 64)


# --- what came of it -------------------------------------------------------------------------------------------------


class _Ledger:
    """Hears the events, and keeps the books."""

    def __init__(self, scenario: Scenario) -> None:
        self.runs: list[SimulatedRun] = []
        self._scenario = scenario
        self._expressions = {each.name: each.expression for each in scenario.registrations}
        # As the scheduler has it for new tasks: the minute in which they are declared may be owed already.
        mark = Minute(minute_of(instant_of(scenario.begin), scenario.zone) - 60)
        self._marks = dict.fromkeys(self._expressions, mark)
        self._open: dict[int, SimulatedRun] = {}
        self._last: dict[str, SimulatedRun] = {}

    def hear_all(self, events: Sequence[Event]) -> None:
        """Events of the scheduler's, in their order."""
        for event in events:
            self._hear(event)

    def _hear(self, event: Event) -> None:
        match event:
            case TaskRunStarted():
                self._started(event)
            case TaskRunCompleted():
                self._ended(event.run_id, "success", event.duration)
            case TaskRunFailed():
                self._ended(event.run_id, "failure", event.duration)
            case TaskInterrupted():
                run = self._last[event.task_name]
                self._open.pop(run.run, None)
                run.outcome = "interrupted"
            case _:
                pass

    def _started(self, event: TaskRunStarted) -> None:
        zone, name = self._scenario.zone, event.task_name
        minute = minute_of(instant_of(event.actual_time), zone)
        serves, earliest, latest = self._served(name, minute)
        owed_since = event.scheduled_time if event.cause == "retry" else event.actual_time
        if earliest is not None and event.cause == "cron":
            owed_since = as_datetime(earliest * MICROSECONDS, zone)
        self._marks[name] = max(minute, self._marks[name])
        missed = serves - (latest == minute)
        run = SimulatedRun(name, event.run_id, event.cause, event.actual_time, owed_since, serves, missed)
        self.runs.append(run)
        self._open[event.run_id] = self._last[name] = run

    def _served(self, name: str, minute: Minute) -> tuple[int, Minute | None, Minute | None]:
        """How many occurrences after the mark a start in a minute serves, the earliest and the latest of them."""
        expression, zone = self._expressions[name], self._scenario.zone
        count, earliest, latest = 0, None, None
        due = next_after(expression, self._marks[name], zone)
        while due <= minute:
            count += 1
            earliest = due if earliest is None else earliest
            latest = due
            due = next_after(expression, due, zone)
        return count, earliest, latest

    def _ended(self, number: int, outcome: str, milliseconds: float) -> None:
        run = self._open.pop(number)
        run.outcome = outcome
        run.duration = milliseconds / 1000

    def tallies(self) -> list[Tally]:
        """One for each task, in the order of their declaration."""
        scenario = self._scenario
        tallies = {name: Tally(name, expression.text) for name, expression in self._expressions.items()}
        for run in self.runs:
            tally = tallies[run.task]
            tally.starts += 1
            tally.failures += run.outcome == "failure"
            tally.interrupted += run.outcome == "interrupted"
            tally.retries += run.cause == "retry"
            tally.restarts += run.cause == "interrupted"
            tally.latest = run.at
            tally.longest_lateness = max(tally.longest_lateness, run.lateness)
            tally.missed += run.missed
        last = minute_of(instant_of(scenario.last), scenario.zone)
        for name, expression in self._expressions.items():
            tally = tallies[name]
            tally.still_owed, _, _ = self._served(name, last)
            for leap in leaps(expression, scenario.zone, scenario.begin, scenario.last):
                if leap.kind == "skipped":
                    tally.skipped += len(leap.minutes)
                else:
                    tally.repeated += len(leap.minutes)
        return list(tallies.values())
