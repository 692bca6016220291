"""The pure core in a small world: what the engine does with it, step by step, and what else can happen.

Nothing of the scheduler is modelled here. Resolution, agenda, decision, obligation, transitions and records are those
of `duly.core`; withdrawing, adopting and settling are those of `duly.engine.settle`. The world around is small:
a store that is a dictionary of records, callbacks that end when the search says so, a process that can die.

Every step gives the monitor of `duly.formal` the events that a store would have recorded, and the monitor judges them.
"""

from collections.abc import Iterable
from datetime import UTC
from typing import Any

from duly.core.agenda import Agenda, Decision, Slots, decide
from duly.core.changes import Ends, Starts
from duly.core.moments import Instant, Minute, minute_of
from duly.core.record import read_records
from duly.core.registration import Registrations
from duly.core.resolution import Mark, Resolution, remembered, resolve
from duly.core.steps import finish
from duly.core.task import (
    Cause,
    End,
    Grounds,
    Interrupted,
    Obligation,
    Running,
    Start,
    Task,
    corrected,
    interrupt,
)
from duly.engine.runner import Call, Run, failure, stamp
from duly.engine.settle import ReplacedRuns, Settlement
from duly.formal.monitor import Monitor
from duly.formal.trace import BT, IE, IS, NEW, ORPHANED, OVERRIDDEN, RE, RG, RS, SE, SS, Event
from tests.model.words import BASE, OPEN_STOPS_MAX, PERIOD, SETS, Instance, Move, Row


class Wrong(Exception):  # noqa: N818  no fault of the search, but what it looks for
    """A property does not hold."""

    def __init__(self, property_id: str, sentence: str) -> None:
        super().__init__(f"{property_id}: {sentence}")
        self.property = property_id


