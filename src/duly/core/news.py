"""What hosts of a shared store made of its state: the content of its log, which other hosts read as news.

Values name tasks by generation and runs by number: a host that reads them has its own `Task` objects, and knows from
the number of a run which host it belongs to.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

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
    """What a failure leaves behind, beside its instant."""

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


@dataclass(frozen=True, slots=True)
class Changes:
    """What a host asks to be written: ends first, then starts, then a correction by the clock of the store."""

    ends: tuple[Ended, ...] = ()
    starts: tuple[Started, ...] = ()
    correct: bool = False


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


@dataclass(frozen=True, slots=True)
class Joined:
    """A host joined, or an old one declared another set, and the set in force stayed the one it was."""

    edition: int
    """The edition that the host declares."""

    outdated: bool
    """Whether that is another one than the edition in force."""

    corrected: Corrected | None


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


@dataclass(frozen=True, slots=True)
class Buried:
    """A host was buried: its runs are interrupted."""

    host: int


@dataclass(frozen=True, slots=True)
class Left:
    """A host left: it has stopped."""


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
