"""Celery's `crontab`, asked as beat asks it: is it due, and if not, in how many seconds?

Beat sleeps as long as the schedule says and asks again. The adapter does so with a clock of its own.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from celery import Celery
from celery.schedules import crontab

from conformance.adapters.service import Adapter, accepts
from conformance.protocol import Answer

QUESTIONS_MAX = 20_000
"""Questions about one occurrence, after which there is none."""


class CeleryBeat(Adapter):
    """Expressions and occurrences."""

    name = "celery"

    def parse(self, expression: str) -> Answer:
        """Whether `crontab.from_string` takes a text."""
        return accepts(lambda: crontab.from_string(expression))

    def occurrences(self, expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """The moments at which beat would send the task, if it sleeps exactly as long as the schedule says."""
        now = last_run = after.astimezone(UTC)
        schedule: Any = crontab.from_string(expression)
        schedule.app = app_in(zone.key)
        schedule.nowfun = lambda: now
        for _ in range(QUESTIONS_MAX):
            due, seconds = schedule.is_due(last_run)
            if due and now > last_run:
                last_run = now
                yield now.astimezone(zone)
                due, seconds = schedule.is_due(last_run)
            now += timedelta(seconds=max(float(seconds), 0.0)) if seconds > 0 else timedelta(seconds=1)


@cache
def app_in(zone: str) -> Celery:
    """An application whose beat runs in a zone."""
    app = Celery("conformance", set_as_current=False)
    app.conf.timezone = zone
    return app


def adapter() -> Adapter:
    """The adapter of this module."""
    return CeleryBeat()
