"""The checker's own calendar: against the tables of SPEC 2.2 and 2.3, and against the scheduler's arithmetic."""

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest

from duly import parse_cron
from duly.core.due import latest_due, next_due
from duly.core.moments import MICROSECONDS, Instant, Minute, instant_of, minute_of
from duly.formal.calendar import MINUTE, NEVER, Schedule, Zone, parse, zone_named
from tests.counts import share

ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu",
    "Pacific/Apia", "Africa/Monrovia", "Africa/Casablanca", "America/St_Johns", "Antarctica/Troll", "Asia/Pyongyang",
]  # fmt: skip
EXPRESSIONS = [
    "* * * * *", "0 * * * *", "0,15,30,45 * * * *", "30 2 * * *", "0 0 * * *", "59 23 31 12 *",
    "0 0 29 2 *", "0 12 1-7 * 1", "5 4 * * 0", "0 0 1 1 *", "30 1 * 3,10,11 *", "0 0 31 4 1",
]  # fmt: skip


def at(text: str) -> Instant:
    return instant_of(datetime.fromisoformat(text))


@pytest.mark.parametrize(
    ("cron", "zone", "moment", "following"),
    [
        ("0 12 * * *", "UTC", "2025-01-01T12:00:00+00:00", "2025-01-02T12:00:00+00:00"),
        ("* * * * *", "UTC", "2025-01-01T11:59:59.999999+00:00", "2025-01-01T12:00:00+00:00"),
        # SPEC 2.2: 02:30 does not exist on 30 March 2025 in Berlin
        ("30 2 * * *", "Europe/Berlin", "2025-03-29T12:00:00+01:00", "2025-03-31T02:30:00+02:00"),
        # SPEC 2.3: 02:30 exists twice on 26 October 2025, and is due the first time only
        ("30 2 * * *", "Europe/Berlin", "2025-10-26T01:00:00+02:00", "2025-10-26T02:30:00+02:00"),
        ("30 2 * * *", "Europe/Berlin", "2025-10-26T02:30:00+02:00", "2025-10-27T02:30:00+01:00"),
        ("* * * * *", "Europe/Berlin", "2025-10-26T02:59:00+02:00", "2025-10-26T03:00:00+01:00"),
        # the local day is another one than that of UTC
        ("0 21 * * *", "America/New_York", "2025-01-01T20:00:00-05:00", "2025-01-01T21:00:00-05:00"),
        ("0 1 * * *", "Asia/Tokyo", "2025-01-01T00:30:00+09:00", "2025-01-01T01:00:00+09:00"),
        # a day without a midnight: 4 November 2018 began at one in São Paulo
        ("0 1 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00", "2018-11-04T01:00:00-02:00"),
        ("0 23 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00", "2018-11-03T23:00:00-03:00"),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00", "2018-11-05T00:00:00-02:00"),
        # SPEC 6.2: both day fields restricted: either
        ("0 0 13 * 5", "UTC", "2025-06-06T00:00:00+00:00", "2025-06-13T00:00:00+00:00"),
        ("0 0 13 * 5", "UTC", "2025-06-13T00:00:00+00:00", "2025-06-20T00:00:00+00:00"),
        ("0 0 29 2 *", "UTC", "2025-01-01T00:00:00+00:00", "2028-02-29T00:00:00+00:00"),
    ],
)
def test_the_next_occurrence(cron: str, zone: str, moment: str, following: str) -> None:
    assert Schedule(cron, Zone(zone)).after(at(moment)) == at(following)


def test_the_calendar_ends() -> None:
    """SPEC 6.3: beyond the year 9999 there is nothing."""
    assert Schedule("0 0 1 1 *", Zone("UTC")).after(at("9999-01-01T00:00:00+00:00")) == NEVER


@pytest.mark.parametrize("zone", ZONES)
def test_it_agrees_with_the_scheduler_around_every_kind_of_transition(zone: str) -> None:
    """Two implementations, one calendar (SPEC 7.6); random moments, and moments near changes of the offset."""
    chance = random.Random(zone)
    host = ZoneInfo(zone)
    moments = [chance.randrange(-(2**31), 2**32) for _ in range(40)]
    for year in chance.sample(range(1965, 2037), 4):
        begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
        hours = range(begin, begin + 366 * 86_400, 3_600)
        offsets = [datetime.fromtimestamp(second, host).utcoffset() for second in hours]
        changes = [hours[n] for n in range(1, len(hours)) if offsets[n] != offsets[n - 1]]
        moments += [change + chance.randrange(-10_000, 10_000) for change in changes for _ in range(6)]
    for text in EXPRESSIONS:
        expression, schedule = parse_cron(text), Schedule(text, Zone(zone))
        for second in chance.sample(moments, min(len(moments), 25)):
            instant = Instant(second * MICROSECONDS + chance.randrange(MICROSECONDS))
            latest = latest_due(expression, Minute(second), host)
            assert schedule.latest(instant) == (None if latest is None else latest * MICROSECONDS), (text, second)
            following = next_due(expression, Minute(second), host)
            assert schedule.after(instant) == following * MICROSECONDS, (text, second)


