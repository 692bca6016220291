"""The load to come: how many tasks are due in each minute, by their expressions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from heapq import nsmallest

from duly.core.cron import CronExpression
from duly.core.due import next_due
from duly.core.moments import Instant, Minute, begin, minute_of, zone_name
from duly.errors import CronCalculationError


@dataclass(frozen=True, slots=True)
class LoadMinute:
    """A minute, and how many tasks are due in it."""

    minute: Instant  #: when it begins
    tasks: int  #: how many tasks are due in it


@dataclass(frozen=True, slots=True)
class ComingLoad:
    """How many tasks are due in each minute of a time to come, if no declaration changes."""

    since: Instant  #: the first instant that counts
    until: Instant  #: the first instant that does not count any more
    zone: str  #: the zone in which minutes are due
    starts: int
    """The due minutes of all tasks together."""

    busiest: Sequence[LoadMinute]
    """The minutes in which most tasks are due, the busiest first."""

    tasks_left_out: int
    """Tasks whose expressions were too many to be looked at."""

    minutes: Counter[Minute] = field(repr=False)
    """The number of tasks for each minute in which any is due."""


def load_of(
    expressions: Iterable[tuple[CronExpression, int]],
    since: Instant,
    until: Instant,
    zone: tzinfo,
    *,
    busiest: int = 10,
    tasks_left_out: int = 0,
) -> ComingLoad:
    """The load of expressions from an instant up to another one.

    Parameters:
        expressions: each with the number of tasks that have it.
        since: the first instant that counts.
        until: the first instant that does not count any more.
        zone: the zone in which minutes are due.
        busiest: how many of the busiest minutes are listed.
        tasks_left_out: tasks whose expressions are not among those given; only passed on.
    """
    minutes: Counter[Minute] = Counter()
    for expression, tasks in expressions:
        for due in _due_between(expression, since, until, zone):
            minutes[due] += tasks
    chosen = nsmallest(busiest, minutes.items(), key=lambda item: (-item[1], item[0]))
    return ComingLoad(
        since,
        until,
        zone_name(zone),
        minutes.total(),
        [LoadMinute(begin(minute), tasks) for minute, tasks in chosen],
        tasks_left_out,
        minutes,
    )


def count_starts(
    expressions: Iterable[tuple[CronExpression, int]], since: Instant, until: Instant, zone: tzinfo, *, most: int
) -> int:
    """How many starts are due from an instant up to another one; stops counting when there are more than `most`."""
    starts = 0
    for expression, tasks in expressions:
        for _ in _due_between(expression, since, until, zone):
            starts += tasks
            if starts > most:
                return starts
    return starts


def _due_between(expression: CronExpression, since: Instant, until: Instant, zone: tzinfo) -> Iterator[Minute]:
    """The due minutes that begin at or after an instant, and before another one."""
    first = minute_of(since, zone)
    minute = Minute(first - 1 if begin(first) == since else first)
    try:
        while begin(minute := next_due(expression, minute, zone)) < until:
            yield minute
    except CronCalculationError:
        return  # the calendar ends in 9999
