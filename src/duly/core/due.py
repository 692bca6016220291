"""Due minutes of an expression as the scheduler counts them: integers, where people have datetimes."""

from datetime import datetime, tzinfo

from duly.core.cron import CronExpression
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


def _shown_at(second: int, zone: tzinfo, expression: CronExpression) -> datetime:
    """What the wall clock shows at a second since the epoch."""
    try:
        return datetime.fromtimestamp(second, zone)
    except (OverflowError, ValueError, OSError) as fault:
        raise CronCalculationError(expression.text, f"{second} s since the epoch", fault) from fault
