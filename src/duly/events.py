"""The stable events, as values: what happened, at which level, with which wire names.

docs/reference/events.md lists them: when each is reported, its level, and every field with its type and meaning. A test
compares the page with this module.

`duration` and everything that ends in `Ms` is in milliseconds; times are ISO 8601 with offset.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar

from duly.text import wire_name

# The numbers of the `logging` module, which this module must not import, because the pure core shares it.
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


@dataclass(frozen=True, slots=True)
class Event:
    """The base of all events: a name, a level, and fields under their wire names."""

    level: ClassVar[int] = INFO
    unless_none: ClassVar[frozenset[str]] = frozenset()
    """Optional fields: left out if they are None, where a required field is null."""

    @property
    def name(self) -> str:
        """The event's name, stable across versions."""
        return type(self).__name__

    @property
    def fields(self) -> dict[str, Any]:
        """The event's fields under their wire names, times as ISO 8601 text."""
        kind = type(self)
        wired = _wired.get(kind)
        if wired is None:
            wired = _wired[kind] = tuple(
                (each.name, wire_name(each.name), each.name in kind.unless_none)
                for each in sorted(fields(self), key=lambda each: each.kw_only is True)  # `host` comes last
                if each.repr
            )
        found: dict[str, Any] = {}
        for attribute, name, is_optional in wired:
            value = getattr(self, attribute)
            if value is not None or not is_optional:
                found[name] = value.isoformat() if isinstance(value, datetime) else value
        return found


_wired: dict[type[Event], tuple[tuple[str, str, bool], ...]] = {}
"""Attributes of events that are fields, their wire names, and whether they are left out if they are None.

Kept from the first event of a class on: finding them out takes longer than everything else about an event."""


@dataclass(frozen=True, slots=True)
class TaskEvent(Event):
    """The base of all events about one task."""

    unless_none: ClassVar[frozenset[str]] = frozenset({"host"})
    #: on a shared store, the key of the host that says so; otherwise None, and left out of `fields`
    host: int | None = field(default=None, kw_only=True)


# --- lifecycle -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchedulerInitializationStarted(Event):
    """A first initialize() passed its checks."""

    level = DEBUG
    total_registrations: int  #: how many registrations were given


@dataclass(frozen=True, slots=True)
class SchedulerInitializationCompleted(Event):
    """The declared tasks are in force."""

    level = DEBUG
    total_registrations: int  #: how many registrations were given
    scheduled_count: int  #: how many tasks are new or changed
    skipped_count: int  #: how many tasks were in force already, as declared


@dataclass(frozen=True, slots=True)
class SchedulerInitializationFailed(Event):
    """A first initialize() raised; the scheduler is uninitialised, the store as before."""

    # The default level, INFO: the error is raised to the caller, who reports it or expects it.
    error_type: str  #: the class of the exception
    error: str  #: type and text of the exception


@dataclass(frozen=True, slots=True)
class SchedulerReinitializationStarted(Event):
    """A further initialize() passed its checks."""

    level = DEBUG
    total_registrations: int  #: how many registrations were given


@dataclass(frozen=True, slots=True)
class SchedulerReinitializationCompleted(Event):
    """The newly declared tasks are in force."""

    level = DEBUG
    total_registrations: int  #: how many registrations were given
    scheduled_count: int  #: how many tasks are new or changed
    skipped_count: int  #: how many tasks were in force already, as declared


@dataclass(frozen=True, slots=True)
class SchedulerReinitializationFailed(Event):
    """A further initialize() raised; the old registrations go on."""

    # The default level, INFO: the error is raised to the caller, who reports it or expects it.
    error_type: str  #: the class of the exception
    error: str  #: type and text of the exception


@dataclass(frozen=True, slots=True)
class SchedulerStopRequested(Event):
    """stop() was called; nothing starts from here on."""


@dataclass(frozen=True, slots=True)
class SchedulerStopped(Event):
    """All callbacks have ended, their ends are recorded, everything is released."""


@dataclass(frozen=True, slots=True)
class StandbyStarted(Event):
    """Another scheduler holds the store; this one waits until the store is free."""

    holder: Mapping[str, Any]
    """The scheduler that holds the store: `pid`, `host` and `since`; None where that is not known."""


@dataclass(frozen=True, slots=True)
class StandbyEnded(Event):
    """A standby that was announced is over: the scheduler runs here (`holding`), or the standby was left."""

    holding: bool  #: whether the scheduler runs in this process


