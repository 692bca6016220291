"""initialize() and stop(), one call after the other, in the order in which they were made."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from duly.engine.calls import Calls
from duly.engine.declare import Effect, Initialization, checked
from duly.engine.engine import Engine
from duly.engine.journal import Journal
from duly.engine.runner import run_around
from duly.engine.setup import Setup
from duly.engine.shutdown import abandon, release, shut_down, tear_down
from duly.errors import SchedulerStoppingError, StopSchedulerError, StoreLockedError
from duly.events import (
    PollingStopped,
    PollingStopRequested,
    SchedulerInitializationFailed,
    SchedulerReinitializationFailed,
    SchedulerStopped,
    SchedulerStopRequested,
)

T = TypeVar("T")

_INSIDE_HINT: Final = "set an event in the callback, and await stop() outside of it"


class Lifecycle:
    """The two calls of one scheduler, and the engine that runs between them."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.under_way: set[asyncio.Task[Any]] = set()
        """The work of calls that have not returned."""
        self._engine: Engine | None = None
        self._calls = Calls(setup.clock)
        self._last_turn: Turn | None = None
        self._identifier: str | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._death: str | None = None  # why every further call is refused

    @property
    def engine(self) -> Engine | None:
        """The engine that runs; None before the first initialize(), after a stop(), and after a teardown."""
        return None if self._engine is None or self._engine.gate.abandoned else self._engine

    @property
    def _journal(self) -> Journal | None:
        return None if self.engine is None else self.engine.journal

    # --- initialize() ------------------------------------------------------------------------------------------------

    async def check(self, registrations: object) -> None:
        """Check registrations as initialize() does, and do nothing with them."""
        await checked(self.setup.clock, registrations)

    async def initialize(self, registrations: object, *, standing_by: bool = False) -> None:
        """Make the declared tasks the ones that run: all of them, or, when this raises, none of the changes.

        If it is `standing_by`, a store that another scheduler holds is not reported as a failure: it only raises.
        """
        self._require_life()
        around = run_around(self.setup)
        if around is not None and self._calls.open_stops:
            raise SchedulerStoppingError(around.task.name)
        self._bind()
        turn = self._queue_up()
        number = self._calls.initialize(self._journal)
        initialization = self._new_initialization(number, registrations, standing_by=standing_by)
        work = self._spawn(self._initialize(initialization, number, turn))
        # Not in the work itself: if it is cancelled before its first step, nothing in it runs.
        work.add_done_callback(lambda _: self.initialized(number, turn))
        try:
            engine = await asyncio.shield(work)
        except asyncio.CancelledError:
            # All or nothing: before its transaction it is undone, from there on it goes through without its caller.
            if not initialization.committing:
                work.cancel()
            work.add_done_callback(_begin_unless_failed)
            await asyncio.wait([work])
            raise
        # Only now, and not inside the work: nothing starts before initialize() has returned (SPEC 3.8).
        begin(engine)

    async def _initialize(self, initialization: Initialization, number: int, turn: "Turn") -> Engine:
        try:
            await initialization.check()
            await turn.come()
            effect = await self.take_effect(initialization)
            self._engine = effect.engine
            self._follow(effect.engine)
            await initialization.announce(effect)
        except BaseException as error:
            self._calls.failed(number, self._journal, type(error).__name__)
            # A standby expects that another one is faster, and that it is left: StandbyEnded says so.
            if not (initialization.standing_by and isinstance(error, StoreLockedError | asyncio.CancelledError)):
                failed = SchedulerInitializationFailed if self.engine is None else SchedulerReinitializationFailed
                self.setup.outbox.emit(failed(type(error).__name__, str(error)))
            raise
        finally:
            self.setup.outbox.flush()
        return effect.engine

    async def take_effect(self, initialization: Initialization) -> Effect:
        """Make the declared tasks the ones that run, when the turn of the call has come."""
        return await initialization.take_effect(self.engine, self._identify())

    def _new_initialization(self, number: int, registrations: object, *, standing_by: bool) -> Initialization:
        return Initialization(self.setup, self._calls, number, registrations, standing_by=standing_by)

    def _follow(self, engine: Engine) -> None:
        """Hear what happens to an engine that was just made."""

    def initialized(self, number: int, turn: "Turn") -> None:
        """The call has returned, raised, or was cancelled before it began."""
        self._calls.failed(number, self._journal, "CancelledError")  # unless it is noted how it ended
        self._calls.returned(number)
        turn.end()

    def _identify(self) -> str:
        """The identifier of this scheduler, drawn at its first initialize() (SPEC 5.4)."""
        if self._identifier is None:
            self._identifier = self.setup.host.new_identifier()
        return self._identifier

    # --- stop() ------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Let running callbacks end, record their ends, release everything; goes on when its caller is cancelled."""
        self._require_life()
        around = run_around(self.setup)
        if around is not None:
            self._calls.stop_refused(self._journal, StopSchedulerError.__name__)
            raise StopSchedulerError(
                RuntimeError(f"stop() inside the callback of task {around.task.name!r} would wait for itself"),
                hint=_INSIDE_HINT,
            )
        if self.engine is None and (self._last_turn is None or self._last_turn.over.done()):
            return
        self._bind()
        number, turn = self._calls.stop(self._journal), self._queue_up()
        self.count_stops()
        work = self._spawn(self._stop(turn))
        work.add_done_callback(lambda _: self.stopped(number, turn))  # also if it is cancelled before its first step
        stopped = asyncio.shield(work)
        if self.setup.host.until_stopped is not None:
            try:
                await self.setup.host.until_stopped(work)
            except BaseException:
                stopped.cancel()  # the work goes on without its caller
                raise
        await stopped

    async def _stop(self, turn: "Turn") -> None:
        try:
            await turn.come()
            try:
                if (engine := self.engine) is not None:
                    await self._end(engine)
            except StopSchedulerError:
                await self._release()
                raise
            await self._release()
        finally:
            self.setup.outbox.flush()

    def stopped(self, number: int, turn: "Turn") -> None:
        """The stop() has returned or raised."""
        self._calls.returned(number)
        self.count_stops()
        turn.end()

    def count_stops(self) -> None:
        """A stop() was called, or has returned: the gate opens and closes by their number."""
        if self.engine is not None:
            self.engine.gate.count_stops(self._calls.open_stops)

    async def _release(self) -> None:
        """Let go of what outlives an engine."""

    async def _end(self, engine: Engine) -> None:
        outbox, polling = self.setup.outbox, engine.loop.polling
        outbox.emit(SchedulerStopRequested())
        if polling:
            outbox.emit(PollingStopRequested())
        fault = await shut_down(engine, self._calls)
        self._engine = None
        if polling:
            outbox.emit(PollingStopped())
        if fault is not None:
            raise StopSchedulerError(
                fault, hint="ends could not be stored; those runs count as interrupted at the next start"
            ) from fault
        outbox.emit(SchedulerStopped())

    def die(self, reason: str) -> list["asyncio.Task[Any]"]:
        """Record nothing more and release everything, as if the process had died; later calls raise a RuntimeError.

        Returns the tasks that were cancelled and may take another round of the event loop to end.
        """
        self._death = reason
        tasks = [*self._vanish(), *self.under_way]
        for task in self.under_way:
            task.cancel()
        return tasks

    def _vanish(self) -> list["asyncio.Task[Any]"]:
        """Release everything; returns the tasks that were cancelled."""
        if (engine := self.engine) is not None:
            return abandon(engine)
        self.setup.embedded.abandon()
        return []

    # --- one call after the other ------------------------------------------------------------------------------------

    def _require_life(self) -> None:
        if self._death is not None:
            raise RuntimeError(self._death)

    def _bind(self) -> None:
        """Belong to the event loop that runs now."""
        running = asyncio.get_running_loop()
        if self._event_loop is running:
            return
        engine = self.engine
        if engine is not None and self._event_loop is not None and not self._event_loop.is_closed():
            raise RuntimeError(
                "this scheduler runs on another event loop; call it there, for example with "
                "asyncio.run_coroutine_threadsafe"
            )
        if engine is not None:
            # Its event loop was closed under it, without a stop(): nothing else will release the store.
            release(engine)
        self._event_loop, self._engine, self._last_turn = running, None, None
        self._calls.forget()
        self._forget()

    def _forget(self) -> None:
        """Let go of what ended with the event loop before this one."""

    def _queue_up(self) -> "Turn":
        self._last_turn = Turn(self._last_turn)
        return self._last_turn

    def _spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return task


class Turn:
    """A place in the order of calls."""

    def __init__(self, before: "Turn | None") -> None:
        self._before = before
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when this call and all before it have returned or raised."""

    async def come(self) -> None:
        """Wait until the calls before this one are over."""
        if self._before is not None:
            await asyncio.shield(self._before.over)

    def end(self) -> None:
        """The call is over: the next may go on, but not before those ahead of this one are over too."""
        before, self._before = self._before, None
        if before is None or before.over.done():
            self._pass_on()
        else:
            before.over.add_done_callback(self._pass_on)

    def _pass_on(self, _: object = None) -> None:
        if not self.over.done():
            self.over.set_result(None)


# --- the loop of an engine -------------------------------------------------------------------------------------------


def begin(engine: Engine) -> None:
    """Let the loop poll, unless it does already, or a stop() came first."""
    if engine.gate.loop_task is None and not engine.gate.closing:
        task = asyncio.get_running_loop().create_task(engine.loop.run(), name="duly-loop")
        task.add_done_callback(lambda ended: tear_down(engine) if ended.cancelled() else None)
        engine.gate.loop_task = task


def _begin_unless_failed(work: "asyncio.Task[Engine]") -> None:
    if not work.cancelled() and work.exception() is None:
        begin(work.result())
