"""What a scheduler needs of its surroundings, in one private bundle: the system's, or a simulated one.

Time, chance and threads reach the scheduler only through here, so the same code runs in production and in a
deterministic simulation.
"""

import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from duly.clock import Clock, SystemClock
from duly.engine.runs import Pool, ThreadPool, default_pool_size
from duly.stores.sqlite.worker import Worker, WriterThread


def _random_identifier() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Host:
    """The seams: clock, entropy, threads for callbacks, and the thread that writes."""

    clock: Clock
    new_identifier: Callable[[], str] = _random_identifier
    new_pool: Callable[[int], Pool] = ThreadPool
    default_threads: int = default_pool_size()
    new_worker: Callable[[], Worker] = WriterThread
    eager: bool = sys.version_info >= (3, 12)
    """Whether a callback's first step is taken at once, without a round through the event loop."""

    audit: Callable[[Any, Any], None] | None = None
    """Shown every decision before it is carried out, with the loop that made it."""


def system_host(clock: Clock | None) -> Host:
    """The real surroundings, with the application's clock if it gave one."""
    return Host(clock if clock is not None else SystemClock())
