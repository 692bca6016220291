"""What hosts ask of a shared store, and what it answers: five functions, and two that only read.

A *shared* store belongs to any number of hosts at once; each host is one scheduler (SPEC 9.1, 9.2). All of them write
one after the other, and each write adds one entry to the log. `SharedFunctions` is the port: the functions
of PostgreSQL stand behind one implementation, a pure object of `duly.testing` behind the other.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from duly.core.moments import Delay, Instant
from duly.core.news import Changes, Corrected, LogEntry, Position
from duly.core.record import EqualRows
from duly.core.resolution import Mark
from duly.stores.port import COMPLETE, Outcome

NEWS_MAX: Final = 1_000
"""Entries of the log that one reading returns."""

TraceLines = Sequence[tuple[int | None, str]]
"""Lines for the trace, each with the run that it is about.

A line of a start that was not granted, or of an end that was not recorded, is not kept."""


class HostIdentity(NamedTuple):
    """A host as the store knows it: a number alone could be another host's after a backup was restored."""

    key: int
    identifier: str


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """What became of a batch; `seq` is the fence of its starts."""

    seq: int
    refused: tuple[int, ...]
    """Generations that were not started."""

    fenced: tuple[int, ...]
    """Runs whose end was not recorded."""

    corrected: Corrected | None


class LivingHost(NamedTuple):
    """A host that has neither left nor been buried."""

    key: int
    beat: int
    edition: int
    lease: int
    """Its own lease, in microseconds."""


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """The clock of the store, the end of the log, and the hosts that share the work."""

    clock: Instant
    seq: int
    living: tuple[LivingHost, ...]


class Act(Enum):
    """Why a set of tasks is declared."""

    JOIN = "join"
    """The first `initialize` of a host (SPEC 9.14)."""

    REJOIN = "rejoin"
    """A host that was buried goes on as a new one; it is never refused for its set (SPEC 9.6)."""

    REDECLARE = "redeclare"
    """A later `initialize`, which is an explicit act (SPEC 9.15)."""

    REINSTATE = "reinstate"
    """No running host declares the edition in force any more (SPEC 9.17)."""


class EditionVerdict(Enum):
    """What became of a set of tasks that a host declares."""

    JOINED = "joined"
    """It is in force already."""

    APPLIED = "applied"
    """It was put in force."""

    OUTDATED = "outdated"
    """A newer one stays in force; nothing has changed."""

    AGAIN = "again"
    """The set in force is not the one that was compared with: load, and compare again. Nothing has changed."""


class Arrival(NamedTuple):
    """A declaration that is new or overrides another."""

    name: str
    cron: str
    delay: Delay


class InForce(NamedTuple):
    """The set of tasks in force: its edition, and the highest generation in use. No other set has both."""

    edition: int
    generation: int


@dataclass(frozen=True, slots=True)
class EditionRequest:
    """A host declares a set of tasks; new declarations were sent with `arrive` before."""

    identifier: str
    key: int | None
    """None: the host has not joined yet."""

    number: int
    seen: Position
    act: Act
    digest: str
    """Of the whole set, whatever its order: `set_digest`."""

    compared_with: InForce
    shares_names: bool
    """Whether any name is also in the set in force."""

    removed: tuple[int, ...]
    """Generations in force that are overridden or orphaned."""

    arrivals: int
    arrivals_digest: str
    """Number and digest of what was sent with `arrive`: `arrivals_digest`."""

    zone: str
    zone_seen: str | None
    """The zone in force when the host loaded; `zone` is another only if its rules differ (SPEC 9.12)."""

    lease: int
    """In microseconds."""

    label: str | None = None
    history: int = 100_000
    traced: bool = False
    correct: bool = False
    """Whether a record that was loaded lies too far ahead of the clock of the store (SPEC 2.5)."""


@dataclass(frozen=True, slots=True)
class EditionAnswer:
    """What became of a declared set, and under which key its host is known; with `AGAIN` nothing else is said."""

    verdict: EditionVerdict
    key: int | None = None
    seq: int | None = None
    edition: int | None = None
    at: Instant | None = None
    first_generation: int | None = None
    """Of what was put in force: arrival n, counted from 0, has generation `first_generation + n`."""

    known_since: Instant | None = None


