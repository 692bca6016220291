"""Worlds as values: worlds that differ only in what cannot matter are equal, so that the search comes to an end.

What is made equal, and why no behaviour is lost by it:

    time          all instants are shifted by whole periods; expressions and delays repeat with the period
    old instants  `served_through` is in this minute, after the latest due minute or before it; an instant half a period
                  ago is as old as any, because delays and rests have passed. Only the name of a cause and the order in
                  a queue could still differ by it, and neither decides whether a task starts
    what starts   have served matters to a later declaration of the name only if it is this minute: then it is kept as
                  what an earlier declaration has served, whether or not the one in force has started
    history       what is only reported: when a run last succeeded or failed
    numbers       of runs, declarations, calls and boots are replaced by their rank: they are only compared
    counts        failures in a row are reported, and decide nothing: 1 stands for more
    garbage       timers of a state that is gone, due lists whose tasks are all withdrawn, calendar entries of groups
                  that no longer exist: the agenda skips them

Everything else is kept as it is, the agenda's own index included: which due lists are queued, how far decisions went,
which is untouched, which timers are armed, what each group waits for. A loop that is stopping decides nothing any more,
so there the index is built anew.
"""

from dataclasses import replace
from datetime import UTC
from heapq import heapify
from itertools import count
from typing import Any, Final

from duly.core.agenda import Agenda, Decision, DueList, Group
from duly.core.changes import Starts
from duly.core.moments import Instant, Minute, minute_of
from duly.core.registration import RunsOn
from duly.core.resolution import Mark
from duly.core.steps import finish
from duly.core.task import (
    AwaitingRetry,
    AwaitingRun,
    Grounds,
    Interrupted,
    Obligation,
    Running,
    Start,
    Task,
    TaskState,
    Withdrawn,
    served_by_starts,
)
from duly.engine.runner import Call, Run
from duly.engine.settle import ReplacedRun, ReplacedRuns
from duly.formal.calendar import NEVER, Schedule, zone_of
from duly.formal.monitor import Monitor
from duly.formal.registers import TaskRegisters
from duly.formal.trace import ALONE, digest_of_one
from tests.model.words import BASE, EXPRESSIONS, HALF, HOUR, PERIOD, SECOND, SETS, Instance, Row
from tests.model.world import World, grounds_of

Frozen = tuple[Any, ...]

_PLACES: Final = tuple(RunsOn)
_SCHEDULES: Final = {text: Schedule(text, zone_of("UTC")) for text in EXPRESSIONS}
_ZONE: Final = zone_of("UTC")
_DIGESTS: dict[tuple[str, int, str, int], int] = {}
_FLAGS: Final = (
    "run_on_thread",
    "fresh",
    "declared",
    "delay_ms",
    "thread",
    "streak",
    "due_since_success",
    "served_before",
)
_HALF: Final = PERIOD // 2
_OFFSETS: Final = {HOUR: BASE, HALF: BASE + _HALF}
_ONCE: Final = Instant(BASE - PERIOD)
"""When something happened of which only that it did is ever asked."""

_FIRST: Final = Obligation(_ONCE, _ONCE, 1)


