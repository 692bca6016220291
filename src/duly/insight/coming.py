"""The coming starts of an expression, and the changes of the zone among them."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Final

from duly.core.cron import CronExpression
from duly.core.moments import instant_of
from duly.errors import CronCalculationError
from duly.insight.cron_words import in_words
from duly.insight.zone_changes import Leap, ZoneChange, leaps, zone_changes

_YEAR: Final = timedelta(days=366)
_CHANGES_KEPT_YEARS: Final = 30
"""Changes of the zone within this many years are found once, for all expressions."""

_LAST_WHOLE_YEAR: Final = 9_997 - _CHANGES_KEPT_YEARS
"""From then on, those years and a day may lead out of the calendar."""

_EXPRESSIONS_KEPT: Final = 2_000
"""Expressions whose starts are remembered: tasks share few of them, and there may be as many as tasks."""


@dataclass(frozen=True, slots=True)
class Coming:
    """The coming starts of one task, or of an expression by itself."""

    task: str | None  #: the name; None for an expression by itself
    expression: CronExpression  #: the cron expression
    words: str
    """The expression in words."""

    starts: Sequence[datetime]  #: the coming starts
    leaps: Sequence[Leap]
    """Changes of the zone up to the last of the starts that skip or repeat minutes which the expression names."""


@dataclass(frozen=True, slots=True)
class ComingStart:
    """One start among those of several tasks."""

    at: datetime  #: when
    task: str  #: the name of the task


class Calendar:
    """The starts of any number of expressions from one moment on; each expression is looked at once.

    Parameters:
        since: the first moment that counts; its zone is that of the starts.
        count: how many starts of each expression are found.
    """

    def __init__(self, since: datetime, count: int) -> None:
        zone = since.tzinfo
        assert zone is not None
        self._zone = zone
        # In UTC, because a step back on the wall clock may lead into another hour than it should.
        self._before = (since.astimezone(UTC) - timedelta(microseconds=1)).astimezone(zone)
        self._count = count
        self._changes: list[tuple[ZoneChange, frozenset[int]]] = []
        """Each with the hours of the wall clock that it skips or repeats."""
        self._changes_until = self._before
        """All changes from `_before` up to here are known."""
        self._expression = lru_cache(_EXPRESSIONS_KEPT)(self._find)

    def coming(self, task: str | None, expression: CronExpression) -> Coming:
        """The coming starts of a task, or of an expression by itself.

        Parameters:
            task: the name of the task; None for an expression by itself.
            expression: its cron expression.
        """
        return Coming(task, expression, *self._expression(expression))

    def merged(self, tasks: Iterable[tuple[str, CronExpression]], count: int) -> Sequence[ComingStart]:
        """The first starts of all tasks together; those of one minute in the order of the tasks.

        Parameters:
            tasks: names and expressions.
            count: how many starts at most.
        """
        return heapq.nsmallest(
            count,
            (ComingStart(at, name) for name, expression in tasks for at in self._expression(expression)[1]),
            key=lambda start: instant_of(start.at),
        )

    def _find(self, expression: CronExpression) -> tuple[str, Sequence[datetime], Sequence[Leap]]:
        starts = tuple(islice(self._starts(expression), self._count))
        return in_words(expression), starts, tuple(self._leaps(expression, starts[-1])) if starts else ()

    def _starts(self, expression: CronExpression) -> Iterator[datetime]:
        when = self._before
        while True:
            try:
                when = expression.next_after(when)
            except CronCalculationError:
                return  # the calendar ends in 9999
            yield when

    def _leaps(self, expression: CronExpression, until: datetime) -> Iterable[Leap]:
        if until - self._before > _CHANGES_KEPT_YEARS * _YEAR or self._before.year > _LAST_WHOLE_YEAR:
            return leaps(expression, self._zone, self._before, until)
        # A year has few changes, if any: it is faster to look at each of them than at each start.
        while self._changes_until < until:
            begin, self._changes_until = self._changes_until, self._changes_until + _YEAR
            for change in zone_changes(self._zone, begin, self._changes_until):
                self._changes.append((change, change.hours))
        last, hours = until.astimezone(UTC), expression.hours
        met = (
            change.leap_of(expression)
            for change, around in self._changes
            if not around.isdisjoint(hours) and change.at <= last
        )
        return (leap for leap in met if leap.minutes)
