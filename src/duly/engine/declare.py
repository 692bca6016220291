"""One initialize(): check, load, resolve, commit, put in force; or leave everything as it was.

A first call opens the store and makes an engine, a later one changes the engine that runs. Both go through the steps of
`Initialization.take_effect`. What differs stands in `OpenedStore` and `HeldEngine`, method beside method:

                    first call: OpenedStore               later call: HeldEngine
    hold            open the store                        hold the loop: nothing is decided meanwhile
    load            tasks from stored rows                tasks of the agenda
    boot_rows       a process has opened the store        (no row)
    before_commit   (nothing was noted before)            the call itself is on record
    replacement     with corrections and registers        only if anything changes
    put_in_force    a new agenda in a new engine          the agenda of the running engine changes
"""

import contextlib
from array import array
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

from duly.clock import Clock
from duly.core.agenda import Agenda
from duly.core.moments import MICROSECONDS, Instant, minute_of, zone_name
from duly.core.names import Names
from duly.core.record import EqualRows, EqualTasks, read_equal, read_found
from duly.core.registration import Registration, Registrations, RunsOn, read_registrations, snapshot
from duly.core.resolution import (
    NO_MARKS,
    Mark,
    Preserved,
    Resolution,
    counts,
    difference,
    in_force,
    lowered_marks,
    recent_marks,
    remembered,
    resolve,
)
from duly.core.steps import STEP_TASKS, Steps
from duly.core.stored_order import StoredOrder
from duly.core.task import AwaitingRun, Correction, Running, Task, TaskState, corrected, interrupt
from duly.core.zones import is_zone
from duly.engine import announce
from duly.engine.calls import Calls
from duly.engine.engine import Engine
from duly.engine.pacing import paced
from duly.engine.setup import Setup
from duly.engine.trace import Trace, declaration_rows, registers_of
from duly.errors import (
    ScheduleTaskError,
    StoreError,
    TaskInvalidValueError,
    TaskListMismatchError,
    TaskTryDeserializeError,
)
from duly.events import (
    HostZoneChanged,
    SchedulerInitializationCompleted,
    SchedulerInitializationStarted,
    SchedulerReinitializationCompleted,
    SchedulerReinitializationStarted,
)
from duly.formal.trace import BT, row_of
from duly.stores.port import Persisted, Replacement, Store, TraceRow, TraceRows

if TYPE_CHECKING:
    from duly.formal.registers import RegisterSnapshot


class Effect(NamedTuple):
    """The changes of one initialize()."""

    engine: Engine
    resolution: Resolution
    zone: tzinfo
    zone_before: str | None  # the host's zone when the store was last used
    first: bool


