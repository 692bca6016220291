"""SPEC 3: when a task starts. Cron, retries, interruptions, slots, time limits, and all the ways a run can end."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop

import duly
from duly.events import (
    PollCompleted,
    TaskInterrupted,
    TaskRetryPreempted,
    TaskRetryStarted,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunStarted,
)
from duly.stores import Replacement, SqliteStore
from duly.stores.sqlite.lock import read_holder
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.spec.helpers import (
    HOUR,
    MINUTE,
    SECOND,
    CallbackError,
    Ear,
    ManualClock,
    Script,
    Step,
    fail,
    fails,
    history,
    microseconds,
    order,
    rows,
    seconds,
    started,
    starts,
    stored,
    story,
    succeed,
    succeeds,
    told,
)
from tests.stores.helpers import full_disk

EVERY_MINUTE = "* * * * *"
NOON = "0 12 * * *"
Registrations = list[tuple[str, str, Callable[[], Any], timedelta]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that outlives its host, and that a test can read."""
    return tmp_path / "duly.db"


def handing_back(work: Callable[[], Awaitable[object]]) -> Callable[[], object]:
    """A plain callable, which therefore runs in a thread, and returns an awaitable."""

    def callback() -> Awaitable[object]:
        return work()

    return callback


def on_june_1(text: str) -> datetime:
    return datetime.fromisoformat(f"2024-06-01T{text}").replace(tzinfo=UTC)


# --- 3.1: what cron owes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "expression", "runs"),
    [
        ("2024-06-04T15:30:00", "30 15 * * 2", True),  # a Tuesday
        ("2024-06-04T15:30:42", "30 15 * * 2", True),
        ("2024-06-04T15:30:59.999999", "30 15 * * 2", True),
        ("2024-06-04T15:31:00", "30 15 * * 2", False),
        ("2024-06-04T15:29:59.999999", "30 15 * * 2", False),
        ("2024-06-04T15:30:00", "20 15 * * 2", False),
        ("2024-06-04T15:30:00", "30 15 * * 3", False),
        ("2024-06-04T15:30:00", EVERY_MINUTE, True),
    ],
)
async def test_a_first_start_up_runs_what_matches_this_very_minute(at: str, expression: str, runs: bool) -> None:
    """SPEC 3.1: an occurrence `o ≤ now` with `o ≥` the minute of `knownSince` (004: First Startup Behavior)."""
    async with SimulatedHost(at, "Europe/Berlin") as host:
        await host.scheduler().initialize([("task", expression, succeed, HOUR)])
        await host.advance()
        assert started(host) == ([host.now] if runs else [])


@pytest.mark.parametrize("death", ["stop", "crash"])
async def test_occurrences_before_the_first_registration_are_never_owed(death: str) -> None:
    """SPEC 3.1: occurrences before the task was first registered are not owed, also not after a restart."""
    async with SimulatedHost("2024-06-01T15:31", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("task", "30 15 * * *", succeed, HOUR)])
        await host.advance(minutes=5)
        await (scheduler.stop() if death == "stop" else host.crash())
        await host.advance(minutes=5)
        await host.scheduler().initialize([("task", "30 15 * * *", succeed, HOUR)])
        await host.advance_to("2024-06-02T15:30")
        assert [when.isoformat() for when in started(host)] == ["2024-06-02T15:30:00+00:00"]


@pytest.mark.parametrize("death", ["stop", "crash"])
@pytest.mark.parametrize("has_run_before", [False, True])
async def test_occurrences_after_it_are_owed_also_across_a_restart(death: str, has_run_before: bool) -> None:
    """SPEC 3.1: occurrences after it are, even across a restart; a task that never ran is not an exception."""
    async with SimulatedHost("2024-06-01T15:20" if has_run_before else "2024-06-01T15:21", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("task", "20,30 15 * * *", succeed, HOUR)])
        await host.advance_to("2024-06-01T15:25")
        await (scheduler.stop() if death == "stop" else host.crash())
        await host.advance_to("2024-06-01T17:47:11")
        await host.scheduler().initialize([("task", "20,30 15 * * *", succeed, HOUR)])
        await host.advance(hours=1)
        assert starts(host) == (["15:20:00"] if has_run_before else []) + ["17:47:11"]
        assert told(host, TaskRunStarted)[-1].fields["scheduledTime"] == "2024-06-01T15:30:00+00:00"


async def test_a_minute_is_served_once_however_often_the_scheduler_comes_and_goes() -> None:
    """SPEC 3.1: `o > served_through`."""
    async with SimulatedHost("2024-06-01T15:30", "UTC") as host:
        for _ in range(5):
            scheduler = host.scheduler()
            await scheduler.initialize([("task", "30 15 * * *", succeed, HOUR)])
            await host.advance(seconds=10)
            await scheduler.stop()
        assert starts(host) == ["15:30:00"]


async def test_a_retry_raises_the_mark_to_its_own_minute(path: Path) -> None:
    """SPEC 3.1: every start, for whatever cause, raises `served_through` to its own minute."""
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        await host.scheduler().initialize([("task", NOON, Script(host, fails(), succeeds()), 7.5 * MINUTE)])
        await host.advance(minutes=8)
        assert starts(host) == ["12:00:00", "12:07:30"]
        assert stored(path)["served_through"] == seconds(on_june_1("12:07"))


async def test_the_restart_of_an_interrupted_run_raises_the_mark_to_its_own_minute() -> None:
    """SPEC 3.1: whatever the cause: what is due in that minute is served by it."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations = [("task", "0,3 12 * * *", Script(host, succeeds(after=600), succeeds()), HOUR)]
        await host.scheduler().initialize(registrations)
        await host.advance(seconds=5)
        await host.crash()
        await host.advance_to("2024-06-01T12:03:20")
        await host.scheduler().initialize(registrations)
        await host.advance(minutes=10)
        assert starts(host) == ["12:00:00", "12:03:20"]


async def test_no_start_lowers_the_mark(path: Path) -> None:
    """SPEC 3: the latest minute a start has served; no start lowers it."""
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        await host.scheduler().initialize([("task", NOON, Script(host, fails(), succeeds()), 90 * SECOND)])
        await host.advance()
        await host.set_clock("2024-06-01T11:00")
        await host.advance(minutes=5)
        assert len(started(host)) == 2
        assert started(host)[1] < on_june_1("11:05")
        assert stored(path)["served_through"] == seconds(on_june_1("12:00"))
        await host.advance_to("2024-06-01T12:10")
        assert len(started(host)) == 2


# --- 3.2, 3.3: missed, and owed during a run -------------------------------------------------------------------------


@pytest.mark.parametrize("expression", [EVERY_MINUTE, "0,10,20,30,40,50 * * * *", "0 * * * *"])
@pytest.mark.parametrize("pause", ["downtime", "freeze", "long run"])
async def test_one_start_serves_all_that_was_missed(expression: str, pause: str) -> None:
    """SPEC 3.2: downtime, freeze, a long run: one start serves them all (000: No Make-Up Execution Policy)."""
    async with SimulatedHost("2024-06-01T06:00", "UTC") as host:
        work = Script(host, succeeds(after=6 * 3600 + 30 if pause == "long run" else 0), succeeds())
        scheduler = host.scheduler()
        await scheduler.initialize([("task", expression, work, HOUR)])
        await host.advance(seconds=30)
        if pause == "downtime":
            await scheduler.stop()
            await host.advance(hours=6)
            await host.scheduler().initialize([("task", expression, work, HOUR)])
            await host.advance()
        elif pause == "freeze":
            await host.jump(hours=6)
        else:
            await host.advance(hours=6)
        assert starts(host) == ["06:00:00", "12:00:30"]
        assert told(host, TaskRunStarted)[-1].fields["scheduledTime"] == "2024-06-01T12:00:00+00:00"


async def test_what_falls_due_during_a_run_starts_at_once_when_the_run_ends() -> None:
    """SPEC 3.3: owed when the run ends, and starts then, at once."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        work = Script(host, succeeds(after=75.25), succeeds(after=10), succeeds(after=130), succeeds())
        await host.scheduler().initialize([("task", EVERY_MINUTE, work, HOUR)])
        await host.advance(minutes=6)
        assert starts(host) == [
            "12:00:00",
            "12:01:15.250000",
            "12:02:00",
            "12:04:10",
            "12:05:00",
            "12:06:00",
        ]


