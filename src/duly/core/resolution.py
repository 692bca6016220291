"""Declared against stored: which tasks are new, preserved, overridden, orphaned, and which were interrupted."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from duly.core.moments import Instant, Minute, as_datetime, begin, minute_of
from duly.core.occurrences import latest_until
from duly.core.registration import Registration
from duly.core.task import AwaitingRetry, AwaitingRun, Interrupted, Task, TaskState, Withdrawn, newly_declared


@dataclass(frozen=True, slots=True)
class Override:
    """A declared configuration that takes the place of a stored one."""

    old: Task
    old_state: TaskState  # as it was: the old task is withdrawn when the new one is in force
    new: Task
    dropped: tuple[str, ...]

    @property
    def change_type(self) -> str:
        """What differs, as words for an event."""
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


@dataclass(slots=True)
class Resolution:
    """All that one initialize() changes; applied in one transaction or not at all."""

    now: Instant
    added: list[Task] = field(default_factory=list)
    preserved: list[tuple[Task, Registration]] = field(default_factory=list)
    overridden: list[Override] = field(default_factory=list)
    orphaned: list[Orphan] = field(default_factory=list)
    interrupted: list[Task] = field(default_factory=list)

    @property
    def changes_tasks(self) -> bool:
        """Whether any task is new, overridden or orphaned."""
        return bool(self.added or self.overridden or self.orphaned)

    def first_changed(self) -> tuple[str, str] | None:
        """Name and cron text of the first task that would have changed (SPEC 1.5)."""
        if arrived := self.added[:1] + [each.new for each in self.overridden[:1]]:
            first = min(arrived, key=lambda task: task.generation)  # the leftmost that is declared got the lowest
            return first.name, first.expression.text
        for orphan in self.orphaned[:1]:
            return orphan.task.name, orphan.task.expression.text
        for task, _ in self.preserved[:1]:
            return task.name, task.expression.text
        return None


def resolve(
    declared: Iterable[Registration],
    stored: Mapping[str, Task],
    *,
    now: Instant,
    zone: tzinfo,
    new_generations: Callable[[], int],
) -> Iterator[Resolution]:
    """Compare by name, cron text and delay (SPEC 5.1); yields the growing resolution, complete at the end.

    An iterator, so that a caller with a million tasks can let others work in between. New tasks of one expression get
    neighbouring generations: they fall due together, and their rows then lie together on disk.
    """
    result = Resolution(now)
    minute = minute_of(now, zone)
    fresh = newly_declared(minute)
    by_expression: dict[str, list[Task]] = {}
    names: set[str] = set()
    for registration in declared:
        name = registration.name
        names.add(name)
        old = stored.get(name)
        if old is None:
            task = _task(registration, fresh)
            by_expression.setdefault(registration.expression.text, []).append(task)
        elif old.expression.text == registration.expression.text and old.delay == registration.delay:
            result.preserved.append((old, registration))
            if isinstance(old.state, Interrupted):
                result.interrupted.append(old)
        else:
            task = _task(registration, newly_declared(minute, old.state.served_through))
            by_expression.setdefault(registration.expression.text, []).append(task)
            result.overridden.append(Override(old, old.state, task, what_is_dropped(old, minute, zone)))
        yield result
    for tasks in by_expression.values():
        for task in tasks:
            task.generation = new_generations()
            if task.name not in stored:
                result.added.append(task)
            yield result
    for name, old in stored.items():
        if name not in names:
            result.orphaned.append(
                Orphan(old, getattr(old.state, "last_attempt_at", None), what_is_dropped(old, minute, zone))
            )
        yield result
    yield result


def difference(result: Resolution) -> dict[str, Any]:
    """The details of a TaskListMismatchError: what a refused override would have changed (SPEC 5.6)."""
    kept = [task.name for task, _ in result.preserved]
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
    """What is compared, under wire names."""
    return {"cronExpression": task.expression.text, "retryDelayMs": task.delay}


def what_is_dropped(task: Task, minute: Minute, zone: tzinfo) -> tuple[str, ...]:
    """What a task owed, in words, when its declaration is withdrawn or replaced (SPEC 5.1)."""
    state = task.state
    if isinstance(state, Withdrawn):
        return ()
    dropped = []
    if isinstance(state, Interrupted):
        dropped.append(f"interrupted run of {as_datetime(state.last_attempt_at, zone).isoformat()}")
    if isinstance(state, AwaitingRetry | Interrupted) and state.pending_retry_until is not None:
        dropped.append(f"pending retry at {as_datetime(state.pending_retry_until, zone).isoformat()}")
    latest = latest_until(task.expression, minute, zone)
    if latest is not None and latest > state.served_through:
        dropped.append(f"owed catch-up of {as_datetime(begin(latest), zone).isoformat()}")
    return tuple(dropped)


def _task(registration: Registration, state: AwaitingRun) -> Task:
    return Task(
        0,
        registration.name,
        registration.expression,
        registration.delay,
        state,
        registration.callback,
        registration.kind,
    )
