"""The ports to durable state: `Store` for the scheduler, `Reader` for commands and dashboards, which only read.

A store belongs to one scheduler at a time. Each verb is atomic. `replace` and `write` carry a number that grows by
one with each new call: a call that failed is repeated under its own number, and a store that has applied it already
(a commit can succeed and still report a fault) does nothing the second time. Calls of one verb never overtake each
other; a `replace` may come between a failed `write` and its repetition, and the other way round.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from duly.core.changes import Batch
from duly.core.cron import CronExpression
from duly.core.moments import Delay, Instant, Minute
from duly.core.record import EqualRows, StoredTask
from duly.core.resolution import Mark, Resolution
from duly.core.task import Correction, idempotency_key

if TYPE_CHECKING:
    from duly.formal.registers import RegisterSnapshot

T = TypeVar("T")

DEFAULT_HISTORY: Final = 100_000
"""How many run records a store keeps by default."""


class Persisted(NamedTuple):
    """The content of a store when it is opened."""

    records: Sequence[EqualRows]
    """The rows of all tasks, in blocks of equal ones; `EqualRows.single` makes a block of one row."""

    identifiers: dict[int, str]
    """Schedulers that wrote here, by the keys that `written_by` names."""

    scheduler_key: int
    """The key of the scheduler that opened it."""

    zone: str | None
    """The host's zone when it was last used."""

    marks: Mapping[str, Mark]
    """The marks of declarations that were withdrawn within the last day, by name (SPEC 5.1)."""

    next_generation: int  #: the number that the next declaration gets
    next_run: int  #: the number that the next run gets
    next_number: int  #: the number of the next `replace` or `write`


@dataclass(frozen=True, slots=True)
class Replacement:
    """All that one initialize() changes in the store."""

    resolution: Resolution  #: what is added, overridden, orphaned and preserved
    correction: Correction | None  #: what is lowered because the clock was corrected (SPEC 2.5)
    zone: str  #: the host's zone
    at: Instant  #: when it was decided
    trace: "TraceRows | None" = None
    """Rows to add to the trace, in the same transaction; None when no trace is kept."""


TraceRow = tuple[Any, ...]
"""An event of `duly.formal.trace` without its number: letters, instant, the other fields in their order."""


class TraceRows(NamedTuple):
    """Rows for the trace, and the registers from which it begins if what is there does not reach up to now."""

    rows: Sequence[TraceRow]
    registers: "RegisterSnapshot | None" = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a batch: all of it is durable, but for the starts and ends that are named here."""

    refused: frozenset[int] = frozenset()
    """Starts that were never made, by their run numbers: the store's own record of the task says otherwise."""

    fenced: frozenset[int] = frozenset()
    """Runs whose ends were not recorded, because they are not on record any more."""

    fence: int | None = None
    """A number that grows with every start of a task, across hosts; None: no other host can start it."""


COMPLETE: Final = Outcome()
"""Nothing was refused: the answer of a store that belongs to one scheduler."""


class StoreWriter(Protocol):
    """The requests of a running scheduler. A failure is a `StoreError`: the store is then as before, or as after it."""

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        """Make a batch of changes durable, all or none but what is refused; and rows of the trace with it.

        A start that is refused leaves no row in the trace, and is asked for again about a second later.

        Parameters:
            batch: the changes.
            number: grows by one with each new call; a repeated one has its own.
            trace: rows to add to the trace in the same transaction. A failed write is repeated with the same ones, so
                they can be iterated more than once.

        Returns:
            The starts that were refused, and the ends that were not recorded; `COMPLETE` if there are none.

        Raises:
            StoreError: the store failed; it is then as it was before, or as after the call.
        """
        ...

    def touch(self) -> None:
        """Note for observers that the loop has polled. Never fails."""
        ...

    async def close(self) -> None:
        """Give up ownership and release everything; closing twice is fine."""
        ...

    def abandon(self) -> None:
        """Release everything at once and record nothing more: the event loop is going away."""
        ...


@runtime_checkable
class Store(StoreWriter, Protocol):
    """The port of a store that belongs to one scheduler at a time."""

    async def open(self, identifier: str, at: Instant) -> Persisted:
        """Take ownership and load, changing nothing. When it raises, nothing is owned.

        Parameters:
            identifier: the scheduler that opens it.
            at: now, for the name of the holder.

        Raises:
            StoreLockedError: a running scheduler holds it.
            StoreError: it cannot be used: damaged, written by a newer duly, or not a store.
            TaskTryDeserializeError: a record is not what duly writes.
        """
        ...

    async def replace(self, replacement: Replacement, number: int) -> None:
        """Apply all of an initialize(), or nothing.

        Parameters:
            replacement: all that it changes.
            number: grows by one with each new call; a repeated one has its own.

        Raises:
            StoreError: the store failed; it is then as it was before, or as after the call.
        """
        ...

    async def has_replaced(self, number: int) -> bool:
        """Whether a replacement has been applied, even if the call reported a fault.

        Parameters:
            number: the number of the replacement.

        Raises:
            StoreError: the store cannot be asked.
        """
        ...


