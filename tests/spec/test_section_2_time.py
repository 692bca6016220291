"""SPEC 2: time. Minutes, zones and their transitions, polls, and clocks that step."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import duly
from duly.events import (
    ClockJumped,
    Event,
    PollCompleted,
    PollStarted,
    StoreFault,
    StoreRecovered,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunStarted,
)
from duly.testing import SimulatedHost
from tests.spec.helpers import (
    HOUR,
    MINUTE,
    SECOND,
    Ear,
    ManualClock,
    Script,
    distinct,
    fails,
    microseconds,
    minutes,
    seconds,
    started,
    starts,
    stored,
    succeed,
    succeeds,
    told,
)
from tests.stores.helpers import full_disk

EVERY_MINUTE = "* * * * *"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that outlives its host, and that a test can read."""
    return tmp_path / "duly.db"


# --- 2.1: clock, zone, grain -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "at", "utc_second"),
    [
        ("UTC", "2024-06-01T12:00:20", 0),
        ("Europe/Berlin", "2024-06-01T12:00:20", 0),
        ("Asia/Kathmandu", "2024-06-01T12:00:20", 0),
        ("Africa/Monrovia", "1971-06-01T12:00:20", 30),  # 44 minutes and 30 seconds behind
    ],
)
async def test_an_occurrence_is_an_instant_whose_local_second_is_0(zone: str, at: str, utc_second: int) -> None:
    """SPEC 2.1: host zone, minute grain; where an offset is not a whole minute, local minutes begin between UTC's."""
    async with SimulatedHost(at, zone) as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance(minutes=3)
        assert starts(host) == ["12:00:20", "12:01:00", "12:02:00", "12:03:00"]
        assert {when.astimezone(UTC).second for when in started(host)[1:]} == {utc_second}
        assert {event.scheduled_time.second for event in told(host, TaskRunStarted)} == {0}


@pytest.mark.parametrize(
    ("zone", "due_in_utc"),
    [("UTC", "14:30"), ("Asia/Kathmandu", "08:45"), ("America/St_Johns", "17:00"), ("Pacific/Kiritimati", "00:30")],
)
async def test_the_host_zone_decides_when_an_expression_is_due(zone: str, due_in_utc: str) -> None:
    """SPEC 2.1: host clock, host zone."""
    async with SimulatedHost("2024-06-01T00:00", zone) as host:
        await host.scheduler().initialize([("task", "30 14 * * *", succeed, HOUR)])
        await host.advance(days=1)
        assert [when.astimezone(UTC).strftime("%H:%M") for when in started(host)] == [due_in_utc]


@pytest.mark.parametrize(
    ("at", "expression", "retry_at"),
    [
        ("2024-03-31T01:00", "30 1 * * *", "2024-03-31T03:30:00+02:00"),  # over the gap: two hours on the wall
        ("2024-10-27T02:00", "30 2 * * *", "2024-10-27T02:30:00+01:00"),  # into the repetition: none on the wall
    ],
)
async def test_a_retry_is_due_at_an_instant_that_dst_does_not_move(
    path: Path, at: str, expression: str, retry_at: str
) -> None:
    """SPEC 2.1: a retry is due at a stored UTC instant, failure + delay."""
    async with SimulatedHost(at, "Europe/Berlin", path) as host:
        await host.scheduler().initialize([("task", expression, Script(host, fails(), succeeds()), HOUR)])
        await host.advance(minutes=31)
        failed_at = started(host)[0]
        assert stored(path)["last_failure_at"] == microseconds(failed_at)
        assert stored(path)["pending_retry_until"] == microseconds(failed_at) + 3_600_000_000
        await host.advance(hours=3)
        assert [when.isoformat() for when in started(host)[1:]] == [retry_at]


async def test_suspended_time_counts_towards_a_retry() -> None:
    """SPEC 2.1: suspended time counts."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", Script(host, fails(), succeeds()), 30 * MINUTE)])
        await host.advance(minutes=1)
        await host.jump(minutes=40)
        assert starts(host) == ["12:00:00", "12:41:00"]
        assert told(host, TaskRunStarted)[-1].scheduled_time.time().isoformat() == "12:30:00"


async def test_a_forward_step_may_ripen_a_retry_early() -> None:
    """SPEC 2.1: a forward step may ripen it early; the step is noticed within a minute (2.4)."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", Script(host, fails(), succeeds()), 30 * MINUTE)])
        await host.advance(minutes=1, seconds=15)
        await host.set_clock("2024-06-01T12:40")
        await host.advance(seconds=60)
        assert len(started(host)) == 2
        assert "12:40:00" <= starts(host)[1] <= "12:41:00"


