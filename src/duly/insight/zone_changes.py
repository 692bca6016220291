"""Where a zone changes its offset, and what that does to an expression: minutes skipped, minutes repeated."""

import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Literal

from duly.core.cron import CronExpression
from duly.core.moments import EPOCH, MICROSECONDS, Instant, Minute, as_datetime
from duly.core.zones import offset_at, turning_point
from duly.errors import CronCalculationError
from duly.insight.words import listed

_STRIDE: Final = 6 * 3600
"""No zone has ever changed its offset and changed it back within six hours."""

_MINUTES_LISTED_MAX: Final = 4
_SECOND: Final = timedelta(seconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ZoneChange:
    """A moment at which a zone changes its offset; the clocks show naive wall-clock time."""

    at: datetime  #: when the clocks change, in UTC
    clock_before: datetime  #: what clocks would show then without the change
    clock_after: datetime  #: what they show

    @property
    def skips(self) -> bool:
        """Whether wall-clock time is left out; otherwise it is repeated."""
        return self.clock_after > self.clock_before

    @property
    def hours(self) -> frozenset[int]:
        """The hours of the day in which wall-clock time is left out or repeated."""
        first, last = min(self.clock_before, self.clock_after), max(self.clock_before, self.clock_after)
        whole = first.replace(minute=0, second=0, microsecond=0)
        return frozenset((whole.hour + n) % 24 for n in range(min(24, -((whole - last) // timedelta(hours=1)))))

    def minutes_of(self, expression: CronExpression) -> tuple[datetime, ...]:
        """The wall-clock minutes that an expression names and that do not exist, or exist twice.

        Parameters:
            expression: the cron expression.
        """
        first, last = min(self.clock_before, self.clock_after), max(self.clock_before, self.clock_after)
        found = []
        # UTC skips nothing: this asks about the text alone.
        minute = first.replace(tzinfo=UTC) - _MICROSECOND
        with contextlib.suppress(CronCalculationError):  # the calendar ends in 9999
            while (minute := expression.next_after(minute)) < last.replace(tzinfo=UTC):
                found.append(minute.replace(tzinfo=None))
        return tuple(found)

    def leap_of(self, expression: CronExpression) -> "Leap":
        """The effect of this change on an expression.

        Parameters:
            expression: the cron expression.
        """
        kind: Literal["skipped", "repeated"] = "skipped" if self.skips else "repeated"
        return Leap(kind, self.at, self.clock_before, self.clock_after, self.minutes_of(expression))


@dataclass(frozen=True, slots=True)
class Leap:
    """A change of a zone that skips or repeats minutes which an expression names."""

    kind: Literal["skipped", "repeated"]  #: whether the minutes do not exist, or exist twice
    at: datetime  #: when the clocks change, in UTC
    clock_before: datetime  #: what clocks would show then without the change
    clock_after: datetime  #: what they show
    minutes: tuple[datetime, ...]
    """The minutes, as the wall clock shows them."""


def leap_in_words(leap: Leap) -> str:
    """A leap as a line for people."""
    minutes, before, after = leap.minutes, leap.clock_before, leap.clock_after
    shown = [f"{minute:%H:%M}" for minute in minutes]
    if len(shown) > _MINUTES_LISTED_MAX:
        shown = [f"{shown[0]} to {shown[-1]} ({len(shown)} minutes)"]
    what = listed(shown)
    one = len(minutes) == 1
    form = "%H:%M" if before.date() == after.date() else "%Y-%m-%d %H:%M"
    clocks = f"from {before:{form}} to {after:{form}}"
    if leap.kind == "skipped":
        text = f"{what} {'does' if one else 'do'} not exist: clocks go forward {clocks}, "
        text += f"nothing runs for {'it' if one else 'them'}"
    else:
        text = f"{what} {'occurs' if one else 'occur'} twice: clocks go back {clocks}, due the first time only"
    return f"{minutes[0]:%a %Y-%m-%d} {text}"


def zone_changes(zone: tzinfo, since: datetime, until: datetime) -> Iterator[ZoneChange]:
    """Every change of a zone's offset after `since` and up to `until`, both aware, in order."""
    low, end = _second(since), _second(until)
    offset = _offset(zone, low)
    while low < end:
        high = min(low + _STRIDE, end)
        later = _offset(zone, high)
        if later != offset:
            at = turning_point(zone, low, high)
            shown = (EPOCH + timedelta(seconds=at)).replace(tzinfo=None)
            yield ZoneChange(EPOCH + timedelta(seconds=at), shown + offset, shown + later)
        low, offset = high, later


def _second(when: datetime) -> int:
    return (when - EPOCH) // timedelta(seconds=1)


def _offset(zone: tzinfo, second: int) -> timedelta:
    return offset_at(zone, second) or timedelta(0)  # in the last hours of the calendar there is none


class LocalTime:
    """The local time of a zone within a stretch of time, by integers: datetimes take ten times as long.

    Parameters:
        zone: the zone.
        since: the first instant that is asked for.
        until: the last one.
    """

    def __init__(self, zone: tzinfo, since: Instant, until: Instant) -> None:
        first = since // MICROSECONDS
        self._turns: list[int] = []
        self._offsets = [_offset(zone, first) // _SECOND]
        for change in zone_changes(zone, as_datetime(since, UTC), as_datetime(until, UTC)):
            self._turns.append(_second(change.at))
            self._offsets.append(_offset(zone, self._turns[-1]) // _SECOND)

    def shown(self, instant: Instant) -> int:
        """The local time in seconds since 1970 began there; fractions of a second are left out."""
        second = instant // MICROSECONDS
        return second + self._offsets[bisect_right(self._turns, second)]

    def steady_until(self, instant: Instant) -> Instant:
        """The end of the local day of an instant, or the change of the zone before it."""
        second = instant // MICROSECONDS
        place = bisect_right(self._turns, second)
        day_end = second + 86_400 - (second + self._offsets[place]) % 86_400
        return Instant(min([day_end, *self._turns[place : place + 1]]) * MICROSECONDS)

    def minutes(self, instants: Iterable[Instant]) -> set[Minute]:
        """The minutes that contain any of many instants."""
        seconds = {instant // MICROSECONDS for instant in instants}
        turns, offsets = self._turns, self._offsets
        if not turns:
            (offset,) = offsets
            return {Minute(second - (second + offset) % 60) for second in seconds}
        return {Minute(second - (second + offsets[bisect_right(turns, second)]) % 60) for second in seconds}


def leaps_at(changes: Iterable[ZoneChange], expression: CronExpression) -> Iterator[Leap]:
    """The leaps of an expression at known changes of a zone, in their order.

    Asks only about the minutes that a change skips or repeats, so that every minute of a year costs no more than one.
    The changes do not depend on the expression, so they are found once for many expressions.
    """
    return (leap for change in changes if (leap := change.leap_of(expression)).minutes)


def leaps(expression: CronExpression, zone: tzinfo, since: datetime, until: datetime) -> Iterator[Leap]:
    """The leaps of an expression after `since` and up to `until`, in order.

    Follows the expression, not the calendar: four thousand years of 29 February cost a thousand questions. For a few
    years, `leaps_at` with `zone_changes` is faster: one year of an expression that names every minute costs half a
    million questions here.
    """
    naive_until = min(until.astimezone(zone).replace(tzinfo=None), datetime.max - _DAY) + _DAY
    wall = max(since.astimezone(zone).replace(tzinfo=None), datetime.min + _DAY) - _DAY
    since, until = since.astimezone(UTC), until.astimezone(UTC)  # in one zone, Python would compare wall clocks
    passed: ZoneChange | None = None
    while True:
        try:
            wall = expression.next_after(wall.replace(tzinfo=UTC)).replace(tzinfo=None)
        except CronCalculationError:
            return
        if wall > naive_until:
            return
        if passed is not None and wall < max(passed.clock_before, passed.clock_after):
            continue
        if (change := zone_change_around(zone, wall)) is not None:
            passed = change
            if since < change.at <= until:
                yield change.leap_of(expression)


def zone_change_around(zone: tzinfo, wall: datetime) -> ZoneChange | None:
    """The change that a naive wall-clock time falls into: the time does not exist, or exists twice."""
    first, second = wall.replace(tzinfo=zone, fold=0), wall.replace(tzinfo=zone, fold=1)
    try:
        if first.utcoffset() == second.utcoffset():
            return None
        instants = sorted((first.astimezone(UTC), second.astimezone(UTC)))
    except OverflowError:  # at the ends of the calendar
        return None
    for change in zone_changes(zone, instants[0] - _DAY, instants[1] + _DAY):
        if min(change.clock_before, change.clock_after) <= wall < max(change.clock_before, change.clock_after):
            return change
    return None
