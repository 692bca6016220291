"""Two names of one zone are one zone, and zones that differ in a single hour are two."""

from datetime import UTC, datetime, timedelta, timezone
from importlib import resources
from zoneinfo import ZoneInfo

import pytest

from duly.core.moments import Instant, instant_of
from duly.core.zones import have_same_rules, is_zone, zone_of_name
from tests.counts import share

NOW = instant_of(datetime(2026, 11, 16, 12, tzinfo=UTC))


def links() -> list[tuple[str, str]]:
    """The links of the tz database: a name, and the zone it leads to."""
    text = (resources.files("tzdata") / "zoneinfo" / "tzdata.zi").read_text()
    return [(link, zone) for kind, zone, link in (line.split() for line in text.splitlines() if line.startswith("L "))]


def test_every_link_of_the_database_is_the_zone_it_leads_to() -> None:
    """SPEC 2.1: the host's zone is its rules; the name is for people."""
    found = links()
    assert len(found) > 200
    assert [pair for pair in share(found, 60) if not is_zone(ZoneInfo(pair[0]), pair[1], NOW)] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("UTC", "Etc/UTC"),
        ("UTC", "Etc/GMT"),
        ("Europe/Berlin", "Europe/Paris"),
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("Etc/GMT-3", "Europe/Moscow"),
    ],
)
def test_zones_that_show_the_same_time_are_one(one: str, other: str) -> None:
    """SPEC 2.1: every expression means the same instants there."""
    assert have_same_rules(ZoneInfo(one), ZoneInfo(other), NOW)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("UTC", "Europe/London"),  # differ in summer
        ("Europe/Athens", "Asia/Beirut"),  # change their clocks on the same Sundays, some hours apart
        ("America/New_York", "America/Havana"),  # two hours apart, twice a year
        ("Australia/Sydney", "Australia/Lord_Howe"),
        ("Australia/Sydney", "Australia/Brisbane"),
        ("Africa/Casablanca", "Etc/GMT-1"),  # differ during Ramadan
    ],
)
def test_zones_that_differ_in_a_single_hour_of_the_year_are_two(one: str, other: str) -> None:
    """SPEC 2.1: a task could be due in that hour."""
    assert not have_same_rules(ZoneInfo(one), ZoneInfo(other), NOW)
    assert not have_same_rules(ZoneInfo(other), ZoneInfo(one), NOW)


def test_zones_that_were_alike_until_a_year_ago_are_two_and_long_ago_does_not_matter() -> None:
    """SPEC 2.1: Istanbul stopped changing its clocks in 2016; Moscow in 2014."""
    istanbul, moscow = ZoneInfo("Europe/Istanbul"), ZoneInfo("Europe/Moscow")
    assert have_same_rules(istanbul, moscow, NOW)
    assert not have_same_rules(istanbul, moscow, instant_of(datetime(2016, 11, 1, tzinfo=UTC)))


@pytest.mark.parametrize("year", [1, 2, 9990, 9999])
def test_the_ends_of_the_calendar_are_compared_as_far_as_they_reach(year: int) -> None:
    """SPEC 3.6: beyond them there is no date."""
    now = instant_of(datetime(year, 6, 1, tzinfo=UTC))
    assert have_same_rules(ZoneInfo("Etc/UTC"), ZoneInfo("UTC"), now)
    assert not have_same_rules(ZoneInfo("Asia/Tokyo"), ZoneInfo("UTC"), now)


def test_a_name_that_this_host_does_not_know_is_another_zone_unless_it_is_the_same_name() -> None:
    """A zone of a fixed offset has a name, but the tz database does not have it."""
    fixed = timezone(timedelta(hours=2))
    assert zone_of_name(str(fixed)) is None
    assert is_zone(fixed, "UTC+02:00", NOW)
    assert is_zone(fixed, "Etc/GMT-2", NOW)
    for name in ("UTC+03:00", "Mars/Olympus", "../../etc/passwd", ""):
        assert not is_zone(fixed, name, Instant(0)), name
