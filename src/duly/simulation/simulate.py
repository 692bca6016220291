"""Lets a stretch of time pass on a simulated host, with the real scheduler and stand-ins for the callbacks.

Whether a run fails is drawn from the seed, the task's name and the number of its run alone: adding a task, or changing
the failure rate of another one, does not change which runs of this one fail.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from duly.core.moments import Delay, Instant, as_datetime, instant_of
from duly.scheduler import Scheduler
from duly.simulation.result import Recorder, Simulation
from duly.simulation.scenario import Scenario
from duly.testing import SimulatedHost

_PROGRESS_REPORTS: Final = 200

Progress = Callable[[float], object]
"""Called with the share of the time that has passed, from 0 to 1."""


class StandInFailure(Exception):  # noqa: N818  # not a defect: a stand-in was asked to fail at this rate
    """Raised by a stand-in that drew a failure."""


async def run_scenario(scenario: Scenario, progress: Progress = lambda _: None) -> Simulation:
    """Let the stretch pass, on a host of its own."""
    recorder = Recorder(scenario)
    async with SimulatedHost(
        as_datetime(scenario.begin, scenario.zone), scenario.zone, idle_looks=False, callbacks_only_sleep=True
    ) as host:
        program = _Program(scenario, host)
        await program.start()
        for when, act in _schedule(scenario, program, progress):
            if when > instant_of(host.now):  # a stop that took its time may have overtaken it
                await host.advance_to(as_datetime(min(when, scenario.last), scenario.zone))
            await act()
            recorder.record(host.events)
            host.events.clear()  # a year of them need not be kept
    return recorder.result(program.notes)


def _schedule(
    scenario: Scenario, program: "_Program", progress: Progress
) -> list[tuple[Instant, Callable[[], Awaitable[None]]]]:
    """The plot in order: of one instant a restart first, then a stop, a crash, a report of progress."""

    def report(share: float) -> Callable[[], Awaitable[None]]:
        async def act() -> None:
            progress(share)

        return act

    acts: list[tuple[Instant, int, Callable[[], Awaitable[None]]]] = []
    for downtime in scenario.down:
        acts += [(downtime.from_, 1, program.stop), (downtime.to, 0, program.start_again)]
    acts += [(crash, 2, program.crash) for crash in scenario.crashes]
    acts = [act for act in acts if scenario.begin <= act[0] < scenario.end]
    length = scenario.end - scenario.begin
    for number in range(_PROGRESS_REPORTS + 1):
        when = Instant(scenario.begin + number * length // _PROGRESS_REPORTS)
        acts.append((when, 3, report(number / _PROGRESS_REPORTS)))
    return [(when, act) for when, _, act in sorted(acts, key=lambda act: act[:2])]


def _duration(delay: Delay) -> timedelta:
    """A delay as a registration has it: `timedelta.max`, rounded up to milliseconds, is longer than any timedelta."""
    try:
        return timedelta(milliseconds=delay)
    except OverflowError:
        return timedelta.max


class _Program:
    """The program that runs on the host: the scheduler of its present process, and the stand-ins."""

    def __init__(self, scenario: Scenario, host: SimulatedHost) -> None:
        self.notes: list[str] = []
        self._scenario = scenario
        self._host = host
        self._scheduler: Scheduler | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._runs: dict[str, int] = {}
        self._declared = [
            (each.name, each.expression.text, self._stand_in(each.name), _duration(each.delay))
            for each in scenario.registrations
        ]

    def _stand_in(self, name: str) -> Callable[[], Awaitable[None]]:
        rate = self._scenario.failure_rates.get(name, 0.0)
        duration = self._scenario.durations.get(name, 0.0)

        async def stand_in() -> None:
            number = self._runs[name] = self._runs.get(name, 0) + 1
            if duration:
                await self._host.sleep(duration)
            if rate and drawn(self._scenario.seed, name, number) < rate:
                raise StandInFailure(f"run {number} of {name} drew a failure")

        return stand_in

    async def start(self) -> None:
        """Start a process."""
        self._scheduler = self._host.scheduler(history=0, monitor=False)
        await self._scheduler.initialize(self._declared)

    async def stop(self) -> None:
        """Begin a graceful stop: runs under way end first."""
        if self._scheduler is None:
            return
        self._stopping = asyncio.get_running_loop().create_task(self._scheduler.stop())
        self._scheduler = None
        await self._host.advance()

    async def start_again(self) -> None:
        """Start a process as soon as the stop has ended."""
        if self._scheduler is not None or self._stopping is None:
            return
        while not self._stopping.done():
            await self._host.advance(seconds=1)
        self._stopping = None
        await self.start()

    async def crash(self) -> None:
        """Kill the process (`kill -9`), and start another one at once."""
        if self._scheduler is None:
            self.notes.append(f"the crash at {self._host.now:%Y-%m-%d %H:%M} found nothing running")
            return
        await self._host.crash()
        await self.start()


def drawn(seed: int, name: str, number: int) -> float:
    """A number from 0 to below 1 that depends on nothing but the seed, the task and the number of its run."""
    digest = hashlib.blake2b(f"{seed}\0{number}\0{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / (1 << 64)