@runtime_checkable
class EmbeddedStore(Store, Protocol):
    """A store that belongs to one running scheduler at a time, and names it."""

    def holder(self) -> "Holder":
        """Which scheduler holds the store, and whether it is running; reads the lock at once, without taking it."""
        ...

    def note_blockage(self, blockage: "Blockage") -> None:
        """Note for observers that a callback blocks, or has blocked, the event loop; from any thread. Never fails."""
        ...


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Blockage:
    """A callback that blocked the event loop of its scheduler."""

    task: str
    """Its name, which is cut if it is long."""

    at: Instant
    """When that was noted: at its end, or, while it lasts, when it was found."""

    blocked_ms: int
    """For how long up to then, from when it was first seen: up to 200 ms after it began."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Which process uses an embedded store, and when its scheduler last polled."""

    alive: bool
    """Whether a running scheduler holds the store."""

    pid: int | None
    host: str | None
    since: Instant | None
    """Process, host and time of the scheduler that holds the store, or that held it last and crashed."""

    last_poll_at: Instant | None
    """When a scheduler last polled; None: no scheduler has ever held the store here."""

    blockage: Blockage | None = None
    """The latest time that a callback blocked the event loop of the holder."""


class HostName(NamedTuple):
    """A host of a shared store, as its runs name it."""

    key: int
    label: str | None


@dataclass(frozen=True, slots=True)
class StoredHost:
    """A host of a shared store, as its row says."""

    key: int
    identifier: str
    label: str | None
    since: Instant
    """When it joined."""

    lease: int
    """In microseconds."""

    edition: int
    """The set of tasks that it declares."""

    beat_at: Instant
    """Its last beat, by the clock of the store; of a host that has left, the moment at which it did."""

    gone: Literal["left", "buried"] | None
    fault: str | None = None
    """The reason why it cannot write until somebody acts (SPEC 9.20), as its last beat said."""

    @property
    def name(self) -> HostName:
        """As its runs name it."""
        return HostName(self.key, self.label)

    def is_silent(self, at: Instant) -> bool:
        """Whether it is on record, and its beat is so old that other hosts would have buried it (SPEC 9.5)."""
        return self.gone is None and at - self.beat_at > self.lease + self.lease // 3

    def is_living(self, at: Instant) -> bool:
        """Whether it is neither gone nor silent."""
        return self.gone is None and not self.is_silent(at)


class Hold(NamedTuple):
    """A time in which a host of a shared store could not trust its lease, and held the steps of its callbacks."""

    since: Instant
    until: Instant
    """When the host reached the store again."""


class Edition(NamedTuple):
    """A distinct set of tasks that hosts of a shared store have declared."""

    digest: str
    since: Instant
    """When it was first seen."""


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The hosts and editions on record in a shared store."""

    hosts: Sequence[StoredHost]
    """By key; of those that are gone, the latest thousand."""

    edition: int
    """The edition in force."""

    in_force_since: Instant
    """When it was put in force, as far as the log still says; else when it was first seen."""

    editions: Mapping[int, Edition]
    """By number; the latest thousand."""

    position: int
    """The number of the latest entry of the log."""

    oldest_transaction_at: Instant | None
    """Since when the oldest transaction in the database has been open, of those that the role may see."""

    def host(self, key: int) -> StoredHost | None:
        """The host that has a key."""
        return next((each for each in self.hosts if each.key == key), None)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A store as a whole, at one moment."""

    store: str
    """The name of the store: the real path of a file, or a URL without its password."""

    at: Instant
    """By the clock of the reader, or, of a shared store, by that of the database."""

    schema_version: int
    zone: str | None
    """The zone in which a scheduler last used the store."""

    holder: Holder
    """Of a shared store: alive if a host of the edition in force lives, since the first of them joined, with the latest
    beat as the last poll."""

    arrivals: Sequence[Instant]
    """When each scheduler that the store still names took it over, earliest first; hosts that joined others did not."""

    cluster: ClusterRecord | None = None
    """None: the store is embedded, and has no hosts."""


