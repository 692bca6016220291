"""What a scheduler needs of its surroundings, in one bundle: the system's, or a simulated one.

Time, chance and threads reach the scheduler only through here, so the same code runs in production and in a
deterministic simulation.
"""

import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from duly.clock import Clock, SystemClock
from duly.threads import DaemonThreads, Threads, default_threads


def _random_identifier() -> str:
    return uuid.uuid4().hex


def _threads_for_callbacks(size: int) -> Threads:
    return DaemonThreads(size, "duly-run")


def _thread_for_a_store() -> Threads:
    return DaemonThreads(1, "duly-store")


@dataclass(frozen=True, slots=True)
class Host:
    """Clock, chance, threads for callbacks, and the thread that writes to the store."""

    clock: Clock
    new_identifier: Callable[[], str] = _random_identifier
    new_pool: Callable[[int], Threads] = _threads_for_callbacks
    default_threads: int = default_threads()
    new_worker: Callable[[], Threads] = _thread_for_a_store
    eager: bool = sys.version_info >= (3, 12)
    """Whether a callback's first step is taken at once, without a round through the event loop."""

    audit: Callable[[Any, Any], None] | None = None
    """Called with the loop and each of its decisions, before the decision is carried out."""


def system_host(clock: Clock | None) -> Host:
    """The real surroundings, with the application's clock if it gave one."""
    return Host(clock if clock is not None else SystemClock())
