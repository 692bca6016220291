"""Declared against stored: which tasks are new, preserved, overridden, orphaned, and which were interrupted."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, overload

from duly.core.moments import Instant, Minute, as_datetime, begin, minute_of
from duly.core.occurrences import latest_until
from duly.core.registration import STEP_TASKS, Registration, Registrations
from duly.core.task import AwaitingRetry, Interrupted, Task, TaskState, Withdrawn, newly_declared


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


class Preserved(Sequence[tuple[Task, Registration]]):
    """Tasks that are declared as they are stored, each with its registration.

    Columns that look like a list of pairs: a million pairs would be the collector's business for as long as they live.
    """

    def __init__(self, declared: Iterable[Registration] = ()) -> None:
        self.declared = declared if isinstance(declared, Registrations) else Registrations(declared)
        self.tasks: list[Task] = []
        self.places: array[int] = array("Q")
        """Where among the declared ones each is."""

    def __len__(self) -> int:
        return len(self.tasks)

    @overload
    def __getitem__(self, index: int) -> tuple[Task, Registration]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[Task, Registration]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return list(zip(self.tasks[index], map(self.declared.__getitem__, self.places[index]), strict=True))
        return self.tasks[index], self.declared[self.places[index]]

    def __iter__(self) -> Iterator[tuple[Task, Registration]]:
        return zip(self.tasks, map(self.declared.__getitem__, self.places), strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list: it grows


@dataclass(slots=True)
class Resolution:
    """All that one initialize() changes; applied in one transaction or not at all."""

    now: Instant
    preserved: Preserved = field(default_factory=Preserved)
    added: list[Task] = field(default_factory=list)
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

    An iterator that pauses now and then, so that a caller with a million tasks can let others work in between. New
    tasks of one expression get neighbouring generations: they fall due together, and their rows then lie together on
    disk.
    """
    result = Resolution(now, Preserved(declared))
    declared = result.preserved.declared
    minute = minute_of(now, zone)
    fresh = newly_declared(minute)
    latest: dict[str, Minute | None] = {}
    by_expression: dict[str, list[Task]] = {}
    find, preserved = stored.get, result.preserved
    preserve, place = preserved.tasks.append, preserved.places.append
    columns = zip(
        declared.names, declared.expressions, declared.delays, declared.callbacks, declared.kinds, strict=True
    )
    for index, (name, expression, delay, callback, kind) in enumerate(columns):
        old = find(name)
        if old is None:
            task = Task(0, name, expression, delay, fresh, callback, kind)
            by_expression.setdefault(expression.text, []).append(task)
        elif old.expression.text == expression.text and old.delay == delay:
            preserve(old)
            place(index)
            if type(old.state) is Interrupted:
                result.interrupted.append(old)
        else:
            task = Task(0, name, expression, delay, newly_declared(minute, old.state.served_through), callback, kind)
            by_expression.setdefault(expression.text, []).append(task)
            result.overridden.append(Override(old, old.state, task, what_is_dropped(old, minute, zone, latest)))
        if index % STEP_TASKS == 0:
            yield result
    for tasks in by_expression.values():
        for first in range(0, len(tasks), STEP_TASKS):
            some = tasks[first : first + STEP_TASKS]
            for task in some:
                task.generation = new_generations()
            result.added += [task for task in some if task.state is fresh]  # the others override
            yield result
    if len(result.preserved) + len(result.overridden) < len(stored):
        yield from _orphans(result, stored, lambda task: what_is_dropped(task, minute, zone, latest))
    yield result


def _orphans(
    result: Resolution, stored: Mapping[str, Task], dropped: Callable[[Task], tuple[str, ...]]
) -> Iterator[Resolution]:
    names = {task.name for task in result.preserved.tasks}
    yield result
    names.update(each.old.name for each in result.overridden)
    for index, (name, old) in enumerate(stored.items()):
        if name not in names:
            result.orphaned.append(Orphan(old, getattr(old.state, "last_attempt_at", None), dropped(old)))
        if index % STEP_TASKS == 0:
            yield result


def taking_over(steps: Iterable[Resolution]) -> Iterator[Resolution]:
    """Give loaded tasks what their registrations say, while both are at hand: a million take too long for one go."""
    done = 0
    for resolution in steps:
        preserved = resolution.preserved
        declared = preserved.declared
        names, callbacks, kinds = declared.names, declared.callbacks, declared.kinds
        for task, place in zip(preserved.tasks[done:], preserved.places[done:], strict=True):
            # The caller's own name, too: the one that was loaded is a second copy of it.
            task.name, task.callback, task.kind = names[place], callbacks[place], kinds[place]
        done = len(preserved)
        yield resolution


def in_force(resolution: Resolution, stored: Mapping[str, Task], scheduler_key: int) -> Iterator[Task]:
    """All tasks of a first initialize(), those that were stored in the order of the store if that is possible."""
    if len(resolution.preserved) == len(stored):
        yield from stored.values()
    else:
        yield from resolution.preserved.tasks
    for arrived in (resolution.added, [each.new for each in resolution.overridden]):
        for task in arrived:
            task.written_by = scheduler_key
            yield task


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


def what_is_dropped(
    task: Task, minute: Minute, zone: tzinfo, latest: dict[str, Minute | None] | None = None
) -> tuple[str, ...]:
    """What a task owed, in words, when its declaration is withdrawn or replaced (SPEC 5.1).

    `latest` keeps the latest due minutes, by expression, for who asks about many tasks.
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
        latest[text] = latest_until(task.expression, minute, zone)
    due = latest[text]
    if due is not None and due > state.served_through:
        dropped.append(f"owed catch-up of {as_datetime(begin(due), zone).isoformat()}")
    return tuple(dropped)
