"""Declared against stored: which tasks are new, preserved, overridden, orphaned, and which were interrupted."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from duly.core.due import latest_due
from duly.core.moments import MICROSECONDS, Instant, Minute, as_datetime, begin, minute_of
from duly.core.registration import Registration, Registrations
from duly.core.steps import STEP_TASKS, Steps
from duly.core.stored_order import StoredOrder
from duly.core.task import (
    SERVED_AHEAD_SECONDS_MAX,
    AwaitingRetry,
    AwaitingRun,
    Interrupted,
    Task,
    TaskState,
    Withdrawn,
    newly_declared,
    served_by_starts,
)

MARK_KEPT: Final = 86_400 * MICROSECONDS
"""How long the mark of a withdrawn declaration is kept, from the minute that it served (SPEC 5.1)."""


class Mark(NamedTuple):
    """The latest minute that earlier declarations of a name have served, and when the last of them was withdrawn."""

    served_through: Minute
    retired_at: Instant


NO_MARKS: Final[Mapping[str, Mark]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Override:
    """A stored task that is declared with another expression or delay."""

    old: Task
    old_state: TaskState  # before the old task was withdrawn
    new: Task
    dropped: tuple[str, ...]

    @property
    def change_type(self) -> str:
        """The wire names of what differs, for the event."""
        changes = []
        if self.old.expression.text != self.new.expression.text:
            changes.append("cronExpression")
        if self.old.delay != self.new.delay:
            changes.append("retryDelayMs")
        return ",".join(changes)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A stored task that is no longer declared."""

    task: Task
    last_attempt_at: Instant | None
    dropped: tuple[str, ...]


class Preserved:
    """Tasks that are declared as they are stored, each with the index of its registration.

    In columns, because the garbage collector would visit a million pairs for as long as they live.
    """

    def __init__(self, declared: Registrations) -> None:
        self.declared = declared
        self.tasks: list[Task] = []
        self.indices: array[int] = array("Q")
        """For each task, the index of its registration in `declared`."""
        self.interrupted: list[tuple[int, Task]] = []
        """The interrupted tasks among them, by these indices."""

    @property
    def count(self) -> int:
        """How many tasks are preserved."""
        return len(self.tasks)

    def extend(self, tasks: Sequence[Task], indices: "array[int]", state: TaskState) -> None:
        """Add tasks that are all in this state."""
        self.tasks += tasks
        self.indices += indices
        if type(state) is Interrupted:
            self.interrupted += zip(indices, tasks, strict=True)

    def pairs(self) -> Iterator[tuple[Task, Registration]]:
        """Each task with its registration."""
        return zip(self.tasks, map(self.declared.single, self.indices), strict=True)


@dataclass(slots=True)
class Resolution:
    """All that one initialize() changes; applied in one transaction or not at all."""

    now: Instant
    preserved: Preserved = field(default_factory=lambda: Preserved(Registrations()))
    added: list[Task] = field(default_factory=list)
    overridden: list[Override] = field(default_factory=list)
    orphaned: list[Orphan] = field(default_factory=list)
    interrupted: list[Task] = field(default_factory=list)
    marks: dict[str, Mark] = field(default_factory=dict)
    """The marks of overridden and orphaned tasks, by name; the store adds them to those that it keeps."""

    @property
    def changes_tasks(self) -> bool:
        """Whether any task is new, overridden or orphaned."""
        return bool(self.added or self.overridden or self.orphaned)

    def first_changed(self) -> tuple[str, str] | None:
        """Name and cron text of the first task that would have changed (SPEC 1.5)."""
        if arrived := self.added[:1] + [each.new for each in self.overridden[:1]]:
            first = min(arrived, key=lambda task: task.generation)  # the leftmost registration has the lowest
            return first.name, first.expression.text
        for orphan in self.orphaned[:1]:
            return orphan.task.name, orphan.task.expression.text
        for task in self.preserved.tasks[:1]:
            return task.name, task.expression.text
        return None


