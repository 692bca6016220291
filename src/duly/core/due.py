"""Due minutes of an expression as the scheduler counts them: integers, where people have datetimes."""

from datetime import datetime, tzinfo

from duly.core.cron import CronExpression
from duly.core.local_days import local_days
from duly.core.moments import MICROSECONDS, Minute, instant_of
from duly.errors import CronCalculationError


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

    A due day has all minutes that the expression names, so they are looked up in it: for an expression of every minute
    that takes a thirtieth of the time. `next_due` is faster where years pass without a due day.
    """
    places = [60 * hour + minute for hour in expression.hours for minute in expression.minutes]
    due: list[Minute] = []
    for day in local_days(after, before, zone):
        if day.date.day in expression.due_days(day.date.year, day.date.month):
            due += [minute for place in places if (minute := day.minutes[place]) is not None]
    return due


def _shown_at(second: int, zone: tzinfo, expression: CronExpression) -> datetime:
    """The wall-clock time at a second since the epoch."""
    try:
        return datetime.fromtimestamp(second, zone)
    except (OverflowError, ValueError, OSError) as fault:
        raise CronCalculationError(expression.text, f"{second} s since the epoch", fault) from fault
