"""Occurrences on the calendars of the world: expression, zone, moment, expected."""

import random
import time
from collections.abc import Iterator
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from duly.core import occurrences
from duly.core.cron import CronExpression, parse_cron
from duly.core.due import latest_due, next_due
from duly.core.moments import MICROSECONDS, Minute, as_datetime, instant_of, minute_of
from duly.errors import CronCalculationError

MINUTE = timedelta(minutes=1)


def at(text: str, zone: tzinfo | None) -> datetime:
    """A local time, `~` before it meaning the second copy."""
    return datetime.fromisoformat(text.removeprefix("~")).replace(tzinfo=zone, fold=text.startswith("~"))


def assert_same(found: datetime, expected: datetime) -> None:
    """Same clock face, zone, fold and so instant: `==` alone would overlook the fold."""
    assert (found.replace(tzinfo=None), found.tzinfo, found.fold) == (
        expected.replace(tzinfo=None),
        expected.tzinfo,
        expected.fold,
    )


# --- tables -------------------------------------------------------------------------------------------------

BERLIN, HOWE, APIA = "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"
SAO_PAULO, BEIRUT, TROLL = "America/Sao_Paulo", "Asia/Beirut", "Antarctica/Troll"
MONROVIA, KWAJALEIN, CARACAS = "Africa/Monrovia", "Pacific/Kwajalein", "America/Caracas"

