"""The surroundings of a scheduler in one bundle: clock, chance and threads, of the system or of a simulated host.

Time, chance and threads reach the scheduler only through here, so the same code runs in production and in a
deterministic simulation.
"""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duly.clock import Clock, SystemClock, boottime
from duly.threads import DaemonThreads, Threads, Ticker, TickerThread, default_threads

if TYPE_CHECKING:
    from duly.core.agenda import Agenda, Decision, Slots

Audit = Callable[["Agenda", "Decision", "Slots"], None]


def _random_identifier() -> str:
    return uuid.uuid4().hex


def _threads_for_callbacks(size: int) -> Threads:
    return DaemonThreads(size, "duly-run")


def _thread_for_a_store() -> Threads:
    return DaemonThreads(1, "duly-store")


def _thread_for_beats() -> Ticker:
    return TickerThread("duly-beats")


@dataclass(frozen=True, slots=True)
class Host:
    """The seam between the engine and a computer, real or simulated."""

    clock: Clock
    new_identifier: Callable[[], str] = _random_identifier
    new_pool: Callable[[int], Threads] = _threads_for_callbacks
    """Makes the threads for blocking callbacks."""

    default_threads: int = default_threads()
    """How many there are unless `max_concurrency` says otherwise."""

    new_worker: Callable[[], Threads] = _thread_for_a_store
    """Makes the thread in which a store writes."""

    new_ticker: Callable[[], Ticker] = _thread_for_beats
    """Makes the thread in which a host of a shared store beats."""

    boottime: Callable[[], float] = boottime
    """Elapsed seconds that count on while the machine is suspended; from any thread."""

    wall: Callable[[], int] = SystemClock().now
    """The wall clock of the machine, whatever clock the application gave; from any thread."""

    chance: Callable[[], float] = random.random
    """A number from 0 to 1: hosts that lost their lease at one moment do not come back at one moment."""

    watches_the_loop: bool = True
    """Whether a thread watches for callbacks that block the event loop; in a simulation no time passes in them."""

    until_stopped: Callable[["asyncio.Task[None]"], Awaitable[None]] | None = None
    """Awaited by a stop() with its work, before it waits for that: time has to pass meanwhile."""

    audit: Audit | None = None
    """Called with every decision, and the slots that were free for it, before it is carried out."""


def system_host(clock: object = None) -> Host:
    """The real surroundings, with the application's clock if it gave one; raises a TypeError if that is not a clock."""
    if clock is None:
        return Host(SystemClock())
    if isinstance(clock, type):
        raise TypeError(f"clock must be an object, got the class {clock.__name__}: call it")
    if not isinstance(clock, Clock):
        raise TypeError(f"clock must have now, elapsed, zone and sleep_until; {type(clock).__name__} has not")
    return Host(clock)
