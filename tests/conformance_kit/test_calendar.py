"""The oracle of the kit, on what can be checked by hand."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from conformance.calendar import UnreadableError, instant_of, local_text, occurrences, read, transitions

BERLIN = ZoneInfo("Europe/Berlin")


def next_ones(expression: str, zone: str, after: str, number: int) -> list[str]:
    found = occurrences(read(expression), ZoneInfo(zone), instant_of(after))
    return [local_text(instant, ZoneInfo(zone)) for instant in islice(found, number)]


def test_a_skipped_minute_does_not_occur() -> None:
    """SPEC 2.2: on 30 March 2025 Berlin goes from 02:00 to 03:00."""
    assert next_ones("30 2 * * *", "Europe/Berlin", "2025-03-29T12:00:00Z", 2) == [
        "2025-03-31T02:30:00+02:00",
        "2025-04-01T02:30:00+02:00",
    ]


def test_a_repeated_minute_occurs_once() -> None:
    """SPEC 2.3: on 26 October 2025 Berlin goes from 03:00 back to 02:00."""
    assert next_ones("30 2 * * *", "Europe/Berlin", "2025-10-25T12:00:00Z", 2) == [
        "2025-10-26T02:30:00+02:00",
        "2025-10-27T02:30:00+01:00",
    ]
    assert next_ones("* * * * *", "Europe/Berlin", "2025-10-26T00:58:00Z", 2) == [
        "2025-10-26T02:59:00+02:00",
        "2025-10-26T03:00:00+01:00",
    ]


def test_a_minute_begins_where_the_wall_clock_shows_second_0() -> None:
    """SPEC 2.1: Monrovia was 44 minutes and 30 seconds behind UTC until 7 January 1972."""
    assert next_ones("0 * * * *", "Africa/Monrovia", "1972-01-06T20:00:00Z", 5) == [
        "1972-01-06T20:00:00-00:44:30",
        "1972-01-06T21:00:00-00:44:30",
        "1972-01-06T22:00:00-00:44:30",
        "1972-01-06T23:00:00-00:44:30",
        "1972-01-07T01:00:00+00:00",  # 00:00 to 00:44 were skipped
    ]


def test_a_day_that_a_zone_leaves_out_has_no_occurrence() -> None:
    """SPEC 2.2: Samoa had no 30 December 2011."""
    assert next_ones("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 2) == [
        "2011-12-29T12:00:00-10:00",
        "2011-12-31T12:00:00+14:00",
    ]


def test_rare_days_are_found_across_years() -> None:
    """The year 2100 is not a leap year."""
    assert next_ones("0 0 29 2 *", "UTC", "2096-02-29T00:00:00Z", 1) == ["2104-02-29T00:00:00+00:00"]


def test_the_changes_of_a_year_are_found_to_the_second() -> None:
    found = transitions(BERLIN, datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))
    assert found == [datetime(2025, 3, 30, 1, tzinfo=UTC), datetime(2025, 10, 26, 1, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        ("", "expression", "empty"),
        ("* * * *", "expression", "field-count"),
        ("@daily", "expression", "macro"),
        ("60 * * * *", "minute", "out-of-range"),
        ("5-4 * * * *", "minute", "backwards"),
        ("0 1, * * *", "hour", "empty-element"),
        ("0 0 *,1 * *", "day", "star-not-alone"),
        ("0 0 * 1- *", "month", "not-a-range"),
        ("0 0 * * sun", "weekday", "foreign-character"),
        ("0 0 30 2 *", "day", "never-matches"),
        ("0 24 32 * *", "hour", "out-of-range"),
    ],
)
def test_the_second_parser_names_the_leftmost_field_and_a_reason(text: str, field: str, reason: str) -> None:
    """SPEC 6.1, 6.3."""
    with pytest.raises(UnreadableError) as caught:
        read(text)
    assert (caught.value.field, caught.value.reason) == (field, reason)


def test_either_day_field_is_enough_where_both_are_restricted() -> None:
    """SPEC 6.2: month AND (day OR weekday)."""
    first = datetime(2025, 6, 1, tzinfo=UTC).date()
    days = [first + timedelta(days=number) for number in range(30)]
    assert [day.day for day in days if read("0 0 13 * 5").names_date(day)] == [6, 13, 20, 27]
    assert [day.day for day in days if read("0 0 1 7 1").names_date(day)] == []
