"""PgQueuer: `@pgq.schedule` on one asyncpg connection per host, all defaults; a schedule is taken over after 30 s."""

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Schedule
from pgqueuer.queries import Queries

from benchmarks.cluster.host import Place

SETUP_US = 1_500


async def prepare(url: str) -> None:
    """Create the tables, as `pgq install` does."""
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def serve(place: Place) -> None:
    """Be a host."""
    pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(place.url)))

    def callback(name: str, seconds: float) -> Callable[[Schedule], Awaitable[None]]:
        async def work(schedule: Schedule) -> None:
            await place.witness.work(name, seconds)

        return work

    for tasks in place.work:
        for name in tasks.names:
            pgq.schedule(name, tasks.cron)(callback(name, tasks.seconds))
    running = asyncio.create_task(pgq.run())
    await _until_inserted(place.url, sum(tasks.number for tasks in place.work))
    place.ready()
    await running


async def _until_inserted(url: str, schedules: int) -> None:
    """Wait until the schedules stand in the database, which nothing tells."""
    connection = await asyncpg.connect(url)
    while await connection.fetchval("select count(*) from pgqueuer_schedules") < schedules:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    await connection.close()
