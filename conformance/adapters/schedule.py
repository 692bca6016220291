"""schedule: its calls in place of expressions, where they can say what an expression says, with a simulated clock.

`run_pending` starts a job as soon as the local time, which is naive, is not before `next_run`.
"""

import datetime as standard
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import schedule

from conformance.adapters.service import Adapter, NotApplicableError
from conformance.calendar import transitions
from conformance.vector_files import Group

WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


class Clock:
    """The time of day that schedule sees: naive, as `datetime.now()` is."""

    def __init__(self, zone: ZoneInfo, now: datetime) -> None:
        self.zone = zone
        self.now = now.astimezone(UTC)

    @property
    def local(self) -> datetime:
        """The wall-clock time."""
        return self.now.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def pass_until_shown(self, naive: datetime) -> None:
        """Let time pass until the wall clock shows a local time, or a later one because that is skipped."""
        copies = [naive.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
        shown = [copy for copy in copies if copy.astimezone(self.zone).replace(tzinfo=None, fold=0) == naive]
        if not shown:
            shown = transitions(self.zone, min(copies) - timedelta(hours=1), max(copies) + timedelta(hours=1))
        self.now = min((instant for instant in shown if instant >= self.now), default=self.now)


class Schedule(Adapter):
    """Occurrences of expressions that name one minute, hour and weekday, or every one of them."""

    name = "schedule"
    groups = (Group.CALENDAR, Group.TRANSITIONS)

    def occurrences(self, expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """The moments at which `run_pending` would run the job, if it is called all the time."""
        clock = Clock(zone, after)

        class Now(datetime):
            """The datetime that schedule sees."""

            @classmethod
            def now(cls, tz: standard.tzinfo | None = None) -> datetime:  # type: ignore[override]
                return clock.local

        library: Any = schedule  # reads the time from the module `datetime` that it imported
        original = library.datetime
        seen = SimpleNamespace(**{name: getattr(standard, name) for name in standard.__all__} | {"datetime": Now})
        library.datetime = seen
        try:
            job = called(expression).do(lambda: None)
            while True:
                clock.pass_until_shown(datetime.combine(job.next_run.date(), job.next_run.time()))
                yield clock.now.astimezone(zone)
                job.run()
        finally:
            library.datetime = original


def called(expression: str) -> Any:
    """The calls of schedule that mean an expression. Raises NotApplicableError."""
    every = schedule.Scheduler().every()
    match = re.fullmatch(r"(\*|\d+) (\*|\d+) \* \* (\*|[0-6])", expression)
    if match is None:
        raise NotApplicableError("its calls cannot say this expression")
    minute, hour, weekday = match.groups()
    if (minute, hour, weekday) == ("*", "*", "*"):
        return every.minute.at(":00")
    if minute != "*" and hour == "*" and weekday == "*":
        return every.hour.at(f":{int(minute):02}")
    if minute == "*" or hour == "*":
        raise NotApplicableError("its calls cannot say this expression")
    at = f"{int(hour):02}:{int(minute):02}"
    return every.day.at(at) if weekday == "*" else getattr(every, WEEKDAYS[int(weekday)]).at(at)


def adapter() -> Adapter:
    """The adapter of this module."""
    return Schedule()
