"""Durable facts as rows of the trace, and the monitor that checks them as they become durable.

A row is an event of `duly.formal.trace` without its `seq`: the letters, the instant, and the other fields in their
order. The store numbers rows when it writes them, in the transaction that makes them true; the monitor is fed after it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from itertools import chain
from typing import TYPE_CHECKING, Final

from duly.core.changes import Batch, StartBlock, SuccessBlock
from duly.core.moments import begin, zone_name
from duly.core.registration import Registrations, RunsOn
from duly.core.resolution import Mark, Resolution
from duly.core.steps import Steps
from duly.core.task import AwaitingRun, End, Interrupted, Running, Task, Withdrawn
from duly.engine import announce
from duly.engine.setup import Setup
from duly.errors import DulyError, HostZoneError
from duly.formal.trace import (
    CRON_CHARACTERS_MAX,
    IE,
    IS,
    LOOP,
    NEW,
    ORPHANED,
    OVERRIDDEN,
    PRESERVED,
    TEXT_CHARACTERS_MAX,
    THREAD,
    Event,
    digest,
    row_of,
)
from duly.stores.port import TraceRow as Row

if TYPE_CHECKING:
    from duly.formal.monitor import Monitor
    from duly.formal.registers import RegisterSnapshot, TaskRow

_PLACES: Final = {RunsOn.LOOP: LOOP, RunsOn.THREAD: THREAD}


class BatchRows:
    """A batch as rows: ends, what was noted meanwhile, starts.

    Iterating makes the rows, so that the store's thread does this work, and not the event loop's. They are plain
    tuples: there is one for each start and each end of a burst, and a `RS` or `RE` object takes twice as long to make.
    """

    def __init__(self, batch: Batch, notes: Sequence[Event], running: int) -> None:
        self._blocks = batch.blocks
        self._notes = notes
        self._running = running
        self._ends = sum(_size(block) for block in self._blocks if isinstance(block, SuccessBlock | End))
        starts = sum(_size(block) for block in self._blocks if isinstance(block, StartBlock))
        self.running_after = running - self._ends + starts

    def __iter__(self) -> Iterator[Row]:
        for block in self._blocks:
            if isinstance(block, SuccessBlock):
                at = block.at
                for task, run in zip(block.tasks, block.runs, strict=True):
                    yield ("RE", at, task.name, task.generation, run, True)
            elif isinstance(block, End):
                yield ("RE", block.at, block.task.name, block.task.generation, block.run, block.error is None)
        yield from map(row_of, self._notes)
        running = self._running - self._ends
        for block in self._blocks:
            if isinstance(block, StartBlock):
                at, cause = block.grounds.at, block.grounds.cause.value
                for run, task in enumerate(block.tasks, block.first_run):
                    yield ("RS", at, task.name, task.generation, run, cause, running)
                    running += 1


def _size(block: StartBlock | SuccessBlock | End) -> int:
    return 1 if isinstance(block, End) else len(block.tasks)


class NotesOfAHost:
    """The trace of a host of a shared store: its log says what starts and ends, so only notes are rows."""

    monitor = None

    def __init__(self) -> None:
        self.kept = False
        """Whether the store keeps a trace, as far as this host knows."""

    def rows_of(self, batch: Batch, notes: Sequence[Event]) -> Iterable[Row]:
        """The notes that go with a batch."""
        return [row_of(note) for note in notes]

    def became_durable(self, rows: Iterable[Row], refused: frozenset[int] = frozenset()) -> None:
        """Nothing watches them here."""


class Trace:
    """The trace of one engine: rows of what is about to become durable, and a monitor of what has become so."""

    def __init__(self, setup: Setup, registers: "RegisterSnapshot") -> None:
        self.kept = setup.options.trace
        """Whether the store keeps the rows; otherwise they are the monitor's alone."""
        self.monitor = _monitor(registers) if setup.options.monitor else None
        self._setup = setup
        self._running = 0

    def rows_of(self, batch: Batch, notes: Sequence[Event]) -> Iterable[Row]:
        """The rows of a batch, and of what was noted meanwhile."""
        rows = BatchRows(batch, notes, self._running)
        self._running = rows.running_after
        return rows

    def became_durable(self, rows: Iterable[Row], refused: frozenset[int] = frozenset()) -> None:
        """Let the monitor judge rows, and announce what it finds; starts that were refused were never made."""
        if refused:
            self._running -= len(refused)
            rows = _without(refused, rows)
        monitor = self.monitor
        if monitor is None:
            return
        seq = monitor.seq
        found = sum(monitor.counts.values())
        monitor.feed((row[0], number, *row[1:]) for number, row in enumerate(rows, seq + 1))
        if sum(monitor.counts.values()) > found:
            for violation in monitor.violations:
                if violation.seq > seq:
                    announce.violation(self._setup.outbox, violation, self._setup.clock.zone())


def _without(refused: frozenset[int], rows: Iterable[Row]) -> Iterator[Row]:
    """The rows without those of refused starts; the numbers of runs under way, which stand in each start, close up."""
    missing = 0
    for row in rows:
        if row[0] != "RS":
            yield row
        elif row[4] in refused:
            missing += 1
        else:
            yield (*row[:6], row[6] - missing)


def _monitor(registers: "RegisterSnapshot") -> "Monitor":
    # Here, and not above: `import duly` does not load the checker, which is as large as the scheduler.
    from duly.formal.monitor import Monitor

    return Monitor(registers)


