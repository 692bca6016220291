"""APScheduler 3: `CronTrigger.from_crontab`, asked as its scheduler asks it after each run."""

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from conformance.adapters.service import Adapter, accepts
from conformance.protocol import Answer


class APScheduler(Adapter):
    """Expressions and occurrences."""

    name = "apscheduler"

    def parse(self, expression: str) -> Answer:
        """Whether `from_crontab` takes a text."""
        return accepts(lambda: CronTrigger.from_crontab(expression, timezone="UTC"))

    def occurrences(self, expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """The next fire time after the previous one, until there is none."""
        trigger = CronTrigger.from_crontab(expression, timezone=zone)
        fired: datetime | None = after
        while (fired := trigger.get_next_fire_time(fired, fired)) is not None:
            yield fired


def adapter() -> Adapter:
    """The adapter of this module."""
    return APScheduler()