async def test_a_pending_retry_keeps_its_instant_across_a_restart() -> None:
    """SPEC 2.1: the instant is stored."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations = [("task", "0 12 * * *", Script(host, fails(), succeeds()), timedelta(minutes=30, seconds=7.5))]
        scheduler = host.scheduler()
        await scheduler.initialize(registrations)
        await host.advance(minutes=3)
        await scheduler.stop()
        await host.advance(minutes=3)
        await host.scheduler().initialize(registrations)
        await host.advance(hours=1)
        assert starts(host) == ["12:00:00", "12:30:07.500000"]


# --- 2.2: minutes that do not exist ----------------------------------------------------------------------------------

GAPS = [
    # zone, expression inside the gap, from, until, what still runs
    ("Europe/Berlin", "30 2 * * *", "2024-03-30T12:00", "2024-04-01T12:00", ["2024-04-01T02:30"]),
    ("America/New_York", "0,59 2 * * *", "2024-03-09T12:00", "2024-03-11T02:30", ["2024-03-11T02:00"]),
    ("Australia/Lord_Howe", "15 2 * * *", "2024-10-05T12:00", "2024-10-07T12:00", ["2024-10-07T02:15"]),
    ("America/Sao_Paulo", "0 0 * * *", "2018-11-03T12:00", "2018-11-05T12:00", ["2018-11-05T00:00"]),
    ("Africa/Cairo", "30 0 * * *", "2024-04-25T12:00", "2024-04-27T12:00", ["2024-04-27T00:30"]),
    ("Asia/Pyongyang", "45 23 * * *", "2018-05-04T12:00", "2018-05-05T23:50", ["2018-05-05T23:45"]),
    ("Antarctica/Troll", "30 1,2 * * *", "2024-03-30T12:00", "2024-04-01T02:00", ["2024-04-01T01:30"]),
    ("Pacific/Apia", "0 12 * * *", "2011-12-29T13:00", "2011-12-31T13:00", ["2011-12-31T12:00"]),
]


@pytest.mark.parametrize(("zone", "expression", "begin", "end", "expected"), GAPS, ids=lambda value: str(value)[:20])
async def test_nothing_runs_for_a_minute_that_the_clock_skips(
    zone: str, expression: str, begin: str, end: str, expected: list[str]
) -> None:
    """SPEC 2.2: a wall-clock minute that DST skips does not exist: nothing runs for it."""
    async with SimulatedHost(begin, zone) as host:
        await host.scheduler().initialize([("task", expression, succeed, HOUR)])
        await host.advance_to(end)
        assert [when.strftime("%Y-%m-%dT%H:%M") for when in started(host)] == expected


@pytest.mark.parametrize(("zone", "expression", "begin", "end", "expected"), GAPS, ids=lambda value: str(value)[:20])
async def test_a_skipped_minute_is_not_missed(
    zone: str, expression: str, begin: str, end: str, expected: list[str]
) -> None:
    """SPEC 2.2: ... and it is not "missed": a scheduler that was down over the gap has nothing to catch up."""
    async with SimulatedHost(begin, zone) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("task", expression, succeed, HOUR)])
        await host.advance(minutes=1)
        await scheduler.stop()
        just_before = datetime.fromisoformat(expected[0]).replace(tzinfo=ZoneInfo(zone)) - MINUTE
        await host.advance_to(just_before)
        await host.scheduler().initialize([("task", expression, succeed, HOUR)])
        await host.advance()
        assert started(host) == []


@pytest.mark.parametrize(
    ("zone", "at", "expected"),
    [
        ("Europe/Berlin", "2024-03-31T01:57", ["01:57", "01:58", "01:59", "03:00", "03:01", "03:02"]),
        ("Australia/Lord_Howe", "2024-10-06T01:57", ["01:57", "01:58", "01:59", "02:30", "02:31", "02:32"]),
        ("America/Sao_Paulo", "2018-11-03T23:57", ["23:57", "23:58", "23:59", "01:00", "01:01", "01:02"]),
        ("Antarctica/Troll", "2024-03-31T00:57", ["00:57", "00:58", "00:59", "03:00", "03:01", "03:02"]),
    ],
)
async def test_every_minute_over_a_gap_is_every_minute_there_is(zone: str, at: str, expected: list[str]) -> None:
    """SPEC 2.2, for `* * * * *`."""
    async with SimulatedHost(at, zone) as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance(minutes=5)
        assert [when.strftime("%H:%M") for when in started(host)] == expected


# --- 2.3: minutes that come twice ------------------------------------------------------------------------------------

# zone, what it is an hour before, a minute that comes twice (first copy, in UTC too), how long is repeated
REPETITIONS = [
    ("Europe/Berlin", "2024-10-27T01:30", "30 2", "2024-10-27T00:30", 60),
    ("America/New_York", "2024-11-03T00:30", "15 1", "2024-11-03T05:15", 60),
    ("Australia/Lord_Howe", "2024-04-07T00:45", "45 1", "2024-04-06T14:45", 30),
    ("America/Sao_Paulo", "2018-02-17T22:30", "0 23", "2018-02-18T01:00", 60),
    ("Antarctica/Troll", "2024-10-27T00:30", "30 1", "2024-10-26T23:30", 120),
]


@pytest.mark.parametrize(("zone", "at", "expression", "first_copy", "_repeated"), REPETITIONS)
async def test_a_minute_that_comes_twice_is_due_at_its_first_copy_only(
    zone: str, at: str, expression: str, first_copy: str, _repeated: int
) -> None:
    """SPEC 2.3: due at its first occurrence only (fold 0)."""
    async with SimulatedHost(at, zone) as host:
        await host.scheduler().initialize([("task", f"{expression} * * *", succeed, HOUR)])
        await host.advance(hours=6)
        assert [when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M") for when in started(host)] == [first_copy]


@pytest.mark.parametrize(("zone", "at", "_expression", "_first_copy", "repeated"), REPETITIONS)
async def test_every_minute_is_silent_while_the_clock_repeats_itself(
    zone: str, at: str, _expression: str, _first_copy: str, repeated: int
) -> None:
    """SPEC 2.3: for every expression, `* * * * *` included."""
    async with SimulatedHost(at, zone) as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance(hours=6)
        steps = [later - earlier for earlier, later in pairwise(utc(started(host)))]
        assert sorted(set(steps)) == [MINUTE, (repeated + 1) * MINUTE]
        assert steps.count((repeated + 1) * MINUTE) == 1
        assert all(when.fold == 0 for when in started(host))
        assert distinct(when.replace(tzinfo=None) for when in started(host))


@pytest.mark.parametrize(
    ("zone", "second_copy", "expression", "next_start"),
    [
        ("Europe/Berlin", "2024-10-27T02:30:20+01:00", "30 2 * * *", "2024-10-28T02:30:00+01:00"),
        ("Europe/Berlin", "2024-10-27T02:30:20+01:00", EVERY_MINUTE, "2024-10-27T03:00:00+01:00"),
        ("Europe/Berlin", "2024-10-27T02:00:00+01:00", EVERY_MINUTE, "2024-10-27T03:00:00+01:00"),
        ("Europe/Berlin", "2024-10-27T02:59:59.999999+01:00", EVERY_MINUTE, "2024-10-27T03:00:00+01:00"),
        ("Australia/Lord_Howe", "2024-04-07T01:45:00+10:30", "45 1 * * *", "2024-04-08T01:45:00+10:30"),
        ("Australia/Lord_Howe", "2024-04-07T01:45:00+10:30", EVERY_MINUTE, "2024-04-07T02:00:00+10:30"),
        ("America/Sao_Paulo", "2018-02-17T23:00:00-03:00", "0 23 * * *", "2018-02-18T23:00:00-03:00"),
    ],
)
async def test_a_first_start_up_inside_the_second_copy_does_not_run(
    zone: str, second_copy: str, expression: str, next_start: str
) -> None:
    """SPEC 2.3: a first start-up inside the second copy of a matching minute does not run."""
    async with SimulatedHost(second_copy, zone) as host:
        await host.scheduler().initialize([("task", expression, succeed, HOUR)])
        await host.advance_to(next_start)
        assert [when.isoformat() for when in started(host)] == [next_start]


async def test_a_first_start_up_inside_the_first_copy_runs_and_the_second_copy_does_not() -> None:
    """SPEC 2.3: the first copy is a minute like any other."""
    async with SimulatedHost("2024-10-27T02:30:20+02:00", "Europe/Berlin") as host:
        await host.scheduler().initialize([("task", "30 2 * * *", succeed, HOUR)])
        await host.advance(hours=12)
        assert [when.isoformat() for when in started(host)] == ["2024-10-27T02:30:20+02:00"]


@pytest.mark.parametrize("expression", ["30 2 * * *", EVERY_MINUTE])
async def test_a_restart_inside_the_second_copy_does_not_run_what_the_first_copy_has_served(expression: str) -> None:
    """SPEC 2.3: a served minute stays served, even across a restart."""
    async with SimulatedHost("2024-10-27T02:30:00+02:00", "Europe/Berlin") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("task", expression, succeed, HOUR)])
        await host.advance(minutes=29)  # until 02:59 for the first time
        await scheduler.stop()
        ran = len(started(host))
        await host.advance_to("2024-10-27T02:29:30+01:00")
        await host.scheduler().initialize([("task", expression, succeed, HOUR)])
        await host.advance_to("2024-10-27T02:59:59+01:00")
        assert len(started(host)) == ran


async def test_a_first_copy_that_was_missed_is_served_in_the_second_copy_once() -> None:
    """SPEC 2.3, 3.1: an occurrence is owed from its first copy on, whatever the wall clock shows when it is served."""
    async with SimulatedHost("2024-10-27T01:50", "Europe/Berlin") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("task", "30 2 * * *", succeed, HOUR)])
        await scheduler.stop()
        await host.advance_to("2024-10-27T02:10:00+01:00")
        await host.scheduler().initialize([("task", "30 2 * * *", succeed, HOUR)])
        await host.advance(hours=6)
        assert [when.isoformat() for when in started(host)] == ["2024-10-27T02:10:00+01:00"]


# --- 2.4: waking -----------------------------------------------------------------------------------------------------


async def test_the_loop_wakes_at_every_minute_boundary_whatever_is_due_next() -> None:
    """SPEC 2.4: at every minute boundary at the latest."""
    polls: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, PollStarted):
            polls.append(event.poll_time.time().isoformat())

    async with SimulatedHost("2024-06-01T12:00:20", "Europe/Berlin") as host:
        await host.scheduler(on_event=note).initialize([("task", "0 0 29 2 *", succeed, HOUR)])
        await host.advance(minutes=4)
        assert polls == ["12:00:20", *minutes("12:01", "12:04")]


@pytest.mark.parametrize("into_the_minute", [0, 0.001, 30, 59.999])
@pytest.mark.parametrize("step", [timedelta(hours=14), timedelta(days=40), timedelta(days=4000)], ids=str)
async def test_a_forward_step_is_noticed_within_a_minute(into_the_minute: float, step: timedelta) -> None:
    """SPEC 2.4: clock steps are noticed within a minute."""
    async with SimulatedHost("2024-12-31T10:00", "America/New_York") as host:
        await host.scheduler().initialize([("task", "0 0 1 1 *", succeed, HOUR)])
        await host.advance(minutes=7, seconds=into_the_minute)
        await host.set_clock(host.now + step)
        stepped_at = host.now
        await host.advance(seconds=60)
        assert len(started(host)) == 1
        assert started(host)[0] - stepped_at <= MINUTE


@pytest.mark.parametrize("into_the_minute", [0, 0.001, 30, 59.999])
async def test_a_backward_step_is_noticed_within_a_minute(into_the_minute: float) -> None:
    """SPEC 2.4: a task whose due minute was near goes back to waiting, and one that had none soon is due on time."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("noon", "0 12 * * *", succeed, HOUR), ("four", "0 4 * * *", succeed, HOUR)])
        await host.advance(minutes=7, seconds=into_the_minute)
        await host.set_clock("2024-06-01T03:59:00.5")
        await host.advance(hours=4)
        assert [text[:5] for text in starts(host, "four")] == ["04:00"]
        assert starts(host, "noon") == ["12:00:00"]


