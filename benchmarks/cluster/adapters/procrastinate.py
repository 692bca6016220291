"""Procrastinate: `@app.periodic`, with `lock=` to forbid overlap, and its documented sweeper of stalled jobs.

The sweeper runs each minute, where the documentation has ten minutes; heartbeats are as they are shipped, every 10 s. A
worker takes up to 100 jobs at once, instead of one.
"""

from collections.abc import Awaitable, Callable

from procrastinate import App, PsycopgConnector

from benchmarks.cluster.host import Place

SETUP_US = 1_500
CONCURRENCY = 100


async def prepare(url: str) -> None:
    """Create the tables, as `procrastinate schema --apply` does."""
    app = App(connector=PsycopgConnector(conninfo=url))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def serve(place: Place) -> None:
    """Be a host."""
    app = App(connector=PsycopgConnector(conninfo=place.url))

    def callback(name: str, seconds: float) -> Callable[[int], Awaitable[None]]:
        async def work(timestamp: int) -> None:
            await place.witness.work(name, seconds)

        return work

    for tasks in place.work:
        for name in tasks.names:
            task = app.task(name=name, lock=name)(callback(name, tasks.seconds))
            app.periodic(cron=tasks.cron)(task)

    @app.periodic(cron="* * * * *")
    @app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
    async def retry_stalled_jobs(context: object, timestamp: int) -> None:
        for job in await app.job_manager.get_stalled_jobs():
            await app.job_manager.retry_job(job)

    async with app.open_async():
        place.ready()
        await app.run_worker_async(concurrency=CONCURRENCY)
