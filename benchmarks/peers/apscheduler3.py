"""APScheduler 3: AsyncIOScheduler, coroutine jobs, its job store in memory or in SQLite.

The job store is SQLAlchemyJobStore, as its documentation says, on a file: once as it is (SQLite's rollback journal),
once tuned by what one finds first, WAL; in both cases with `synchronous=FULL`, as duly has it. Without
`misfire_grace_time=None` it drops what it cannot start within a second of its time. Measured: from the due second to
the start of the last coroutine, and adding the jobs, from the first `add_job` to the last.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger

from benchmarks import witness
from benchmarks.peers.common import tick


async def measure(folder: Path, tasks: int, store: str, patience_s: float = 900) -> dict[str, float]:
    """With `store` one of memory, sqlite, wal."""
    number = 0

    async def set_up(jobs: int, due: datetime) -> Callable[[], Awaitable[None]]:
        nonlocal number
        number += 1
        scheduler = AsyncIOScheduler(
            jobstores={"default": _job_store(folder / f"{number}.db", store)},
            job_defaults={"misfire_grace_time": None, "coalesce": True},
        )
        scheduler.start()
        for index in range(jobs):
            trigger = CronTrigger(hour=due.hour, minute=due.minute, second=due.second)
            scheduler.add_job(witness.callback, trigger, id=f"task-{index}")

        async def stop() -> None:
            scheduler.shutdown(wait=False)

        return stop

    return await tick(set_up, tasks, patience_s=patience_s)


def _job_store(path: Path, store: str) -> Any:
    if store == "memory":
        return MemoryJobStore()
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
    from sqlalchemy import create_engine, event

    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def tune(connection: Any, _: object) -> None:
        if store == "wal":
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    return SQLAlchemyJobStore(engine=engine)
