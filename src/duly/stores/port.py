"""The Store port: what the scheduler asks of the place where state is kept.

A store belongs to one scheduler at a time. Each verb is atomic. `replace` and `write` carry a number that grows by
one with each new call: a call that failed is repeated under its own number, and a store that has applied it already
(a commit can succeed and still report a fault) does nothing the second time. Calls of one verb never overtake each
other; a `replace` may come between a failed `write` and its repetition, and the other way round.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from duly.core.changes import Batch
from duly.core.moments import Delay, Instant
from duly.core.record import EqualRows
from duly.core.resolution import Resolution
from duly.core.task import Correction, Start

if TYPE_CHECKING:
    from duly.formal.registers import RegisterSnapshot


class Persisted(NamedTuple):
    """What a store holds when it is opened."""

    records: Sequence[EqualRows]
    """The rows of all tasks, in blocks of equal ones; `EqualRows.single` makes a block of one row."""

    identifiers: dict[int, str]
    """Schedulers that wrote here, by the keys that `written_by` names."""

    scheduler_key: int
    """The key of the scheduler that opened it."""

    zone: str | None
    """The host's zone when it was last used."""

    next_generation: int
    next_run: int
    next_number: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """All that one initialize() changes in the store."""

    resolution: Resolution
    correction: Correction | None
    zone: str
    at: Instant
    trace: "TraceRows | None" = None
    """What to add to the trace, in the same transaction; None when none is kept."""


class RunRecord(NamedTuple):
    """One run, as history has it, or one that is still under way."""

    run_id: int
    task: str
    generation: int
    expression: str
    cause: str
    """`cron`, `retry`, `interrupted`."""

    scheduled_time: Instant
    """The due minute, the end of the retry delay, or the start of the run that a crash cut short."""

    started_at: Instant
    ended_at: Instant | None
    outcome: str
    """`success`, `failure`, `interrupted`, `running`."""

    error: str | None = None


class Declaration(NamedTuple):
    """One declaration of a task: the one in force, or an earlier one that history still names."""

    generation: int
    task: str
    expression: str
    retry_delay_ms: Delay
    known_since: Instant
    retired_at: Instant | None = None


TraceRow = tuple[Any, ...]
"""An event of `duly.formal.trace` without its number: letters, instant, the other fields in their order."""


class TraceRows(NamedTuple):
    """Rows for the trace, and the registers from which it begins if what is there does not reach up to now."""

    rows: Sequence[TraceRow]
    registers: "RegisterSnapshot | None" = None


class Refusal(NamedTuple):
    """A start that the store did not grant, because the truth it holds is another one."""

    start: Start
    reason: str


@runtime_checkable
class Store(Protocol):
    """The port. Failures are `StoreError`s; after one the store is as it was before the call, or as after it."""

    async def open(self, identifier: str, at: Instant) -> Persisted:
        """Take ownership and load, changing nothing; a live holder is named in a `StoreLockedError`.

        When it raises, nothing is owned.
        """
        ...

    async def replace(self, replacement: Replacement, number: int) -> None:
        """Apply all of an initialize(), or nothing."""
        ...

    async def has_replaced(self, number: int) -> bool:
        """Whether the replacement with this number has been applied, whatever its caller was told of it."""
        ...

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Sequence[Refusal]:
        """Make a batch of changes durable, all or none but the refused starts; and rows of the trace with it.

        A failed write is repeated with the same `batch` and `trace`, so `trace` can be iterated more than once.
        """
        ...

    def touch(self) -> None:
        """Leave a sign of life for observers: the loop has looked. Never fails."""
        ...

    async def close(self) -> None:
        """Give up ownership and release everything; closing twice is fine."""
        ...

    def abandon(self) -> None:
        """Release everything at once and record nothing more: the event loop is going away."""
        ...
