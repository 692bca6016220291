"""Tasks inside an ASGI application: of all its worker processes one runs them, and another takes over when it dies.

On a shared store every worker is a host, and they divide the tasks among them.

The lifespan of FastAPI, Starlette and Litestar is a function of the application that returns an async context manager;
`lifespan()` makes one. It imports none of them, so there is nothing to install.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import duly

__all__ = ["lifespan"]

Registrations = Sequence[Sequence[Any]]


def lifespan(
    store: str | os.PathLike[str] | duly.stores.Store | duly.stores.SharedStore,
    registrations: Registrations | Callable[[], Registrations],
    *,
    look_every: timedelta = timedelta(seconds=1),
    **options: Any,
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Make the `lifespan` of an application that runs these tasks, in one of its worker processes at a time.

    While the application serves, `app.state.duly` is the `duly.Standby` of the worker: `holding` says whether tasks run
    there. The application serves whether or not the store is free, and goes on if the scheduler fails, which is
    reported as the event `StandbyFailed` and raised when the application shuts down.

    Parameters:
        store: as for `Scheduler`. On a `postgresql://` URL every worker is a host, and they share the tasks.
        registrations: what `Scheduler.initialize` takes, or a function that returns it when the application starts.
        look_every: how often a worker looks whether the store is free.
        **options: those of `Scheduler`.

    Returns:
        A function of the application that returns an async context manager.

    Raises:
        TypeError: `registrations` is neither a list nor a function.
    """
    if isinstance(registrations, str | bytes) or not (callable(registrations) or isinstance(registrations, Sequence)):
        kind = type(registrations).__name__
        raise TypeError(f"registrations must be a list of registrations or a function that returns one, got {kind}")

    @asynccontextmanager
    async def tasks_run(app: Any) -> AsyncIterator[None]:
        declared = registrations() if callable(registrations) else registrations
        scheduler = duly.Scheduler(store, **options)
        async with duly.standby(scheduler, declared, look_every=look_every) as standby:
            if (state := getattr(app, "state", None)) is not None:
                state.duly = standby
            yield

    return tasks_run
