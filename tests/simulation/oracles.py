"""Truths about every finished run of the scheduler, whatever happened to it (FORMAL D4).

A run leaves a store, in it a trace, and what its callbacks witnessed. Five oracles judge these, each by other code than
the scheduler's:

properties    the trace violates none of the properties of `duly.formal`; if it ended cleanly, nothing is pending
conservation  what was owed is what was served and what the store still owes: due minutes, retries, interrupted runs
fold          the rows of the store are what the trace, folded, says they are
reference     an obvious scheduler (`reference`) starts the same tasks at the same instants for the same reasons
witness       callbacks were called for durable starts, once each, and ended as the trace says

`judge` asks all of them, and raises with everything they found.
"""

import contextlib
import io
import json
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final

import duly
from duly.formal import Value, check
from duly.formal.calendar import zone_named
from duly.stores.sqlite.trace import export
from duly.testing import SimulatedHost
from tests.simulation.ledger import Ledger
from tests.simulation.reference import (
    Names,
    Record,
    Row,
    Started,
    local,
    minute_of,
    predicted,
)

_COLUMNS: Final = (
    "generation", "cron", "delay_ms", "known_since", "served_through", "last_attempt_at", "last_success_at",
    "last_failure_at", "pending_retry_until", "failures", "interruptions", "run", "run_cause", "identifier",
)  # fmt: skip


# --- evidence ---------------------------------------------------------------------------------------------------------


@dataclass
class Witness:
    """The accounts of a history's callbacks: outside of any store, and of any process that died."""

    entries: list[tuple[str, str, int]] = field(default_factory=list)
    """`begin`, `return` or `raise`; the task; the number of the run."""

    def note(self, deed: str, task: str, run: int) -> None:
        """Something happened in a callback."""
        self.entries.append((deed, task, run))

    def watch(self, task: str, callback: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[None]]:
        """A coroutine callback that reports its begin and end to the witness."""

        async def watched() -> None:
            run = number_of_this_run()
            self.note("begin", task, run)
            try:
                await callback()
            except BaseException:
                self.note("raise", task, run)
                raise
            self.note("return", task, run)

        return watched

    def watch_blocking(self, task: str, callback: Callable[[], object]) -> Callable[[], None]:
        """A blocking callback that reports its begin and end to the witness."""

        def watched() -> None:
            run = number_of_this_run()
            self.note("begin", task, run)
            try:
                callback()
            except BaseException:
                self.note("raise", task, run)
                raise
            self.note("return", task, run)

        return watched


def number_of_this_run() -> int:
    """Inside a callback: which run it is."""
    run = duly.current_run()
    assert run is not None, "no callback of a scheduler"
    return run.run_id


@dataclass
class Evidence:
    """The remains of a finished run.

    `now` is the wall clock at its end, in microseconds. `clean` says that the last scheduler was stopped, and nothing
    has gone on since. `deaths` are the instants at which processes died, by the last `seq` that was durable then
    (`durable_events`); of several with one `seq`, the first. `pauses` are stretches of wall-clock time in which the
    scheduler could not decide: freezes, a store that hung, a clock set forward by one that died before it noticed.
    """

    store: Path
    now: int
    clean: bool
    witness: Witness | None = None
    deaths: Mapping[int, int] = field(default_factory=dict)
    pauses: Sequence[tuple[int, int]] = ()
    bounded: bool = True  # judge promptness too: not where the store failed
    declared: Mapping[str, tuple[str, int]] | None = None  # what took effect last: name to cron text and milliseconds
    trace: bytes = b""  # read from the store unless given

    def __post_init__(self) -> None:
        with contextlib.closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as connection:
            if not self.trace:
                self.trace = b"".join(export(connection, clean=self.clean))
            self.stored = _stored(connection)
            self.history = connection.execute(
                "SELECT run, generation, cause, started_at, ended_at, outcome, scheduled FROM runs ORDER BY run"
            ).fetchall()
            self.counters = dict(connection.execute("SELECT key, value FROM meta"))
        values = [json.loads(line) for line in self.trace.splitlines()]
        self.rows: list[Row] = [value for value in values if isinstance(value, list)]
        zones = [row[-1] for row in self.rows if row[0] == "IE"]
        self.zone: tzinfo = zone_named(zones[-1] if zones else "UTC")

    @classmethod
    def of(cls, host: SimulatedHost, store: Path, **more: Any) -> "Evidence":
        """The state of a host that has come to rest."""
        return cls(store, instant_of(host.now), **more)


def durable_events(store: Path) -> int:
    """The number of the last event in a store's trace; 0 for none."""
    if not store.exists() or not store.stat().st_size:
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        try:
            return int(connection.execute("SELECT max(seq) FROM trace").fetchone()[0] or 0)
        except sqlite3.OperationalError:  # its tables are not there yet
            return 0


def instant_of(when: datetime) -> int:
    """Microseconds since the epoch."""
    return int(when.timestamp()) * 1_000_000 + when.microsecond