class World:
    """A scheduler's durable and volatile state, its surroundings, and the monitor that watches."""

    def __init__(self, instance: Instance) -> None:
        self.now = BASE
        self.instance = instance
        self.rows: dict[str, Row] = {}
        self.marks: dict[str, Mark] = {}
        self.up = False
        self.declares = ""
        self.restart = True
        self.open_stops = 0
        self.agenda = Agenda(UTC)
        self.decision: Decision | None = None
        """Decided, and its commit has not begun: the lock is held."""
        self.runs: dict[Task, Run] = {}
        self.replaced = ReplacedRuns()
        self.neglected = 0
        self.next_run = self.next_generation = self.next_call = 1
        self.boots = 0
        self.calls: list[int] = []
        self.monitor = Monitor(bounded=False)

    # --- what is observed --------------------------------------------------------------------------------------------

    def note(self, *events: Event) -> None:
        """Record events, in this order."""
        for event in events:
            for violation in self.monitor.step(event._replace(seq=self.monitor.seq + 1)):
                raise Wrong(violation.property, violation.sentence)

    # --- moves -------------------------------------------------------------------------------------------------------

    def moves(self) -> list[Move]:
        """The possible next events."""
        # A commit takes some time, but not for ever: while one is awaited the clock moves on once.
        waited = (
            self.neglected == self.instance.neglect_max and self._owes()
            if self.decision is None
            else self.decision.at < self.now
        )
        found = [] if waited else [Move("time passes")]
        if not self.up:
            found += [
                Move("boot", declares=each, restart=mode) for each in self.instance.sets for mode in (True, False)
            ]
            return found
        found += [
            Move("end", each, ok)
            for each in sorted(run.task.name for run in self.runs.values())
            for ok in (True, False)
            if ok or each in self.instance.fails
        ]
        found.append(Move("crash"))
        if self.open_stops < OPEN_STOPS_MAX:
            found.append(Move("stop"))
        if self.open_stops:
            if not self.runs:
                found.append(Move("stop completes"))
        elif self.decision is not None:
            found.append(Move("commit"))
        else:
            found.append(Move("look"))
            others = [each for each in self.instance.sets if each != self.declares]
            found += [Move("initialize", declares=each) for each in others]
            found += [Move("overtaken", declares=each) for each in others]
        return found

    def make(self, move: Move) -> None:
        """Make a move. Raises Wrong if a property does not hold afterwards."""
        match move.what:
            case "time passes":
                if self.decision is None:
                    self.neglected = self.neglected + 1 if self._owes() else 0
                self.now = self._next_instant()
            case "look":
                self.neglected = 0
                self.look()
            case "commit":
                self.commit()
            case "end":
                self.end(move.task, ok=move.ok)
            case "crash":
                self._go_down()
            case "boot":
                self.boot(move.declares, restart=move.restart)
            case "initialize":
                call = self._called(IS)
                self.change(call, move.declares)
            case "overtaken":
                call = self._called(IS)
                self.stop()
                self.change(call, move.declares)
            case "stop":
                self.stop()
            case _:  # a stop completes
                self.note(*(SE(0, self.now, call) for call in self.calls))
                self._go_down()

    def _owes(self) -> bool:
        return self.up and any(self.monitor.obligations(self.now))

    def _next_instant(self) -> Instant:
        """The next instant at which anything can change: a due minute of any expression, a retry, a resumption."""
        due = Instant(self.now - self.now % (PERIOD // 2) + PERIOD // 2)
        timers = [row.pending_retry_until for row in self.rows.values()]
        timers += [getattr(task.state, "resume_at", None) for task in self.agenda.tasks()]
        return min([due, *(Instant(each) for each in timers if each is not None and each > self.now)])

    def _go_down(self) -> None:
        self.up = False
        self.declares = ""
        self.restart = True
        self.open_stops = self.neglected = 0
        self.calls = []
        self.decision = None
        self.agenda = Agenda(UTC)
        self.runs, self.replaced = {}, ReplacedRuns()

    def _called(self, kind: type[IS] | type[SS]) -> int:
        call, self.next_call = self.next_call, self.next_call + 1
        self.note(kind(0, self.now, call))
        return call

    # --- starts and ends ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        """One poll of the loop, up to the commit of what it finds."""
        finish(self.agenda.queue_due(self.now))
        while self.agenda.waiting:
            decision = decide(self.agenda, self.now, Slots(), limit=5_000, first_run=self.next_run)
            if not decision.evaluated:
                break
            self.next_run += decision.starts.count
            if decision.starts.count:
                self.decision = decision
                break
            self.agenda.apply(decision, Starts())

    def commit(self) -> None:
        """The decision becomes durable, with its clock sample, and is applied to the agenda."""
        assert self.decision is not None
        decision, self.decision = self.decision, None
        for start in decision.starts.singles():
            self._write_start(start)
            task, run, grounds = start
            self.note(RS(0, grounds.at, task.name, task.generation, run, grounds.cause.value, len(self.runs)))
            self.runs[task] = Run(task, run, grounds, Call(self, 0.0, None, UTC))
        self.agenda.apply(decision, decision.starts)

    def _write_start(self, start: Start) -> None:
        task, run, grounds = start
        after = grounds.after
        repeats = grounds.cause is not Cause.CRON
        self.rows[task.name] = self.rows[task.name]._replace(
            served_through=after.served_through,
            last_attempt_at=after.last_attempt_at,
            pending_retry_until=after.pending_retry_until,
            interruptions=after.interruptions,
            run=run,
            run_cause=grounds.cause.value,
            run_scheduled=grounds.scheduled,
            first_started_at=after.obligation.first_started_at if repeats else None,
            first_scheduled=after.obligation.scheduled if repeats else None,
            attempt=after.obligation.attempt if repeats else None,
        )

    def end(self, name: str, *, ok: bool) -> None:
        """A callback is over, and its end is durable."""
        run = next(each for each in self.runs.values() if each.task.name == name)
        ends, at = Ends(), stamp(self.now, run.grounds)
        ends.add(End(run.task, run.number, run.grounds, at) if ok else failure(run, RuntimeError("failed"), at))
        (end,) = ends.singles()
        row = self.rows.get(name)
        if row is not None and row.generation == run.task.generation:
            self.rows[name] = row._replace(
                pending_retry_until=end.pending_retry_until,
                failures=end.failures,
                interruptions=0,
                run=None,
                run_cause=None,
                run_scheduled=None,
                last_success_at=end.at if ok else row.last_success_at,
                last_failure_at=row.last_failure_at if ok else end.at,
                first_started_at=None if ok else end.grounds.obligation.first_started_at,
                first_scheduled=None if ok else end.grounds.obligation.scheduled,
                attempt=None if ok else end.grounds.obligation.attempt,
            )
        self.note(RE(0, end.at, name, run.task.generation, run.number, ok))
        around: Any = _Surroundings(self)
        finish(Settlement(around, self.agenda, around, self.replaced, around, around).steps(ends))

    # --- calls -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop was called: what is decided and not being committed is withdrawn."""
        self.open_stops += 1
        self.calls.append(self._called(SS))
        self.decision = None
        self.neglected = 0

    def boot(self, declares: str, *, restart: bool) -> None:
        """A process opens the store and initialises."""
        self.boots += 1
        self.up, self.declares, self.restart = True, declares, restart
        minute = minute_of(self.now, UTC)
        stored: dict[str, Task] = {}
        for record in read_records(self.rows.values()):
            state = record.state
            if isinstance(state, Running):
                state = interrupt(state, self.now, record.delay, restart=restart)
            state = corrected(remembered(state, self.marks.get(record.name)), self.now, minute, record.delay)
            known = next(each for each in SETS["xy"] if each.name == record.name)
            stored[record.name] = Task(
                record.generation, record.name, record.expression, record.delay, state, known.callback, known.runs_on
            )
        resolution = self._resolve(declares, stored)
        self.note(BT(0, self.now, f"boot-{self.boots}", 0))
        call = self._called(IS)
        self._replace(resolution, call)
        in_force = resolution.preserved.tasks + resolution.added
        in_force += [each.new for each in resolution.overridden]
        finish(self.agenda.enter(in_force, self.now))

    def change(self, call: int, declares: str) -> None:
        """A running scheduler is re-initialised."""
        resolution = self._resolve(declares, {task.name: task for task in self.agenda.tasks()})
        self.declares = declares
        self._replace(resolution, call)
        gone = [each.task for each in resolution.orphaned] + [each.old for each in resolution.overridden]
        arrived = resolution.added + [each.new for each in resolution.overridden]
        self.replaced.withdraw(gone)
        self.replaced.adopt(arrived)
        finish(self.agenda.leave(gone))
        finish(self.agenda.enter(arrived, self.now))

    def _resolve(self, declares: str, stored: dict[str, Task]) -> Resolution:
        def new_generation() -> int:
            generation, self.next_generation = self.next_generation, self.next_generation + 1
            return generation

        declared = Registrations(SETS[declares])
        return finish(
            resolve(declared, stored, now=self.now, zone=UTC, new_generations=new_generation, marks=self.marks)
        )

    def _replace(self, resolution: Resolution, call: int) -> None:
        """Apply an initialize in one transaction, and record it."""
        self.marks.update(resolution.marks)
        changes = [(each.task, ORPHANED) for each in resolution.orphaned]
        changes += [(each.new, OVERRIDDEN) for each in resolution.overridden]
        changes += [(task, NEW) for task in resolution.added]
        for task, change in changes:
            if change == ORPHANED:
                del self.rows[task.name]
            else:
                self.rows[task.name] = Row(
                    task.generation, task.name, task.expression.text, task.delay, self.now, task.state.served_through
                )
            self.note(
                RG(
                    0, self.now, task.name, task.generation, change, task.expression.text, task.delay, "UTC", self.now,
                    task.runs_on.value,
                )
            )  # fmt: skip
        mode = "restart" if self.restart else "wait"
        self.note(IE(0, self.now, call, len(self.rows), "", mode, None, None, "UTC"))

    # --- what must be so in every state ------------------------------------------------------------------------------

    def rehearse(self) -> None:
        """Check that the scheduler would start now what the monitor calls owed; the world cannot be used afterwards."""
        owed = set(self.monitor.obligations(self.now))
        if not self.up or self.decision is not None:
            return
        if self.open_stops:
            if owed:
                raise Wrong("decision", f"{sorted(owed)} owed although a stop is open")
            return
        starts: set[str] = set()
        finish(self.agenda.queue_due(self.now))
        while self.agenda.waiting:
            decision = decide(self.agenda, self.now, Slots(), limit=5_000, first_run=self.next_run)
            if not decision.evaluated:
                break
            for start in decision.starts.singles():
                if start.task.name in starts:
                    raise Wrong("decision", f"{start.task.name} would start twice")
                starts.add(start.task.name)
            self.agenda.apply(decision, decision.starts)
        if starts != owed:
            raise Wrong("decision", f"would start {sorted(starts)}, and {sorted(owed)} is owed")

    def check_store(self) -> None:
        """Check that memory and store agree."""
        for record in read_records(self.rows.values()):
            task = next((each for each in self.agenda.tasks() if each.name == record.name), None)
            if self.up and task is None:
                raise Wrong("store", f"{record.name} is stored, and not in force")
            stored = remembered(record.state, self.marks.get(record.name))
            if task is not None and not isinstance(task.state, Interrupted) and task.state != stored:
                raise Wrong("store", f"{record.name} is {task.state} in memory and {stored} in the store")


class _Surroundings:
    """The parts that a settlement asks: setup, clock, outbox, runner, gate and traffic."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.clock = self.outbox = self
        self.host = None
        self.end_lies_ahead = False

    def now(self) -> int:
        return self._world.now

    def wants(self, kind: object) -> bool:
        return False

    def emit(self, event: object) -> None: ...

    def release(self, tasks: Iterable[Task]) -> list[Run]:
        return [self._world.runs.pop(task) for task in tasks]


def grounds_of(at: Instant) -> Grounds:
    """The grounds of a run that goes on, as far as its end asks for them: when it started."""
    return Grounds(
        Cause.CRON, at, at, at, 0, False, Running(Minute(0), at, None, None, None, 0, 0, Obligation(at, at, 1))
    )
