"""Instants, minutes and delays: integers with names, and the conversions between them and datetimes.

A minute passed where an instant belongs is a type error, and a million of them cost no more than integers.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NewType

Instant = NewType("Instant", int)
"""Microseconds since the epoch."""

Minute = NewType("Minute", int)
"""The second, counted from the epoch, at which a minute of the host's zone begins.

In seconds, because offsets of some zones were not whole minutes: their minutes begin between those of UTC.
"""

Delay = NewType("Delay", int)
"""A duration in milliseconds."""

MICROSECONDS: Final = 1_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST_INSTANT: Final = Instant(253_402_300_740 * MICROSECONDS)
"""The last minute of the year 9999, where the calendar ends (SPEC 3.6)."""

_ONE_MICROSECOND: Final = timedelta(microseconds=1)


def instant_of(when: datetime) -> Instant:
    """The instant of an aware datetime, exactly (`timestamp()` would round through a float)."""
    return Instant((when - EPOCH) // _ONE_MICROSECOND)


def begin(minute: Minute) -> Instant:
    """The instant at which a minute begins."""
    return Instant(minute * MICROSECONDS)


def as_datetime(instant: int, zone: tzinfo) -> datetime:
    """An instant as an aware datetime in a zone, or in UTC if the zone cannot show it (SPEC 3.6)."""
    when = EPOCH + timedelta(microseconds=instant)
    try:
        return when.astimezone(zone)
    except OverflowError:
        return when


def minute_of(instant: Instant, zone: tzinfo) -> Minute:
    """The minute of the zone that contains an instant."""
    second = instant // MICROSECONDS
    offset = (EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset()
    assert offset is not None
    return Minute(second - (second + int(offset.total_seconds())) % 60)


def zone_name(zone: tzinfo) -> str:
    """The name of a zone, as events and stores have it."""
    return str(getattr(zone, "key", None) or zone)


def delay_of(duration: timedelta) -> Delay:
    """A duration in whole milliseconds, rounded away from zero so that no delay becomes shorter."""
    microseconds = duration // _ONE_MICROSECOND
    return Delay(-(-microseconds // 1000) if microseconds >= 0 else microseconds // 1000)


def after(instant: Instant, delay: Delay) -> Instant:
    """The instant after a delay, at most the last of the calendar."""
    return Instant(min(instant + delay * 1000, LAST_INSTANT))