async def test_what_falls_due_during_a_run_that_fails_starts_at_once_too() -> None:
    """SPEC 3.3, 3.5: the failure arms a retry, and the due minute takes its place."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, Script(host, fails(after=75), succeeds()), HOUR)])
        await host.advance(minutes=2)
        assert starts(host) == ["12:00:00", "12:01:15", "12:02:00"]
        assert told(host, TaskRunStarted)[1].cause == "cron"


async def test_a_task_never_overlaps_itself() -> None:
    """SPEC 3.3, 002 S1."""
    alive = most = 0

    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:

        async def work() -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            await host.sleep(100)
            alive -= 1
            raise CallbackError

        await host.scheduler().initialize([("task", EVERY_MINUTE, work, timedelta(0))])
        await host.advance(minutes=30)
        assert most == 1
        assert len(started(host)) > 10


# --- 3.4: retries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "delay", [SECOND, timedelta(milliseconds=1001), timedelta(seconds=1.5), 59.999 * SECOND, MINUTE, 26 * HOUR], ids=str
)
@pytest.mark.parametrize("work", [0, 0.25, 12.345])
async def test_a_retry_starts_at_the_failure_plus_the_delay(path: Path, delay: timedelta, work: float) -> None:
    """SPEC 3.4: at failure time + effective delay, with sub-second timing."""
    async with SimulatedHost("2024-06-01T12:00:00.5", "UTC", path) as host:
        await host.scheduler().initialize([("task", "0 12 1 6 *", Script(host, fails(after=work), succeeds()), delay)])
        await host.advance(seconds=work)
        failed_at = on_june_1("12:00:00.5") + timedelta(seconds=work)
        assert stored(path)["last_failure_at"] == microseconds(failed_at)
        assert stored(path)["pending_retry_until"] == microseconds(failed_at + delay)
        await host.advance(days=2)
        assert started(host)[1:] == [failed_at + delay]


async def test_failure_re_arms_the_retry_from_the_new_failure() -> None:
    """SPEC 3.4: failure re-arms it from the new failure."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        work = Script(host, fails(after=1), fails(after=2.5), fails(), succeeds())
        await host.scheduler().initialize([("task", NOON, work, 10 * SECOND)])
        await host.advance(minutes=5)
        assert starts(host) == ["12:00:00", "12:00:11", "12:00:23.500000", "12:00:33.500000"]
        assert [event.retry_count for event in told(host, TaskRetryStarted)] == [1, 2, 3]


async def test_success_clears_the_retry(path: Path) -> None:
    """SPEC 3.4: success clears the retry."""
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        await host.scheduler().initialize([("task", NOON, Script(host, fails(), succeeds()), 10 * SECOND)])
        await host.advance(seconds=10)
        assert stored(path)["pending_retry_until"] is None
        assert stored(path)["failures"] == 0
        await host.advance(hours=20)
        assert starts(host) == ["12:00:00", "12:00:10"]


async def test_success_of_a_run_that_cron_started_clears_the_retry_too() -> None:
    """SPEC 3.4: a start consumes both what cron and what retry owe."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0,2 12 * * *", Script(host, fails(), succeeds()), 5 * MINUTE)])
        await host.advance(hours=1)
        assert starts(host) == ["12:00:00", "12:02:00"]


async def test_one_start_consumes_what_cron_and_what_retry_owe() -> None:
    """SPEC 3.4: both at once are one run."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0,10 12 * * *", Script(host, fails(), succeeds()), 5 * MINUTE)])
        await host.advance(minutes=1)
        await host.jump(minutes=30)
        await host.advance(hours=10)
        assert starts(host) == ["12:00:00", "12:31:00"]


async def test_retry_events_say_what_they_are() -> None:
    """SPEC 3.4, 3.5: `TaskRetryStarted`, then `TaskRunStarted` with `isRetry`, scheduled at the retry's instant."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", NOON, Script(host, fails(), succeeds()), 10 * SECOND)])
        await host.advance(minutes=1)
        run_events = [name for name in story(host, "task") if name.startswith(("TaskRun", "TaskRetry"))]
        assert run_events == [
            "TaskRunStarted",
            "TaskRunFailed",
            "TaskRetryStarted",
            "TaskRunStarted",
            "TaskRunCompleted",
        ]
        first, second = told(host, TaskRunStarted)
        assert "isRetry" not in first.fields
        assert second.fields["isRetry"] is True
        assert second.fields["scheduledTime"] == "2024-06-01T12:00:10+00:00"
        assert told(host, TaskRunFailed)[0].fields["nextRetryAt"] == "2024-06-01T12:00:10+00:00"


# --- 3.5: what a run is for ------------------------------------------------------------------------------------------


async def test_a_due_minute_preempts_a_retry_that_is_not_ripe(path: Path) -> None:
    """SPEC 3.5: one atomic step, `TaskRetryPreempted` then `TaskRunStarted`."""
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        work = Script(host, fails(), succeeds(after=10))
        await host.scheduler().initialize([("task", "0,5 12 * * *", work, 30 * MINUTE)])
        await host.advance_to("2024-06-01T12:05")
        names = [event.name for event in host.events]
        position = names.index("TaskRetryPreempted")
        assert names[position : position + 2] == ["TaskRetryPreempted", "TaskRunStarted"]
        assert told(host, TaskRunStarted)[1].cause == "cron"
        assert "isRetry" not in told(host, TaskRunStarted)[1].fields
        assert isinstance(told(host, TaskRetryPreempted)[0].fields["reason"], str)
        assert stored(path)["run_cause"] == "cron"
        await host.advance(hours=2)
        assert starts(host) == ["12:00:00", "12:05:00"]


@pytest.mark.parametrize(
    ("delay", "cause"),
    [
        # Failed at 12:00; due at 13:00, 14:00 and 15:00, and looked at again at 15:30 only.
        (59 * MINUTE, "retry"),
        (HOUR - timedelta(milliseconds=1), "retry"),
        (HOUR, "cron"),  # equal
        (HOUR + timedelta(milliseconds=1), "cron"),
        (90 * MINUTE, "cron"),  # before the latest, but after the earliest
        (HOUR * 3.5, "cron"),  # ripe at this very evaluation
        (HOUR * 4, "cron"),  # not ripe
    ],
    ids=str,
)
@pytest.mark.parametrize("pause", ["downtime", "freeze"])
async def test_the_earlier_of_retry_and_earliest_occurrence_names_the_run(
    delay: timedelta, cause: str, pause: str
) -> None:
    """SPEC 3.5: both ripe at one evaluation: one run, named by the earlier of the two; equal: cron."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations = [("task", "0 * * * *", Script(host, fails(), succeeds()), delay)]
        scheduler = host.scheduler()
        await scheduler.initialize(registrations)
        await host.advance()
        if pause == "downtime":
            await scheduler.stop()
            await host.jump(hours=3, minutes=30)
            await host.scheduler().initialize(registrations)
            await host.advance()
        else:
            await host.jump(hours=3, minutes=30)
        assert starts(host) == ["12:00:00", "15:30:00"]
        run = told(host, TaskRunStarted)[1]
        assert run.cause == cause
        assert run.fields.get("isRetry", False) is (cause == "retry")
        names = [name for name in story(host, "task") if name in {"TaskRetryPreempted", "TaskRetryStarted"}]
        assert names == (["TaskRetryStarted"] if cause == "retry" else ["TaskRetryPreempted"])
        scheduled = on_june_1("12:00") + delay if cause == "retry" else on_june_1("15:00")
        assert run.scheduled_time == scheduled
        await host.advance(minutes=29)
        assert len(started(host)) == 2


async def test_every_run_has_exactly_one_start_event() -> None:
    """SPEC 3.5: every run has exactly one `TaskRunStarted`, whatever it is called."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        steps = [fails(), fails(after=30), succeeds(after=100), fails(after=1), succeeds()]
        work = Script(host, *(steps * 3))
        await host.scheduler().initialize([("task", "0,2,4,6,8 12 * * *", work, 50 * SECOND)])
        await host.advance(minutes=10)
        runs = [event.run_id for event in told(host, TaskRunStarted)]
        assert work.calls == len(runs) == len(set(runs))
        ends = [event.run_id for event in told(host, TaskRunCompleted)]
        ends += [event.run_id for event in told(host, TaskRunFailed)]
        assert sorted(ends) == runs


# --- 3.6: the effective delay ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "effective"),
    [
        (timedelta(0), 1.0),
        (timedelta(microseconds=1), 1.0),
        (timedelta(milliseconds=999), 1.0),
        (timedelta(microseconds=999_999), 1.0),
        (SECOND, 1.0),
        (timedelta(microseconds=1_000_001), 1.001),  # kept in whole milliseconds, rounded up (5.1)
        (timedelta(milliseconds=1_100), 1.1),
    ],
    ids=str,
)
async def test_the_effective_delay_is_at_least_one_second(delay: timedelta, effective: float) -> None:
    """SPEC 3.6: zero is legal and never spins."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", NOON, fail, delay)])
        await host.advance(seconds=10)
        expected = [
            on_june_1("12:00") + timedelta(seconds=effective) * index for index in range(int(10 / effective) + 1)
        ]
        assert started(host) == expected


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize("delay", [timedelta.max, timedelta(days=366 * 7976)], ids=["longest", "to the end"])
async def test_a_retry_beyond_the_calendar_is_stored_as_its_last_minute(
    path: Path, zone: str, delay: timedelta
) -> None:
    """SPEC 3.6: a retry beyond the year 9999 is stored as the last minute of 9999; the task goes on meanwhile."""
    async with SimulatedHost("2024-06-01T12:00", zone, path) as host:
        registrations = [("task", NOON, Script(host, fails(), succeeds()), delay)]
        scheduler = host.scheduler()
        await scheduler.initialize(registrations)
        await host.advance(minutes=1)
        assert stored(path)["pending_retry_until"] == microseconds(datetime(9999, 12, 31, 23, 59, tzinfo=UTC))
        await scheduler.stop()
        await host.set_clock("2024-06-01T11:00")
        await host.scheduler().initialize(registrations)
        await host.advance_to("2024-06-02T12:00")
        assert [when.strftime("%d %H:%M") for when in started(host)] == ["01 12:00", "02 12:00"]
        assert stored(path)["pending_retry_until"] is None


