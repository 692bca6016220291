"""`SharedMemory`: a shared store as one pure object, with the rules of its functions in readable form.

It reads no clock and draws no chance: both are given to it. It is what the functions of PostgreSQL are compared with,
call by call, and what simulated hosts share.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple

from duly.core.moments import Delay, Instant, Minute
from duly.core.news import (
    Buried,
    Changes,
    Content,
    Corrected,
    Ended,
    Joined,
    Left,
    LogEntry,
    Moved,
    Note,
    Position,
    Replaced,
    Started,
    Written,
    host_of,
    within,
)
from duly.core.record import FIELDS, EqualRows
from duly.core.resolution import Mark, counts
from duly.core.task import SERVED_AHEAD_SECONDS_MAX, Cause, effective
from duly.errors import ClusterZoneError, ForeignSetError, HostGoneError, StoreRewoundError
from duly.stores.shared import (
    NEWS_MAX,
    Act,
    Arrival,
    BeatAnswer,
    EditionAnswer,
    EditionRequest,
    EditionVerdict,
    HostIdentity,
    HostRecord,
    InForce,
    LivingHost,
    News,
    SharedContent,
    WriteAnswer,
    arrivals_digest,
)
from duly.stores.shared_trace import (
    Base,
    BaseHost,
    BaseMark,
    BaseStray,
    BaseTask,
    LoggedTrace,
    NamedDeclaration,
    TracePart,
    TraceStart,
    lines_of,
)

ENTRIES_KEPT: Final = 100_000
ENTRIES_KEPT_FOR: Final = 3_600_000_000
"""The log keeps this many entries, and entries of this many microseconds, for hosts that read late (SPEC 9.20)."""

PRUNED_EVERY: Final = 100
PRUNED_MAX: Final = 5_000
"""Every hundredth write removes old entries of the log, and not more than these at once."""

SWEPT_EVERY: Final = 2_000
"""Every two-thousandth also removes those that had to stay when their turn came."""

SEGMENT_EVENTS_MIN: Final = 250_000
"""A part of the trace that has as many events is followed by the next, and the one before it is forgotten."""

ARRIVALS_KEPT_FOR: Final = 3_600_000_000
"""Microseconds after which declarations that were sent and never put in force are forgotten."""

MINUTE: Final = 60_000_000


@dataclass(slots=True)
class HostRow:
    """A host; `gone` is None, `l`eft or `b`uried."""

    key: int
    identifier: str
    label: str | None
    since: Instant
    lease: int
    edition: int
    declaration: int
    beat: int
    renewed_at: Instant
    seen: int
    max_concurrency: int | None
    threads: int | None
    fault: str | None = None
    gone: str | None = None


class HoldRow(NamedTuple):
    """A time in which a host could not trust its lease."""

    host: int
    since: Instant
    until: Instant


@dataclass(slots=True)
class DeclarationRow:
    """A declaration, in force unless it is retired."""

    generation: int
    name: str
    cron: str
    delay_ms: Delay
    known_since: Instant
    retired_at: Instant | None = None
    thread: bool = False


@dataclass(slots=True)
class StateRow:
    """The state of a declaration in force."""

    generation: int
    served_through: Minute
    written_by: int
    changed: int
    blocked_by: int | None
    last_attempt_at: Instant | None = None
    last_success_at: Instant | None = None
    last_failure_at: Instant | None = None
    pending_retry_until: Instant | None = None
    failures: int = 0
    interruptions: int = 0
    run: int | None = None
    run_cause: str | None = None
    run_scheduled: Instant | None = None
    first_started_at: Instant | None = None
    first_scheduled: Instant | None = None
    attempt: int | None = None


@dataclass(slots=True)
class StrayRow:
    """A run whose declaration was withdrawn, and the declaration that waits for it."""

    name: str
    run: int
    host: int
    generation: int
    successor: int | None = None


@dataclass(slots=True)
class RunRow:
    """A run that has ended, or was interrupted."""

    seq: int
    run: int
    generation: int
    host: int
    cause: str
    scheduled: Instant
    started_at: Instant
    ended_at: Instant | None
    outcome: str
    error: str | None
    traceback: str | None
    first_started_at: Instant | None
    attempt: int | None
    called_at: Instant | None


@dataclass(slots=True)
class BaseRow:
    """The content of the store before an entry of the log, with which a trace or a part of one begins."""

    base: Base
    generation: int
    events: int = 0
    counted: int = 0


class SharedMemory:
    """A shared store; `clock` is the clock of all its hosts, `new_nonce` draws the mark of an entry."""

    def __init__(self, clock: Callable[[], Instant], new_nonce: Callable[[], str]) -> None:
        self._clock = clock
        self._new_nonce = new_nonce
        self.name = "shared memory"
        self.generation: int = 0
        self.edition: int = 0
        self.edition_alone_since: Instant | None = None
        self.interrupted: str | None = None
        self.zone: str | None = None
        self.pruned: int = 0
        self.history: int = 100_000
        self.traced: bool = False
        self.trace_last: int | None = None
        self.editions: dict[int, tuple[str, Instant]] = {}
        self.hosts: dict[int, HostRow] = {}
        self.holds: list[HoldRow] = []
        self.tasks: dict[int, DeclarationRow] = {}
        self.states: dict[int, StateRow] = {}
        self.strays: dict[str, StrayRow] = {}
        self.marks: dict[str, Mark] = {}
        self.runs: list[RunRow] = []
        self.log: dict[int, LogEntry] = {}
        self.bases: list[BaseRow] = []
        self.arriving: dict[str, tuple[Instant, tuple[Arrival, ...]]] = {}

    def __repr__(self) -> str:
        return f"<SharedMemory, {len(self.living())} hosts, {len(self.states)} tasks, entry {self.last_seq()}>"

    # --- what hosts ask ----------------------------------------------------------------------------------------------

    def write(self, me: HostIdentity, number: int, seen: Position, changes: Changes) -> WriteAnswer:
        """Record ends, and grant or refuse starts, by what the host had seen when it decided (SPEC 9.9, 9.10)."""
        self._check_host(me)
        self._check_position(seen)
        if (known := self._entry_of(me.key, number)) is not None:
            return _answer_to_write(known)
        now, seq = self._clock(), self._next_seq()
        fenced = [run for block in changes.ends for run in self._end(block, me.key, seq)]
        refused: list[int] = []
        for block in changes.starts:
            for run, generation in enumerate(block.generations, block.first_run):
                if block.at > now or not self._start(block, generation, run, me.key, seq, seen.seq):
                    refused.append(generation)
        corrected = self._correct(me.key, seq, now) if changes.correct else None
        if changes.ends:
            self._trim_history()
        running = changes.running if changes.starts else 0
        content = Written(
            changes.ends, changes.starts, corrected, tuple(refused), tuple(fenced), changes.notes, running
        )
        entry = self._append(seq, me.key, number, now, content)
        if seq % PRUNED_EVERY == 0:
            self.rotate_trace(SEGMENT_EVENTS_MIN)
            self.prune(ENTRIES_KEPT, ENTRIES_KEPT_FOR, PRUNED_MAX, sweeps=seq % SWEPT_EVERY == 0)
        return _answer_to_write(entry)

    def beat(self, me: HostIdentity, seen: Position, held: int = 0, fault: str | None = None) -> BeatAnswer:
        """Renew the lease (SPEC 9.4); for how long it was not trusted, and what keeps it from writing, go on record."""
        self._check_host(me)
        self._check_position(seen)
        host, now = self.hosts[me.key], self._clock()
        host.beat += 1
        host.renewed_at, host.seen, host.fault = now, seen.seq, fault
        if held > 0:
            # A host that did not get the answer beats again, and tells of the same hold, which was longer.
            since = Instant(now - held)
            self.holds = [each for each in self.holds if each.host != me.key or each.until <= since]
            self.holds.append(HoldRow(me.key, since, now))
        living = tuple(LivingHost(each.key, each.beat, each.edition, each.lease) for each in self.living())
        return BeatAnswer(now, self.last_seq(), living)

    def bury(self, me: HostIdentity, who: int, beat: int | None) -> int | None:
        """Declare a host dead, unless it has beaten since (SPEC 9.5); a host that buries itself names no beat."""
        self._check_host(me)
        dead = self.hosts.get(who)
        if dead is None or dead.gone is not None or (dead.beat != beat and who != me.key):
            return None
        dead.gone = "b"
        return self._go(me.key, who, Buried(who))

    def arrive(self, identifier: str, arrivals: Sequence[Arrival]) -> None:
        """Send the new declarations of the next `replace`; what was sent before is forgotten."""
        self.arriving.pop(identifier, None)
        if arrivals:
            self.arriving[identifier] = self._clock(), tuple(arrivals)

    def replace(self, request: EditionRequest) -> EditionAnswer:
        """Join, or declare another set (SPEC 9.13 to 9.17)."""
        host = self._host_that_declares(request)
        self._check_position(request.seen)
        if host is not None and (known := self._entry_of(host.key, request.number)) is not None:
            return _answer_to_replace(known)
        now = self._clock()
        if InForce(self.edition, self.generation) != request.compared_with or self.zone != request.zone_seen:
            return EditionAnswer(EditionVerdict.AGAIN)
        others = [each for each in self.living() if host is None or each.key != host.key]
        if self.zone is not None and self.zone != request.zone and others:
            raise ClusterZoneError(self.name, request.zone, self.zone)
        edition, takes = self._judge(request, host, others)
        _, arrivals = self.arriving.get(request.identifier, (now, ()))
        if takes and (len(arrivals), arrivals_digest(arrivals)) != (request.arrivals, request.arrivals_digest):
            return EditionAnswer(EditionVerdict.AGAIN)

        seq = self._next_seq()
        self.editions.setdefault(edition, (request.digest, now))
        joining = host is None
        if host is None:
            host = self._join(request, now)
        host.edition, host.declaration = edition, request.number
        label = host.label if joining else None
        corrected = self._correct(host.key, seq, now) if request.correct else None
        if takes or (edition == self.edition and not others):
            self._adopt_options(request, seq, now, host.key if joining else None)
        content: Content
        if takes:
            content = self._put_in_force(request, edition, host.key, arrivals, now, seq, corrected, label)
            self._move(request.moved)
        else:
            outdated = edition != self.edition
            moved = Moved() if outdated else request.moved
            content = Joined(edition, outdated, request.zone, corrected, request.said, moved, label)
            self._move(moved)
            self.zone = request.zone
            if edition == self.edition:
                self.edition_alone_since = None
        self.arriving.pop(request.identifier, None)
        self.arriving = {who: sent for who, sent in self.arriving.items() if sent[0] >= now - ARRIVALS_KEPT_FOR}
        entry = self._append(seq, host.key, request.number, now, content)
        return _answer_to_replace(entry)

    def leave(self, me: HostIdentity, notes: Sequence[Note] = ()) -> int | None:
        """Leave after a stop (SPEC 9.19)."""
        host = self.hosts.get(me.key)
        if host is not None and host.identifier == me.identifier and host.gone == "l":
            left = (seq for seq, each in self.log.items() if each.host == me.key and isinstance(each.content, Left))
            return max(left, default=None)
        self._check_host(me)
        host = self.hosts[me.key]
        host.gone, host.renewed_at = "l", self._clock()
        return self._go(me.key, me.key, Left(tuple(notes)))

    def news(self, seen: Position, limit: int = NEWS_MAX) -> News:
        """The entries after a position, in order."""
        if seen.seq < self.pruned:
            return News((), behind=True)
        self._check_position(seen)
        later = sorted(seq for seq in self.log if seq > seen.seq)
        return News(tuple(self.log[seq] for seq in later[:limit]))

    def load(self) -> SharedContent:
        """All that a host needs to begin."""
        last = self.log.get(self.last_seq())
        return SharedContent(
            position=Position(0, None) if last is None else last.position,
            clock=self._clock(),
            in_force=InForce(self.edition, self.generation),
            digest=self.editions[self.edition][0] if self.edition else None,
            alone_since=self.edition_alone_since,
            interrupted=self.interrupted,
            zone=self.zone,
            history=self.history,
            traced=self.traced,
            hosts=tuple(
                HostRecord(**{name: getattr(each, name) for name in _HOST_FIELDS} | {"gone": _GONE[each.gone]})
                for each in self.hosts.values()
            ),
            records=[EqualRows.single(self._record(generation)) for generation in sorted(self.states)],
            blocked={each.generation: each.blocked_by for each in self.states.values() if each.blocked_by is not None},
            marks=dict(self.marks),
            in_threads=frozenset(
                each.generation for each in self.tasks.values() if each.thread and each.retired_at is None
            ),
        )

    def trace_start(self) -> TraceStart | None:
        """The newest base of the trace; None: no trace is kept."""
        return TraceStart(self.bases[-1].base, self.bases[-1].generation) if self.traced and self.bases else None

    def trace_after(self, seen: Position, generation: int, limit: int) -> TracePart | None:
        """The entries of the trace after a position; None: they do not continue what was read."""
        firsts = [each.base.first for each in self.bases]
        if seen.nonce is None:
            continues = seen.seq + 1 in firsts
        else:
            known = self.log.get(seen.seq)
            continues = known is not None and known.nonce == seen.nonce and seen.seq + 1 >= min(firsts, default=0)
        if not continues or not firsts:
            return None
        last = self.trace_last
        later = sorted(seq for seq in self.log if seq > seen.seq and (last is None or seq <= last))
        entries = tuple(self.log[seq] for seq in later[:limit])
        declaring = {entry.host for entry in entries if isinstance(entry.content, Joined | Replaced)}
        return TracePart(
            entries=entries,
            identifiers={key: self.hosts[key].identifier for key in sorted(declaring & self.hosts.keys())},
            declarations={
                number: NamedDeclaration(task.name, task.cron, task.delay_ms)
                for number, task in sorted(self.tasks.items())
                if number > generation
            },
            segment=self.bases[-1].base.segment,
        )

    def close(self) -> None:
        """There is no connection."""

    # --- looking -----------------------------------------------------------------------------------------------------

    def living(self) -> list[HostRow]:
        """Hosts that have neither left nor been buried, by key."""
        return [each for _, each in sorted(self.hosts.items()) if each.gone is None]

    def last_seq(self) -> int:
        """The number of the last entry of the log."""
        return max(self.log, default=0)

    def _next_seq(self) -> int:
        """The number of the next entry: above all that was ever used, although somebody may have emptied the log."""
        if self.log:
            return self.last_seq() + 1
        return max([self.pruned, *(state.changed for state in self.states.values())]) + 1

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """All that the store holds, as rows by table, in the order of their keys."""

        def rows(some: Iterable[Any], key: str) -> list[dict[str, Any]]:
            return [asdict(each) for each in sorted(some, key=attrgetter(key))]

        return {
            "cluster": [{name: getattr(self, name) for name in _OF_THE_CLUSTER}],
            "editions": [
                {"edition": edition, "digest": digest, "since": since}
                for edition, (digest, since) in sorted(self.editions.items())
            ],
            "hosts": rows(self.hosts.values(), "key"),
            "holds": [each._asdict() for each in sorted(self.holds)],
            "tasks": rows(self.tasks.values(), "generation"),
            "states": rows(self.states.values(), "generation"),
            "strays": rows(self.strays.values(), "name"),
            "marks": [{"name": name, **mark._asdict()} for name, mark in sorted(self.marks.items())],
            "runs": rows(self.runs, "seq"),
            "log": [
                {field.name: getattr(self.log[seq], field.name) for field in fields(LogEntry)}
                for seq in sorted(self.log)
            ],
            **self._base_tables(),
            "arriving": [
                {"host": who, "at": at, "place": place, "name": name, "cron": cron, "delay_ms": delay}
                for who, (at, arrivals) in sorted(self.arriving.items())
                for place, (name, cron, delay) in enumerate(arrivals, start=1)
            ],
        }

    def _base_tables(self) -> dict[str, list[dict[str, Any]]]:
        def parts(name: str) -> list[dict[str, Any]]:
            return [
                {"segment": each.base.segment, **part._asdict()}
                for each in self.bases
                for part in sorted(getattr(each.base, name))
            ]

        bases = [
            {
                **{name: getattr(each.base, name) for name in ("segment", "first", "at", "edition")},
                **{name: getattr(each.base, name) for name in ("interrupted", "zone")},
                "generation": each.generation,
                "tasks": len(each.base.tasks),
                "events": each.events,
                "counted": each.counted,
            }
            for each in self.bases
        ]
        of_parts = {f"base_{name}": parts(name) for name in ("tasks", "hosts", "strays", "marks")}
        return {"bases": bases, **of_parts}

    def trace(self) -> LoggedTrace | None:
        """The trace that the log stands for; None if the store holds none."""
        if not self.bases:
            return None
        base = self.bases[0].base
        last = self.trace_last
        entries = sorted(seq for seq in self.log if seq >= base.first and (last is None or seq <= last))
        end = max(self.last_seq(), *(each.seen for each in self.hosts.values())) if last is None else last
        is_over = bool(entries) and isinstance(self.log[entries[-1]].content, Left)
        return LoggedTrace(
            scheduler=self.hosts[min(self.hosts)].identifier,
            base=base,
            identifiers={key: host.identifier for key, host in self.hosts.items()},
            declarations={
                each.generation: NamedDeclaration(each.name, each.cron, each.delay_ms)
                for each in self.tasks.values()
                if each.generation > self.bases[0].generation
            },
            entries=(self.log[seq] for seq in entries),
            last=end,
            clean=is_over and last is None and not self.living(),
        )

    def trace_lines(self) -> Iterator[bytes]:
        """The trace in its exchange format, as `duly trace export` writes that of PostgreSQL; nothing if there is none.

        Raises a TraceError if an entry is missing.
        """
        found = self.trace()
        if found is not None:
            yield from lines_of(found)

    def rotate_trace(self, events_min: int) -> None:
        """Begin the next part of the trace if the last one is full, and forget the one before it."""
        if not self.traced:
            return
        row, last = self.bases[-1], self.last_seq()
        row.events += sum(_events(self.log[seq].content) for seq in self.log if row.counted < seq <= last)
        row.counted = last
        if row.events >= events_min and row.events >= 4 * len(row.base.tasks):
            del self.bases[:-1]
            self._begin_trace(last + 1, self._clock(), None)

    def prune(self, entries_kept: int, kept_for: int, rows_max: int, *, sweeps: bool = True) -> int:
        """Remove entries that every running host has read, and in any case old ones beyond `entries_kept`.

        A call that does not sweep looks at none that an earlier call has passed.
        """
        last = self.last_seq()
        if not last:
            return self.pruned
        lowest = min((each.seen for each in self.living()), default=last)
        oldest = sorted(seq for seq in self.log if seq > self.pruned)[:rows_max]
        cutoff = self._clock() - kept_for
        forced = max((seq for seq in oldest if seq <= last - entries_kept and self.log[seq].at < cutoff), default=0)
        bound = min(max(lowest - 1, forced), self.pruned + rows_max, last - 1)
        if bound > self.pruned:
            # The last numbered entry of a running host is the answer to a repetition.
            answers = {
                max((entry for entry in self.log.values() if entry.host == host.key), key=attrgetter("number")).seq
                for host in self.living()
                if any(entry.host == host.key for entry in self.log.values())
            }
            first = self.bases[0].base.first if self.bases else last + 1
            final = last if self.trace_last is None else self.trace_last
            after = 0 if sweeps else self.pruned
            gone = sorted(
                seq for seq in self.log if after < seq <= bound and seq not in answers and (seq < first or seq > final)
            )
            for seq in gone[:rows_max]:
                del self.log[seq]
            self.pruned = bound
        return self.pruned

    # --- the fences --------------------------------------------------------------------------------------------------

    def _check_host(self, me: HostIdentity) -> None:
        host = self.hosts.get(me.key)
        if host is None or host.identifier != me.identifier:
            raise StoreRewoundError(self.name, f"host {me.key}")
        if host.gone is not None:
            raise HostGoneError(self.name, me.key, "was buried" if host.gone == "b" else "has left")

    def _check_position(self, seen: Position) -> None:
        if seen.seq > self.pruned and (seen.seq not in self.log or self.log[seen.seq].nonce != seen.nonce):
            raise StoreRewoundError(self.name, f"entry {seen.seq} of the log")

    def _is_living(self, key: int) -> bool:
        host = self.hosts.get(key)
        return host is not None and host.gone is None

    # --- starts, ends, corrections -----------------------------------------------------------------------------------

    def _start(self, block: Started, generation: int, run: int, me: int, seq: int, seen: int) -> bool:
        """Grant a start if nothing has changed since what the host had seen (SPEC 9.9)."""
        state = self.states.get(generation)
        if state is None or state.changed > seen or state.blocked_by is not None:
            return False
        if state.run is not None and self._is_living(host_of(state.run)):
            return False
        state.served_through, state.last_attempt_at = block.served_through, block.at
        state.pending_retry_until, state.interruptions = block.pending_retry_until, block.interruptions
        state.run, state.run_cause, state.run_scheduled = run, block.cause.value, block.scheduled
        repeats = block.cause is not Cause.CRON
        state.first_started_at = block.obligation.first_started_at if repeats else None
        state.first_scheduled = block.obligation.scheduled if repeats else None
        state.attempt = block.obligation.attempt if repeats else None
        state.written_by, state.changed = me, seq
        return True

    def _end(self, block: Ended, me: int, seq: int) -> list[int]:
        """Record ends; the runs that are not on record are returned (SPEC 9.10)."""
        fenced = []
        strays = {each.run: each for each in self.strays.values()}
        for generation, run in zip(block.generations, block.runs, strict=True):
            state = self.states.get(generation)
            if state is not None and state.run == run:
                self._remember(block, generation, run, me)
                _settle(state, block)
                state.written_by, state.changed = me, seq
            elif run in strays:
                self._remember(block, generation, run, me)
                self._unblock(strays[run], seq)
            else:
                fenced.append(run)
        return fenced

    def _remember(self, block: Ended, generation: int, run: int, me: int) -> None:
        failure, repeats = block.failure, block.cause is not Cause.CRON
        if self.history:
            self.runs.append(
                RunRow(
                    seq=self._next_run_seq(),
                    run=run,
                    generation=generation,
                    host=me,
                    cause=block.cause.value,
                    scheduled=block.scheduled,
                    started_at=block.started_at,
                    ended_at=block.at,
                    outcome="success" if failure is None else "failure",
                    error=None if failure is None else failure.error,
                    traceback=None if failure is None else failure.traceback,
                    first_started_at=block.obligation.first_started_at if repeats else None,
                    attempt=block.obligation.attempt if repeats else None,
                    called_at=block.called_at,
                )
            )

    def _next_run_seq(self) -> int:
        return self.runs[-1].seq + 1 if self.runs else 1

    def _trim_history(self) -> None:
        if self.runs:
            last = self.runs[-1].seq
            self.runs = [each for each in self.runs if each.seq > last - self.history]

    def _unblock(self, stray: StrayRow, seq: int) -> None:
        """A run of a withdrawn declaration is over: its successor may start (SPEC 5.3)."""
        del self.strays[stray.name]
        if stray.successor is not None and stray.successor in self.states:
            successor = self.states[stray.successor]
            successor.blocked_by, successor.changed = None, seq

    def _correct(self, me: int, seq: int, now: Instant) -> Corrected | None:
        """Lower what lies too far ahead of the clock (SPEC 2.5); None if nothing does.

        Minutes of every zone have begun with those of UTC since 1972.
        """
        minute = _minute(now)
        too_far = minute + SERVED_AHEAD_SECONDS_MAX
        changed = False
        for state in self.states.values():
            task = self.tasks[state.generation]
            lowered = self._lowered(state, self.marks.get(task.name), minute)
            if lowered != state.served_through:
                state.served_through, state.written_by, state.changed = lowered, me, seq
                task.known_since = min(task.known_since, now)
                changed = True
            latest = Instant(now + 1000 * effective(task.delay_ms))
            if state.pending_retry_until is not None and state.pending_retry_until > latest:
                state.pending_retry_until, state.written_by, state.changed = latest, me, seq
                changed = True
        for task in self.tasks.values():
            if task.retired_at is None and task.known_since >= 1_000_000 * (too_far + 60):
                task.known_since = now
                changed = True
        for name, mark in self.marks.items():
            if mark.served_through > too_far:
                self.marks[name] = Mark(minute, now)
                changed = True
        return Corrected(now, minute) if changed else None

    @staticmethod
    def _lowered(state: StateRow, mark: Mark | None, minute: Minute) -> Minute:
        """`served_through` as it must be when it is `minute`, as `corrected` in core/task.py has it."""
        too_far = minute + SERVED_AHEAD_SECONDS_MAX
        if state.last_attempt_at is not None:
            return minute if state.served_through > too_far else state.served_through
        if mark is not None and mark.served_through > too_far:
            return minute
        if state.served_through + 60 > too_far:
            before = Minute(minute - 60)
            return before if mark is None else max(before, mark.served_through)
        return state.served_through

    # --- hosts that come and go --------------------------------------------------------------------------------------

    def _host_that_declares(self, request: EditionRequest) -> HostRow | None:
        found = next((each for each in self.hosts.values() if each.identifier == request.identifier), None)
        key = found.key if found is not None and request.key is None else request.key
        if key is None:
            return None
        self._check_host(HostIdentity(key, request.identifier))
        return self.hosts[key]

    def _join(self, request: EditionRequest, now: Instant) -> HostRow:
        # Above every key that was ever used, although somebody may have emptied a table by hand: runs bear it.
        in_log = [entry.host for entry in self.log.values()]
        in_runs = [host_of(state.run) for state in self.states.values() if state.run is not None]
        key = max([*self.hosts, *(in_log or in_runs)], default=0) + 1
        host = self.hosts[key] = HostRow(
            key,
            request.identifier,
            request.label,
            now,
            request.lease,
            0,
            request.number,
            0,
            now,
            request.seen.seq,
            request.said.max_concurrency,
            request.said.threads,
        )
        named = {each.generation for each in self.runs} | {each.generation for each in self.strays.values()}
        self.tasks = {
            generation: task
            for generation, task in self.tasks.items()
            if task.retired_at is None
            or generation in named
            or generation > min((each.generation for each in self.bases), default=generation)
        }
        return host

    def _go(self, me: int, who: int, content: Content) -> int:
        """A host is gone: its runs become history, and nothing waits for its strays."""
        seq, now = self._next_seq(), self._clock()
        for _, state in sorted(self.states.items()) if self.history else ():
            if state.run is not None and host_of(state.run) == who:
                assert state.run_cause is not None and state.run_scheduled is not None
                assert state.last_attempt_at is not None
                self.runs.append(
                    RunRow(
                        seq=self._next_run_seq(),
                        run=state.run,
                        generation=state.generation,
                        host=who,
                        cause=state.run_cause,
                        scheduled=state.run_scheduled,
                        started_at=state.last_attempt_at,
                        ended_at=None,
                        outcome="interrupted",
                        error=None,
                        traceback=None,
                        first_started_at=state.first_started_at,
                        attempt=state.attempt,
                        called_at=None,
                    )
                )
        self._trim_history()
        for stray in [each for each in self.strays.values() if each.host == who]:
            self._unblock(stray, seq)
        of_edition = [each for each in self.hosts.values() if each.edition == self.edition]
        if self.edition and self.edition_alone_since is None and all(each.gone is not None for each in of_edition):
            self.edition_alone_since = max((each.renewed_at for each in of_edition), default=None)
        self._append(seq, me, -seq, now, content)
        return seq

    # --- editions ----------------------------------------------------------------------------------------------------

    def _judge(self, request: EditionRequest, host: HostRow | None, others: Sequence[HostRow]) -> tuple[int, bool]:
        """The edition of a declared set, and whether it is put in force (SPEC 9.13 to 9.17)."""
        in_force_lives = any(each.edition == self.edition for each in others)
        if request.act is Act.REINSTATE:
            assert host is not None
            alone = not in_force_lives and host.edition != self.edition
            return host.edition, alone and all(host.edition >= each.edition for each in others)
        if self.edition and self.editions[self.edition][0] == request.digest:
            return self.edition, False
        foreign = (
            request.act in (Act.JOIN, Act.REJOIN) and in_force_lives and not request.shares_names and bool(self.states)
        )
        if foreign and request.act is Act.JOIN:
            raise ForeignSetError(self.name)
        same = [edition for edition, (digest, _) in self.editions.items() if digest == request.digest]
        edition = max(same) if same and request.act is not Act.REDECLARE else max(self.editions, default=0) + 1
        return edition, not foreign and all(edition > each.edition for each in others)

    def _adopt_options(self, request: EditionRequest, seq: int, now: Instant, joining: int | None) -> None:
        """`history` and `trace` are those of the host that puts the set in force, or finds no other host there."""
        if request.traced and not self.traced:
            self._begin_trace(seq, now, joining)
            del self.bases[:-1]
        if request.traced:
            self.trace_last = None
        elif self.traced:
            self.trace_last = seq - 1
        self.history, self.traced = request.history, request.traced
        self._trim_history()

    def _put_in_force(
        self,
        request: EditionRequest,
        edition: int,
        me: int,
        arrivals: Sequence[Arrival],
        now: Instant,
        seq: int,
        corrected: Corrected | None,
        label: str | None,
    ) -> Replaced:
        reinstated = request.act is Act.REINSTATE
        # The wait before a reinstatement loses nothing (SPEC 9.17).
        known_since = now
        if reinstated and self.edition_alone_since is not None:
            known_since = min(now, self.edition_alone_since)
        self.marks = {name: mark for name, mark in self.marks.items() if counts(mark.served_through, now)}
        for generation in request.removed:
            self._withdraw(generation, now)
        first = self.generation + 1
        blocked = []
        for generation, (name, cron, delay) in enumerate(arrivals, first):
            mark, stray = self.marks.get(name), self.strays.get(name)
            fresh = Minute(_minute(known_since) - 60)
            self.tasks[generation] = DeclarationRow(generation, name, cron, delay, known_since)
            self.states[generation] = StateRow(
                generation,
                served_through=fresh if mark is None else max(fresh, mark.served_through),
                written_by=me,
                changed=seq,
                blocked_by=None if stray is None else stray.run,
            )
            if stray is not None:
                # Whichever earlier declaration of the name it belongs to (SPEC 9.16).
                stray.successor = generation
                blocked.append((generation, stray.run))
        self.generation += len(arrivals)
        if self.interrupted is not None and self.interrupted != request.said.interrupted:
            # What was decided about these runs by the other option is not granted any more.
            for state in self.states.values():
                if state.run is not None and not self._is_living(host_of(state.run)):
                    state.changed = seq
        self.edition, self.edition_alone_since, self.interrupted = edition, None, request.said.interrupted
        self.zone = request.zone
        return Replaced(
            edition,
            known_since,
            first,
            len(arrivals),
            request.removed,
            tuple(blocked),
            reinstated,
            request.zone,
            corrected,
            request.said,
            request.moved,
            self._renumber(edition),
            label,
        )

    def _renumber(self, edition: int) -> tuple[int, ...]:
        """A set that comes back has another number, for every host that declares it (SPEC 9.15)."""
        digest = self.editions[edition][0]
        alike = [each for each in self.living() if each.edition != edition and self.editions[each.edition][0] == digest]
        for host in alike:
            host.edition = edition
        return tuple(host.key for host in alike)

    def _withdraw(self, generation: int, now: Instant) -> None:
        state = self.states.pop(generation, None)
        if state is None:
            return
        task = self.tasks[generation]
        task.retired_at = now
        mark = self.marks.get(task.name)
        if state.last_attempt_at is not None:
            if counts(state.served_through, now):
                served = state.served_through if mark is None else max(mark.served_through, state.served_through)
                self.marks[task.name] = Mark(served, now)
        elif mark is not None:
            self.marks[task.name] = Mark(mark.served_through, now)
        stray = self.strays.get(task.name)
        if stray is not None and stray.successor == generation:
            stray.successor = None
        if state.run is not None and self._is_living(host_of(state.run)):
            self.strays[task.name] = StrayRow(task.name, state.run, host_of(state.run), generation)

    # --- log and trace -----------------------------------------------------------------------------------------------

    def _entry_of(self, host: int, number: int) -> LogEntry | None:
        """The entry that answers a repetition."""
        return next((each for each in self.log.values() if each.host == host and each.number == number), None)

    def _append(self, seq: int, host: int, number: int, at: Instant, content: Content) -> LogEntry:
        entry = self.log[seq] = LogEntry(seq, host, number, self._new_nonce(), at, content)
        return entry

    def _move(self, moved: Moved) -> None:
        for spans, thread in ((moved.to_threads, True), (moved.to_loop, False)):
            for generation in within(spans):
                if generation in self.states:
                    self.tasks[generation].thread = thread

    def _begin_trace(self, first: int, now: Instant, joining: int | None) -> None:
        """Begin a trace, or a part of one; `joining` is a host whose own entry is still to come."""
        base = Base(
            segment=max((each.base.segment for each in self.bases), default=0) + 1,
            first=first,
            at=now,
            edition=self.edition,
            interrupted=self.interrupted,
            zone=self.zone,
            tasks=[self._base_task(generation) for generation in sorted(self.states)],
            hosts=[
                BaseHost(each.key, each.edition, each.max_concurrency, each.threads)
                for each in self.living()
                if each.key != joining
            ],
            strays=[BaseStray(each.name, each.run, each.generation) for _, each in sorted(self.strays.items())],
            marks=[BaseMark(name, mark.served_through) for name, mark in sorted(self.marks.items())],
        )
        self.bases.append(BaseRow(base, self.generation, counted=first - 1))

    def _base_task(self, generation: int) -> BaseTask:
        task, state = self.tasks[generation], self.states[generation]
        return BaseTask(
            generation,
            task.name,
            task.cron,
            task.delay_ms,
            task.thread,
            state.served_through,
            state.last_attempt_at,
            state.last_success_at,
            state.last_failure_at,
            state.pending_retry_until,
            state.interruptions,
            state.run,
        )

    def _record(self, generation: int) -> tuple[Any, ...]:
        found: Mapping[str, Any] = {**asdict(self.states[generation]), **asdict(self.tasks[generation])}
        return tuple(found[name] for name in FIELDS)


def _settle(state: StateRow, block: Ended) -> None:
    failure, of = block.failure, block.obligation
    state.run = state.run_cause = state.run_scheduled = None
    state.interruptions = 0
    if failure is None:
        state.last_success_at, state.pending_retry_until, state.failures = block.at, None, 0
        state.first_started_at = state.first_scheduled = state.attempt = None
    else:
        state.last_failure_at = block.at
        state.pending_retry_until, state.failures = failure.pending_retry_until, failure.failures
        state.first_started_at, state.first_scheduled, state.attempt = of.first_started_at, of.scheduled, of.attempt


_OF_THE_CLUSTER: Final = (
    *("generation", "edition", "edition_alone_since", "interrupted", "zone"),
    *("pruned", "history", "traced", "trace_last"),
)
_GONE: Final = {None: None, "l": "left", "b": "buried"}
_HOST_FIELDS: Final = [each.name for each in fields(HostRecord) if each.name != "gone"]


def _events(content: Content) -> int:
    """About how many events stand for an entry in the trace."""
    match content:
        case Written():
            runs = sum(len(each.runs) for each in content.ends) + sum(len(each.generations) for each in content.starts)
            return len(content.notes) + runs
        case Replaced():
            return 1 + content.added + len(content.removed)
        case _:
            return 1


def _minute(instant: Instant) -> Minute:
    return Minute(instant // MINUTE * 60)


def _answer_to_write(entry: LogEntry) -> WriteAnswer:
    written = entry.content
    assert isinstance(written, Written)
    return WriteAnswer(entry.seq, written.refused, written.fenced, written.corrected, entry.nonce)


def _answer_to_replace(entry: LogEntry) -> EditionAnswer:
    content = entry.content
    if isinstance(content, Replaced):
        return EditionAnswer(
            EditionVerdict.APPLIED,
            entry.host,
            entry.seq,
            content.edition,
            entry.at,
            content.first_generation,
            content.known_since,
        )
    assert isinstance(content, Joined)
    verdict = EditionVerdict.OUTDATED if content.outdated else EditionVerdict.JOINED
    return EditionAnswer(verdict, entry.host, entry.seq, content.edition, entry.at)
