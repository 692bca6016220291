"""Instants, minutes and delays: the conversions, exact at the grain they promise."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.core.moments import (
    EPOCH,
    LAST_INSTANT,
    MICROSECONDS,
    Delay,
    Instant,
    Minute,
    after,
    as_datetime,
    begin,
    delay_of,
    instant_of,
    minute_of,
)
from tests.core.helpers import BERLIN, at, minute

ZONES: tuple[tzinfo, ...] = (
    UTC,
    BERLIN,
    ZoneInfo("Australia/Lord_Howe"),
    ZoneInfo("Africa/Monrovia"),  # -0:44:30 until 1972
    ZoneInfo("Asia/Kolkata"),
    ZoneInfo("America/St_Johns"),
    timezone(timedelta(hours=5, minutes=7, seconds=11)),
)
zones = st.sampled_from(ZONES)
any_instant = st.integers(-2_000_000_000 * MICROSECONDS, 4_000_000_000 * MICROSECONDS).map(Instant)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (EPOCH, 0),
        (datetime(1970, 1, 1, 0, 0, 0, 1, UTC), 1),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), -1),
        (datetime(1970, 1, 1, 1, tzinfo=BERLIN), 0),
        # 2**53 microseconds lie in the year 2255: a float would lose this last digit.
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), 253_402_300_799_999_999),
    ],
)
def test_an_instant_is_exact_to_the_microsecond(when: datetime, expected: int) -> None:
    """SPEC 3.9: what is stored about a moment is that moment."""
    assert instant_of(when) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2025-10-26T02:30", "2025-10-26T00:30+00:00"), ("~2025-10-26T02:30", "2025-10-26T01:30+00:00")],
)
def test_the_two_copies_of_a_local_time_are_two_instants(text: str, expected: str) -> None:
    """SPEC 2.3: fold tells them apart."""
    assert at(text, BERLIN) == instant_of(datetime.fromisoformat(expected))


@given(any_instant, zones)
def test_an_instant_survives_the_way_through_a_datetime(instant: Instant, zone: tzinfo) -> None:
    """SPEC 2.1: an instant shown in a zone names the same instant, in the repeated hour too."""
    shown = as_datetime(instant, zone)
    assert shown.tzinfo is zone
    assert instant_of(shown) == instant


@given(any_instant, zones)
def test_the_minute_of_an_instant_is_the_one_that_contains_it(instant: Instant, zone: tzinfo) -> None:
    """SPEC 2.1: a minute begins where the local second is 0, even if the offset is not a whole minute."""
    beginning = begin(minute_of(instant, zone))
    assert beginning <= instant
    shown, now = as_datetime(beginning, zone), as_datetime(instant, zone)
    if shown.utcoffset() == now.utcoffset():  # no transition within this very minute
        assert (shown.second, shown.microsecond) == (0, 0)
        assert instant < beginning + 60 * MICROSECONDS


@pytest.mark.parametrize(
    ("zone", "moment", "expected"),
    [
        (UTC, "2025-06-15T12:34:59.999999", "2025-06-15T12:34"),
        (UTC, "2025-06-15T12:34:00", "2025-06-15T12:34"),
        (UTC, "1969-12-31T23:59:59.999999", "1969-12-31T23:59"),
        (BERLIN, "~2025-10-26T02:30:30", "~2025-10-26T02:30"),
        (ZoneInfo("Africa/Monrovia"), "1971-06-01T12:34:56", "1971-06-01T12:34"),
    ],
)
def test_minutes_are_those_of_the_host_zone(zone: tzinfo, moment: str, expected: str) -> None:
    """SPEC 2.1: minute grain, on the host's wall clock."""
    assert minute_of(at(moment, zone), zone) == minute(expected, zone)


def test_a_minute_of_monrovia_does_not_begin_at_a_whole_minute_of_utc() -> None:
    """SPEC 2.1: the local second is what counts."""
    assert minute("1971-06-01T12:34", ZoneInfo("Africa/Monrovia")) % 60 == 30


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (timedelta(0), 0),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=999), 1),
        (timedelta(microseconds=1_000), 1),
        (timedelta(microseconds=1_001), 2),
        (timedelta(minutes=5), 300_000),
        (timedelta(microseconds=-1), -1),
        (timedelta(microseconds=-1_000), -1),
        (timedelta(microseconds=-1_001), -2),
        (timedelta(days=-1), -86_400_000),
        (timedelta.max, 86_400_000_000_000_000),
    ],
)
def test_a_delay_is_whole_milliseconds_rounded_away_from_zero(duration: timedelta, expected: int) -> None:
    """SPEC 5.1 and 1.5: sub-millisecond delays are rounded up, negative ones away from zero."""
    assert delay_of(duration) == expected


@given(st.timedeltas())
def test_rounding_a_delay_adds_less_than_a_millisecond_and_keeps_its_sign(duration: timedelta) -> None:
    """SPEC 5.1: no delay is lost to rounding."""
    microseconds = duration // timedelta(microseconds=1)
    rounded = 1_000 * delay_of(duration)
    assert abs(microseconds) <= abs(rounded) < abs(microseconds) + 1_000
    assert (rounded > 0, rounded < 0) == (microseconds > 0, microseconds < 0)


@given(any_instant, st.integers(0, 10**9).map(Delay))
def test_a_delay_later_is_that_many_milliseconds_later(instant: Instant, delay: Delay) -> None:
    """SPEC 3.4: failure time plus delay, with sub-second timing."""
    assert after(instant, delay) == instant + 1_000 * delay


@pytest.mark.parametrize("delay", [delay_of(timedelta.max), Delay(1_000)])
def test_a_moment_beyond_the_calendar_is_its_last_minute(delay: Delay) -> None:
    """SPEC 3.6: a retry beyond the year 9999 is stored as the last minute of 9999."""
    assert after(Instant(LAST_INSTANT - 1), delay) == LAST_INSTANT
    assert as_datetime(LAST_INSTANT, UTC) == datetime(9999, 12, 31, 23, 59, tzinfo=UTC)


@pytest.mark.parametrize(("instant", "offset"), [(LAST_INSTANT, 14), (-62_135_596_800 * MICROSECONDS, -12)])
def test_an_instant_that_a_zone_cannot_name_is_shown_in_utc(instant: int, offset: int) -> None:
    """SPEC 3.6: events must be able to report the last minute of 9999, even east of Greenwich."""
    shown = as_datetime(instant, timezone(timedelta(hours=offset)))
    assert shown.tzinfo is UTC
    assert instant_of(shown) == instant


def test_a_minute_begins_at_its_own_second() -> None:
    assert begin(Minute(61)) == 61_000_000