async def test_a_suspend_is_noticed_when_it_ends() -> None:
    """SPEC 2.4: suspend and VM pauses are noticed."""
    async with SimulatedHost("2024-06-01T12:00:30", "UTC") as host:
        await host.scheduler().initialize([("task", "0 18 * * *", succeed, HOUR)])
        await host.jump(hours=8)
        assert starts(host) == ["20:00:30"]


async def test_the_loop_wakes_earlier_for_a_retry() -> None:
    """SPEC 2.4: it wakes earlier for retries."""
    async with SimulatedHost("2024-06-01T12:00:05", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", Script(host, fails(), succeeds()), 7 * SECOND)])
        await host.advance(seconds=30)
        assert starts(host) == ["12:00:05", "12:00:12"]


async def test_the_loop_wakes_earlier_for_a_completion() -> None:
    """SPEC 2.4: ... for completions."""
    async with SimulatedHost("2024-06-01T12:00:05", "UTC") as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, Script(host, succeeds(after=70), succeeds()), HOUR)])
        await host.advance(seconds=80)
        assert starts(host) == ["12:00:05", "12:01:15"]


async def test_the_loop_wakes_earlier_for_a_re_initialisation() -> None:
    """SPEC 2.4: ... and re-initialisation."""
    async with SimulatedHost("2024-06-01T12:00:05", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("old", EVERY_MINUTE, succeed, HOUR)])
        await host.advance(seconds=20)
        await scheduler.initialize([("old", EVERY_MINUTE, succeed, HOUR), ("new", "0 12 * * *", succeed, HOUR)])
        await host.advance()
        assert starts(host, "new") == ["12:00:25"]


