"""The public class: `initialize()` and `stop()`, and the options of both."""

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal

from duly.clock import Clock
from duly.engine.host import Host, system_host
from duly.engine.lifecycle import Lifecycle
from duly.engine.options import Options
from duly.engine.outbox import Outbox
from duly.engine.setup import Setup
from duly.errors import UnsupportedPlatformError
from duly.events import Event
from duly.stores.port import DEFAULT_HISTORY, Store
from duly.stores.sqlite import SqliteStore


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
        options = Options(
            max_concurrency=max_concurrency,
            run_timeout=run_timeout,
            interrupted=interrupted,
            on_mismatch=on_mismatch,
            history=history,
            on_event=on_event,
            trace=trace,
            monitor=monitor,
        )
        self._lifecycle = lifecycle_on(system_host(clock), store, options)

    async def initialize(self, registrations: Sequence[Sequence[Any]]) -> None:
        """Make the declared tasks the ones that run: all of them, or, when this raises, none of the changes.

        On a running scheduler this re-initialises; if that fails, the old registrations go on. Cancelling it has
        either all of its effect or none.
        """
        await self._lifecycle.initialize(registrations)

    async def stop(self) -> None:
        """Let running callbacks end, record their ends, release everything; afterwards nothing of it is left.

        Nothing starts once this was called. It goes on when its caller is cancelled.
        """
        await self._lifecycle.stop()


def scheduler_of(lifecycle: Lifecycle) -> Scheduler:
    """A scheduler around a lifecycle that was made elsewhere, for example on a simulated host."""
    scheduler = Scheduler.__new__(Scheduler)
    scheduler._lifecycle = lifecycle
    return scheduler


def lifecycle_on(
    host: Host,
    store: str | PathLike[str] | Store,
    options: Options,
    *,
    ignored: frozenset[type[Event]] = frozenset(),
) -> Lifecycle:
    """The inside of a scheduler on any host; `ignored` are events that `on_event` ignores."""
    if sys.platform == "win32":
        raise UnsupportedPlatformError("Windows")
    outbox = Outbox(host.clock, options.on_event, ignored=ignored)
    return Lifecycle(Setup(options, host, _store_of(store, options.history, host), outbox))


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