NEXT = [
    # no transition near
    ("* * * * *", BERLIN, "2025-06-15T12:00:00", "2025-06-15T12:01"),
    ("* * * * *", BERLIN, "2025-06-15T12:00:30", "2025-06-15T12:01"),
    ("* * * * *", BERLIN, "2025-06-15T11:59:59.999999", "2025-06-15T12:00"),
    ("* * * * *", BERLIN, "2025-12-31T23:59:00", "2026-01-01T00:00"),
    ("0 3 * * *", BERLIN, "2025-06-15T02:59:59", "2025-06-15T03:00"),
    ("0 3 * * *", BERLIN, "2025-06-15T03:00:00", "2025-06-16T03:00"),
    ("15 3 * * 1-5", BERLIN, "2025-06-13T04:00:00", "2025-06-16T03:15"),
    ("0,30 * * * *", BERLIN, "2025-06-15T12:00:00", "2025-06-15T12:30"),
    ("0,30 * * * *", BERLIN, "2025-06-15T23:30:00", "2025-06-16T00:00"),
    ("0 12 14 2 *", BERLIN, "2025-02-14T12:00:00", "2026-02-14T12:00"),
    ("0 0 1,15 * 1", BERLIN, "2025-06-01T00:00:00", "2025-06-02T00:00"),
    ("0 0 1,15 * 1", BERLIN, "2025-06-09T00:00:00", "2025-06-15T00:00"),
    ("0 0 31 * *", BERLIN, "2025-03-31T00:00:00", "2025-05-31T00:00"),
    ("0 0 29 2 *", BERLIN, "2025-01-01T00:00:00", "2028-02-29T00:00"),
    ("0 0 29 2 *", BERLIN, "2096-02-29T00:00:00", "2104-02-29T00:00"),  # 2100 is not a leap year
    ("0 0 29 2 *", BERLIN, "1996-02-29T00:00:00", "2000-02-29T00:00"),  # 2000 is one
    ("0 0 31 4 1", BERLIN, "2025-04-28T00:00:00", "2026-04-06T00:00"),
    ("59 23 31 12 *", BERLIN, "2025-12-31T23:59:00", "2026-12-31T23:59"),
    # Berlin, 30 March 2025: 02:00 to 03:00 is skipped
    ("* * * * *", BERLIN, "2025-03-30T01:59:00", "2025-03-30T03:00"),
    ("30 2 * * *", BERLIN, "2025-03-29T02:30:00", "2025-03-31T02:30"),
    ("30 2 30 3 *", BERLIN, "2025-03-01T00:00:00", "2026-03-30T02:30"),
    ("0,30 2,3 * * *", BERLIN, "2025-03-30T00:00:00", "2025-03-30T03:00"),
    # ... and a moment in the gap is the instant that PEP 495 makes of it: 03:30, with fold=1 01:30
    ("* * * * *", BERLIN, "2025-03-30T02:30:00", "2025-03-30T03:31"),
    ("0 3 * * *", BERLIN, "2025-03-30T02:30:00", "2025-03-31T03:00"),
    ("* * * * *", BERLIN, "~2025-03-30T02:30:00", "2025-03-30T01:31"),
    ("0 3 * * *", BERLIN, "~2025-03-30T02:30:00", "2025-03-30T03:00"),
    # Berlin, 26 October 2025: 02:00 to 03:00 comes twice
    ("* * * * *", BERLIN, "2025-10-26T02:30:00", "2025-10-26T02:31"),
    ("* * * * *", BERLIN, "2025-10-26T02:59:00", "2025-10-26T03:00"),
    ("* * * * *", BERLIN, "~2025-10-26T02:00:00", "2025-10-26T03:00"),
    ("* * * * *", BERLIN, "~2025-10-26T02:30:00", "2025-10-26T03:00"),
    ("* * * * *", BERLIN, "~2025-10-26T02:59:59", "2025-10-26T03:00"),
    ("30 2 * * *", BERLIN, "2025-10-26T02:29:00", "2025-10-26T02:30"),
    ("30 2 * * *", BERLIN, "2025-10-26T02:30:00", "2025-10-27T02:30"),
    ("30 2 * * *", BERLIN, "~2025-10-26T02:29:00", "2025-10-27T02:30"),
    ("30 2 26 10 *", BERLIN, "~2025-10-26T02:00:00", "2026-10-26T02:30"),
    ("0 * * * *", BERLIN, "2025-10-26T02:00:00", "2025-10-26T03:00"),
    # Lord Howe: half an hour
    ("0,15,30,45 * * * *", HOWE, "2025-10-05T01:45:00", "2025-10-05T02:30"),
    ("15 2 * * *", HOWE, "2025-10-05T00:00:00", "2025-10-06T02:15"),
    ("0,15,30,45 * * * *", HOWE, "2025-04-06T01:45:00", "2025-04-06T02:00"),
    ("0,15,30,45 * * * *", HOWE, "~2025-04-06T01:30:00", "2025-04-06T02:00"),
    # Samoa: 30 December 2011 is skipped
    ("* * * * *", APIA, "2011-12-29T23:59:00", "2011-12-31T00:00"),
    ("0 12 * * *", APIA, "2011-12-29T12:00:00", "2011-12-31T12:00"),
    ("0 12 30 12 *", APIA, "2011-01-01T00:00:00", "2012-12-30T12:00"),
    ("0 0 * * 5", APIA, "2011-12-29T00:00:00", "2012-01-06T00:00"),
    # Kwajalein: 21 August 1993 is skipped
    ("0,30 * * * *", KWAJALEIN, "1993-08-20T23:30:00", "1993-08-22T00:00"),
    ("0 6 21 8 *", KWAJALEIN, "1993-08-01T00:00:00", "1994-08-21T06:00"),
    # Troll: two hours
    ("30 * * * *", TROLL, "2025-03-30T00:30:00", "2025-03-30T03:30"),
    ("30 * * * *", TROLL, "2025-10-26T02:30:00", "2025-10-26T03:30"),
    ("30 * * * *", TROLL, "~2025-10-26T01:00:00", "2025-10-26T03:30"),
    # days without a midnight, and with two times 23:00
    ("0 0 * * *", SAO_PAULO, "2018-11-03T00:00:00", "2018-11-05T00:00"),
    ("0 0 * * 0", SAO_PAULO, "2018-11-03T00:00:00", "2018-11-11T00:00"),
    ("* * 4 11 *", SAO_PAULO, "2018-11-03T00:00:00", "2018-11-04T01:00"),
    ("30 23 * * *", SAO_PAULO, "2018-02-17T23:30:00", "2018-02-18T23:30"),
    ("0 0 * * *", SAO_PAULO, "~2018-02-17T23:30:00", "2018-02-18T00:00"),
    ("30 0 * * *", BEIRUT, "2022-03-26T12:00:00", "2022-03-28T00:30"),
    ("0 * * * *", BEIRUT, "~2022-10-29T23:00:00", "2022-10-30T00:00"),
    # a change that is not daylight saving
    ("0 3 * * *", CARACAS, "2007-12-09T02:45:00", "2007-12-09T03:00"),
    ("40 2 * * *", CARACAS, "~2007-12-09T02:31:00", "2007-12-10T02:40"),
    # Monrovia: offset -0:44:30 until 00:00:00 on 7 January 1972, then 00:44:30
    ("* * * * *", MONROVIA, "1971-06-15T12:00:00", "1971-06-15T12:01"),
    ("* * * * *", MONROVIA, "1972-01-06T23:59:00", "1972-01-07T00:45"),
    ("44 0 * * *", MONROVIA, "1972-01-06T12:00:00", "1972-01-08T00:44"),
    ("45 0 * * *", MONROVIA, "1972-01-06T12:00:00", "1972-01-07T00:45"),
]

