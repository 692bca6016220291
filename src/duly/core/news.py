"""News: the content of the log of a shared store, in which hosts read what other hosts have written.

Values name tasks by generation and runs by number: a host that reads them has its own `Task` objects, and knows from
the number of a run which host it belongs to.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

from duly.core.moments import Instant, Minute
from duly.core.task import Cause, Obligation

RUNS_OF_A_HOST: Final = 10**12
"""The runs of host `key` are numbered from `key * RUNS_OF_A_HOST` on, so no host has to ask for a number."""


def host_of(run: int) -> int:
    """The key of the host to which a run belongs; `written_by` of a record names the host that wrote last."""
    return run // RUNS_OF_A_HOST


class Position(NamedTuple):
    """How far a host knows the log: the entry that it read last."""

    seq: int
    nonce: str | None
    """The mark of that entry: a log that was set back and went on has another entry there."""


BEGINNING: Final = Position(0, None)
"""The position before the first entry."""


@dataclass(frozen=True, slots=True)
class Started:
    """Tasks that one host started for the same reason, with consecutive run numbers."""

    generations: tuple[int, ...]
    first_run: int
    cause: Cause
    at: Instant
    scheduled: Instant
    served_through: Minute
    pending_retry_until: Instant | None
    interruptions: int
    obligation: Obligation


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The record of a failure, beside its instant."""

    error: str
    traceback: str | None
    pending_retry_until: Instant | None
    failures: int


@dataclass(frozen=True, slots=True)
class Ended:
    """Runs that started for the same reason and ended at the same instant, with what history records of them.

    Several runs are all successful; a failure stands alone.
    """

    generations: tuple[int, ...]
    runs: tuple[int, ...]
    at: Instant
    cause: Cause
    scheduled: Instant
    started_at: Instant
    called_at: Instant | None
    obligation: Obligation
    failure: FailedRun | None = None


@dataclass(frozen=True, slots=True)
class Corrected:
    """The clock of the store was set back: instants too far ahead of it were lowered (SPEC 2.5)."""

    at: Instant
    minute: Minute


Note = tuple[Any, ...]
"""An event of `duly.formal.trace` that changes no state, without its number: letters, instant, the other fields."""

Spans = tuple[tuple[int, int], ...]
"""Generations as the first and the last of each run of consecutive ones, in order: a million tasks are often one."""


def spans_of(generations: Iterable[int]) -> Spans:
    """Generations, in whatever order, as spans."""
    spans = []
    for _, grouped in groupby(enumerate(sorted(generations)), lambda each: each[1] - each[0]):
        together = [generation for _, generation in grouped]
        spans.append((together[0], together[-1]))
    return tuple(spans)


def within(spans: Spans) -> Iterator[int]:
    """The generations of spans, in order."""
    for first, last in spans:
        yield from range(first, last + 1)


@dataclass(frozen=True, slots=True)
class Statement:
    """A host's description of itself and of its set when it declares one; the trace has it in the IE."""

    call: int
    """The number of the initialize()."""

    declared: int
    digest: str
    """Number and digest of the tasks; the digest is empty if the host keeps no trace and knows of none."""

    interrupted: str
    max_concurrency: int | None
    threads: int | None
    mono: int
    """Microseconds of the host's steady clock."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Tasks whose callbacks run elsewhere than the store knew: now in threads, and now on the event loop."""

    to_threads: Spans = ()
    to_loop: Spans = ()


NOT_MOVED: Final = Moved()


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that a host asks to be written: ends first, then starts, then a correction by the clock of the store."""

    ends: tuple[Ended, ...] = ()
    starts: tuple[Started, ...] = ()
    correct: bool = False
    notes: tuple[Note, ...] = ()
    """Further events for the trace, between ends and starts."""

    running: int = 0
    """Runs of this host that are on record before the starts, by its own count."""


@dataclass(frozen=True, slots=True)
class Written:
    """A batch of changes, and what was not granted of it."""

    ends: tuple[Ended, ...]
    starts: tuple[Started, ...]
    corrected: Corrected | None
    refused: tuple[int, ...]
    """Generations whose start was not granted: those starts were never made."""

    fenced: tuple[int, ...]
    """Runs whose end was not recorded, because they are not on record."""

    notes: tuple[Note, ...] = ()
    running: int = 0
    """As in `Changes`."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A host joined, or an old one declared another set, and the set in force stayed the one it was."""

    edition: int
    """The edition that the host declares."""

    outdated: bool
    """Whether that is another one than the edition in force."""

    zone: str
    corrected: Corrected | None
    said: Statement
    moved: Moved = NOT_MOVED
    label: str | None = None
    """The name for people of a host that was not there before."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A host put an edition in force."""

    edition: int
    known_since: Instant
    first_generation: int
    added: int
    """New declarations have the generations from `first_generation` on."""

    removed: tuple[int, ...]
    """Generations of withdrawn declarations, overridden or orphaned."""

    blocked: tuple[tuple[int, int], ...]
    """New declarations that wait for a run of an earlier one, each with that run (SPEC 5.3)."""

    reinstated: bool
    """Whether no running host declared the edition that was in force before."""

    zone: str
    corrected: Corrected | None
    said: Statement
    moved: Moved = NOT_MOVED
    renumbered: tuple[int, ...] = ()
    """Other hosts that declare the set, by key: it had an earlier number, and theirs is this one from now on."""
    label: str | None = None
    """The name for people of a host that was not there before."""


@dataclass(frozen=True, slots=True)
class Buried:
    """A host was buried: its runs are interrupted."""

    host: int


@dataclass(frozen=True, slots=True)
class Left:
    """A host left: it has stopped."""

    notes: tuple[Note, ...] = ()
    """The ends of its open calls."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry of a kind that this version does not know: a newer one wrote it, and the host must load anew."""

    kind: str


Content = Written | Joined | Replaced | Buried | Left | Unreadable


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log: what one transaction of one host changed."""

    seq: int
    host: int
    number: int
    nonce: str
    at: Instant
    """The clock of the store when the entry was written."""

    content: Content

    @property
    def position(self) -> Position:
        """The position of a host that has read the log up to here."""
        return Position(self.seq, self.nonce)