# --- 3.7: interrupted ------------------------------------------------------------------------------------------------

CUT_SHORT = succeeds(after=100_000)


async def interrupt(host: SimulatedHost, registrations: Registrations, *, after: float = 5, **options: Any) -> None:
    """Start a scheduler, let it run for some seconds, and kill its process."""
    await host.scheduler(**options).initialize(registrations)
    await host.advance(seconds=after)
    await host.crash()


async def test_an_interrupted_run_starts_at_once_after_the_next_initialize(path: Path) -> None:
    """SPEC 3.7: the run is owed again (001 L3, 000 R2)."""
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        registrations: Registrations = [("task", NOON, Script(host, CUT_SHORT, succeeds()), HOUR)]
        await interrupt(host, registrations)
        assert stored(path)["run"] is not None
        await host.advance(seconds=15)
        await host.scheduler().initialize(registrations)
        await host.advance()
        assert starts(host) == ["12:00:00", "12:00:20"]
        assert [event.fields for event in told(host, TaskInterrupted)] == [
            {
                "taskName": "task",
                "startedAt": "2024-06-01T12:00:00+00:00",
                "interruptions": 1,
                "resumesAt": "2024-06-01T12:00:00+00:00",
            }
        ]
        restarted = told(host, TaskRunStarted)[1]
        assert restarted.cause == "interrupted"
        assert restarted.fields["scheduledTime"] == "2024-06-01T12:00:00+00:00"
        assert [(run["outcome"], run["cause"]) for run in history(path)] == [
            ("interrupted", "cron"),
            ("success", "interrupted"),
        ]
        await host.advance(hours=20)
        assert len(started(host)) == 2


async def test_an_interrupted_run_is_merged_with_anything_else_owed() -> None:
    """SPEC 3.7: merged: a missed minute and a retry that was pending are served by the same start."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        work = Script(host, fails(), CUT_SHORT, succeeds())
        registrations: Registrations = [("task", "0,5,10 12 * * *", work, 20 * MINUTE)]
        await interrupt(host, registrations, after=310)
        await host.advance_to("2024-06-01T12:30")
        await host.scheduler().initialize(registrations)
        await host.advance(hours=10)
        assert starts(host) == ["12:00:00", "12:05:00", "12:30:00"]


@pytest.mark.parametrize(
    ("delay", "wait"),
    [(timedelta(0), 60), (10 * SECOND, 60), (MINUTE, 60), (61 * SECOND, 61), (HOUR, 3600)],
    ids=str,
)
async def test_a_task_interrupted_twice_in_a_row_waits_from_its_last_start(delay: timedelta, wait: int) -> None:
    """SPEC 3.7: first waits its retry delay, at least one minute, from its last start."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [("task", NOON, Script(host, CUT_SHORT, CUT_SHORT, succeeds()), delay)]
        await interrupt(host, registrations)
        await interrupt(host, registrations, after=7)
        assert starts(host) == ["12:00:00", "12:00:05"]
        await host.scheduler().initialize(registrations)
        await host.advance(hours=3)
        assert started(host)[2:] == [on_june_1("12:00:05") + timedelta(seconds=wait)]
        assert [event.interruptions for event in told(host, TaskInterrupted)] == [1, 2]
        assert told(host, TaskInterrupted)[1].resumes_at == started(host)[2]


async def test_the_wait_of_a_task_interrupted_often_does_not_begin_anew_with_the_process() -> None:
    """SPEC 3.7: from its last start: downtime counts, and when the wait is over already the task starts at once."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [("task", NOON, Script(host, CUT_SHORT, CUT_SHORT, succeeds()), 10 * MINUTE)]
        await interrupt(host, registrations)
        await interrupt(host, registrations)
        await host.advance_to("2024-06-01T12:15")
        await host.scheduler().initialize(registrations)
        await host.advance()
        assert starts(host) == ["12:00:00", "12:00:05", "12:15:00"]


async def test_a_task_that_kills_the_process_cannot_make_a_crash_loop() -> None:
    """SPEC 3.7: restarted at once, every time, the process dies once a minute."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [("killer", NOON, Script(host, CUT_SHORT), timedelta(0))]
        await host.scheduler().initialize(registrations)
        seen = 0
        for _ in range(600):
            await host.advance(seconds=1)
            if len(started(host, "killer")) > seen:
                seen += 1
                await host.crash()
                await host.scheduler().initialize(registrations)
        assert 10 <= len(started(host, "killer")) <= 12
        assert [event.interruptions for event in told(host, TaskInterrupted)] == list(range(1, seen + 1))


async def test_a_due_minute_in_that_wait_starts_it() -> None:
    """SPEC 3.7: (a cron due minute in that wait starts it)."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        work = Script(host, CUT_SHORT, CUT_SHORT, succeeds())
        registrations: Registrations = [("task", "0,10 12 * * *", work, HOUR)]
        await interrupt(host, registrations)
        await interrupt(host, registrations)
        await host.scheduler().initialize(registrations)
        await host.advance(hours=3)
        assert starts(host) == ["12:00:00", "12:00:05", "12:10:00"]
        assert told(host, TaskRunStarted)[2].cause == "cron"


async def test_a_start_by_cron_does_not_end_the_streak() -> None:
    """SPEC 3.7: interrupted again after such a start, it is interrupted for the third time in a row."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [("task", "0,10 12 * * *", Script(host, *[CUT_SHORT] * 3, succeeds()), HOUR)]
        await interrupt(host, registrations)
        await interrupt(host, registrations)
        await interrupt(host, registrations, after=600)
        await host.scheduler().initialize(registrations)
        await host.advance(hours=2)
        assert starts(host) == ["12:00:00", "12:00:05", "12:10:00", "13:10:00"]
        assert [event.interruptions for event in told(host, TaskInterrupted)] == [1, 2, 3]


@pytest.mark.parametrize("end", [succeeds(after=2), fails(after=2)], ids=["success", "failure"])
async def test_an_end_of_whatever_kind_ends_the_streak(end: Step) -> None:
    """SPEC 3.7: in a row: a run that ended, well or not, lies between."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        work = Script(host, CUT_SHORT, end, CUT_SHORT, succeeds())
        registrations: Registrations = [("task", "0,5 12 * * *", work, HOUR)]
        await interrupt(host, registrations)
        await interrupt(host, registrations, after=400)  # ends at 12:00:07, and is interrupted at 12:05
        await host.scheduler().initialize(registrations)
        await host.advance()
        assert starts(host) == ["12:00:00", "12:00:05", "12:05:00", "12:06:45"]
        assert [event.interruptions for event in told(host, TaskInterrupted)] == [1, 1]


@pytest.mark.parametrize("death", ["stop", "crash"])
@pytest.mark.parametrize("times", [1, 4])
async def test_an_interrupted_run_is_still_owed_when_the_next_scheduler_ends_before_it_starts(
    death: str, times: int
) -> None:
    """SPEC 3.7: nothing but a start serves it, and what did not start was not interrupted again."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [("task", NOON, Script(host, CUT_SHORT, succeeds()), HOUR)]
        await interrupt(host, registrations)
        for _ in range(times):
            scheduler = host.scheduler()
            await scheduler.initialize(registrations)
            await (scheduler.stop() if death == "stop" else host.crash())
            assert len(started(host)) == 1
        await host.advance(seconds=5)
        await host.scheduler().initialize(registrations)
        await host.advance()
        assert starts(host) == ["12:00:00", "12:00:10"]
        assert {event.interruptions for event in told(host, TaskInterrupted)} == {1}