PREVIOUS = [
    # no transition near
    ("* * * * *", BERLIN, "2025-06-15T12:00:00", "2025-06-15T11:59"),
    ("* * * * *", BERLIN, "2025-06-15T12:00:30", "2025-06-15T12:00"),
    ("* * * * *", BERLIN, "2025-06-15T12:00:00.000001", "2025-06-15T12:00"),
    ("* * * * *", BERLIN, "2026-01-01T00:00:00", "2025-12-31T23:59"),
    ("0 3 * * *", BERLIN, "2025-06-15T03:00:01", "2025-06-15T03:00"),
    ("0 3 * * *", BERLIN, "2025-06-15T03:00:00", "2025-06-14T03:00"),
    ("15 3 * * 1-5", BERLIN, "2025-06-16T03:15:00", "2025-06-13T03:15"),
    ("0 0 29 2 *", BERLIN, "2104-02-29T00:00:00", "2096-02-29T00:00"),
    ("0 0 31 4 1", BERLIN, "2026-04-06T00:00:00", "2025-04-28T00:00"),
    ("0 0 31 * *", BERLIN, "2025-05-31T00:00:00", "2025-03-31T00:00"),
    # Berlin: the gap
    ("* * * * *", BERLIN, "2025-03-30T03:00:00", "2025-03-30T01:59"),
    ("30 2 * * *", BERLIN, "2025-03-31T02:30:00", "2025-03-29T02:30"),
    ("* * * * *", BERLIN, "2025-03-30T02:30:00", "2025-03-30T03:29"),
    ("0 3 * * *", BERLIN, "2025-03-30T02:30:00", "2025-03-30T03:00"),
    ("* * * * *", BERLIN, "~2025-03-30T02:30:00", "2025-03-30T01:29"),
    ("45 1 * * *", BERLIN, "~2025-03-30T02:30:00", "2025-03-29T01:45"),
    # Berlin: the repeated hour
    ("* * * * *", BERLIN, "2025-10-26T03:00:00", "2025-10-26T02:59"),
    ("* * * * *", BERLIN, "2025-10-26T02:30:00", "2025-10-26T02:29"),
    ("* * * * *", BERLIN, "~2025-10-26T02:00:00", "2025-10-26T02:59"),
    ("* * * * *", BERLIN, "~2025-10-26T02:30:30", "2025-10-26T02:59"),
    ("30 2 * * *", BERLIN, "~2025-10-26T02:10:00", "2025-10-26T02:30"),
    ("30 2 * * *", BERLIN, "2025-10-26T02:10:00", "2025-10-25T02:30"),
    ("0 3 * * *", BERLIN, "~2025-10-26T02:59:59", "2025-10-25T03:00"),
    ("10 2 * * *", BERLIN, "2025-10-27T00:00:00", "2025-10-26T02:10"),
    # elsewhere
    ("0,15,30,45 * * * *", HOWE, "2025-10-05T02:30:00", "2025-10-05T01:45"),
    ("0,15,30,45 * * * *", HOWE, "~2025-04-06T01:30:00", "2025-04-06T01:45"),
    ("* * * * *", APIA, "2011-12-31T00:00:00", "2011-12-29T23:59"),
    ("0 12 30 12 *", APIA, "2012-01-01T00:00:00", "2010-12-30T12:00"),
    (
        "* * * * *",
        APIA,
        "2011-12-30T12:00:00",
        "2011-12-31T11:59",
    ),  # that is the instant of 31 December, 12:00
    ("0,30 * * * *", KWAJALEIN, "1993-08-22T00:00:00", "1993-08-20T23:30"),
    ("30 * * * *", TROLL, "2025-03-30T03:00:00", "2025-03-30T00:30"),
    ("30 * * * *", TROLL, "~2025-10-26T01:00:00", "2025-10-26T02:30"),
    ("0 0 * * *", SAO_PAULO, "2018-11-04T12:00:00", "2018-11-03T00:00"),
    ("30 23 * * *", SAO_PAULO, "~2018-02-17T23:10:00", "2018-02-17T23:30"),
    ("0 0 * * *", BEIRUT, "2022-03-27T12:00:00", "2022-03-26T00:00"),
    ("* * * * *", MONROVIA, "1972-01-07T00:45:00", "1972-01-06T23:59"),
    ("* * * * *", MONROVIA, "1972-01-07T00:44:45", "1972-01-06T23:59"),
    ("44 0 * * *", MONROVIA, "1972-01-07T12:00:00", "1972-01-06T00:44"),
]

