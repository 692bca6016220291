"""The days of a zone, with the instants of their minutes: computed once for any number of expressions.

Minutes of a day without a change of the zone's offset follow each other by addition. Those of any other day are asked
for one by one: skipped ones do not exist (SPEC 2.2), repeated ones stand where they come first (SPEC 2.3).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final, cast

from duly.core.moments import MICROSECONDS, Minute, instant_of
from duly.core.occurrences import first_copy

_QUARTER: Final = timedelta(hours=6)
"""No zone has ever changed its offset and changed it back within six hours."""

_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class LocalDay:
    """A day as the clocks of a zone show it."""

    date: date
    minutes: Sequence[Minute | None]
    """By their places, 60 * hour + minute; None if the zone skips the minute, or nobody asked for it."""


def local_days(after: Minute, before: Minute, zone: tzinfo) -> Iterator[LocalDay]:
    """The days that have minutes strictly between two minutes, with these minutes alone, up to the year 9999."""
    first, last = _date_at(after, zone), _date_at(before, zone) or date.max
    if first is None:
        return
    # A day more: where the clock went back over midnight, it has shown minutes of the next day before.
    for number in range(first.toordinal(), min(last.toordinal() + 1, date.max.toordinal()) + 1):
        day = date.fromordinal(number)
        minutes = _minutes_of(day, zone)
        begin, end = minutes[0], minutes[-1]
        if begin is None or end is None or begin <= after or end >= before:
            minutes = [minute if minute is not None and after < minute < before else None for minute in minutes]
            if not any(minute is not None for minute in minutes):
                continue
        yield LocalDay(day, minutes)


def _date_at(second: int, zone: tzinfo) -> date | None:
    """The date that clocks show at a second since the epoch; None beyond the calendar."""
    try:
        return datetime.fromtimestamp(second, zone).date()
    except (OverflowError, ValueError, OSError):
        return None


def _minutes_of(day: date, zone: tzinfo) -> Sequence[Minute | None]:
    if _is_steady(day, zone):
        midnight = instant_of(datetime.combine(day, time(), zone)) // MICROSECONDS
        return cast("Sequence[Minute]", range(midnight, midnight + _DAY_SECONDS, 60))
    shown = [first_copy(day, hour, minute, zone) for hour in range(24) for minute in range(60)]
    return [None if copy is None else Minute(instant_of(copy) // MICROSECONDS) for copy in shown]


def _is_steady(day: date, zone: tzinfo) -> bool:
    """Whether the zone keeps its offset from midnight to midnight, and repeats nothing of the day."""
    if not 1 < day.year < 9999:
        return False  # parts of the first and last days are beyond the calendar
    midnight = datetime.combine(day, time(), zone)
    quarters = [midnight + number * _QUARTER for number in range(5)]
    return len({zone.utcoffset(quarter.replace(fold=fold)) for quarter in quarters for fold in (0, 1)}) == 1
