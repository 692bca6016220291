"""When an expression occurs in a zone: a search on the wall clock, and its mapping to instants.

An occurrence is an instant whose local second is 0 and whose local minute the expression names. Where a zone
changes its offset, two things can happen to a local minute, and its two offsets (PEP 495) tell which:

    offset with fold=0 < offset with fold=1    skipped: the minute does not exist, nothing is due (SPEC 2.2)
    offset with fold=0 > offset with fold=1    repeated: due at its first copy, fold=0, only (SPEC 2.3)

First copies follow each other in the order of the wall clock. So the search walks the wall clock, in leaps of
bit operations, and refuses what does not exist or lies on the wrong side of the moment asked about.
"""

from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Final

Pattern = tuple[int, int, int, int, int]
"""The minutes, hours, days, weeks and months of an expression: sets as integers, bit n standing for value n.

A day matches if `days` or `weeks` contains it. That includes the rule which joins the day fields (SPEC 6.2):
`days` is empty if only the weekday is restricted, `weeks` is empty if the weekday is not. `weeks` is the set of
weekdays, bit 0 for Sunday, six times in a row; shifted by the weekday of a month's first day it is a set of days.
"""

_NOTHING: Final = timedelta(0)
_EPOCH: Final = datetime(1970, 1, 1)
_SIX_WEEKS: Final = sum(1 << 7 * week for week in range(6))
_DAYS_OF_MONTH: Final = tuple((2 << length) - 2 for length in (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))
_DAYS_OF_LEAP_FEBRUARY: Final = (2 << 29) - 2
_MONTHS_WITH_30, _MONTHS_WITH_31 = (
    sum(1 << month for month in range(1, 13) if _DAYS_OF_MONTH[month] >> day) for day in (30, 31)
)


def pattern_of(minutes: int, hours: int, days: int | None, months: int, weekdays: int | None) -> Pattern:
    """The pattern of five sets, None being a day field that is not restricted."""
    if weekdays is not None:
        return minutes, hours, days or 0, weekdays * _SIX_WEEKS, months
    return minutes, hours, _DAYS_OF_MONTH[1] if days is None else days, 0, months


def can_match(pattern: Pattern) -> bool:
    """Whether some year has a day that matches; 30 February never comes (SPEC 6.3)."""
    _, _, days, weeks, months = pattern
    if weeks or days & _DAYS_OF_LEAP_FEBRUARY:
        return True  # any month has each weekday and, in some year, the days 1 to 29
    return bool(months & (_MONTHS_WITH_30 if days >> 30 & 1 else _MONTHS_WITH_31))


# --- searching ----------------------------------------------------------------------------------------------


def is_due(pattern: Pattern, when: datetime) -> bool:
    """Whether the minute that contains `when` matches, exists, and is not the second copy of itself."""
    minutes, hours, _, _, _ = pattern
    if not (minutes >> when.minute & 1 and hours >> when.hour & 1):
        return False
    if not matching_days(pattern, when.year, when.month) >> when.day & 1:
        return False
    zone = when.tzinfo or _HOST_ZONE
    began, again = _copies(when.year, when.month, when.day, when.hour, when.minute, zone)
    offset = _offset(began, zone)
    # Another offset at the minute's beginning: `when` is in its second copy, or a gap took the beginning away.
    if offset != _offset(when, zone) or offset < _offset(again, zone):
        return False
    return 1 < began.year < 9999 or _is_in_calendar(began, offset)


def following(pattern: Pattern, when: datetime) -> datetime:
    """The first occurrence strictly after `when`, in its zone; naive in host-local time if `when` is naive.

    Raises OverflowError where the calendar ends.
    """
    zone = when.tzinfo
    if zone is None:
        return following(pattern, when.replace(tzinfo=_HOST_ZONE)).replace(tzinfo=None)
    offset = _offset(when, zone)
    found = when
    if when.fold:
        # A skipped minute with fold=1 names an instant before the gap, where the wall clock shows less.
        found += min(_offset(when.replace(fold=0), zone) - offset, _NOTHING)
    while True:
        found, again = _next_shown(pattern, found, zone)
        found_offset, again_offset = zone.utcoffset(found), zone.utcoffset(again)
        assert found_offset is not None and again_offset is not None
        if found_offset < again_offset:
            continue  # skipped
        if found_offset != offset and found - when <= found_offset - offset:
            continue  # not after `when`, which is in a second copy or in a skipped minute
        if 1 < found.year < 9999 or _is_in_calendar(found, found_offset):
            return found


def preceding(pattern: Pattern, when: datetime) -> datetime:
    """The latest occurrence strictly before `when`, in its zone; naive in host-local time if `when` is naive.

    Raises OverflowError where the calendar begins.
    """
    zone = when.tzinfo
    if zone is None:
        return preceding(pattern, when.replace(tzinfo=_HOST_ZONE)).replace(tzinfo=None)
    offset = _offset(when, zone)
    # In a second copy, the wall clock has shown more before. A skipped minute with fold=0 is after the gap.
    found = when + max(_offset(when.replace(fold=1 - when.fold), zone) - offset, _NOTHING)
    while True:
        found, again = _previous_shown(pattern, found, zone)
        found_offset, again_offset = zone.utcoffset(found), zone.utcoffset(again)
        assert found_offset is not None and again_offset is not None
        if found_offset < again_offset:
            continue  # skipped
        if when - found <= offset - found_offset:
            continue  # not before `when`
        if 1 < found.year < 9999 or _is_in_calendar(found, found_offset):
            return found