class Freezer:
    """The context of one freezing: now, and the ranks of numbers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = world.now
        # What is decided but not durable yet will be judged at the instant it was decided.
        self.sample = world.now if world.decision is None else world.decision.at
        # How an interrupted run is read matters while there is one.
        known = world.monitor.registers
        self.indifferent = not any(task.run is not None and not known.is_running(task) for task in known.tasks.values())
        self.shift = (world.now - BASE) // PERIOD * PERIOD
        self.generations: dict[int, int] = {-1: -1}
        self.runs: dict[int | None, int | None] = {None: None}
        for number, name in enumerate(_CALLBACKS):
            generations, runs = self._numbers_of(name)
            self.generations.update((each, 10 * number + n) for n, each in enumerate(sorted(generations), 1))
            self.runs.update((each, 10 * number + n) for n, each in enumerate(sorted(runs), 1))

    def _numbers_of(self, name: str) -> tuple[set[int], set[int]]:
        """The generations and runs of a name that are still referred to."""
        generations: set[int] = set()
        runs: set[int | None] = set()
        world = self.world
        if (row := world.rows.get(name)) is not None:
            generations.add(row.generation)
            runs.add(row.run)
        for run in world.runs.values():
            if run.task.name == name:
                generations.add(run.task.generation)
                runs.add(run.number)
        generations |= {task.generation for task in world.agenda.tasks() if task.name == name}
        if (seen := world.monitor.registers.tasks.get(name)) is not None:
            generations |= {seen.generation, seen.run_generation}
            runs.add(seen.run)
        if world.decision is not None:
            runs |= {start.run for start in world.decision.starts.singles() if start.task.name == name}
        return generations - {-1}, {each for each in runs if each is not None}

    def at(self, instant: int) -> Instant:
        """An instant, shifted, and at most two periods old."""
        age = self.sample - instant
        if age >= PERIOD:
            instant = self.sample - PERIOD - age % PERIOD
        return Instant(instant - self.shift)

    def past(self, instant: int) -> Instant:
        """An instant that is only compared with now and with delays, and so at most half a period old."""
        age = self.sample - instant
        return self.at(self.sample - PERIOD // 2 if age > PERIOD // 2 else instant)

    def maybe(self, instant: int | None) -> Instant | None:
        return None if instant is None else self.past(instant)

    def mark(self, mark: int, expression: str) -> Instant:
        """A `served_through`: in this very minute, later than the latest due minute, or earlier."""
        if self.sample != self.now:
            return self.at(mark - mark % _HALF)
        if mark >= self.now:
            return self.at(mark)
        due = self.now - (self.now - _OFFSETS[expression]) % PERIOD
        return self.at(due if mark >= due else due - _HALF)

    def minute(self, minute: int, expression: str) -> Minute:
        return Minute(self.mark(minute * SECOND, expression) // SECOND)

    def current(self, served: int | None) -> Minute | None:
        """The mark of the starts, if it is this minute."""
        minute = minute_of(self.now, UTC)
        return Minute(minute - self.shift // SECOND) if served is not None and served >= minute else None

    # --- tasks -------------------------------------------------------------------------------------------------------

    def marks(self) -> Frozen:
        """The marks of the starts of each name, if a record does not say them."""
        world = self.world
        found = []
        for name in _CALLBACKS:
            row, mark = world.rows.get(name), world.marks.get(name)
            served: int | None = None if mark is None else mark.served_through
            if row is not None and row.last_attempt_at is not None:
                served = row.served_through if row.run is None and row.pending_retry_until is None else None
            if (current := self.current(served)) is not None:
                found.append((name, current))
        return tuple(found)

    def state(self, state: TaskState, expression: str) -> TaskState:
        match state:
            case Withdrawn():
                return Withdrawn(Minute(0))
            case AwaitingRun():
                served = self.current(served_by_starts(state))
                return AwaitingRun(self.minute(state.served_through, expression), served_before=served)
            case AwaitingRetry():
                mark, ripe = self.minute(state.served_through, expression), self.past(state.pending_retry_until)
                return AwaitingRetry(mark, _ONCE, None, _ONCE, ripe, 1, _FIRST)
            case Running() | Interrupted():
                retry_at, started = self.maybe(state.pending_retry_until), self.past(state.last_attempt_at)
                changes: dict[str, Any] = {
                    "served_through": self.minute(state.served_through, expression),
                    "last_attempt_at": started,
                    "last_success_at": None,
                    "last_failure_at": None if retry_at is None else _ONCE,
                    "pending_retry_until": retry_at,
                    "failures": int(retry_at is not None),
                    "interruptions": min(1, state.interruptions),
                    "obligation": Obligation(started, started, 1),  # what runs are for decides nothing
                }
                if isinstance(state, Interrupted):
                    changes["resume_at"] = self.maybe(state.resume_at)
                return replace(state, **changes)

    def row(self, row: Row) -> Row:
        running = row.run is not None
        retry_at = self.maybe(row.pending_retry_until)
        attempt = None if retry_at is None else _ONCE
        started = self.past(row.last_attempt_at) if running and row.last_attempt_at else attempt
        return Row(
            self.generations[row.generation],
            row.name,
            row.cron,
            row.delay_ms,
            BASE,
            self.minute(row.served_through, row.cron),
            started,
            None,
            attempt,
            retry_at,
            int(retry_at is not None),
            min(1, row.interruptions),
            self.runs[row.run],
            "cron" if running else None,
            started if running else None,
            1,
            *((None, None, None) if running or retry_at is None else (_ONCE, _ONCE, 1)),
        )

    def task(self, task: Task) -> Frozen:
        return (
            task.name,
            task.expression.text,
            task.delay,
            task.runs_on,
            self.generations[task.generation],
            self.state(task.state, task.expression.text),
            task.predecessor_runs,
        )

    # --- the agenda --------------------------------------------------------------------------------------------------

    def agenda(self, agenda: Agenda, reached: dict[int, int]) -> Frozen:
        groups = tuple(
            sorted(
                (
                    text,
                    tuple(
                        (tuple(task.name for task in group.tasks[runs_on]), _lost(agenda, group, runs_on))
                        for runs_on in _PLACES
                    ),
                )
                for text, group in agenda._groups.items()
            )
        )
        calendar = tuple(
            sorted(
                (self.at(due * SECOND) // SECOND, group.expression.text)
                for due, _, group in agenda._calendar
                if agenda._groups.get(group.expression.text) is group
            )
        )
        timers = tuple(
            sorted((self.past(ripe), task.name) for ripe, _, task, state in agenda._timers if task.state is state)
        )
        return groups, calendar, timers, tuple(self.queue(agenda, runs_on, reached) for runs_on in _PLACES)

    def queue(self, agenda: Agenda, runs_on: RunsOn, reached: dict[int, int]) -> Frozen:
        due_lists = []
        for since, _, due_list in agenda._queues[runs_on]:
            group = due_list.group
            whole = due_list.tasks is group.tasks[runs_on]
            alive = [task for task in due_list.tasks[due_list.position :] if not isinstance(task.state, Withdrawn)]
            if not alive and not (whole and agenda._groups.get(group.expression.text) is group):
                continue
            names = () if whole else tuple(task.name for task in alive)
            position = due_list.position if whole else 0
            fresh = group.untouched[runs_on] is due_list
            goal = reached.get(id(due_list), -1)
            if goal >= 0 and not whole:
                gone = due_list.tasks[due_list.position : goal]
                goal = sum(not isinstance(task.state, Withdrawn) for task in gone)
            due_lists.append(
                (self.mark(since, group.expression.text), group.expression.text, whole, names, position, fresh, goal)
            )
        return tuple(sorted(due_lists))

    def decision(self, decision: Decision | None) -> Frozen | None:
        if decision is None:
            return None
        starts = tuple(
            (start.task.name, self.runs[start.run], self.grounds(start.grounds, start.task))
            for start in decision.starts.singles()
        )
        requeue = tuple(
            sorted(
                (runs_on.value, self.at(since), group.expression.text, tuple(task.name for task in tasks))
                for (runs_on, since, group), tasks in decision.requeue.items()
            )
        )
        return self.at(decision.at), starts, requeue

    def grounds(self, grounds: Grounds, task: Task) -> Grounds:
        after = self.state(grounds.after, task.expression.text)
        assert isinstance(after, Running)
        at = self.at(grounds.at)
        return replace(grounds, at=at, scheduled=at, owed_since=at, retry_count=0, after=after)

    # --- the monitor -------------------------------------------------------------------------------------------------

    def monitor(self, monitor: Monitor) -> Frozen:
        known = monitor.registers
        tasks = tuple(
            self.registers(task, alive=known.is_running(task))
            for _, task in sorted(known.tasks.items())
            if task.declared or task.run is not None or self.served(task) is not None
        )
        restart = known.restart or self.indifferent
        host = known.hosts[ALONE]
        return host.active and self.world.up, host.quiet, host.crashed, host.booted, restart, tasks

    def registers(self, task: TaskRegisters, *, alive: bool) -> Frozen:
        cron = task.schedule.text if task.declared and task.schedule is not None else ""
        run = task.run is not None
        return (
            task.name,
            self.generations[task.generation],
            cron,
            self.mark(task.served_through, cron) if cron else 0,
            NEVER if task.retry_at == NEVER else self.past(task.retry_at),
            self.runs[task.run],
            self.generations[task.run_generation] if run else -1,
            alive,
            self.past(task.started) if run else 0,
            task.run_on_thread and alive,
            task.fresh and alive,
            task.declared,
            task.delay_ms if task.declared else 0,
            task.thread and task.declared,
            min(1, task.streak),
            task.due_since_success,
            self.served(task),
        )

    def served(self, task: TaskRegisters) -> Instant | None:
        served = task.served_before if task.unstarted else task.served_through
        current = None if served is None else self.current(served // SECOND)
        return None if current is None else Instant(current * SECOND)


def _lost(agenda: Agenda, group: Group, runs_on: RunsOn) -> bool:
    """Whether a due list counts as untouched and is not queued any more; there should be none."""
    fresh = group.untouched[runs_on]
    return fresh is not None and all(due_list is not fresh for _, _, due_list in agenda._queues[runs_on])


def freeze(world: World) -> Frozen:
    """The value of a world."""
    cold = Freezer(world)
    decision = world.decision
    reached = {} if decision is None else {id(due_list): position for _, due_list, position in decision.progress}
    replaced = tuple(
        sorted(
            (name, cold.task(each.task), cold.runs[world.runs[each.task].number], each.successor is not None)
            for name, each in world.replaced.by_name.items()
        )
    )
    return (
        Instant(world.now - cold.shift),
        world.up,
        world.declares,
        world.restart or cold.indifferent,
        world.open_stops,
        world.neglected,
        tuple(cold.row(row) for _, row in sorted(world.rows.items())),
        cold.marks(),
        tuple(sorted((cold.task(task) for task in world.agenda.tasks()), key=lambda each: each[0])),
        tuple(
            sorted(
                (task.name, cold.runs[run.number]) for task, run in world.runs.items() if not _is_replaced(world, task)
            )
        ),
        replaced,
        cold.agenda(world.agenda, reached) if world.up and not world.open_stops else None,
        cold.decision(decision),
        cold.monitor(world.monitor),
    )


def _is_replaced(world: World, task: Task) -> bool:
    replaced = world.replaced.by_name.get(task.name)
    return replaced is not None and replaced.task is task


# --- and back --------------------------------------------------------------------------------------------------------


def thaw(frozen: Frozen, instance: Instance) -> World:
    """A world that can go on from that value."""
    (now, up, declares, restart, open_stops, neglected, rows, marks, tasks, runs, replaced, agenda, decision, seen) = (
        frozen
    )
    world = World.__new__(World)
    world.now, world.instance = now, instance
    world.up, world.declares, world.restart = up, declares, restart
    world.open_stops, world.calls = open_stops, list(range(1, open_stops + 1))
    world.next_call = open_stops + 1
    world.neglected = neglected
    world.boots = 1
    world.rows = {row.name: row for row in rows}
    world.marks = {name: Mark(served, now) for name, served in marks}
    known = {each[0]: _task(each) for each in tasks}
    world.runs, world.replaced = {}, ReplacedRuns()
    for name, number in runs:
        task = known[name]
        assert isinstance(task.state, Running)
        world.runs[task] = Run(task, number, grounds_of(task.state.last_attempt_at), Call(world, 0.0, None, UTC))
    for name, withdrawn, number, awaited in replaced:
        task = _task(withdrawn)
        world.runs[task] = Run(task, number, grounds_of(now), Call(world, 0.0, None, UTC))
        world.replaced.by_name[name] = ReplacedRun(task, known[name] if awaited else None)
    due_lists: dict[tuple[RunsOn, int], tuple[DueList, int]] = {}
    if agenda is None:
        world.agenda = Agenda(UTC)
        finish(world.agenda.enter(known.values(), now))
    else:
        world.agenda = _agenda(agenda, known, due_lists)
    world.decision = None if decision is None else _decision(decision, known, world.agenda, due_lists)
    world.monitor = _monitor(seen, now, world)
    # Any number that is higher than all in use.
    world.next_run = world.next_generation = 100
    return world


def _task(frozen: Frozen) -> Task:
    name, text, delay, runs_on, generation, state, predecessor_runs = frozen
    task = Task(generation, name, EXPRESSIONS[text], delay, state, _CALLBACKS[name], runs_on)
    task.predecessor_runs = predecessor_runs
    return task


def _agenda(frozen: Frozen, known: dict[str, Task], due_lists: dict[tuple[RunsOn, int], tuple[DueList, int]]) -> Agenda:
    groups, calendar, timers, queues = frozen
    agenda = Agenda(UTC)
    tickets = count()
    agenda._tickets = tickets
    for text, members in groups:
        group = agenda._groups[text] = Group(EXPRESSIONS[text])
        for runs_on, (names, lost) in zip(_PLACES, members, strict=True):
            group.tasks[runs_on] = [known[name] for name in names]
            group.untouched[runs_on] = DueList((), group) if lost else None
    agenda.size = len(known)
    agenda._calendar = [(due, next(tickets), agenda._groups[text]) for due, text in calendar]
    agenda._timers = [(ripe, next(tickets), known[name], known[name].state) for ripe, name in timers]  # type: ignore[misc]
    for runs_on, queue in zip(_PLACES, queues, strict=True):
        for number, (since, text, whole, names, position, fresh, goal) in enumerate(queue):
            group = agenda._groups.get(text) or Group(EXPRESSIONS[text])
            due_list = DueList(group.tasks[runs_on] if whole else tuple(known[name] for name in names), group)
            due_list.position = position
            if fresh:
                group.untouched[runs_on] = due_list
            due_lists[runs_on, number] = (due_list, goal)
            agenda._queues[runs_on].append((since, next(tickets), due_list))
        heapify(agenda._queues[runs_on])
    return agenda


def _decision(
    frozen: Frozen, known: dict[str, Task], agenda: Agenda, due_lists: dict[tuple[RunsOn, int], tuple[DueList, int]]
) -> Decision:
    at, starts, requeue = frozen
    decision = Decision(at, Starts(Start(known[name], run, grounds) for name, run, grounds in starts))
    decision.progress = [(runs_on, due_list, goal) for (runs_on, _), (due_list, goal) in due_lists.items() if goal >= 0]
    for runs_on, since, text, names in requeue:
        decision.requeue[RunsOn(runs_on), since, agenda._groups[text]] = {known[name]: None for name in names}
    return decision


def _monitor(frozen: Frozen, now: Instant, world: World) -> Monitor:
    active, quiet, crashed, booted, restart, tasks = frozen
    registers = _MONITOR.registers  # worlds live one at a time, and building a monitor is most of the cost
    host = registers.hosts[ALONE]
    registers.tasks, host.inits = {}, {}
    registers.declared = host.running = host.threads_running = registers.digest = 0
    registers.overlapped.clear()
    host.active, host.quiet, host.crashed, host.epoch = active, quiet, crashed, 1
    registers.lives = {1: host}
    host.booted, registers.restart, host.boot, host.boot_at = booted, restart, "boot-1", now
    host.clock = registers.latest = now
    registers.minute = _ZONE.minute(now)
    registers.seq, host.boot_seq = len(world.calls), 0
    host.stops = {call: (call, now) for call in world.calls}
    registers.schedules = _SCHEDULES
    for name, generation, cron, served_through, retry_at, run, run_generation, alive, started, *flags in tasks:
        task = registers.tasks[name] = TaskRegisters(name)
        for flag, value in zip(_FLAGS, flags, strict=True):
            setattr(task, flag, value)
        task.generation, task.served_through, task.retry_at, task.run = generation, served_through, retry_at, run
        task.run_generation, task.started = run_generation, started
        task.epoch = host.epoch if alive else -1
        if cron:
            task.schedule = _SCHEDULES[cron]
            if task.declared:
                task.next_due = task.schedule.after(served_through)
                share = (name, generation, cron, task.delay_ms)
                if share not in _DIGESTS:
                    _DIGESTS[share] = digest_of_one(*share)
                registers.digest ^= _DIGESTS[share]
                registers.declared += 1
        if run is not None and alive:
            host.count_start(thread=task.run_on_thread)
    return _MONITOR


_MONITOR: Final = Monitor(bounded=False)
_CALLBACKS: Final = {each.name: each.callback for each in SETS["xy"]}
