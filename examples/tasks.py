"""Tasks for the command line: `duly plan examples/tasks.py --store state.db`, then `duly run` with the same words.

The commands look for `registrations`: a list of (name, cron, callback, retry delay), or a function, plain or async,
that returns such a list. What callbacks log appears in the log of `duly run`.
"""

import asyncio
import logging
import random
import time
from datetime import timedelta

log = logging.getLogger("tasks")


async def heartbeat() -> None:
    """Run on the event loop."""
    log.info("still here")


async def sync_mirror() -> None:
    """Take a while, and fail now and then: a failed run is retried after the retry delay."""
    await asyncio.sleep(random.uniform(1, 5))
    if random.random() < 0.3:
        raise ConnectionError("the mirror does not answer")


def rotate_logs() -> None:
    """Block a worker thread, not the event loop: plain functions run in threads."""
    time.sleep(0.5)


def nightly_report() -> None:
    """Run from Monday to Friday, before work begins."""


registrations = [
    ("heartbeat", "* * * * *", heartbeat, timedelta(seconds=10)),
    ("sync-mirror", "0,10,20,30,40,50 * * * *", sync_mirror, timedelta(seconds=30)),
    ("rotate-logs", "0 * * * *", rotate_logs, timedelta(minutes=1)),
    ("nightly-report", "30 5 * * 1-5", nightly_report, timedelta(minutes=10)),
]
