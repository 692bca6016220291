"""The load to come, as pages and JSON show it: counted once an hour, and cut to the minute from which it is shown."""

from functools import lru_cache
from typing import Final

from duly.core.moments import Instant
from duly.insight.load import ComingLoad, load_of, part_of
from duly.web.sampler import HOUR, Sample

HOURS_MAX: Final = 24 * 8
"""The longest time whose load is shown."""


def load_from(sample: Sample, since: Instant, hours: int, *, busiest: int = 10) -> ComingLoad:
    """The load of the declarations of a sample in the hours, at most `HOURS_MAX`, from an instant on."""
    counted = _counted(_Key(sample), since // HOUR)
    return part_of(counted, since, Instant(since + hours * HOUR), busiest=busiest)


class _Key:
    """A sample that equals any other with its expressions: their load is counted once."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.equal_by = (tuple(sample.expressions), sample.tasks_left_out, str(sample.zone))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.equal_by == other.equal_by

    def __hash__(self) -> int:
        return hash(self.equal_by)


@lru_cache(8)
def _counted(key: _Key, hour: int) -> ComingLoad:
    """The load from the beginning of an hour on, counted from the epoch, as far as anything within it may ask."""
    sample = key.sample
    since = Instant(hour * HOUR)
    until = Instant(since + (HOURS_MAX + 1) * HOUR)
    return load_of(sample.expressions, since, until, sample.zone, tasks_left_out=sample.tasks_left_out)
