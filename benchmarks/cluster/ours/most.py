"""A million tasks on PostgreSQL: what loading them costs database and host, and how long a burial holds the lock."""

import time
from datetime import datetime
from pathlib import Path

import tzlocal

import duly
from benchmarks import witness, workload
from benchmarks.cluster.ours.place import Place, place
from benchmarks.cluster.ours.plain_host import PlainHost, arrivals
from duly.stores import PostgresStore
from duly.stores.shared import Arrival

KINDS = 60
"""Situations that tasks are in: as many groups of rows that are alike."""

RUNNING = 1_000
"""Tasks that run on the host which is buried."""

LOADS = 3


async def measure(folder: Path, url: str, tasks: int) -> dict[str, float] | None:
    """Declare them without a scheduler, load them, bury a host that ran some, and let a scheduler join."""
    expressions = workload.dormant(datetime.now(tzlocal.get_localzone()))[:KINDS]
    with place(url) as here:
        first = PlainHost(url, here.schema)
        first.install()
        begun = time.perf_counter()
        declared = arrivals(tasks, expressions)
        first.join(declared)
        declare_s = time.perf_counter() - begun
        sample = {"tasks": float(tasks), "declare_s": declare_s}
        sample |= _load(here, first)
        sample |= _bury(here, first, declared)
        first.functions.close()
        scheduler = duly.Scheduler(PostgresStore(url, schema=here.schema))
        names = [(each.name, each.cron, witness.callback, workload.RETRY_DELAY) for each in declared]
        begun, used = time.perf_counter(), time.process_time()
        await scheduler.initialize(names)
        sample |= {"initialize_s": time.perf_counter() - begun, "initialize_cpu_s": time.process_time() - used}
        await scheduler.stop()
        return sample if "load_database_s" in sample else None


def _load(here: Place, host: PlainHost) -> dict[str, float]:
    """The best of some loads; PostgreSQL may let several processes work on one."""
    samples = []
    for _ in range(LOADS):
        before, used, begun = here.server_seconds(), time.process_time(), time.perf_counter()
        content = host.functions.load()
        took, used, after = time.perf_counter() - begun, time.process_time() - used, here.server_seconds()
        found = {"load_s": took, "load_cpu_s": used, "groups": float(len(content.records))}
        if before is not None and after is not None:
            found["load_database_s"] = after - before
        samples.append(found)
    return {name: min(sample[name] for sample in samples) for name in samples[0]}


def _bury(here: Place, burier: PlainHost, declared: list[Arrival]) -> dict[str, float]:
    """Let another host run some tasks, and bury it; the call holds the lock of all writers from begin to end."""
    dead = PlainHost(here.url, here.schema)
    generation = dead.join(declared)
    running = min(RUNNING, len(declared))
    answer, _ = dead.start(range(generation, generation + running))
    dead.functions.close()
    before, begun = burier.database_seconds(), time.perf_counter()
    buried = burier.functions.bury(burier.me, dead.me.key, 0)
    took, after = time.perf_counter() - begun, burier.database_seconds()
    interrupted = here.number("select count(*) from runs where outcome = 'interrupted'")
    if buried is None or answer.refused or interrupted != running:
        raise RuntimeError(f"{running} runs should have been interrupted, {interrupted} were")
    found = {"bury_s": took}
    if before is not None and after is not None:
        found["bury_database_s"] = after - before
    return found
