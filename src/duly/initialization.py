"""One call of initialize(): validate, load, resolve, commit, put in force; or leave everything as it was."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, tzinfo
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from duly.clock import in_slices
from duly.core.agenda import Agenda
from duly.core.moments import Instant, as_datetime, minute_of
from duly.core.record import read_records
from duly.core.registration import Kind, Registration, read_registrations, snapshot
from duly.core.resolution import Resolution, configuration, difference, resolve
from duly.core.task import Correction, Interrupted, Running, Task, TaskState, corrected, interrupt
from duly.errors import ScheduleTaskError, StoreError, TaskListMismatchError
from duly.events import (
    HostZoneChanged,
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
from duly.loop import Loop
from duly.stores.port import Persisted, Replacement

if TYPE_CHECKING:
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

    def begin(self) -> None:
        """Let the loop look for the first time; on a running scheduler it never stopped looking."""
        if self._loop is not None:
            self._loop.start()

    def begin_unless_failed(self, work: "asyncio.Task[None]") -> None:
        """The same for a call whose caller is gone."""
        if not work.cancelled() and work.exception() is None:
            self.begin()

    async def perform(self, previous: "asyncio.Future[None] | None", turn: "asyncio.Future[None]") -> None:
        """Validate; wait for the calls before; then load, resolve and replace, or leave everything as it was."""
        try:
            registrations: list[Registration] = []
            await self._through(map(registrations.append, read_registrations(snapshot(self._argument))))
            if previous is not None:
                await asyncio.shield(previous)
            if self._scheduler._loop is None:
                self._loop = await self._first(registrations)
            else:
                await self._again(self._scheduler._loop, registrations)
        except BaseException as error:
            again = self._scheduler._loop is not None
            kind = SchedulerReinitializationFailed if again else SchedulerInitializationFailed
            self._sink.emit(kind(type(error).__name__, str(error)))
            raise
        finally:
            hand_on(previous, turn)
            self._sink.flush()

    async def _through(self, steps: Iterable[T]) -> T | None:
        return await in_slices(self._clock, steps)

    # --- the first ---------------------------------------------------------------------------------------------------

    async def _first(self, registrations: list[Registration]) -> Loop:
        scheduler = self._scheduler
        self._sink.emit(SchedulerInitializationStarted(len(registrations)))
        if scheduler._identifier is None:
            scheduler._identifier = scheduler._host.new_identifier()
        zone, now = self._clock.zone(), Instant(self._clock.now())
        persisted = await scheduler._store.open(scheduler._identifier, now)
        try:
            scheduler._take_over(persisted)
            stored: dict[str, Task] = {}
            correction = await self._load(persisted, stored, now, zone)
            resolution = await self._resolve(registrations, stored, now, zone)
            self.phase = Phase.COMMITTING
            replacement = Replacement(resolution, correction, zone_name(zone), now)
            await self._replace(replacement, persisted.next_number)
            agenda = Agenda(zone)
            for task, registration in resolution.preserved:
                task.callback, task.kind = registration.callback, registration.kind
            in_force = [task for task, _ in resolution.preserved]
            in_force += resolution.added
            in_force += [each.new for each in resolution.overridden]
            await self._through(agenda.enter(in_force, now))
        except BaseException:
            await scheduler._store.close()
            raise
        loop = scheduler._loop = scheduler._new_loop(agenda, persisted)
        if persisted.zone is not None and persisted.zone != zone_name(zone):
            self._sink.emit(HostZoneChanged(persisted.zone, zone_name(zone)))
        await self._through(self._tell(resolution, zone, again=False))
        self._sink.emit(SchedulerInitializationCompleted(len(registrations), len(registrations), 0))
        return loop

    async def _load(
        self, persisted: Persisted, stored: dict[str, Task], now: Instant, zone: tzinfo
    ) -> Correction | None:
        minute = minute_of(now, zone)
        restart = self._scheduler._restart_interrupted
        too_far = False

        def load() -> Iterator[None]:
            nonlocal too_far
            for record in read_records(persisted.records):
                state = record.state
                if isinstance(state, Running):
                    # Whoever ran it is gone: this scheduler alone holds the store.
                    state = interrupt(state, now, record.delay, restart=restart)
                right = corrected(state, now, minute, record.delay)
                too_far |= right is not state
                task = Task(
                    record.generation, record.name, record.expression, record.delay, right, _undeclared, Kind.LOOP
                )
                task.written_by = record.written_by
                stored[record.name] = task
                yield

        await self._through(load())
        return Correction(now, minute) if too_far else None

    # --- those after it ----------------------------------------------------------------------------------------------

    async def _again(self, loop: Loop, registrations: list[Registration]) -> None:
        agenda = loop.agenda
        self._sink.emit(SchedulerReinitializationStarted(len(registrations)))
        zone, old_zone = self._clock.zone(), agenda.zone
        async with loop.lock:
            now = Instant(self._clock.now())
            stored: dict[str, Task] = {}
            await self._through(stored.setdefault(task.name, task) for task in agenda.tasks())
            resolution = await self._resolve(registrations, stored, now, zone)
            moved = zone_name(zone) != zone_name(old_zone)
            self.phase = Phase.COMMITTING
            if resolution.changes_tasks or moved:
                replacement = Replacement(resolution, None, zone_name(zone), now)
                await self._replace(replacement, loop.journal.next_number())
            await self._put_in_force(loop, resolution, now)
            if moved:
                await self._through(agenda.rebuild(now, zone=zone))
                self._sink.emit(HostZoneChanged(zone_name(old_zone), zone_name(zone)))
        loop.wake.set()
        await self._through(self._tell(resolution, zone, again=True))
        skipped = len(resolution.preserved)
        self._sink.emit(SchedulerReinitializationCompleted(len(registrations), len(registrations) - skipped, skipped))

    async def _put_in_force(self, loop: Loop, resolution: Resolution, now: Instant) -> None:
        agenda = loop.agenda
        gone = [each.task for each in resolution.orphaned] + [each.old for each in resolution.overridden]
        arrived = resolution.added + [each.new for each in resolution.overridden]
        # Without a pause: an end that settles in between must find either the old order or the new one.
        loop.withdraw(gone)
        loop.adopt(arrived)
        await self._through(agenda.leave(gone))
        await self._through(agenda.enter(arrived, now))
        elsewhere: list[tuple[Task, Kind]] = []
        for task, registration in resolution.preserved:
            task.callback = registration.callback
            if task.kind is not registration.kind:
                elsewhere.append((task, registration.kind))
        agenda.change_kind(elsewhere, now)
        for task in arrived:
            task.written_by = self._scheduler._key

    # --- both --------------------------------------------------------------------------------------------------------

    async def _resolve(
        self, registrations: list[Registration], stored: dict[str, Task], now: Instant, zone: tzinfo
    ) -> Resolution:
        scheduler = self._scheduler
        steps = resolve(registrations, stored, now=now, zone=zone, new_generations=scheduler._new_generation)
        resolution = await self._through(steps)
        assert resolution is not None  # it yields at least once
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
                await store.replace(replacement, number)
        except Exception as cause:
            first = replacement.resolution.first_changed()
            if first is None:
                raise
            raise ScheduleTaskError(*first, cause) from cause

    def _tell(self, resolution: Resolution, zone: tzinfo, *, again: bool) -> Iterator[None]:
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
            for task, _ in resolution.preserved:
                sink.emit(TaskPreserved(task.name))
                if again:
                    sink.emit(TaskSkipped(task.name, "already scheduled as declared"))
                else:
                    sink.emit(TaskScheduled(task.name, task.expression.text, task.delay))
                yield
            for task in (*resolution.added, *(change.new for change in resolution.overridden)):
                sink.emit(TaskScheduled(task.name, task.expression.text, task.delay))
                yield


def zone_name(zone: tzinfo) -> str:
    """What a zone is called, in events and in the store."""
    return str(getattr(zone, "key", None) or zone)


def hand_on(previous: "asyncio.Future[None] | None", turn: "asyncio.Future[None]") -> None:
    """Tell those behind that this call is over, but never before the ones ahead of it are."""

    def tell(_: object) -> None:
        if not turn.done():
            turn.set_result(None)

    if previous is None or previous.done():
        tell(None)
    else:
        previous.add_done_callback(tell)


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