def test_it_agrees_in_every_zone() -> None:
    chance = random.Random(7)
    for zone in share(sorted(available_timezones()), 150):
        host = ZoneInfo(zone)
        schedule, expression = Schedule("0,30 * * * *", Zone(zone)), parse_cron("0,30 * * * *")
        for _ in range(60):
            second = chance.randrange(0, 2**31)
            following = next_due(expression, Minute(second), host)
            assert schedule.after(Instant(second * MICROSECONDS)) == following * MICROSECONDS, (zone, second)


@pytest.mark.parametrize("zone", ZONES)
def test_minutes_are_those_of_the_zone(zone: str) -> None:
    """Decision 1: some zones had offsets that are not whole minutes."""
    chance = random.Random(zone)
    checked = Zone(zone)
    for _ in range(300):
        instant = Instant(chance.randrange(-(2**31), 2**31) * MICROSECONDS + chance.randrange(MICROSECONDS))
        assert checked.minute(instant) == minute_of(instant, ZoneInfo(zone)) * MICROSECONDS


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Africa/Monrovia", "1972-01-07T00:44:30+00:00"),  # by 44 min 30 s, in the middle of a minute and of an hour
        ("Europe/Berlin", "2025-03-30T01:00:00+00:00"),
        ("Australia/Lord_Howe", "2025-04-05T15:00:00+00:00"),  # by half an hour
        ("Asia/Kathmandu", "1985-12-31T18:30:00+00:00"),  # by a quarter
        ("Africa/Monrovia", "1970-01-01T00:00:00+00:00"),  # no change: the hour before and after the epoch
    ],
)
def test_minutes_are_right_on_both_sides_of_a_change(zone: str, change: str) -> None:
    """A trace walks through time, so what is remembered of an hour must not outlive it, nor a change within it."""
    moment = at(change)
    walked = Zone(zone)
    begin = moment - moment % (20 * MICROSECONDS) - 7_200 * MICROSECONDS
    steps = {*range(begin, begin + 14_400 * MICROSECONDS, 20 * MICROSECONDS), moment - 1, moment, moment + 1}
    for instant in sorted(steps):
        expected = minute_of(Instant(instant), ZoneInfo(zone)) * MICROSECONDS
        assert walked.minute(Instant(instant)) == expected, instant
    assert Zone(zone).minute(Instant(moment - 1)) == minute_of(Instant(moment - 1), ZoneInfo(zone)) * MICROSECONDS


def test_fixed_offsets_are_zones_too() -> None:
    assert Schedule("0 12 * * *", Zone("UTC+05:30")).after(at("2025-01-01T00:00:00+00:00")) == at(
        "2025-01-01T12:00:00+05:30"
    )
    assert zone_named("UTC-03:30").utcoffset(None) == datetime.fromisoformat("2025-01-01T00:00:00-03:30").utcoffset()


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../etc/passwd", "Europe", "UTC+2", "local", "UTC+25:00"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        zone_named(name)


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "5-1 * * * *", "*/5 * * * *", "a * * * *", "* * 0 * *"])
def test_a_text_that_is_not_an_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_leading_zeros_are_fine() -> None:
    """SPEC 6.1."""
    assert parse("000005 * * * *")[0] == [5]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * 90, f"cron expression '{'x' * 80}' does not have 5 fields"),
        ("* * * * * *", "cron expression '* * * * * *' does not have 5 fields"),
        (f"{'1,' * 30}x * * * *", f"cron field '{'1,' * 20}' is neither '*' nor numbers and ranges"),
        (f"{'1,' * 30}60 * * * *", f"cron field '{'1,' * 20}' leaves the range 0-59"),
        ("0 24 * * *", "cron field '24' leaves the range 0-23"),
        ("0 0 32 * *", "cron field '32' leaves the range 1-31"),
        ("0 0 * 0 *", "cron field '0' leaves the range 1-12"),
        ("0 0 * 13 *", "cron field '13' leaves the range 1-12"),
        ("0 0 * * 7", "cron field '7' leaves the range 0-6"),
        ("1000000 0 * * *", "cron field '1000000' leaves the range 0-59"),
        ("0 0 30 2 *", "cron expression '0 0 30 2 *' never matches"),
        ("0 0 31 4,6,9,11 *", "cron expression '0 0 31 4,6,9,11 *' never matches"),
        (f"{'0,' * 60}0 0 31 4 *", f"cron expression '{'0,' * 40}' never matches"),
    ],
)
def test_a_refusal_of_an_expression_has_bounded_length(text: str, why: str) -> None:
    """SPEC 6.1, 6.3: however long a text is, the refusal is short."""
    with pytest.raises(ValueError) as refused:
        parse(text)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    "text",
    [
        "0 0 1 1 0", "59 23 31 12 6", "5-5 * * * *", "0-59 0-23 1-31 1-12 0-6", "0 0 29 2 *", "0 0 1,31 2 *",
        "0 0 30 2,4 *", "0 0 31 4,5 *", "0 0 31 4 1", "\t0 \t0 * *  * ",
    ],
)  # fmt: skip
def test_the_edges_of_every_field_are_fine(text: str) -> None:
    """SPEC 6.1; and an expression matches if any of its days exists in any of its months."""
    assert len(parse(text)) == 6


