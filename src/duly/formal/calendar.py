"""The checker's own cron arithmetic: whole days of instants, listed minute by minute, and searched by bisection.

It shares nothing with the scheduler's: a checker with the scheduler's arithmetic would confirm its mistakes. Where the
scheduler leaps over bit sets, this takes the obvious way. A local day is a table of its 1,440 minutes, each with the
instant at which it first occurs, or nothing if the zone skips it (SPEC 2.2, 2.3). The occurrences of an expression on
that day are those of its minutes. Both are kept per day, because a trace walks through time.
"""

import re
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from duly.core.moments import MICROSECONDS, Instant
from duly.formal.trace import CRON_CHARACTERS_MAX

MINUTE: Final = 60 * MICROSECONDS
NEVER: Final = Instant(1 << 62)
"""Later than everything: no occurrence, no retry, no deadline."""

_EPOCH: Final = datetime(1970, 1, 1)
_TICK: Final = timedelta(microseconds=1)
_LIMITS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_DAYS_KEPT: Final = 64
_LEAP_YEAR: Final = 2024
_FIRST, _LAST = date(1, 1, 2).toordinal(), date(9999, 12, 30).toordinal()
_FIRST_INSTANT, _LAST_INSTANT = ((day - _EPOCH) // _TICK for day in (datetime(1, 1, 2), datetime(9999, 12, 31)))


@lru_cache(maxsize=64)
def zone_named(name: str) -> tzinfo:
    """The zone of an IANA name, or of a fixed offset such as UTC+02:00. Raises ValueError."""
    if fixed := re.fullmatch(r"UTC([+-])([0-9]{2}):([0-5][0-9])(?::([0-5][0-9]))?", name):
        sign = -1 if fixed[1] == "-" else 1
        offset = timedelta(hours=int(fixed[2]), minutes=int(fixed[3]), seconds=int(fixed[4] or 0))
        return timezone(sign * offset)
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as fault:  # unknown, a folder of the database, a path
        raise ValueError(f"unknown time zone {name[:80]!r}") from fault


@lru_cache(maxsize=64)
def zone_of(name: str) -> "Zone":
    """The zone of a name: one object per name, because it remembers what it has computed. Raises ValueError."""
    return Zone(name)


class Zone:
    """A zone, and the minutes of its days."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._zone = zone_named(name)
        self._hour: int | None = None  # the hour since the epoch whose offset is remembered
        self._offset = 0
        self.minutes_of: Callable[[int], Sequence[int | None]] = lru_cache(maxsize=_DAYS_KEPT)(self._minutes_of)

    def minute(self, at: Instant) -> Instant:
        """The beginning of the local minute that contains an instant."""
        # Offsets change at most once within an hour; where they do, that hour is not remembered.
        hour = at // (60 * MINUTE)
        if hour == self._hour:
            offset = self._offset
        else:
            offset = self._offset_at(at)
            begin = hour * 60 * MINUTE
            if self._offset_at(begin) == self._offset_at(begin + 60 * MINUTE - 1):
                self._hour, self._offset = hour, offset
        return Instant(at - (at + offset) % MINUTE)

    def day_of(self, at: Instant) -> int:
        """The local day that contains an instant, as an ordinal."""
        return (_EPOCH + timedelta(microseconds=_inside(at) + self._offset_at(at))).toordinal()

    def _offset_at(self, at: int) -> int:
        """How far local time is ahead, in microseconds."""
        offset = (_EPOCH + timedelta(microseconds=_inside(at))).replace(tzinfo=UTC).astimezone(self._zone).utcoffset()
        assert offset is not None
        return offset // _TICK

    def _minutes_of(self, ordinal: int) -> Sequence[int | None]:
        """The instants at which the minutes of a local day first occur; None for a minute that does not exist."""
        day = datetime.fromordinal(ordinal)
        begin, end = self._first_copy(day), self._first_copy(day + timedelta(days=1))
        if begin is not None and end is not None and end - begin == 1440 * MINUTE:
            return range(begin, end, MINUTE)  # an ordinary day
        return [self._first_copy(day + timedelta(minutes=number)) for number in range(1440)]

    def _first_copy(self, local: datetime) -> Instant | None:
        """When the wall clock first shows this; None if it never does."""
        utc = local.replace(tzinfo=self._zone, fold=0).astimezone(UTC)
        if utc.astimezone(self._zone).replace(tzinfo=None) != local:
            return None  # there and back again leads elsewhere: the minute is skipped
        return Instant((utc.replace(tzinfo=None) - _EPOCH) // _TICK)


class Schedule:
    """The occurrences of an expression in a zone."""

    def __init__(self, text: str, zone: Zone) -> None:
        self.text = text
        self.zone = zone
        self._minutes, self._hours, self._days, self._months, self._weekdays, self._either = parse(text)
        self.known_from: Instant = NEVER  # for an instant between these two, `after` is the second
        self.known_until: Instant = NEVER
        self._today: list[Instant] = []
        self._occurrences_on = lru_cache(maxsize=_DAYS_KEPT)(self._list_day)

    def after(self, at: Instant) -> Instant:
        """The first occurrence after an instant; NEVER if the calendar ends before it."""
        # The last answer holds for every instant from the one that was asked about to the answer itself.
        if self.known_from <= at < self.known_until:
            return self.known_until
        today = self._today
        if today and today[0] <= at < today[-1]:  # no occurrence of another day lies between those of one day
            answer = today[bisect_right(today, at)]
        else:
            answer = self._search_after(at)
        self.known_from, self.known_until = at, answer
        return answer

    def latest(self, at: Instant) -> Instant | None:
        """The last occurrence at or before an instant; None if the calendar has none."""
        # A zone can set its clock back over midnight: then the day after today has begun once already.
        for ordinal in self._matching_days(min(self.zone.day_of(at) + 1, _LAST), step=-1):
            occurrences = self._occurrences_on(ordinal)
            if found := bisect_right(occurrences, at):
                return occurrences[found - 1]
        return None

    def _search_after(self, at: Instant) -> Instant:
        for ordinal in self._matching_days(max(self.zone.day_of(at), _FIRST), step=1):
            occurrences = self._occurrences_on(ordinal)
            found = bisect_right(occurrences, at)
            if found < len(occurrences):
                self._today = occurrences
                return occurrences[found]
        return NEVER

    def _matching_days(self, ordinal: int, *, step: int) -> Iterator[int]:
        while _FIRST <= ordinal <= _LAST:
            day = date.fromordinal(ordinal)
            if day.month not in self._months:  # on to the first day of the next month, or the last of the one before
                ordinal += monthrange(day.year, day.month)[1] - day.day + 1 if step > 0 else -day.day
                continue
            by_day, by_weekday = day.day in self._days, day.isoweekday() % 7 in self._weekdays
            if (by_day or by_weekday) if self._either else (by_day and by_weekday):
                yield ordinal
            ordinal += step

    def _list_day(self, ordinal: int) -> list[Instant]:
        minutes = self.zone.minutes_of(ordinal)
        found = (minutes[60 * hour + minute] for hour in self._hours for minute in self._minutes)
        return sorted(Instant(at) for at in found if at is not None)


def _inside(at: int) -> int:
    """An instant, kept at least a day away from the ends of the calendar, beyond which there is no local time."""
    return max(_FIRST_INSTANT, min(at, _LAST_INSTANT))


def parse(text: str) -> tuple[list[int], list[int], set[int], set[int], set[int], bool]:
    """Minutes, hours, days, months, weekdays, and whether a day may match either day field (SPEC 6.2).

    Raises ValueError.
    """
    if len(text) > CRON_CHARACTERS_MAX:
        raise ValueError(
            f"a cron expression has {len(text):,} characters, one in a trace at most {CRON_CHARACTERS_MAX:,}"
        )
    fields = re.split(r"[ \t]+", text.strip(" \t"), maxsplit=5)
    if len(fields) != 5:
        raise ValueError(f"cron expression {text[:80]!r} does not have 5 fields")
    minutes, hours, days, months, weekdays = (
        _numbers(field, *limits) for field, limits in zip(fields, _LIMITS, strict=True)
    )
    if fields[4] == "*" and min(days) > max(monthrange(_LEAP_YEAR, month)[1] for month in months):
        raise ValueError(f"cron expression {text[:80]!r} never matches")  # SPEC 6.3: no scheduler takes it
    return sorted(minutes), sorted(hours), days, months, weekdays, fields[2] != "*" and fields[4] != "*"


def _numbers(field: str, low: int, high: int) -> set[int]:
    if field == "*":
        return set(range(low, high + 1))
    numbers: set[int] = set()
    for element in field.split(","):
        # One by one, and in a form with one way to match: a list of them has exponentially many ways not to.
        found = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", element)
        if found is None:
            raise ValueError(f"cron field {field[:40]!r} is neither '*' nor numbers and ranges")
        begin = _number(found[1])
        end = begin if found[2] is None else _number(found[2])
        if not low <= begin <= end <= high:
            raise ValueError(f"cron field {field[:40]!r} leaves the range {low}-{high}")
        numbers.update(range(begin, end + 1))
    return numbers


def _number(digits: str) -> int:
    """The value of digits, cut to three: a number of three digits is out of every range, as is a longer one."""
    return int(digits.lstrip("0")[:3] or "0")
