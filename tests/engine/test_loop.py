"""The loop by itself: what it notes of the clock, what it counts, and how it goes on after a defect."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.core.moments import Instant
from duly.engine.host import system_host
from duly.engine.loop import FIRST_CHUNK_STARTS, Loop
from duly.engine.options import Options
from duly.errors import StoreError
from duly.events import (
    ClockJumped,
    Event,
    PollCompleted,
    PollStarted,
    SchedulerInitializationCompleted,
    StartsRefused,
    TaskRunStarted,
    TaskStartDelayed,
)
from duly.scheduler import scheduler_of
from duly.stores import SqliteStore
from duly.testing import SimulatedCluster, SimulatedHost
from duly.testing.cluster import ClusterHost
from duly.threads import Inline
from duly.wiring import lifecycle_on
from tests.cluster.witness import Witness, minutely
from tests.engine.helpers import EVERY_MINUTE, MINUTE, engine_of, fail, noop, registration, works
from tests.spec.helpers import Ear, ManualClock, told
from tests.stores.helpers import query

SECOND = 1_000_000


def rows(store: Path, letters: str) -> list[list[Any]]:
    """The rows of one kind in a store's trace."""
    lines = [json.loads(line) for (line,) in query(store, "SELECT line FROM trace ORDER BY seq")]
    return [line for line in lines if line[0] == letters]


async def test_the_first_poll_of_each_minute_notes_that_there_was_compute(host: SimulatedHost, store: Path) -> None:
    """FORMAL A1: a WK says when, on the wall clock and on a steady one, in microseconds."""
    scheduler = host.scheduler(trace=True)
    await scheduler.initialize([registration("a", "0,30 * * * *")])
    await host.advance(minutes=5)
    await scheduler.stop()
    notes = [(at, steady) for _, _, at, steady in rows(store, "WK")]
    assert len(notes) == 6  # half a minute after noon, and at each minute that began since
    (first_at, first_steady), *later = notes
    assert [(at - first_at, steady - first_steady) for at, steady in later] == [
        (seconds * SECOND, seconds * SECOND) for seconds in (30, 90, 150, 210, 270)
    ]
    assert rows(store, "CK") == []  # nobody stepped the clock


async def test_a_poll_counts_what_it_asked_and_what_it_started(host: SimulatedHost) -> None:
    """000 PollCompleted: a task that still runs is asked when its minute comes, and not started."""
    polls: list[PollCompleted] = []

    def listen(event: Event) -> None:
        if isinstance(event, PollCompleted):
            polls.append(event)

    async def long() -> None:
        await host.sleep(90)

    scheduler = host.scheduler(on_event=listen)
    await scheduler.initialize([registration("long", EVERY_MINUTE, long), registration("b"), registration("c")])
    await host.advance(seconds=1)
    assert (polls[0].tasks_evaluated, polls[0].tasks_executed) == (3, 3)
    await host.advance(minutes=1)
    assert (polls[-1].tasks_evaluated, polls[-1].tasks_executed) == (3, 2)


async def test_polling_begins_with_the_first_task_and_stops_with_the_last(host: SimulatedHost) -> None:
    """000 Scheduler Lifecycle: an empty list has nothing to poll for; each change is announced once."""
    scheduler = host.scheduler()
    found = []
    for tasks in ([], [registration("a", "0 0 1 1 *")], [registration("b", "0 0 1 1 *")], []):
        await scheduler.initialize(tasks)
        await host.advance(minutes=2)
        found.append([event.name for event in host.events if event.name.startswith("Polling")])
    started, stopped = "PollingStarted", "PollingStopped"
    assert found == [[], [started], [started], [started, stopped]]
    await scheduler.stop()


async def test_an_end_that_lay_ahead_is_dealt_with_once(host: SimulatedHost, store: Path) -> None:
    """SPEC 2.5: the step back is in the trace once, and not again with each poll."""
    scheduler = host.scheduler(trace=True)
    await scheduler.initialize([registration("a")])
    await host.advance(seconds=5)
    engine_of(scheduler).traffic.end_lies_ahead = True
    await host.advance(minutes=3)
    assert not engine_of(scheduler).traffic.end_lies_ahead
    await scheduler.stop()
    assert len(rows(store, "CK")) == 1


