"""When a host may bury another: it has itself seen one beat stand still for longer than that host's lease (SPEC 9.5).

Times are elapsed seconds of the host that watches. No wall clock takes part, and no other host's word.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

PATIENCE: Final = 4 / 3
"""Leases that a beat must stand still: a third more than a host trusts its own lease without an answer."""

LONGEST_GAP: Final = 1 / 2
"""The part of its own lease for which a host may not have looked, and still judges by what it saw before."""

ALONE: Final = 2.0
"""Leases after which an edition that no running host declares any more gives way to the next one (SPEC 9.17)."""


class Seen(NamedTuple):
    """A running host, as one look showed it."""

    key: int
    beat: int
    edition: int
    lease: float
    """Its own, in seconds."""


@dataclass(slots=True)
class _Standing:
    """A beat that has not moved since an answer showed it first."""

    beat: int
    long_enough: float
    """From then on a look may bury its host."""


class Watch:
    """One host's observations of the beats of others."""

    def __init__(self, me: int, lease: float) -> None:
        self._me = me
        self._lease = lease
        self._standing: dict[int, _Standing] = {}
        self._last_sent: float | None = None
        self._alone: tuple[int, float] | None = None  # an edition without a host, and since when

    def look(self, sent: float, answered: float, running: Iterable[Seen]) -> list[Seen]:
        """Take in one look, from its sending to its answer; returns the hosts that may be buried.

        After a gap it begins anew: a host that could not look cannot judge. So an outage of the store, or a pause of
        this host, buries no host that beats again soon after it.
        """
        if self._last_sent is not None and answered - self._last_sent > LONGEST_GAP * self._lease:
            self._standing.clear()
            self._alone = None
        self._last_sent = sent
        before, self._standing = self._standing, {}
        dead = []
        for host in running:
            if host.key == self._me:
                continue
            standing = before.get(host.key)
            if standing is None or standing.beat != host.beat:
                standing = _Standing(host.beat, answered + PATIENCE * host.lease)
            elif sent >= standing.long_enough:
                dead.append(host)
            self._standing[host.key] = standing
        return dead

    def next_verdict(self, after: float) -> float | None:
        """The first moment after this one at which a look may bury a host, if its beat stands still until then."""
        return min((each.long_enough for each in self._standing.values() if each.long_enough > after), default=None)

    def is_deserted(self, edition: int, sent: float, answered: float, running: Iterable[Seen]) -> bool:
        """Whether no running host has declared the edition in force for long enough; asked after each `look`."""
        if any(host.edition == edition for host in running):
            self._alone = None
            return False
        if self._alone is None or self._alone[0] != edition:
            self._alone = edition, answered
        return sent - self._alone[1] >= ALONE * self._lease
