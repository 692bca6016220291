"""The stable events, as values: what happened, at which level, with which wire names.

docs/reference/events.md lists them: when each is reported, its level, and every field with its type and meaning. A test
compares the page with this module.

`duration` and everything that ends in `Ms` is in milliseconds; times are ISO 8601 with offset.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar

# The numbers of the `logging` module, which this module must not import, because the pure core shares it.
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


def wire_name(attribute: str) -> str:
    """The name of an attribute in logs and in JSON: `task_name` is `taskName`."""
    head, *rest = attribute.split("_")
    return head + "".join(word.capitalize() for word in rest)


@dataclass(frozen=True, slots=True)
class Event:
    """What all events share: a name, a level, and fields under their wire names."""

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
                (each.name, wire_name(each.name), each.name in kind.unless_none) for each in fields(self) if each.repr
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


# --- lifecycle -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchedulerInitializationStarted(Event):
    """A first initialize() passed its checks."""

    level = DEBUG
    total_registrations: int


@dataclass(frozen=True, slots=True)
class SchedulerInitializationCompleted(Event):
    """The declared tasks are in force."""

    level = DEBUG
    total_registrations: int
    scheduled_count: int
    skipped_count: int


@dataclass(frozen=True, slots=True)
class SchedulerInitializationFailed(Event):
    """A first initialize() raised; the scheduler is uninitialised, the store as before."""

    # The default level, INFO: the error is raised to the caller, who reports it or expects it.
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class SchedulerReinitializationStarted(Event):
    """A further initialize() passed its checks."""

    level = DEBUG
    total_registrations: int


@dataclass(frozen=True, slots=True)
class SchedulerReinitializationCompleted(Event):
    """The newly declared tasks are in force."""

    level = DEBUG
    total_registrations: int
    scheduled_count: int
    skipped_count: int


@dataclass(frozen=True, slots=True)
class SchedulerReinitializationFailed(Event):
    """A further initialize() raised; the old registrations go on."""

    # The default level, INFO: the error is raised to the caller, who reports it or expects it.
    error_type: str
    error: str


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
    """`pid`, `host` and `since`, as far as they are known."""


@dataclass(frozen=True, slots=True)
class StandbyEnded(Event):
    """A standby that was announced is over: the scheduler runs here (`holding`), or the standby was left."""

    holding: bool


@dataclass(frozen=True, slots=True)
class StandbyFailed(Event):
    """An error ended a standby: this process will not run the tasks. Raised by held() and on leaving as well."""

    level = ERROR
    error_type: str
    error: str


# --- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskRunStarted(Event):
    """A start is durable, its callback begins."""

    unless_none = frozenset({"is_retry"})
    task_name: str
    scheduled_time: datetime
    actual_time: datetime
    cause: str
    run_id: int
    is_retry: bool | None = None


@dataclass(frozen=True, slots=True)
class TaskRunCompleted(Event):
    """A callback returned, and that is durable."""

    task_name: str
    duration: float
    run_id: int
    success: bool = True


@dataclass(frozen=True, slots=True)
class TaskRunFailed(Event):
    """A callback raised, or outlasted its time limit, and that is durable."""

    level = WARNING
    unless_none = frozenset({"next_retry_at"})
    task_name: str
    duration: float
    error: str
    run_id: int
    next_retry_at: datetime | None = None
    success: bool = False
    exception: BaseException | None = field(default=None, repr=False, compare=False)
    """What was raised, for `exc_info`; not a wire field."""


@dataclass(frozen=True, slots=True)
class TaskRetryStarted(Event):
    """The delay after a failure has passed, and the task starts again."""

    task_name: str
    retry_count: int


@dataclass(frozen=True, slots=True)
class TaskRetryPreempted(Event):
    """A due minute arrived before the retry did, and took its place."""

    task_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskInterrupted(Event):
    """A crash interrupted a run: the store says running, and no such run is alive."""

    level = WARNING
    unless_none = frozenset({"resumes_at"})
    task_name: str
    started_at: datetime
    interruptions: int
    resumes_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TaskStartDelayed(Event):
    """A start came later than the latency target allows (000 R1)."""

    level = WARNING
    task_name: str
    due_time: datetime
    actual_time: datetime
    lateness_ms: int
    threshold_ms: int


@dataclass(frozen=True, slots=True)
class TaskRunOverdue(Event):
    """A run outlives its task's next due minute, which is owed when the run ends."""

    level = WARNING
    task_name: str
    started_at: datetime
    due_time: datetime