@dataclass(frozen=True, slots=True)
class StandbyFailed(Event):
    """An error ended a standby: this process will not run the tasks. Raised by held() and on leaving as well."""

    level = ERROR
    error_type: str  #: the class of the exception
    error: str  #: type and text of the exception


# --- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskRunStarted(TaskEvent):
    """A start is durable, its callback begins."""

    unless_none: ClassVar[frozenset[str]] = frozenset({"is_retry", "host"})
    task_name: str  #: the name of the task
    #: the latest due minute that it serves, the instant of the retry, or the interrupted start
    scheduled_time: datetime
    actual_time: datetime  #: when the run started
    cause: str  #: why it started: `cron`, `retry` or `interrupted`
    run_id: int  #: the number of the run, unique in its store
    is_retry: bool | None = None  #: true for a retry; otherwise None, and left out of `fields`


@dataclass(frozen=True, slots=True)
class TaskRunCompleted(TaskEvent):
    """A callback returned, and that is durable."""

    task_name: str  #: the name of the task
    #: milliseconds from the call of the callback to its return, to about a millisecond
    duration: float
    run_id: int  #: the number of the run, unique in its store
    success: bool = True  #: always true


@dataclass(frozen=True, slots=True)
class TaskRunFailed(TaskEvent):
    """A callback raised, or outlasted its time limit, and that is durable."""

    level = WARNING
    unless_none: ClassVar[frozenset[str]] = frozenset({"next_retry_at", "host"})
    task_name: str  #: the name of the task
    #: milliseconds from the call of the callback to its end, to about a millisecond
    duration: float
    error: str  #: type and text of the exception
    run_id: int  #: the number of the run, unique in its store
    next_retry_at: datetime | None = None  #: when the retry is due; None if there is none
    success: bool = False  #: always false
    exception: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception itself, for `exc_info`; not a field of the log."""


@dataclass(frozen=True, slots=True)
class TaskRetryStarted(TaskEvent):
    """The delay after a failure has passed, and the task starts again."""

    task_name: str  #: the name of the task
    retry_count: int  #: how many failures in a row the retry follows


@dataclass(frozen=True, slots=True)
class TaskRetryPreempted(TaskEvent):
    """A due minute arrived before the retry did, and took its place."""

    task_name: str  #: the name of the task
    reason: str  #: why, in words


@dataclass(frozen=True, slots=True)
class TaskInterrupted(TaskEvent):
    """A crash interrupted a run: the store says running, and no such run is alive."""

    level = WARNING
    unless_none: ClassVar[frozenset[str]] = frozenset({"resumes_at", "host"})
    task_name: str  #: the name of the task
    started_at: datetime  #: when the run started
    interruptions: int  #: how often in a row the task was interrupted
    resumes_at: datetime | None = None  #: when the task starts again; None if it waits for its next due minute


@dataclass(frozen=True, slots=True)
class TaskStartDelayed(TaskEvent):
    """A start came later than the latency target allows (000 R1)."""

    level = WARNING
    task_name: str  #: the name of the task
    due_time: datetime  #: since when the start has been owed
    actual_time: datetime  #: when the run started
    lateness_ms: int  #: milliseconds from when the start was possible until it happened
    threshold_ms: int  #: milliseconds of lateness from which it is reported


@dataclass(frozen=True, slots=True)
class TaskRunOverdue(TaskEvent):
    """A run outlives its task's next due minute, which is owed when the run ends."""

    level = WARNING
    task_name: str  #: the name of the task
    started_at: datetime  #: when the run started
    due_time: datetime  #: the due minute


# --- polling ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PollStarted(Event):
    """The loop begins to start what is owed."""

    level = DEBUG
    poll_time: datetime  #: when the poll began
    scheduled_task_count: int  #: how many tasks are in force


@dataclass(frozen=True, slots=True)
class PollCompleted(Event):
    """The loop has started what is owed, and sleeps again."""

    level = DEBUG
    poll_time: datetime  #: when the poll began
    tasks_evaluated: int  #: how many tasks were asked whether they are owed a start
    tasks_executed: int  #: how many of them were started
    duration: float  #: milliseconds from its beginning to its end


@dataclass(frozen=True, slots=True)
class PollingStarted(Event):
    """There are tasks to poll for."""

    level = DEBUG


@dataclass(frozen=True, slots=True)
class PollingStopRequested(Event):
    """The loop will not poll again."""

    level = DEBUG


@dataclass(frozen=True, slots=True)
class PollingStopped(Event):
    """The loop has ended, or has no task left to poll for."""

    level = DEBUG


