"""Zones by what they mean: two names of one zone, such as `UTC` and `Etc/UTC`, are one zone."""

from datetime import timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from duly.core.moments import EPOCH, MICROSECONDS, Instant, zone_name

_DAY: Final = 86_400
_BEFORE: Final = 366 * _DAY
_AFTER: Final = 3_660 * _DAY


def zone_of_name(name: str) -> tzinfo | None:
    """The zone that `zone_name` calls so; None if this host does not know it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_zone(zone: tzinfo, name: str, now: Instant) -> bool:
    """Whether a zone is the one of this name, or has its rules: then every expression means the same instants."""
    if zone_name(zone) == name:
        return True
    named = zone_of_name(name)
    return named is not None and have_same_rules(zone, named, now)


def have_same_rules(one: tzinfo, other: tzinfo, now: Instant) -> bool:
    """Whether two zones show the same time at every instant, from a year before now to ten years after it.

    Compares what clocks show, not names: the tz database has hundreds of links, and zones that differed long ago.
    """
    second = now // MICROSECONDS
    begin = second - _BEFORE
    if (offset := offset_at(one, begin)) != offset_at(other, begin):
        return False
    for low in range(begin, second + _AFTER, _DAY):
        high = low + _DAY  # no zone changes its offset and changes it back within a day
        later = offset_at(one, high)
        if later != offset_at(other, high):
            return False
        if later != offset and turning_point(one, low, high) != turning_point(other, low, high):
            return False
        offset = later
    return True


def turning_point(zone: tzinfo, low: int, high: int) -> int:
    """The first second after `low` at which the zone has another offset; it has one at `high`."""
    before = offset_at(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


def offset_at(zone: tzinfo, second: int) -> timedelta | None:
    """The zone's offset from UTC at a second since the epoch; None beyond the calendar."""
    try:
        return (EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    except OverflowError:  # beyond the calendar
        return None