@dataclass(frozen=True, slots=True)
class News:
    """What was written since a position; `behind`: entries before these are gone, so the host must load anew."""

    entries: tuple[LogEntry, ...]
    behind: bool = False


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host as the store has it."""

    key: int
    identifier: str
    label: str | None
    since: Instant
    lease: int
    edition: int
    beat: int
    renewed_at: Instant
    seen: int
    gone: str | None
    """None, `left` or `buried`."""


@dataclass(frozen=True, slots=True)
class SharedContent:
    """All that a host needs to begin, from one snapshot, and the position in the log that it stands for."""

    position: Position
    clock: Instant
    in_force: InForce
    digest: str | None
    """Of the set in force; None: no set has ever been declared."""

    alone_since: Instant | None
    """Since when no running host declares the set in force."""

    zone: str | None
    history: int
    traced: bool
    hosts: tuple[HostRecord, ...]
    records: Sequence[EqualRows]
    blocked: Mapping[int, int]
    """Declarations that wait for a run of an earlier one of their name, by generation, with that run."""

    marks: Mapping[str, Mark]


class SharedFunctions(Protocol):
    """The port. A call that failed is repeated with the same arguments, and takes effect once.

    Raises `HostGoneError` if the host is gone, `StoreRewoundError` if the store was set back, and other `StoreError`s.
    """

    def write(
        self, me: HostIdentity, number: int, seen: Position, changes: Changes, trace: TraceLines = ()
    ) -> WriteAnswer:
        """Record ends, and grant or refuse starts, by what the host had seen when it decided (SPEC 9.9, 9.10)."""
        ...

    def beat(self, me: HostIdentity, seen: Position) -> BeatAnswer:
        """Renew the lease (SPEC 9.4). Repeated, it is another beat."""
        ...

    def bury(self, me: HostIdentity, who: int, beat: int | None, trace: TraceLines = ()) -> int | None:
        """Declare a host dead; None: it has beaten since `beat`, or is gone (SPEC 9.5).

        A host that buries itself, because its event loop is going away, names no beat.
        """
        ...

    def arrive(self, identifier: str, arrivals: Sequence[Arrival]) -> None:
        """Send the new declarations of the next `replace`; what was sent before is forgotten."""
        ...

    def replace(self, request: EditionRequest, trace: TraceLines = ()) -> EditionAnswer:
        """Join, or declare another set (SPEC 9.13 to 9.17)."""
        ...

    def leave(self, me: HostIdentity, trace: TraceLines = ()) -> int | None:
        """Leave after a stop (SPEC 9.19); None: it left long ago, and the log has forgotten its entry."""
        ...

    def news(self, seen: Position, limit: int = NEWS_MAX) -> News:
        """What was written after a position, in order."""
        ...

    def load(self) -> SharedContent:
        """All that a host needs to begin."""
        ...


def outcome_of(changes: Changes, answer: WriteAnswer) -> Outcome:
    """The answer to a batch as the engine takes it: starts by their run numbers."""
    if not answer.refused:
        return COMPLETE
    refused = set(answer.refused)
    runs = (
        run
        for block in changes.starts
        for run, generation in enumerate(block.generations, block.first_run)
        if generation in refused
    )
    return Outcome(frozenset(runs))


def set_digest(tasks: Iterable[tuple[str, str, Delay]], *, interrupted: str) -> str:
    """The digest of a declared set: names, cron texts, delays and `interrupted`, whatever the order (SPEC 9.13)."""
    digest = hashlib.sha256(interrupted.encode())
    for name, cron, delay in sorted(tasks):
        digest.update(f"\n{delay} {len(cron)} {cron} {name}".encode())
        digest.update(b"\0")  # in no name, so no other set has these bytes
    return digest.hexdigest()


def arrivals_digest(arrivals: Iterable[Arrival]) -> str:
    """The digest of arrivals in their order, as `replace_1` computes it; empty for none."""
    each = [
        _sha256(f"{place} {delay} {len(cron)} {cron} {name}")
        for place, (name, cron, delay) in enumerate(arrivals, start=1)
    ]
    return _sha256("".join(each)) if each else ""


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
