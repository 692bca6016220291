"""A target for the command line: try `duly plan examples/tasks.py --store /tmp/state.db`, then `duly run` the same.

`registrations` is what the commands look for: a list of (name, cron, callback, retry delay), or a function (it may be
async) that returns such a list. What callbacks log appears in the log of `duly run`.
"""

import asyncio
import logging
import random
import time
from datetime import timedelta

log = logging.getLogger("tasks")


async def heartbeat() -> None:
    """Quick, and on the event loop."""
    log.info("still here")


async def sync_mirror() -> None:
    """Takes a while, and fails now and then; the retry delay is what it waits before it is tried again."""
    await asyncio.sleep(random.uniform(1, 5))
    if random.random() < 0.3:
        raise ConnectionError("the mirror does not answer")


def rotate_logs() -> None:
    """Blocking code runs in a worker thread; the event loop does not notice."""
    time.sleep(0.5)


def nightly_report() -> None:
    """Monday to Friday, before work begins."""


registrations = [
    ("heartbeat", "* * * * *", heartbeat, timedelta(seconds=10)),
    ("sync-mirror", "0,10,20,30,40,50 * * * *", sync_mirror, timedelta(seconds=30)),
    ("rotate-logs", "0 * * * *", rotate_logs, timedelta(minutes=1)),
    ("nightly-report", "30 5 * * 1-5", nightly_report, timedelta(minutes=10)),
]
