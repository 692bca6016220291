"""What a monitor remembers: the registers of the scheduler and of each task, and all of them as a snapshot.

A register of `properties` is a set that Due, RetryDue and Resume raise and starts clear. A monitor keeps the instants
from which these pulses follow instead: a task is Pending exactly if its next due minute after `served_through` has
come, it is RetryPending exactly if its retry instant has. So a pulse costs nothing when it happens, and a year of
downtime is one comparison. The rules are those of SPEC 2.5, 3.1, 3.6, 3.7 and 5.1, written a second time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from duly.core.moments import LAST_INSTANT, MICROSECONDS, Instant
from duly.formal.calendar import MINUTE, NEVER, Schedule, Zone, zone_of
from duly.formal.trace import TEXT_CHARACTERS_MAX, VERSION, digest_of_one

HOUR: Final = 3600 * MICROSECONDS
SERVED_AHEAD_MAX: Final = 3 * HOUR
"""How far `served_through` may lie ahead of the clock before that means that the clock was corrected (SPEC 2.5)."""
SERVED_BEFORE_KEPT: Final = 24 * HOUR
SHORTEST_DELAY_MS: Final = 1_000
REST_MS: Final = 60_000
"""What a task that was interrupted twice in a row waits at least (SPEC 3.7)."""


class TaskRegisters:
    """One task: the declaration in force, what it has served and owes, the run that goes on or was cut short."""

    __slots__ = (
        "declared", "delay_ms", "due_since_success", "ended", "epoch", "floor", "fresh", "generation", "name",
        "next_due", "retry_at", "run", "run_generation", "run_on_thread", "schedule", "served_before", "served_through",
        "started", "streak", "thread", "unstarted", "watched",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.declared = False
        self.generation = -1
        self.schedule: Schedule | None = None
        self.delay_ms = 0
        self.thread = False
        self.served_through = Instant(0)  # the beginning of a minute: none up to this one is still owed
        self.next_due: Instant = NEVER  # the first occurrence after `served_through`
        self.retry_at: Instant = NEVER  # kept while a run goes on: its outcome decides
        self.run: int | None = None  # started, and no end so far
        self.run_generation = -1
        self.run_on_thread = False
        self.epoch = -1  # how many crashes there had been when it last started
        self.started = Instant(0)
        self.floor = Instant(0)  # no start may be stamped earlier, unless the clock goes back
        self.ended = Instant(0)
        self.streak = 0  # interruptions in a row, before the present run; 2 is two or more
        self.due_since_success = False  # a due minute, or a registration, since the last start that succeeded
        self.fresh = False  # `due_since_success` as it was when the present run started
        self.unstarted = True  # this declaration has not started: it has served the minute before it was known
        self.served_before: Instant | None = None  # what starts of earlier declarations of the name have served
        self.watched: Instant = NEVER  # the deadline in the queue of `promptness`

    def declare(self, generation: int, schedule: Schedule, delay_ms: int, *, thread: bool, known: Instant) -> None:
        """A declaration is in force, known since a minute; a run of an earlier one goes on (SPEC 5.1, 5.3).

        What a start of an earlier declaration has served is not owed again.
        """
        self._remember()
        before = Instant(known - MINUTE)
        self.declared = True
        self.generation = generation
        self.schedule = schedule
        self.delay_ms = delay_ms
        self.thread = thread
        self.served_through = before if self.served_before is None else max(before, self.served_before)
        self.next_due = schedule.after(self.served_through)
        self.retry_at = NEVER
        self.streak = 0
        self.due_since_success = True

    def _remember(self) -> None:
        """The declaration in force, if there is one, becomes an earlier one."""
        if not self.unstarted:
            self.served_before = self.served_through
        self.unstarted = True

    def withdraw(self) -> None:
        """The declaration is gone, and all that it owed; what it has served stays served."""
        self._remember()
        self.declared = False
        self.generation = -1
        self.next_due = self.retry_at = NEVER
        self.streak = 0
        self.due_since_success = False

    def serve_through(self, minute: Instant) -> None:
        """A start serves every due minute up to its own, which is later than all that were served before."""
        self.served_through = minute
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
        """The clock went back: what was served, or a retry, too far ahead is lowered (SPEC 2.5)."""
        too_far = minute + SERVED_AHEAD_MAX
        before = self.served_before if self.unstarted else None
        if before is not None and before > too_far:
            self.served_before = self.served_through = minute
        elif self.unstarted and self.served_through + MINUTE > too_far:  # it became known too far ahead
            known = Instant(minute - MINUTE)
            self.served_through = known if before is None else max(known, before)
        elif self.served_through > too_far:
            self.served_through = minute
        if self.declared and self.schedule is not None:
            self.next_due = self.schedule.after(self.served_through)
        latest = Instant(now + 1_000 * max(self.delay_ms, SHORTEST_DELAY_MS))
        if latest < self.retry_at < NEVER:
            self.retry_at = latest
        self.floor = Instant(min(self.floor, now))
        self.ended = Instant(min(self.ended, now))


class Registers:
    """All registers at one position of a trace. `machine` and `fast_path` write them, everyone else only reads."""

    def __init__(self) -> None:
        self.seq = 0
        self.clock = Instant(0)  # the latest instant since the clock was last set back
        self.latest = Instant(0)  # the latest instant ever: nothing has been served later
        self.epoch = 0  # crashes so far
        self.booted = False
        self.boot = ""
        self.boot_at = Instant(0)
        self.boot_seq = 0  # where: a call that was made before it does not return after it
        self.stepped_to: Instant = NEVER  # the lowest the clock has been set to since the boot
        self.active = False
        self.quiet = False
        self.crashed = False  # and no IE since
        self.active_since = Instant(0)
        self.compute_since = Instant(0)  # events have followed each other closely since then
        self.stops: dict[int, tuple[int, Instant]] = {}  # open calls: where, and since when
        self.inits: dict[int, tuple[int, Instant]] = {}
        self.restart = True  # what is interrupted starts again, instead of waiting for the next due minute
        self.limit: int = NEVER  # of callbacks at once, and of those in threads
        self.pool: int = NEVER
        self.running = 0
        self.threads_running = 0
        self.free_total_since = Instant(0)
        self.free_threads_since = Instant(0)
        self.tasks: dict[str, TaskRegisters] = {}
        self.overlapped: set[tuple[str, int, int]] = set()  # runs that go on although another one has started
        self.declared = 0
        self.digest = 0  # of what is declared
        self.zone: Zone = zone_of("UTC")
        self.schedules: dict[str, Schedule] = {}  # by expression, in this zone
        self.minute: Instant = NEVER  # that of the last start; NEVER if it is not known in this zone

    # --- what is owed ------------------------------------------------------------------------------------------------

    def is_running(self, task: TaskRegisters) -> bool:
        """A run has started since the last crash, and not ended."""
        return task.run is not None and task.epoch == self.epoch

    def owed_since(self, task: TaskRegisters) -> tuple[Instant, str]:
        """When what a task owes, or will owe, came or comes, and why; the task does not run."""
        if self.restart and task.was_interrupted(self.epoch):  # a retry that was pending is merged into it
            resume_at = task.resume_at(self.boot_at, self.stepped_to)
            return (resume_at, "interrupted") if resume_at <= task.next_due else (task.next_due, "due")
        return (task.next_due, "due") if task.next_due <= task.retry_at else (task.retry_at, "retry")

    def obliged(self, name: str, at: Instant) -> bool:
        """Obl: whether a task must start now."""
        task = self.tasks.get(name)
        if task is None or not task.declared or not self.active or self.is_running(task):
            return False
        return self.owed_since(task)[0] <= at

    def free_since(self, *, thread: bool) -> Instant:
        """Since when there are free slots for a callback; NEVER if there are none."""
        if self.running >= self.limit or (thread and self.threads_running >= self.pool):
            return NEVER
        return max(self.free_total_since, self.free_threads_since) if thread else self.free_total_since

    def described(self, task: TaskRegisters, at: Instant) -> dict[str, Any]:
        """What a violation says about a task, by the names of `properties`."""
        running = self.is_running(task)
        interrupted = self.restart and task.was_interrupted(self.epoch)
        resume_at = task.resume_at(self.boot_at, self.stepped_to) if interrupted else NEVER
        instants = {
            "mark": task.served_through,  # the name that the JSON form of a violation has had from the beginning
            "nextDue": task.next_due,
            "retryAt": task.retry_at,
            "resumeAt": resume_at,
        }
        return {
            "Registered": task.declared,
            "Running": running,
            "Pending": task.next_due <= at,
            "RetryPending": not running and not interrupted and task.retry_at <= at,
            "InterruptedPending": resume_at <= at,
            "generation": task.generation,
            "run": task.run,
            **{name: None if instant == NEVER else instant for name, instant in instants.items()},
        }

    # --- declarations ------------------------------------------------------------------------------------------------

    def schedule(self, cron: str) -> Schedule:
        """When an expression occurs in the zone in force; one object per expression."""
        schedule = self.schedules.get(cron)
        if schedule is None:
            schedule = self.schedules[cron] = Schedule(cron, self.zone)
        return schedule

    def move_to(self, zone: str) -> None:
        """The host is in another zone: what is due is computed anew, what was served stays served."""
        self.zone = zone_of(zone)
        self.schedules.clear()
        self.minute = NEVER
        for task in self.tasks.values():
            if task.schedule is not None and task.declared:
                task.schedule = self.schedule(task.schedule.text)
                task.next_due = task.schedule.after(task.served_through)

    def forget_if_gone(self, task: TaskRegisters) -> None:
        """Drop the registers of a task that is not declared, does not run, and has served nothing that counts."""
        if not task.declared and not self.is_running(task) and (task.served_before is None or not task.unstarted):
            self.tasks.pop(task.name, None)

    def forget_marks(self, at: Instant) -> None:
        """What earlier declarations have served is kept for a day (SPEC 5.1): later it cannot silence anything."""
        too_old = at - SERVED_BEFORE_KEPT
        old = [task for task in self.tasks.values() if task.served_before is not None and task.served_before < too_old]
        for task in old:
            task.served_before = None
            self.forget_if_gone(task)

    def count(self, task: TaskRegisters, change: int) -> None:
        """A task that is declared belongs to what is declared from here on (+1), or no longer does (-1)."""
        if task.declared and task.schedule is not None:
            self.declared += change
            self.digest ^= digest_of_one(task.name, task.generation, task.schedule.text, task.delay_ms)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> "RegisterSnapshot":
        """All of them, for the header of the next segment or for a checkpoint."""
        scheduler: dict[str, Any] = {name: getattr(self, name) for name in _KEPT_AS_THEY_ARE}
        for name in _KEPT_OR_NEVER:
            value = getattr(self, name)
            scheduler[name] = None if value == NEVER else value
        scheduler["zone"] = self.zone.name
        for name, calls in (("stops", self.stops), ("inits", self.inits)):
            scheduler[name] = [[call, seq, at] for call, (seq, at) in sorted(calls.items())]
        scheduler["overlapped"] = [list(each) for each in sorted(self.overlapped)]
        return RegisterSnapshot(scheduler, tuple(row_of(task) for task in self.tasks.values()))

    @classmethod
    def restored(cls, snapshot: "RegisterSnapshot") -> "Registers":
        """The registers of a snapshot. Raises ValueError."""
        registers, kept = cls(), snapshot.scheduler
        try:
            for name in _KEPT_AS_THEY_ARE:
                setattr(registers, name, kept[name])
            for name in _KEPT_OR_NEVER:
                setattr(registers, name, NEVER if kept[name] is None else kept[name])
            registers.stops = {call: (seq, at) for call, seq, at in kept["stops"]}
            registers.inits = {call: (seq, at) for call, seq, at in kept["inits"]}
            registers.overlapped = {(name, run, generation) for name, run, generation in kept["overlapped"]}
            registers.zone = zone_of(kept["zone"])
        except (KeyError, TypeError) as fault:
            raise ValueError(f"the register snapshot cannot be read: {fault!r}") from fault
        registers.tasks = tasks_of(snapshot.tasks, registers.schedule)
        for task in registers.tasks.values():
            registers.count(task, +1)
            if registers.is_running(task):
                registers.running += 1
                registers.threads_running += task.run_on_thread
        return registers


_KEPT_AS_THEY_ARE: Final = (
    "seq", "clock", "latest", "epoch", "active", "quiet", "crashed", "active_since", "compute_since", "booted", "boot",
    "boot_at", "boot_seq", "restart", "free_total_since", "free_threads_since",
)  # fmt: skip
_KEPT_OR_NEVER: Final = ("stepped_to", "limit", "pool")  # null in a snapshot is NEVER


class TaskRow(NamedTuple):
    """A task's registers as they stand in a snapshot; null is NEVER, or none."""

    name: str
    declared: bool
    generation: int
    cron: str | None
    delay_ms: int
    thread: bool
    served_through: int
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
    served_before: int | None


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
    def of_stored(cls, tasks: Iterable[TaskRow], *, crashed: bool, zone: str) -> "RegisterSnapshot":
        """What is known when a trace begins with a store that was used before; `crashed`: it was not closed.

        The boot with which the trace begins finds the crash.
        """
        scheduler = Registers().snapshot().scheduler
        scheduler.update(booted=True, quiet=not crashed, zone=zone)
        return cls(scheduler, tuple(tasks))

    def follows(self, value: Any, version: int) -> bool:
        """Whether a header of this version has these registers."""
        if version > 1:
            return bool(value == self.as_json())
        # Version 1 kept no removed tasks, and had another rule for what a declaration that never started has served.
        found = RegisterSnapshot.from_json(value, version)
        kept = {_in_version_1(row) for row in self.tasks if row.declared or row.run is not None}
        return found.scheduler == {**self.scheduler, "boot_seq": 0} and kept == set(map(_in_version_1, found.tasks))

    @classmethod
    def from_json(cls, value: Any, version: int = VERSION) -> "RegisterSnapshot":
        """Read that form, as a header of this version has it. Raises ValueError."""
        try:
            scheduler = value["scheduler"]
            rows = tuple(TaskRow(*[*row, *([None] * (version == 1))]) for row in value["tasks"])
            if version == 1:
                scheduler = {**scheduler, "boot_seq": 0}
        except (KeyError, TypeError) as fault:
            raise ValueError(f"the register snapshot cannot be read: {fault!r}") from fault
        if not _is_scheduler(scheduler) or not all(_well_typed(row) for row in rows):
            raise ValueError("the register snapshot has fields of another type")
        if not all(0 < len(row.name) <= TEXT_CHARACTERS_MAX for row in rows):
            raise ValueError("the register snapshot has a task without a name, or with one that is too long")
        if len({row.name for row in rows}) != len(rows):
            raise ValueError("the register snapshot names a task twice")
        return cls(scheduler, rows)