# --- 2.5: marks ------------------------------------------------------------------------------------------------------

# A mark of 15:00, and the clock when it is noticed: at most three hours ahead, or more.
AHEAD = [
    ("14:59:59.999999", False),
    ("14:00:00", False),
    ("12:01:00", False),  # 2 h 59 min
    ("12:00:00.000001", False),
    ("12:00:00", False),  # 3 h 00 min
    ("11:59:59.999999", True),
    ("11:59:00", True),  # 3 h 01 min
    ("09:00:00", True),
    ("00:00:00", True),
]


def on_june_1(text: str) -> datetime:
    return datetime.fromisoformat(f"2024-06-01T{text}").replace(tzinfo=UTC)


def minute_of(when: datetime) -> datetime:
    return when.replace(second=0, microsecond=0)


@pytest.mark.parametrize(("noticed_at", "corrected"), AHEAD)
async def test_a_served_minute_is_not_served_again_unless_its_mark_is_more_than_three_hours_ahead(
    path: Path, noticed_at: str, corrected: bool
) -> None:
    """SPEC 2.5: up to 3 hours ahead the task is silent until the clock passes `served_through`."""
    async with SimulatedHost("2024-06-01T14:58", "UTC", path) as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance_to("2024-06-01T15:00")
        assert stored(path)["served_through"] == seconds(on_june_1("15:00"))
        ran = len(started(host))
        await host.set_clock(on_june_1(noticed_at) - MINUTE)  # the loop sleeps for another minute
        await host.advance_to("2024-06-01T15:02")
        expected_from = minute_of(on_june_1(noticed_at)) + MINUTE if corrected else on_june_1("15:01")
        expected = [
            expected_from + index * MINUTE for index in range((on_june_1("15:02") - expected_from) // MINUTE + 1)
        ]
        assert started(host)[ran:] == expected


@pytest.mark.parametrize(("noticed_at", "corrected"), AHEAD)
async def test_a_mark_too_far_ahead_is_lowered_to_this_minute_durably(
    path: Path, noticed_at: str, corrected: bool
) -> None:
    """SPEC 2.5: `served_through` is lowered to this minute, durably, when the step is noticed; otherwise it stays."""
    async with SimulatedHost("2024-06-01T15:00", "UTC", path) as host:
        await host.scheduler().initialize([("task", "0 15 * * *", succeed, HOUR)])
        await host.advance()
        await host.set_clock(on_june_1(noticed_at) - MINUTE)
        await host.advance(minutes=1)
        expected = minute_of(on_june_1(noticed_at)) if corrected else on_june_1("15:00")
        assert stored(path)["served_through"] == seconds(expected)


@pytest.mark.parametrize(("noticed_at", "corrected"), AHEAD)
async def test_initialize_lowers_a_mark_too_far_ahead(path: Path, noticed_at: str, corrected: bool) -> None:
    """SPEC 2.5: an `initialize` lowers it as well, in its own transaction."""
    async with SimulatedHost("2024-06-01T15:00", "UTC", path) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance()
        await scheduler.stop()
        await host.set_clock(on_june_1(noticed_at))
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        this_minute = minute_of(on_june_1(noticed_at))
        assert stored(path)["served_through"] == seconds(this_minute if corrected else on_june_1("15:00"))
        await host.advance_to("2024-06-01T15:01")
        assert started(host)[1] == (this_minute + MINUTE if corrected else on_june_1("15:01"))


async def test_a_mark_is_lowered_once() -> None:
    """SPEC 2.5: once: afterwards the lowered value counts like any other."""
    async with SimulatedHost("2024-06-01T20:00", "UTC") as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance()
        await host.set_clock("2024-06-01T11:59")
        await host.advance_to("2024-06-01T12:02")
        assert starts(host) == ["20:00:00", "12:01:00", "12:02:00"]
        await host.set_clock("2024-06-01T11:30")
        await host.advance_to("2024-06-01T12:04")
        assert starts(host)[3:] == ["12:03:00", "12:04:00"]


async def test_a_lowered_mark_survives_a_crash(path: Path) -> None:
    """SPEC 2.5: durably: if the process dies right afterwards, the next one finds it lowered."""
    async with SimulatedHost("2024-06-01T20:00", "UTC", path) as host:
        await host.scheduler().initialize([("task", "0 * * * *", succeed, HOUR)])
        await host.advance()
        await host.set_clock("2024-06-01T12:09")
        await host.advance(minutes=1)
        await host.crash()
        await host.set_clock("2024-06-01T17:50")  # the old mark would now be less than three hours ahead
        await host.scheduler().initialize([("task", "0 * * * *", succeed, HOUR)])
        await host.advance_to("2024-06-01T18:00")
        assert starts(host) == ["20:00:00", "17:50:00", "18:00:00"]


async def test_small_steps_back_add_up() -> None:
    """SPEC 2.5: what counts is how far `served_through` lies ahead, whatever the number of steps."""
    async with SimulatedHost("2024-06-01T15:00", "UTC") as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance()
        await host.set_clock("2024-06-01T13:10")
        await host.advance(minutes=5)
        assert starts(host) == ["15:00:00"]
        await host.set_clock("2024-06-01T11:30")
        await host.advance(minutes=3)
        assert starts(host) == ["15:00:00", "11:32:00", "11:33:00"]


async def test_a_running_task_has_its_mark_lowered_too(path: Path) -> None:
    """SPEC 2.5: no task falls silent for long, not even one that was running when the clock was corrected."""
    async with SimulatedHost("2024-06-01T20:00", "UTC", path) as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, Script(host, succeeds(after=150), succeeds()), HOUR)])
        await host.advance()
        await host.set_clock("2024-06-01T11:59")
        await host.advance(minutes=1)
        assert stored(path)["run"] is not None
        assert stored(path)["served_through"] == seconds(on_june_1("12:00"))
        await host.advance(minutes=3)
        # The run ends at 12:01:30, when 12:01 is owed.
        assert starts(host) == ["20:00:00", "12:01:30", "12:02:00", "12:03:00"]