def resolve(
    declared: Registrations,
    stored: Mapping[str, Task],
    *,
    now: Instant,
    zone: tzinfo,
    new_generations: Callable[[], int],
    take_over: bool = False,
    marks: Mapping[str, Mark] = NO_MARKS,
    order: StoredOrder | None = None,
    preserved: Preserved | None = None,
) -> Steps[Resolution]:
    """Compare declared and stored tasks by name, cron text and delay (SPEC 5.1).

    New tasks of one expression get neighbouring generations: they fall due together, and their rows then lie together
    on disk. With `take_over`, preserved tasks get the callbacks of their registrations at once: tasks that were just
    loaded have none yet, and going through a million of them a second time takes too long. `marks` are those of earlier
    declarations: what one of them has served is not served again. `preserved` are tasks whose registrations `order` has
    found, `stored` are all others.
    """
    result = Resolution(now, Preserved(declared) if preserved is None else preserved)
    minute = minute_of(now, zone)
    arrivals = _Arrivals(now, minute, marks)
    if result.preserved.count < declared.count or stored:
        latest: dict[str, Minute | None] = {}
        yield from _compare(
            result,
            order,
            stored,
            arrivals,
            lambda task: what_is_dropped(task, minute, zone, latest),
            new_generations,
            take_over=take_over,
        )
    result.interrupted = [task for _, task in sorted(result.preserved.interrupted, key=itemgetter(0))]
    result.marks = yield from _marks(result)
    return result


def _compare(
    result: Resolution,
    order: StoredOrder | None,
    stored: Mapping[str, Task],
    arrivals: "_Arrivals",
    dropped: Callable[[Task], tuple[str, ...]],
    new_generations: Callable[[], int],
    *,
    take_over: bool,
) -> Steps[None]:
    """Look up each registration that was not found among the stored tasks."""
    preserved = result.preserved
    declared, known_before = preserved.declared, preserved.count
    by_expression: dict[str, list[Task]] = {}
    find, find_mark = stored.get, arrivals.marks.get
    preserve, preserve_index = preserved.tasks.append, preserved.indices.append
    found = bytes(declared.count) if order is None else (yield from order.flags())
    columns = zip(
        found, declared.names, declared.expressions, declared.delays, declared.callbacks, declared.runs_on, strict=True
    )
    for index, (is_found, name, expression, delay, callback, runs_on) in enumerate(columns):
        if index % STEP_TASKS == 0:
            yield
        if is_found:
            continue
        old = find(name)
        if old is None:
            mark = find_mark(name)
            state = arrivals.fresh if mark is None else arrivals.state(mark.served_through)
            task = Task(0, name, expression, delay, state, callback, runs_on)
            by_expression.setdefault(expression.text, []).append(task)
        elif old.expression.text == expression.text and old.delay == delay:
            preserve(old)
            preserve_index(index)
            if take_over:
                # The name, too: the loaded one is a second copy of the caller's.
                old.name, old.callback, old.runs_on = name, callback, runs_on
            if type(old.state) is Interrupted:
                preserved.interrupted.append((index, old))
        else:
            state = arrivals.state(served_by_starts(old.state))
            task = Task(0, name, expression, delay, state, callback, runs_on)
            by_expression.setdefault(expression.text, []).append(task)
            result.overridden.append(Override(old, old.state, task, dropped(old)))
    for tasks in by_expression.values():
        for first in range(0, len(tasks), STEP_TASKS):
            some = tasks[first : first + STEP_TASKS]
            for task in some:
                task.generation = new_generations()
            result.added += [task for task in some if task.name not in stored]  # the others override
            yield
    if preserved.count - known_before + len(result.overridden) < len(stored):
        result.orphaned = yield from _orphans(declared, stored, dropped)


class _Arrivals:
    """The states of tasks that are new or override; those that follow the same mark share one."""

    def __init__(self, now: Instant, minute: Minute, marks: Mapping[str, Mark]) -> None:
        self._now = now
        self._minute = minute
        self.marks = marks
        self._states: dict[Minute | None, AwaitingRun] = {}
        self.fresh = self.state(None)

    def state(self, served: Minute | None) -> AwaitingRun:
        """The state of a task of whose name earlier declarations have served this minute, or None."""
        if served is not None and not counts(served, self._now):
            served = None
        if served not in self._states:
            self._states[served] = newly_declared(self._minute, served)
        return self._states[served]


def _marks(result: Resolution) -> Steps[dict[str, Mark]]:
    """The marks of withdrawn tasks; a mark that no start has made is not one (SPEC 5.1)."""
    marks: dict[str, Mark] = {}
    shared: dict[Minute, Mark] = {}
    gone = chain(
        ((each.old.name, each.old_state) for each in result.overridden),
        ((each.task.name, each.task.state) for each in result.orphaned),
    )
    for index, (name, state) in enumerate(gone):
        served = served_by_starts(state)
        if served is not None and counts(served, result.now):
            marks[name] = shared.setdefault(served, Mark(served, result.now))
        if index % STEP_TASKS == 0:
            yield
    return marks


