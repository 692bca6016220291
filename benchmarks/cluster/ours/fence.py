"""The cost of the step fence for a step of a callback, in processor time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from duly.engine.lease import BeatLease, stepping

STEPS_OF_A_RUN = 10
ROUNDS = 5


async def measure(folder: Path, steps: int) -> dict[str, float]:
    """Await callbacks of ten steps, directly and through the fence; the best of some rounds of each, in turn."""
    lease = BeatLease(3600.0, _boottime, sent=_boottime())
    runs = max(1, steps // STEPS_OF_A_RUN)

    async def directly() -> None:
        await _work()

    async def fenced() -> None:
        await stepping(_work(), lease, _never)

    bare = through = float("inf")
    for _ in range(ROUNDS):
        bare = min(bare, await _seconds(directly, runs))
        through = min(through, await _seconds(fenced, runs))
    each = 1e6 / (runs * STEPS_OF_A_RUN)
    return {
        "steps": float(runs * STEPS_OF_A_RUN),
        "step_us": bare * each,
        "fenced_step_us": through * each,
        "fence_us_a_step": (through - bare) * each,
    }


def _never() -> bool:
    return False


async def _seconds(way: Callable[[], Awaitable[None]], runs: int) -> float:
    begun = time.process_time()
    for _ in range(runs):
        await way()
    return time.process_time() - begun


async def _work() -> None:
    for _ in range(STEPS_OF_A_RUN):
        await asyncio.sleep(0)


def _boottime() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
