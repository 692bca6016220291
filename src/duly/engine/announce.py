"""What is said about starts and ends once they are durable: decisions and outcomes, as events."""

import traceback
from datetime import datetime, tzinfo
from typing import Final

from duly.core.agenda import Agenda
from duly.core.changes import Starts
from duly.core.moments import Instant, Minute, as_datetime, begin
from duly.core.task import AwaitingRetry, Cause, End, Grounds, Start, lateness_threshold
from duly.engine.runs import Run
from duly.engine.sink import Sink
from duly.events import (
    TaskRetryPreempted,
    TaskRetryStarted,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunOverdue,
    TaskRunStarted,
    TaskStartDelayed,
)

ERROR_TEXT_BYTES_MAX: Final = 4096


class Reports:
    """Builds events only if somebody listens; that is asked once for many."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def overdue(self, run: Run, due: Minute, zone: tzinfo) -> None:
        """Tell of a run that outlives a due minute."""
        started_at, due_time = _local(run.started_at, zone), _local(begin(due), zone)
        self._sink.emit(TaskRunOverdue(run.task.name, started_at, due_time))

    def starts(self, granted: Starts, agenda: Agenda, active_since: Instant) -> None:
        """Tell of a durable chunk of starts, in their order."""
        zone = agenda.zone
        threshold = lateness_threshold(agenda.size)
        tell = self._sink.wants(TaskRunStarted)
        if not tell and all(_lateness(block.grounds, active_since) <= threshold for block in granted.blocks):
            return
        seen = None
        for start in granted.singles():
            if tell:
                self._start(start, zone)
            grounds = start.grounds
            if grounds is seen:
                continue
            lateness = _lateness(grounds, active_since)
            if lateness <= threshold:
                seen = grounds
            else:
                due_time, actual_time = _local(grounds.owed_since, zone), _local(grounds.at, zone)
                self._sink.emit(
                    TaskStartDelayed(start.task.name, due_time, actual_time, lateness // 1000, threshold // 1000)
                )

    def _start(self, start: Start, zone: tzinfo) -> None:
        name, grounds = start.task.name, start.grounds
        is_retry = grounds.cause is Cause.RETRY
        if grounds.preempts_retry:
            self._sink.emit(TaskRetryPreempted(name, "a due minute took the retry's place"))
        if is_retry:
            self._sink.emit(TaskRetryStarted(name, grounds.retry_count))
        scheduled, actual = _local(grounds.scheduled, zone), _local(grounds.at, zone)
        self._sink.emit(TaskRunStarted(name, scheduled, actual, grounds.cause.value, start.run, is_retry or None))

    def ends_are_heard(self) -> bool:
        """Whether anybody listens to ends that succeed; asked once for many."""
        return self._sink.wants(TaskRunCompleted)

    def end(self, end: End, run: Run | None, zone: tzinfo) -> None:
        """Tell of a durable end, with what its run remembers of it."""
        name = end.task.name
        duration_ms = None if run is None else run.duration_ms
        if duration_ms is None:  # who listens now did not when it ended
            duration_ms = max(0.0, (end.at - end.grounds.at) / 1000)
        if end.error is None:
            self._sink.emit(TaskRunCompleted(name, duration_ms, end.run))
            return
        # A run whose declaration was replaced meanwhile arms no retry (SPEC 5.3).
        armed = isinstance(end.task.state, AwaitingRetry) and end.pending_retry_until is not None
        next_retry_at = _local(end.pending_retry_until or 0, zone) if armed else None
        exception = None if run is None else run.error
        self._sink.emit(TaskRunFailed(name, duration_ms, end.error, end.run, next_retry_at, exception=exception))


def _lateness(grounds: Grounds, active_since: Instant) -> int:
    """Microseconds; nobody could have started it while nothing was active, or while its own last run went on."""
    after = grounds.after
    startable = max(grounds.owed_since, active_since, after.last_success_at or 0, after.last_failure_at or 0)
    return grounds.at - startable


def error_text(error: BaseException) -> str:
    """What is stored of an exception: its last line, storable, at most 4 KB."""
    try:
        text = "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # an exception whose __str__ raises
        text = type(error).__name__
    encoded = text.encode("utf-8", "backslashreplace").replace(b"\0", b"\\0")[:ERROR_TEXT_BYTES_MAX]
    return encoded.decode("utf-8", "ignore")


def _local(instant: int, zone: tzinfo) -> datetime:
    return as_datetime(instant, zone)
