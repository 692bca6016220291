"""cronsim, as its README uses it: an iterator made from an expression and a moment."""

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim

from conformance.adapters.service import Adapter, accepts
from conformance.protocol import Answer


class Cronsim(Adapter):
    """Expressions and occurrences."""

    name = "cronsim"

    def parse(self, expression: str) -> Answer:
        """Whether cronsim takes a text."""
        return accepts(lambda: CronSim(expression, datetime(2025, 1, 1, tzinfo=UTC)))

    def occurrences(self, expression: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """One occurrence after the other."""
        return iter(CronSim(expression, after))


def adapter() -> Adapter:
    """The adapter of this module."""
    return Cronsim()
