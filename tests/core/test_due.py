"""Due minutes between two others, found a day at a time, and one by one."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.core.cron import parse_cron
from duly.core.due import due_between, next_due
from duly.core.moments import LAST_INSTANT, MICROSECONDS, Minute, instant_of
from duly.errors import CronCalculationError

EXPRESSIONS = ("* * * * *", "0,30 0-3,23 * * *", "15 2 * * *", "0 0 * * *", "59 23 * * 1-5", "5,55 5,11 24-26 * 0")
DAYS = (
    ("UTC", "2026-10-26T16:20:35"),
    ("Europe/Berlin", "2026-10-26T16:20:35"),
    ("Europe/Berlin", "2026-10-25T02:40:00"),
    ("Europe/Berlin", "2026-03-30T00:00:00"),
    ("Australia/Lord_Howe", "2026-04-06T12:00:00"),
    ("Australia/Lord_Howe", "2026-10-05T12:00:00"),
    ("America/Sao_Paulo", "2018-11-05T01:30:00"),  # midnight is skipped
    ("America/Sao_Paulo", "2018-02-19T01:30:00"),  # the hour before midnight is repeated
    ("America/St_Johns", "2006-10-28T23:30:00"),  # before it is shown again, the next day begins
    ("America/St_Johns", "2006-10-30T12:00:00"),  # the last minute before midnight, and one after it
    ("Pacific/Apia", "2012-01-01T12:00:00"),  # a whole day is skipped
    ("Pacific/Kwajalein", "1969-10-02T12:00:00"),  # all but an hour of a day is repeated
    ("Africa/Monrovia", "1972-01-08T12:00:00"),  # minutes begin between those of UTC
)


def one_by_one(expression: str, after: Minute, before: Minute, zone: tzinfo) -> list[Minute]:
    found, minute = [], after
    try:
        while (minute := next_due(parse_cron(expression), minute, zone)) < before:
            found.append(minute)
    except CronCalculationError:
        pass
    return found


@pytest.mark.parametrize(("zone_name", "until"), DAYS)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_minutes_between_two_others_are_those_found_one_by_one(expression: str, zone_name: str, until: str) -> None:
    """SPEC 2.2, 2.3: skipped minutes are not among them, repeated ones once."""
    zone = ZoneInfo(zone_name)
    last = datetime.fromisoformat(until).replace(tzinfo=zone)
    before = Minute(instant_of(last) // MICROSECONDS)
    for days in (0.02, 0.7, 4):
        after = Minute(instant_of(last - timedelta(days=days)) // MICROSECONDS)
        assert due_between(parse_cron(expression), after, before, zone) == one_by_one(expression, after, before, zone)


FIELDS = (
    st.sampled_from(["*", "0", "0,30", "59", "1-58", "15,44,45"]),
    st.sampled_from(["*", "0", "23", "0-3", "1,2,3", "22-23"]),
    st.sampled_from(["*", "1-31", "1", "15,28-31", "24-26"]),
    st.sampled_from(["*", "2", "3,10", "1-6", "10-12"]),
    st.sampled_from(["*", "0", "1-5", "0,6"]),
)


@given(
    st.tuples(*FIELDS).map(" ".join),
    st.sampled_from([(name, datetime.fromisoformat(text)) for name, text in DAYS]),
    st.floats(-6, 6),
    st.floats(0, 5),
)
def test_any_expression_has_the_minutes_that_are_found_one_by_one_around_a_change(
    expression: str, change: tuple[str, datetime], from_it: float, days: float
) -> None:
    """SPEC 2.2, 2.3, 6.2: both rules for days, months that begin or end meanwhile, ends anywhere within a minute."""
    zone = ZoneInfo(change[0])
    first = change[1].replace(tzinfo=zone) + timedelta(days=from_it)
    after = Minute(instant_of(first) // MICROSECONDS)
    before = Minute(after + round(86_400 * days))
    assert due_between(parse_cron(expression), after, before, zone) == one_by_one(expression, after, before, zone)


@pytest.mark.parametrize("expression", ["* * * * *", "0 12 * * 1-5"])
def test_an_offset_that_no_clock_has_moves_the_minutes_as_it_moves_the_clock(expression: str) -> None:
    zone = timezone(timedelta(hours=5, seconds=7))
    after, before = Minute(1_800_000_000), Minute(1_800_250_000)
    assert due_between(parse_cron(expression), after, before, zone) == one_by_one(expression, after, before, zone)


def test_the_minutes_begin_with_the_calendar() -> None:
    """Clocks east of UTC show the year 1 before UTC does: such minutes have no instant."""
    first = datetime(1, 1, 1, 12, tzinfo=UTC)
    after, before = (Minute(instant_of(first + timedelta(hours=hours)) // MICROSECONDS) for hours in (0, 30))
    for name in ("Asia/Tokyo", "America/New_York"):
        found = due_between(parse_cron("0,30 * * * *"), after, before, ZoneInfo(name))
        assert found == one_by_one("0,30 * * * *", after, before, ZoneInfo(name))
        assert found
    outside = Minute(after - 86_400)
    assert due_between(parse_cron("* * * * *"), outside, before, ZoneInfo("Asia/Tokyo")) == []


def test_the_minutes_end_with_the_calendar() -> None:
    zone, last = ZoneInfo("Europe/Berlin"), LAST_INSTANT // MICROSECONDS
    after, before = Minute(last - 7200), Minute(last + 7200)
    found = due_between(parse_cron("* * * * *"), after, before, zone)
    assert found == one_by_one("* * * * *", after, before, zone)
    assert found
