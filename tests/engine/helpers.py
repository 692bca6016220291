"""Helpers for tests of the engine: registrations, the work behind them, and the engine of a scheduler."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import duly
from duly.engine.engine import Engine
from duly.testing import SimulatedHost

EVERY_MINUTE: Final = "* * * * *"
MINUTE: Final = timedelta(minutes=1)

Registration = tuple[str, str, Callable[[], object], timedelta]


async def noop() -> None:
    """Work that is done at once."""


async def fail() -> None:
    """Work that cannot be done."""
    raise ValueError("it did not work")


def works(host: SimulatedHost, seconds: float) -> Callable[[], Awaitable[None]]:
    """Work that takes its time."""

    async def work() -> None:
        await host.sleep(seconds)

    return work


def registration(
    name: str = "task", cron: str = EVERY_MINUTE, callback: Callable[[], object] = noop, delay: timedelta = MINUTE
) -> Registration:
    """A registration in which only what matters needs to be named."""
    return (name, cron, callback, delay)


def engine_of(scheduler: duly.Scheduler) -> Engine:
    """The engine of a scheduler that runs."""
    engine = scheduler._lifecycle.engine
    assert engine is not None
    return engine
