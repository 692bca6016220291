"""The life of a scheduler on a shared store: host after host, if it is buried and goes on."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from duly.core.moments import MICROSECONDS
from duly.engine.cluster import Cluster, SharedInitialization, reinstate
from duly.engine.declare import Effect, Initialization
from duly.engine.engine import Engine
from duly.engine.lifecycle import Lifecycle, Turn, begin
from duly.engine.membership import BEATS_OF_A_LEASE
from duly.engine.runner import Runner
from duly.engine.setup import Setup
from duly.engine.shutdown import abandon
from duly.errors import DulyError, HostGoneError, StoreError, StoreRewoundError
from duly.events import LeaseLost, RejoinFailed
from duly.stores.shared import Act

FIRST_BACKOFF_SECONDS: Final = 1.0


def _nothing() -> None:
    """Wake nobody up."""


class SharedLifecycle(Lifecycle):
    """initialize() and stop() of a host of a shared store, and what happens to it in between."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._cluster: Cluster | None = None
        self._fading: set[asyncio.Task[None]] = set()
        """Hosts that were buried, until the last of their runs has ended."""
        self._runners_before: list[Runner] = []
        """The runners of these hosts."""
        self._wake_up: Callable[[], None] = _nothing
        """Ends the pause before the next attempt to join."""
        self._reinstating = False

    def _opened(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self.setup)
        return self._cluster

    def _new_initialization(self, number: int, registrations: object, *, standing_by: bool) -> Initialization:
        return SharedInitialization(
            self.setup, self._calls, number, registrations, standing_by=standing_by, cluster=self._opened
        )

    def _follow(self, engine: Engine) -> None:
        engine.runner.before = self._runners_before
        if engine.colleagues is not None:
            engine.colleagues.on_lost = partial(self._lost, engine)
            engine.colleagues.on_deserted = partial(self._deserted, engine)

    def initialized(self, number: int, turn: Turn) -> None:
        """The call has returned, raised, or was cancelled before it began."""
        super().initialized(number, turn)
        self._close_if_unused(turn)

    async def take_effect(self, initialization: Initialization) -> Effect:
        """Make the declared tasks the ones that run, on another host if this one proves to be buried (SPEC 9.6)."""
        engine = self.engine
        try:
            return await super().take_effect(initialization)
        except (HostGoneError, StoreRewoundError) as gone:
            if engine is None or engine.member is None or self._calls.open_stops:
                raise
            engine.member.membership.lose(gone)
            self._lost(engine, gone)
        return await super().take_effect(initialization)

    def _forget(self) -> None:
        """Runs of hosts that were buried ended with their event loop, and so did the tasks that waited for them."""
        self._wake_up = _nothing
        self._fading.clear()
        self._runners_before.clear()
        if self._cluster is not None:
            self._cluster.held_here.clear()
            self._cluster.rejoins = False

    # --- buried ------------------------------------------------------------------------------------------------------

    def _lost(self, engine: Engine, error: StoreError) -> None:
        """The host was buried: its runs are cancelled, and a new one takes its place."""
        if engine is not self._engine or engine.gate.abandoned or engine.colleagues is None:
            return
        self.setup.outbox.emit(LeaseLost(engine.runner.open, str(error)))
        engine.gate.close()
        engine.gate.wake.set()
        engine.runner.tell_of_the_loss()
        if self._calls.open_stops:
            return  # the stop() under way waits for the runs, and says what happened
        cluster, names = self._opened(), set(engine.colleagues.own_runs())
        cluster.held_here.update(names)
        engine.settlement.on_fenced = partial(self._ended_here, names)
        self._engine = None
        self._runners_before.append(engine.runner)
        fading = self._spawn(self._fade(engine, names))
        self._fading.add(fading)
        fading.add_done_callback(self._fading.discard)
        cluster.rejoins = True
        _ = self._spawn(self._rejoin(self._queue_up()))

    def _ended_here(self, names: set[str], name: str) -> None:
        """A run of a host that was buried has ended in this process."""
        if name in names:
            names.discard(name)
            self._opened().held_here[name] -= 1
            if self.engine is not None and self.engine.colleagues is not None:
                self.engine.colleagues.released()

    async def _fade(self, engine: Engine, names: set[str]) -> None:
        """Let the runs of a host that was buried end, and release what it had."""
        clock, journal = self.setup.clock, engine.journal
        await engine.runner.all_returned.wait()
        while journal.busy:
            await journal.progress(clock.elapsed() + FIRST_BACKOFF_SECONDS)
        if engine.gate.loop_task is not None:
            await engine.gate.loop_task
        for helper in engine.helpers:
            helper.cancel()
        engine.runner.close(wait=False)
        self._runners_before.remove(engine.runner)
        for name in list(names):  # ends that were recorded just before the burial
            self._ended_here(names, name)

    async def _rejoin(self, turn: Turn) -> None:
        """Join again as a new host, however long that takes; a stop() ends it."""
        try:
            await turn.come()
            cluster, lease = self._opened(), self._lease_seconds()
            if not cluster.rejoins:
                return  # an initialize() that was called before has a host already
            # By chance: hosts that were lost at one moment do not come back at one moment.
            wait, backoff = self.setup.host.chance() * lease / BEATS_OF_A_LEASE, FIRST_BACKOFF_SECONDS
            while True:
                await self._pause(wait)
                if self._calls.open_stops:
                    return
                try:
                    engine, _ = await cluster.join(cluster.declared, Act.REJOIN, self._calls, self._calls.new_number())
                except Exception as error:  # a defect of ours must not leave the application without its tasks
                    wait, backoff = min(backoff, lease), 2 * backoff
                    self.setup.outbox.emit(RejoinFailed(type(error).__name__, str(error), int(wait * 1000)))
                else:
                    self._engine = engine
                    self._follow(engine)
                    begin(engine)
                    return
        finally:
            if self._cluster is not None:
                self._cluster.rejoins = False
            turn.end()

    async def _pause(self, seconds: float) -> None:
        clock, woken = self.setup.clock, asyncio.Event()
        self._wake_up = woken.set
        if not self._calls.open_stops:
            await clock.sleep_until(clock.now() + int(seconds * MICROSECONDS), woken)

    def _lease_seconds(self) -> float:
        return self._opened().lease_seconds

    # --- editions ----------------------------------------------------------------------------------------------------

    def _deserted(self, engine: Engine) -> None:
        """The edition in force has lost its last host."""
        if engine is self._engine and not self._reinstating and not self._calls.open_stops:
            self._reinstating = True
            _ = self._spawn(self._reinstate(engine, self._queue_up()))

    async def _reinstate(self, engine: Engine, turn: Turn) -> None:
        try:
            await turn.come()
            if engine is self.engine and not self._calls.open_stops:
                await reinstate(self._opened(), engine, self._calls.new_number())
        except DulyError:
            pass  # the next look finds the edition as deserted as before
        finally:
            self._reinstating = False
            turn.end()

    # --- the end -----------------------------------------------------------------------------------------------------

    def count_stops(self) -> None:
        """A stop() was called, or has returned; attempts to join again end."""
        super().count_stops()
        if self._calls.open_stops:
            self._wake_up()

    async def _release(self) -> None:
        """Wait for runs of hosts that were buried, let the monitor finish, and release the connection."""
        if self._fading:
            await asyncio.wait(set(self._fading))
        if self._cluster is not None:
            await self._cluster.finish_judging()
        self._close()

    def stopped(self, number: int, turn: Turn) -> None:
        """The stop() has returned or raised."""
        super().stopped(number, turn)
        self._close_if_unused(turn)

    def _close_if_unused(self, turn: Turn) -> None:
        """Release the connections if no host is left: an initialize() was refused, or a stop() has raised.

        A call that ends before its turn leaves that to the calls ahead of it, which may be joining.
        """
        if not turn.over.done() or self._cluster is None:
            return
        if self.engine is None and not self._fading and not self._cluster.rejoins:
            self._close()

    def _close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def _vanish(self) -> list["asyncio.Task[Any]"]:
        engine = self.engine
        if engine is None:
            return []
        if engine.member is not None:
            engine.member.membership.vanish()  # a process that dies says nothing
        return abandon(engine)
