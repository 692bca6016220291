"""A tour of duly in a little over a minute: a first run, a retry, a blocking task, and a restart that catches up.

Run it with `make demo`. On a terminal it goes on until Ctrl-C; otherwise it ends by itself.
"""

import asyncio
import itertools
import logging
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

import duly
from duly import events

attempts = itertools.count(1)


async def heartbeat() -> None:
    """Run on the event loop."""
    say("  heartbeat: still here")


async def flaky() -> None:
    """Fail the first time, and be retried after the retry delay."""
    if next(attempts) == 1:
        raise ConnectionError("the upstream service is asleep")
    say("  flaky: worked this time")


def rotate_logs() -> None:
    """Block a worker thread, not the event loop: plain functions run in threads."""
    time.sleep(0.5)
    say("  rotate-logs: blocked its own thread for half a second")


TASKS = [
    ("heartbeat", "* * * * *", heartbeat, timedelta(seconds=10)),
    ("flaky", "* * * * *", flaky, timedelta(seconds=3)),
    ("rotate-logs", "* * * * *", rotate_logs, timedelta(seconds=30)),
]


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now():%H:%M:%S}  {text}", flush=True)


def narrate(event: events.Event) -> None:
    """Print a sentence about the events that this tour is about."""
    match event:
        case events.TaskRetryStarted(task_name=name, retry_count=number):
            say(f"* {name}: its retry delay has passed, retry number {number}")
        case events.TaskRunStarted(task_name=name, scheduled_time=scheduled, actual_time=actual):
            late = actual - scheduled
            say(f"* {name}: due at {scheduled:%H:%M:%S}, starts {late.total_seconds():.1f} s later")
        case events.TaskRunFailed(task_name=name, error=error, next_retry_at=retry_at):
            say(f"* {name}: failed ({error}), will be retried at {retry_at:%H:%M:%S}")
        case _:
            pass


async def main(store: Path) -> None:
    """Start, stop across a minute boundary, start again."""
    if (second := datetime.now().second) >= 50:
        # The next due minute would take the place of the retry, and the tour would have no retry to show.
        say("This minute is nearly over; the tour begins with the next one.")
        await asyncio.sleep(61 - second)
    begun = time.monotonic()

    say(f"A first start, on an empty store: {store.name}")
    scheduler = duly.Scheduler(store, on_event=narrate)
    await scheduler.initialize(TASKS)
    try:
        say("All three match this minute, so they run at once:")
        await asyncio.sleep(8)
    finally:
        await scheduler.stop()

    until_next_minute = 60 - datetime.now().second
    say(f"Stopped. The next minute begins in {until_next_minute} s, and no scheduler is running ...")
    await asyncio.sleep(until_next_minute + 2)

    say("A second start, on the same store: the minute that was missed is served, once:")
    scheduler = duly.Scheduler(store, on_event=narrate)
    await scheduler.initialize(TASKS)
    try:
        if sys.stdout.isatty():
            say("From now on they run every minute. Press Ctrl-C to stop.")
            await asyncio.Event().wait()
        await asyncio.sleep(max(2.0, 62 - (time.monotonic() - begun)))
    finally:
        await scheduler.stop()
        say("Stopped: every run has ended, every end is recorded.")


if __name__ == "__main__":
    # This tour prints events by itself. An application would configure logging, which gets every event.
    logging.getLogger("duly").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="duly-demo-") as folder:
        try:
            asyncio.run(main(Path(folder) / "state.db"))
        except KeyboardInterrupt:
            sys.exit(0)