class Initialization:
    """One call of initialize(), from its raw argument to tasks in force."""

    def __init__(self, setup: Setup, calls: Calls, call: int, argument: object, *, standing_by: bool = False) -> None:
        self.standing_by = standing_by
        """A store that another scheduler holds is expected, and no event."""
        self.committing = False
        """The transaction has begun: the call goes through to its end, even without its caller."""
        self._setup = setup
        self._clock = setup.clock
        self._outbox = setup.outbox
        self._calls = calls
        self._call = call
        # As it is now: the work begins a round of the event loop later, and the caller may use its list again.
        self._argument = tuple(argument) if isinstance(argument, list | tuple) else argument
        self._declared = Registrations()

    async def check(self) -> None:
        """Check the argument, registration by registration; the first failure is raised (SPEC 1.4)."""
        argument, self._argument = self._argument, ()  # a million tuples less to visit for the garbage collector
        self._declared = await checked(self._clock, argument)

    async def take_effect(self, engine: Engine | None, identifier: str) -> Effect:
        """Make the declared tasks the ones that run; nothing has changed if this raises."""
        first, total = engine is None, self._declared.count
        started = SchedulerInitializationStarted(total) if first else SchedulerReinitializationStarted(total)
        if not self.standing_by:
            self._outbox.emit(started)
        ground: OpenedStore | HeldEngine
        if engine is None:
            ground = OpenedStore(self._setup, self._calls, self._call, self._declared, identifier)
        else:
            ground = HeldEngine(engine, self._calls, self._call, self._declared)
        async with ground.hold() as now:
            if self.standing_by:
                self._outbox.emit(started)
            loaded = await ground.load(now)
            resolution = await self._resolve(ground, loaded, now)
            rows = await self._trace_rows(ground, resolution)
            await ground.before_commit()
            self.committing = True
            if (replacement := ground.replacement(resolution, rows)) is not None:
                await _replace(self._setup.embedded, replacement, ground.next_number())
            if ground.trace is not None:
                ground.trace.became_durable(rows)
            engine = await ground.put_in_force(resolution, loaded)
        return Effect(engine, resolution, ground.zone, ground.zone_before, first)

    async def announce(self, effect: Effect) -> None:
        """Announce what has changed, task by task, and that the call is complete."""
        zone, total = zone_name(effect.zone), self._declared.count
        if effect.zone_before is not None and not is_zone(effect.zone, effect.zone_before, effect.resolution.now):
            self._outbox.emit(HostZoneChanged(effect.zone_before, zone))
        steps = announce.declarations(
            self._outbox, effect.resolution, effect.zone, effect.engine.identifiers, first=effect.first
        )
        await paced(self._clock, steps, steps_between_clock_reads=STEP_TASKS)
        if effect.first:
            self._outbox.emit(SchedulerInitializationCompleted(total, total, 0))
        else:
            skipped = effect.resolution.preserved.count
            self._outbox.emit(SchedulerReinitializationCompleted(total, total - skipped, skipped))
        if effect.engine.member is None:  # a host of a shared store may have to compare again
            await paced(self._clock, self._declared.known.clear())  # in steps: a million names go for milliseconds

    # --- steps that first and later calls share ----------------------------------------------------------------------

    async def _resolve(self, ground: "OpenedStore | HeldEngine", loaded: "Existing", now: Instant) -> Resolution:
        resolution = await paced(
            self._clock,
            resolve(
                self._declared,
                loaded.others,
                now=now,
                zone=ground.zone,
                new_generations=ground.generations.__next__,
                take_over=ground.first,
                marks=ground.marks,
                order=loaded.order,
                preserved=loaded.preserved,
            ),
        )
        if self._setup.options.on_mismatch == "refuse" and loaded.count and resolution.changes_tasks:
            raise TaskListMismatchError(**difference(resolution))
        return resolution

    async def _trace_rows(self, ground: "OpenedStore | HeldEngine", resolution: Resolution) -> list[TraceRow]:
        if ground.trace is None:
            return []
        steps = declaration_rows(
            self._setup, resolution, ground.zone, call=ground.call, noted=ground.is_noted, first=ground.first
        )
        rows = await paced(self._clock, steps, steps_between_clock_reads=STEP_TASKS)
        return [*ground.boot_rows(), *rows]


async def checked(clock: Clock, argument: object) -> Registrations:
    """The registrations that an argument of initialize() holds; raises the first failure of their checks (SPEC 1.4)."""
    return await paced(clock, read_registrations(snapshot(argument)))


async def _replace(store: Store, replacement: Replacement, number: int) -> None:
    """Have the store apply a replacement, or raise an error that names the first task it would have changed."""
    try:
        try:
            await store.replace(replacement, number)
        except StoreError:
            # A commit can succeed and still report a fault. Under the same number nothing happens twice.
            try:
                await store.replace(replacement, number)
            except StoreError:
                if not await _has_replaced(store, number):
                    raise
    except Exception as cause:
        first = replacement.resolution.first_changed()
        if first is None:
            raise
        raise ScheduleTaskError(*first, cause) from cause


async def _has_replaced(store: Store, number: int) -> bool:
    """Whether the replacement is in the store after all; False if the store cannot even be asked."""
    with contextlib.suppress(StoreError):
        return await store.has_replaced(number)
    return False


@dataclass(frozen=True, slots=True)
class Existing:
    """The tasks that were there before, in the order of the store; without callbacks if they were just loaded."""

    others: dict[str, Task]
    """Tasks that are still to be compared with what is declared, by name."""

    preserved: Preserved | None = None
    """Tasks that are known to be declared as they are stored."""

    order: StoredOrder | None = None
    """The order in which the registrations of preserved tasks were found."""

    preserved_count: int = 0
    """How many tasks these were; resolving adds to them."""

    @property
    def count(self) -> int:
        """How many tasks there were."""
        return self.preserved_count + len(self.others)

    def tasks(self) -> Iterator[Task]:
        """All tasks."""
        if self.preserved is not None:
            yield from islice(self.preserved.tasks, self.preserved_count)
        yield from self.others.values()


