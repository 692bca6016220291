"""The scenario of a simulation: the tasks, a stretch of time, and what goes wrong in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo

from duly.core.moments import Instant
from duly.core.registration import Registration


@dataclass(frozen=True, slots=True)
class Downtime:
    """The scheduler is stopped gracefully, as at a deploy, and started again later."""

    from_: Instant
    to: Instant


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario; `end` itself is not part of the stretch."""

    registrations: Sequence[Registration]
    begin: Instant
    end: Instant
    zone: tzinfo
    seed: int = 0
    down: Sequence[Downtime] = ()
    crashes: Sequence[Instant] = ()
    failure_rates: Mapping[str, float] = field(default_factory=dict)
    """By task, from 0 to 1; a task that is not named never fails."""

    durations: Mapping[str, float] = field(default_factory=dict)
    """By task, in seconds; runs of a task that is not named take no time."""

    @property
    def last(self) -> Instant:
        """The last instant of the stretch."""
        return Instant(self.end - 1)