@pytest.mark.parametrize(("noticed_at", "corrected"), [case for case in AHEAD if case[0] < "12:01:01"])
@pytest.mark.parametrize("restart", [False, True], ids=["while running", "at initialize"])
async def test_a_known_since_more_than_three_hours_ahead_is_lowered_likewise(
    path: Path, noticed_at: str, corrected: bool, restart: bool
) -> None:
    """SPEC 2.5: and a `knownSince` in the future likewise; so no task falls silent for long."""
    registrations = [("task", "3 * * * *", succeed, HOUR)]
    async with SimulatedHost("2024-06-01T15:00", "UTC", path) as host:
        scheduler = host.scheduler()
        await scheduler.initialize(registrations)
        await host.advance()
        assert stored(path)["known_since"] == microseconds(on_june_1("15:00"))
        if restart:
            await scheduler.stop()
            await host.set_clock(on_june_1(noticed_at))
            await host.scheduler().initialize(registrations)
        else:
            await host.set_clock(on_june_1(noticed_at) - MINUTE)
            await host.advance(minutes=1)
        assert (stored(path)["known_since"] < microseconds(on_june_1("15:00"))) is corrected
        if corrected:
            assert stored(path)["known_since"] // 60_000_000 == microseconds(on_june_1(noticed_at)) // 60_000_000
            await host.advance(hours=1)
            assert len(started(host)) == 1