# --- a first call ----------------------------------------------------------------------------------------------------


class OpenedStore:
    """The beginning of a first call: the store, opened, and its content."""

    first = True
    is_noted = False
    """Whether the trace has the call already."""

    def __init__(self, setup: Setup, calls: Calls, call: int, declared: Registrations, identifier: str) -> None:
        self.call = calls.goes_first(call)
        self.zone = setup.clock.zone()
        self.zone_before: str | None = None
        self.trace: Trace | None = None
        self.generations = count(1)
        self.marks: Mapping[str, Mark] = NO_MARKS
        self._setup = setup
        self._calls = calls
        self._declared = declared
        self._identifier = identifier
        self._now = Instant(setup.clock.now())
        self._persisted: Persisted
        self._correction: Correction | None = None
        self._registers: RegisterSnapshot | None = None

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[Instant]:
        """Open the store; close it again if the call fails."""
        store = self._setup.embedded
        self._persisted = await store.open(self._identifier, self._now)
        try:
            self.generations = count(self._persisted.next_generation)
            self.zone_before = self._persisted.zone
            minute = minute_of(self._now, self.zone)
            lowered = lowered_marks(self._persisted.marks, self._now, minute)
            if lowered is not self._persisted.marks:
                self._correction = Correction(self._now, minute)
            self.marks = recent_marks(lowered, self._now)
            yield self._now
        except BaseException:
            await store.close()
            raise

    async def load(self, now: Instant) -> Existing:
        """Make tasks of the stored rows, and begin a trace of them if one is wanted."""
        options, clock = self._setup.options, self._setup.clock
        loading = Loading(self._declared, self._persisted.marks, now, self.zone, restart=options.restarts_interrupted)
        loaded = await paced(clock, loading.load(self._persisted.records))
        if loading.too_far_ahead:
            self._correction = Correction(now, minute_of(now, self.zone))
        if options.observed:
            tasks = await paced(clock, _by_name(loaded.tasks()))
            self._registers = registers_of(tasks, self.marks, loading.runs, self._declared, self.zone)
            self.trace = Trace(self._setup, self._registers)
        return loaded

    def boot_rows(self) -> list[TraceRow]:
        """A process has opened the store."""
        elapsed = int(self._setup.clock.elapsed() * MICROSECONDS)
        return [row_of(BT(0, self._now, f"{self._identifier}/{self.call}", elapsed))]

    async def before_commit(self) -> None:
        """Nothing was noted before this call."""

    def replacement(self, resolution: Resolution, rows: Sequence[TraceRow]) -> Replacement:
        """All that is declared, what a step back of the clock corrects, and the registers from which a trace begins."""
        trace = TraceRows(rows, self._registers) if self._setup.options.trace else None
        return Replacement(resolution, self._correction, zone_name(self.zone), self._now, trace)

    def next_number(self) -> int:
        """The number of the first write."""
        return self._persisted.next_number

    async def put_in_force(self, resolution: Resolution, loaded: Existing) -> Engine:
        """Make an engine for the declared tasks."""
        setup, persisted, now = self._setup, self._persisted, self._now
        agenda = Agenda(self.zone, persisted.scheduler_key)
        agenda.marks = {**self.marks, **resolution.marks}
        await paced(setup.clock, agenda.enter(in_force(resolution, loaded.tasks(), persisted.scheduler_key), now))
        after = persisted._replace(
            records=(),
            identifiers={**persisted.identifiers, persisted.scheduler_key: self._identifier},
            next_number=persisted.next_number + 1,
        )
        engine = Engine(setup, agenda, after, self.generations, self.trace, self._calls.open_stops, setup.embedded)
        engine.loop.wall.accept(now, self.zone, polled=False)
        self._calls.engine_begins(engine.journal)
        return engine