def first_copy(day: date, hour: int, minute: int, zone: tzinfo) -> datetime | None:
    """The minute of a day as its zone shows it first; None if the zone skips it, or the calendar does not have it."""
    try:
        first, again = _copies(day.year, day.month, day.day, hour, minute, zone)
        offset = _offset(first, zone)
        return first if offset >= _offset(again, zone) and _is_in_calendar(first, offset) else None
    except OverflowError:  # a local time that the host cannot place
        return None


def _offset(civil: datetime, zone: tzinfo) -> timedelta:
    """The offset from UTC; `civil.utcoffset()` takes five times as long."""
    offset = zone.utcoffset(civil)
    if offset is None:
        raise TypeError(f"the time zone {zone!r} has no offset from UTC")
    return offset


def _is_in_calendar(civil: datetime, offset: timedelta) -> bool:
    """Whether UTC can name the instant as well: the first and last hours of the calendar exist only in some zones."""
    try:
        civil.replace(tzinfo=None) - offset
    except OverflowError:
        return False
    return True


# --- the wall clock -----------------------------------------------------------------------------------------
#
# (set & -set).bit_length() is the least value of a set plus one, set.bit_length() the greatest plus one.


def _next_shown(pattern: Pattern, civil: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The first matching minute after `civil` on a wall clock without gaps and repeats, with both its folds."""
    minutes, hours, _, _, months = pattern
    year, month, day = civil.year, civil.month, civil.day
    days = matching_days(pattern, year, month)
    if days >> day & 1:
        hour = civil.hour
        if hours >> hour & 1:
            minute = civil.minute
            if later := minutes >> minute + 1:
                return _copies(year, month, day, hour, minute + (later & -later).bit_length(), zone)
        if later := hours >> hour + 1:
            hour += (later & -later).bit_length()
            return _copies(year, month, day, hour, (minutes & -minutes).bit_length() - 1, zone)
    later = days >> day + 1
    while not later:
        day = 0
        if later := months >> month + 1:
            month += (later & -later).bit_length()
        else:
            year += 1
            month = (months & -months).bit_length() - 1
            if year > 9999:
                raise OverflowError("no occurrence until the end of the year 9999")
        later = matching_days(pattern, year, month) >> 1
    day += (later & -later).bit_length()
    return _copies(year, month, day, (hours & -hours).bit_length() - 1, (minutes & -minutes).bit_length() - 1, zone)


def _previous_shown(pattern: Pattern, civil: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The last matching minute that began before `civil` on a wall clock without gaps, with both its folds."""
    minutes, hours, _, _, months = pattern
    year, month, day = civil.year, civil.month, civil.day
    days = matching_days(pattern, year, month)
    if days >> day & 1:
        hour = civil.hour
        if hours >> hour & 1:
            begun = civil.minute + (civil.second > 0 or civil.microsecond > 0)
            if earlier := minutes & (1 << begun) - 1:
                return _copies(year, month, day, hour, earlier.bit_length() - 1, zone)
        if earlier := hours & (1 << hour) - 1:
            return _copies(year, month, day, earlier.bit_length() - 1, minutes.bit_length() - 1, zone)
    earlier = days & (1 << day) - 1
    while not earlier:
        if earlier := months & (1 << month) - 1:
            month = earlier.bit_length() - 1
        else:
            year -= 1
            month = months.bit_length() - 1
            if year < 1:
                raise OverflowError("no occurrence since the beginning of the year 1")
        earlier = matching_days(pattern, year, month)
    return _copies(year, month, earlier.bit_length() - 1, hours.bit_length() - 1, minutes.bit_length() - 1, zone)


def _copies(year: int, month: int, day: int, hour: int, minute: int, zone: tzinfo) -> tuple[datetime, datetime]:
    """A minute with fold=0 and with fold=1; replace(fold=1) would take as long as the rest of the search."""
    first = datetime(year, month, day, hour, minute, 0, 0, zone)
    if type(zone) is timezone:  # a fixed offset: there is one copy
        return first, first
    return first, datetime(year, month, day, hour, minute, 0, 0, zone, fold=1)


def matching_days(pattern: Pattern, year: int, month: int) -> int:
    """The matching days of a month, as a set."""
    _, _, days, weeks, months = pattern
    if not months >> month & 1:
        return 0
    if weeks:
        days |= weeks >> date(year, month, 1).isoweekday() % 7 << 1
    if month == 2 and year % 4 == 0 and (year % 100 or year % 400 == 0):
        return days & _DAYS_OF_LEAP_FEBRUARY
    return days & _DAYS_OF_MONTH[month]


class _HostZone(tzinfo):
    """The zone of naive datetimes: the host's, by the rules of `datetime.timestamp`, that is PEP 495."""

    def utcoffset(self, when: datetime | None, /) -> timedelta | None:
        assert when is not None
        naive = when.replace(tzinfo=None, microsecond=0)
        try:
            # Not astimezone(): in a gap, some versions of Python answer with the offset of the other fold.
            return naive - _EPOCH - timedelta(seconds=naive.timestamp())
        except (ValueError, OSError) as fault:  # platforms differ near the ends of the calendar
            raise OverflowError(f"the host knows no local time for {naive}") from fault

    def dst(self, when: datetime | None, /) -> timedelta | None:
        return None

    def tzname(self, when: datetime | None, /) -> str | None:
        return None


_HOST_ZONE: Final = _HostZone()
