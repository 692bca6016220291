"""How a loop ends: after a stop, when all its callbacks have; or at once, because the event loop goes away."""

import asyncio
from collections.abc import Callable
from typing import Final

from duly.clock import Clock
from duly.core.moments import MICROSECONDS
from duly.engine.journal import Journal
from duly.engine.runner import Execution
from duly.engine.trace import Calls, Observer
from duly.stores.port import Store

STOP_PATIENCE_SECONDS: Final = 30.0


class Life:
    """The part of the loop that knows whether it goes on, and lets go of everything when it does not."""

    execution: Execution
    journal: Journal
    observer: Observer | None
    calls: Calls
    wake: asyncio.Event
    _clock: Clock
    _store: Store
    _main: "asyncio.Task[None] | None"
    _helpers: "list[asyncio.Task[None]]"
    _closing: bool
    _abandoned: bool
    _torn_down: Callable[[], None]

    @property
    def tearing_down(self) -> bool:
        """Whether the event loop is going away without a stop()."""
        return self._main is not None and (self._main.cancelling() > 0 or self._main.cancelled())

    async def shutdown(self) -> Exception | None:
        """End the loop: running callbacks end, their ends are recorded. Returns the fault that kept any from it."""
        self._closing = True
        self.wake.set()
        try:
            while not self._is_at_rest():
                # The loop looks on meanwhile: time limits hold to the end.
                await self.execution.all_returned.wait()
                if (fault := await self._drain()) is not None:
                    await asyncio.wait(self.abandon())
                    return fault
                if self._main is not None:
                    await self._main
            if self.observer is not None:
                self.calls.close()
                if (fault := await self._drain()) is not None:
                    await asyncio.wait(self.abandon())
                    return fault
            self._finish(abandon=False)
            await self._store.close()
        except asyncio.CancelledError:
            self._tear_down()
            raise
        return None

    def _is_at_rest(self) -> bool:
        """Nothing looks, runs or is being written. A start whose commit came late may have begun once more."""
        looking = self._main is not None and not self._main.done()
        return not looking and self.execution.all_returned.is_set() and not self.journal.busy

    async def _drain(self) -> Exception | None:
        """Wait until everything is durable, for at most 30 s after the last callback returned (SPEC 4.3)."""
        self.journal.hurry()
        give_up_at = self._clock.elapsed() + STOP_PATIENCE_SECONDS
        while self.journal.busy and self.execution.all_returned.is_set():
            if (left := give_up_at - self._clock.elapsed()) <= 0:
                return self.journal.fault or TimeoutError("the store did not answer")
            self.journal.drained.clear()
            # And one more: less than a microsecond may be left, and a wait of none never ends where time is simulated.
            await self._clock.sleep_until(self._clock.now() + int(left * MICROSECONDS) + 1, self.journal.drained)
        return None

    def _finish(self, *, abandon: bool) -> None:
        for helper in self._helpers:
            helper.cancel()
        if abandon:
            self.release()
        else:
            self.execution.close(wait=True)

    def release(self) -> None:
        """Let go of threads, file and lock, whatever state they are in."""
        self.execution.close(wait=False)
        self._store.abandon()

    def abandon(self) -> list["asyncio.Task[None]"]:
        """The event loop, or the process, is going away: record nothing more, release everything.

        Returns what has been told to end and may take another round of the event loop to do so.
        """
        self._closing = self._abandoned = True
        tasks = [*self._helpers, *self.execution.drop()]
        if self._main is not None:
            tasks.append(self._main)
        self._finish(abandon=True)
        for task in tasks:
            task.cancel()
        return tasks

    def _tear_down(self) -> None:
        """The event loop is going away without a stop(), or under one that still waits (SPEC 3.11)."""
        if not self._abandoned:
            self.abandon()
            self._torn_down()

    def _is_over(self) -> bool:
        return self._closing and self.execution.all_returned.is_set()