async def test_a_clock_that_went_back_before_the_first_poll_is_noticed(host: SimulatedHost) -> None:
    """SPEC 2.5: what initialize() saw counts until the loop has polled; afterwards an earlier sample is left to it."""
    scheduler = host.scheduler()
    await scheduler.initialize([registration("a", "0 0 1 1 *")])
    wall, zone = engine_of(scheduler).loop.wall, engine_of(scheduler).agenda.zone
    seen = wall.seen
    wall.accept(Instant(seen + 5 * SECOND), zone, polled=False)
    assert wall.seen == seen + 5 * SECOND
    wall.accept(Instant(seen + 4 * SECOND), zone, polled=False)
    assert wall.seen == seen + 5 * SECOND
    wall.accept(Instant(seen + 4 * SECOND), zone, polled=True)
    assert wall.seen == seen + 5 * SECOND
    assert told(host, ClockJumped) == []
    wall.accept(Instant(seen + 5 * SECOND), zone, polled=True)
    wall.accept(Instant(seen + 9 * SECOND), zone, polled=True)
    assert wall.seen == seen + 9 * SECOND
    assert [event.jump_ms for event in told(host, ClockJumped)] == [4000]


async def test_a_defect_in_a_poll_is_logged_and_the_next_poll_follows_in_a_second(
    host: SimulatedHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SPEC 3: nothing is lost: what is owed follows from durable state."""
    poll, polls = Loop.poll, []

    async def stumble(loop: Loop) -> None:
        polls.append(host.now)
        if len(polls) <= 2:
            raise ZeroDivisionError("a defect")
        await poll(loop)

    monkeypatch.setattr(Loop, "poll", stumble)
    scheduler = host.scheduler()
    with caplog.at_level(logging.ERROR, "duly"):
        await scheduler.initialize([registration("a", EVERY_MINUTE, noop)])
        await host.advance(seconds=10)
    assert [when - polls[0] for when in polls[:3]] == [timedelta(0), timedelta(seconds=1), timedelta(seconds=2)]
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ZeroDivisionError] * 2
    assert len(told(host, TaskRunStarted, "a")) == 1


async def test_a_second_poll_in_the_same_minute_notes_nothing(host: SimulatedHost, store: Path) -> None:
    """FORMAL A1: one WK a minute is evidence enough."""
    scheduler = host.scheduler(trace=True)
    await scheduler.initialize([registration("a", callback=fail, delay=timedelta(seconds=5))])
    await host.advance(seconds=20)
    assert len(told(host, TaskRunStarted)) == 5
    await scheduler.stop()
    assert len(rows(store, "WK")) == 1


class Touched(SqliteStore):
    """A store that counts how often observers would hear that the scheduler polls."""

    touches = 0

    def touch(self) -> None:
        self.touches += 1
        super().touch()


async def test_each_poll_shows_observers_that_the_scheduler_is_alive(host: SimulatedHost, store: Path) -> None:
    """SPEC 10: `duly status` tells a scheduler that hangs from one that has nothing to do."""
    touched = Touched(store, worker=Inline())
    await host.scheduler(touched).initialize([registration("a", "0 0 1 1 *")])
    await host.advance(minutes=3)
    assert touched.touches == 4


# --- polls that take time --------------------------------------------------------------------------------------------


def nothing() -> None:
    """Nothing happens."""


class Restless(ManualClock):
    """A clock that can be set, and to which something may happen just before it is read."""

    def __init__(self) -> None:
        super().__init__("2024-06-01T12:00:30+00:00")
        self.readings: list[Callable[[], None]] = []
        """Actions before each of the next readings."""

    def now(self) -> int:
        if self.readings:
            self.readings.pop(0)()
        return super().now()

    def step(self, seconds: int) -> None:
        """Set the wall clock; no time passes."""
        self._now += seconds * SECOND


class Turns:
    """A scheduler on a clock that only the test moves, and its polls; `at_poll` is called in each, by its number."""

    def __init__(self, store: Path, at_poll: Callable[[int], None] = lambda _: None, *, trace: bool = False) -> None:
        self.clock = Restless()
        self.ear = Ear()
        self.polls = 0
        self._at_poll = at_poll
        self.scheduler = duly.Scheduler(store, clock=self.clock, on_event=self._hear, trace=trace)

    def _hear(self, event: Event) -> None:
        self.ear(event)
        if isinstance(event, PollStarted):
            self.polls += 1
            self._at_poll(self.polls)


async def test_a_poll_is_announced_with_how_long_it_took(store: Path) -> None:
    """000 PollCompleted: in milliseconds."""
    turns = Turns(store, lambda _: turns.clock.advance(3))
    turns.clock.advance(5)
    await turns.scheduler.initialize([registration("a")])
    (completed, *_) = await turns.ear.hear(PollCompleted)
    assert completed.duration == 3000.0
    await turns.scheduler.stop()


async def test_a_minute_that_began_while_callbacks_were_called_is_polled_at_once(store: Path) -> None:
    """SPEC 2.4: and not when the next one begins."""

    async def slow() -> None:
        if turns.polls == 1:
            turns.clock.advance(61)

    turns = Turns(store)
    await turns.scheduler.initialize([registration("slow", "0 12 * * *", slow), registration("a")])
    started = await turns.ear.hear(TaskRunStarted, "a", times=2)
    assert [event.actual_time.strftime("%H:%M:%S") for event in started] == ["12:00:30", "12:01:31"]
    await turns.scheduler.stop()


@pytest.mark.parametrize("poll", [1, 2])
async def test_a_clock_that_goes_back_within_a_poll_is_dealt_with_at_once(
    store: Path, caplog: pytest.LogCaptureFixture, poll: int
) -> None:
    """SPEC 2.5: nothing is decided by a clock that shows less than it did; another poll follows."""

    def step_back(number: int) -> None:
        if number == poll:
            turns.clock.step(-5)

    turns = Turns(store, step_back)
    with caplog.at_level(logging.ERROR, "duly"):
        await turns.scheduler.initialize([registration("a")])
        if poll == 2:
            await turns.ear.hear(TaskRunStarted)
            turns.clock.advance(30)
        (jumped,) = await turns.ear.hear(ClockJumped)
        await turns.ear.hear(PollStarted, times=poll + 1)
    assert caplog.records == []
    await turns.scheduler.stop()
    assert jumped.jump_ms == -5000


async def test_a_minute_that_begins_while_what_is_due_is_found_counts(store: Path) -> None:
    """SPEC 3.3: the start is decided in that minute, and serves it."""
    turns = Turns(store, lambda _: turns.clock.readings.extend([nothing, lambda: turns.clock.advance(40)]))
    await turns.scheduler.initialize([registration("a")])
    (started, *_) = await turns.ear.hear(TaskRunStarted)
    assert started.scheduled_time.strftime("%H:%M:%S") == "12:01:00"
    assert started.actual_time.strftime("%H:%M:%S") == "12:01:10"
    await turns.scheduler.stop()


@pytest.mark.parametrize("reading", [0, 1])
async def test_a_step_of_the_clock_within_a_poll_is_told_before_what_starts_after_it(store: Path, reading: int) -> None:
    """SPEC 2.5: the trace has the step before the start that is stamped by the clock as it is now."""

    def step_once(number: int) -> None:
        if number == 1:
            turns.clock.readings += [nothing] * reading + [lambda: turns.clock.step(5)]

    turns = Turns(store, step_once, trace=True)
    await turns.scheduler.initialize([registration("a")])
    await turns.ear.hear(TaskRunStarted)
    await turns.scheduler.stop()
    names = [event.name for event in turns.ear.events]
    assert names.index("ClockJumped") < names.index("TaskRunStarted")
    letters = [json.loads(line)[0] for (line,) in query(store, "SELECT line FROM trace ORDER BY seq")]
    assert letters.index("CK") < letters.index("RS")


async def test_a_step_of_the_clock_within_a_poll_that_starts_nothing_is_told_in_it(store: Path) -> None:
    """SPEC 2.5: and not by the next one, a minute later."""
    turns = Turns(store, lambda _: turns.clock.readings.append(lambda: turns.clock.step(5)))
    await turns.scheduler.initialize([registration("a", "0 0 1 1 *")])
    (completed,) = await turns.ear.hear(PollCompleted)
    names = [event.name for event in turns.ear.events]
    assert names.index("ClockJumped") < names.index(completed.name)
    await turns.scheduler.stop()


@pytest.mark.parametrize(("milliseconds", "told_of"), [(999, []), (1_000, [1_000]), (-999, []), (-1_000, [-1_000])])
async def test_a_step_of_a_second_is_announced(host: SimulatedHost, milliseconds: int, told_of: list[int]) -> None:
    """SPEC 2.5: smaller ones are what a clock does that is kept in time."""
    await host.scheduler().initialize([registration("a", "0 0 1 1 *")])
    await host.advance(seconds=5)
    await host.set_clock(host.now + timedelta(milliseconds=milliseconds))
    await host.advance(minutes=2)
    assert [event.jump_ms for event in told(host, ClockJumped)] == told_of


async def test_without_tasks_there_is_no_poll_to_speak_of(store: Path) -> None:
    """000 PollStarted: the clock is followed all the same."""
    turns = Turns(store)
    await turns.scheduler.initialize([])
    turns.clock.step(3_600)
    turns.clock.advance(60)
    await turns.ear.hear(ClockJumped)
    await turns.scheduler.stop()
    assert turns.polls == 0


async def test_a_retry_that_is_due_while_stop_waits_is_left_for_the_next_start(
    host: SimulatedHost, caplog: pytest.LogCaptureFixture
) -> None:
    """SPEC 4.3: nothing is decided any more, and the loop does not ask again and again."""
    scheduler = host.scheduler()
    with caplog.at_level(logging.ERROR, "duly"):
        await scheduler.initialize(
            [registration("long", callback=works(host, 100)), registration("b", callback=fail, delay=MINUTE)]
        )
        await host.advance(seconds=10)
        await scheduler.stop()
    assert caplog.records == []
    assert len(told(host, TaskRunStarted, "b")) == 1


async def test_a_start_is_late_from_when_it_was_possible(store: Path) -> None:
    """000 R1: nothing starts before initialize() has returned, however long that takes (SPEC 3.8)."""
    turns = Turns(store)

    def hear(event: Event) -> None:
        turns.ear(event)
        if isinstance(event, SchedulerInitializationCompleted):
            turns.clock.advance(90)

    scheduler = duly.Scheduler(store, clock=turns.clock, on_event=hear)
    await scheduler.initialize([registration("a", "0 12 * * *")])
    await turns.ear.hear(TaskRunStarted)
    await scheduler.stop()
    assert turns.ear.of(TaskStartDelayed) == []


async def test_a_defect_while_starts_are_decided_loses_none_that_is_durable(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SPEC 3.9: those are launched, the defect is logged, and the rest follows with the next poll."""
    called: list[int] = []
    all_called = asyncio.Event()
    decisions = count(1)

    def stumble(*_: object) -> None:
        if next(decisions) == 2:
            raise ZeroDivisionError("a defect")

    def job(number: int) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            called.append(number)
            if len(called) == tasks:
                all_called.set()

        return work

    clock, tasks = ManualClock(), FIRST_CHUNK_STARTS + 10
    scheduler = scheduler_of(lifecycle_on(replace(system_host(clock), audit=stumble), store, Options()))
    with caplog.at_level(logging.ERROR, "duly"):
        await scheduler.initialize([registration(f"{number}", "0 12 * * *", job(number)) for number in range(tasks)])
        async with asyncio.timeout(30):
            while not caplog.records:  # noqa: ASYNC110  a defect is told to the log alone
                await asyncio.sleep(0)
    assert called == list(range(FIRST_CHUNK_STARTS))
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ZeroDivisionError]
    clock.advance(1)
    await asyncio.wait_for(all_called.wait(), 30)
    await scheduler.stop()
    assert called == list(range(tasks))


