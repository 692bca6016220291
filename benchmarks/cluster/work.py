"""The tasks that every host of a trio has: few that take steps, or thousands that only note that they were called."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

EACH_MINUTE = "* * * * *"
DORMANT = "0 0 29 2 *"
"""Not due within the next minutes, unless it is midnight on the 29th of February."""


@dataclass(frozen=True)
class Tasks:
    """Tasks that are alike: one, or many that are told apart by a number."""

    name: str
    cron: str
    seconds: float = 0.0
    """How long each takes, in steps of a fifth of a second; 0: it returns at once."""

    number: int = 1

    @property
    def names(self) -> Iterator[str]:
        """Their names."""
        return iter([self.name]) if self.number == 1 else (f"{self.name}-{index}" for index in range(self.number))


Work = Sequence[Tasks]


def to_text(work: Work) -> str:
    """For the command line of a host."""
    return json.dumps([asdict(tasks) for tasks in work])


def from_text(text: str) -> Work:
    """As a host reads it."""
    return [Tasks(**each) for each in json.loads(text)]


def at_minute(instant: float) -> str:
    """The expression that is due once a day, in the minute of this instant, in UTC."""
    due = datetime.fromtimestamp(instant, UTC)
    return f"{due.minute} {due.hour} * * *"
