"""Due minutes of an expression as the scheduler counts them: integers, where people have datetimes."""

import contextlib
from bisect import bisect_left
from datetime import datetime, tzinfo
from typing import Final

from duly.core.cron import CronExpression
from duly.core.moments import MICROSECONDS, Minute, instant_of
from duly.core.zones import offset_at
from duly.errors import CronCalculationError

_QUARTER: Final = 86_400 // 4
"""No zone has ever changed its offset and changed it back within six hours."""


def next_due(expression: CronExpression, minute: Minute, zone: tzinfo) -> Minute:
    """The first due minute strictly after a minute.

    Raises CronCalculationError if there is none before the calendar ends, with the year 9999.
    """
    found = expression.next_after(_shown_at(minute, zone, expression))
    return Minute(instant_of(found) // MICROSECONDS)


def latest_due(expression: CronExpression, minute: Minute, zone: tzinfo) -> Minute | None:
    """The latest due minute at or before a minute; None if there is none since the year 1.

    Raises CronCalculationError if the minute itself is outside the calendar.
    """
    # Due minutes begin on whole seconds: at or before this one is strictly before the next.
    when = _shown_at(minute + 1, zone, expression)
    try:
        found = expression.previous_before(when)
    except CronCalculationError:
        return None
    return Minute(instant_of(found) // MICROSECONDS)


def due_between(expression: CronExpression, after: Minute, before: Minute, zone: tzinfo) -> list[Minute]:
    """The due minutes strictly between two minutes: those that `next_due` finds one by one, up to the year 9999.

    In a quarter of a day without a change of the zone, all of them follow from the first by addition: for an expression
    of every minute that takes a thirtieth of the time.
    """
    of_day = [3600 * hour + 60 * minute for hour in expression.hours for minute in expression.minutes]
    due: list[Minute] = []
    with contextlib.suppress(CronCalculationError):  # the calendar ends
        found = next_due(expression, after, zone)
        while found < before:
            shown = _shown_at(found, zone, expression)
            since_midnight = 3600 * shown.hour + 60 * shown.minute
            midnight = found - since_midnight
            quarter_end = (since_midnight // _QUARTER + 1) * _QUARTER
            if offset_at(zone, found) == offset_at(zone, midnight + quarter_end):
                # The first one is no second copy of a repeated minute, so neither is any after it.
                end = min(quarter_end, before - midnight)
                first, last = bisect_left(of_day, since_midnight), bisect_left(of_day, end)
                due += [Minute(midnight + second) for second in of_day[first:last]]
                found = due[-1]
            else:
                due.append(found)
            found = next_due(expression, found, zone)
    return due


def _shown_at(second: int, zone: tzinfo, expression: CronExpression) -> datetime:
    """The wall-clock time at a second since the epoch."""
    try:
        return datetime.fromtimestamp(second, zone)
    except (OverflowError, ValueError, OSError) as fault:
        raise CronCalculationError(expression.text, f"{second} s since the epoch", fault) from fault