# --- beside other hosts ----------------------------------------------------------------------------------------------


class Requests:
    """A cluster whose first host tells which requests it makes, and when."""

    def __init__(self, cluster: SimulatedCluster, host: ClusterHost) -> None:
        self.cluster = cluster
        self.host = host
        self.witness = Witness(cluster)
        self.made: list[tuple[str, str]] = []
        self.fails: set[str] = set()
        """Requests that are not answered."""
        host.on_request = self._note

    def _note(self, request: str, made: bool) -> None:
        if not made:
            self.made.append((request, f"{self.cluster.now:%H:%M:%S}"))
            if request in self.fails:
                raise StoreError("no answer", store="shared memory", operation=request)

    def at(self, request: str) -> list[str]:
        """When a kind of request was made."""
        return [when for name, when in self.made if name == request]


@pytest.fixture
async def requests() -> AsyncIterator[Requests]:
    """It is noon and ten seconds."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=timedelta(seconds=30)) as cluster:
        yield Requests(cluster, await cluster.host())


async def test_a_host_that_has_nothing_to_do_only_beats(requests: Requests) -> None:
    """SPEC 9.4: every sixth part of its lease; what others wrote it hears of by that."""
    await requests.host.scheduler().initialize([registration("a", "0 0 1 1 *")])
    await requests.cluster.advance(seconds=1)
    requests.made.clear()
    await requests.cluster.advance(minutes=3)
    assert {name for name, _ in requests.made} == {"beat"}
    assert len(requests.made) == 36


async def test_hosts_that_share_a_minute_ask_for_no_start_in_vain(requests: Requests) -> None:
    """SPEC 9.8: before it takes what others left, a host looks whether they really did."""
    cluster, witness = requests.cluster, requests.witness
    hosts = [requests.host, await cluster.host()]
    for host in hosts:
        await host.scheduler().initialize(minutely(witness, host, *"abcd"))
    await cluster.advance(minutes=5)
    assert len(witness.runs) == 24
    assert not [event for host in hosts for event in host.events if isinstance(event, StartsRefused)]


async def test_a_start_that_others_were_faster_with_is_told_and_asked_for_again(requests: Requests) -> None:
    """SPEC 9.9: how many were refused; in a second at the latest the host knows what is true."""
    cluster, host, witness = requests.cluster, requests.host, requests.witness
    await host.scheduler().initialize(minutely(witness, host, *"abc"))
    await cluster.advance(seconds=10)
    states = cluster.memory.states
    ahead = {generation: states[generation].changed for generation in (1, 2)}

    def refuse_once(request: str, made: bool) -> None:
        if request == "write":
            for generation, changed in ahead.items():
                states[generation].changed = changed if made else 10**9
            host.on_request = None if made else refuse_once

    host.on_request = refuse_once
    await cluster.advance(minutes=1)
    assert [event.starts for event in host.events if isinstance(event, StartsRefused)] == [2]
    assert [witness.began(name)[-1] for name in "abc"] == ["12:01:01", "12:01:01", "12:01:00"]


async def test_a_host_without_a_lease_asks_for_no_start_and_is_idle(requests: Requests) -> None:
    """SPEC 9.6: it decides nothing, also if a retry falls due meanwhile."""
    cluster, host, witness = requests.cluster, requests.host, requests.witness
    tasks = minutely(witness, host, "a")
    await host.scheduler().initialize([*tasks, registration("b", "0 12 * * *", fail, timedelta(seconds=70))])
    await cluster.advance(seconds=5)
    requests.made.clear()
    requests.fails = {"beat"}
    await cluster.advance(minutes=3)
    assert [name for name, _ in requests.made if name != "beat"] == []
    requests.fails = set()
    await cluster.advance(seconds=10)
    assert witness.began("a")[1:] == ["12:03:20"]


async def test_a_host_that_cannot_hear_the_news_asks_again_every_second(requests: Requests) -> None:
    """SPEC 9.20: until then it decides nothing, and then it goes on at once."""
    cluster, witness, other = requests.cluster, requests.witness, await requests.cluster.host()
    schedulers = [host.scheduler() for host in (requests.host, other)]
    for scheduler, host in zip(schedulers, (requests.host, other), strict=True):
        await scheduler.initialize(minutely(witness, host, "a", "b"))
    await cluster.advance(seconds=32)
    requests.made.clear()
    requests.fails = {"news"}
    await schedulers[1].stop()
    await cluster.advance(seconds=23)  # it is 12:01:05
    seconds = [f"12:00:{second}" for second in range(45, 60)] + [f"12:01:0{second}" for second in range(6)]
    assert sorted(set(requests.at("news"))) == seconds
    requests.fails = set()
    await cluster.advance(seconds=1)
    assert witness.began("a")[-1] == witness.began("b")[-1] == "12:01:06"