def counts(served: Minute, now: Instant) -> bool:
    """Whether a mark is still kept: an older one silences nothing, since no declaration owes minutes before its own."""
    return begin(served) >= now - MARK_KEPT


def remembered(state: TaskState, mark: Mark | None) -> TaskState:
    """A stored state with the mark of its name, which matters until the declaration has started."""
    if mark is None or not isinstance(state, AwaitingRun) or state.last_attempt_at is not None:
        return state
    return replace(state, served_before=mark.served_through)


def recent_marks(marks: Mapping[str, Mark], now: Instant) -> dict[str, Mark]:
    """The marks of the last day (SPEC 5.1)."""
    return {name: mark for name, mark in marks.items() if counts(mark.served_through, now)}


def lowered_marks(marks: Mapping[str, Mark], now: Instant, minute: Minute) -> Mapping[str, Mark]:
    """Marks as they must be after the clock was set back (SPEC 2.5); the same object if none is too far ahead."""
    too_far = minute + SERVED_AHEAD_SECONDS_MAX
    far = {name: Mark(minute, now) for name, mark in marks.items() if mark.served_through > too_far}
    return {**marks, **far} if far else marks


def _orphans(
    declared: Registrations, stored: Mapping[str, Task], dropped: Callable[[Task], tuple[str, ...]]
) -> Steps[list[Orphan]]:
    orphans: list[Orphan] = []
    for index, (name, old) in enumerate(stored.items()):
        if name not in declared.known:
            orphans.append(Orphan(old, getattr(old.state, "last_attempt_at", None), dropped(old)))
        if index % STEP_TASKS == 0:
            yield
    return orphans


def in_force(resolution: Resolution, stored: Iterable[Task], scheduler_key: int) -> Iterator[Task]:
    """All tasks in force after a first initialize(): of all that were stored, those that are kept, in their order."""
    gone = {each.task for each in resolution.orphaned}
    gone.update(each.old for each in resolution.overridden)
    yield from (task for task in stored if task not in gone) if gone else stored
    for arrived in (resolution.added, [each.new for each in resolution.overridden]):
        for task in arrived:
            task.written_by = scheduler_key
            yield task


def difference(result: Resolution) -> dict[str, Any]:
    """The details of a TaskListMismatchError: what a refused override would have changed (SPEC 5.6)."""
    kept = [task.name for task in result.preserved.tasks]
    changed = [each.new.name for each in result.overridden]
    added = [task.name for task in result.added]
    removed = [each.task.name for each in result.orphaned]
    return {
        "expected": sorted(kept + changed + removed),
        "actual": sorted(kept + changed + added),
        "added": sorted(added),
        "removed": sorted(removed),
        "changed": {
            each.new.name: {"stored": configuration(each.old), "declared": configuration(each.new)}
            for each in result.overridden
        },
    }


def configuration(task: Task) -> dict[str, Any]:
    """The configuration of a task under wire names: what is compared with a registration."""
    return {"cronExpression": task.expression.text, "retryDelayMs": task.delay}


def what_is_dropped(
    task: Task, minute: Minute, zone: tzinfo, latest: dict[str, Minute | None] | None = None
) -> tuple[str, ...]:
    """The starts that a task is owed, and loses when its declaration is withdrawn, in words (SPEC 5.1).

    `latest` keeps the latest due minutes by expression, for a caller that asks about many tasks.
    """
    state = task.state
    if isinstance(state, Withdrawn):
        return ()
    dropped = []
    if isinstance(state, Interrupted):
        dropped.append(f"interrupted run of {as_datetime(state.last_attempt_at, zone).isoformat()}")
    if isinstance(state, AwaitingRetry | Interrupted) and state.pending_retry_until is not None:
        dropped.append(f"pending retry at {as_datetime(state.pending_retry_until, zone).isoformat()}")
    text = task.expression.text
    if latest is None:
        latest = {}
    if text not in latest:
        latest[text] = latest_due(task.expression, minute, zone)
    due = latest[text]
    if due is not None and due > state.served_through:
        dropped.append(f"owed catch-up of {as_datetime(begin(due), zone).isoformat()}")
    return tuple(dropped)
