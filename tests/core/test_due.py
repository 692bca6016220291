"""Due minutes between two others, found a quarter of a day at a time, and one by one."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

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
    ("America/St_Johns", "2006-10-30T12:00:00"),  # the last minute before midnight, and one after it
    ("Pacific/Apia", "2012-01-01T12:00:00"),  # a whole day is skipped
    ("Africa/Monrovia", "1972-01-08T12:00:00"),  # minutes begin between those of UTC
)


def one_by_one(expression: str, after: Minute, before: Minute, zone: ZoneInfo) -> list[Minute]:
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


def test_the_minutes_end_with_the_calendar() -> None:
    zone, last = ZoneInfo("Europe/Berlin"), LAST_INSTANT // MICROSECONDS
    after, before = Minute(last - 7200), Minute(last + 7200)
    found = due_between(parse_cron("* * * * *"), after, before, zone)
    assert found == one_by_one("* * * * *", after, before, zone)
    assert found
