"""What a scheduler does, as rows of its trace, and the monitor that shadows it.

A row is an event of `duly.formal.trace` without its `seq`: the letters, the instant, and the other fields in their
order. The store numbers rows when it writes them, in the transaction that makes them true; the monitor hears of them
when that has happened.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from duly.clock import Clock
from duly.core.changes import Batch, StartBlock, SuccessBlock
from duly.core.moments import MICROSECONDS, Instant, begin
from duly.core.registration import RunsOn
from duly.core.resolution import Resolution
from duly.core.steps import Steps
from duly.core.task import AwaitingRun, End, Interrupted, Running, Task, Withdrawn
from duly.formal.trace import NEW, ORPHANED, OVERRIDDEN, PRESERVED, digest
from duly.stores.port import TraceRow as Row

if TYPE_CHECKING:
    from duly.formal.monitor import Monitor
    from duly.formal.registers import RegisterSnapshot
    from duly.formal.verdicts import Violation

_PLACES: Final = {RunsOn.LOOP: "loop", RunsOn.THREAD: "thread"}


class BatchRows:
    """A batch as rows: ends, what was noted meanwhile, starts.

    Iterating makes the rows, so that the store's thread does this work, and not the event loop's.
    """

    def __init__(self, batch: Batch, notes: Sequence[Row], running: int) -> None:
        self._blocks = batch.blocks
        self._notes = notes
        self._running = running
        self._ends = sum(_size(block) for block in self._blocks if isinstance(block, SuccessBlock | End))
        self._starts = sum(_size(block) for block in self._blocks if isinstance(block, StartBlock))
        self.running_after = running - self._ends + self._starts

    def __iter__(self) -> Iterator[Row]:
        for block in self._blocks:
            if isinstance(block, SuccessBlock):
                at = block.at
                for task, run in zip(block.tasks, block.runs, strict=True):
                    yield ("RE", at, task.name, task.generation, run, True)
            elif isinstance(block, End):
                yield ("RE", block.at, block.task.name, block.task.generation, block.run, block.error is None)
        yield from self._notes
        running = self._running - self._ends
        for block in self._blocks:
            if isinstance(block, StartBlock):
                at, cause = block.grounds.at, block.grounds.cause.value
                for run, task in enumerate(block.tasks, block.first_run):
                    yield ("RS", at, task.name, task.generation, run, cause, running)
                    running += 1


def _size(block: StartBlock | SuccessBlock | End) -> int:
    return 1 if isinstance(block, End) else len(block.tasks)


class Observer:
    """Turns what is about to become durable into rows, and shows it to a monitor once it is."""

    def __init__(self, monitor: "Monitor | None", violated: "Callable[[Violation], None]") -> None:
        self.monitor = monitor
        self._violated = violated
        self._running = 0

    def rows_of(self, batch: Batch, notes: Sequence[Row]) -> Iterable[Row]:
        """What a batch, and what was noted meanwhile, will have been once it is durable."""
        rows = BatchRows(batch, notes, self._running)
        self._running = rows.running_after
        return rows

    def durable(self, rows: Iterable[Row]) -> None:
        """Rows are on record: let the monitor judge them."""
        monitor = self.monitor
        if monitor is None:
            return
        seq = monitor.seq
        found = sum(monitor.counts.values())
        monitor.feed((row[0], number, *row[1:]) for number, row in enumerate(rows, seq + 1))
        if sum(monitor.counts.values()) > found:
            for violation in monitor.violations:
                if violation.seq > seq:
                    self._violated(violation)


class Calls:
    """Which calls of initialize() and stop() the trace of one loop knows, in the order in which they were made."""

    def __init__(self, clock: Clock, note: Callable[..., None]) -> None:
        self._clock = clock
        self._note = note
        self._initializes: set[int] = set()
        self._stops: list[int] = []
        self._closed = False

    def stop(self, call: int) -> None:
        """A stop was called: nothing starts from here on."""
        if not self._closed:
            self._stops.append(call)
            self._note("SS", self._clock.now(), call)

    def initialize(self, call: int) -> None:
        """An initialize was called."""
        if not self._closed:
            self._initializes.add(call)
            self._note("IS", self._clock.now(), call)

    def took_effect(self, call: int) -> None:
        """It is on record as an IE."""
        self._initializes.discard(call)

    def failed(self, call: int, error: str) -> None:
        """It had no effect; said once, and only where the call itself is on record."""
        if call in self._initializes:
            self._initializes.discard(call)
            self._note("IF", self._clock.now(), call, error)

    def close(self) -> None:
        """A stop has completed: so have all that were called meanwhile, and an initialize among them begins anew."""
        self._closed = True
        for call in sorted(self._initializes):
            self.failed(call, "SchedulerStopped")
        for call in self._stops:
            self._note("SE", self._clock.now(), call)


def boot_rows(at: Instant, boot: str, elapsed: float) -> list[Row]:
    """A process has opened the store."""
    return [("BT", at, boot, int(elapsed * MICROSECONDS))]


def initialization_rows(
    resolution: Resolution,
    *,
    call: int,
    call_is_known: bool,
    zone: str,
    again: bool,
    in_force: Iterable[Task],
    interrupted: str,
    max_concurrency: int | None,
    threads: int,
) -> Steps[list[Row]]:
    """What one initialize() changes, as rows; a step is one task."""
    at = resolution.now
    rows: list[Row] = [] if call_is_known else [("IS", at, call)]

    def registered(task: Task, change: str, known_since: Instant) -> Row:
        fields = (task.name, task.generation, change, task.expression.text, task.delay, zone, known_since)
        return ("RG", at, *fields, _PLACES[task.runs_on])

    for orphan in resolution.orphaned:
        rows.append(registered(orphan.task, ORPHANED, at))
        yield
    for change in resolution.overridden:
        rows.append(registered(change.new, OVERRIDDEN, at))
        yield
    for task in resolution.added:
        rows.append(registered(task, NEW, at))
        yield
    for task, registration in resolution.preserved.pairs():
        # Where a callback runs is not stored: a new process says it anew, for those that need a thread.
        if task.runs_on is not registration.runs_on or (registration.runs_on is RunsOn.THREAD and not again):
            place = _PLACES[registration.runs_on]
            fields = (task.name, task.generation, PRESERVED, task.expression.text, task.delay, zone, at)
            rows.append(("RG", at, *fields, place))
        yield
    shares = [(task.name, task.generation, task.expression.text, int(task.delay)) for task in in_force]
    rows.append(("IE", at, call, len(shares), digest(shares), interrupted, max_concurrency, threads, zone))
    return rows


def registers_of(
    stored: Iterable[Task], runs: Mapping[str, int], runs_on: Mapping[str, RunsOn], zone: str
) -> "RegisterSnapshot":
    """What a monitor would know of tasks that were there before it: all that follows from durable state."""
    from duly.formal.registers import RegisterSnapshot, TaskRow

    rows = []
    for task in stored:
        state = task.state
        if isinstance(state, Withdrawn | Running):
            continue  # neither is ever loaded: what ran is interrupted by then
        interrupted = isinstance(state, Interrupted)
        retry = None if isinstance(state, AwaitingRun) else state.pending_retry_until
        ended = max(state.last_success_at or 0, state.last_failure_at or 0)
        thread = runs_on.get(task.name) is RunsOn.THREAD
        rows.append(
            TaskRow(
                name=task.name,
                declared=True,
                generation=task.generation,
                cron=task.expression.text,
                delay_ms=task.delay,
                thread=thread,
                served_through=begin(state.served_through),
                retry_at=retry,
                run=runs.get(task.name),
                run_generation=task.generation if interrupted else -1,
                run_on_thread=thread and interrupted,
                epoch=0 if interrupted else -1,
                started=state.last_attempt_at or 0,
                floor=0,
                ended=ended,
                streak=min(2, state.interruptions - 1) if isinstance(state, Interrupted) else 0,
                due_since_success=True,
                fresh=True,
                unstarted=state.last_attempt_at is None,
            )
        )
    # If a run was cut short, that was a crash; the boot that follows says so.
    return RegisterSnapshot.of_stored(rows, crashed=bool(runs), zone=zone)