def test_an_unknown_zone_is_named_in_bounded_words() -> None:
    with pytest.raises(ValueError) as refused:
        zone_named("Mars/" + "x" * 90)
    assert str(refused.value) == f"unknown time zone 'Mars/{'x' * 75}'"


def test_fixed_offsets_have_seconds() -> None:
    """As the platform names them: some zones were off by seconds."""
    for name in ("UTC-00:44:30", "UTC+00:19:32"):
        expected = datetime.fromisoformat(f"1970-01-01T00:00:00{name[3:]}").utcoffset()
        assert zone_named(name).utcoffset(None) == expected


@pytest.mark.parametrize("offset", ["+00:00", "+14:00", "-12:00", "+23:59", "-23:59"])
def test_the_calendar_has_a_first_and_a_last_day(offset: str) -> None:
    """One day from the ends of the year 1 and of the year 9999, so that local time has room in every zone."""
    schedule = Schedule("* * * * *", Zone(f"UTC{offset}"))
    first, last = at(f"0001-01-02T00:00:00{offset}"), at(f"9999-12-30T23:59:00{offset}")
    assert schedule.latest(Instant(first - 1)) is None
    assert schedule.latest(first) == schedule.after(Instant(first - 1)) == first
    assert schedule.after(first) == first + MINUTE
    assert schedule.latest(last) == schedule.after(Instant(last - 1)) == last
    assert schedule.latest(Instant(last + MINUTE)) == last
    assert schedule.after(last) == NEVER


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Niue"])
def test_no_moment_of_the_calendar_is_too_early_or_too_late_to_be_asked_about(zone: str) -> None:
    """A trace may carry any instant; there is no local time beyond the ends of the calendar, and none is needed."""
    schedule = Schedule("0 0 * * *", Zone(zone))
    for moment in ("0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"):
        assert abs(schedule.zone.minute(at(moment)) - at(moment)) < 60 * MICROSECONDS
        schedule.after(at(moment))
        schedule.latest(at(moment))


@pytest.mark.parametrize(
    ("cron", "moment", "following", "latest"),
    [
        ("0 0 1 1 *", "2025-06-15T00:00:00+00:00", "2026-01-01T00:00:00+00:00", "2025-01-01T00:00:00+00:00"),
        ("0 0 31 1,3 *", "2025-02-01T00:00:00+00:00", "2025-03-31T00:00:00+00:00", "2025-01-31T00:00:00+00:00"),
        ("0 0 1 3 *", "2025-02-28T00:00:00+00:00", "2025-03-01T00:00:00+00:00", "2024-03-01T00:00:00+00:00"),
        ("0 0 * 12 *", "2025-11-30T00:00:00+00:00", "2025-12-01T00:00:00+00:00", "2024-12-31T00:00:00+00:00"),
    ],
)
def test_months_that_do_not_match_are_leapt_over(cron: str, moment: str, following: str, latest: str) -> None:
    """To the first day of the next month, or the last day of the month before."""
    schedule = Schedule(cron, Zone("UTC"))
    assert schedule.after(at(moment)) == at(following)
    assert schedule.latest(at(moment)) == at(latest)