class TaskPhase(Enum):
    """The state of a task by its record alone, before the calendar says what it is owed."""

    WAITING = "waiting"
    RETRYING = "retrying"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """Running by its record, and no scheduler runs it: a crash cut it short, and it has not started again."""


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task in force, as the store knows it."""

    stored: StoredTask
    known_since: Instant
    run_cause: str | None
    run_scheduled: Instant | None
    phase: TaskPhase
    last_error: str | None
    """The error of the latest failure that history has."""

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.stored.name

    @property
    def running(self) -> bool:
        """Whether a scheduler runs it now."""
        return self.phase is TaskPhase.RUNNING

    @property
    def interrupted(self) -> bool:
        """Whether a crash cut its run short, and it has not started again."""
        return self.phase is TaskPhase.INTERRUPTED


class Interruption(NamedTuple):
    """The facts that decide when a run that was cut short may start again."""

    started_at: Instant
    delay: Delay
    interruptions: int


@dataclass(frozen=True, slots=True)
class Cohort:
    """Tasks that share their expression, `served_through` and phase, so that what the calendar owes them is the same.

    A store of a million tasks has few of them. An end counts as instant 0 where there was none.
    """

    expression: CronExpression
    served_through: Minute
    phase: TaskPhase
    interruption: Interruption | None
    """Of interrupted tasks, which share this as well."""

    tasks: int
    generations: tuple[int, int]
    """The lowest and the highest generation among them; others may lie between."""

    first_end: Instant
    last_end: Instant
    """The earliest and the latest of their last ends."""

    ended_before: int
    """How many had their last end before the bound that was asked about."""

    ripe: int
    """Number of retrying tasks whose retry is due by now."""

    first_ripe: Instant | None
    """Among retrying tasks, the earliest instant at which the retry was ripe and the last run had ended."""

    ripe_before: int
    """Number of retrying tasks for which that instant lies before the bound that was asked about."""


@dataclass(frozen=True, slots=True)
class RunMarks:
    """Runs as a picture of very many shows them: when and how, without names and texts; the latest first.

    Columns instead of rows: twenty thousand objects would take longer to make than to draw.
    """

    started_at: Sequence[Instant]
    ended_at: Sequence[Instant | None]
    outcomes: Sequence[str]
    lateness: Sequence[int | None]
    """Microseconds from a due minute to the start; None of a retry, and of what repeats an interrupted run."""

    hosts: Sequence[HostName | None] = ()
    """The hosts that started them; empty in an embedded store."""

    def __len__(self) -> int:
        return len(self.started_at)


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
    attempt: int | None = None
    first_started_at: Instant | None = None
    """The number of the attempt for its obligation, and the first start for it (SPEC 10.1).

    None for a retry or a repetition that a store of an older schema has recorded.
    """

    called_at: Instant | None = None
    """When its callback was called, after its start was durable; None while it runs, and in stores of older schemas."""

    traceback: str | None = None
    """The end of the traceback, if the run has failed and tracebacks were asked for."""

    host: HostName | None = None
    """The host that started it; None in an embedded store."""

    @property
    def key(self) -> str | None:
        """The idempotency key, as `current_run()` had it inside the run."""
        if self.first_started_at is None:
            return None
        return idempotency_key(self.task, self.generation, self.first_started_at)


class Declaration(NamedTuple):
    """One declaration of a task: the one in force, or an earlier one that history still names."""

    generation: int
    task: str
    expression: str
    retry_delay_ms: Delay
    known_since: Instant
    retired_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class RunSelection:
    """Which runs are asked for; the default is all of them."""

    task: str | None = None  #: of this task alone; None: of any
    since: Instant | None = None
    """Started at or after."""

    until: Instant | None = None
    """Started before."""

    outcomes: Collection[str] = ()
    """None named: whatever the outcome."""

    names: tuple[str, ...] = ()
    """Of one of these tasks, or of one that a pattern matches; neither named: of any task."""

    patterns: tuple[str, ...] = ()
    """Patterns of names as in a shell: `*`, `?`, `[abc]`."""

    causes: Collection[str] = ()
    """None named: whatever the cause."""

    before: tuple[Instant, int] | None = None
    """Started before the run with this start and this number; of one start, the higher number counts as later."""


TaskFilter = Literal["all", "running", "interrupted", "owed", "retrying", "failing", "never"]
"""`owed`: does not run, was not cut short, and has a due minute that was not served, or a retry that is ripe.
`failing`: the latest run that ended has failed. `never`: has not been started since it was declared.
"""

TaskOrder = Literal["name", "expression", "failure", "failures"]
"""By name; by the rank of the expression; the latest failure first; the most failures in a row first."""


class TaskPlace(NamedTuple):
    """The place of a task in an order: what it is ordered by, and its name where several are equal."""

    name: str
    value: int = 0


@dataclass(frozen=True, slots=True)
class TaskSelection:
    """Which tasks in force are asked for, and in which order; the default is all of them by name.

    An order by failures has only tasks that have failed, one by expression only those of the ranked expressions.
    """

    containing: str = ""
    """Part of the name; ASCII letters match whatever their case."""

    which: TaskFilter = "all"
    order: TaskOrder = "name"
    ranks: Mapping[str, int] | None = None
    """The ranks of some expressions, by their text, for the order `expression`."""

    latest_due: Mapping[str, Minute] | None = None
    """The latest due minutes of some expressions, by their text, for the filter `owed`: by the calendar, tasks of
    others are owed nothing."""

    after: TaskPlace | None = None
    before: TaskPlace | None = None
    """Only tasks that come after, or before, a place; `before` has those next to it."""


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Numbers about all tasks in force that their cohorts do not tell."""

    failing: int
    never_ran: int


