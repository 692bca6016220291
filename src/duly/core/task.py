"""A task's states, its transitions, and `obligation()`: the whole rule of when a task must start.

What is owed follows from durable state and the clock, never from which process was running. First start-up, missed
minutes, repeated hours, long runs and backward clocks all reduce to one comparison with `served_through`.

States are frozen values that hold only the fields they can have. Tasks in the same situation share one object,
so a million tasks that do the same thing at the same minute cost one transition.
"""

from dataclasses import dataclass, replace
from datetime import UTC
from enum import Enum
from typing import Final, NamedTuple

from duly.core.cron import CronExpression
from duly.core.moments import MICROSECONDS, Delay, Instant, Minute, after, as_datetime, begin
from duly.core.registration import Callback, RunsOn

SHORTEST_DELAY: Final = Delay(1_000)
"""The shortest delay that is really waited: zero may be declared, and must not spin (SPEC 3.6)."""

CRASH_LOOP_DELAY: Final = Delay(60_000)
"""A task that was interrupted twice in a row waits at least this long after its last start (SPEC 3.7)."""

SERVED_AHEAD_SECONDS_MAX: Final = 3 * 3600
"""If `served_through` lies further ahead than this, the clock has been set back since (SPEC 2.5)."""


@dataclass(frozen=True, slots=True)
class Obligation:
    """A start of cause cron begins one, starts of cause retry or interrupted repeat it (SPEC 10.1)."""

    first_started_at: Instant
    scheduled: Instant  # the due minute that the first start served
    attempt: int  # number of the latest start; failures and interruptions both count

    def repeated(self) -> "Obligation":
        """The obligation with one more attempt."""
        return replace(self, attempt=self.attempt + 1)


def idempotency_key(name: str, generation: int, first_started_at: Instant) -> str:
    """The text that all attempts for one obligation share, and that no other obligation in the store has (SPEC 10.1).

    A name may contain anything, but what follows it is a number and a time of fixed length.
    """
    started = as_datetime(first_started_at, UTC).replace(tzinfo=None)
    return f"{name}/{generation}/{started.isoformat(timespec='microseconds')}Z"


@dataclass(frozen=True, slots=True)
class AwaitingRun:
    """Nothing is pending but the next due minute."""

    served_through: Minute  # no minute up to this one is still owed
    last_attempt_at: Instant | None = None
    last_success_at: Instant | None = None
    last_failure_at: Instant | None = None
    served_before: Minute | None = None  # while it never started: what starts of earlier declarations have served


@dataclass(frozen=True, slots=True)
class AwaitingRetry:
    """The last run failed; the next may begin once the delay has passed."""

    served_through: Minute
    last_attempt_at: Instant
    last_success_at: Instant | None
    last_failure_at: Instant
    pending_retry_until: Instant
    failures: int  # in a row
    obligation: Obligation  # what the retry repeats


@dataclass(frozen=True, slots=True)
class Running:
    """A run is durable and has no durable end yet."""

    served_through: Minute
    last_attempt_at: Instant
    last_success_at: Instant | None
    last_failure_at: Instant | None
    pending_retry_until: Instant | None  # the retry whose place this run took; a crash must not forget it
    failures: int
    interruptions: int  # in a row, before this run
    obligation: Obligation


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Running in the store, but no such run is alive."""

    served_through: Minute
    last_attempt_at: Instant
    last_success_at: Instant | None
    last_failure_at: Instant | None
    pending_retry_until: Instant | None
    failures: int
    interruptions: int
    resume_at: Instant | None  # when the interrupted run is owed again; None: the task waits for its next due minute
    obligation: Obligation  # what the interrupted run was for


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """No longer declared: it owes nothing, and the end of its last run changes nothing."""

    served_through: Minute


TaskState = AwaitingRun | AwaitingRetry | Running | Interrupted | Withdrawn


class Cause(Enum):
    """Why a task starts."""

    CRON = "cron"
    RETRY = "retry"
    INTERRUPTED = "interrupted"


class Owed(NamedTuple):
    """The due minutes after `served_through` and up to now; one start serves them all."""

    earliest: Minute  # decides the cause and the position in the queue
    latest: Minute  # is reported as the scheduled time


class Task:
    """A declared task: its configuration, its callback, and its state.

    `generation` identifies this declaration in the store and is never used again: an overriding declaration gets a new
    number, so that an end of the old one cannot change the times of the new one (SPEC 5.3).
    """

    generation: int
    name: str
    expression: CronExpression
    delay: Delay
    callback: Callback
    runs_on: RunsOn
    written_by: int
    predecessor_runs: bool

    __slots__ = (
        "callback",
        "delay",
        "expression",
        "generation",
        "name",
        "predecessor_runs",
        "runs_on",
        "state",
        "written_by",
    )

    def __init__(
        self,
        generation: int,
        name: str,
        expression: CronExpression,
        delay: Delay,
        state: TaskState,
        callback: Callback,
        runs_on: RunsOn,
        written_by: int = 0,
    ) -> None:
        self.generation = generation
        self.name = name
        self.expression = expression
        self.delay = delay
        self.state: TaskState = state
        self.callback = callback
        self.runs_on = runs_on
        self.written_by = written_by
        """The key of the scheduler that last wrote the record (SPEC 5.4)."""
        self.predecessor_runs = False
        """Whether a run of the declaration that this one replaced is still alive; this one waits for its end."""

    def __repr__(self) -> str:
        return f"<Task {self.name!r} {self.expression.text!r} {self.state}>"


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why and as of when a task starts; tasks in the same situation share one object."""

    cause: Cause
    at: Instant
    scheduled: Instant  # the latest due minute served, the instant of the retry, or the interrupted start
    owed_since: Instant
    retry_count: int
    preempts_retry: bool
    after: Running

    @property
    def obligation(self) -> Obligation:
        """The obligation that the start serves, with the number of the attempt."""
        return self.after.obligation