class Loading:
    """Makes tasks of stored rows, and resolves at once those whose registrations it finds in their order."""

    def __init__(
        self, declared: Registrations, marks: Mapping[str, Mark], now: Instant, zone: tzinfo, *, restart: bool
    ) -> None:
        self.runs: dict[str, int] = {}
        """Numbers of the runs that a crash interrupted, by task name."""
        self.too_far_ahead = False
        """Whether a state was corrected, because the clock was set back since it was stored."""
        self._declared = declared
        self._marks = marks
        self._now = now
        self._minute = minute_of(now, zone)
        self._restart = restart

    def load(self, records: Sequence[EqualRows]) -> Steps[Existing]:
        """The tasks of all records; raises the error of the first bad one (SPEC 5.5)."""
        try:
            return (yield from self._load(records))
        except TaskTryDeserializeError:
            # An earlier row may be as bad: names that are found in their order are not compared with each other.
            for _ in read_equal(records):
                yield
            raise

    def _load(self, records: Sequence[EqualRows]) -> Steps[Existing]:
        if not records:
            return Existing({})
        preserved = Preserved(self._declared)
        others: dict[str, Task] = {}
        order = yield from StoredOrder.of(self._declared)
        for stored, found in read_found(records, order.find):
            state = self._present(stored)
            for first in range(0, len(stored.names), STEP_TASKS):
                some = slice(first, first + STEP_TASKS)
                if found is None:
                    tasks = self._undeclared_tasks(stored, state, some)
                    others.update(zip(stored.names[some], tasks, strict=True))
                else:
                    tasks = self._declared_tasks(stored, state, some, found[some])
                    preserved.extend(tasks, found[some], state)
                if self._marks:
                    self._remember_marks(tasks, state)
                yield
        yield from self._check_names(others, order)
        return Existing(others, preserved, order, preserved.count)

    def _present(self, stored: EqualTasks) -> TaskState:
        """The state of stored tasks, now that the process that wrote it is gone."""
        state = stored.state
        if isinstance(state, Running):
            # The process that ran it is gone: this scheduler alone holds the store.
            state = interrupt(state, self._now, stored.delay, restart=self._restart)
        right = corrected(state, self._now, self._minute, stored.delay)
        self.too_far_ahead |= right is not state
        if stored.run is not None:
            self.runs.update(dict.fromkeys(stored.names, stored.run))
        return right

    def _undeclared_tasks(self, stored: EqualTasks, state: TaskState, some: slice) -> list[Task]:
        """Tasks that wait for their registrations."""
        _, _, expression, delay, _, _, written_by = stored
        return [
            Task(generation, name, expression, delay, state, _undeclared, RunsOn.LOOP, written_by)
            for generation, name in zip(stored.generations[some], stored.names[some], strict=True)
        ]

    def _declared_tasks(self, stored: EqualTasks, state: TaskState, some: slice, indices: "array[int]") -> list[Task]:
        """Tasks with their registrations, whose indices these are."""
        _, _, expression, delay, _, _, written_by = stored
        # The name of the registration: the stored one is a second copy.
        names, callbacks, runs_on = self._declared.names, self._declared.callbacks, self._declared.runs_on
        return [
            Task(generation, names[index], expression, delay, state, callbacks[index], runs_on[index], written_by)
            for generation, index in zip(stored.generations[some], indices, strict=True)
        ]

    def _remember_marks(self, tasks: Iterable[Task], state: TaskState) -> None:
        """Tasks that never started remember what earlier declarations of their names have served."""
        if not isinstance(state, AwaitingRun) or state.last_attempt_at is not None:
            return
        for task in tasks:
            if (mark := self._marks.get(task.name)) is not None:
                now = self._now
                task.state = _recent(corrected(remembered(state, mark), now, self._minute, task.delay), now)
                self.too_far_ahead |= task.state.served_through != state.served_through

    def _check_names(self, others: Mapping[str, Task], order: StoredOrder) -> Steps[None]:
        """Check that no name is stored twice: found in its order, and elsewhere again."""
        if not others:
            return
        remaining = Names()
        for indices in order.remaining():
            for first in range(0, len(indices), STEP_TASKS):
                remaining.add_new([self._declared.names[index] for index in indices[first : first + STEP_TASKS]])
                yield
        for index, name in enumerate(others):
            if name in self._declared.known and name not in remaining:
                raise TaskInvalidValueError("name", name, "appears twice", task=name)
            if index % STEP_TASKS == 0:
                yield


def _recent(state: TaskState, now: Instant) -> TaskState:
    """A state that no longer remembers what an earlier declaration served more than a day ago (SPEC 5.1)."""
    if isinstance(state, AwaitingRun) and state.served_before is not None and not counts(state.served_before, now):
        return replace(state, served_before=None)
    return state


def _undeclared() -> None:
    """The callback of a stored task until its registration gives it one; never called."""


# --- a later call ----------------------------------------------------------------------------------------------------