@dataclass(frozen=True, slots=True)
class TaskRuns:
    """Runs of one task, counted and measured."""

    task: str
    runs: int
    failures: int
    interruptions: int
    longest: int | None
    """Microseconds that the longest run took; None if none has ended."""

    median: float | None
    """Microseconds that half of the runs did not exceed."""

    latest: Sequence[int]
    """Microseconds that the latest runs took, the latest last."""


@dataclass(frozen=True, slots=True)
class HistoryExtent:
    """How much history there is."""

    runs: int
    """Runs that are on record, those under way included."""

    runs_ever: int
    """Runs that were ever started, as far as numbers in the store tell; more than `runs` if history dropped some."""

    oldest_end: Instant | None
    """The end of the run on record that started first, of those not under way; its start if it has no end."""


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """The trace that a store holds, as a whole."""

    scheduler: str
    segments: int
    first_segment: int
    events: int | None
    """None: the store holds them in another form, and they are counted when they are written out."""

    first_seq: int
    seal: Literal["clean", "open"]
    """`clean`: a stop has completed, and no scheduler holds the store, so the trace has ended."""

    current: bool
    """False: a scheduler that kept no trace has used the store since."""

    position: int = 0
    """The number of the last event or, in a shared store, of the last entry of its log."""


class View(Protocol):
    """A store at one moment. An iterator that it returns must be used inside the question."""

    def snapshot(self) -> Snapshot:
        """The store as a whole, at one moment."""
        ...

    def size(self) -> int | None:
        """Bytes that the store takes on its disk; None if that cannot be told."""
        ...

    def engine(self) -> str:
        """The database in use, with its version: `SQLite 3.45.1`."""
        ...

    def count_tasks(self) -> int:
        """How many tasks are in force."""
        ...

    def marks(self) -> Mapping[str, Mark]:
        """The marks of withdrawn declarations, by name (SPEC 5.1)."""
        ...

    def cohorts(self, bound: Instant) -> Iterator[Cohort]:
        """All tasks in force, by cohort.

        Parameters:
            bound: the instant to which `ended_before` and `ripe_before` refer.
        """
        ...

    def tasks(
        self, *, after: str | None = None, limit: int | None = None, phase: TaskPhase | None = None
    ) -> Iterator[KnownTask]:
        """Tasks in force, by name.

        Parameters:
            after: only names after this one.
            limit: how many at most.
            phase: only tasks in this phase; None: in any.
        """
        ...

    def page(self, which: TaskSelection, limit: int) -> Sequence[KnownTask]:
        """Tasks in their order; reads no more of the store than that takes.

        Parameters:
            which: the tasks that are asked for, and their order.
            limit: how many at most.
        """
        ...

    def tally(self) -> TaskCounts:
        """Numbers about all tasks in force."""
        ...

    def declared(self) -> Hashable:
        """A value that is another one after tasks were declared or withdrawn; cheap to ask for."""
        ...

    def expressions(self, limit: int) -> Sequence[tuple[str, int]]:
        """The texts of the expressions that most tasks have, with the number of these tasks, most first.

        Parameters:
            limit: how many expressions at most.
        """
        ...

    def longest_owed(self, owed: Sequence[tuple[Cohort, Instant]], limit: int) -> Sequence[KnownTask]:
        """Tasks of some cohorts, those first that could have been started earliest, then by name.

        A task could be started once it is owed, or its retry is ripe, and its last run has ended.

        Parameters:
            owed: cohorts, each with the instant since which it is owed.
            limit: how many tasks at most.
        """
        ...

    def task(self, name: str) -> KnownTask | None:
        """The task in force that has a name.

        Parameters:
            name: the name.
        """
        ...

    def declarations(self, name: str) -> Sequence[Declaration]:
        """The declarations of a name that the store still has, earliest first.

        Parameters:
            name: the name.
        """
        ...

    def declaration(self, generation: int) -> Declaration | None:
        """The declaration that has a number; None if the store no longer has it.

        Parameters:
            generation: the number.
        """
        ...

    def names(self, *, prefix: str = "", after: str | None = None, limit: int) -> Sequence[str]:
        """Names of tasks in force or in history, in order.

        Parameters:
            prefix: only names that begin with it.
            after: only names after this one.
            limit: how many at most.
        """
        ...

    def names_before(self, name: str, *, limit: int) -> Sequence[str]:
        """The last names before one, nearest first.

        Parameters:
            name: the name.
            limit: how many at most.
        """
        ...

    def has_name_like(self, pattern: str) -> bool:
        """Whether a pattern matches a name that `names` would hand out.

        Parameters:
            pattern: as in a shell: `*`, `?`, `[abc]`.
        """
        ...

    def count_names(self) -> int:
        """How many names `names` would hand out in all."""
        ...

    def runs(
        self, which: RunSelection, *, limit: int | None = None, oldest_first: bool = False, tracebacks: bool = False
    ) -> Iterator[RunRecord]:
        """Runs, ended or under way, in the order of their starts.

        Parameters:
            which: the runs that are asked for.
            limit: how many at most.
            oldest_first: False: the latest first.
            tracebacks: whether failed ones have theirs: up to 8 KiB each.
        """
        ...

    def run_marks(self, which: RunSelection, limit: int) -> RunMarks:
        """Runs, ended or under way, the latest first; in a small part of the time that `runs` takes.

        Parameters:
            which: the runs that are asked for.
            limit: how many at most.
        """
        ...

    def count_runs(self, which: RunSelection) -> int:
        """How many runs there are.

        Parameters:
            which: the runs that are asked for.
        """
        ...

    def runs_by_time(self, since: Instant, width: int) -> Mapping[tuple[int, str], int]:
        """How many runs have started since an instant, by the number of their interval and by outcome.

        Parameters:
            since: the begin of the first interval.
            width: the length of each, in microseconds.
        """
        ...

    def runs_by_task(self, which: RunSelection, *, limit: int, latest: int) -> tuple[int, Sequence[TaskRuns]]:
        """How many tasks have such runs, and a summary of the runs of the first tasks, by their earliest start.

        Parameters:
            which: the runs that are asked for.
            limit: how many tasks at most.
            latest: how many durations each summary has at most.
        """
        ...

    def runs_by_host(self) -> Mapping[int, int]:
        """How many runs of each host are under way, by its key; nothing in an embedded store."""
        ...

    def holds(self, host: int, since: Instant, until: Instant) -> Sequence[Hold]:
        """The times in which a host of a shared store held the steps of its callbacks, earliest first.

        Parameters:
            host: the key of the host.
            since: only what ended after this instant.
            until: only what began before this one.
        """
        ...

    def history_begins(self) -> Instant | None:
        """The start of the earliest run on record."""
        ...

    def extent(self) -> HistoryExtent:
        """How much history there is."""
        ...

    def has_started(self) -> bool:
        """Whether a task in force has ever been started."""
        ...

    def last_sign_of_life(self, before: Instant) -> Instant | None:
        """The latest start, end, declaration or arrival that is on record from before an instant.

        Parameters:
            before: the instant.
        """
        ...

    def trace(self) -> StoredTrace | None:
        """The trace as a whole; None if the store holds none."""
        ...

    def trace_lines(self, stored: StoredTrace) -> Iterator[bytes]:
        """The trace in its exchange format, line by line.

        Parameters:
            stored: what `trace` has returned.

        Raises:
            TraceError: it is not what was written.
        """
        ...


@runtime_checkable
class Reader(Protocol):
    """Reads a store without changing it, even while a scheduler runs on it."""

    def read(self, question: Callable[[View], T]) -> T:
        """Ask about one moment.

        If the store changes in a way that makes an answer void, the question is asked again. So it must have no lasting
        effect of its own.

        Parameters:
            question: given the store at that moment; it returns what is wanted.

        Returns:
            What the question has returned.

        Raises:
            StoreError: the store cannot be read; a `StoreUnusedError` if there is none yet.
            TaskTryDeserializeError: a record is not what duly writes.
        """
        ...

    def version(self) -> Hashable:
        """A value that is another one after the store, or the lock of its scheduler, was written; cheap to ask for."""
        ...