class Start(NamedTuple):
    """A task starts, as run number `run`."""

    task: Task
    run: int
    grounds: Grounds


class End(NamedTuple):
    """A run has ended; if its declaration is no longer in force, only the history records it (SPEC 5.3)."""

    task: Task
    run: int
    grounds: Grounds
    at: Instant
    error: str | None = None  # None: it succeeded
    pending_retry_until: Instant | None = None
    failures: int = 0
    called_at: Instant | None = None  # when its start was durable and its callback was called; None: not known
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Correction:
    """The clock was set back: `served_through` and retries that lie too far ahead are lowered (SPEC 2.5)."""

    now: Instant
    minute: Minute


Change = Start | End | Correction
"""The fields that a store writes while the scheduler runs."""


def effective(delay: Delay) -> Delay:
    """The delay that is really waited."""
    return max(delay, SHORTEST_DELAY)


def obligation(state: TaskState, owed: Owed | None, now: Instant) -> Cause | None:
    """Why a task in this state must start now, or None: the whole scheduling rule (SPEC 3)."""
    if isinstance(state, Running | Withdrawn):
        return None
    if isinstance(state, Interrupted) and state.resume_at is not None and state.resume_at <= now:
        return Cause.INTERRUPTED
    if not isinstance(state, AwaitingRun):
        retry_at = state.pending_retry_until
        if retry_at is not None and retry_at <= now and (owed is None or retry_at < begin(owed.earliest)):
            return Cause.RETRY
    return Cause.CRON if owed is not None else None


def grounds_for(state: TaskState, owed: Owed | None, now: Instant, minute: Minute) -> Grounds | None:
    """The grounds of the start that a task in this state owes now, or None; `minute` contains `now`."""
    cause = obligation(state, owed, now)
    if cause is None or isinstance(state, Running | Withdrawn):
        return None
    retry_at = None if isinstance(state, AwaitingRun) else state.pending_retry_until
    if cause is Cause.CRON:
        assert owed is not None
        scheduled, owed_since = begin(owed.latest), begin(owed.earliest)
        served = Obligation(now, scheduled, 1)
    elif cause is Cause.RETRY:
        assert retry_at is not None and not isinstance(state, AwaitingRun)
        scheduled = owed_since = retry_at
        served = state.obligation.repeated()
    else:
        assert isinstance(state, Interrupted) and state.resume_at is not None
        scheduled, owed_since = state.last_attempt_at, state.resume_at
        served = state.obligation.repeated()
        if owed is not None:  # one start serves both, and a due minute may have come while the run had to wait
            owed_since = min(owed_since, begin(owed.earliest))
    return Grounds(
        cause=cause,
        at=now,
        scheduled=scheduled,
        owed_since=owed_since,
        retry_count=0 if isinstance(state, AwaitingRun) else state.failures,
        preempts_retry=cause is Cause.CRON and retry_at is not None,
        after=begin_run(state, now, minute, served),
    )


