"""APScheduler 4.0.0a6: `SQLAlchemyDataStore` and `AsyncpgEventBroker`, as its documentation says for PostgreSQL.

All defaults, among them leases of 30 s, a clean-up of abandoned jobs every 15 minutes, and `max_running_jobs=1`: a task
does not overlap itself. Thousands of tasks are schedules of one task that may run as often as it is due; the first host
adds them, and the others find them in the database.
"""

from apscheduler import AsyncScheduler, ConflictPolicy
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.asyncpg import AsyncpgEventBroker
from apscheduler.triggers.cron import CronTrigger
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.cluster.host import Place
from benchmarks.cluster.work import Tasks

SETUP_US = 12_000


async def prepare(url: str) -> None:
    """Let one scheduler create the tables: of three that do it at once, two fail."""
    async with _scheduler(url):
        pass


async def serve(place: Place) -> None:
    """Be a host."""
    async with _scheduler(place.url) as scheduler:
        for tasks in place.work:
            if tasks.number == 1:
                await scheduler.configure_task(tasks.name, func=place.witness.work)
            else:
                await scheduler.configure_task(tasks.name, func=place.witness.work, max_running_jobs=None)
            if tasks.number == 1 or place.is_first:
                await _add(scheduler, tasks)
        place.ready()
        await scheduler.run_until_stopped()


async def _add(scheduler: AsyncScheduler, tasks: Tasks) -> None:
    for name in tasks.names:
        await scheduler.add_schedule(
            tasks.name,
            CronTrigger.from_crontab(tasks.cron, timezone="UTC"),
            id=name,
            args=(name, tasks.seconds),
            conflict_policy=ConflictPolicy.do_nothing,
        )


def _scheduler(url: str) -> AsyncScheduler:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    return AsyncScheduler(SQLAlchemyDataStore(engine), AsyncpgEventBroker(url))
