"""The plan: what initialize() would do with a store, as a value, without doing it."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import lru_cache
from itertools import count
from typing import Any, Final, Literal

from duly.core.cron import CronExpression
from duly.core.due import next_due
from duly.core.moments import Instant, Minute, as_datetime, begin, minute_of, zone_name
from duly.core.record import StoredTask
from duly.core.registration import Registration, Registrations, RunsOn, read_registrations, snapshot
from duly.core.resolution import NO_MARKS, Mark, Resolution, lowered_marks, remembered, resolve
from duly.core.steps import finish
from duly.core.task import Interrupted, Running, Task, corrected, interrupt
from duly.errors import CronCalculationError
from duly.stores.port import View

NEXT_STARTS: Final = 5
BUSIEST_MINUTES: Final = 5
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Configuration:
    """A declaration without its callback."""

    expression: CronExpression  #: the cron expression
    retry_delay_ms: int  #: the retry delay in milliseconds


@dataclass(frozen=True, slots=True)
class NewTask:
    """Declared, and not stored."""

    task: str  #: the name
    expression: CronExpression  #: the cron expression
    retry_delay_ms: int  #: the retry delay in milliseconds
    next_starts: Sequence[Instant]  #: the next five starts


@dataclass(frozen=True, slots=True)
class OverriddenTask:
    """Declared otherwise than stored."""

    task: str  #: the name
    stored: Configuration  #: as the store has it
    declared: Configuration  #: as it is declared now
    dropped: Sequence[str]
    """Owed starts that would go with the old declaration."""

    running: bool
    """Whether a run is under way; it goes on, and its end belongs to the old declaration."""

    next_starts: Sequence[Instant]  #: the next five starts


@dataclass(frozen=True, slots=True)
class OrphanedTask:
    """Stored, and no longer declared: it would be removed."""

    task: str  #: the name
    expression: CronExpression  #: the cron expression
    retry_delay_ms: int  #: the retry delay in milliseconds
    last_attempt_at: Instant | None  #: when it last started
    dropped: Sequence[str]  #: what is owed, and would go with it
    running: bool  #: whether a run is under way


@dataclass(frozen=True, slots=True)
class InterruptedTask:
    """Preserved, and its last run was cut short by a crash."""

    task: str  #: the name
    started_at: Instant  #: when the interrupted run started
    interruptions: int  #: how often in a row it was interrupted
    resumes_at: Instant | None  #: when it would start again; None: it waits for its next due minute


@dataclass(frozen=True, slots=True)
class BusyMinute:
    """A minute in which many tasks are due."""

    minute: Instant  #: when it begins
    tasks: int  #: how many tasks are due in it
    names: Sequence[str]  #: their names


@dataclass(frozen=True, slots=True)
class Plan:
    """All that initialize() would do."""

    at: Instant  #: the moment for which the plan was made
    zone: str  #: the zone of the host
    new: Sequence[NewTask]  #: declared, and not stored
    overridden: Sequence[OverriddenTask]  #: declared otherwise than stored
    orphaned: Sequence[OrphanedTask]  #: stored, and no longer declared
    interrupted: Sequence[InterruptedTask]  #: preserved, with a last run that a crash cut short
    preserved: Sequence[str]  #: the names of the tasks that are declared as they are stored
    busiest: Sequence[BusyMinute]
    """The busiest minutes of the coming day."""

    losses: Sequence[str]
    """The tasks that would be orphaned, or would lose something that they are owed."""

    as_busy: int = field(repr=False)
    """How many more minutes of the coming day are as busy as the last of `busiest`."""


def plan_for(
    view: View,
    registrations: Sequence[Sequence[Any]],
    *,
    zone: tzinfo,
    interrupted: Literal["restart", "wait"] = "restart",
) -> Plan:
    """Plan an initialize() with these registrations on this store.

    Parameters:
        view: the store at one moment.
        registrations: what `Scheduler.initialize` takes.
        zone: the zone of the host.
        interrupted: that option of the scheduler.

    Raises:
        RegistrationError: one of the registrations is wrong, as initialize() would say.
    """
    declared = list(finish(read_registrations(snapshot(registrations))).singles())
    at = view.snapshot().at
    restart = interrupted == "restart"
    return plan_of(declared, stored_tasks(view), now=at, zone=zone, restart=restart, marks=view.marks())


def stored_tasks(view: View) -> list[tuple[StoredTask, bool]]:
    """The tasks of a store, each with whether it is interrupted."""
    return [(task.stored, task.interrupted) for task in view.tasks()]


def plan_of(
    declared: Sequence[Registration],
    stored: Iterable[tuple[StoredTask, bool]],
    *,
    now: Instant,
    zone: tzinfo,
    restart: bool,
    marks: Mapping[str, Mark] = NO_MARKS,
) -> Plan:
    """Plan an initialize() with registrations that were read already.

    Parameters:
        declared: the registrations.
        stored: the stored tasks, each with whether it is interrupted: running by its record, and nothing runs it.
        now: the moment of the initialize().
        zone: the zone of the host.
        restart: whether interrupted runs start again at once; otherwise they wait for their next due minute.
        marks: what withdrawn declarations have served: `View.marks()`.
    """
    tasks = {task.name: task for task in _tasks(stored, marks, now, zone, restart=restart)}
    generations = count(1)
    resolution = finish(
        resolve(
            Registrations(declared),
            tasks,
            now=now,
            zone=zone,
            new_generations=lambda: next(generations),
            marks=lowered_marks(marks, now, minute_of(now, zone)),
        )
    )
    busiest, as_busy = _busiest_minutes(declared, now, zone)
    return Plan(
        at=now,
        zone=zone_name(zone),
        new=[NewTask(each.name, each.expression, each.delay, _next_starts_of(each, zone)) for each in resolution.added],
        overridden=[
            OverriddenTask(
                each.new.name,
                _configuration(each.old),
                _configuration(each.new),
                each.dropped,
                isinstance(each.old_state, Running),
                _next_starts_of(each.new, zone),
            )
            for each in resolution.overridden
        ],
        orphaned=[
            OrphanedTask(
                each.task.name,
                each.task.expression,
                each.task.delay,
                each.last_attempt_at,
                each.dropped,
                isinstance(each.task.state, Running),
            )
            for each in resolution.orphaned
        ],
        interrupted=[
            InterruptedTask(each.name, state.last_attempt_at, state.interruptions, state.resume_at)
            for each in resolution.interrupted
            if isinstance(state := each.state, Interrupted)
        ],
        preserved=[each.name for each in resolution.preserved.tasks],
        busiest=busiest,
        losses=_losses(resolution),
        as_busy=as_busy,
    )


def _tasks(
    stored: Iterable[tuple[StoredTask, bool]],
    marks: Mapping[str, Mark],
    now: Instant,
    zone: tzinfo,
    *,
    restart: bool,
) -> Iterator[Task]:
    """Stored tasks as a scheduler that takes over the store has them."""
    minute = minute_of(now, zone)
    for record, interrupted in stored:
        state = record.state
        if interrupted and isinstance(state, Running):
            state = interrupt(state, now, record.delay, restart=restart)
        state = corrected(remembered(state, marks.get(record.name)), now, minute, record.delay)
        yield Task(record.generation, record.name, record.expression, record.delay, state, _nothing, RunsOn.LOOP)


def _nothing() -> None:
    """The callback of a stored task, which is never called."""


def _configuration(task: Task) -> Configuration:
    return Configuration(task.expression, task.delay)


def _losses(resolution: Resolution) -> list[str]:
    orphaned = [each.task.name for each in resolution.orphaned]
    return orphaned + [each.new.name for each in resolution.overridden if each.dropped]


# --- coming starts ---------------------------------------------------------------------------------------------------


def _next_starts_of(task: Task, zone: tzinfo) -> Sequence[Instant]:
    return _next_starts(task.expression, task.state.served_through, zone)


@lru_cache(maxsize=10_000)  # many tasks share few expressions
def _next_starts(expression: CronExpression, since: Minute, zone: tzinfo) -> Sequence[Instant]:
    starts: list[Instant] = []
    due = since
    try:
        while len(starts) < NEXT_STARTS:
            due = next_due(expression, due, zone)
            starts.append(begin(due))
    except CronCalculationError:
        pass  # the calendar ends in 9999
    return starts


def _busiest_minutes(declared: Sequence[Registration], now: Instant, zone: tzinfo) -> tuple[list[BusyMinute], int]:
    """The minutes of the coming day in which most tasks are due, and how many more are as busy as the last of them."""
    names: dict[CronExpression, list[str]] = {}
    for registration in declared:
        names.setdefault(registration.expression, []).append(registration.name)
    first = minute_of(now, zone)
    load: Counter[Minute] = Counter()
    for expression, its in names.items():
        for due in _within_a_day(expression, first, zone):
            load[due] += len(its)
    chosen = heapq.nsmallest(BUSIEST_MINUTES, load.items(), key=lambda item: (-item[1], item[0]))
    if not chosen:
        return [], 0
    least = chosen[-1][1]
    as_busy = Counter(load.values())[least] - sum(tasks == least for _, tasks in chosen)
    busiest = []
    for minute, tasks in chosen:
        local = as_datetime(begin(minute), zone)
        due_then = [name for expression, its in names.items() if expression.matches(local) for name in its]
        busiest.append(BusyMinute(begin(minute), tasks, due_then))
    return busiest, as_busy


def _within_a_day(expression: CronExpression, first: Minute, zone: tzinfo) -> Iterator[Minute]:
    minute = first
    try:
        while (minute := next_due(expression, minute, zone)) <= first + _DAY_SECONDS:
            yield minute
    except CronCalculationError:
        return
