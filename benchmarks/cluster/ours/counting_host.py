"""Hosts of a burst: `python -m benchmarks.cluster.ours.counting_host URL SCHEMA TASKS EXPRESSIONS DUE HOSTS`.

One host, or several in this one process, each a scheduler with its own connections and its own beats. It says `ready`
when their tasks are declared, and on SIGTERM what they have seen, as JSON.
"""

import asyncio
import json
import signal
import sys
import time
from datetime import datetime, timedelta

import duly
from benchmarks import witness, workload
from benchmarks.cluster.ours.noting import NotingStore

LEASE = timedelta(seconds=30)


async def live(url: str, schema: str, tasks: int, expressions: str, due: datetime, hosts: int) -> dict[str, float]:
    """Be so many hosts until SIGTERM."""
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    stores = [NotingStore(url, schema=schema, lease=LEASE) for _ in range(hosts)]
    schedulers = [duly.Scheduler(store) for store in stores]
    registrations = workload.tasks(tasks, workload.SETS[expressions](due), witness.callback)
    witness.expect(tasks + 1)  # which never come: what is due is shared
    begun, used = time.perf_counter(), time.process_time()
    for scheduler in schedulers:
        await scheduler.initialize(registrations)
    initialized, initialized_cpu = time.perf_counter() - begun, time.process_time() - used
    print("ready", flush=True)
    used = time.process_time()
    await terminated.wait()
    used = time.process_time() - used
    await asyncio.gather(*(scheduler.stop() for scheduler in schedulers))
    notes = [store.notes for store in stores]
    sample = {
        "starts": float(witness.count),
        "granted": float(sum(each.starts for each in notes)),
        "refused": float(sum(each.refused for each in notes)),
        "writes": float(sum(each.writes for each in notes)),
        "ends": float(sum(each.ends for each in notes)),
        "durable_at": max(each.durable_at for each in notes),
        "shortest_write_s": min(each.shortest_s for each in notes),
        "busy_hosts": float(sum(each.starts > 0 for each in notes)),
        "cpu_s": used,
        "initialize_s": initialized,
        "initialize_cpu_s": initialized_cpu,
    }
    if witness.first is not None:
        ago = time.time() - time.perf_counter()
        sample |= {"first_at": witness.first + ago, "last_at": witness.last + ago}
    return sample


def main(url: str, schema: str, tasks: str, expressions: str, due: str, hosts: str) -> None:
    """Print what was seen."""
    sample = asyncio.run(live(url, schema, int(tasks), expressions, datetime.fromisoformat(due), int(hosts)))
    print(json.dumps(sample), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
