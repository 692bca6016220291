"""The public class: `initialize()` and `stop()`, and the options of both."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import duly
from duly.clock import Clock

if TYPE_CHECKING:
    from duly.engine.lifecycle import Lifecycle


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
        # As text: typing.get_type_hints() loads `stores` and `events` when it reads this, `import duly` does not.
        store: "str | PathLike[str] | duly.stores.Store" = "duly.db",
        *,
        max_concurrency: int | None = None,
        run_timeout: timedelta | None = None,
        interrupted: Literal["restart", "wait"] = "restart",
        on_mismatch: Literal["override", "refuse"] = "override",
        history: int = 100_000,
        on_event: "Callable[[duly.events.Event], object] | None" = None,
        clock: Clock | None = None,
        trace: bool = False,
        monitor: bool = False,
    ) -> None:
        # Loaded with the first scheduler, not with `import duly`: many programs import duly only to declare tasks or to
        # parse an expression, and the engine with its store is most of the package.
        from duly.engine.host import system_host
        from duly.engine.options import Options
        from duly.wiring import lifecycle_on

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

    def __repr__(self) -> str:
        state = "not running" if self._lifecycle.engine is None else "running"
        return f"<duly.Scheduler on {self._lifecycle.setup.store!r}, {state}>"

    async def initialize(self, registrations: Sequence[Sequence[Any]]) -> None:
        """Put the declared tasks in force, in one transaction; if this raises, nothing has changed.

        Each registration is (name, cron expression, callback, retry delay). On a running scheduler, the old
        registrations go on until the new ones are in force. If the awaiting task is cancelled, the call takes either
        full effect or none.
        """
        await self._lifecycle.initialize(registrations)

    async def stop(self) -> None:
        """Wait for running callbacks, record how they ended, and release the store, all threads and all asyncio tasks.

        Nothing starts after the call. If the awaiting task is cancelled, the stop still completes. Raises a
        StopSchedulerError inside a callback, and if ends cannot be stored for 30 seconds.
        """
        await self._lifecycle.stop()


def lifecycle_of(scheduler: Scheduler) -> "Lifecycle":
    """The inside of a scheduler, for what stands beside it."""
    return scheduler._lifecycle


def scheduler_of(lifecycle: "Lifecycle") -> Scheduler:
    """The scheduler of a lifecycle that was made elsewhere, for example on a simulated host."""
    scheduler = Scheduler.__new__(Scheduler)
    scheduler._lifecycle = lifecycle
    return scheduler