# --- 2.5: steps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leap", ["step", "suspend"])
@pytest.mark.parametrize("hours", [1, 5, 24 * 400])
async def test_what_a_forward_step_jumped_over_is_served_once(leap: str, hours: int) -> None:
    """SPEC 2.5: what was jumped over is missed and is served once."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR), ("rare", "7 * * * *", succeed, HOUR)])
        await host.advance(seconds=30)
        if leap == "step":
            await host.set_clock(host.now + timedelta(hours=hours))
        else:
            await host.jump(hours=hours)
        await host.advance(minutes=2)
        expected = ["12:00:00", "12:01:00", "12:02:00"] if leap == "step" else ["12:00:00", "12:00:30", "12:01:00"]
        assert [text[3:] for text in starts(host)][:3] == [text[3:] for text in expected]
        assert len(started(host, "rare")) == 1
        assert told(host, TaskRunStarted, "rare")[0].scheduled_time.strftime("%M:%S") == "07:00"


async def test_a_run_that_ends_before_it_started_still_ends(path: Path) -> None:
    """SPEC 2.5: a run that "ends before it started" still ends, and its record is accepted afterwards."""
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        registrations = [
            ("good", "0 12 * * *", Script(host, succeeds(after=90), succeeds()), HOUR),
            ("bad", "0 12 * * *", Script(host, fails(after=90), succeeds()), HOUR),
        ]
        scheduler = host.scheduler()
        await scheduler.initialize(registrations)
        await host.advance(seconds=10)
        await host.set_clock("2024-06-01T11:00")
        await host.advance(seconds=80)
        assert [event.duration for event in told(host, TaskRunCompleted, "good")] == [90_000]
        assert [event.duration for event in told(host, TaskRunFailed, "bad")] == [90_000]
        assert stored(path, "good")["last_success_at"] < stored(path, "good")["last_attempt_at"]
        assert stored(path, "bad")["pending_retry_until"] == microseconds(on_june_1("12:01:20"))
        await scheduler.stop()
        await host.scheduler().initialize(registrations)
        await host.advance(hours=2)
        assert starts(host, "good") == ["12:00:00"]
        assert starts(host, "bad") == ["12:00:00", "12:01:20"]


@pytest.mark.parametrize(
    ("delay", "effective"),
    [(timedelta(0), SECOND), (20 * SECOND, 20 * SECOND), (10 * MINUTE, 10 * MINUTE), (4 * HOUR, 4 * HOUR)],
    ids=str,
)
@pytest.mark.parametrize("back", [MINUTE, HOUR, 5 * HOUR, timedelta(days=400)], ids=str)
async def test_a_step_back_leaves_a_retry_no_further_ahead_than_its_delay(
    path: Path, delay: timedelta, effective: timedelta, back: timedelta
) -> None:
    """SPEC 2.5: a pending retry never lies further ahead than now + its effective delay, durably."""
    async with SimulatedHost("2024-06-01T15:00", "UTC", path) as host:
        # The neighbour's retry wakes the loop right after the step, whatever the delay under test is.
        once = Script(host, fails(), succeeds())
        await host.scheduler().initialize(
            [
                ("task", "0 15 * * *", once, delay),
                ("other", "0 15 * * *", Script(host, fails(), succeeds()), SECOND),
            ]
        )
        await host.advance(seconds=0.25)
        await host.set_clock(host.now - back)
        await host.advance(seconds=0.75)
        noticed_at = host.now
        pending = stored(path)["pending_retry_until"]
        assert pending == microseconds(noticed_at + effective)
        await host.advance_to(noticed_at + effective)
        assert started(host)[1:] == [noticed_at + effective]


@pytest.mark.parametrize("back", [SECOND, MINUTE, 5 * HOUR, timedelta(days=400)], ids=str)
async def test_initialize_leaves_a_retry_no_further_ahead_than_its_delay(path: Path, back: timedelta) -> None:
    """SPEC 2.5: an `initialize` bounds it as well, in its own transaction."""
    async with SimulatedHost("2024-06-01T15:00", "UTC", path) as host:
        registrations = [("task", "0 15 * * *", Script(host, fails(), succeeds()), 10 * MINUTE)]
        scheduler = host.scheduler()
        await scheduler.initialize(registrations)
        await host.advance()
        await scheduler.stop()
        await host.set_clock(host.now - back)
        now = host.now
        await host.scheduler().initialize(registrations)
        assert stored(path)["pending_retry_until"] == microseconds(now + 10 * MINUTE)
        await host.advance(minutes=10)
        assert started(host)[1:] == [now + 10 * MINUTE]


async def test_a_retry_that_a_running_task_must_not_forget_is_bounded_too(path: Path) -> None:
    """SPEC 2.5, 3.7: a run took the retry's place, the clock was set back, the process died: the retry is near."""
    async with SimulatedHost("2024-06-01T14:30", "UTC", path) as host:
        registrations = [("task", "30,45 14 * * *", Script(host, fails(), succeeds(after=600)), HOUR)]
        await host.scheduler(interrupted="wait").initialize(registrations)
        await host.advance_to("2024-06-01T14:45")  # the second run is under way, and the retry of 15:30 is kept
        await host.set_clock("2024-06-01T09:44")
        await host.advance(minutes=1)
        assert stored(path)["pending_retry_until"] == microseconds(on_june_1("10:45"))
        await host.crash()
        await host.scheduler(interrupted="wait").initialize(registrations)
        await host.advance_to("2024-06-01T10:50")
        assert starts(host) == ["14:30:00", "14:45:00", "10:45:00"]


