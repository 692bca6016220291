"""Which part of what is due a host takes at once, and how long it leaves the rest to others (SPEC 9.8).

A preference, never a right: the store grants each start once, whichever host asks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from duly.core.moments import MICROSECONDS, Instant

T = TypeVar("T")

LONG_AGO: Final = Instant(0)
COURTESY_MIN: Final = 1 * MICROSECONDS
COURTESY_MAX: Final = 5 * MICROSECONDS
"""Microseconds that a host waits before it takes the share of the host before it, and before it takes anything."""


@dataclass(frozen=True, slots=True)
class Share:
    """The place of a host among those that declare the edition in force, in the order of their keys."""

    keys: tuple[int, ...]
    """Of all of them; none: there is nobody to share with."""

    me: int
    courtesy: int = COURTESY_MIN
    """Microseconds from one host's turn to the next one's."""

    since: Instant = LONG_AGO
    """When this host joined, trusted its lease again or learnt of a burial: courtesy counts from here at the latest."""

    @property
    def divides(self) -> bool:
        """Whether there is anybody to share with."""
        return len(self.keys) > 1 or self.is_outdated

    @property
    def is_outdated(self) -> bool:
        """Whether the host declares another edition than the one in force, and comes after all others."""
        return bool(self.keys) and self.me not in self.keys

    def parts(self, tasks: Sequence[T], due: Instant, first: int) -> Iterator[tuple[int, Sequence[T], Instant]]:
        """Tasks that fall due together in parts, each with its place and the instant from which this host takes it.

        `first` is the generation of the first of them. Parts differ by one task at most, and which of them are larger
        differs from list to list: of many short lists each host gets as many tasks.
        """
        number, length = len(self.keys), len(tasks)
        shift = (first - 1) % number  # generations count from 1
        begin = 0
        while begin < length:  # from part to part: where there are more hosts than tasks, most parts are empty
            place = (number * (begin + 1) - shift - 1) // length
            end = (length * (place + 1) + shift) // number
            yield place, tasks[begin:end], self._turn(place, due)
            begin = end

    def turn(self, generation: int, written_by: int, due: Instant) -> Instant:
        """When this host takes a single task: first the host that wrote it last, while it runs."""
        if written_by in self.keys:
            return self._turn(self.keys.index(written_by), due)
        return self._turn(generation % len(self.keys), due)

    def _turn(self, place: int, due: Instant) -> Instant:
        if self.is_outdated:
            wait = COURTESY_MAX
        else:
            wait = min(COURTESY_MAX, (self.keys.index(self.me) - place) % len(self.keys) * self.courtesy)
        return Instant(max(due, self.since) + wait) if wait else due


ALL: Final = Share((), 0)
"""An embedded store: one scheduler takes everything at once."""