async def test_an_interrupted_run_that_waits_for_a_slot_is_still_owed_after_a_crash() -> None:
    """SPEC 3.7, 3.10: waiting is not starting."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [
            (name, NOON, Script(host, CUT_SHORT, CUT_SHORT, succeeds()), timedelta(0)) for name in ("a", "b")
        ]
        await interrupt(host, registrations)
        await interrupt(host, registrations, max_concurrency=1)
        second = {name: len(started(host, name)) for name in ("a", "b")}
        assert sorted(second.values()) == [1, 2]
        waited = min(second, key=lambda name: second[name])
        await host.scheduler(max_concurrency=1).initialize(registrations)
        await host.advance()
        assert len(started(host, waited)) == 2


async def test_a_failing_restart_is_retried_like_any_failure() -> None:
    """SPEC 3.7, 3.4: the restart is a run."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [("task", NOON, Script(host, CUT_SHORT, fails(), succeeds()), MINUTE)]
        await interrupt(host, registrations)
        await host.scheduler().initialize(registrations)
        await host.advance(minutes=5)
        assert starts(host) == ["12:00:00", "12:00:05", "12:01:05"]
        assert [event.retry_count for event in told(host, TaskRetryStarted)] == [1]


async def test_wait_lets_an_interrupted_run_wait_for_the_next_due_minute() -> None:
    """SPEC 3.7: `interrupted="wait"` chooses the other reading (002 S2)."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [("task", "0,20 12 * * *", Script(host, CUT_SHORT, succeeds()), MINUTE)]
        await interrupt(host, registrations, interrupted="wait")
        await host.scheduler(interrupted="wait").initialize(registrations)
        await host.advance(hours=2)
        assert starts(host) == ["12:00:00", "12:20:00"]
        assert "resumesAt" not in told(host, TaskInterrupted)[0].fields


async def test_wait_serves_a_minute_missed_after_the_crash_at_once() -> None:
    """SPEC 3.7, 3.1: to wait for the next due minute is not to forget one that has passed."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [("task", "0,20 12 * * *", Script(host, CUT_SHORT, succeeds()), MINUTE)]
        await interrupt(host, registrations, interrupted="wait")
        await host.advance_to("2024-06-01T12:30:30")
        await host.scheduler(interrupted="wait").initialize(registrations)
        await host.advance(hours=2)
        assert starts(host) == ["12:00:00", "12:30:30"]


@pytest.mark.parametrize("ripe", [False, True], ids=["pending", "ripe"])
async def test_wait_keeps_the_retry_that_was_pending_when_the_interrupted_run_started(ripe: bool) -> None:
    """SPEC 3.7: a retry that was pending when the interrupted run started is then still owed."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        work = Script(host, fails(), CUT_SHORT, succeeds())
        registrations: Registrations = [("task", "0,5 12 * * *", work, 30 * MINUTE)]
        await interrupt(host, registrations, after=305, interrupted="wait")
        if ripe:
            await host.advance_to("2024-06-01T12:47")
        await host.scheduler(interrupted="wait").initialize(registrations)
        await host.advance(hours=2)
        assert starts(host) == ["12:00:00", "12:05:00", "12:47:00" if ripe else "12:30:00"]
        assert told(host, TaskRunStarted)[2].fields["isRetry"] is True
        assert told(host, TaskRetryStarted)[0].retry_count == 1


async def test_wait_owes_an_interrupted_retry_again() -> None:
    """SPEC 3.7: the interrupted run was the retry itself: that was pending, and is still owed."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [("task", NOON, Script(host, fails(), CUT_SHORT, succeeds()), 30 * SECOND)]
        await interrupt(host, registrations, after=40, interrupted="wait")
        await host.scheduler(interrupted="wait").initialize(registrations)
        await host.advance(hours=2)
        assert starts(host) == ["12:00:00", "12:00:30", "12:00:40"]


async def test_wait_keeps_the_retry_across_any_number_of_processes() -> None:
    """SPEC 3.7: none of them started it, so it is still owed."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        work = Script(host, fails(), CUT_SHORT, succeeds())
        registrations: Registrations = [("task", "0,5 12 * * *", work, 30 * MINUTE)]
        await interrupt(host, registrations, after=305, interrupted="wait")
        await interrupt(host, registrations, interrupted="wait")
        scheduler = host.scheduler(interrupted="wait")
        await scheduler.initialize(registrations)
        await scheduler.stop()
        await host.scheduler(interrupted="wait").initialize(registrations)
        await host.advance(hours=2)
        assert starts(host) == ["12:00:00", "12:05:00", "12:30:00"]


async def test_the_reading_is_chosen_at_the_start_that_finds_the_run() -> None:
    """SPEC 3.7: the store says what happened, the option what follows from it."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [("task", NOON, Script(host, CUT_SHORT, succeeds()), HOUR)]
        await interrupt(host, registrations, interrupted="restart")
        await interrupt(host, registrations, interrupted="wait")
        assert starts(host) == ["12:00:00"]
        await host.scheduler(interrupted="restart").initialize(registrations)
        await host.advance()
        assert starts(host) == ["12:00:00", "12:00:10"]


# --- 3.8: the first look ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["coroutine", "blocking"])
async def test_nothing_starts_before_the_first_initialize_has_returned(path: Path, kind: str) -> None:
    """SPEC 3.8: no start before the first `initialize` has returned; the first evaluation follows immediately."""
    happened: list[str] = []

    async def on_the_loop() -> None:
        happened.append("run")

    def in_a_thread() -> None:
        happened.append("run")

    ear = Ear()
    scheduler = duly.Scheduler(path, on_event=ear)
    callback: Callable[[], object] = on_the_loop if kind == "coroutine" else in_a_thread
    await scheduler.initialize([("task", EVERY_MINUTE, callback, HOUR)])
    happened.append("returned")
    assert ear.of(TaskRunStarted) == []
    await ear.hear(TaskRunCompleted)
    assert happened[:2] == ["returned", "run"]
    await scheduler.stop()


class Gate(SqliteStore):
    """The embedded store, whose every initialize() waits until it is let through."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, worker=Inline(), synchronous="OFF")
        self.open_gate = asyncio.Event()
        self.open_gate.set()

    async def replace(self, replacement: Replacement, number: int) -> None:
        await self.open_gate.wait()
        await super().replace(replacement, number)


async def test_nothing_starts_while_a_slow_initialize_goes_on(path: Path) -> None:
    """SPEC 3.8: even when minutes pass; what fell due meanwhile is owed, and starts right after it."""
    store = Gate(path)
    async with SimulatedHost("2024-06-01T12:00:10", "UTC") as host:
        store.open_gate.clear()
        call = asyncio.create_task(host.scheduler(store).initialize([("task", "0,1 12 * * *", succeed, HOUR)]))
        await host.advance()
        await host.advance(minutes=2)
        assert started(host) == []
        store.open_gate.set()
        await call
        assert started(host) == []
        await host.advance()
        assert starts(host) == ["12:02:10"]


async def test_the_first_evaluation_follows_immediately() -> None:
    """SPEC 3.8: not at the next minute."""
    async with SimulatedHost("2024-06-01T12:00:37.123", "UTC") as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance()
        assert starts(host) == ["12:00:37.123000"]


async def test_a_scheduler_that_is_stopped_at_once_starts_nothing() -> None:
    """SPEC 3.8, 4.3: the first evaluation comes after the stop, and finds it."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await scheduler.stop()
        await host.advance(minutes=2)
        assert started(host) == []


async def test_the_old_registrations_go_on_during_a_re_initialisation(path: Path) -> None:
    """SPEC 3.8: until the new ones are in force: what runs ends and is recorded, and what is owed is not lost."""
    store = Gate(path)
    async with SimulatedHost("2024-06-01T12:00:00", "UTC") as host:
        old: Registrations = [
            ("old", NOON, Script(host, succeeds(after=10)), HOUR),
            ("kept", EVERY_MINUTE, succeed, HOUR),
        ]
        scheduler = host.scheduler(store)
        await scheduler.initialize(old)
        await host.advance(seconds=5)
        store.open_gate.clear()
        call = asyncio.create_task(scheduler.initialize([("new", EVERY_MINUTE, succeed, HOUR), old[1]]))
        await host.advance()
        await host.advance(minutes=1)
        assert len(told(host, TaskRunCompleted, "old")) == 1
        assert stored(path, "old")["last_success_at"] == microseconds(on_june_1("12:00:10"))
        assert started(host, "new") == []
        store.open_gate.set()
        await call
        await host.advance()
        assert [text[:5] for text in starts(host, "kept")] == ["12:00", "12:01"]
        assert len(started(host, "new")) == 1