async def test_a_retry_is_bounded_when_the_clock_goes_back_before_its_failure_is_durable(path: Path) -> None:
    """SPEC 2.5, 4.6: the end that could not be stored carries an instant from before the step."""
    async with SimulatedHost("2024-06-01T15:00", "UTC", path) as host:
        work = Script(host, fails(after=5), succeeds())
        await host.scheduler().initialize([("task", "0 15 * * *", work, MINUTE)])
        await host.advance(seconds=2)
        with full_disk():
            await host.advance(seconds=8)
            await host.set_clock("2024-06-01T14:00")
            await host.advance(minutes=5)
        assert told(host, StoreFault)
        while not told(host, StoreRecovered):
            await host.advance(seconds=1)
        recovered_at = host.now
        assert stored(path)["pending_retry_until"] <= microseconds(recovered_at + MINUTE)
        await host.advance(minutes=2)
        assert len(started(host)) == 2
        assert started(host)[1] <= recovered_at + MINUTE


# --- 2.5: small steps, at the moments that matter --------------------------------------------------------------------

SMALL = [timedelta(milliseconds=1), timedelta(milliseconds=500), SECOND, 5 * SECOND, 59 * SECOND]


@pytest.mark.parametrize("back", SMALL, ids=str)
@pytest.mark.parametrize("after", [timedelta(0), timedelta(milliseconds=1), timedelta(milliseconds=700)], ids=str)
async def test_a_small_step_back_over_a_minute_boundary_serves_no_minute_twice(
    back: timedelta, after: timedelta
) -> None:
    """SPEC 2.5: after a small step back a task is silent until the clock passes `served_through`."""
    async with SimulatedHost("2024-06-01T11:58", "UTC") as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance_to(on_june_1("12:00") + after)
        await host.set_clock(host.now - back)
        await host.advance_to("2024-06-01T12:03")
        assert [text[:5] for text in starts(host)] == ["11:58", "11:59", "12:00", "12:01", "12:02", "12:03"]
        assert all(when - minute_of(when) <= max(back, after) for when in started(host))


@pytest.mark.parametrize("back", SMALL, ids=str)
async def test_a_small_step_back_before_a_minute_boundary_loses_no_minute(back: timedelta) -> None:
    """SPEC 2.5: the minute comes when the clock says so."""
    async with SimulatedHost("2024-06-01T11:58", "UTC") as host:
        await host.scheduler().initialize([("task", EVERY_MINUTE, succeed, HOUR)])
        await host.advance_to("2024-06-01T11:59:59.9995")
        await host.set_clock(host.now - back)
        await host.advance_to("2024-06-01T12:01")
        assert starts(host) == ["11:58:00", "11:59:00", "12:00:00", "12:01:00"]


@pytest.mark.parametrize("back", SMALL, ids=str)
@pytest.mark.parametrize("before", [timedelta(milliseconds=1), timedelta(milliseconds=300), 3 * SECOND], ids=str)
async def test_a_small_step_back_before_a_retry_moves_it_by_no_more_than_the_step(
    back: timedelta, before: timedelta
) -> None:
    """SPEC 2.1, 2.5: the retry starts at its instant, or at now + delay where that is earlier."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", Script(host, fails(), succeeds()), 30 * SECOND)])
        await host.advance_to(on_june_1("12:00:30") - before)
        await host.set_clock(host.now - back)
        stepped_to = host.now
        await host.advance(minutes=2)
        assert len(started(host)) == 2
        # A scheduler that sleeps until the retry notices the step when that sleep is over, not earlier.
        assert started(host)[1] <= max(on_june_1("12:00:30"), stepped_to + before)
        assert started(host)[1] >= min(on_june_1("12:00:30"), stepped_to + before)


@pytest.mark.parametrize("back", [timedelta(milliseconds=1), SECOND, 5 * SECOND, 20 * SECOND], ids=str)
async def test_what_waits_for_a_slot_survives_a_small_step_back(back: timedelta) -> None:
    """SPEC 2.5, 3.10: owed at 12:01, waiting, stepped back before 12:01, and free again: it starts at 12:01, once."""
    async with SimulatedHost("2024-06-01T12:00:50", "UTC") as host:
        await host.scheduler(max_concurrency=1).initialize(
            [("long", "0 12 * * *", Script(host, succeeds(after=10.5)), HOUR), ("task", "1 12 * * *", succeed, HOUR)]
        )
        await host.advance_to("2024-06-01T12:01:00.25")
        assert starts(host, "task") == []
        await host.set_clock(host.now - back)
        await host.advance(minutes=3)
        assert len(started(host, "task")) == 1
        assert on_june_1("12:01:00") <= started(host, "task")[0] <= on_june_1("12:01:00.5")


@pytest.mark.parametrize("back", [timedelta(milliseconds=1), SECOND, 5 * SECOND, 20 * SECOND], ids=str)
async def test_a_ripe_retry_that_waits_for_a_slot_survives_a_small_step_back(back: timedelta) -> None:
    """SPEC 2.5, 3.10: ripe at 12:00:30, waiting, stepped back before that, and free again: it starts, once."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations = [
            ("task", "0 12 * * *", Script(host, fails(), succeeds()), 30 * SECOND),
            ("long", "0 12 * * *", Script(host, succeeds(after=31)), HOUR),
        ]
        await host.scheduler(max_concurrency=1).initialize(registrations)
        await host.advance_to("2024-06-01T12:00:30.25")
        assert starts(host, "task") == ["12:00:00"]
        await host.set_clock(host.now - back)
        await host.advance(minutes=3)
        assert len(started(host, "task")) == 2
        assert on_june_1("12:00:30") <= started(host, "task")[1] <= on_june_1("12:00:31")


