"""Turns on the event loop: work in slices, so that the application's own tasks run in between."""

import asyncio
import time
from typing import Final, TypeVar

from duly.clock import Clock
from duly.core.steps import Steps

T = TypeVar("T")

SLICE_SECONDS: Final = 0.002
"""How long the scheduler works before it lets other tasks of the event loop run.

Several of its parts take a slice each in one round of the event loop: the longest pause is about six of them."""

SHORTEST_SLEEP_SECONDS: Final = 1e-6
"""The system makes a few dozen microseconds of it."""


async def breathe() -> None:
    """Let everything else on the event loop have its turn."""
    await asyncio.sleep(0)


def give_way() -> None:
    """Sleep for an instant so that the store's thread gets the interpreter's lock.

    The event loop releases that lock too when it polls for I/O, but takes it back before a waiting thread wakes up.
    """
    time.sleep(SHORTEST_SLEEP_SECONDS)


async def paced(clock: Clock, steps: Steps[T], *, steps_between_clock_reads: int = 1) -> T:
    """Go through short steps, let others run after every slice of time, and return the result of the steps.

    Work that yields after every single task reads the clock more rarely: reading it takes longer than such a step.
    """
    begun = clock.elapsed()
    try:
        while True:
            for _ in range(steps_between_clock_reads):
                next(steps)
            if clock.elapsed() - begun > SLICE_SECONDS:
                await breathe()
                begun = clock.elapsed()
    except StopIteration as end:
        result: T = end.value
        return result