class HeldEngine:
    """The beginning of a later call: the running engine, held still. Callbacks end meanwhile, and are recorded."""

    first = False

    def __init__(self, engine: Engine, calls: Calls, call: int, declared: Registrations) -> None:
        self.call = call
        self.is_noted = calls.is_noted(call)
        self.zone = engine.setup.clock.zone()
        self.zone_before = zone_name(engine.agenda.zone)
        self.trace = engine.trace
        self.generations = engine.generations
        self.marks: Mapping[str, Mark] = NO_MARKS
        self._setup = engine.setup
        self._calls = calls
        self._declared = declared
        self._engine = engine
        self._moved = zone_name(self.zone) != self.zone_before

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[Instant]:
        """Hold the loop; an error of the store names the first task that is declared."""
        engine = self._engine
        try:
            async with engine.loop.held():
                now = Instant(self._setup.clock.now())
                engine.loop.wall.accept(now, engine.agenda.zone, polled=engine.gate.loop_task is not None)
                self.marks = engine.agenda.marks
                yield now
        except StoreError as cause:
            if not self._declared.count:
                raise
            name, expression = self._declared.names[0], self._declared.expressions[0]
            raise ScheduleTaskError(name, expression.text, cause) from cause

    async def load(self, now: Instant) -> Existing:
        """The tasks of the agenda."""
        return Existing(await paced(self._setup.clock, _by_name(self._engine.agenda.tasks())))

    def boot_rows(self) -> list[TraceRow]:
        """The process has been there before."""
        return []

    async def before_commit(self) -> None:
        """Have the call itself on record before what comes of it."""
        await self._engine.journal.flush_notes()

    def replacement(self, resolution: Resolution, rows: Sequence[TraceRow]) -> Replacement | None:
        """All that changes; None if the same tasks are declared again and no trace says so."""
        trace = TraceRows(rows) if self._setup.options.trace else None
        if not (resolution.changes_tasks or self._moved or trace is not None):
            return None
        return Replacement(resolution, None, zone_name(self.zone), resolution.now, trace)

    def next_number(self) -> int:
        """The number after the last write."""
        return self._engine.journal.next_number()

    async def put_in_force(self, resolution: Resolution, loaded: Existing) -> Engine:
        """Change the agenda of the running engine, and wake the loop."""
        self._calls.took_effect(self.call)
        engine, clock, now = self._engine, self._setup.clock, resolution.now
        agenda = engine.agenda
        gone = [each.task for each in resolution.orphaned] + [each.old for each in resolution.overridden]
        arrived = resolution.added + [each.new for each in resolution.overridden]
        # Without a pause: an end that settles in between must find either the old order or the new one.
        engine.replaced.withdraw(gone)
        engine.replaced.adopt(arrived)
        agenda.marks = recent_marks({**self.marks, **resolution.marks}, now)
        for name in self.marks.keys() - agenda.marks.keys():
            if (task := loaded.others.get(name)) is not None:
                task.state = _recent(task.state, now)
        await paced(clock, agenda.leave(gone), steps_between_clock_reads=STEP_TASKS)
        await paced(clock, agenda.enter(arrived, now))
        elsewhere = await paced(clock, _call_the_newest(resolution), steps_between_clock_reads=STEP_TASKS)
        # What is called and where it runs change together: a durable start may be launched in any pause.
        for task, registration in elsewhere:
            task.callback = registration.callback
        agenda.change_queue([(task, registration.runs_on) for task, registration in elsewhere], now)
        for task in arrived:
            task.written_by = engine.key
        if self._moved:
            await paced(clock, agenda.rebuild(now, zone=self.zone))
        engine.gate.wake.set()
        return engine


def _by_name(tasks: Iterable[Task]) -> Steps[dict[str, Task]]:
    found: dict[str, Task] = {}
    for index, task in enumerate(tasks):
        found[task.name] = task
        if index % STEP_TASKS == 0:
            yield
    return found


def _call_the_newest(resolution: Resolution) -> Steps[list[tuple[Task, Registration]]]:
    """Give preserved tasks their newest callbacks; returns those whose callback now runs elsewhere, unchanged."""
    elsewhere: list[tuple[Task, Registration]] = []
    for task, registration in resolution.preserved.pairs():
        if task.runs_on is registration.runs_on:
            task.callback = registration.callback
        else:
            elsewhere.append((task, registration))
        yield
    return elsewhere
