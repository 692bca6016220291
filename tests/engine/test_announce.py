"""How durable facts become events: the times of starts, durations, and whether a failure is retried."""

import logging
from datetime import UTC, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from duly.clock import SystemClock
from duly.core.agenda import Agenda
from duly.core.changes import Starts
from duly.core.moments import Instant, Minute, as_datetime
from duly.core.task import End, Withdrawn
from duly.engine import announce
from duly.engine.outbox import Outbox
from duly.events import Event, TaskRunCompleted, TaskRunFailed, TaskRunStarted
from duly.testing import SimulatedHost
from tests.engine.helpers import registration
from tests.stores.contract import AT_NOON, ended, start, task


def told(end: End, *, duration_ms: float | None = None) -> Event:
    """The event of an end."""
    heard: list[Event] = []
    announce.end(Outbox(SystemClock(), heard.append), end, UTC, duration_ms=duration_ms)
    (event,) = heard
    return event


def end_of(error: str | None = None, called_at: Instant | None = None, *, after_ms: int = 1_500) -> End:
    """The end of a run that started at noon and a minute."""
    at = Instant(AT_NOON + 60_000_000)
    end = ended(start(task(1), 1, at), Instant(at + 1_000 * after_ms), error)
    return End(
        end.task, end.run, end.grounds, end.at, end.error, end.pending_retry_until, end.failures, called_at=called_at
    )


@pytest.mark.parametrize(
    ("called_after_ms", "duration_ms"), [(None, 1_500.0), (400, 1_100.0), (1_500, 0.0), (1_600, 0.0)]
)
async def test_a_run_that_nothing_measured_took_from_its_call_to_its_end(
    called_after_ms: int | None, duration_ms: float
) -> None:
    """By the wall clock, from the start where the call is not known; never less than nothing."""
    called_at = None if called_after_ms is None else Instant(AT_NOON + 60_000_000 + 1_000 * called_after_ms)
    event = told(end_of(called_at=called_at))
    assert isinstance(event, TaskRunCompleted)
    assert event.duration == duration_ms


async def test_a_duration_that_was_measured_is_told() -> None:
    """It does not depend on the wall clock."""
    event = told(end_of(), duration_ms=7.5)
    assert isinstance(event, TaskRunCompleted)
    assert event.duration == 7.5


async def test_a_failure_whose_declaration_was_withdrawn_is_not_retried() -> None:
    """SPEC 5.3: the event says so, although the end was made before it was withdrawn."""
    end = end_of("ValueError: no")
    event = told(end)
    assert isinstance(event, TaskRunFailed)
    assert end.pending_retry_until is not None
    assert event.next_retry_at == as_datetime(end.pending_retry_until, UTC)
    end.task.state = Withdrawn(Minute(0))
    event = told(end)
    assert isinstance(event, TaskRunFailed)
    assert event.next_retry_at is None


# --- starts ----------------------------------------------------------------------------------------------------------

DUE = Instant(AT_NOON + 60_000_000)


AGENDA = cast(Agenda, SimpleNamespace(zone=UTC, size=2))


def starts_after(*late: int) -> Starts:
    """Starts that came this many microseconds after they were due, each for a reason of its own."""
    starts = Starts()
    for number, microseconds in enumerate(late, 1):
        begun = start(task(number), number, Instant(DUE + microseconds), earliest=Minute(DUE // 1_000_000))
        starts.add([begun.task], number, begun.grounds)
    return starts


def heard_of_starts(*late: int) -> list[Event]:
    """The events of such starts."""
    heard: list[Event] = []
    announce.starts(Outbox(SystemClock(), heard.append), starts_after(*late), AGENDA, Instant(0))
    return heard


async def test_each_start_is_told_with_its_own_time() -> None:
    """Also where several reasons share a commit."""
    times = [event.actual_time for event in heard_of_starts(0, 5_000, 9_000) if isinstance(event, TaskRunStarted)]
    assert times == [as_datetime(DUE, UTC) + timedelta(milliseconds=number) for number in (0, 5, 9)]


async def test_a_start_that_came_late_among_others_is_reported_to_a_log_of_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """000 R1: also if nobody hears of starts; from one minute on, and not at it."""
    starts = starts_after(0, 60_000_000, 60_000_001)
    with caplog.at_level(logging.WARNING, "duly"):
        announce.starts(Outbox(SystemClock(), None), starts, AGENDA, Instant(0))
    assert [(record.event, record.fields["taskName"]) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("TaskStartDelayed", "task 3")
    ]


# --- declarations ----------------------------------------------------------------------------------------------------


async def test_what_a_scheduler_takes_over_is_scheduled_and_what_it_runs_already_is_not(host: SimulatedHost) -> None:
    """000 TaskPreserved: then TaskScheduled at the first initialize(), TaskSkipped at a later one."""
    told = []
    for _ in range(2):
        scheduler = host.scheduler()
        for _ in range(2):
            host.events.clear()
            await scheduler.initialize([registration("a", "0 0 1 1 *")])
            told.append([event.name for event in host.events if event.name.startswith("Task")])
        await scheduler.stop()
    again = ["TaskPreserved", "TaskSkipped"]
    assert told == [["TaskAdded", "TaskScheduled"], again, ["TaskPreserved", "TaskScheduled"], again]