async def test_the_old_registrations_go_on_when_a_re_initialisation_is_refused() -> None:
    """SPEC 3.8, 4.1: checks come first, and touch nothing."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance(seconds=30)
        with pytest.raises(duly.CronExpressionInvalidError):
            await scheduler.initialize([("task", "61 * * * *", succeed, HOUR)])
        await host.advance(minutes=2)
        assert starts(host) == ["12:00:00", "12:01:00", "12:02:00"]


# --- 3.9: durable ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["coroutine", "blocking", "awaitable"])
async def test_a_start_is_durable_before_its_callback_begins(path: Path, kind: str) -> None:
    """SPEC 3.9: the callback itself finds its run in the store, and its cause."""
    found: list[dict[str, Any]] = []

    def look() -> None:
        found.append(stored(path))

    async def look_on_the_loop() -> None:
        look()

    callback: Callable[[], object] = {
        "coroutine": look_on_the_loop,
        "blocking": look,
        "awaitable": handing_back(look_on_the_loop),
    }[kind]
    ear = Ear()
    scheduler = duly.Scheduler(path, on_event=ear)
    await scheduler.initialize([("task", EVERY_MINUTE, callback, HOUR)])
    (begun, *_) = await ear.hear(TaskRunStarted)
    await ear.hear(TaskRunCompleted)
    await scheduler.stop()
    assert found[0]["run"] == begun.run_id
    assert found[0]["run_cause"] == "cron"
    assert found[0]["last_attempt_at"] == microseconds(begun.actual_time)
    assert stored(path)["run"] is None


async def test_an_end_is_durable_before_the_task_may_start_again(path: Path) -> None:
    """SPEC 3.9: each run finds all earlier ones in history."""
    found: list[list[str]] = []
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:

        async def look() -> None:
            found.append([run["outcome"] for run in history(path)])
            if len(found) % 2:
                raise CallbackError

        await host.scheduler().initialize([("task", EVERY_MINUTE, look, 10 * SECOND)])
        await host.advance(minutes=1, seconds=20)
        assert found == [[], ["failure"], ["failure", "success"], ["failure", "success", "failure"]]


async def test_a_start_carries_one_clock_sample(path: Path) -> None:
    """SPEC 3.9: decided, stored and reported about one start: event, record and history agree to the microsecond."""
    ear = Ear()
    scheduler = duly.Scheduler(path, on_event=ear)
    await scheduler.initialize([(f"task {index}", EVERY_MINUTE, succeed, HOUR) for index in range(20)])
    await ear.hear(TaskRunCompleted, times=20)
    await scheduler.stop()
    for event in ear.of(TaskRunStarted):
        (run, *_) = history(path, event.task_name)
        assert run["run"] == event.run_id
        assert run["started_at"] == microseconds(event.actual_time)
    for index in range(20):
        last = history(path, f"task {index}")[-1]
        record = stored(path, f"task {index}")
        assert (record["last_attempt_at"], record["last_success_at"]) == (last["started_at"], last["ended_at"])


async def test_an_end_carries_one_clock_sample(path: Path) -> None:
    """SPEC 3.9: ... or end: the failure, its retry, the event and history."""
    ear = Ear()
    scheduler = duly.Scheduler(path, on_event=ear)
    await scheduler.initialize([(f"task {index}", EVERY_MINUTE, fail, HOUR) for index in range(20)])
    await ear.hear(TaskRunFailed, times=20)
    await scheduler.stop()
    for event in ear.of(TaskRunFailed):
        record, last = stored(path, event.task_name), history(path, event.task_name)[-1]
        assert record["last_failure_at"] == last["ended_at"]
        assert record["pending_retry_until"] == last["ended_at"] + 3_600_000_000
    newest = {event.task_name: event for event in ear.of(TaskRunFailed)}
    for name, event in newest.items():
        assert event.next_retry_at is not None
        assert microseconds(event.next_retry_at) == stored(path, name)["pending_retry_until"]


async def test_a_crash_between_a_return_and_its_durable_end_repeats_the_run(path: Path) -> None:
    """SPEC 3.9: the window that is not closed, and which way it opens: twice rather than never."""
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        work = Script(host, succeeds(after=10), succeeds())
        await host.scheduler().initialize([("task", NOON, work, HOUR)])
        await host.advance(seconds=5)
        with full_disk():
            await host.advance(seconds=10)
            await host.crash()
        assert work.calls == 1
        assert told(host, TaskRunCompleted) == []
        await host.scheduler().initialize([("task", NOON, work, HOUR)])
        await host.advance()
        assert work.calls == 2
        assert told(host, TaskRunStarted)[1].cause == "interrupted"


# --- 3.10: slots -----------------------------------------------------------------------------------------------------


class Crowd:
    """Counts how many callbacks are under way."""

    def __init__(self, host: SimulatedHost, seconds: float) -> None:
        self._host = host
        self._seconds = seconds
        self.now = self.most = 0

    async def __call__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await self._host.sleep(self._seconds)
        self.now -= 1


async def test_on_the_loop_there_is_no_limit_by_default() -> None:
    """SPEC 3.10: default: unlimited on the loop."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        crowd = Crowd(host, 10)
        await host.scheduler().initialize([(f"task {index}", NOON, crowd, HOUR) for index in range(300)])
        await host.advance(seconds=1)
        assert crowd.now == 300


