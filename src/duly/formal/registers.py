"""The memory of a monitor: the registers of each host, of each task and of all, and all of them as a snapshot.

A register of `properties` is a set that Due, RetryDue and Resume raise and starts clear. A monitor keeps the instants
from which these pulses follow instead: a task is Pending exactly if its next due minute after `served_through` has
come, it is RetryPending exactly if its retry instant has. So a pulse costs nothing when it happens, and a year of
downtime is one comparison. The rules are those of SPEC 2.5, 3.1, 3.6, 3.7 and 5.1, written a second time.

An embedded store has one host, which lives again after each crash. A shared store has any number, and each lives once:
it joins, and it leaves or is buried. A run belongs to a life, which has a number: in an embedded store that is how many
crashes there were before it, in a shared one the key of the host. A run whose life has ended goes on no longer, so a
crash costs nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from duly.core.moments import LAST_INSTANT, MICROSECONDS, Instant
from duly.formal.calendar import MINUTE, NEVER, Schedule, Zone, zone_of
from duly.formal.trace import ALONE, SHARED_VERSION, TEXT_CHARACTERS_MAX, VERSION, digest_of_one

HOUR: Final = 3600 * MICROSECONDS
SERVED_AHEAD_MAX: Final = 3 * HOUR
"""How far `served_through` may lie ahead of the clock before that means that the clock was corrected (SPEC 2.5)."""
SERVED_BEFORE_KEPT: Final = 24 * HOUR
SHORTEST_DELAY_MS: Final = 1_000
REST_MS: Final = 60_000
"""The least wait of a task that was interrupted twice in a row (SPEC 3.7)."""


class TaskRegisters:
    """One task: the declaration in force, what it has served and owes, the run that goes on or was cut short."""

    __slots__ = (
        "declared", "delay_ms", "due_since_success", "ended", "epoch", "floor", "fresh", "generation", "name",
        "next_due", "retry_at", "run", "run_generation", "run_on_thread", "schedule", "served_before", "served_through",
        "started", "streak", "thread", "unstarted", "watched",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.declared: bool = False
        self.generation: int = -1
        self.schedule: Schedule | None = None
        self.delay_ms: int = 0
        self.thread: bool = False
        self.served_through: Instant = Instant(0)  # the beginning of a minute: none up to this one is still owed
        self.next_due: Instant = NEVER  # the first occurrence after `served_through`
        self.retry_at: Instant = NEVER  # kept while a run goes on: its outcome decides
        self.run: int | None = None  # started, and no end so far
        self.run_generation: int = -1
        self.run_on_thread: bool = False
        self.epoch: int = -1  # the life in which it last started
        self.started: Instant = Instant(0)
        self.floor: Instant = Instant(0)  # no start may be stamped earlier, unless the clock goes back
        self.ended: Instant = Instant(0)
        self.streak: int = 0  # interruptions in a row, before the present run; 2 is two or more
        self.due_since_success: bool = False  # a due minute, or a registration, since the last start that succeeded
        self.fresh: bool = False  # `due_since_success` as it was when the present run started
        self.unstarted: bool = True  # this declaration has not started: it has served the minute before it was known
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

    def resume_at(self, cut_at: Instant) -> Instant:
        """When an interrupted run is owed again, if the clock then showed `cut_at` or less since (SPEC 3.7)."""
        # A first interruption is owed at once, whatever the clock shows; only after more in a row is there a wait.
        rest = 1_000 * max(self.delay_ms, REST_MS) if self.streak else 0
        # A start that lies in the future was stamped by a clock that has been corrected since.
        return Instant(min(min(self.started, cut_at) + rest, LAST_INSTANT))

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


class HostRegisters:
    """One host: its calls, its slots, and whether it lives."""

    __slots__ = (
        "active", "active_since", "boot", "boot_at", "boot_seq", "booted", "clock", "compute_since", "crashed",
        "cut_at", "edition", "epoch", "free_threads_since", "free_total_since", "inits", "key", "left", "limit", "pool",
        "quiet", "running", "seen", "stop_deadline", "stops", "threads_running",
    )  # fmt: skip

    def __init__(self, key: int, epoch: int) -> None:
        self.key: int = key
        self.epoch: int = epoch  # the number of its life
        self.seen: bool = False  # in a shared store: the trace has an event of it
        self.booted: bool = False
        self.boot: str = ""
        self.boot_at: Instant = Instant(0)
        self.boot_seq: int = 0  # where: a call that was made before it does not return after it
        self.clock: Instant = Instant(0)  # the latest instant of its events since the clock was last set back
        self.compute_since: Instant = Instant(0)  # events of it have followed each other closely since then
        self.active: bool = False
        self.active_since: Instant = Instant(0)
        self.quiet: bool = False
        self.crashed: bool = False  # in an embedded store: and no IE since
        self.left: bool = False  # in a shared store: its stop has completed
        self.cut_at: Instant = NEVER  # in a shared store: when it was buried, or the lowest the clock showed since
        self.stops: dict[int, tuple[int, Instant]] = {}  # open calls: where, and since when
        self.inits: dict[int, tuple[int, Instant]] = {}
        self.edition: int = 0  # of the set that it declares; 0 in an embedded store
        self.limit: int = NEVER  # of callbacks at once, and of those in threads
        self.pool: int = NEVER
        self.running: int = 0
        self.threads_running: int = 0
        self.free_total_since: Instant = Instant(0)
        self.free_threads_since: Instant = Instant(0)
        self.stop_deadline: Instant = NEVER  # kept by `promptness`

    @property
    def is_living(self) -> bool:
        """It has joined a shared store, and has neither left nor been buried."""
        return self.booted and not self.left and self.cut_at == NEVER

    def free_since(self, *, thread: bool) -> Instant:
        """Since when there are free slots for a callback; NEVER if there are none."""
        if self.running >= self.limit or (thread and self.threads_running >= self.pool):
            return NEVER
        return max(self.free_total_since, self.free_threads_since) if thread else self.free_total_since

    def count_start(self, *, thread: bool) -> None:
        """A run has started here."""
        self.running += 1
        if thread:
            self.threads_running += 1

    def count_end(self, at: Instant, *, thread: bool) -> None:
        """A run that went on here has ended."""
        if self.running >= self.limit:
            self.free_total_since = at
        if thread:
            if self.threads_running >= self.pool:
                self.free_threads_since = at
            self.threads_running -= 1
        self.running -= 1


class Registers:
    """All registers at one position of a trace. `machine` and `fast_path` write them, everyone else only reads."""

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self.seq = 0
        self.latest: Instant = Instant(0)  # the latest instant ever: nothing has been served later
        self.crashes: int = 0
        self.stepped_to: Instant = NEVER  # in an embedded store: the lowest the clock was set to since the boot
        self.buried_at: Instant = Instant(0)  # the last burial
        self.edition = 0  # the one in force; 0 in an embedded store
        self.in_force_since: Instant = Instant(0)  # when that one was put in force
        self.ended_by_stop = False  # in a shared store: the last host that went has left
        self.restart = True  # what is interrupted starts again, instead of waiting for the next due minute
        self.hosts: dict[int, HostRegisters] = {}  # all of them, by key
        self.lives: dict[int, HostRegisters] = {}  # that no crash has ended, by number; also of hosts that have left
        if not shared:
            self.hosts[ALONE] = self.lives[0] = HostRegisters(ALONE, epoch=0)
        self.tasks: dict[str, TaskRegisters] = {}
        # Runs that go on although another one has started, and their lives.
        self.overlapped: dict[tuple[str, int, int], int] = {}
        self.declared: int = 0
        self.digest: int = 0  # of what is declared
        self.zone: Zone = zone_of("UTC")
        self.schedules: dict[str, Schedule] = {}  # by expression, in this zone
        self.minute: Instant = NEVER  # that of the last start; NEVER if it is not known in this zone

    # --- hosts -------------------------------------------------------------------------------------------------------

    def host(self, key: int) -> HostRegisters:
        """The registers of a host; a host of a shared store that was not heard of before gets new ones."""
        found = self.hosts.get(key)
        if found is None:
            found = self.hosts[key] = self.lives[key] = HostRegisters(key, epoch=key)
        return found

    @property
    def clock(self) -> Instant:
        """The latest instant since the clock was last set back."""
        return max((host.clock for host in self.hosts.values()), default=Instant(0))

    @property
    def is_closed(self) -> bool:
        """The last that happened to the store is that a stop completed: nothing is going on."""
        if self.shared:
            return self.ended_by_stop and not any(host.is_living for host in self.hosts.values())
        return self.hosts[ALONE].quiet

    @property
    def running(self) -> int:
        """How many runs go on, on all hosts."""
        return sum(host.running for host in self.hosts.values())

    def serving_since(self) -> Instant:
        """Since when some host is active that declares the edition in force; NEVER if there is none."""
        return min(
            (host.active_since for host in self.hosts.values() if host.active and host.edition == self.edition),
            default=NEVER,
        )

    def cut(self, host: HostRegisters, at: Instant) -> None:
        """A life has ended in a crash: what was going on in it has stopped."""
        self.crashes += 1
        self.lives.pop(host.epoch, None)
        self.overlapped = {run: life for run, life in self.overlapped.items() if life != host.epoch}
        host.crashed = True
        host.active = False
        host.stops.clear()
        host.inits.clear()
        host.running = host.threads_running = 0
        if self.shared:
            host.cut_at = self.buried_at = at
        else:
            host.epoch += 1
            self.lives[host.epoch] = host

    # --- what is owed ------------------------------------------------------------------------------------------------

    def is_running(self, task: TaskRegisters) -> bool:
        """A run has started, and neither it nor the life it belongs to has ended."""
        return task.run is not None and task.epoch in self.lives

    def was_interrupted(self, task: TaskRegisters) -> bool:
        """A crash cut the last run of the declaration in force short, and nothing has started since."""
        return task.run is not None and task.epoch not in self.lives and task.run_generation == task.generation

    def resume_at(self, task: TaskRegisters) -> Instant:
        """When an interrupted run is owed again."""
        if not self.shared:
            return task.resume_at(min(self.hosts[ALONE].boot_at, self.stepped_to))
        host = self.hosts.get(task.epoch)  # none only if a snapshot says so
        return task.resume_at(NEVER if host is None else host.cut_at)

    def owed_since(self, task: TaskRegisters) -> tuple[Instant, str]:
        """When what a task owes, or will owe, came or comes, and why; the task does not run."""
        if self.restart and self.was_interrupted(task):  # a retry that was pending is merged into it
            resume_at = self.resume_at(task)
            return (resume_at, "interrupted") if resume_at <= task.next_due else (task.next_due, "due")
        return (task.next_due, "due") if task.next_due <= task.retry_at else (task.retry_at, "retry")

    def obliged(self, name: str, at: Instant) -> bool:
        """Obl: whether a task must start now."""
        task = self.tasks.get(name)
        return task is not None and self.serving_since() != NEVER and self.is_owed(task, at)

    def is_owed(self, task: TaskRegisters, at: Instant) -> bool:
        """Whether a task must start as soon as a host serves it."""
        return task.declared and not self.is_running(task) and self.owed_since(task)[0] <= at

    def described(self, task: TaskRegisters, at: Instant) -> dict[str, Any]:
        """The registers of a task as a violation shows them, by the names of `properties`."""
        running = self.is_running(task)
        interrupted = self.restart and self.was_interrupted(task)
        resume_at = self.resume_at(task) if interrupted else NEVER
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
            **({"runHost": task.epoch} if self.shared and task.run is not None else {}),
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
        """Forget the marks of earlier declarations after a day (SPEC 5.1): later they cannot silence anything."""
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
        if self.shared:
            scheduler: dict[str, Any] = {name: getattr(self, name) for name in _KEPT_OF_A_SHARED_STORE}
            scheduler["hosts"] = [_kept_of(host, _KEPT_OF_EACH_HOST) for _, host in sorted(self.hosts.items())]
            scheduler["overlapped"] = [[*run, life] for run, life in sorted(self.overlapped.items())]
        else:
            scheduler = _kept_of(self.hosts[ALONE], _KEPT_OF_THE_HOST)
            scheduler.update((name, getattr(self, name)) for name in _KEPT_OF_ALL)
            scheduler["stepped_to"] = None if self.stepped_to == NEVER else self.stepped_to
            scheduler["overlapped"] = [list(run) for run in sorted(self.overlapped)]
        scheduler["zone"] = self.zone.name
        return RegisterSnapshot(scheduler, tuple(row_of(task) for task in self.tasks.values()))

    @classmethod
    def restored(cls, snapshot: "RegisterSnapshot") -> "Registers":
        """The registers of a snapshot. Raises ValueError."""
        registers, kept = cls(shared=snapshot.is_shared), snapshot.scheduler
        try:
            registers.restore(kept)
            registers.zone = zone_of(kept["zone"])
        except (KeyError, TypeError) as fault:
            raise ValueError(f"the register snapshot cannot be read: {fault!r}") from fault
        registers.tasks = tasks_of(snapshot.tasks, registers.schedule)
        for task in registers.tasks.values():
            registers.count(task, +1)
            if registers.is_running(task):
                registers.lives[task.epoch].count_start(thread=task.run_on_thread)
        return registers

    def restore(self, kept: dict[str, Any]) -> None:
        """Take over the registers of all and of each host, as they stand in a snapshot."""
        if self.shared:
            for name in _KEPT_OF_A_SHARED_STORE:
                setattr(self, name, kept[name])
            for each in kept["hosts"]:
                host = self.host(each["key"])
                _restore_host(host, each, _KEPT_OF_EACH_HOST)
                if host.cut_at != NEVER:
                    host.crashed = True
                    del self.lives[host.key]
            self.overlapped = {(name, run, of): life for name, run, of, life in kept["overlapped"]}
            return
        host = self.hosts[ALONE]
        _restore_host(host, kept, _KEPT_OF_THE_HOST)
        for name in _KEPT_OF_ALL:
            setattr(self, name, kept[name])
        self.stepped_to = NEVER if kept["stepped_to"] is None else kept["stepped_to"]
        self.crashes, self.lives = host.epoch, {host.epoch: host}
        self.overlapped = dict.fromkeys(map(tuple, kept["overlapped"]), host.epoch)


_KEPT_OF_ALL: Final = ("seq", "latest", "restart")
_KEPT_OF_THE_HOST: Final = (
    "clock", "epoch", "active", "quiet", "crashed", "active_since", "compute_since", "booted", "boot", "boot_at",
    "boot_seq", "free_total_since", "free_threads_since", "limit", "pool", "stops", "inits",
)  # fmt: skip
_KEPT_OF_A_SHARED_STORE: Final = (
    "seq", "latest", "restart", "crashes", "buried_at", "edition", "in_force_since", "ended_by_stop",
)  # fmt: skip
_KEPT_OF_EACH_HOST: Final = (
    "key", "seen", "booted", "boot", "boot_seq", "clock", "compute_since", "active", "active_since", "quiet", "left",
    "cut_at", "edition", "free_total_since", "free_threads_since", "limit", "pool", "stops", "inits",
)  # fmt: skip
_OR_NEVER: Final = ("limit", "pool", "cut_at")  # null in a snapshot is NEVER
_CALLS: Final = ("stops", "inits")


def _kept_of(host: HostRegisters, names: Iterable[str]) -> dict[str, Any]:
    """Registers of a host, as they stand in a snapshot."""
    kept: dict[str, Any] = {name: getattr(host, name) for name in names}
    for name in _OR_NEVER:
        if kept.get(name) == NEVER:
            kept[name] = None
    for name in _CALLS:
        kept[name] = [[call, seq, at] for call, (seq, at) in sorted(kept[name].items())]
    return kept


def _restore_host(host: HostRegisters, kept: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        value = kept[name]
        if name in _CALLS:
            value = {call: (seq, at) for call, seq, at in value}
        setattr(host, name, NEVER if value is None and name in _OR_NEVER else value)


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


class HostStart(NamedTuple):
    """A host that runs when a trace begins: the edition that it declares, and its slots."""

    edition: int
    max_concurrency: int | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class RegisterSnapshot:
    """All registers at one position: with it, a segment can be checked alone and as exactly as the whole trace."""

    scheduler: dict[str, Any] = field(default_factory=dict)  #: the registers of the scheduler, by name
    tasks: tuple[TaskRow, ...] = ()  #: those of each task

    @property
    def is_shared(self) -> bool:
        """Whether these are the registers of a shared store."""
        return "hosts" in self.scheduler

    def as_json(self) -> dict[str, Any]:
        """The form in which it stands in a header; tasks in the order of their names, so equal ones are equal bytes."""
        rows = [list(row) for row in sorted(self.tasks)]
        scheduler = dict(sorted(self.scheduler.items()))
        if self.is_shared:
            scheduler["hosts"] = [dict(sorted(host.items())) for host in scheduler["hosts"]]
        return {"scheduler": scheduler, "tasks": rows}

    @classmethod
    def of_stored(cls, tasks: Iterable[TaskRow], *, crashed: bool, zone: str) -> "RegisterSnapshot":
        """The registers of a trace that begins with a store that was used before.

        The boot with which the trace begins finds the crash.

        Parameters:
            tasks: the registers of the stored tasks.
            crashed: whether the store was not closed.
            zone: the zone in which it was used.
        """
        scheduler = Registers().snapshot().scheduler
        scheduler.update(booted=True, quiet=not crashed, zone=zone)
        return cls(scheduler, tuple(tasks))

    @classmethod
    def of_shared_store(
        cls,
        tasks: Iterable[TaskRow],
        living: Mapping[int, "HostStart"],
        *,
        edition: int,
        restart: bool,
        zone: str,
        at: Instant,
    ) -> "RegisterSnapshot":
        """The registers of a trace that begins with a shared store that was used before.

        Parameters:
            tasks: the registers of the stored tasks; `epoch` in a row is the key of the host of the last start.
            living: the hosts that run, by key.
            edition: the one in force.
            restart: whether its interrupted runs start again, instead of waiting for the next due minute.
            zone: the zone of the hosts.
            at: the instant of the first event.
        """
        registers = Registers(shared=True)
        registers.edition, registers.restart = edition, restart
        for key, known in living.items():
            host = registers.host(key)
            host.seen = host.booted = host.active = True
            host.edition = known.edition
            host.limit = NEVER if known.max_concurrency is None else known.max_concurrency
            host.pool = NEVER if known.threads is None else known.threads
            host.clock = host.active_since = host.compute_since = at
        return cls({**registers.snapshot().scheduler, "zone": zone}, tuple(tasks))

    def follows(self, value: Any, version: int) -> bool:
        """Whether a header has these registers.

        Parameters:
            value: the registers in the header, as JSON has them.
            version: the version of the header.

        Raises:
            ValueError: they cannot be read.
        """
        if version > 1:
            return bool(value == self.as_json())
        # Version 1 kept no removed tasks, and had another rule for what a declaration that never started has served.
        found = RegisterSnapshot.from_json(value, version)
        kept = {_in_version_1(row) for row in self.tasks if row.declared or row.run is not None}
        return found.scheduler == {**self.scheduler, "boot_seq": 0} and kept == set(map(_in_version_1, found.tasks))

    @classmethod
    def from_json(cls, value: Any, version: int = VERSION) -> "RegisterSnapshot":
        """Read the form that `as_json` writes.

        Parameters:
            value: the registers in a header.
            version: the version of the header.

        Raises:
            ValueError: they cannot be read.
        """
        try:
            scheduler = value["scheduler"]
            rows = tuple(TaskRow(*[*row, *([None] * (version == 1))]) for row in value["tasks"])
            if version == 1:
                scheduler = {**scheduler, "boot_seq": 0}
        except (KeyError, TypeError) as fault:
            raise ValueError(f"the register snapshot cannot be read: {fault!r}") from fault
        is_right = _is_shared_scheduler if version >= SHARED_VERSION else _is_scheduler
        if not is_right(scheduler) or not all(_well_typed(row) for row in rows):
            raise ValueError("the register snapshot has fields of another type")
        if version >= SHARED_VERSION and not _names_each_host_once(scheduler["hosts"]):
            raise ValueError("the register snapshot names a host twice, or one without a key")
        if not all(0 < len(row.name) <= TEXT_CHARACTERS_MAX for row in rows):
            raise ValueError("the register snapshot has a task without a name, or with one that is too long")
        if len({row.name for row in rows}) != len(rows):
            raise ValueError("the register snapshot names a task twice")
        return cls(scheduler, rows)


_Types = Mapping[str, tuple[type, ...]]
_NUMBERS: Final = (
    "seq", "clock", "latest", "epoch", "active_since", "compute_since", "boot_at", "boot_seq", "free_total_since",
    "free_threads_since",
)  # fmt: skip
_SCHEDULER_TYPES: Final[_Types] = {
    **dict.fromkeys(_NUMBERS, (int,)),
    **dict.fromkeys(("active", "quiet", "crashed", "booted", "restart"), (bool,)),
    **dict.fromkeys(("stepped_to", "limit", "pool"), (int, type(None))),
    **dict.fromkeys(("boot", "zone"), (str,)),
}
_CALL_TYPES: Final = {"stops": (int, int, int), "inits": (int, int, int)}
_LIST_TYPES: Final = {**_CALL_TYPES, "overlapped": (str, int, int)}
_SHARED_TYPES: Final[_Types] = {
    **dict.fromkeys(("seq", "latest", "crashes", "buried_at", "edition", "in_force_since"), (int,)),
    **dict.fromkeys(("restart", "ended_by_stop"), (bool,)),
    "zone": (str,),
    "hosts": (list,),
}
_HOST_NUMBERS: Final = (
    "key", "boot_seq", "clock", "compute_since", "active_since", "edition", "free_total_since", "free_threads_since",
)  # fmt: skip
_HOST_TYPES: Final[_Types] = {
    **dict.fromkeys(_HOST_NUMBERS, (int,)),
    **dict.fromkeys(("seen", "booted", "active", "quiet", "left"), (bool,)),
    **dict.fromkeys(("limit", "pool", "cut_at"), (int, type(None))),
    "boot": (str,),
}


def _is_scheduler(value: Any) -> bool:
    return _has_types(value, _SCHEDULER_TYPES, _LIST_TYPES)


def _is_shared_scheduler(value: Any) -> bool:
    return _has_types(value, _SHARED_TYPES, {"overlapped": (str, int, int, int)}) and all(
        _has_types(host, _HOST_TYPES, _CALL_TYPES) for host in value["hosts"]
    )


def _has_types(value: Any, singles: _Types, lists: _Types) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {*singles, *lists}
        and all(type(value[name]) in types for name, types in singles.items())
        and all(
            type(value[name]) is list
            and all(type(row) is list and tuple(map(type, row)) == types for row in value[name])
            for name, types in lists.items()
        )
    )


def _names_each_host_once(hosts: list[dict[str, Any]]) -> bool:
    keys = {host["key"] for host in hosts}
    return len(keys) == len(hosts) and all(key > 0 for key in keys)


_ROW_TYPES: Final[tuple[tuple[type, ...], ...]] = (
    (str,), (bool,), (int,), (str, type(None)), (int,), (bool,), (int,), (int, type(None)), (int, type(None)),
    (int,), (bool,), (int,), (int,), (int,), (int,), (int,), (bool,), (bool,), (bool,), (int, type(None)),
)  # fmt: skip


def _well_typed(row: TaskRow) -> bool:
    return all(type(value) in types for value, types in zip(row, _ROW_TYPES, strict=True))


def removed_row(name: str, served: Instant | None) -> TaskRow:
    """The registers of a name that is not declared, and of which a start has served this minute, or none counts."""
    task = TaskRegisters(name)
    task.served_before = served
    return row_of(task)


def _in_version_1(row: TaskRow) -> TaskRow:
    """The columns that versions 1 and 2 share: all but the marks of a declaration that is gone or never started."""
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
