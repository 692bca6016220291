"""aiocron: one `crontab` for each task, nothing on disk.

Measured: from the due second to the start of the last coroutine, and making the crontabs.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

import aiocron

from benchmarks import witness
from benchmarks.peers.common import tick, until


async def measure(folder: Path, tasks: int) -> dict[str, float]:
    """There is only one way to set it up."""

    async def set_up(jobs: int, due: datetime) -> Callable[[], Awaitable[None]]:
        spec = f"{due.second} {due.minute} {due.hour} * * *"
        crons = [aiocron.crontab(spec, func=witness.callback, start=True) for _ in range(jobs)]
        await until(lambda: crons[-1].cronsim is not None)  # they start themselves one round of the loop later

        async def stop() -> None:
            for cron in crons:
                cron.stop()

        return stop

    return await tick(set_up, tasks)
