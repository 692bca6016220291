"""Where a zone changes its offset, and the minutes of an expression that it skips or repeats."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly import parse_cron
from duly.core.moments import MICROSECONDS, Instant, as_datetime, instant_of, minute_of
from duly.insight.zone_changes import LocalTime, leaps, leaps_at, zone_change_around, zone_changes

BERLIN = ZoneInfo("Europe/Berlin")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "changes"),
    [
        ("Europe/Berlin", [("2024-03-31T01:00", "02:00", "03:00"), ("2024-10-27T01:00", "03:00", "02:00")]),
        ("Australia/Lord_Howe", [("2024-04-06T15:00", "02:00", "01:30"), ("2024-10-05T15:30", "02:00", "02:30")]),
        ("Asia/Tokyo", []),
    ],
)
def test_every_change_of_a_year_is_found_to_the_second(zone: str, changes: list[tuple[str, str, str]]) -> None:
    found = list(zone_changes(ZoneInfo(zone), utc("2024-01-01T00:00"), utc("2025-01-01T00:00")))
    shown = [(each.at, f"{each.clock_before:%H:%M}", f"{each.clock_after:%H:%M}") for each in found]
    assert shown == [(utc(at), before, after) for at, before, after in changes]
    assert [each.skips for each in found] == [after > before for _, before, after in changes]


def test_a_change_counts_from_after_the_first_moment_up_to_the_last() -> None:
    change = utc("2024-03-31T01:00")
    assert list(zone_changes(BERLIN, change, utc("2024-04-01T00:00"))) == []
    assert [each.at for each in zone_changes(BERLIN, utc("2024-03-31T00:59"), change)] == [change]


@pytest.mark.parametrize(
    ("wall", "clocks"),
    [
        ("2024-03-31T01:59", None),
        ("2024-03-31T02:00", ("02:00", "03:00")),
        ("2024-03-31T02:59", ("02:00", "03:00")),
        ("2024-03-31T03:00", None),
        ("2024-10-27T01:59", None),
        ("2024-10-27T02:00", ("03:00", "02:00")),
        ("2024-10-27T03:00", None),
        ("9999-12-31T23:59", None),
    ],
)
def test_a_wall_clock_time_that_does_not_exist_or_exists_twice(wall: str, clocks: tuple[str, str] | None) -> None:
    found = zone_change_around(BERLIN, datetime.fromisoformat(wall))
    shown = None if found is None else (f"{found.clock_before:%H:%M}", f"{found.clock_after:%H:%M}")
    assert shown == clocks


def test_the_leaps_of_an_expression_have_the_minutes_that_it_names() -> None:
    """SPEC 2.2, 2.3: minutes that are skipped, and minutes that are repeated."""
    found = list(leaps(parse_cron("15,45 2 * * *"), BERLIN, utc("2024-01-01T00:00"), utc("2025-01-01T00:00")))
    assert [(each.kind, [f"{minute:%m-%d %H:%M}" for minute in each.minutes]) for each in found] == [
        ("skipped", ["03-31 02:15", "03-31 02:45"]),
        ("repeated", ["10-27 02:15", "10-27 02:45"]),
    ]
    assert list(leaps(parse_cron("0 12 * * *"), BERLIN, utc("2024-01-01T00:00"), utc("2025-01-01T00:00"))) == []


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "UTC"]


@pytest.mark.parametrize("name", ZONES)
def test_the_leaps_at_the_changes_of_a_zone_are_those_that_an_expression_leads_to(name: str) -> None:
    """Expressions that name few minutes and many, and stretches that begin or end at a change."""
    chance, zone = random.Random(name), ZoneInfo(name)
    texts = [
        "0,7,14,30,59 * * * *",
        "0 0 29 2 *",
        "30 2 * * *",
        "15,45 1-3 * 3,10 *",
        "* 2 * * 0",
        "0 0 30 12 *",
        "59 23 * * *",
    ]
    for year in (2011, 2024):
        begin = datetime(year, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(10**7), microseconds=1)
        stretches = [(begin, begin + timedelta(days=chance.randrange(1, 366)))]
        stretches += [(each.at, begin + timedelta(days=366)) for each in zone_changes(zone, *stretches[0])]
        stretches += [(begin, since) for since, _ in stretches[1:]]
        for since, until in stretches:
            changes = list(zone_changes(zone, since.astimezone(zone), until.astimezone(zone)))
            for expression in map(parse_cron, texts):
                followed = list(leaps(expression, zone, since.astimezone(zone), until.astimezone(zone)))
                assert list(leaps_at(changes, expression)) == followed, (since, until, expression)


@pytest.mark.parametrize(
    ("zone_name", "until"),
    [("Europe/Berlin", "2024-10-28T00:00"), ("Australia/Lord_Howe", "2024-04-08T00:00"), ("UTC", "2024-04-08T00:00")],
)
def test_a_wall_clock_by_integers_shows_what_datetimes_do(zone_name: str, until: str) -> None:
    zone, end = ZoneInfo(zone_name), instant_of(utc(until))
    begin = Instant(end - 3 * 86_400 * MICROSECONDS)
    clock = LocalTime(zone, begin, end)
    instants = [Instant(begin + 1_234_567_891 * number) for number in range(209)]
    for instant in instants:
        shown = as_datetime(instant, zone)
        naive = shown.replace(tzinfo=UTC, microsecond=0)
        assert clock.shown(instant) == instant_of(naive) // MICROSECONDS
        steady = clock.steady_until(instant)
        last = as_datetime(Instant(steady - 1), zone)
        assert (last.date(), last.utcoffset()) == (shown.date(), shown.utcoffset())
        after = as_datetime(steady, zone)
        assert (after.date(), after.utcoffset()) != (shown.date(), shown.utcoffset())
    assert clock.minutes(instants) == {minute_of(instant, zone) for instant in instants}