@pytest.mark.parametrize("limit", [1, 3, 10, 25, 100])
async def test_at_most_max_concurrency_callbacks_run_at_once(path: Path, limit: int) -> None:
    """SPEC 3.10: the rest wait their turn, still owed, not lost; a start is committed only when a slot is free."""
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        crowd = Crowd(host, 10)
        await host.scheduler(max_concurrency=limit).initialize(
            [(f"task {index}", NOON, crowd, HOUR) for index in range(25)]
        )
        await host.advance(seconds=5)
        running = rows(path, "SELECT count(*) AS number FROM states WHERE run IS NOT NULL")[0]["number"]
        assert crowd.now == running == min(limit, 25)
        await host.advance(minutes=10)
        assert crowd.most == min(limit, 25)
        assert sorted(order(host)) == sorted(f"task {index}" for index in range(25))
        assert max(started(host, name) for name in order(host)) == [
            on_june_1("12:00") + timedelta(seconds=10 * ((25 - 1) // limit))
        ]


async def test_what_waits_for_a_slot_survives_a_restart() -> None:
    """SPEC 3.10: still owed: waiting is not a promise of the process, it follows from the store."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [(f"task {index}", NOON, Crowd(host, 10), HOUR) for index in range(6)]
        scheduler = host.scheduler(max_concurrency=2)
        await scheduler.initialize(registrations)
        await host.advance(seconds=1)
        stopping = asyncio.create_task(scheduler.stop())
        await host.advance(seconds=20)
        await stopping
        assert len(order(host)) == 2
        await host.scheduler(max_concurrency=2).initialize(registrations)
        await host.advance(minutes=1)
        assert sorted(order(host)) == sorted(f"task {index}" for index in range(6))


async def test_the_longest_owed_starts_first() -> None:
    """SPEC 3.10: longest owed first: cron by its earliest owed minute, a retry by its instant, whatever the kind."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:

        def blocking() -> None:
            """Runs in a thread's slot."""

        registrations: Registrations = [
            ("at 3", "3 12 * * *", succeed, HOUR),
            ("at 1 in a thread", "1 12 * * *", blocking, HOUR),
            ("at 4", "4 12 * * *", succeed, HOUR),
            ("at 2", "2 12 * * *", succeed, HOUR),
            ("retry at 2:30", NOON, Script(host, fails(), succeeds()), 150 * SECOND),
            ("retry at 3:30 in a thread", NOON, once_failing(), 210 * SECOND),
            ("since 1:30", "0 12 * * *", Script(host, fails(), succeeds()), 90 * SECOND),
            ("long", "1 12 * * *", Script(host, succeeds(after=290)), HOUR),
        ]
        # `long` must take the slot of 12:01: it comes first among equals, as the first that was declared and is due.
        registrations.sort(key=lambda each: each[0] != "long")
        await host.scheduler(max_concurrency=1).initialize(registrations)
        await host.advance_to("2024-06-01T12:01")
        began = len(order(host))
        assert order(host)[-1] in {"long", "at 1 in a thread"}
        await host.advance(minutes=10)
        rest = [name for name in order(host)[began - 1 :] if name not in {"long", "at 1 in a thread"}]
        assert rest == ["since 1:30", "at 2", "retry at 2:30", "at 3", "retry at 3:30 in a thread", "at 4"]


def once_failing() -> Callable[[], None]:
    """A blocking callback that fails at its first call only."""
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise CallbackError

    return work


async def test_after_a_downtime_the_longest_owed_starts_first() -> None:
    """SPEC 3.10: by the earliest occurrence owed, not by the latest, even across a restart."""
    async with SimulatedHost("2024-06-01T12:00:30", "UTC") as host:
        registrations: Registrations = [
            ("since 16:00", "0 16 * * *", succeed, HOUR),
            ("since 14:30", "30 14 * * *", succeed, HOUR),
            ("since 14:00, often", "0 14-23 * * *", succeed, HOUR),
            ("since 15:00, often", "* 15-23 * * *", succeed, HOUR),
        ]
        scheduler = host.scheduler()
        await scheduler.initialize(registrations)
        await scheduler.stop()
        await host.advance_to("2024-06-01T18:20:00")
        await host.scheduler(max_concurrency=1).initialize(registrations)
        await host.advance()
        assert order(host) == ["since 14:00, often", "since 14:30", "since 15:00, often", "since 16:00"]


async def test_an_interrupted_run_takes_its_place_in_the_queue() -> None:
    """SPEC 3.10, 3.7: owed since its interrupted start."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations: Registrations = [
            ("at 12:05", "5 12 * * *", succeed, HOUR),
            ("interrupted at 12:03", "3 12 * * *", Script(host, CUT_SHORT, succeeds()), HOUR),
            ("at 12:04", "4 12 * * *", Script(host, succeeds()), HOUR),
        ]
        await interrupt(host, registrations, after=185)
        await host.advance_to("2024-06-01T12:10")
        await host.scheduler(max_concurrency=1).initialize(registrations)
        await host.advance()
        assert order(host)[1:] == ["interrupted at 12:03", "at 12:04", "at 12:05"]


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_nobody_is_overtaken_by_a_task_that_is_owed_for_less(limit: int) -> None:
    """SPEC 3.10: more is due than slots can serve: at every start, no waiting task has been owed for longer."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        names = [f"task {index}" for index in range(7)]
        await host.scheduler(max_concurrency=limit).initialize(
            [(name, EVERY_MINUTE, Script(host, succeeds(after=25)), HOUR) for name in names]
        )
        await host.advance(hours=1)
        owed_since = dict.fromkeys(names, on_june_1("12:00"))
        busy_until = dict.fromkeys(names, on_june_1("12:00"))
        for event in told(host, TaskRunStarted):
            now, name = event.actual_time, event.task_name
            waiting = [each for each in names if busy_until[each] <= now]
            assert owed_since[name] == min(owed_since[each] for each in waiting)
            owed_since[name] = now.replace(second=0, microsecond=0) + MINUTE
            busy_until[name] = now + 25 * SECOND
        assert len(told(host, TaskRunStarted)) >= min(limit * 3600 // 25, 7 * 60)
        assert min(len(started(host, name)) for name in names) >= 15


async def test_there_are_as_many_threads_as_the_specification_says(path: Path) -> None:
    """SPEC 3.10: for threads our own daemon threads, `min(32, cores + 4)` of them; the rest wait, uncommitted."""
    expected = min(32, (os.cpu_count() or 1) + 4)
    release = threading.Event()
    daemons: list[bool] = []

    def work() -> None:
        daemons.append(threading.current_thread().daemon)
        release.wait(30)

    ear = Ear()
    scheduler = duly.Scheduler(path, on_event=ear, clock=ManualClock())
    await scheduler.initialize([(f"task {index}", NOON, work, HOUR) for index in range(expected + 7)])
    await ear.hear(PollCompleted)
    assert len(ear.of(TaskRunStarted)) == expected
    assert rows(path, "SELECT count(*) AS number FROM states WHERE run IS NOT NULL")[0]["number"] == expected
    release.set()
    await ear.hear(TaskRunCompleted, times=expected + 7)
    await scheduler.stop()
    assert all(daemons)
    assert len(daemons) == expected + 7


async def test_threads_that_are_all_taken_keep_no_coroutine_waiting(path: Path) -> None:
    """SPEC 3.10: a slot of its kind: what runs on the loop needs no thread."""
    threads = min(32, (os.cpu_count() or 1) + 4)
    release = threading.Event()
    ear = Ear()
    scheduler = duly.Scheduler(path, on_event=ear, clock=ManualClock())
    registrations: Registrations = [
        (f"blocks {index}", NOON, lambda: release.wait(30), HOUR) for index in range(threads + 3)
    ]
    await scheduler.initialize([*registrations, ("on the loop", NOON, succeed, HOUR)])
    await ear.hear(TaskRunCompleted, "on the loop")
    assert len(ear.of(TaskRunStarted)) == threads + 1
    release.set()
    await ear.hear(TaskRunCompleted, times=threads + 4)
    await scheduler.stop()


@pytest.mark.parametrize("limit", [1, 3])
async def test_max_concurrency_bounds_threads_and_coroutines_together(path: Path, limit: int) -> None:
    """SPEC 3.10: at most `max_concurrency` callbacks at once, mixed as they come."""
    guard = threading.Lock()
    now = most = 0

    def enter(change: int) -> None:
        nonlocal now, most
        with guard:
            now += change
            most = max(most, now)

    async def on_the_loop() -> None:
        enter(+1)
        for _ in range(20):
            await asyncio.sleep(0)
        enter(-1)

    def in_a_thread() -> None:
        enter(+1)
        threading.Event().wait(0.002)
        enter(-1)

    ear = Ear()
    scheduler = duly.Scheduler(path, on_event=ear, clock=ManualClock(), max_concurrency=limit)
    works: list[Callable[[], object]] = [on_the_loop, in_a_thread] * 10
    await scheduler.initialize([(f"task {index}", NOON, work, HOUR) for index, work in enumerate(works)])
    await ear.hear(TaskRunCompleted, times=20)
    await scheduler.stop()
    assert most <= limit
    assert now == 0


async def test_max_concurrency_is_the_number_of_threads_if_given(path: Path) -> None:
    """SPEC 3.10: or `max_concurrency` if given: more than the default, too."""
    limit = min(32, (os.cpu_count() or 1) + 4) + 5
    everybody = threading.Barrier(limit)
    ear = Ear()
    scheduler = duly.Scheduler(path, on_event=ear, clock=ManualClock(), max_concurrency=limit)
    await scheduler.initialize([(f"task {index}", NOON, lambda: everybody.wait(30), HOUR) for index in range(limit)])
    assert len(await ear.hear(TaskRunCompleted, times=limit)) == limit
    await scheduler.stop()


# --- 3.10: time limits -----------------------------------------------------------------------------------------------


async def test_run_timeout_cancels_a_run_which_then_has_failed(path: Path) -> None:
    """SPEC 3.10: `run_timeout` cancels a run, which then has failed; its retry is armed from there."""
    cancelled_at: list[datetime] = []
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:

        async def work() -> None:
            try:
                await host.sleep(1000)
            except asyncio.CancelledError:
                cancelled_at.append(host.now)
                raise

        await host.scheduler(run_timeout=timedelta(seconds=12.5)).initialize([("task", NOON, work, 10 * SECOND)])
        await host.advance(seconds=13)
        assert [when - on_june_1("12:00:12.5") < timedelta(milliseconds=1) for when in cancelled_at] == [True]
        (failed,) = told(host, TaskRunFailed)
        assert "TimeoutError" in failed.error
        assert history(path)[0]["outcome"] == "failure"
        assert stored(path)["pending_retry_until"] == stored(path)["last_failure_at"] + 10_000_000
        await host.advance(seconds=10)
        assert len(started(host)) == 2


async def test_a_run_within_its_time_is_left_alone() -> None:
    """SPEC 3.10: there is no limit but the one given, and none by default."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler(run_timeout=10 * SECOND).initialize(
            [("task", EVERY_MINUTE, Script(host, succeeds(after=9.999)), HOUR)]
        )
        await host.advance(minutes=5)
        assert told(host, TaskRunFailed) == []
        assert len(told(host, TaskRunCompleted)) == 5
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", NOON, Script(host, succeeds(after=80_000)), HOUR)])
        await host.advance(seconds=80_000)
        assert len(told(host, TaskRunCompleted)) == 1


async def test_a_coroutine_that_swallows_its_cancellation_stays_running_and_has_failed_when_it_ends(
    path: Path,
) -> None:
    """SPEC 3.10: it stays running until it really ends, and has then failed; it never overlaps its own retry."""
    alive = most = 0
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:

        async def work() -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            with contextlib.suppress(asyncio.CancelledError):
                await host.sleep(1000)
            await host.sleep(200)  # crosses due minutes, and its own retry
            alive -= 1

        await host.scheduler(run_timeout=10 * SECOND).initialize([("task", EVERY_MINUTE, work, timedelta(0))])
        await host.advance(seconds=180)
        assert stored(path)["run"] is not None
        assert told(host, TaskRunFailed) == []
        await host.advance(seconds=40)
        (failed,) = told(host, TaskRunFailed)
        assert "TimeoutError" in failed.error
        assert 209_000 < failed.duration < 211_000
        assert len(started(host)) == 2  # the minutes it crossed are owed, and start at once
        await host.advance(minutes=20)
        assert most == 1


async def test_a_coroutine_that_raises_something_else_when_cancelled_has_failed_by_its_time_limit() -> None:
    """SPEC 3.10: the time limit is what went wrong first."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:

        async def work() -> None:
            try:
                await host.sleep(1000)
            finally:
                raise CallbackError("while cleaning up")

        await host.scheduler(run_timeout=10 * SECOND).initialize([("task", NOON, work, HOUR)])
        await host.advance(seconds=11)
        (failed,) = told(host, TaskRunFailed)
        assert "TimeoutError" in failed.error


async def test_a_time_limit_and_the_retry_after_it_repeat_without_overlap() -> None:
    """SPEC 3.10, 3.4: limit, failure, delay, start, limit ..."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        crowd = Crowd(host, 1000)
        await host.scheduler(run_timeout=10 * SECOND).initialize([("task", NOON, crowd, 5 * SECOND)])
        await host.advance(minutes=1)
        assert [round((when - on_june_1("12:00")).total_seconds()) for when in started(host)] == [0, 15, 30, 45, 60]


async def test_an_awaitable_that_a_blocking_callback_returns_is_awaited_and_can_be_cancelled() -> None:
    """SPEC 1.3, 3.10: what it hands back runs on the loop, so the time limit reaches it."""
    ended: list[str] = []
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:

        async def later() -> None:
            try:
                await host.sleep(1000)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        await host.scheduler(run_timeout=10 * SECOND).initialize([("task", NOON, handing_back(later), HOUR)])
        await host.advance(seconds=9)
        assert told(host, TaskRunFailed) == []
        await host.advance(seconds=2)
        assert ended == ["cancelled"]
        assert "TimeoutError" in told(host, TaskRunFailed)[0].error


@pytest.mark.parametrize("returns", ["nothing", "a coroutine", "an exception"])
async def test_a_thread_that_exceeds_its_time_stays_running_until_it_really_ends_and_has_then_failed(
    path: Path, returns: str
) -> None:
    """SPEC 3.10: a thread cannot be cancelled: such a run stays running until it really ends, and has then failed.

    A coroutine reaches the same limit at the same instant, again and again, and its end is waited for: had the limit
    ended the run of the thread as well, that would be in the same batch, or in an earlier one.
    """
    event_loop = asyncio.get_running_loop()
    begun, release = asyncio.Event(), threading.Event()
    calls: list[str] = []
    awaited: list[str] = []

    async def rest() -> None:
        awaited.append("the rest")

    def work() -> object:
        calls.append("thread")
        event_loop.call_soon_threadsafe(begun.set)
        release.wait(30)
        if returns == "an exception":
            raise CallbackError
        return rest() if returns == "a coroutine" else None

    witnessed, over = asyncio.Queue[None](), asyncio.Event()

    async def wait() -> None:
        witnessed.put_nowait(None)
        await over.wait()

    ear, clock = Ear(), ManualClock()
    scheduler = duly.Scheduler(path, on_event=ear, clock=clock, run_timeout=10 * SECOND)
    await scheduler.initialize(
        [("task", EVERY_MINUTE, work, timedelta(0)), ("witness", EVERY_MINUTE, wait, timedelta(0))]
    )
    await asyncio.wait_for(begun.wait(), 30)  # its time limit has begun
    for times in range(1, 4):
        await asyncio.wait_for(witnessed.get(), 30)
        clock.advance(60)
        await ear.hear(TaskRunFailed, "witness", times=times)
        assert stored(path)["run"] == ear.of(TaskRunStarted, "task")[0].run_id
        assert ear.of(TaskRunFailed, "task") == []
        assert calls == ["thread"]
    assert len(ear.of(TaskRunStarted, "task")) == 1
    release.set()
    (failed, *_) = await ear.hear(TaskRunFailed, "task")
    assert "TimeoutError" in failed.error
    assert awaited == []
    over.set()
    await scheduler.stop()


async def test_the_time_limit_holds_while_stop_waits() -> None:
    """SPEC 3.10, 4.3: stop waits for running callbacks, and the limit ends them as ever."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        scheduler = host.scheduler(run_timeout=30 * SECOND)
        await scheduler.initialize([("task", NOON, Script(host, succeeds(after=100_000)), HOUR)])
        await host.advance(seconds=10)
        stopping = asyncio.create_task(scheduler.stop())
        await host.advance(seconds=25)
        assert stopping.done()
        assert "TimeoutError" in told(host, TaskRunFailed)[0].error
        await stopping


async def test_the_time_limit_is_measured_in_passing_time() -> None:
    """SPEC 3.10: the wall clock may step meanwhile."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler(run_timeout=100 * SECOND).initialize(
            [
                ("task", NOON, Script(host, succeeds(after=1000)), HOUR),
                ("short", NOON, Script(host, succeeds(after=90)), HOUR),
            ]
        )
        await host.advance(seconds=10)
        await host.set_clock("2024-06-01T20:00")
        await host.advance(seconds=85)
        assert told(host, TaskRunFailed) == []
        assert len(told(host, TaskRunCompleted, "short")) == 1
        await host.set_clock("2024-06-01T02:00")
        await host.advance(seconds=10)
        assert len(told(host, TaskRunFailed, "task")) == 1


# --- 3.11: whatever a callback raises --------------------------------------------------------------------------------


class OwnBaseError(BaseException):
    """Not even an Exception."""


ANYTHING = [
    CallbackError("trouble"),
    SystemExit(3),
    SystemExit(),
    asyncio.CancelledError(),
    GeneratorExit(),
    OwnBaseError("odd"),
    TimeoutError("its own"),
    StopIteration(1),
    StopAsyncIteration(),
    MemoryError(),
    RecursionError(),
    AssertionError(),
    BaseExceptionGroup("several", [CallbackError(), SystemExit(1)]),
]


def raising(error: BaseException, kind: str) -> Callable[[], object]:
    """A callback of some kind that raises, whatever it is, once per run."""

    async def on_the_loop() -> None:
        raise error

    async def on_the_loop_later() -> None:
        await asyncio.sleep(0)
        raise error

    def in_a_thread() -> None:
        raise error

    def by_an_awaitable() -> Awaitable[None]:
        return on_the_loop_later()

    return {
        "coroutine": on_the_loop,
        "later": on_the_loop_later,
        "blocking": in_a_thread,
        "awaitable": by_an_awaitable,
    }[kind]


@pytest.mark.parametrize("error", ANYTHING, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["coroutine", "later", "blocking", "awaitable"])
async def test_a_callback_that_raises_anything_has_failed(path: Path, error: BaseException, kind: str) -> None:
    """SPEC 3.11: `SystemExit` and a `CancelledError` of its own included; other tasks go on."""
    ear, clock = Ear(), ManualClock()
    scheduler = duly.Scheduler(path, on_event=ear, clock=clock)
    await scheduler.initialize(
        [("task", NOON, raising(error, kind), 90 * SECOND), ("other", EVERY_MINUTE, succeed, HOUR)]
    )
    (failed, *_) = await ear.hear(TaskRunFailed, "task")
    await ear.hear(TaskRunCompleted, "other")
    assert failed.next_retry_at == on_june_1("12:01:30")
    assert history(path)[0]["outcome"] == "failure"
    assert type(error).__name__ in failed.error or isinstance(error, StopIteration)
    clock.advance(60)
    await ear.hear(TaskRunCompleted, "other", times=2)
    clock.advance(30)
    await ear.hear(TaskRunFailed, "task", times=2)
    await scheduler.stop()


@pytest.mark.parametrize("kind", ["itself", "a child"])
async def test_a_callback_that_cancels_itself_has_failed(kind: str) -> None:
    """SPEC 3.11: cancelled by its own code."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:

        async def work() -> None:
            if kind == "itself":
                current = asyncio.current_task()
                assert current is not None
                current.cancel()
                await host.sleep(10)
            else:
                child = asyncio.ensure_future(host.sleep(10))
                await asyncio.sleep(0)
                child.cancel()
                await child

        await host.scheduler().initialize([("task", NOON, work, MINUTE), ("other", EVERY_MINUTE, succeed, HOUR)])
        await host.advance(seconds=70)
        assert len(told(host, TaskRunFailed)) == 2
        assert starts(host) == ["12:00:00", "12:01:00"]
        assert len(started(host, "other")) == 2


@pytest.mark.parametrize("kind", ["coroutine", "later", "blocking", "awaitable"])
@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_keyboard_interrupt_is_recorded_and_then_raised_out_of_the_loop(
    path: Path, kind: str, factory: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    """SPEC 3.11: recorded as a failure, then raised out of the loop; asyncio has nothing more to say of it."""
    caplog.set_level(logging.CRITICAL, "duly")  # a record would keep the exception alive, and with it the asyncio task

    async def main() -> None:
        await duly.Scheduler(path).initialize([("task", EVERY_MINUTE, raising(KeyboardInterrupt(), kind), HOUR)])
        await asyncio.Event().wait()

    reported: list[object] = []
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
        with pytest.raises(KeyboardInterrupt):
            runner.run(main())
    gc.collect()  # asyncio reports an exception that nobody took when it forgets the task
    assert reported == []
    assert [run["outcome"] for run in history(path)] == ["failure"]
    assert "KeyboardInterrupt" in history(path)[0]["error"]
    assert stored(path)["pending_retry_until"] == stored(path)["last_failure_at"] + 3_600_000_000


def test_a_keyboard_interrupt_after_the_time_limit_is_one_all_the_same(path: Path) -> None:
    """SPEC 3.11: the user who pressed the key wants out, whatever else went wrong."""

    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyboardInterrupt

    async def main() -> None:
        clock = ManualClock()
        scheduler = duly.Scheduler(path, clock=clock, run_timeout=10 * SECOND)
        await scheduler.initialize([("task", EVERY_MINUTE, work, HOUR)])
        await begun.wait()
        clock.advance(11)
        await asyncio.wait_for(asyncio.Event().wait(), 30)

    with asyncio.Runner() as runner, pytest.raises(KeyboardInterrupt):
        runner.run(main())
    assert [run["outcome"] for run in history(path)] == ["failure"]


# --- 3.11: torn down without stop ------------------------------------------------------------------------------------


async def _resist(callback: Callable[[], Awaitable[object]], error: BaseException | None) -> None:
    try:
        await callback()
    except asyncio.CancelledError:
        if error is not None:
            raise error from None


def never_ending(kind: str, begun: Callable[[], object], hold: threading.Event) -> Callable[[], object]:
    """A callback that says that it has begun, and does not end by itself."""

    async def wait() -> None:
        begun()
        await asyncio.Event().wait()

    async def swallow() -> None:
        await _resist(wait, None)

    async def complain() -> None:
        await _resist(wait, CallbackError("while being torn down"))

    def block() -> None:
        begun()
        hold.wait(30)

    return {
        "coroutine": wait,
        "swallowing": swallow,
        "complaining": complain,
        "blocking": block,
        "awaitable": handing_back(wait),
    }[kind]


@pytest.mark.parametrize("kind", ["coroutine", "swallowing", "complaining", "blocking", "awaitable"])
@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_run_that_is_torn_down_with_its_loop_has_no_outcome_and_the_store_is_free(
    path: Path, kind: str, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """SPEC 3.11: nothing is recorded, it is interrupted at the next start, and the store is released."""
    hold = threading.Event()

    async def first() -> None:
        event_loop, begun = asyncio.get_running_loop(), asyncio.Event()
        callback = never_ending(kind, lambda: event_loop.call_soon_threadsafe(begun.set), hold)
        await duly.Scheduler(path).initialize([("task", EVERY_MINUTE, callback, HOUR)])
        await begun.wait()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(first())
    assert history(path) == []
    assert stored(path)["run"] is not None
    ear: list[Ear] = []

    async def second() -> None:
        ear.append(Ear())
        scheduler = duly.Scheduler(path, on_event=ear[0])
        await scheduler.initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await ear[0].hear(TaskRunCompleted)
        await scheduler.stop()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(second())
    hold.set()
    assert ear[0].of(TaskRunStarted)[0].cause == "interrupted"
    assert history(path)[0]["outcome"] == "interrupted"


def test_the_same_scheduler_can_be_initialized_again_on_a_new_loop(path: Path) -> None:
    """SPEC 3.11: what the loop took with it is gone, and the object is uninitialised again."""
    scheduler = duly.Scheduler(path)
    hold = threading.Event()

    async def first() -> None:
        event_loop, begun = asyncio.get_running_loop(), asyncio.Event()
        callback = never_ending("coroutine", lambda: event_loop.call_soon_threadsafe(begun.set), hold)
        await scheduler.initialize([("task", EVERY_MINUTE, callback, HOUR)])
        await begun.wait()

    async def second() -> None:
        begun = asyncio.Event()

        async def work() -> None:
            begun.set()

        await scheduler.initialize([("task", EVERY_MINUTE, work, HOUR)])
        await asyncio.wait_for(begun.wait(), 30)
        await scheduler.stop()

    asyncio.run(first())
    asyncio.run(second())
    assert [run["outcome"] for run in history(path)][:2] == ["interrupted", "success"]


def test_a_loop_that_is_torn_down_right_after_initialize_releases_the_store(path: Path) -> None:
    """SPEC 3.11: before the scheduler has polled for the first time."""

    async def main() -> None:
        await duly.Scheduler(path).initialize([("task", EVERY_MINUTE, succeed, HOUR)])

    for _ in range(2):
        asyncio.run(main())
        assert not read_holder(str(path)).alive
        assert (stored(path)["run"], history(path)) == (None, [])


def test_a_loop_that_is_torn_down_while_stop_waits_records_nothing_and_releases_the_store(path: Path) -> None:
    """SPEC 3.11: a second Ctrl-C: what waited for the run is gone, and the run has no outcome."""
    hold = threading.Event()

    async def main() -> None:
        event_loop, begun = asyncio.get_running_loop(), asyncio.Event()
        callback = never_ending("coroutine", lambda: event_loop.call_soon_threadsafe(begun.set), hold)
        scheduler = duly.Scheduler(path)
        await scheduler.initialize([("task", EVERY_MINUTE, callback, HOUR)])
        await begun.wait()
        stopping = asyncio.create_task(scheduler.stop())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not stopping.done()

    asyncio.run(main())
    assert history(path) == []
    assert stored(path)["run"] is not None

    async def again() -> None:
        scheduler = duly.Scheduler(path)
        await scheduler.initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await scheduler.stop()

    asyncio.run(again())


def run_python(program: str, *arguments: object, expect: int = 0) -> str:
    """Run a program in a process of its own, to its end."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == expect, done.stderr
    return done.stdout


WITHOUT_STOP = """
    import asyncio, sys, threading
    from datetime import timedelta
    import duly

    begun = threading.Event()

    async def on_the_loop():
        begun.set()
        await asyncio.Event().wait()

    def in_a_thread():
        begun.set()
        threading.Event().wait()

    callback = {"coroutine": on_the_loop, "blocking": in_a_thread}[sys.argv[2]]

    async def main():
        scheduler = duly.Scheduler(sys.argv[1])
        await scheduler.initialize([("task", "* * * * *", callback, timedelta(hours=1))])
        while not begun.is_set():
            await asyncio.sleep(0.001)

    asyncio.run(main())
    print("out")
"""


@pytest.mark.parametrize("kind", ["coroutine", "blocking"])
async def test_a_process_whose_loop_ends_without_stop_exits_and_the_next_one_finds_the_run_interrupted(
    path: Path, kind: str
) -> None:
    """SPEC 3.11: the process still exits without hanging and releases the store; a stuck thread does not keep it."""
    assert run_python(WITHOUT_STOP, path, kind) == "out\n"
    assert history(path) == []
    ear = Ear()
    scheduler = duly.Scheduler(path, on_event=ear)
    await scheduler.initialize([("task", EVERY_MINUTE, succeed, HOUR)])
    (begun, *_) = await ear.hear(TaskRunStarted)
    assert begun.cause == "interrupted"
    await scheduler.stop()


def test_a_loop_that_is_closed_under_a_scheduler_leaves_it_usable(path: Path) -> None:
    """SPEC 3.11: an event loop that is closed without cancelling anything is a loop torn down, too."""
    program = """
        import asyncio, sys
        from datetime import timedelta
        import duly

        scheduler = duly.Scheduler(sys.argv[1])

        async def initialize(*, forever):
            begun = asyncio.Event()

            async def work():
                begun.set()
                if forever:
                    await asyncio.Event().wait()

            await scheduler.initialize([("task", "* * * * *", work, timedelta(hours=1))])
            await begun.wait()
            if not forever:
                await scheduler.stop()

        loop = asyncio.new_event_loop()
        loop.run_until_complete(initialize(forever=True))
        loop.close()
        asyncio.run(initialize(forever=False))
        print("out")
    """
    assert run_python(program, path) == "out\n"


def test_a_keyboard_interrupt_of_a_callback_ends_the_process(path: Path) -> None:
    """SPEC 3.11: recorded, then out of the loop, and with it out of the process, as Python ends on it."""
    program = """
        import asyncio, sys
        from datetime import timedelta
        import duly

        async def interrupt():
            raise KeyboardInterrupt

        async def main():
            await duly.Scheduler(sys.argv[1]).initialize([("task", "* * * * *", interrupt, timedelta(hours=1))])
            await asyncio.Event().wait()

        asyncio.run(main())
    """
    run_python(program, path, expect=-signal.SIGINT)
    assert [run["outcome"] for run in history(path)] == ["failure"]