async def test_an_interrupted_run_that_waits_for_a_slot_does_not_wait_longer_after_a_step_back() -> None:
    """SPEC 2.5, 3.7: it is owed at once, and a clock that goes back does not take that away."""
    async with SimulatedHost("2024-06-01T12:29", "UTC") as host:
        registrations = [
            ("first", "29 12 * * *", Script(host, succeeds(after=100), succeeds(after=30), succeeds()), HOUR),
            ("second", "30 12 * * *", Script(host, succeeds(after=100), succeeds()), HOUR),
        ]
        await host.scheduler().initialize(registrations)
        await host.advance_to("2024-06-01T12:30:10")
        await host.crash()
        await host.scheduler(max_concurrency=1).initialize(registrations)
        await host.advance(seconds=10)
        assert len(started(host, "first")) == 2
        assert len(started(host, "second")) == 1
        await host.set_clock("2024-06-01T12:10:00")
        await host.advance(seconds=60)
        assert len(started(host, "second")) == 2


@pytest.mark.parametrize("seed", range(30))
async def test_under_many_small_steps_every_minute_is_served_once(seed: int) -> None:
    """SPEC 2.5: no minute is served twice and none is lost, however often the clock steps within three hours."""
    dice = random.Random(seed)
    async with SimulatedHost("2024-10-27T01:40", "Europe/Berlin") as host:
        scheduler = host.scheduler(max_concurrency=2)
        works = [Script(host, succeeds(after=dice.choice([0, 0.5, 20]))) for _ in range(3)]
        await scheduler.initialize([(f"task {index}", EVERY_MINUTE, work, HOUR) for index, work in enumerate(works)])
        highest = host.now
        for _ in range(40):
            await host.advance(seconds=dice.choice([0.001, 0.5, 1, 29, 59.999, 60, 61]))
            highest = max(utc([highest, host.now]))
            await host.set_clock(host.now.astimezone(UTC) - dice.choice([0, 0.001, 0.5, 1, 15, 61]) * SECOND)
        await host.advance_to(highest + 2 * MINUTE)
        for index in range(3):
            served = [event.scheduled_time for event in told(host, TaskRunStarted, f"task {index}")]
            assert distinct(utc(served))
            assert distinct(minute_of(when) for when in utc(started(host, f"task {index}")))
            assert utc(served)[-1] >= minute_of(highest)


class TremblingClock(ManualClock):
    """A clock that goes back by a millisecond, once, when the test says so."""

    trembled = False

    def tremble(self) -> None:
        if not self.trembled:
            self.trembled = True
            self._now -= 1000


async def test_a_clock_that_trembles_while_the_loop_looks_delays_nothing(path: Path) -> None:
    """SPEC 2.5, 2.4: back by a millisecond, but still in the due minute: what is due starts without another minute."""
    clock, ear = TremblingClock("2024-06-01T12:00:30+00:00"), Ear()

    def tremble(event: Event) -> None:
        ear(event)
        if isinstance(event, PollStarted) and event.poll_time.minute == 1:
            clock.tremble()

    scheduler = duly.Scheduler(path, clock=clock, on_event=tremble)
    await scheduler.initialize([("task", "1 12 * * *", succeed, HOUR)])
    await ear.hear(PollCompleted)
    clock.advance(30.5)
    (begun,) = await ear.hear(TaskRunStarted)
    assert clock.trembled
    assert on_june_1("12:01:00") <= begun.actual_time < on_june_1("12:01:01")
    await scheduler.stop()


# --- ClockJumped -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [-400 * HOUR, -HOUR, -5 * SECOND, 5 * SECOND, HOUR, 400 * HOUR], ids=str)
async def test_a_step_is_told_once(step: timedelta) -> None:
    """SPEC 2.4: clock steps are noticed within a minute, and reported with both times and the difference."""
    async with SimulatedHost("2024-06-01T12:00:20", "Europe/Berlin") as host:
        await host.scheduler().initialize([("task", "0 0 29 2 *", succeed, HOUR)])
        await host.advance(minutes=2)
        before = host.now
        await host.set_clock(host.now + step)
        await host.advance(minutes=2)
        (jumped,) = told(host, ClockJumped)
        assert jumped.fields["jumpMs"] == step // timedelta(milliseconds=1)
        assert before <= jumped.old_time <= before + MINUTE
        assert jumped.new_time - jumped.old_time == step


async def test_time_that_merely_passes_is_no_step() -> None:
    """SPEC 2.4: neither a change of the zone's offset nor a freeze moves the clock against passing time."""
    async with SimulatedHost("2024-03-31T00:00", "Europe/Berlin") as host:
        await host.scheduler().initialize([("task", "0 * * * *", Script(host, succeeds(after=70)), HOUR)])
        await host.advance(hours=5)
        await host.jump(hours=3)
        await host.advance(hours=1)
        assert told(host, ClockJumped) == []


def utc(moments: list[datetime]) -> list[datetime]:
    """Moments in UTC: comparable even where a zone repeats itself."""
    return [when.astimezone(UTC) for when in moments]