# --- state -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskAdded(TaskEvent):
    """A task is declared that was not stored."""

    task_name: str  #: the name of the task
    cron_expression: str  #: the declared expression
    retry_delay_ms: int  #: the declared retry delay in milliseconds


@dataclass(frozen=True, slots=True)
class TaskPreserved(TaskEvent):
    """A task is declared as it is stored."""

    level = DEBUG
    task_name: str  #: the name of the task


@dataclass(frozen=True, slots=True)
class TaskOverridden(TaskEvent):
    """A task is declared differently from the stored one: the declaration wins, what was owed before is dropped."""

    task_name: str  #: the name of the task
    change_type: str  #: what differs: `cronExpression`, `retryDelayMs`, or both, separated by a comma
    old_state: Mapping[str, Any]  #: as stored, with the keys of `new_state`
    new_state: Mapping[str, Any]  #: as declared: `cronExpression`, `retryDelayMs`, and the times, which are reset
    dropped: Sequence[str] = ()  #: what was owed and is dropped, in words


@dataclass(frozen=True, slots=True)
class TaskOrphaned(TaskEvent):
    """A stored task is no longer declared: it is removed, together with what it owed."""

    level = WARNING
    task_name: str  #: the name of the task
    last_execution_time: datetime | None  #: when the task last started; None if it never did
    scheduler_identifier: str  #: the scheduler that last wrote the task
    dropped: Sequence[str] = ()  #: what was owed and is dropped, in words


@dataclass(frozen=True, slots=True)
class TaskScheduled(TaskEvent):
    """A task is in force from here on."""

    level = DEBUG
    task_name: str  #: the name of the task
    cron_expression: str  #: the declared expression
    retry_delay_ms: int  #: the declared retry delay in milliseconds


@dataclass(frozen=True, slots=True)
class TaskSkipped(TaskEvent):
    """A registration changed nothing, because the task is in force as declared."""

    level = DEBUG
    task_name: str  #: the name of the task
    reason: str  #: why, in words


# --- surroundings ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClockJumped(Event):
    """The wall clock was set: it moved by more, or less, than the time that passed."""

    level = WARNING
    old_time: datetime  #: what the clock would show without the jump
    new_time: datetime  #: what the clock shows now
    jump_ms: int  #: milliseconds by which the clock jumped; negative if it was set back


@dataclass(frozen=True, slots=True)
class EventLoopBlocked(TaskEvent):
    """The callback of a task kept the event loop from turning: nothing else ran, this scheduler included."""

    level = WARNING
    task_name: str  #: the name of the task
    run_id: int  #: the number of the run, unique in its store
    blocked_ms: int  #: milliseconds from when it was first seen to block, up to 200 ms after it began


@dataclass(frozen=True, slots=True)
class HostZoneChanged(Event):
    """The host's zone has other rules than the one in which the store was last used; another name is not a change."""

    level = WARNING
    old_zone: str  #: the zone in which the store was last used
    new_zone: str  #: the zone of the host


@dataclass(frozen=True, slots=True)
class StoreFault(Event):
    """The store failed; what it was asked to do is tried again, and a write is kept."""

    level = ERROR
    unless_none: ClassVar[frozenset[str]] = frozenset({"permanent"})
    operation: str  #: what the store was asked to do
    error_type: str  #: the class of the exception
    error: str  #: type and text of the exception
    retry_in_ms: int  #: milliseconds until the next try
    permanent: bool | None = None  #: true if it does not pass by itself; otherwise None, and left out of `fields`


@dataclass(frozen=True, slots=True)
class StoreRecovered(Event):
    """The store answers again; nothing was lost."""

    operation: str  #: what the store was asked to do
    attempts: int  #: how many tries the operation took


@dataclass(frozen=True, slots=True)
class PropertyViolated(Event):
    """The monitor found that the scheduler violated a property of its specification."""

    level = ERROR
    unless_none: ClassVar[frozenset[str]] = frozenset({"task_name"})
    property: str  #: the number of the property, such as `S1`
    sentence: str  #: what the property says
    position: int  #: the position in the trace; on a shared store, the number of the entry of its log
    at: datetime  #: when the event of the trace happened
    task_name: str | None  #: the task concerned; None if the property is about the scheduler as a whole
    registers: Mapping[str, Any]  #: what the monitor knew at that position


# --- hosts of a shared store -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostJoined(Event):
    """Another host has joined."""

    unless_none: ClassVar[frozenset[str]] = frozenset({"label"})
    host: int  #: the key of the host
    label: str | None  #: the name that the host was given for people; None if it has none


