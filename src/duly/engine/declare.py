"""One call of initialize(): validate, load, resolve, commit, put in force; or leave everything as it was."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, tzinfo
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from duly.clock import in_slices
from duly.core.agenda import Agenda
from duly.core.moments import Instant, as_datetime, minute_of, zone_name
from duly.core.record import EqualRows, read_equal
from duly.core.registration import Registration, Registrations, RunsOn, read_registrations, snapshot
from duly.core.resolution import Resolution, configuration, difference, in_force, resolve
from duly.core.steps import STEP_TASKS, Steps
from duly.core.task import Correction, Interrupted, Running, Task, TaskState, corrected, interrupt
from duly.engine.loop import Loop
from duly.engine.trace import Observer, boot_rows, initialization_rows, registers_of
from duly.errors import DulyError, ScheduleTaskError, StoreError, TaskListMismatchError
from duly.events import (
    HostZoneChanged,
    PropertyViolated,
    SchedulerInitializationCompleted,
    SchedulerInitializationFailed,
    SchedulerInitializationStarted,
    SchedulerReinitializationCompleted,
    SchedulerReinitializationFailed,
    SchedulerReinitializationStarted,
    TaskAdded,
    TaskInterrupted,
    TaskOrphaned,
    TaskOverridden,
    TaskPreserved,
    TaskScheduled,
    TaskSkipped,
)
from duly.stores.port import Replacement, Store, TraceRow, TraceRows

if TYPE_CHECKING:
    from duly.formal.registers import RegisterSnapshot
    from duly.formal.verdicts import Violation
    from duly.scheduler import Scheduler

T = TypeVar("T")


class Phase(Enum):
    """How far a call has come."""

    PREPARING = "nothing has changed yet; may be cancelled"
    COMMITTING = "the transaction is under way; goes through to its end"


class Initialization:
    """One call of initialize(), from its raw argument to tasks in force."""

    def __init__(self, scheduler: "Scheduler", registrations: object) -> None:
        self.phase = Phase.PREPARING
        self._scheduler = scheduler
        self._sink = scheduler._sink
        self._clock = scheduler._host.clock
        # As it is now: the work begins a round of the event loop later, and the caller may use its list again.
        self._argument = tuple(registrations) if isinstance(registrations, list | tuple) else registrations
        self._loop: Loop | None = None
        self._call = scheduler._new_call()
        self._told_in: Loop | None = None
        scheduler._open_calls[self._call] = self
        if scheduler._loop is not None:
            self.tell(scheduler._loop)

    def tell(self, loop: Loop) -> None:
        """Have this call on record in a loop's trace, from the moment it was made."""
        self._told_in = loop
        loop.calls.initialize(self._call)

    def begin(self) -> None:
        """Let the loop look for the first time; on a running scheduler it never stopped looking."""
        if self._loop is not None:
            self._loop.start()

    def begin_unless_failed(self, work: "asyncio.Task[None]") -> None:
        """The same for a call whose caller is gone."""
        if not work.cancelled() and work.exception() is None:
            self.begin()

    def over(self, previous: "asyncio.Future[None] | None", turn: "asyncio.Future[None]") -> None:
        """The call has returned, raised, or never begun: those behind it may go on."""
        loop = self._scheduler._loop
        if loop is not None and self._is_known():
            loop.calls.failed(self._call, "CancelledError")  # unless it has been told otherwise
        self._scheduler._open_calls.pop(self._call, None)
        hand_on(previous, turn)

    async def perform(self, previous: "asyncio.Future[None] | None") -> None:
        """Validate; wait for the calls before; then load, resolve and replace, or leave everything as it was."""
        try:
            registrations = await self._through(read_registrations(snapshot(self._argument)))
            if previous is not None:
                await asyncio.shield(previous)
            if self._scheduler._loop is None:
                self._loop = await self._first(registrations)
            else:
                await self._again(self._scheduler._loop, registrations)
        except BaseException as error:
            loop = self._scheduler._loop
            if loop is not None:
                self._note_failure(loop, error)
            kind = SchedulerInitializationFailed if loop is None else SchedulerReinitializationFailed
            self._sink.emit(kind(type(error).__name__, str(error)))
            raise
        finally:
            self._sink.flush()

    def _note_failure(self, loop: Loop, error: BaseException) -> None:
        if not self._is_known():
            loop.calls.initialize(self._call)
        loop.calls.failed(self._call, type(error).__name__)

    def _is_known(self) -> bool:
        """Whether the trace has this call, and it is open there; the loop in which it was told may have ended since."""
        return self._told_in is not None and self._told_in is self._scheduler._loop

    async def _through(self, steps: Steps[T], *, steps_between_clock_reads: int = 1) -> T:
        return await in_slices(self._clock, steps, steps_between_clock_reads=steps_between_clock_reads)

    # --- the first ---------------------------------------------------------------------------------------------------

    async def _first(self, registrations: Registrations) -> Loop:
        scheduler = self._scheduler
        self._sink.emit(SchedulerInitializationStarted(registrations.count))
        scheduler._open_calls.pop(self._call, None)
        if self._told_in is not None:
            self._call = scheduler._new_call()  # the trace of that loop is closed, and so is this call in it
        if scheduler._identifier is None:
            scheduler._identifier = scheduler._host.new_identifier()
        zone, now = self._clock.zone(), Instant(self._clock.now())
        persisted = await scheduler._store.open(scheduler._identifier, now)
        try:
            scheduler._take_over(persisted)
            loaded = await self._through(_load(persisted.records, now, zone, restart=scheduler._restart_interrupted))
            stored = loaded.tasks
            correction = Correction(now, minute_of(now, zone)) if loaded.too_far_ahead else None
            registers = self._watch(loaded, registrations, zone)
            resolution = await self._resolve(registrations, stored, now, zone, take_over=True)
            boot = boot_rows(now, f"{scheduler._identifier}/{self._call}", self._clock.elapsed()) if registers else []
            rows = await self._rows(resolution, zone, boot)
            self.phase = Phase.COMMITTING
            trace = TraceRows(rows, registers) if scheduler._trace else None
            replacement = Replacement(resolution, correction, zone_name(zone), now, trace)
            await self._replace(replacement, persisted.next_number)
            self._was_done(rows)
            agenda = Agenda(zone)
            await self._through(agenda.enter(in_force(resolution, stored, persisted.scheduler_key), now))
        except BaseException:
            await scheduler._store.close()
            raise
        loop = scheduler._loop = scheduler._new_loop(agenda, persisted)
        loop.entering(now)
        if persisted.zone is not None and persisted.zone != zone_name(zone):
            self._sink.emit(HostZoneChanged(persisted.zone, zone_name(zone)))
        await self._through(self._tell(resolution, zone, again=False), steps_between_clock_reads=STEP_TASKS)
        self._sink.emit(SchedulerInitializationCompleted(registrations.count, registrations.count, 0))
        return loop

    # --- observed ----------------------------------------------------------------------------------------------------

    def _watch(self, loaded: "_Loaded", registrations: Registrations, zone: tzinfo) -> "RegisterSnapshot | None":
        """Begin to observe, if that is wanted: with what durable state says about the tasks that are there already."""
        scheduler = self._scheduler
        scheduler._observer = None
        if not (scheduler._trace or scheduler._monitor):
            return None
        from duly.formal.calendar import zone_named
        from duly.formal.monitor import Monitor

        try:
            zone_named(zone_name(zone))
        except ValueError as cause:
            raise DulyError(
                f"A trace or a monitor needs a zone with a name, and the host's is {zone_name(zone)!r}",
                hint="set TZ to a zone name such as Europe/Berlin",
                cause=cause,
            ) from cause
        runs_on = dict(zip(registrations.names, registrations.runs_on, strict=True))
        registers = registers_of(loaded.tasks.values(), loaded.runs, runs_on, zone_name(zone))
        monitor = Monitor(registers) if scheduler._monitor else None
        scheduler._observer = Observer(monitor, self._violated)
        return registers

    async def _rows(self, resolution: Resolution, zone: tzinfo, boot: Sequence[TraceRow] = ()) -> list[TraceRow]:
        scheduler = self._scheduler
        if scheduler._observer is None:
            return []
        declared = resolution.preserved.tasks + resolution.added
        declared += [each.new for each in resolution.overridden]
        rows = await self._through(
            initialization_rows(
                resolution,
                call=self._call,
                call_is_known=self._is_known(),
                zone=zone_name(zone),
                again=scheduler._loop is not None,
                in_force=declared,
                interrupted="restart" if scheduler._restart_interrupted else "wait",
                max_concurrency=scheduler._max_concurrency,
                threads=scheduler._max_concurrency or scheduler._host.default_threads,
            ),
            steps_between_clock_reads=STEP_TASKS,
        )
        return [*boot, *rows]

    def _was_done(self, rows: Sequence[TraceRow]) -> None:
        if self._scheduler._observer is not None:
            self._scheduler._observer.durable(rows)

    def _violated(self, violation: "Violation") -> None:
        zone = self._clock.zone()
        self._sink.emit(
            PropertyViolated(
                violation.property,
                violation.sentence,
                violation.seq,
                as_datetime(violation.at, zone),
                violation.task,
                violation.registers,
            )
        )

    # --- those after it ----------------------------------------------------------------------------------------------

    async def _again(self, loop: Loop, registrations: Registrations) -> None:
        agenda = loop.agenda
        self._sink.emit(SchedulerReinitializationStarted(registrations.count))
        zone, old_zone = self._clock.zone(), agenda.zone
        try:
            async with loop.held():
                resolution = await self._change(loop, registrations, zone)
        except StoreError as cause:
            # The store fails at this moment, and whoever waits for it holds what this call needs.
            if not registrations.count:
                raise
            raise ScheduleTaskError(registrations.names[0], registrations.expressions[0].text, cause) from cause
        if zone_name(zone) != zone_name(old_zone):
            self._sink.emit(HostZoneChanged(zone_name(old_zone), zone_name(zone)))
        loop.wake.set()
        await self._through(self._tell(resolution, zone, again=True), steps_between_clock_reads=STEP_TASKS)
        total, skipped = registrations.count, resolution.preserved.count
        self._sink.emit(SchedulerReinitializationCompleted(total, total - skipped, skipped))

    async def _change(self, loop: Loop, registrations: Registrations, zone: tzinfo) -> Resolution:
        """Compare, commit, put in force; nothing is decided meanwhile; callbacks end, and that is recorded."""
        agenda, journal = loop.agenda, loop.journal
        now = Instant(self._clock.now())
        loop.entering(now)
        stored = await self._through(_by_name(agenda.tasks()))
        resolution = await self._resolve(registrations, stored, now, zone)
        moved = zone_name(zone) != zone_name(agenda.zone)
        rows = await self._rows(resolution, zone)
        await journal.flush_notes()  # the call itself stands in the trace before what comes of it
        self.phase = Phase.COMMITTING
        trace = TraceRows(rows) if self._scheduler._trace else None
        if resolution.changes_tasks or moved or trace is not None:
            replacement = Replacement(resolution, None, zone_name(zone), now, trace)
            await self._replace(replacement, journal.next_number())
        self._was_done(rows)
        loop.calls.took_effect(self._call)
        await self._put_in_force(loop, resolution, now)
        if moved:
            await self._through(agenda.rebuild(now, zone=zone))
        return resolution

    async def _put_in_force(self, loop: Loop, resolution: Resolution, now: Instant) -> None:
        gone = [each.task for each in resolution.orphaned] + [each.old for each in resolution.overridden]
        arrived = resolution.added + [each.new for each in resolution.overridden]
        # Without a pause: an end that settles in between must find either the old order or the new one.
        loop.withdraw(gone)
        loop.adopt(arrived)
        await self._through(loop.agenda.leave(gone), steps_between_clock_reads=STEP_TASKS)
        await self._through(loop.agenda.enter(arrived, now))
        elsewhere = await self._through(_call_the_newest(resolution), steps_between_clock_reads=STEP_TASKS)
        # What is called and where change together: a durable start may have its turn in any pause.
        for task, registration in elsewhere:
            task.callback = registration.callback
        loop.agenda.change_queue([(task, registration.runs_on) for task, registration in elsewhere], now)
        for task in arrived:
            task.written_by = self._scheduler._key

    # --- both --------------------------------------------------------------------------------------------------------

    async def _resolve(
        self,
        registrations: Registrations,
        stored: dict[str, Task],
        now: Instant,
        zone: tzinfo,
        *,
        take_over: bool = False,
    ) -> Resolution:
        scheduler = self._scheduler
        resolution = await self._through(
            resolve(
                registrations,
                stored,
                now=now,
                zone=zone,
                new_generations=scheduler._new_generation,
                take_over=take_over,
            )
        )
        if scheduler._refuse_mismatch and stored and resolution.changes_tasks:
            raise TaskListMismatchError(**difference(resolution))
        return resolution

    async def _replace(self, replacement: Replacement, number: int) -> None:
        store = self._scheduler._store
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

    def _tell(self, resolution: Resolution, zone: tzinfo, *, again: bool) -> Steps[None]:
        """Emit one event or more for each task; a step is one task."""
        sink, scheduler = self._sink, self._scheduler

        def local(instant: Instant | None) -> datetime | None:
            return None if instant is None else as_datetime(instant, zone)

        for each in resolution.orphaned if sink.wants(TaskOrphaned) else ():
            # Withdrawn by now, but the event speaks of what was.
            sink.emit(
                TaskOrphaned(
                    each.task.name,
                    local(each.last_attempt_at),
                    scheduler._identifiers.get(each.task.written_by, ""),
                    each.dropped,
                )
            )
            yield
        for change in resolution.overridden if sink.wants(TaskOverridden) else ():
            old_state = {**configuration(change.old), **_times(change.old_state, local)}
            new_state = {**configuration(change.new), **_times(change.new.state, local)}
            sink.emit(TaskOverridden(change.new.name, change.change_type, old_state, new_state, change.dropped))
            yield
        for task in resolution.added if sink.wants(TaskAdded) else ():
            sink.emit(TaskAdded(task.name, task.expression.text, task.delay))
            yield
        if not again:
            for task in resolution.interrupted if sink.wants(TaskInterrupted) else ():
                state = task.state
                if isinstance(state, Interrupted):
                    started, resumes = as_datetime(state.last_attempt_at, zone), local(state.resume_at)
                    sink.emit(TaskInterrupted(task.name, started, state.interruptions, resumes))
                yield
        if sink.wants(TaskScheduled):
            for task in resolution.preserved.tasks:
                sink.emit(TaskPreserved(task.name))
                if again:
                    sink.emit(TaskSkipped(task.name, "already scheduled as declared"))
                else:
                    sink.emit(TaskScheduled(task.name, task.expression.text, task.delay))
                yield
            for task in (*resolution.added, *(change.new for change in resolution.overridden)):
                sink.emit(TaskScheduled(task.name, task.expression.text, task.delay))
                yield


