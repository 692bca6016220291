"""oban: `@worker(cron=…)`, a queue of 100 on each host, all defaults but one.

`lifeline` looks every 15 s for jobs that have been executing for 60 s: by default it looks each minute, for 300 s.
"""

import asyncio

from oban import Oban, worker
from oban.job import Job
from oban.schema import install

from benchmarks.cluster.host import Place
from benchmarks.cluster.witness import Witness

SETUP_US = 500
QUEUE = 100
LIFELINE = {"interval": 15.0, "rescue_after": 60.0}


async def prepare(url: str) -> None:
    """Create the tables, as `oban install` does."""
    pool = await Oban.create_pool(url)
    await install(pool)
    await pool.close()


async def serve(place: Place) -> None:
    """Be a host."""
    for tasks in place.work:
        for name in tasks.names:
            worker(queue="default", cron=tasks.cron)(_class(name, tasks.seconds, place.witness))
    pool = await Oban.create_pool(place.url)
    async with Oban(pool=pool, queues={"default": QUEUE}, lifeline=LIFELINE):
        place.ready()
        await asyncio.Event().wait()


def _class(name: str, seconds: float, witness: Witness) -> type:
    """A worker is a class, and known by its name."""

    async def process(self: object, job: Job) -> None:
        await witness.work(name, seconds)

    return type(name, (), {"process": process, "__module__": __name__})
