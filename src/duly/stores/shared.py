"""The requests of hosts to a shared store, and its answers: five functions, and four that only read.

A *shared* store belongs to any number of hosts at once; each host is one scheduler (SPEC 9.1, 9.2). All of them write
one after the other, and each write adds one entry to the log. `SharedFunctions` is the port: the functions
of PostgreSQL stand behind one implementation, a pure object of `duly.testing` behind the other.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Final, NamedTuple, Protocol, runtime_checkable

from duly.core.moments import Delay, Instant
from duly.core.news import NOT_MOVED, Changes, Corrected, LogEntry, Moved, Note, Position, Statement
from duly.core.record import EqualRows
from duly.core.resolution import Mark
from duly.stores.port import Outcome
from duly.stores.shared_trace import TracePart, TraceStart

NEWS_MAX: Final = 1_000
"""Entries of the log that one reading returns at most."""

NEWS_BYTES_MAX: Final = 4_000_000
"""Bytes of these entries as a database stores them, compressed; an entry that is larger comes alone."""


class HostIdentity(NamedTuple):
    """A host as the store knows it: a number alone could be another host's after a backup was restored."""

    key: int
    identifier: str


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """The answer to a batch; `seq` is the fence of its starts."""

    seq: int
    refused: tuple[int, ...]
    """Generations that were not started."""

    fenced: tuple[int, ...]
    """Runs whose end was not recorded."""

    corrected: Corrected | None
    nonce: str = field(compare=False)  # drawn by the store

    @property
    def position(self) -> Position:
        """That of the entry."""
        return Position(self.seq, self.nonce)


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
    """The verdict on a set of tasks that a host declares."""

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

    said: Statement
    moved: Moved = NOT_MOVED
    label: str | None = None
    history: int = 100_000
    traced: bool = False
    """Whether a trace is kept while the set is in force."""

    correct: bool = False
    """Whether a record that was loaded lies too far ahead of the clock of the store (SPEC 2.5)."""


@dataclass(frozen=True, slots=True)
class EditionAnswer:
    """The verdict on a declared set, and the key of its host; with `AGAIN` nothing else is said."""

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
    """The entries since a position; `behind`: entries before these are gone, so the host must load anew."""

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
    declaration: int
    """The number of the request with which it declared its set."""

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

    interrupted: str | None
    """The option of that name, which belongs to the set in force (SPEC 9.13); None: no set has been declared here."""

    zone: str | None
    history: int
    traced: bool
    hosts: tuple[HostRecord, ...]
    records: Sequence[EqualRows]
    blocked: Mapping[int, int]
    """Declarations that wait for a run of an earlier one of their name, by generation, with that run."""

    marks: Mapping[str, Mark]
    in_threads: frozenset[int]
    """Generations whose callbacks run in threads, as the host said that last declared the set in force."""


class SharedFunctions(Protocol):
    """The port. A call that failed is repeated with the same arguments, and takes effect once.

    Raises `HostGoneError` if the host is gone, `StoreRewoundError` if the store was set back, and other `StoreError`s.
    """

    def write(self, me: HostIdentity, number: int, seen: Position, changes: Changes) -> WriteAnswer:
        """Record ends, and grant or refuse starts, by what the host had seen when it decided (SPEC 9.9, 9.10)."""
        ...

    def beat(self, me: HostIdentity, seen: Position, held: int = 0, fault: str | None = None) -> BeatAnswer:
        """Renew the lease (SPEC 9.4). Repeated, it is another beat.

        `held` is for how many microseconds the host has not trusted its lease, and `fault` what keeps it from writing
        until somebody acts (SPEC 9.20): both go on record, for people.
        """
        ...

    def bury(self, me: HostIdentity, who: int, beat: int | None) -> int | None:
        """Declare a host dead; None: it has beaten since `beat`, or is gone (SPEC 9.5).

        A host that buries itself, because its event loop is going away, names no beat.
        """
        ...

    def arrive(self, identifier: str, arrivals: Sequence[Arrival]) -> None:
        """Send the new declarations of the next `replace`; what was sent before is forgotten."""
        ...

    def replace(self, request: EditionRequest) -> EditionAnswer:
        """Join, or declare another set (SPEC 9.13 to 9.17)."""
        ...

    def leave(self, me: HostIdentity, notes: Sequence[Note] = ()) -> int | None:
        """Leave after a stop (SPEC 9.19), with the ends of open calls as notes.

        None: it left long ago, and the log has forgotten its entry.
        """
        ...

    def news(self, seen: Position, limit: int = NEWS_MAX) -> News:
        """The entries after a position, in order."""
        ...

    def load(self) -> SharedContent:
        """All that a host needs to begin."""
        ...

    def trace_start(self) -> TraceStart | None:
        """The newest base of the trace; None: no trace is kept."""
        ...

    def trace_after(self, seen: Position, generation: int, limit: int) -> TracePart | None:
        """The entries of the trace after a position, and declarations above a generation.

        None: what follows does not continue what was read, so the reader begins anew. The trace was cut there, or ended
        and began again, or the store was set back.
        """
        ...

    def close(self) -> None:
        """Release the connection; the next call makes another."""
        ...


@runtime_checkable
class SharedStore(Protocol):
    """Where hosts of one scheduler meet; each host has two connections, one for its writes and one for its beats.

    A host with a monitor has another one of those for writes, to read the trace.
    """

    name: str
    """For people; it holds no password."""

    lease: timedelta
    """The lease of hosts on it."""

    label: str | None
    """A name for this host, for people."""

    def connect(self) -> SharedFunctions:
        """A connection for writes and for loading; nothing is sent yet."""
        ...

    def connect_for_beats(self) -> SharedFunctions:
        """A connection for beats, whose requests have a limit of a sixth of the lease."""
        ...

    def install(self) -> None:
        """Create what the functions need, or raise it to this version, if that is allowed (SPEC 9.22).

        Raises:
            StoreSchemaError: it is not allowed.
            StoreError: the store cannot be reached.
        """
        ...


def outcome_of(changes: Changes, answer: WriteAnswer) -> Outcome:
    """The answer to a batch as the engine takes it: starts by their run numbers."""
    refused = set(answer.refused)
    runs = (
        run
        for block in changes.starts
        for run, generation in enumerate(block.generations, block.first_run)
        if generation in refused
    )
    return Outcome(frozenset(runs) if refused else frozenset(), frozenset(answer.fenced), answer.seq)


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