_NUMBERS: Final = (
    "seq", "clock", "latest", "epoch", "active_since", "compute_since", "boot_at", "boot_seq", "free_total_since",
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
    (int,), (bool,), (int,), (int,), (int,), (int,), (int,), (bool,), (bool,), (bool,), (int, type(None)),
)  # fmt: skip


def _well_typed(row: TaskRow) -> bool:
    return all(type(value) in types for value, types in zip(row, _ROW_TYPES, strict=True))


def removed_row(name: str, served: Instant) -> TaskRow:
    """The registers of a name that is not declared, and of which a start has served this minute."""
    task = TaskRegisters(name)
    task.served_before = served
    return row_of(task)


def _in_version_1(row: TaskRow) -> TaskRow:
    """What versions 1 and 2 have in common: all but what was served by a declaration that is gone or never started."""
    if row.unstarted or not row.declared:
        return row._replace(unstarted=True, served_through=0, served_before=None)
    return row._replace(served_before=None)


def row_of(task: TaskRegisters) -> TaskRow:
    """A task's registers, as they stand in a snapshot."""
    return TaskRow(
        task.name,
        task.declared,
        task.generation,
        None if task.schedule is None else task.schedule.text,
        task.delay_ms,
        task.thread,
        task.served_through,
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
        task.served_before if task.unstarted else None,
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
        task.served_through = Instant(row.served_through)
        if row.declared and task.schedule is not None:
            task.next_due = task.schedule.after(task.served_through)
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
        task.served_before = None if row.served_before is None else Instant(row.served_before)
    return tasks
