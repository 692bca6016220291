"""croniter, as its README uses it: `croniter(expression, start).get_next(datetime)`."""

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from croniter import croniter

from conformance.adapters.service import Adapter, accepts
from conformance.protocol import Answer


class Croniter(Adapter):
    """Expressions and occurrences."""

    name = "croniter"

    def parse(self, expression: str) -> Answer:
        """Whether croniter takes a text."""
        return accepts(lambda: croniter(expression))

    def occurrences(self, expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """One occurrence after the other."""
        times = croniter(expression, after)
        while True:
            yield times.get_next(datetime)


def adapter() -> Adapter:
    """The adapter of this module."""
    return Croniter()