def hand_on(previous: "asyncio.Future[None] | None", turn: "asyncio.Future[None]") -> None:
    """Tell those behind that this call is over, but never before the ones ahead of it are."""

    def tell(_: object) -> None:
        if not turn.done():
            turn.set_result(None)

    if previous is None or previous.done():
        tell(None)
    else:
        previous.add_done_callback(tell)


class _Loaded(NamedTuple):
    """What the store held, as tasks without callbacks."""

    tasks: dict[str, Task]
    runs: dict[str, int]  # numbers of the runs that a crash interrupted, by task name
    too_far_ahead: bool  # a state was corrected, because the clock was set back since it was stored


def _load(records: Sequence[EqualRows], now: Instant, zone: tzinfo, *, restart: bool) -> Steps[_Loaded]:
    minute = minute_of(now, zone)
    stored: dict[str, Task] = {}
    runs: dict[str, int] = {}
    too_far_ahead = False
    for generations, names, expression, delay, state, run, written_by in read_equal(records):
        if isinstance(state, Running):
            # The process that ran it is gone: this scheduler alone holds the store.
            state = interrupt(state, now, delay, restart=restart)
        right = corrected(state, now, minute, delay)
        too_far_ahead |= right is not state
        if run is not None:
            runs.update(dict.fromkeys(names, run))
        for begin in range(0, len(names), STEP_TASKS):
            some = names[begin : begin + STEP_TASKS]
            tasks = [
                Task(generation, name, expression, delay, right, _undeclared, RunsOn.LOOP, written_by)
                for generation, name in zip(generations[begin : begin + STEP_TASKS], some, strict=True)
            ]
            stored.update(zip(some, tasks, strict=True))
            yield
    return _Loaded(stored, runs, too_far_ahead)


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


def _undeclared() -> None:
    """What a stored task would call before its registration gives it a callback; never called."""


def _times(state: TaskState, local: Callable[[Instant | None], datetime | None]) -> dict[str, str | None]:
    times = {
        "lastAttemptAt": getattr(state, "last_attempt_at", None),
        "lastSuccessAt": getattr(state, "last_success_at", None),
        "lastFailureAt": getattr(state, "last_failure_at", None),
        "pendingRetryUntil": getattr(state, "pending_retry_until", None),
    }
    return {name: None if (when := local(at)) is None else when.isoformat() for name, at in times.items()}


async def _has_replaced(store: Store, number: int) -> bool:
    """What is in the store decides; if it cannot even be asked, its fault is what the caller hears of."""
    with contextlib.suppress(StoreError):
        return await store.has_replaced(number)
    return False
