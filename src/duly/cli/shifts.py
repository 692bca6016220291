"""Where a zone changes its offset, and what that does to an expression: minutes skipped, minutes repeated."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from duly.core.cron import CronExpression
from duly.core.moments import EPOCH
from duly.errors import CronCalculationError

_STRIDE: Final = 6 * 3600
"""No zone has ever changed its offset and changed it back within six hours."""

_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Shift:
    """A moment at which the wall clock leaps; `before` and `after` are what it shows, both naive."""

    at: datetime  # in UTC
    before: datetime
    after: datetime

    @property
    def skips(self) -> bool:
        """Whether wall-clock time is left out; otherwise it is repeated."""
        return self.after > self.before

    def affected(self, expression: CronExpression) -> list[datetime]:
        """The naive wall-clock minutes that an expression names and that do not exist, or exist twice."""
        first, last = min(self.before, self.after), max(self.before, self.after)
        minute = first.replace(second=0, microsecond=0)
        if minute < first:
            minute += _MINUTE
        found = []
        while minute < last:
            if expression.matches(minute.replace(tzinfo=UTC)):  # UTC skips nothing: this asks about the text alone
                found.append(minute)
            minute += _MINUTE
        return found


def shifts(zone: tzinfo, since: datetime, until: datetime) -> Iterator[Shift]:
    """Every change of a zone's offset after `since` and up to `until`, both aware, in order."""
    low, end = _second(since), _second(until)
    offset = _offset(zone, low)
    while low < end:
        high = min(low + _STRIDE, end)
        later = _offset(zone, high)
        if later != offset:
            at = _turning_point(zone, low, high, offset)
            shown = (EPOCH + timedelta(seconds=at)).replace(tzinfo=None)
            yield Shift(EPOCH + timedelta(seconds=at), shown + offset, shown + later)
        low, offset = high, later


def _turning_point(zone: tzinfo, low: int, high: int, offset: timedelta) -> int:
    """The first second at which the offset is another one."""
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high


def _second(when: datetime) -> int:
    return (when - EPOCH) // timedelta(seconds=1)


def _offset(zone: tzinfo, second: int) -> timedelta:
    try:
        offset = (EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    except OverflowError:  # the last hours of the calendar
        offset = None
    return offset if offset is not None else timedelta(0)


def leaps(expression: CronExpression, zone: tzinfo, since: datetime, until: datetime) -> Iterator[Shift]:
    """The changes of offset after `since` and up to `until` that skip or repeat minutes an expression names.

    Follows the expression, not the calendar: four thousand years of 29 February cost a thousand questions.
    """
    naive_until = min(until.astimezone(zone).replace(tzinfo=None), datetime.max - _DAY) + _DAY
    wall = max(since.astimezone(zone).replace(tzinfo=None), datetime.min + _DAY) - _DAY
    since, until = since.astimezone(UTC), until.astimezone(UTC)  # in one zone, Python would compare wall clocks
    passed: Shift | None = None
    while True:
        try:
            wall = expression.next_after(wall.replace(tzinfo=UTC)).replace(tzinfo=None)
        except CronCalculationError:
            return
        if wall > naive_until:
            return
        if passed is not None and wall < max(passed.before, passed.after):
            continue
        if (shift := shift_around(zone, wall)) is not None:
            passed = shift
            if since < shift.at <= until:
                yield shift


def shift_around(zone: tzinfo, wall: datetime) -> Shift | None:
    """The leap that a naive wall-clock time falls into: the time does not exist, or exists twice."""
    first, second = wall.replace(tzinfo=zone, fold=0), wall.replace(tzinfo=zone, fold=1)
    try:
        if first.utcoffset() == second.utcoffset():
            return None
        instants = sorted((first.astimezone(UTC), second.astimezone(UTC)))
    except OverflowError:  # at the ends of the calendar
        return None
    for shift in shifts(zone, instants[0] - _DAY, instants[1] + _DAY):
        if min(shift.before, shift.after) <= wall < max(shift.before, shift.after):
            return shift
    return None
