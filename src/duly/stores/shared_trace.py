"""The trace of a shared store: its log, entry by entry, in the letters of `duly.formal.trace`.

Every write of every host appends one entry to the log, in the transaction that makes it true. So the log is the trace
in another form, and nothing else is kept: what is refused or fenced stands in the entry, and so do the notes that
change no state. A trace begins with a *base*: what the store held at that moment. Base and log are read from one
snapshot of the store; `SharedMemory` and PostgreSQL hand over the same values, and get the same lines.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from duly.core.moments import LAST_INSTANT, MICROSECONDS, Instant, Minute, begin
from duly.core.news import Buried, Corrected, Joined, Left, LogEntry, Note, Position, Replaced, Written, host_of, within
from duly.errors import TraceError
from duly.formal.trace import (
    BT,
    BY,
    CK,
    IE,
    IS,
    LOOP,
    LR,
    NEW,
    ORPHANED,
    OVERRIDDEN,
    PRESERVED,
    RN,
    SE,
    SS,
    THREAD,
    WAIT,
    Event,
    Row,
    Writer,
    encode_shared_row,
    row_of,
    shared_header,
)

if TYPE_CHECKING:
    from duly.formal.registers import RegisterSnapshot, TaskRow

HINT: Final = "restore a backup; a trace that was changed cannot be judged"
LATE_MICROSECONDS: Final = 10 * MICROSECONDS
"""An entry that is written so much later than what it tells of shows that its host could not write before."""

UNKNOWN_CALL: Final = 0
"""The number of a stop() that the log does not tell: calls are numbered from 1."""


# --- what a store hands over -----------------------------------------------------------------------------------------


class BaseTask(NamedTuple):
    """A declaration in force when the trace began, and its state."""

    generation: int
    name: str
    cron: str
    delay_ms: int
    thread: bool
    served_through: Minute
    last_attempt_at: Instant | None
    last_success_at: Instant | None
    last_failure_at: Instant | None
    pending_retry_until: Instant | None
    interruptions: int
    run: int | None


class BaseHost(NamedTuple):
    """A host that was running when the trace began."""

    key: int
    edition: int
    max_concurrency: int | None
    threads: int | None


class BaseStray(NamedTuple):
    """A run of a withdrawn declaration that went on when the trace began."""

    name: str
    run: int
    generation: int


class BaseMark(NamedTuple):
    """The last minute that withdrawn declarations of a name had served when the trace began."""

    name: str
    served_through: Minute


@dataclass(frozen=True, slots=True)
class Base:
    """The content of a store just before the first entry of a trace."""

    segment: int
    """How many traces, or parts of one, the store has begun; this one included."""

    first: int
    """The number of the first entry."""

    at: Instant
    edition: int
    interrupted: str | None
    """The option of that name, which belongs to the edition; None before the first."""

    zone: str | None
    tasks: Sequence[BaseTask] = ()
    hosts: Sequence[BaseHost] = ()
    strays: Sequence[BaseStray] = ()
    marks: Sequence[BaseMark] = ()


class NamedDeclaration(NamedTuple):
    """A declaration as the letters have it."""

    name: str
    cron: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class TraceStart:
    """Where a reader that follows a trace begins: the newest base, which may be later than that of the whole trace."""

    base: Base
    generation: int
    """The highest generation that was in use then: higher ones come with the entries."""

    @property
    def position(self) -> Position:
        """The position before the first entry."""
        return Position(self.base.first - 1, None)


@dataclass(frozen=True, slots=True)
class TracePart:
    """Entries of a trace after a position, with all that they name for the first time; from one snapshot."""

    entries: Sequence[LogEntry]
    identifiers: Mapping[int, str]
    """Of hosts that declare a set in one of the entries, by key."""

    declarations: Mapping[int, NamedDeclaration]
    """Declarations that are new to the reader, by generation; some may belong to later entries."""

    segment: int
    """That of the newest base."""


@dataclass(frozen=True, slots=True)
class LoggedTrace:
    """A trace as the store has it, from one snapshot."""

    scheduler: str
    base: Base
    identifiers: Mapping[int, str]
    """Of all hosts, by key."""

    declarations: Mapping[int, NamedDeclaration]
    """Declarations since the trace began, by generation."""

    entries: Iterable[LogEntry]
    """All entries of the trace, in their order."""

    last: int
    """The number of the last one: as far as the store, or any host, knows the log."""

    clean: bool
    """Whether the last host has left."""


def lines_of(trace: LoggedTrace) -> Iterator[bytes]:
    """The trace in its exchange format: one segment, sealed.

    Raises a TraceError, at the latest instead of the seal, if an entry is missing or cannot be one.
    """
    lines: list[bytes] = []
    registers = registers_of(trace.base)
    header = shared_header(
        trace.scheduler, segment=trace.base.segment, registers=None if registers is None else registers.as_json()
    )
    writer = Writer(lines.append, header)
    yield lines.pop()
    expansion, expected, seq = Expansion(trace.base), trace.base.first, 1
    expansion.learn(trace.identifiers, trace.declarations)
    for entry in trace.entries:
        if entry.seq != expected:
            raise _cut(expected, entry.seq, seq + 1)
        try:
            for host, row in expansion.rows(entry):
                writer.put(f"{encode_shared_row(seq, host, row)}\n".encode("ascii"))
                seq += 1
                yield lines.pop()
        except LookupError as fault:
            reason = f"entry {entry.seq} of the log names what is not on record: {fault}"
            raise TraceError("malformed", seq + 1, reason, hint=HINT) from fault
        expected += 1
    if expected <= trace.last:
        raise _cut(expected, None, seq + 1)
    writer.seal(clean=trace.clean)
    yield lines.pop()


def _cut(missing: int, found: int | None, line: int) -> TraceError:
    follows = "it was the last one, or a host has read beyond it" if found is None else f"entry {found} follows"
    reason = f"the log was cut: entry {missing} is missing, and {follows}"
    return TraceError("truncated", line, reason, hint=HINT)


# --- the base --------------------------------------------------------------------------------------------------------


def registers_of(base: Base) -> "RegisterSnapshot | None":
    """The registers of a store that was used before; None if it was not.

    A trace that is not the first has registers, although all tasks and hosts may be gone.
    """
    from duly.formal.registers import HostStart, RegisterSnapshot, removed_row

    if base.segment == 1 and not (base.tasks or base.hosts or base.strays or base.marks):
        return None
    marks = {mark.name: begin(mark.served_through) for mark in base.marks}
    rows = {task.name: _register(task, marks.get(task.name)) for task in base.tasks}
    for name, served in marks.items():
        if name not in rows:
            rows[name] = removed_row(name, served)
    for stray in base.strays:
        known = rows.get(stray.name) or removed_row(stray.name, None)
        rows[stray.name] = known._replace(
            run=stray.run, run_generation=stray.generation, epoch=host_of(stray.run), fresh=True
        )
    living = {host.key: HostStart(host.edition, host.max_concurrency, host.threads) for host in base.hosts}
    return RegisterSnapshot.of_shared_store(
        rows.values(),
        living,
        edition=base.edition,
        restart=base.interrupted != WAIT,
        zone=base.zone or "UTC",
        at=base.at,
    )


def _register(task: BaseTask, mark: Instant | None) -> "TaskRow":
    from duly.formal.registers import TaskRow

    running, unstarted = task.run is not None, task.last_attempt_at is None
    return TaskRow(
        name=task.name,
        declared=True,
        generation=task.generation,
        cron=task.cron,
        delay_ms=task.delay_ms,
        thread=task.thread,
        served_through=begin(task.served_through),
        retry_at=task.pending_retry_until,
        run=task.run,
        run_generation=task.generation if running else -1,
        run_on_thread=task.thread and running,
        epoch=-1 if task.run is None else host_of(task.run),
        started=task.last_attempt_at or 0,
        floor=0,
        ended=max(task.last_success_at or 0, task.last_failure_at or 0),
        streak=min(2, task.interruptions) if running else 0,
        due_since_success=True,
        fresh=True,
        unstarted=unstarted,
        served_before=mark if unstarted else None,
    )


def _earliest(written: Written) -> Instant:
    """The earliest instant of which a batch tells."""
    ends, starts = (each.at for each in written.ends), (each.at for each in written.starts)
    return min((*ends, *starts, *(note[1] for note in written.notes)), default=LAST_INSTANT)


# --- from entries to letters -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Calls:
    """The calls of one host, as far as the trace has them."""

    inits: set[int] = field(default_factory=set)
    stops: set[int] = field(default_factory=set)
    effective: set[int] = field(default_factory=set)


class Expansion:
    """Turns entries into events, each with its host, and remembers what the next entries need."""

    def __init__(self, base: Base) -> None:
        self._identifiers: dict[int, str] = {}
        self._declared = {task.generation: NamedDeclaration(task.name, task.cron, task.delay_ms) for task in base.tasks}
        self._in_force = {task.name: task.generation for task in base.tasks}
        self._calls = {host.key: _Calls() for host in base.hosts}
        """Of hosts that have joined and are not gone."""
        for stray in base.strays:
            self._declared.setdefault(stray.generation, NamedDeclaration(stray.name, "* * * * *", 0))
        self._at = base.at
        self._zone = base.zone or "UTC"

    def learn(self, identifiers: Mapping[int, str], declarations: Mapping[int, NamedDeclaration]) -> None:
        """Take in hosts and declarations that the next entries name."""
        self._identifiers.update(identifiers)
        self._declared.update(declarations)

    def rows(self, entry: LogEntry) -> Iterator[tuple[int, Row]]:
        """The events of an entry, in their order, each with its host."""
        host = entry.host
        match entry.content:
            case Written() as written:
                yield from self._step(entry, None)
                if _earliest(written) < entry.at - LATE_MICROSECONDS:
                    yield host, row_of(LR(0, entry.at))
                # First, whenever it was noted: of all that the entry tells, nothing could be written before.
                for note in written.notes:
                    if note[0] == "LR":
                        yield host, note
                for row in self._written(written, host):
                    yield host, row
                if written.corrected is not None:
                    yield host, row_of(CK(0, written.corrected.at, entry.at))
            case Joined() | Replaced():
                for row in self._declares(entry, entry.content):
                    yield host, row
            case Buried(who):
                yield from self._step(entry, None)
                yield host, row_of(BY(0, entry.at, who))
                self._calls.pop(who, None)
            case Left(notes):
                yield from self._step(entry, None)
                for row in self._leaves(notes, host, entry.at):
                    yield host, row
                self._calls.pop(host, None)
            case unreadable:
                raise LookupError(f"a {unreadable.kind!r}, which this version of duly does not know")

    def _step(self, entry: LogEntry, corrected: Corrected | None) -> Iterator[tuple[int, Row]]:
        """The clock of the store shows less than at the entry before: it was set back."""
        before, self._at = self._at, entry.at
        if entry.at < before or corrected is not None:
            yield entry.host, row_of(CK(0, entry.at, before))

    # --- starts and ends ---------------------------------------------------------------------------------------------

    def _written(self, written: Written, host: int) -> Iterator[Row]:
        declared, fenced, refused = self._declared, frozenset(written.fenced), frozenset(written.refused)
        for ended in written.ends:
            succeeded = ended.failure is None
            for generation, run in zip(ended.generations, ended.runs, strict=True):
                if run not in fenced:
                    yield ("RE", ended.at, declared[generation].name, generation, run, succeeded)
        yield from self._noted(written.notes, host)
        running = written.running
        for started in written.starts:
            cause = started.cause.value
            for run, generation in enumerate(started.generations, started.first_run):
                if generation not in refused:
                    yield ("RS", started.at, declared[generation].name, generation, run, cause, running)
                    running += 1

    def _noted(self, notes: Iterable[Note], host: int) -> Iterator[Row]:
        """Notes as they are, but for the end of a call of which the trace has no beginning."""
        calls = self._calls.setdefault(host, _Calls())
        for note in notes:
            match note:
                case ("IS", _, call):
                    if call in calls.effective:
                        continue
                    calls.inits.add(call)
                case ("IF", _, call, _):
                    # It was called before the trace began, or its host never heard that it took effect.
                    if call not in calls.inits:
                        continue
                    calls.inits.discard(call)
                case ("SS", _, call):
                    calls.stops.add(call)
                case ("SF", _, call, _):
                    calls.stops.discard(call)
                case ("LR", _):
                    continue
                case _:
                    pass
            yield note

    def _leaves(self, notes: Sequence[Note], host: int, at: Instant) -> Iterator[Row]:
        """A stop completes; the trace has its beginning, even if the host made no note of it."""
        calls = self._calls.setdefault(host, _Calls())
        if not any(note[0] == "SE" for note in notes):
            notes = (*notes, row_of(SE(0, at, UNKNOWN_CALL)))
        for note in notes:
            if note[0] != "SE":
                yield from self._noted((note,), host)
                continue
            _, when, call = note
            if call not in calls.stops:
                yield row_of(SS(0, when, call))
            calls.stops.discard(call)
            yield note

    # --- declarations ------------------------------------------------------------------------------------------------

    def _declares(self, entry: LogEntry, content: Joined | Replaced) -> Iterator[Row]:
        at, host, said = entry.at, entry.host, content.said
        if host not in self._calls:
            self._calls[host] = _Calls()
            yield row_of(BT(0, at, self._identifiers[host], said.mono))
        for _, row in self._step(entry, content.corrected):
            yield row
        calls = self._calls[host]
        if said.call not in calls.inits:
            yield row_of(IS(0, at, said.call))
        calls.inits.discard(said.call)
        calls.effective.add(said.call)
        self._zone = content.zone
        outdated = isinstance(content, Joined) and content.outdated
        if isinstance(content, Replaced):
            yield from self._replaces(content, at)
        if not outdated:
            yield from self._moves(content, at)
        event: Event = IE(
            0, at, said.call, said.declared, said.digest, said.interrupted, said.max_concurrency, said.threads,
            self._zone, content.edition, outdated,
        )  # fmt: skip
        yield row_of(event)
        if isinstance(content, Replaced):
            for who in content.renumbered:
                yield row_of(RN(0, at, who))

    def _replaces(self, content: Replaced, at: Instant) -> Iterator[Row]:
        first = content.first_generation
        arrived = range(first, first + content.added)
        names = {self._declared[generation].name for generation in arrived}
        in_threads = {generation for generation in within(content.moved.to_threads) if generation >= first}
        for generation in content.removed:
            name = self._declared[generation].name
            if name not in names:
                del self._in_force[name]
                yield self._registration(at, generation, ORPHANED, content.known_since, LOOP)
        for generation in arrived:
            name = self._declared[generation].name
            change = OVERRIDDEN if name in self._in_force else NEW
            self._in_force[name] = generation
            place = THREAD if generation in in_threads else LOOP
            yield self._registration(at, generation, change, content.known_since, place)

    def _moves(self, content: Joined | Replaced, at: Instant) -> Iterator[Row]:
        """Preserved tasks whose callbacks run elsewhere than before."""
        first = content.first_generation if isinstance(content, Replaced) else None
        for spans, place in ((content.moved.to_threads, THREAD), (content.moved.to_loop, LOOP)):
            for generation in within(spans):
                declared = self._declared.get(generation)
                is_in_force = declared is not None and self._in_force.get(declared.name) == generation
                if is_in_force and (first is None or generation < first):
                    yield self._registration(at, generation, PRESERVED, at, place)

    def _registration(self, at: Instant, generation: int, change: str, known_since: Instant, place: str) -> Row:
        name, cron, delay_ms = self._declared[generation]
        return ("RG", at, name, generation, change, cron, delay_ms, self._zone, known_since, place)
