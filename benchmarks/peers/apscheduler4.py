"""APScheduler 4.0.0a6: AsyncScheduler, coroutine jobs, its data store in memory or in SQLite.

The data store is SQLAlchemyDataStore on aiosqlite, as its documentation says, with SQLite's defaults, among them
`synchronous=FULL`. `max_concurrent_jobs` is raised from 100 to the number of jobs, so that no job waits for a slot.
Measured: from the due second to the start of the last coroutine, and adding the schedules, from the first
`add_schedule` to the last.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

from apscheduler import AsyncScheduler
from apscheduler.datastores.memory import MemoryDataStore
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.cron import CronTrigger
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks import witness
from benchmarks.peers.common import tick


async def measure(folder: Path, tasks: int, store: str, patience_s: float = 900) -> dict[str, float]:
    """With `store` one of memory, sqlite."""
    number = 0

    async def set_up(jobs: int, due: datetime) -> Callable[[], Awaitable[None]]:
        nonlocal number
        number += 1
        resources = AsyncExitStack()
        if store == "memory":
            data_store = MemoryDataStore()
        else:
            engine = create_async_engine(f"sqlite+aiosqlite:///{folder / f'{number}.db'}")
            resources.push_async_callback(engine.dispose)
            data_store = SQLAlchemyDataStore(engine)
        scheduler = await resources.enter_async_context(AsyncScheduler(data_store, max_concurrent_jobs=max(100, jobs)))
        await scheduler.configure_task("task", func=witness.callback)
        for index in range(jobs):
            trigger = CronTrigger(hour=due.hour, minute=due.minute, second=due.second)
            await scheduler.add_schedule("task", trigger, id=f"task-{index}", misfire_grace_time=None)
        await scheduler.start_in_background()

        async def stop() -> None:
            await scheduler.stop()
            await resources.aclose()

        return stop

    return await tick(set_up, tasks, patience_s=patience_s)