MATCHES = [
    ("30 2 * * *", BERLIN, "2025-06-15T02:30:00", True),
    ("30 2 * * *", BERLIN, "2025-06-15T02:30:59.999999", True),
    ("30 2 * * *", BERLIN, "2025-06-15T02:31:00", False),
    ("30 2 * * *", BERLIN, "2025-06-15T02:29:59", False),
    ("30 2 * * *", BERLIN, "~2025-06-15T02:30:00", True),  # fold means nothing here
    ("30 2 * * *", BERLIN, "2025-03-30T02:30:00", False),  # skipped
    ("30 2 * * *", BERLIN, "~2025-03-30T02:30:00", False),
    ("* * * * *", BERLIN, "2025-03-30T01:59:59", True),
    ("* * * * *", BERLIN, "2025-03-30T03:00:00", True),
    ("30 2 * * *", BERLIN, "2025-10-26T02:30:30", True),  # repeated
    ("30 2 * * *", BERLIN, "~2025-10-26T02:30:30", False),
    ("* * * * *", BERLIN, "~2025-10-26T02:00:00", False),
    ("* * * * *", BERLIN, "~2025-10-26T02:59:59", False),
    ("* * * * *", BERLIN, "2025-10-26T03:00:00", True),
    ("* * * * *", HOWE, "~2025-04-06T01:45:00", False),
    ("* * * * *", HOWE, "2025-10-05T02:15:00", False),
    ("0 12 * * *", APIA, "2011-12-30T12:00:00", False),
    ("* * * * *", MONROVIA, "1972-01-06T23:59:59", True),
    ("* * * * *", MONROVIA, "1972-01-07T00:44:45", False),  # this minute has no beginning
    ("* * * * *", MONROVIA, "1972-01-07T00:45:00", True),
]


@pytest.mark.parametrize(("text", "zone", "when", "expected"), NEXT)
def test_the_next_occurrence(text: str, zone: str, when: str, expected: str) -> None:
    """SPEC 2.1 to 2.3: strictly after; skipped minutes do not exist, repeated ones are due at their first copy."""
    place = ZoneInfo(zone)
    assert_same(parse_cron(text).next_after(at(when, place)), at(expected, place))


@pytest.mark.parametrize(("text", "zone", "when", "expected"), PREVIOUS)
def test_the_previous_occurrence(text: str, zone: str, when: str, expected: str) -> None:
    """SPEC 2.1 to 2.3: strictly before, so within a matching minute it is that minute itself."""
    place = ZoneInfo(zone)
    assert_same(parse_cron(text).previous_before(at(when, place)), at(expected, place))


@pytest.mark.parametrize(("text", "zone", "when", "expected"), MATCHES)
def test_the_minute_that_contains_a_moment(text: str, zone: str, when: str, expected: bool) -> None:
    """SPEC 2.2 and 2.3: false for a minute that does not exist, and in the second copy of one that does."""
    assert parse_cron(text).matches(at(when, ZoneInfo(zone))) is expected


@pytest.mark.parametrize(("text", "zone", "when", "expected"), NEXT)
def test_the_next_occurrence_as_a_minute(text: str, zone: str, when: str, expected: str) -> None:
    """SPEC 2.1: due minutes as integers agree; a minute begins where the zone's second is 0."""
    place = ZoneInfo(zone)
    minute = minute_of(instant_of(at(when, place)), place)
    found = next_due(parse_cron(text), minute, place)
    assert_same(as_datetime(found * MICROSECONDS, place), at(expected, place))


