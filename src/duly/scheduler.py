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

    Making one opens nothing: the store is opened by the first `initialize()`.

    Parameters:
        store: a path, `":memory:"`, a `postgresql://` URL, or a store of `duly.stores`.
        max_concurrency: how many callbacks may be under way at once. By default any number on the event loop, and as
            many threads as the machine has use for.
        run_timeout: how long a run may take; one that takes longer is cancelled, and has failed. By default for ever.
        interrupted: `"restart"` starts a run that a crash cut short again at once, `"wait"` lets it wait for its next
            due minute.
        on_mismatch: `"override"` lets declared tasks replace stored ones that differ, `"refuse"` raises.
        history: how many run records are kept. On a shared store, this and `trace` are the same for all hosts.
        on_event: called with each event, on the event loop's thread.
        clock: where time comes from; the host's clock by default.
        trace: whether what can be observed is recorded, for `duly.formal` to check.
        monitor: whether that is checked as it happens; a violation is the event `PropertyViolated`. On a shared store
            it implies `trace`, and what all hosts do is checked.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: an option has a value that cannot be used.
        StoreError: a URL cannot be read, or psycopg is not installed.
        UnsupportedPlatformError: this is neither Linux nor macOS.
    """

    def __init__(
        self,
        # As text: typing.get_type_hints() loads `stores` and `events` when it reads this, `import duly` does not.
        store: "str | PathLike[str] | duly.stores.Store | duly.stores.SharedStore" = "duly.db",
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

        On a running scheduler, the old registrations go on until the new ones are in force. If the awaiting task is
        cancelled, the call takes either full effect or none.

        Parameters:
            registrations: all tasks, each as (name, cron expression, callback, retry delay).

        Raises:
            RegistrationError: one of the registrations is wrong.
            StoreError: the store cannot be used; a `StoreLockedError` if another scheduler holds it.
            TaskTryDeserializeError: a stored record is damaged.
            ScheduleTaskError: the transaction failed.
            TaskListMismatchError: stored and declared tasks differ, with `on_mismatch="refuse"`.
            HostZoneError: the host's zone is unknown.
            SchedulerStoppingError: awaited inside a callback that a `stop()` waits for.
            DulyError: a name or an expression is too long for the trace or the monitor.
            RuntimeError: the scheduler belongs to another event loop.
        """
        await self._lifecycle.initialize(registrations)

    async def stop(self) -> None:
        """Wait for running callbacks, record how they ended, and release the store, all threads and all asyncio tasks.

        Nothing starts after the call. If the awaiting task is cancelled, the stop still completes. On a scheduler that
        is not running it does nothing.

        Raises:
            StopSchedulerError: called inside a callback, or ends could not be stored for 30 seconds.
            RuntimeError: the scheduler belongs to another event loop.
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
