"""Parts that the peers share: a due instant a little ahead of a set-up that takes a while, and the figures of a tick.

Peers have no clock to pass. All of them but arq, Celery and taskiq know seconds, so N jobs are set up for one second
of the day shortly after the set-up is over: to them `second=S` costs what `second=0` does, and no
measurement waits for a minute.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

import tzlocal

from benchmarks import witness

LEAD_SECONDS = 1.0
ATTEMPTS = 4


class SetUp(Protocol):
    """Makes a scheduler with a number of jobs, all due at one instant; returns what stops it."""

    async def __call__(self, jobs: int, due: datetime, /) -> Callable[[], Awaitable[None]]:
        """Set up, and return when every job is in place."""
        ...


async def tick(set_up: SetUp, jobs: int, *, patience_s: float = 900) -> dict[str, float]:
    """Set up jobs that are due together, and watch when the first and the last of them start.

    A peer that has not started all of them after `patience_s` has taken at least that long: `started` says how many.
    """
    trial_jobs = max(1, min(20, jobs // 10))
    trial = time.perf_counter()
    witness.expect(trial_jobs)
    await (await set_up(trial_jobs, _soon(3600)))()
    lead = 1.3 * (time.perf_counter() - trial) * jobs / trial_jobs + LEAD_SECONDS
    for _ in range(ATTEMPTS):
        due = _soon(lead)
        started = witness.expect(jobs)
        begun = time.perf_counter()
        stop = await set_up(jobs, due)
        took = time.perf_counter() - begun
        due_at = time.perf_counter() + due.timestamp() - time.time()
        if due_at - time.perf_counter() > 0.1:
            used = time.process_time()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(started.wait(), due_at - time.perf_counter() + patience_s)
            used = time.process_time() - used
            seen = witness.count
            await stop()
            if seen == jobs:
                witness.check(jobs)
            elif not seen:
                raise RuntimeError(f"no job started within {patience_s} s")
            outcome = figures(jobs, due_at, initialize_s=took, cpu_until_last_start_s=used, started=float(seen))
            if seen < jobs:
                outcome["last_start_s"] = patience_s
            return outcome
        await stop()
        lead = 1.5 * max(lead, took)
    raise RuntimeError(f"the set-up of {jobs} jobs took longer than expected, {ATTEMPTS} times")


def figures(jobs: int, due_at: float, **others: float) -> dict[str, float]:
    """The witness's account."""
    assert witness.first is not None
    return {
        "tasks": float(jobs),
        "first_start_s": witness.first - due_at,
        "last_start_s": witness.last - due_at,
        **others,
    }


def _soon(seconds: float) -> datetime:
    """The first whole second that is at least this far ahead, on the host's wall clock."""
    instant = math.ceil(time.time() + seconds)
    return datetime.fromtimestamp(instant, tzlocal.get_localzone())


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds that no event reports."""
    while not condition():  # noqa: ASYNC110 -- there is no event to wait for
        await asyncio.sleep(0.001)