@dataclass(frozen=True, slots=True)
class HostLeft(Event):
    """Another host has stopped; the others go on with its work."""

    host: int  #: the key of the host


@dataclass(frozen=True, slots=True)
class HostLost(Event):
    """A host was buried, because its beat stood still for longer than its lease: its runs were interrupted.

    At DEBUG on hosts that did not bury it themselves.
    """

    level = WARNING
    unless_none: ClassVar[frozenset[str]] = frozenset({"label"})
    host: int  #: the key of the host
    label: str | None  #: the name that the host was given for people; None if it has none
    runs: int  #: how many runs of the host had no recorded end, as far as this host knows


@dataclass(frozen=True, slots=True)
class HostLostElsewhere(HostLost):
    """`HostLost` on a host that did not bury: of all hosts, one warns."""

    level = DEBUG

    @property
    def name(self) -> str:
        """The name of the event that it is."""
        return HostLost.__name__


@dataclass(frozen=True, slots=True)
class HostOptionOverruled(Event):
    """`history` or `trace` of this host differs from what the host chose that put the set in force: that one counts.

    Without a trace there is nothing for `monitor` to judge.
    """

    level = WARNING
    option: str  #: the name of the option: `history`, `trace` or `monitor`
    value: int | bool  #: the value that this host was given
    in_force: int | bool  #: the value that counts for all hosts


@dataclass(frozen=True, slots=True)
class HostClockSkewed(Event):
    """The wall clock of this host differs by more than two seconds from that of the store, which counts."""

    level = WARNING
    skew_ms: int  #: milliseconds by which this host's clock is ahead; negative: it is behind


@dataclass(frozen=True, slots=True)
class LeaseSuspended(Event):
    """This host has had no answer for the length of its lease: it starts nothing, and holds its callbacks."""

    level = WARNING
    since: datetime  #: when the last beat was sent that was answered


@dataclass(frozen=True, slots=True)
class LeaseResumed(Event):
    """A beat was answered again: this host goes on, and so do its callbacks."""

    after_ms: int  #: milliseconds for which the lease was not trusted


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """This host was buried by another one: its callbacks are cancelled, and it joins again as a new host."""

    level = ERROR
    runs: int  #: how many runs of this host had no recorded end
    error: str  #: type and text of the exception


@dataclass(frozen=True, slots=True)
class RejoinFailed(Event):
    """This host was buried and could not join again; it goes on trying."""

    level = ERROR
    error_type: str  #: the class of the exception
    error: str  #: type and text of the exception
    retry_in_ms: int  #: milliseconds until the next try


@dataclass(frozen=True, slots=True)
class TaskRunFenced(TaskEvent):
    """A run ended after its host was buried: its end is not recorded, and the task is another host's."""

    level = ERROR
    task_name: str  #: the name of the task
    run_id: int  #: the number of the run, unique in its store


@dataclass(frozen=True, slots=True)
class StartsRefused(Event):
    """The store refused starts, because another host was faster."""

    level = DEBUG
    starts: int  #: how many starts were refused


@dataclass(frozen=True, slots=True)
class DeclarationSuperseded(Event):
    """A newer set of tasks is in force: this host serves the tasks that are the same in both."""

    level = WARNING
    edition: int  #: the number of the set of tasks that this host declares
    superseded_by: int  #: the number of the set in force
    tasks_withdrawn: int  #: how many tasks that this host declares are not in force
    tasks_unknown: int  #: how many tasks in force this host does not declare, or not like that


@dataclass(frozen=True, slots=True)
class EditionReinstated(Event):
    """The last host with a newer set of tasks is gone: this host has put its own in force again."""

    level = WARNING
    edition: int  #: the number of the set of tasks that this host declares


__all__ = [
    name
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, Event) and value not in (TaskEvent, HostLostElsewhere)
]


def __getattr__(name: str) -> Any:
    """Load `RunFilter` at its first use: it imports `logging`."""
    if name == "RunFilter":
        from duly.log_filter import RunFilter

        return RunFilter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def both(first: Callable[[Event], object], second: Callable[[Event], object]) -> Callable[[Event], None]:
    """Make one `on_event` of two listeners.

    Parameters:
        first: called with every event.
        second: called with every event after that, even if the first raises.

    Returns:
        A listener for `Scheduler(on_event=...)`.

    Raises:
        TypeError: one of the two cannot be called.
    """
    for each in (first, second):
        if not callable(each):
            raise TypeError(f"both() takes two callables, got {type(each).__name__}")

    def listen(event: Event) -> None:
        try:
            first(event)
        finally:
            second(event)

    return listen
