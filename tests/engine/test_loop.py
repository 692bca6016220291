"""The loop by itself: what it notes of the clock, what it counts, and how it goes on after a defect."""

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from duly.core.moments import Instant
from duly.engine.loop import Loop
from duly.events import ClockJumped, Event, PollCompleted, TaskRunStarted
from duly.testing import SimulatedHost
from tests.engine.helpers import EVERY_MINUTE, engine_of, noop, registration
from tests.spec.helpers import told
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