def _stored(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    found = connection.execute(
        f"SELECT name, {', '.join(_COLUMNS)} FROM tasks JOIN states USING (generation) "
        "JOIN schedulers ON schedulers.key = states.written_by WHERE retired_at IS NULL"
    )
    return {name: dict(zip(_COLUMNS, values, strict=True)) for name, *values in found}


# --- judgement --------------------------------------------------------------------------------------------------------


class ContradictionError(AssertionError):
    """Evidence that does not fit together, with all complaints about it."""


def judge(evidence: Evidence, *, reference: bool = True) -> None:
    """Ask every oracle; raises a `ContradictionError` that says what they found, and shows the trace."""
    found = list(complaints(evidence, reference=reference))
    if found:
        raise ContradictionError("\n".join([*found, "the trace:", *(str(row) for row in evidence.rows)]))


def complaints(evidence: Evidence, *, reference: bool = True) -> Iterator[str]:
    """The faults, oracle by oracle; `reference=False` where faults make instants a matter of luck."""
    yield from _prefixed("properties", properties(evidence))
    yield from _prefixed("conservation", conservation(evidence))
    yield from _prefixed("fold", fold(evidence))
    if reference:
        yield from _prefixed("reference", refinement(evidence))
    yield from _prefixed("witness", witnessed(evidence))


def _prefixed(oracle: str, found: Iterator[str]) -> Iterator[str]:
    for complaint in found:
        yield f"{oracle}: {complaint}"


def properties(evidence: Evidence) -> Iterator[str]:
    """All of SPEC 7; a liveness property that is pending at a clean end is violated."""
    report = check(io.BytesIO(evidence.trace), bounded=evidence.bounded)
    for verdict in report.verdicts.values():
        if verdict.value is Value.VIOLATED:
            yield str(verdict.first or f"{verdict.property} is still pending at the end: {verdict.open}")
    if report.ended != evidence.clean:
        yield f"the trace is sealed as {'clean' if report.ended else 'open'}"


# --- store equals fold of the log -------------------------------------------------------------------------------------


@dataclass
class Folded:
    """The trace, folded: records, and the history of runs."""

    zone: tzinfo
    records: dict[str, Record] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)  # whose stored retry means nothing any more, and may be either
    history: list[tuple[int, int, str, int, int | None, str]] = field(default_factory=list)
    runs: dict[int, tuple[int, str, int]] = field(default_factory=dict)  # begun: declaration, cause, start
    highest: dict[str, int] = field(default_factory=lambda: {"run": 0, "generation": 0})
    restart: bool = True
    boot: str = ""
    names: Names = field(default_factory=Names)

    def take(self, row: Row) -> None:
        """One event."""
        letters, _, at, *fields = row
        if letters == "BT":
            self.boot = fields[0].rpartition("/")[0]
            for each in self.records.values():
                if each.run is not None:  # it has no end, and its process is gone
                    self._remember(each.run, None, "interrupted")
            self._correct(at)
        elif letters == "CK":
            self._correct(at)
        elif letters == "IE":
            self.restart = fields[3] == "restart"
            self.names.forget(at, self.records)
        elif letters == "RG":
            record = self.names.registered(self.records.pop(fields[0], None), row, self.zone)
            if record is not None:
                self.records[fields[0]] = record
                record.written_by = record.written_by or self.boot
                self.highest["generation"] = max(self.highest["generation"], record.generation)
        elif letters == "RS":
            self._start(at, *fields)
        elif letters == "RE":
            self._end(at, *fields)

    def _start(self, at: int, name: str, generation: int, run: int, cause: str, _slots: int) -> None:
        self.runs[run] = (generation, cause, at)
        self.highest["run"] = max(self.highest["run"], run)
        record = self.records.get(name)
        if record is not None and record.generation == generation:
            record.start(at, minute_of(at, self.zone), run, cause, restart=self.restart)
            record.written_by = self.boot
            self.unsure.discard(name)

    def _end(self, at: int, name: str, generation: int, run: int, ok: bool) -> None:
        self._remember(run, at, "success" if ok else "failure")
        record = self.records.get(name)
        if record is not None and record.generation == generation:
            record.end(at, ok=ok)
            record.written_by = self.boot

    def _correct(self, at: int) -> None:
        """The clock was set, or a process has come: what lies too far ahead is lowered."""
        self.names.correct(minute_of(at, self.zone))
        for name, record in self.records.items():
            if record.correct(at, minute_of(at, self.zone)):
                record.written_by = self.boot
                if record.run is not None:
                    self.unsure.add(name)

    def _remember(self, run: int, at: int | None, outcome: str) -> None:
        if run in self.runs:
            generation, cause, started = self.runs[run]
            entry = (run, generation, cause, started, at, outcome)
            if entry not in self.history:
                self.history.append(entry)


def folded(evidence: Evidence) -> Folded:
    """The whole trace, folded."""
    state = Folded(evidence.zone)
    for row in evidence.rows:
        state.take(row)
    return state