# --- polling ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PollStarted(Event):
    """The loop begins to start what is owed."""

    level = DEBUG
    poll_time: datetime
    scheduled_task_count: int


@dataclass(frozen=True, slots=True)
class PollCompleted(Event):
    """The loop has started what is owed, and sleeps again."""

    level = DEBUG
    poll_time: datetime
    tasks_evaluated: int
    tasks_executed: int
    duration: float


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
class TaskAdded(Event):
    """A task is declared that was not stored."""

    task_name: str
    cron_expression: str
    retry_delay_ms: int


@dataclass(frozen=True, slots=True)
class TaskPreserved(Event):
    """A task is declared as it is stored."""

    level = DEBUG
    task_name: str


@dataclass(frozen=True, slots=True)
class TaskOverridden(Event):
    """A task is declared differently from the stored one: the declaration wins, what was owed before is dropped."""

    task_name: str
    change_type: str
    old_state: Mapping[str, Any]
    new_state: Mapping[str, Any]
    dropped: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TaskOrphaned(Event):
    """A stored task is no longer declared: it is removed, together with what it owed."""

    level = WARNING
    task_name: str
    last_execution_time: datetime | None
    scheduler_identifier: str
    dropped: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TaskScheduled(Event):
    """A task is in force from here on."""

    level = DEBUG
    task_name: str
    cron_expression: str
    retry_delay_ms: int


@dataclass(frozen=True, slots=True)
class TaskSkipped(Event):
    """A registration changed nothing, because the task is in force as declared."""

    level = DEBUG
    task_name: str
    reason: str


# --- surroundings ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClockJumped(Event):
    """The wall clock was set: it moved by more, or less, than the time that passed."""

    level = WARNING
    old_time: datetime
    new_time: datetime
    jump_ms: int


@dataclass(frozen=True, slots=True)
class EventLoopBlocked(Event):
    """The callback of a task kept the event loop from turning: nothing else ran, this scheduler included."""

    level = WARNING
    task_name: str
    run_id: int
    blocked_ms: int


@dataclass(frozen=True, slots=True)
class HostZoneChanged(Event):
    """The host's zone has other rules than the one in which the store was last used; another name is not a change."""

    level = WARNING
    old_zone: str
    new_zone: str


@dataclass(frozen=True, slots=True)
class StoreFault(Event):
    """The store failed; the write is kept and tried again."""

    level = ERROR
    operation: str
    error_type: str
    error: str
    retry_in_ms: int


@dataclass(frozen=True, slots=True)
class StoreRecovered(Event):
    """The store accepts writes again; nothing was lost."""

    operation: str
    attempts: int


@dataclass(frozen=True, slots=True)
class PropertyViolated(Event):
    """The monitor found that the scheduler violated a property of its specification."""

    level = ERROR
    unless_none = frozenset({"task_name"})
    property: str
    sentence: str
    position: int
    at: datetime
    task_name: str | None
    registers: Mapping[str, Any]


__all__ = [name for name, value in list(globals().items()) if isinstance(value, type) and issubclass(value, Event)]


def __getattr__(name: str) -> Any:
    """Load `RunFilter` at its first use: it imports `logging`."""
    if name == "RunFilter":
        from duly.log_filter import RunFilter

        return RunFilter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def both(first: Callable[[Event], object], second: Callable[[Event], object]) -> Callable[[Event], None]:
    """Make one `on_event` of two: each is called with every event, the second even if the first raises."""
    for each in (first, second):
        if not callable(each):
            raise TypeError(f"both() takes two callables, got {type(each).__name__}")

    def listen(event: Event) -> None:
        try:
            first(event)
        finally:
            second(event)

    return listen
