"""What the monitor remembers about one task, and everything it remembers as a snapshot.

A register of `properties` is a set that Due, RetryDue and Resume raise and starts clear. The monitor keeps the instants
from which these pulses follow instead: a task is Pending exactly if its next due minute after its mark has come, it is
RetryPending exactly if its retry instant has. So a pulse costs nothing when it happens, and a year of downtime is one
comparison. The rules of marks and retries are those of SPEC 2.5, 3.1, 3.6, 3.7 and 5.1, written a second time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from duly.core.moments import LAST_INSTANT, MICROSECONDS, Instant
from duly.formal.calendar import MINUTE, NEVER, Schedule

HOUR: Final = 3600 * MICROSECONDS
MARK_AHEAD_MAX: Final = 3 * HOUR
SHORTEST_DELAY_MS: Final = 1_000
REST_MS: Final = 60_000
"""What a task that was interrupted twice in a row waits at least (SPEC 3.7)."""


class TaskRegisters:
    """One task: the declaration in force, what it has served and owes, the run that is going on or was cut short."""

    __slots__ = (
        "declared", "delay_ms", "due_since_success", "ended", "epoch", "floor", "fresh", "generation", "mark", "name",
        "next_due", "retry_at", "run", "run_generation", "run_on_thread", "schedule", "started", "streak", "thread",
        "unstarted", "watched",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.declared = False
        self.generation = -1
        self.schedule: Schedule | None = None
        self.delay_ms = 0
        self.thread = False
        self.mark = Instant(0)  # no minute up to this one is still owed
        self.next_due: Instant = NEVER  # the first occurrence after the mark
        self.retry_at: Instant = NEVER  # kept while a run is going on: its outcome decides
        self.run: int | None = None  # started, and no end so far
        self.run_generation = -1
        self.run_on_thread = False
        self.epoch = -1  # how many crashes there had been when it last started
        self.started = Instant(0)
        self.floor = Instant(0)  # no start may be stamped earlier, unless the clock goes back
        self.ended = Instant(0)
        self.streak = 0  # interruptions in a row, before the present run; 2 is two or more
        self.due_since_success = False  # a due minute, or a registration, since the last start that succeeded
        self.unstarted = True  # this declaration has not started yet: its mark is the minute before it was known
        self.fresh = False  # the same, when the present run started
        self.watched: Instant = NEVER  # the deadline in the queue of `promptness`

    def declare(self, generation: int, schedule: Schedule, delay_ms: int, *, thread: bool, mark: Instant) -> None:
        """A declaration is in force; a run of an earlier one goes on (SPEC 5.1, 5.3)."""
        self.declared = True
        self.generation = generation
        self.schedule = schedule
        self.delay_ms = delay_ms
        self.thread = thread
        self.mark = mark
        self.next_due = schedule.after(mark)
        self.retry_at = NEVER
        self.streak = 0
        self.due_since_success = True
        self.unstarted = True

    def withdraw(self) -> None:
        """The declaration is gone, and all that it owed."""
        self.declared = False
        self.generation = -1
        self.next_due = self.retry_at = NEVER
        self.streak = 0
        self.due_since_success = False

    def raise_mark(self, minute: Instant) -> None:
        """A start serves every due minute up to its own, which is later than the mark."""
        self.mark = minute
        if self.schedule is not None:
            self.next_due = self.schedule.after(minute)

    def fail(self, at: Instant) -> None:
        """The outcome is a failure: the retry is armed from here."""
        self.retry_at = Instant(min(at + 1_000 * max(self.delay_ms, SHORTEST_DELAY_MS), LAST_INSTANT))

    def was_interrupted(self, epoch: int) -> bool:
        """A crash cut the last run of the declaration in force short, and nothing has started since."""
        return self.run is not None and self.epoch != epoch and self.run_generation == self.generation

    def resume_at(self, boot_at: Instant, stepped_to: Instant) -> Instant:
        """When an interrupted run is owed again, for a scheduler that came at `boot_at` (SPEC 3.7)."""
        # A first interruption is owed at once, whatever the clock shows; only after more in a row is there a wait.
        rest = 1_000 * max(self.delay_ms, REST_MS) if self.streak else 0
        # A start that lies in the future was stamped by a clock that has been corrected since.
        return Instant(min(min(self.started, boot_at, stepped_to) + rest, LAST_INSTANT))

    def resume(self, *, merged: bool) -> None:
        """A start after an interruption; `merged`: it is also the retry that was pending before."""
        self.streak = min(2, self.streak + 1)
        if merged:
            self.retry_at = NEVER

    def correct(self, now: Instant, minute: Instant) -> None:
        """The clock went back: a mark or a retry too far ahead is lowered (SPEC 2.5)."""
        before = MINUTE if self.unstarted else 0  # what is lowered then is when it became known, and that minute counts
        if self.mark + before > minute + MARK_AHEAD_MAX:
            self.mark = Instant(minute - before)
            if self.schedule is not None:
                self.next_due = self.schedule.after(self.mark)
        latest = Instant(now + 1_000 * max(self.delay_ms, SHORTEST_DELAY_MS))
        if latest < self.retry_at < NEVER:
            self.retry_at = latest
        self.floor = Instant(min(self.floor, now))
        self.ended = Instant(min(self.ended, now))


class TaskRow(NamedTuple):
    """A task's registers as they stand in a snapshot; null is NEVER, or none."""

    name: str
    declared: bool
    generation: int
    cron: str | None
    delay_ms: int
    thread: bool
    mark: int
    retry_at: int | None
    run: int | None
    run_generation: int
    run_on_thread: bool
    epoch: int
    started: int
    floor: int
    ended: int
    streak: int
    due_since_success: bool
    fresh: bool
    unstarted: bool