@pytest.mark.parametrize(("text", "zone", "when", "expected"), PREVIOUS)
def test_the_latest_occurrence_as_a_minute(text: str, zone: str, when: str, expected: str) -> None:
    place = ZoneInfo(zone)
    second_before = -(-instant_of(at(when, place)) // MICROSECONDS) - 1
    found = latest_due(parse_cron(text), Minute(second_before), place)
    assert found is not None
    assert_same(as_datetime(found * MICROSECONDS, place), at(expected, place))


def test_the_latest_occurrence_may_be_the_minute_itself() -> None:
    """SPEC 3.1: an occurrence `o ≤ now`."""
    zone = ZoneInfo(MONROVIA)
    noon = Minute(instant_of(datetime(1971, 6, 15, 12, 0, tzinfo=zone)) // MICROSECONDS)
    assert noon % 60 == 30  # where the offset is -0:44:30, minutes begin between ours
    assert latest_due(parse_cron("0 12 * * *"), noon, zone) == noon
    assert latest_due(parse_cron("* * * * *"), Minute(noon - 1), zone) == noon - 60
    assert next_due(parse_cron("* * * * *"), noon, zone) == noon + 60


# --- zones of every make ------------------------------------------------------------------------------------


def test_a_fixed_offset_is_a_zone() -> None:
    zone = timezone(timedelta(hours=5, minutes=30, seconds=15))
    expression = parse_cron("30 2 * * *")
    assert_same(expression.next_after(at("2025-03-30T02:30:00", zone)), at("2025-03-31T02:30", zone))
    assert_same(expression.previous_before(at("2025-03-30T02:30:00", zone)), at("2025-03-29T02:30", zone))
    assert expression.matches(at("~2025-03-30T02:30:59", zone))


class HandMade(tzinfo):
    """A zone after PEP 495, written by a user: +1 h until `turn`, 1 June 2025, 01:00 UTC, then `after`."""

    TURN = datetime(2025, 6, 1, 1, 0)

    def __init__(self, after: timedelta, turn: datetime = TURN) -> None:
        self._before, self._after, self._turn = timedelta(hours=1), after, turn

    def utcoffset(self, when: datetime | None) -> timedelta:
        assert when is not None
        wall = when.replace(tzinfo=None, fold=0)
        last_before, first_after = self._turn + self._before, self._turn + self._after
        if wall < min(last_before, first_after):
            return self._before
        if wall >= max(last_before, first_after):
            return self._after
        return self._after if when.fold else self._before

    def fromutc(self, when: datetime) -> datetime:
        utc = when.replace(tzinfo=None)
        if utc < self._turn:
            return (utc + self._before).replace(tzinfo=self)
        wall = utc + self._after
        return wall.replace(tzinfo=self, fold=int(wall < self._turn + self._before))

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> None:
        return None


def test_a_zone_of_the_users_own_making_works() -> None:
    """Any zone that follows PEP 495 will do, even one with transitions inside a minute."""
    repeats_a_quarter = HandMade(timedelta(minutes=45))  # 02:00 becomes 01:45
    every = parse_cron("* * * * *")
    assert_same(
        every.next_after(at("~2025-06-01T01:50:00", repeats_a_quarter)),
        at("2025-06-01T02:00", repeats_a_quarter),
    )
    assert_same(
        every.previous_before(at("~2025-06-01T01:50:00", repeats_a_quarter)),
        at("2025-06-01T01:59", repeats_a_quarter),
    )
    repeats_half_a_minute = HandMade(timedelta(minutes=59, seconds=30))  # 02:00:00 becomes 01:59:30
    assert every.matches(at("2025-06-01T01:59:40", repeats_half_a_minute))
    assert_same(
        every.next_after(at("~2025-06-01T01:59:40", repeats_half_a_minute)),
        at("2025-06-01T02:00", repeats_half_a_minute),
    )
    skips_half_a_minute = HandMade(timedelta(hours=1, seconds=30))  # 02:00:00 becomes 02:00:30
    assert_same(
        every.next_after(at("2025-06-01T01:59:00", skips_half_a_minute)),
        at("2025-06-01T02:01", skips_half_a_minute),
    )
    assert not every.matches(at("2025-06-01T02:00:45", skips_half_a_minute))
    # 02:00:01 becomes 02:30:01: 02:00 has begun, and that is all that is asked of an occurrence
    for moment in (timedelta(seconds=1), timedelta(microseconds=1)):
        takes_the_rest_of_a_minute = HandMade(timedelta(minutes=90), turn=HandMade.TURN + moment)
        assert every.matches(at("2025-06-01T02:00:00", takes_the_rest_of_a_minute))
        assert_same(
            every.next_after(at("2025-06-01T01:59:00", takes_the_rest_of_a_minute)),
            at("2025-06-01T02:00", takes_the_rest_of_a_minute),
        )
    # 02:00:00 becomes 01:58:50: 01:59 has begun once more, and is the second copy even where its seconds are new
    repeats_a_minute_and_more = HandMade(timedelta(minutes=58, seconds=50))
    assert not every.matches(at("~2025-06-01T01:59:20", repeats_a_minute_and_more))
    turn = Minute(instant_of(HandMade.TURN.replace(tzinfo=UTC)) // MICROSECONDS)
    assert next_due(every, turn, repeats_a_minute_and_more) == turn + 70
    assert latest_due(every, turn, repeats_a_minute_and_more) == turn - 60


class Nowhere(HandMade):
    def utcoffset(self, when: datetime | None) -> None:  # type: ignore[override]
        return None


@pytest.mark.parametrize("method", ["matches", "next_after", "previous_before"])
def test_a_zone_without_an_offset_is_no_zone(method: str) -> None:
    with pytest.raises(TypeError, match="has no offset from UTC"):
        getattr(parse_cron("* * * * *"), method)(at("2025-06-01T12:00:00", Nowhere(MINUTE)))


# --- naive datetimes: the host's local time -----------------------------------------------------------------


@pytest.fixture
def _host_in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_host_in_berlin")
@pytest.mark.parametrize(("text", "zone", "when", "expected"), [row for row in NEXT if row[1] == BERLIN])
def test_a_naive_moment_is_host_local_and_so_is_the_next(text: str, zone: str, when: str, expected: str) -> None:
    assert_same(parse_cron(text).next_after(at(when, None)), at(expected, None))


@pytest.mark.usefixtures("_host_in_berlin")
@pytest.mark.parametrize(("text", "zone", "when", "expected"), [row for row in PREVIOUS if row[1] == BERLIN])
def test_a_naive_moment_is_host_local_and_so_is_the_previous(text: str, zone: str, when: str, expected: str) -> None:
    assert_same(parse_cron(text).previous_before(at(when, None)), at(expected, None))


@pytest.mark.usefixtures("_host_in_berlin")
@pytest.mark.parametrize(("text", "zone", "when", "expected"), [row for row in MATCHES if row[1] == BERLIN])
def test_a_naive_moment_is_host_local_when_matched(text: str, zone: str, when: str, expected: bool) -> None:
    assert parse_cron(text).matches(at(when, None)) is expected


@pytest.mark.usefixtures("_host_in_berlin")
def test_naive_moments_on_the_first_and_last_day_of_the_calendar_have_left_it() -> None:
    """SPEC 6.3: `datetime` looks a day around to find a local time, and cannot do so there."""
    every = parse_cron("* * * * *")
    for edge in (datetime.min, datetime.max):
        with pytest.raises(CronCalculationError):
            every.next_after(edge)
        with pytest.raises(CronCalculationError):
            every.previous_before(edge)
        assert every.matches(edge) is False
    inside = datetime(9999, 12, 29, 12, 0)
    assert every.next_after(inside) == inside + MINUTE
    assert every.previous_before(inside) == inside - MINUTE
    assert every.matches(inside)


# --- the edges of the calendar ------------------------------------------------------------------------------

EAST, WEST = timezone(timedelta(hours=5)), timezone(timedelta(hours=-5))
FIRST, LAST = datetime.min, datetime.max.replace(second=0, microsecond=0)


@pytest.mark.parametrize(
    "zone", [UTC, ZoneInfo("UTC"), EAST, WEST, ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")]
)
def test_the_calendar_ends_with_the_last_minute_that_utc_can_name(zone: tzinfo) -> None:
    """SPEC 6.3: years 1 to 9999; at either end a zone has hours that are not in this calendar."""
    every = parse_cron("* * * * *")
    offset = LAST.replace(tzinfo=zone).utcoffset()
    assert offset is not None
    last = (LAST if offset >= timedelta(0) else LAST + offset).replace(tzinfo=zone)
    assert_same(every.previous_before(datetime.max.replace(tzinfo=zone)), last)
    assert_same(every.next_after(last - MINUTE), last)
    assert every.matches(last)
    assert every.matches(LAST.replace(tzinfo=zone)) is (offset >= timedelta(0))
    with pytest.raises(CronCalculationError):
        every.next_after(last)
    with pytest.raises(CronCalculationError):
        every.next_after(datetime.max.replace(tzinfo=zone))


@pytest.mark.parametrize("zone", [UTC, ZoneInfo("UTC"), EAST, WEST, timezone(timedelta(seconds=90))])
def test_the_calendar_begins_with_the_first_minute_that_utc_can_name(zone: tzinfo) -> None:
    """SPEC 6.3: years 1 to 9999."""
    every = parse_cron("* * * * *")
    offset = zone.utcoffset(FIRST.replace(tzinfo=zone))
    assert offset is not None
    first = FIRST + max(-(-offset // MINUTE) * MINUTE, timedelta(0))
    first = first.replace(tzinfo=zone)
    if offset > timedelta(0):
        assert_same(every.next_after(FIRST.replace(tzinfo=zone)), first)
        assert not every.matches(FIRST.replace(tzinfo=zone))
    assert_same(every.previous_before(first + MINUTE), first)
    assert every.matches(first)
    with pytest.raises(CronCalculationError):
        every.previous_before(first)
    with pytest.raises(CronCalculationError):
        every.previous_before(FIRST.replace(tzinfo=zone))


def test_minutes_outside_the_calendar_are_an_error() -> None:
    """SPEC 6.3: CronCalculationError, whatever Python says on the way."""
    every, yearly = parse_cron("* * * * *"), parse_cron("0 0 1 1 *")
    last = Minute(instant_of(LAST.replace(tzinfo=UTC)) // MICROSECONDS)
    first = Minute(instant_of(FIRST.replace(tzinfo=UTC)) // MICROSECONDS)
    assert latest_due(every, last, UTC) == last
    assert latest_due(every, first, UTC) == first
    assert next_due(every, first, UTC) == first + 60
    assert latest_due(parse_cron("1 0 1 1 *"), first, UTC) is None
    # From the last year but one into the last, and from the second into the first.
    assert yearly.next_after(datetime(MAXYEAR - 1, 2, 1, tzinfo=UTC)) == datetime(MAXYEAR, 1, 1, tzinfo=UTC)
    assert parse_cron("0 0 31 12 *").previous_before(datetime(2, 1, 1, tzinfo=UTC)) == datetime(1, 12, 31, tzinfo=UTC)
    with pytest.raises(CronCalculationError, match="no occurrence until the end of the year 9999"):
        next_due(yearly, last, UTC)
    for outside in (last + 60, first - 60, 10**18, -(10**18), 10**30):
        with pytest.raises(CronCalculationError):
            next_due(every, Minute(outside), UTC)
        with pytest.raises(CronCalculationError):
            latest_due(every, Minute(outside), UTC)
    with pytest.raises(CronCalculationError):
        next_due(every, last, EAST)  # there, it is the year 10000


def test_a_search_over_the_whole_calendar_is_short() -> None:
    """Sparse expressions leap from month to month: even from the year 1, a leap day is a few steps away."""
    leap_day = parse_cron("0 0 29 2 *")
    assert leap_day.next_after(datetime(MINYEAR, 1, 1, tzinfo=UTC)) == datetime(4, 2, 29, tzinfo=UTC)
    assert leap_day.previous_before(datetime(MAXYEAR, 12, 31, tzinfo=UTC)) == datetime(9996, 2, 29, tzinfo=UTC)
    assert steps_of(leap_day, datetime(2096, 3, 1, tzinfo=UTC)) <= 12
    assert steps_of(parse_cron("0 0 1 1 *"), datetime(2025, 3, 1, tzinfo=UTC)) <= 2
    assert steps_of(parse_cron("59 23 * * *"), datetime(2025, 3, 1, tzinfo=UTC)) == 1


def steps_of(expression: CronExpression, when: datetime) -> int:
    """How many months a search looks at."""
    steps = 0
    whole_month = occurrences.matching_days

    def counting(pattern: occurrences.Pattern, year: int, month: int) -> int:
        nonlocal steps
        steps += 1
        return whole_month(pattern, year, month)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occurrences, "matching_days", counting)
        expression.next_after(when)
    return steps


# --- against cronsim, where the rules agree -----------------------------------------------------------------


def random_field(rng: random.Random, low: int, high: int, *, star: float) -> str:
    if rng.random() < star:
        return "*"
    elements = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        first = rng.randint(low, high)
        elements.append(str(first) if rng.random() < 0.7 else f"{first}-{rng.randint(first, high)}")
    return ",".join(elements)


def random_expression(rng: random.Random) -> str:
    return " ".join(
        (
            random_field(rng, 0, 59, star=0.2),
            random_field(rng, 0, 23, star=0.4),
            random_field(rng, 1, 28, star=0.5),
            random_field(rng, 1, 12, star=0.5),
            random_field(rng, 0, 6, star=0.5),
        )
    )


@pytest.mark.parametrize("seed", range(8))
def test_cronsim_finds_the_same_occurrences_in_utc(seed: int) -> None:
    """Two implementations, one POSIX: without daylight saving, the rules are the same."""
    rng = random.Random(seed)
    for _ in range(60):
        text = random_expression(rng)
        expression = parse_cron(text)
        when = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(50 * 365 * 86400))
        later, earlier = CronSim(text, when), CronSim(text, when, reverse=True)
        after = before = when
        for _ in range(5):
            after, before = expression.next_after(after), expression.previous_before(before)
            assert after == next(later), text
            assert before == next(earlier), text


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 31 * *", "30 12 29,30 2,6 *", "0 0 31 4 1", "0 0 30 2 6,0"])
def test_cronsim_finds_the_same_rare_days(text: str) -> None:
    """SPEC 6.2 and 6.3, at the ends of months."""
    expression, when = parse_cron(text), datetime(1999, 6, 1, tzinfo=UTC)
    later, earlier = CronSim(text, when), CronSim(text, when, reverse=True)
    after = before = when
    for _ in range(40):
        after, before = expression.next_after(after), expression.previous_before(before)
        assert after == next(later)
        assert before == next(earlier)


# --- properties, anywhere -----------------------------------------------------------------------------------

TURNS = {
    BERLIN: ("2025-03-30T01:00", "2025-10-26T01:00"),
    HOWE: ("2025-04-05T15:00", "2025-10-04T15:30"),
    APIA: ("2011-04-02T14:00", "2011-09-24T14:00", "2011-12-30T10:00"),
    SAO_PAULO: ("2018-02-18T02:00", "2018-11-04T03:00"),
    BEIRUT: ("2022-03-26T22:00", "2022-10-29T21:00"),
    TROLL: ("2025-03-30T01:00", "2025-10-26T01:00"),
    MONROVIA: ("1972-01-07T00:44:30",),
    KWAJALEIN: ("1993-08-21T12:00",),
    CARACAS: ("2007-12-09T07:00",),
}
expressions = st.randoms(use_true_random=False).map(random_expression).map(parse_cron)


@st.composite
def moments(draw: st.DrawFn) -> datetime:
    """Any second of 1966 to 2096, or a local time near a transition, which need not exist."""
    name = draw(st.sampled_from(sorted(TURNS)))
    zone = ZoneInfo(name)
    if draw(st.booleans()):
        return as_datetime(draw(st.integers(-(10**8), 4 * 10**9)) * MICROSECONDS, zone)
    turn = datetime.fromisoformat(draw(st.sampled_from(TURNS[name]))).replace(tzinfo=UTC)
    wall = turn.astimezone(zone) + timedelta(seconds=draw(st.integers(-9000, 9000)))
    return wall.replace(fold=draw(st.integers(0, 1)), microsecond=draw(st.sampled_from([0, 1, 999_999])))


def instants(*whens: datetime) -> list[int]:
    return [instant_of(when) for when in whens]


@given(moments(), expressions)
def test_next_and_previous_are_neighbours(when: datetime, expression: CronExpression) -> None:
    """SPEC 2.3: nothing lies between them, and each leads back to the other."""
    before, after = expression.previous_before(when), expression.next_after(when)
    moment, earlier, later = instants(when, before, after)
    assert earlier < moment < later
    assert expression.matches(before)
    assert expression.matches(after)
    between = expression.next_after(before)
    assert_same(expression.previous_before(between), before)
    if instant_of(between) == moment:  # `when` is itself an occurrence
        assert expression.matches(when)
        assert_same(expression.next_after(between), after)
    else:
        assert_same(between, after)
        assert_same(expression.previous_before(after), before)


@given(moments(), expressions)
def test_occurrences_come_in_order_of_time_and_of_the_wall_clock(when: datetime, expression: CronExpression) -> None:
    """SPEC 2.3: first copies only, so the wall clock never shows an occurrence that it showed before."""
    found = [expression.next_after(when)]
    for _ in range(10):
        found.append(expression.next_after(found[-1]))
    walls = [moment.replace(tzinfo=None) for moment in found]
    assert walls == sorted(set(walls))
    assert instants(*found) == sorted(set(instants(*found)))
    assert all(moment.fold == 0 and moment.second == 0 and moment.microsecond == 0 for moment in found)


@given(moments(), expressions)
def test_integers_and_datetimes_agree(when: datetime, expression: CronExpression) -> None:
    """The integers of the scheduler and the datetimes of `CronExpression` agree."""
    zone = when.tzinfo
    assert zone is not None
    second = instant_of(when) // MICROSECONDS
    assert next_due(expression, Minute(second), zone) * MICROSECONDS == instant_of(expression.next_after(when))
    latest = latest_due(expression, Minute(second), zone)
    assert latest is not None
    just_after = as_datetime(instant_of(when) + 1, zone)
    assert latest * MICROSECONDS == instant_of(expression.previous_before(just_after))
    minute = minute_of(instant_of(when), zone)
    in_zone = as_datetime(instant_of(when), zone)
    assert expression.matches(in_zone) == (latest_due(expression, minute, zone) == minute)
