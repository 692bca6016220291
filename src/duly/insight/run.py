"""One run as people see it: what it was due for, how late it was, how long it took, and what became of it."""

from dataclasses import dataclass

from duly.core.moments import Instant
from duly.stores.port import HostName, RunRecord


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run, in history or still under way."""

    run_id: int  #: the number of the run, unique in its store
    task: str  #: the name of the task
    expression: str  #: its cron expression at that time
    cause: str  #: why it started: `cron`, `retry` or `interrupted`
    scheduled_time: Instant  #: the latest due minute that it served, the instant of its retry, or the interrupted start
    started_at: Instant  #: when it started
    ended_at: Instant | None  #: when it ended; None if it is running, or was interrupted
    lateness_ms: int | None
    """From the scheduled time to the start; None for the repetition of an interrupted run: no minute was due."""

    duration_ms: float | None
    """From the call of its callback to its return; None if it has not returned: it is under way, or was cut short."""

    outcome: str
    """`success`, `failure`, `interrupted`, `running`."""

    error: str | None  #: type and text of the exception, if it failed
    attempt: int | None
    """The number of the attempt for its obligation; None if an older version of duly has not recorded it."""

    key: str | None
    """The idempotency key that the run had; None if an older version of duly ran it, and it was a repetition."""

    traceback: str | None
    """The end of the traceback of a failure; None if it was not asked for, or an older version of duly ran it."""

    host: HostName | None
    """The host of a shared store that started it; None in an embedded store."""


def run_report(record: RunRecord) -> RunReport:
    """A record of the store as people see it. A clock that was set back makes no negative times.

    Parameters:
        record: the record.
    """
    late = max(0, record.started_at - record.scheduled_time)
    called_at = record.started_at if record.called_at is None else record.called_at
    took = None if record.ended_at is None else max(0, record.ended_at - called_at)
    return RunReport(
        record.run_id,
        record.task,
        record.expression,
        record.cause,
        record.scheduled_time,
        record.started_at,
        record.ended_at,
        None if record.cause == "interrupted" else late // 1000,
        None if took is None else took / 1000,
        record.outcome,
        record.error,
        record.attempt,
        record.key,
        record.traceback,
        record.host,
    )