@dataclass(frozen=True, slots=True)
class RegisterSnapshot:
    """All registers at one position: with it, a segment can be checked alone and as exactly as the whole trace."""

    scheduler: dict[str, Any] = field(default_factory=dict)
    tasks: tuple[TaskRow, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The form in which it stands in a header; tasks in the order of their names, so equal ones are equal bytes."""
        rows = [list(row) for row in sorted(self.tasks)]
        return {"scheduler": dict(sorted(self.scheduler.items())), "tasks": rows}

    @classmethod
    def from_json(cls, value: Any) -> "RegisterSnapshot":
        """Read that form. Raises ValueError."""
        try:
            scheduler = value["scheduler"]
            rows = tuple(TaskRow(*row) for row in value["tasks"])
        except (KeyError, TypeError) as fault:
            raise ValueError(f"the register snapshot cannot be read: {fault!r}") from fault
        if not _is_scheduler(scheduler) or not all(_well_typed(row) for row in rows):
            raise ValueError("the register snapshot has fields of another type")
        if len({row.name for row in rows}) != len(rows):
            raise ValueError("the register snapshot names a task twice")
        return cls(scheduler, rows)


_NUMBERS: Final = (
    "seq", "clock", "latest", "epoch", "active_since", "compute_since", "boot_at", "free_total_since",
    "free_threads_since",
)  # fmt: skip
_SCHEDULER_TYPES: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(_NUMBERS, (int,)),
    **dict.fromkeys(("active", "quiet", "crashed", "booted", "restart"), (bool,)),
    **dict.fromkeys(("stepped_to", "limit", "pool"), (int, type(None))),
    **dict.fromkeys(("boot", "zone"), (str,)),
}
_LIST_TYPES: Final = {"stops": (int, int, int), "inits": (int, int, int), "overlapped": (str, int, int)}


def _is_scheduler(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {*_SCHEDULER_TYPES, *_LIST_TYPES}
        and all(type(value[name]) in types for name, types in _SCHEDULER_TYPES.items())
        and all(
            type(value[name]) is list
            and all(type(row) is list and tuple(map(type, row)) == types for row in value[name])
            for name, types in _LIST_TYPES.items()
        )
    )


_ROW_TYPES: Final[tuple[tuple[type, ...], ...]] = (
    (str,), (bool,), (int,), (str, type(None)), (int,), (bool,), (int,), (int, type(None)), (int, type(None)),
    (int,), (bool,), (int,), (int,), (int,), (int,), (int,), (bool,), (bool,), (bool,),
)  # fmt: skip


def _well_typed(row: TaskRow) -> bool:
    return all(type(value) in types for value, types in zip(row, _ROW_TYPES, strict=True))


def row_of(task: TaskRegisters) -> TaskRow:
    """A task's registers, as they stand in a snapshot."""
    return TaskRow(
        task.name,
        task.declared,
        task.generation,
        None if task.schedule is None else task.schedule.text,
        task.delay_ms,
        task.thread,
        task.mark,
        None if task.retry_at == NEVER else task.retry_at,
        task.run,
        task.run_generation,
        task.run_on_thread,
        task.epoch,
        task.started,
        task.floor,
        task.ended,
        task.streak,
        task.due_since_success,
        task.fresh,
        task.unstarted,
    )


def tasks_of(rows: Iterable[TaskRow], schedule: Callable[[str], Schedule]) -> dict[str, TaskRegisters]:
    """Tasks with the registers of a snapshot."""
    tasks: dict[str, TaskRegisters] = {}
    for row in rows:
        task = tasks[row.name] = TaskRegisters(row.name)
        if row.cron is not None:
            task.schedule = schedule(row.cron)
        task.declared = row.declared
        task.generation = row.generation
        task.delay_ms = row.delay_ms
        task.thread = row.thread
        task.mark = Instant(row.mark)
        task.next_due = task.schedule.after(task.mark) if row.declared and task.schedule is not None else NEVER
        task.retry_at = NEVER if row.retry_at is None else Instant(row.retry_at)
        task.run = row.run
        task.run_generation = row.run_generation
        task.run_on_thread = row.run_on_thread
        task.epoch = row.epoch
        task.started = Instant(row.started)
        task.floor = Instant(row.floor)
        task.ended = Instant(row.ended)
        task.streak = row.streak
        task.due_since_success = row.due_since_success
        task.fresh = row.fresh
        task.unstarted = row.unstarted
    return tasks