# --- one initialize() ------------------------------------------------------------------------------------------------


def declaration_rows(
    setup: Setup, resolution: Resolution, zone: tzinfo, *, call: int, noted: bool, first: bool
) -> Steps[list[Row]]:
    """The changes of one initialize() as rows; a step is one task.

    `noted` if the call itself stands in the trace already; `first` if no scheduler was running.
    """
    at, zone_text = resolution.now, zone_name(zone)
    check_texts(resolution)

    def registered(task: Task, change: str, runs_on: RunsOn) -> Row:
        # A plain tuple, as for starts and ends: there is one for each task that is declared.
        fields = (task.name, task.generation, change, task.expression.text, task.delay, zone_text, at)
        return ("RG", at, *fields, _PLACES[runs_on])

    rows: list[Row] = [] if noted else [row_of(IS(0, at, call))]
    for orphan in resolution.orphaned:
        rows.append(registered(orphan.task, ORPHANED, orphan.task.runs_on))
        yield
    for change in resolution.overridden:
        rows.append(registered(change.new, OVERRIDDEN, change.new.runs_on))
        yield
    for task in resolution.added:
        rows.append(registered(task, NEW, task.runs_on))
        yield
    for task, registration in resolution.preserved.pairs():
        # Where a callback runs is not stored: a new process records it again, for tasks that need a thread.
        if task.runs_on is not registration.runs_on or (registration.runs_on is RunsOn.THREAD and first):
            rows.append(registered(task, PRESERVED, registration.runs_on))
        yield
    in_force = [*resolution.preserved.tasks, *resolution.added, *(change.new for change in resolution.overridden)]
    shares = [(task.name, task.generation, task.expression.text, int(task.delay)) for task in in_force]
    options = setup.options
    rows.append(
        row_of(
            IE(
                0,
                at,
                call,
                len(shares),
                digest(shares),
                options.interrupted,
                options.max_concurrency,
                setup.threads,
                zone_text,
            )
        )
    )
    return rows


def check_texts(resolution: Resolution) -> None:
    """A name or an expression of megabytes would make a trace that takes seconds to read; a reader refuses it."""
    gone = (each.task for each in resolution.orphaned)
    arrived = (each.new for each in resolution.overridden)
    for task in chain(resolution.added, arrived, gone, resolution.preserved.tasks):
        for what, text, most in (
            ("name", task.name, TEXT_CHARACTERS_MAX),
            ("cron expression", task.expression.text, CRON_CHARACTERS_MAX),
        ):
            if len(text) > most:
                raise DulyError(
                    f"A {what} in a trace has at most {most:,} characters, that of task {task.name[:40]!r} "
                    f"has {len(text):,}",
                    hint=f"give the task a shorter {what}, or keep no trace and run no monitor",
                )


def name_of_a_zone(zone: tzinfo) -> str:
    """The name under which a trace has a zone; raises a HostZoneError if a checker could not find it by that."""
    from duly.formal.calendar import zone_named

    name = zone_name(zone)
    try:
        zone_named(name)
    except ValueError as cause:
        raise HostZoneError(
            f"A trace or a monitor needs a zone with a name, and the host's is {name!r}", cause=cause
        ) from cause
    return name


def registers_of(
    stored: Mapping[str, Task],
    marks: Mapping[str, Mark],
    runs: Mapping[str, int],
    registrations: Registrations,
    zone: tzinfo,
) -> "RegisterSnapshot":
    """The registers of tasks that were there before the trace: all that follows from durable state.

    `marks` are what withdrawn declarations have served, `runs` the runs that a crash interrupted, both by task name.
    """
    from duly.formal.registers import RegisterSnapshot, removed_row

    name = name_of_a_zone(zone)
    runs_on = dict(zip(registrations.names, registrations.runs_on, strict=True))
    rows = [
        _register(task, runs.get(task.name), on_thread=runs_on.get(task.name) is RunsOn.THREAD)
        for task in stored.values()
        # Neither is ever loaded: a run that was going on is interrupted by then.
        if not isinstance(task.state, Withdrawn | Running)
    ]
    rows += [removed_row(name, begin(mark.served_through)) for name, mark in marks.items() if name not in stored]
    # If a run was cut short, that was a crash; the boot that follows says so.
    return RegisterSnapshot.of_stored(rows, crashed=bool(runs), zone=name)


def _register(task: Task, run: int | None, *, on_thread: bool) -> "TaskRow":
    from duly.formal.registers import TaskRow

    state = task.state
    assert not isinstance(state, Withdrawn | Running)
    interrupted = isinstance(state, Interrupted)
    before = state.served_before if isinstance(state, AwaitingRun) else None
    return TaskRow(
        name=task.name,
        declared=True,
        generation=task.generation,
        cron=task.expression.text,
        delay_ms=task.delay,
        thread=on_thread,
        served_through=begin(state.served_through),
        retry_at=None if isinstance(state, AwaitingRun) else state.pending_retry_until,
        run=run,
        run_generation=task.generation if interrupted else -1,
        run_on_thread=on_thread and interrupted,
        epoch=0 if interrupted else -1,
        started=state.last_attempt_at or 0,
        floor=0,
        ended=max(state.last_success_at or 0, state.last_failure_at or 0),
        streak=min(2, state.interruptions - 1) if isinstance(state, Interrupted) else 0,
        due_since_success=True,
        fresh=True,
        unstarted=state.last_attempt_at is None,
        served_before=None if before is None else begin(before),
    )
