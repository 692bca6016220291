"""Helpers for tests of the engine: registrations, the work behind them, and the engine of a scheduler."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest

import duly
from duly.core.moments import MICROSECONDS
from duly.engine.engine import Engine
from duly.testing import SimulatedHost
from duly.testing.cluster import ClusterHost, HostThreads

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


def load_slowly(host: ClusterHost, monkeypatch: pytest.MonkeyPatch, *, seconds: int) -> None:
    """From now on hosts need so long to load, on the clock of this one; beats go on."""
    clock, quickly = host._clock, HostThreads.run

    async def slowly(threads: HostThreads, call: Callable[[], Any]) -> Any:
        answer = await quickly(threads, call)
        if getattr(call, "__name__", "") == "load":
            await clock.sleep_until(clock.now() + seconds * MICROSECONDS, asyncio.Event())
        return answer

    monkeypatch.setattr(HostThreads, "run", slowly)
