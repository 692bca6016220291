"""Durable facts as events, and the outbox that hands events, in commit order, to `logging` and to `on_event`.

Events are built only if something listens; for a chunk of starts or ends that is asked once. Delivery is immediate as
long as it is short. A burst (a million starts with a log line each) is delivered in slices, in the same order, so that
the event loop stays responsive.
"""

from collections.abc import Mapping
from datetime import tzinfo
from typing import TYPE_CHECKING

from duly.core.agenda import Agenda
from duly.core.changes import Starts
from duly.core.moments import Instant, Minute, as_datetime, begin
from duly.core.resolution import Resolution, configuration
from duly.core.steps import Steps
from duly.core.task import (
    AwaitingRetry,
    Cause,
    End,
    Grounds,
    Interrupted,
    Start,
    TaskState,
    lateness_threshold,
)
from duly.engine.outbox import Outbox
from duly.errors import StoreError
from duly.events import (
    PropertyViolated,
    StoreFault,
    TaskAdded,
    TaskInterrupted,
    TaskOrphaned,
    TaskOverridden,
    TaskPreserved,
    TaskRetryPreempted,
    TaskRetryStarted,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunOverdue,
    TaskRunStarted,
    TaskScheduled,
    TaskSkipped,
    TaskStartDelayed,
)

if TYPE_CHECKING:
    from duly.formal.verdicts import Violation

# --- starts and ends -------------------------------------------------------------------------------------------------