def fold(evidence: Evidence) -> Iterator[str]:
    """The rows of the store, column by column, against the fold of the trace (SPEC 7.6)."""
    state = folded(evidence)
    in_force = {name: (record.cron, record.delay_ms) for name, record in state.records.items()}
    if evidence.declared is not None and evidence.declared != in_force:
        yield f"{evidence.declared} was declared, and by the trace {in_force} is in force"
    for name in sorted(state.records.keys() ^ evidence.stored.keys()):
        yield f"{name!r} is declared in {'the trace' if name in state.records else 'the store'} only"
    for name in sorted(state.records.keys() & evidence.stored.keys()):
        record, stored = state.records[name], dict(evidence.stored[name])
        said = (
            record.generation, record.cron, record.delay_ms, record.known_since, record.mark // 1_000_000,
            record.last_start, record.last_success, record.last_failure, record.retry_at, record.failures,
            record.interruptions, record.run, record.cause, record.written_by,
        )  # fmt: skip
        for column, value in zip(_COLUMNS, said, strict=True):
            if stored[column] != value and not (
                name in state.unsure and column in ("pending_retry_until", "identifier")
            ):
                yield f"{column} of {name!r} is {stored[column]} in the store, and {value} by the trace"
    for counter, highest in state.highest.items():
        if evidence.counters[counter] != highest:
            yield f"the counter {counter} stands at {evidence.counters[counter]}, and {highest} have been used"
    for entry in sorted({entry[:6] for entry in evidence.history} ^ set(state.history), key=str):
        yield f"the record {entry} of a run is in {'the trace' if entry in state.history else 'the store'} only"
    if len(evidence.history) != len(state.history):
        yield f"there are {len(evidence.history)} records of runs, and {len(state.history)} by the trace"


# --- owed = served + still owed ---------------------------------------------------------------------------------------


def conservation(evidence: Evidence) -> Iterator[str]:
    """Every due minute, failure and interruption was served by a start, withdrawn, or is owed by the store still."""
    ledger = Ledger(evidence.zone, {run: scheduled for run, *_, scheduled in evidence.history})
    for row in evidence.rows:
        ledger.take(row)
    yield from ledger.balance(evidence.stored, evidence.now)


# --- refinement -------------------------------------------------------------------------------------------------------


def observed(evidence: Evidence) -> Counter[Started]:
    """The starts of the trace."""
    return _to_the_millisecond(Counter(Started(row[3], row[6], row[2]) for row in evidence.rows if row[0] == "RS"))


def _to_the_millisecond(starts: Counter[Started]) -> Counter[Started]:
    """Ends are stamped in whole milliseconds, and a start may have waited for one."""
    return Counter(start._replace(at=start.at - start.at % 1_000) for start in starts.elements())


def refinement(evidence: Evidence) -> Iterator[str]:
    """The reference scheduler predicts every start, and no other."""
    real = observed(evidence)
    expected = _to_the_millisecond(
        predicted(evidence.rows, evidence.zone, evidence.now, deaths=evidence.deaths, pauses=evidence.pauses)
    )
    for start in sorted((expected - real).elements(), key=lambda each: each.at):
        yield f"{start.task!r} should have started at {local(start.at, evidence.zone)} ({start.cause})"
    for start in sorted((real - expected).elements(), key=lambda each: each.at):
        yield f"{start.task!r} started at {local(start.at, evidence.zone)} ({start.cause}), and should not have"


# --- what callbacks saw -----------------------------------------------------------------------------------------------


def witnessed(evidence: Evidence) -> Iterator[str]:
    """A callback is called for a durable start, once, and its end is what the trace says (SPEC 3.9)."""
    if evidence.witness is None:
        return
    begun = Counter((task, run) for deed, task, run in evidence.witness.entries if deed == "begin")
    ended = {(task, run): deed for deed, task, run in evidence.witness.entries if deed != "begin"}
    alive: set[tuple[str, int]] = set()
    started: set[tuple[str, int]] = set()
    uncertain: set[tuple[str, int]] = set()  # cut short by a crash: it may have been called or not
    for letters, _, _, *fields in evidence.rows:
        if letters == "RS":
            started.add((fields[0], fields[2]))
            alive.add((fields[0], fields[2]))
        elif letters == "RE":
            run = (fields[0], fields[2])
            alive.discard(run)
            if run not in ended or (fields[3] and ended[run] != "return"):
                yield f"run {run} ended on record (ok: {fields[3]}), and its callback: {ended.get(run, 'did not')}"
        elif letters == "BT":
            uncertain |= alive
            alive.clear()
    for run, times in begun.items():
        if run not in started:
            yield f"the callback of run {run} was called, and no start of it is on record"
        if times > 1:
            yield f"the callback of run {run} was called {times} times"
    for run in sorted(started - uncertain - begun.keys()):
        yield f"run {run} is on record, and its callback was never called"
    if evidence.clean and alive:
        yield f"runs {sorted(alive)} have no end, and everything was stopped"
