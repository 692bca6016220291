"""`initialize()` and `stop()`: the lifecycle, one call after the other, and the wiring of everything else."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Final, Literal

from duly.clock import Clock
from duly.core.agenda import Agenda
from duly.engine.declare import Initialization, Phase, hand_on
from duly.engine.host import Host, system_host
from duly.engine.loop import Loop
from duly.engine.options import check_options
from duly.engine.runs import run_around
from duly.engine.sink import Sink
from duly.engine.trace import Observer
from duly.errors import SchedulerStoppingError, StopSchedulerError, UnsupportedPlatformError
from duly.events import Event, PollingStopped, PollingStopRequested, SchedulerStopped, SchedulerStopRequested
from duly.stores.port import Persisted, Store
from duly.stores.sqlite import DEFAULT_HISTORY, SqliteStore

_INSIDE_HINT: Final = "set an event in the callback, and await stop() outside of it"


class Scheduler:
    """Runs declared tasks when they are due, durably.

    `store` is a path, `":memory:"`, or a `duly.stores.Store`. `max_concurrency` bounds the callbacks under way at once;
    `run_timeout` cancels a run that takes longer. `interrupted="restart"` starts a run that a crash cut short again at
    once, `"wait"` lets it wait for its next due minute. `on_mismatch="refuse"` raises when stored and declared tasks
    differ. `history` is the number of run records kept. `on_event` is called with each event, on the loop's thread.
    `trace` records what is observable, for `duly.formal` to check; `monitor` checks it as it happens.
    """

    def __init__(
        self,
        store: str | PathLike[str] | Store = "duly.db",
        *,
        max_concurrency: int | None = None,
        run_timeout: timedelta | None = None,
        interrupted: Literal["restart", "wait"] = "restart",
        on_mismatch: Literal["override", "refuse"] = "override",
        history: int = DEFAULT_HISTORY,
        on_event: Callable[[Event], object] | None = None,
        clock: Clock | None = None,
        trace: bool = False,
        monitor: bool = False,
    ) -> None:
        if sys.platform == "win32":
            raise UnsupportedPlatformError("Windows")
        check_options(
            max_concurrency=max_concurrency,
            run_timeout=run_timeout,
            interrupted=interrupted,
            on_mismatch=on_mismatch,
            history=history,
            on_event=on_event,
            clock=clock,
            trace=trace,
            monitor=monitor,
        )
        self._host: Host = system_host(clock)
        self._store: Store = _store_of(store, history, self._host)
        self._max_concurrency = max_concurrency
        self._run_timeout = run_timeout
        self._restart_interrupted = interrupted == "restart"
        self._refuse_mismatch = on_mismatch == "refuse"
        self._trace = trace
        self._monitor = monitor
        self._observer: Observer | None = None
        self._next_call = 1
        self._open_calls: dict[int, Initialization | None] = {}
        """Calls that have not returned, in call order: of initialize(), or, None, of stop()."""
        self._identifier: str | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._loop: Loop | None = None
        self._sink = Sink(self._host.clock, on_event)
        self._open_stops = 0
        self._last_turn: asyncio.Future[None] | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._identifiers: dict[int, str] = {}
        self._next_generation = 1
        self._key = 0

    async def initialize(self, registrations: Sequence[Sequence[Any]]) -> None:
        """Make the declared tasks the ones that run: all of them, or, when this raises, none of the changes.

        On a running scheduler this re-initialises; if that fails, the old registrations go on. Cancelling it has
        either all of its effect or none.
        """
        around = run_around(self)
        if around is not None and self._open_stops:
            raise SchedulerStoppingError(around.task.name)
        self._bind()
        previous, turn = self._queue_up()
        call = Initialization(self, registrations)
        work = self._spawn(call.perform(previous))
        # Not in the work itself: cancelled before its first step it would tell nobody.
        work.add_done_callback(lambda _: call.over(previous, turn))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            # All or nothing: before its transaction it is undone, from there on it goes through without its caller.
            if call.phase is Phase.PREPARING:
                work.cancel()
            work.add_done_callback(call.begin_unless_failed)
            await asyncio.wait([work])
            raise
        # Only now, and not inside the call above: nothing starts before initialize() has returned (SPEC 3.8).
        call.begin()

    async def stop(self) -> None:
        """Let running callbacks end, record their ends, release everything; afterwards nothing of it is left.

        Nothing starts once this was called. It goes on when its caller is cancelled.
        """
        around = run_around(self)
        if around is not None:
            if self._loop is not None:
                self._loop.journal.note("SF", self._host.clock.now(), self._new_call(), "StopSchedulerError")
            raise StopSchedulerError(
                RuntimeError(f"stop() inside the callback of task {around.task.name!r} would wait for itself"),
                hint=_INSIDE_HINT,
            )
        if self._loop is None and (self._last_turn is None or self._last_turn.done()):
            return
        self._bind()
        self._open_stops += 1
        call = self._new_call()
        self._open_calls[call] = None
        if self._loop is not None:
            self._loop.calls.stop(call)
        await asyncio.shield(self._spawn(self._stop(call, *self._queue_up())))

    # --- one call after the other ------------------------------------------------------------------------------------

    def _bind(self) -> None:
        running = asyncio.get_running_loop()
        if self._event_loop is running:
            return
        if self._loop is not None and self._event_loop is not None and not self._event_loop.is_closed():
            raise RuntimeError(
                "this scheduler runs on another event loop; call it there, for example with "
                "asyncio.run_coroutine_threadsafe"
            )
        if self._loop is not None:
            # Its event loop was closed under it, without a stop: nobody else will release the store.
            self._loop.release()
        self._event_loop, self._loop, self._last_turn, self._open_stops = running, None, None, 0
        self._open_calls = {}

    def _queue_up(self) -> tuple[asyncio.Future[None] | None, asyncio.Future[None]]:
        """A place in the order of calls: what came before, and what tells those behind that this one is done."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        previous, self._last_turn = self._last_turn, turn
        return previous, turn

    def _spawn(self, work: Any) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _stop(self, call: int, previous: "asyncio.Future[None] | None", turn: "asyncio.Future[None]") -> None:
        try:
            if previous is not None:
                await asyncio.shield(previous)
            loop = self._loop
            if loop is not None:
                self._sink.emit(SchedulerStopRequested())
                polling = loop.polling
                if polling:
                    self._sink.emit(PollingStopRequested())
                fault = await loop.shutdown()
                self._loop = None
                if polling:
                    self._sink.emit(PollingStopped())
                if fault is not None:
                    raise StopSchedulerError(
                        fault, hint="ends could not be stored; those runs count as interrupted at the next start"
                    ) from fault
                self._sink.emit(SchedulerStopped())
        finally:
            self._open_stops -= 1
            self._open_calls.pop(call, None)
            hand_on(previous, turn)
            self._sink.flush()

    def _stopping(self) -> bool:
        return self._open_stops > 0

    def _new_call(self) -> int:
        call, self._next_call = self._next_call, self._next_call + 1
        return call

    def _take_over(self, persisted: Persisted) -> None:
        assert self._identifier is not None
        self._identifiers = {**persisted.identifiers, persisted.scheduler_key: self._identifier}
        self._key = persisted.scheduler_key
        self._next_generation = persisted.next_generation

    def _new_generation(self) -> int:
        generation, self._next_generation = self._next_generation, self._next_generation + 1
        return generation

    def _new_loop(self, agenda: Agenda, persisted: Persisted) -> Loop:
        def forget() -> None:
            self._loop = None

        loop = Loop(
            self._host,
            self._store,
            self._sink,
            agenda,
            first_run=persisted.next_run,
            first_number=persisted.next_number + 1,
            scheduler_key=persisted.scheduler_key,
            max_concurrency=self._max_concurrency,
            run_timeout=self._run_timeout,
            pool_size=self._max_concurrency or self._host.default_threads,
            owner=self,
            stopping=self._stopping,
            torn_down=forget,
            observer=self._observer,
            traced=self._trace,
        )
        # The trace hears of calls in the order in which they were made; those that wait were made before this loop was.
        for call, initialization in self._open_calls.items():
            if initialization is None:
                loop.calls.stop(call)
            else:
                initialization.tell(loop)
        return loop


def scheduler_on(
    host: Host,
    store: str | PathLike[str] | Store,
    *,
    unheard: frozenset[type[Event]] = frozenset(),
    **options: Any,
) -> Scheduler:
    """A scheduler on surroundings other than the system's; `unheard` are events that `on_event` does not want."""
    scheduler = Scheduler(store, clock=host.clock, **options)
    scheduler._host = host
    scheduler._sink = Sink(host.clock, options.get("on_event"), unheard=unheard)
    scheduler._store = _store_of(store, options.get("history", DEFAULT_HISTORY), host)
    return scheduler


def _store_of(store: str | PathLike[str] | Store, history: int, host: Host) -> Store:
    if isinstance(store, str | PathLike):
        return SqliteStore(store, history=history, worker=host.new_worker())
    if isinstance(store, SqliteStore):
        store.history = history
        return store
    if isinstance(store, type):
        raise TypeError(f"store must be an object, got the class {store.__name__}: call it")
    if isinstance(store, Store):
        return store
    raise TypeError(f"store must be a path or a Store, got {type(store).__name__}")
