"""duly: `Scheduler` on a `PostgresStore`, all defaults: a lease of 30 s, so a beat every 5 s."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import duly
from benchmarks.cluster.host import Place
from duly.stores import PostgresStore

SETUP_US = 400
RETRY_DELAY = timedelta(minutes=5)


async def prepare(url: str) -> None:
    """Create the tables, which a first host would do as well."""
    await asyncio.to_thread(PostgresStore(url).install)


async def serve(place: Place) -> None:
    """Be a host."""

    def callback(name: str, seconds: float) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            await place.witness.work(name, seconds)

        return work

    scheduler = duly.Scheduler(PostgresStore(place.url, label=place.host))
    await scheduler.initialize(
        [(name, tasks.cron, callback(name, tasks.seconds), RETRY_DELAY) for tasks in place.work for name in tasks.names]
    )
    place.ready()
    await asyncio.Event().wait()
