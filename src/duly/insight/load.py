"""The load to come: how many tasks are due in each minute, by their expressions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from operator import itemgetter

from duly.core.cron import CronExpression
from duly.core.due import next_due
from duly.core.local_days import LocalDay, local_days
from duly.core.moments import MICROSECONDS, Instant, Minute, begin, minute_of, zone_name
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
    first, end = _first_minute(since), _first_minute(until)
    minutes = _tasks_by_minute(expressions, list(local_days(Minute(first - 1), end, zone)))
    return _load(since, until, zone_name(zone), minutes, busiest, tasks_left_out)


def part_of(load: ComingLoad, since: Instant, until: Instant, *, busiest: int = 10) -> ComingLoad:
    """The load from an instant up to another one, of a load that reaches from one no later to one no earlier.

    Parameters:
        load: the whole.
        since: the first instant that counts.
        until: the first instant that does not count any more.
        busiest: how many of the busiest minutes are listed.
    """
    first, end = _first_minute(since), _first_minute(until)
    minutes = Counter({minute: tasks for minute, tasks in load.minutes.items() if first <= minute < end})
    return _load(since, until, load.zone, minutes, busiest, load.tasks_left_out)


def _first_minute(instant: Instant) -> Minute:
    """The earliest that a minute which begins at or after an instant can begin: the next whole second."""
    return Minute(-(-instant // MICROSECONDS))


def _load(
    since: Instant, until: Instant, zone: str, minutes: Counter[Minute], busiest: int, tasks_left_out: int
) -> ComingLoad:
    # Sorted twice, because a sort keeps the order of equals: one sort by both takes twice as long.
    chosen = sorted(sorted(minutes.items()), key=itemgetter(1), reverse=True)[:busiest]
    return ComingLoad(
        since,
        until,
        zone,
        minutes.total(),
        [LoadMinute(begin(minute), tasks) for minute, tasks in chosen],
        tasks_left_out,
        minutes,
    )


def _tasks_by_minute(expressions: Iterable[tuple[CronExpression, int]], days: Sequence[LocalDay]) -> Counter[Minute]:
    """The number of tasks for each minute of some days in which any is due.

    Adds up before it multiplies: the minutes of all expressions with the same hours and days are those of one hour, and
    all hours of the same days are those of one day. Two thousand expressions that are due twice an hour have 700,000
    starts in eight days; asking `next_due` for each took a hundred times as long.
    """
    months: dict[tuple[int, int], set[int]] = {}
    for day in days:
        months.setdefault((day.date.year, day.date.month), set()).add(day.date.day)
    of_days: dict[tuple[frozenset[int], ...], dict[tuple[int, ...], list[int]]] = {}
    for expression, tasks in expressions:
        due_on = tuple([frozenset(asked.intersection(expression.due_days(*month))) for month, asked in months.items()])
        of_hour = of_days.setdefault(due_on, {}).setdefault(expression.hours, [0] * 60)
        for minute in expression.minutes:
            of_hour[minute] += tasks
    found: dict[Minute, int] = {}
    for due_on, of_hours in of_days.items():
        of_day = _tasks_by_place(of_hours)
        due_in = dict(zip(months, due_on, strict=True))
        for day in days:
            if day.date.day in due_in[day.date.year, day.date.month]:
                for place, tasks in of_day:
                    if (begins := day.minutes[place]) is not None:
                        found[begins] = found.get(begins, 0) + tasks
    return Counter(found)


def _tasks_by_place(of_hours: Mapping[tuple[int, ...], Sequence[int]]) -> list[tuple[int, int]]:
    """The places in a day at which tasks are due, 60 * hour + minute, each with their number.

    Parameters:
        of_hours: for some hours of the day, the number of tasks that are due in each minute of every one of them.
    """
    places = [0] * (24 * 60)
    for hours, of_hour in of_hours.items():
        due = [(minute, tasks) for minute, tasks in enumerate(of_hour) if tasks]
        for hour in hours:
            for minute, tasks in due:
                places[60 * hour + minute] += tasks
    return [(place, tasks) for place, tasks in enumerate(places) if tasks]


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
