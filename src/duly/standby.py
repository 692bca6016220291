"""Standby: a scheduler that runs here as soon as no other one holds its store.

For several processes of which one runs the tasks, such as the workers of a web server. There is no lease and no
leader: the lock beside the store is the truth (SPEC 5.7), and the kernel frees it when its holder dies. Standing by
looks at the lock and asks for the store only if it is free, so waiting costs and reports next to nothing.
docs/decisions/0023 says why it is no option of the scheduler.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, Final

from duly.core.moments import as_datetime
from duly.errors import StoreLockedError
from duly.scheduler import Scheduler, lifecycle_of

if TYPE_CHECKING:
    from duly.engine.lifecycle import Lifecycle
    from duly.stores.port import Holder

LOOK_EVERY: Final = timedelta(seconds=1)
LOOK_EVERY_MAX: Final = timedelta(minutes=1)
"""A clock need not sleep for longer (`Clock.sleep_until`)."""


@asynccontextmanager
async def standby(
    scheduler: Scheduler, registrations: Sequence[Sequence[Any]], *, look_every: timedelta = LOOK_EVERY
) -> "AsyncIterator[Standby]":
    """Run a scheduler here as soon as no other one holds its store; leaving the block stops it.

    Entering does not wait. A store that no other scheduler can hold, such as one in memory, is used at once.

    Parameters:
        scheduler: the scheduler that is to run here.
        registrations: what `Scheduler.initialize()` takes; they are checked when the wait begins.
        look_every: how often a scheduler that has to wait looks whether the store is free; at most a minute.

    Yields:
        The `Standby`: `.holding` says whether the scheduler runs here, `await .held()` waits until it does.

    Raises:
        TypeError: `scheduler` or `look_every` has the wrong type.
        ValueError: `look_every` is not positive, or more than a minute.
        Exception: on leaving, the error that ended the standby: anything that `initialize()` raises but a lost race for
            the store. It was reported as `StandbyFailed` when it happened.
    """
    standing_by = Standby(scheduler, registrations, look_every=look_every)
    waiting = asyncio.create_task(standing_by.run(), name="duly-standby")
    waiting.add_done_callback(standing_by.end)  # also if it is cancelled before its first step
    try:
        yield standing_by
    finally:
        try:
            waiting.cancel()
            await asyncio.wait([waiting])
        finally:
            await scheduler.stop()
    if standing_by.failure is not None:
        raise standing_by.failure


class Standby:
    """One wait for a store, from its first look to the moment at which its scheduler runs here; made by `standby()`.

    Parameters:
        scheduler: the scheduler that is to run here.
        registrations: what `Scheduler.initialize()` takes.
        look_every: how often it looks whether the store is free.

    Raises:
        TypeError: `scheduler` or `look_every` has the wrong type.
        ValueError: `look_every` is not positive, or more than a minute.
    """

    def __init__(
        self, scheduler: Scheduler, registrations: Sequence[Sequence[Any]], *, look_every: timedelta = LOOK_EVERY
    ) -> None:
        if not isinstance(scheduler, Scheduler):
            raise TypeError(f"standby takes a duly.Scheduler, got {type(scheduler).__name__}")
        if not isinstance(look_every, timedelta):
            raise TypeError(f"look_every must be a timedelta, got {type(look_every).__name__}")
        if not timedelta(0) < look_every <= LOOK_EVERY_MAX:
            raise ValueError(f"look_every must be more than zero and at most a minute, got {look_every}")
        self.registrations = registrations
        """The registrations that are declared when the store is free; they can be replaced until then."""
        self.failure: Exception | None = None
        """The error that ended the wait."""
        self._lifecycle: Lifecycle = lifecycle_of(scheduler)
        self._look_every = look_every // timedelta(microseconds=1)
        self._announced = False
        self._succeeded = False
        self._over = asyncio.Event()

    @property
    def holding(self) -> bool:
        """Whether the scheduler runs here."""
        return self._lifecycle.engine is not None

    async def held(self) -> None:
        """Wait until the scheduler runs here.

        Raises:
            RuntimeError: the block was left before the store was free.
            Exception: the error that ended the standby.
        """
        await self._over.wait()
        if self.failure is not None:
            raise self.failure
        if not self._succeeded:
            raise RuntimeError("the standby was left before the store was free")

    async def run(self) -> None:
        """Look until the store is free, and initialise; returns when the scheduler runs here, or an error ended it."""
        from duly.events import StandbyEnded, StandbyFailed

        outbox = self._lifecycle.setup.outbox
        try:
            await self._take_over()
            self._succeeded = True
        except Exception as error:
            # Perhaps no task awaits held(), and the block may be left only after days.
            self.failure = error
            outbox.emit(StandbyFailed(type(error).__name__, str(error)))
        finally:
            self.end()
            if self._announced and self.failure is None:
                outbox.emit(StandbyEnded(self.holding))

    def end(self, _: object = None) -> None:
        """End the wait, whatever came of it: `held()` returns or raises.

        Parameters:
            _: the asyncio task that has ended, whose callback this is.
        """
        self._over.set()

    async def _take_over(self) -> None:
        lifecycle, clock = self._lifecycle, self._lifecycle.setup.clock
        while True:
            if (holder := self._other_holder()) is None:
                declared = self.registrations
                try:
                    await lifecycle.initialize(declared, standing_by=True)
                except StoreLockedError as lost:  # another one that stood by was faster
                    holder = lost.details["holder"]
                else:
                    if declared is self.registrations:
                        return
                    continue  # replaced meanwhile: the newer ones follow
            if not self._announced:
                await lifecycle.check(self.registrations)  # now, and not at the take-over, perhaps in days
                self._announce(holder)
            await clock.sleep_until(clock.now() + self._look_every, asyncio.Event())

    def _other_holder(self) -> Mapping[str, Any] | None:
        """The running scheduler that holds the store, unless it is this one; None if the store is free."""
        from duly.stores.port import EmbeddedStore

        store = self._lifecycle.setup.store
        if self.holding or not isinstance(store, EmbeddedStore):
            return None
        return _named(holder) if (holder := store.holder()).alive else None

    def _announce(self, holder: Mapping[str, Any]) -> None:
        from duly.events import StandbyStarted

        self._announced = True
        self._lifecycle.setup.outbox.emit(StandbyStarted(holder))


def _named(holder: "Holder") -> dict[str, Any]:
    """A holder as `StoreLockedError` names it."""
    since = None if holder.since is None else as_datetime(holder.since, UTC).isoformat(timespec="seconds")
    return {"pid": holder.pid, "host": holder.host, "since": since}