def begin_run(
    state: AwaitingRun | AwaitingRetry | Interrupted, at: Instant, minute: Minute, served: Obligation
) -> Running:
    """The state after a start, whatever its cause: `served_through` rises to its minute, and is never lowered."""
    return Running(
        served_through=max(state.served_through, minute),
        last_attempt_at=at,
        last_success_at=state.last_success_at,
        last_failure_at=state.last_failure_at,
        pending_retry_until=None if isinstance(state, AwaitingRun) else state.pending_retry_until,
        failures=0 if isinstance(state, AwaitingRun) else state.failures,
        interruptions=state.interruptions if isinstance(state, Interrupted) else 0,
        obligation=served,
    )


def succeed(run: Running, at: Instant) -> AwaitingRun:
    """The state after a callback returned: nothing is pending any more."""
    return AwaitingRun(run.served_through, run.last_attempt_at, at, run.last_failure_at)


def fail(run: Running, at: Instant, delay: Delay) -> AwaitingRetry:
    """The state after a callback failed: the delay of the retry begins at this failure."""
    return AwaitingRetry(
        run.served_through,
        run.last_attempt_at,
        run.last_success_at,
        at,
        pending_retry_until=after(at, effective(delay)),
        failures=run.failures + 1,
        obligation=run.obligation,
    )


def interrupt(run: Running, now: Instant, delay: Delay, *, restart: bool) -> Interrupted:
    """The state of a run whose process is gone (SPEC 3.7)."""
    interruptions = run.interruptions + 1
    resume_at: Instant | None = None
    if restart:
        # A start in the future was stamped before the clock was set back.
        started = min(run.last_attempt_at, now)
        resume_at = after(started, max(delay, CRASH_LOOP_DELAY)) if interruptions >= 2 else started
    return Interrupted(
        run.served_through,
        run.last_attempt_at,
        run.last_success_at,
        run.last_failure_at,
        pending_retry_until=None if restart else run.pending_retry_until,
        failures=run.failures,
        interruptions=interruptions,
        resume_at=resume_at,
        obligation=run.obligation,
    )


def newly_declared(minute: Minute, served_before: Minute | None = None) -> AwaitingRun:
    """The state of a new or overriding task: this minute is owed, unless an earlier declaration has served it."""
    before = Minute(minute - 60)
    if served_before is None:
        return AwaitingRun(before)
    return AwaitingRun(max(before, served_before), served_before=served_before)


def served_by_starts(state: TaskState) -> Minute | None:
    """The latest minute that a start of this name has served, or None; `served_through` may be one that none has."""
    if isinstance(state, AwaitingRun) and state.last_attempt_at is None:
        return state.served_before
    return state.served_through


def corrected(state: TaskState, now: Instant, minute: Minute, delay: Delay) -> TaskState:
    """A state as it must be after the clock was set back (SPEC 2.5); the same object if nothing is too far ahead."""
    if isinstance(state, AwaitingRun) and state.last_attempt_at is None:
        state = _corrected_before_a_start(state, minute)
    elif state.served_through > minute + SERVED_AHEAD_SECONDS_MAX:
        state = replace(state, served_through=minute)
    if isinstance(state, AwaitingRetry | Running | Interrupted) and state.pending_retry_until is not None:
        latest = after(now, effective(delay))
        if state.pending_retry_until > latest:
            state = replace(state, pending_retry_until=latest)
    if isinstance(state, Interrupted) and state.resume_at is not None:
        # The first interruption is owed at once, whatever the clock shows; only a second one in a row has to wait.
        latest = after(now, max(delay, CRASH_LOOP_DELAY)) if state.interruptions >= 2 else now
        if state.resume_at > latest:
            state = replace(state, resume_at=latest)
    return state


def _corrected_before_a_start(state: AwaitingRun, minute: Minute) -> AwaitingRun:
    """`served_through` is the minute before `known_since`, or what earlier declarations have served, if that is later.

    `known_since` becomes this minute if it lies too far ahead, and together with what earlier declarations have served.
    """
    before, too_far = state.served_before, minute + SERVED_AHEAD_SECONDS_MAX
    if before is not None and before > too_far:
        return replace(state, served_through=minute, served_before=minute)
    if state.served_through + 60 > too_far:
        # Another object, even if it is equal: `known_since` is lowered then, in the store.
        lowered = Minute(minute - 60) if before is None else max(Minute(minute - 60), before)
        return replace(state, served_through=lowered)
    return state


def lateness_threshold(tasks: int) -> int:
    """Microseconds by which a start may be late before that is reported (000 R1)."""
    return 60 * MICROSECONDS * max(10_000, tasks) // 10_000
