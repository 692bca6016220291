"""A host whose callback keeps the interpreter's lock in one call of C.

A regular expression, or `str()` of a large integer, does that: no other thread of the process has its turn meanwhile,
and that of the beats has none either.
"""

import asyncio
import ctypes
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path

import duly
from duly.events import Event, LeaseLost
from duly.stores import PostgresStore


def keep_the_lock(seconds: float) -> None:
    """Sleep in C without giving the lock away; `PyDLL` keeps it, unlike `CDLL`."""
    ctypes.PyDLL(None).usleep(ctypes.c_uint(int(seconds * 1_000_000)))


async def main(url: str, schema: str, lease: float, notes: Path) -> None:
    """Run one such callback, and note what it comes to, and what becomes of the host."""
    rejoined = asyncio.Event()
    calls = count(1)
    loop = asyncio.get_running_loop()

    def note(what: str) -> None:
        with notes.open("a") as file:
            file.write(f"{what}\n")

    async def work() -> None:
        if next(calls) > 1:
            return  # a minute has begun since
        note("began")
        try:
            keep_the_lock(2.5 * lease)
            note("the rest of the step")
            await asyncio.sleep(0)
            note("another step")
        except asyncio.CancelledError as error:
            note(type(error).__name__)
            raise

    def hear(event: Event) -> None:
        if isinstance(event, LeaseLost):
            note("LeaseLost")
            loop.call_later(lease, rejoined.set)

    store = PostgresStore(url, schema=schema, lease=timedelta(seconds=lease), label="keeps the lock")
    scheduler = duly.Scheduler(store, on_event=hear)
    await scheduler.initialize([("report", "* * * * *", work, timedelta(seconds=30))])
    note("initialized")
    await rejoined.wait()
    await scheduler.stop()
    note("stopped")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4])))
