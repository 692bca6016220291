"""Times and durations in words."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from duly.core.moments import Instant, instant_of
from duly.insight.words import ago, between, clock_time, counted, iso, names, offset, stretch

BERLIN = ZoneInfo("Europe/Berlin")


def local(text: str) -> Instant:
    return instant_of(datetime.fromisoformat(text).replace(tzinfo=BERLIN))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 ms"), (0.0124, "12 ms"), (0.9999, "1 s"), (3.25, "3.2 s"), (59.96, "1 min"), (61, "1 min 1 s"),
        (3600, "1 h"), (3661, "1 h 1 min"), (90_000, "1 d 1 h"), (-5, "-5 s"),
        (86_400 * 1000, "1000 d"), (86_400 * 1100, "3 y 5 d"), (86_400 * 365 * 7_000, "7,000 y"),
    ],
)  # fmt: skip
def test_lengths_of_time_are_short(seconds: float, shown: str) -> None:
    """At most two units, rounded."""
    assert stretch(seconds) == shown


@pytest.mark.parametrize(
    ("when", "shown"),
    [
        ("2024-07-01T12:00", "12:00"),
        ("2024-07-01T12:00:07", "12:00:07"),
        ("2024-07-02T00:00", "Tue 00:00"),
        ("2024-07-07T23:59", "Sun 23:59"),
        ("2024-07-08T00:00", "2024-07-08 00:00"),
        ("2024-06-30T23:59", "2024-06-30 23:59"),
    ],
)
def test_a_moment_has_its_date_only_where_that_is_needed(when: str, shown: str) -> None:
    """The time alone today, the weekday in the coming week, the date otherwise; seconds if there are any."""
    assert clock_time(local(when), BERLIN, local("2024-07-01T09:00")) == shown


def test_a_moment_is_so_long_ago_or_ahead() -> None:
    noon, later = local("2024-07-01T12:00"), local("2024-07-01T12:05")
    assert (between(noon, later), ago(noon, later), ago(later, noon)) == ("5 min", "5 min ago", "in 5 min")
    assert ago(noon, noon) == "0 ms ago"


def test_a_moment_in_iso_8601_has_the_offset_of_its_zone() -> None:
    noon = local("2024-07-01T12:00")
    assert (iso(noon, BERLIN), iso(noon, UTC)) == ("2024-07-01T12:00:00+02:00", "2024-07-01T10:00:00+00:00")
    assert (offset(noon, BERLIN), offset(noon, UTC)) == ("+02:00", "+00:00")


def test_names_and_numbers_are_short() -> None:
    """A few names stand for many, and what a name could do to a terminal is written out."""
    assert names(["a", "b\x1b[2J"]) == "a, b\\x1b[2J"
    assert names([f"t{number}" for number in range(1_007)], most=2) == "t0, t1 and 1,005 more"
    assert names(["a", "b"], 5) == "a, b and 3 more"
    assert (counted(1, "task"), counted(0, "task"), counted(1_000, "task")) == ("1 task", "0 tasks", "1,000 tasks")
