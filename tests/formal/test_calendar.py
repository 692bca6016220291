"""The checker's own calendar: against the tables of SPEC 2.2 and 2.3, and against the scheduler's arithmetic."""

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest

from duly import parse_cron
from duly.core import occurrences
from duly.core.moments import MICROSECONDS, Instant, Minute, instant_of, minute_of
from duly.formal.calendar import NEVER, Schedule, Zone, parse, zone_named

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
            latest = occurrences.latest_until(expression, Minute(second), host)
            assert schedule.latest(instant) == (None if latest is None else latest * MICROSECONDS), (text, second)
            following = occurrences.next_after(expression, Minute(second), host)
            assert schedule.after(instant) == following * MICROSECONDS, (text, second)
            assert schedule.any_within(instant, Instant(following * MICROSECONDS))
            assert not schedule.any_within(instant, Instant(following * MICROSECONDS - 1))


@pytest.mark.slow
def test_it_agrees_in_every_zone() -> None:
    chance = random.Random(7)
    for zone in sorted(available_timezones()):
        host = ZoneInfo(zone)
        schedule, expression = Schedule("0,30 * * * *", Zone(zone)), parse_cron("0,30 * * * *")
        for _ in range(60):
            second = chance.randrange(0, 2**31)
            following = occurrences.next_after(expression, Minute(second), host)
            assert schedule.after(Instant(second * MICROSECONDS)) == following * MICROSECONDS, (zone, second)


@pytest.mark.parametrize("zone", ZONES)
def test_minutes_are_those_of_the_zone(zone: str) -> None:
    """Decision 1: some zones had offsets that are no whole minute."""
    chance = random.Random(zone)
    checked = Zone(zone)
    for _ in range(300):
        instant = Instant(chance.randrange(-(2**31), 2**31) * MICROSECONDS + chance.randrange(MICROSECONDS))
        assert checked.minute(instant) == minute_of(instant, ZoneInfo(zone)) * MICROSECONDS


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
def test_an_expression_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_leading_zeros_are_fine() -> None:
    """SPEC 6.1."""
    assert parse("000005 * * * *")[0] == [5]