def starts(outbox: Outbox, granted: Starts, agenda: Agenda, active_since: Instant) -> None:
    """Announce a durable chunk of starts, in their order, and which of them came late."""
    zone = agenda.zone
    threshold = lateness_threshold(agenda.size)
    wanted = outbox.wants(TaskRunStarted)
    if not wanted and all(_lateness(block.grounds, active_since) <= threshold for block in granted.blocks):
        return
    times: _Times | None = None
    for start in granted.singles():
        grounds = start.grounds
        if times is None or times.grounds is not grounds:
            times = _Times(grounds, zone, _lateness(grounds, active_since))
        if wanted:
            _start(outbox, start, times)
        if times.lateness > threshold:
            late_ms = times.lateness // 1000
            outbox.emit(TaskStartDelayed(start.task.name, times.owed_since, times.at, late_ms, threshold // 1000))


class _Times:
    """The times of starts that share their grounds; a datetime takes longer to make than an event of it."""

    __slots__ = ("at", "grounds", "lateness", "owed_since", "scheduled")

    def __init__(self, grounds: Grounds, zone: tzinfo, lateness: int) -> None:
        self.grounds = grounds
        self.scheduled = as_datetime(grounds.scheduled, zone)
        self.owed_since = as_datetime(grounds.owed_since, zone)
        self.at = as_datetime(grounds.at, zone)
        self.lateness = lateness  # in microseconds


def _start(outbox: Outbox, start: Start, times: _Times) -> None:
    name, grounds = start.task.name, start.grounds
    is_retry = grounds.cause is Cause.RETRY
    if grounds.preempts_retry:
        outbox.emit(TaskRetryPreempted(name, "a due minute took the retry's place"))
    if is_retry:
        outbox.emit(TaskRetryStarted(name, grounds.retry_count))
    outbox.emit(TaskRunStarted(name, times.scheduled, times.at, grounds.cause.value, start.run, is_retry or None))


def _lateness(grounds: Grounds, active_since: Instant) -> int:
    """Microseconds since the start was possible: while nothing was active, or the last run went on, it was not."""
    after = grounds.after
    startable = max(grounds.owed_since, active_since, after.last_success_at or 0, after.last_failure_at or 0)
    return grounds.at - startable


def end(
    outbox: Outbox, ended: End, zone: tzinfo, *, duration_ms: float | None, exception: BaseException | None = None
) -> None:
    """Announce a durable end; `duration_ms` is None if nothing listened while it ran."""
    name = ended.task.name
    if duration_ms is None:
        called_at = ended.grounds.at if ended.called_at is None else ended.called_at
        duration_ms = max(0.0, (ended.at - called_at) / 1000)
    if ended.error is None:
        outbox.emit(TaskRunCompleted(name, duration_ms, ended.run))
        return
    # A run whose declaration was replaced meanwhile arms no retry (SPEC 5.3).
    armed = isinstance(ended.task.state, AwaitingRetry) and ended.pending_retry_until is not None
    next_retry_at = as_datetime(ended.pending_retry_until or 0, zone) if armed else None
    outbox.emit(TaskRunFailed(name, duration_ms, ended.error, ended.run, next_retry_at, exception=exception))


def overdue(outbox: Outbox, name: str, started_at: Instant, due: Minute, zone: tzinfo) -> None:
    """Announce that a run outlives its task's next due minute."""
    outbox.emit(TaskRunOverdue(name, as_datetime(started_at, zone), as_datetime(begin(due), zone)))


def violation(outbox: Outbox, found: "Violation", zone: tzinfo) -> None:
    """Announce what the monitor holds against the scheduler."""
    at = as_datetime(found.at, zone)
    outbox.emit(PropertyViolated(found.property, found.sentence, found.seq, at, found.task, found.registers))


# --- the store -------------------------------------------------------------------------------------------------------


def store_fault(outbox: Outbox, operation: str, fault: Exception, retry_in_ms: int, text: str | None = None) -> None:
    """Announce a fault of the store, and whether it passes by itself (SPEC 9.20)."""
    is_permanent = isinstance(fault, StoreError) and bool(fault.details.get("permanent"))
    said = str(fault) if text is None else text
    outbox.emit(StoreFault(operation, type(fault).__name__, said, retry_in_ms, is_permanent or None))


# --- declarations ----------------------------------------------------------------------------------------------------


def declarations(
    outbox: Outbox, resolution: Resolution, zone: tzinfo, identifiers: Mapping[int, str], *, first: bool
) -> Steps[None]:
    """Announce task by task what an initialize() changed and kept; `first` if no scheduler was running."""
    for orphan in resolution.orphaned if outbox.wants(TaskOrphaned) else ():
        # The task is withdrawn by now; the event speaks of what was.
        last_attempt_at = None if orphan.last_attempt_at is None else as_datetime(orphan.last_attempt_at, zone)
        written_by = identifiers.get(orphan.task.written_by, "")
        outbox.emit(TaskOrphaned(orphan.task.name, last_attempt_at, written_by, orphan.dropped))
        yield
    for change in resolution.overridden if outbox.wants(TaskOverridden) else ():
        old = {**configuration(change.old), **_times(change.old_state, zone)}
        new = {**configuration(change.new), **_times(change.new.state, zone)}
        outbox.emit(TaskOverridden(change.new.name, change.change_type, old, new, change.dropped))
        yield
    for task in resolution.added if outbox.wants(TaskAdded) else ():
        outbox.emit(TaskAdded(task.name, task.expression.text, task.delay))
        yield
    for task in resolution.interrupted if first and outbox.wants(TaskInterrupted) else ():
        state = task.state
        if isinstance(state, Interrupted):
            resumes = None if state.resume_at is None else as_datetime(state.resume_at, zone)
            started = as_datetime(state.last_attempt_at, zone)
            outbox.emit(TaskInterrupted(task.name, started, state.interruptions, resumes))
        yield
    if not outbox.wants(TaskScheduled):
        return
    for task in resolution.preserved.tasks:
        outbox.emit(TaskPreserved(task.name))
        if first:
            outbox.emit(TaskScheduled(task.name, task.expression.text, task.delay))
        else:
            outbox.emit(TaskSkipped(task.name, "already scheduled as declared"))
        yield
    for task in (*resolution.added, *(change.new for change in resolution.overridden)):
        outbox.emit(TaskScheduled(task.name, task.expression.text, task.delay))
        yield


def _times(state: TaskState, zone: tzinfo) -> dict[str, str | None]:
    def text(instant: Instant | None) -> str | None:
        return None if instant is None else as_datetime(instant, zone).isoformat()

    return {
        "lastAttemptAt": text(getattr(state, "last_attempt_at", None)),
        "lastSuccessAt": text(getattr(state, "last_success_at", None)),
        "lastFailureAt": text(getattr(state, "last_failure_at", None)),
        "pendingRetryUntil": text(getattr(state, "pending_retry_until", None)),
    }
