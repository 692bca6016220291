"""A scheduler as a process of its own on a disk that misbehaves: full, failing, slow; it says what it sees, in lines.

Run as a module: `python -m tests.system.disk_program STORE RUNS SECONDS`. Its clock runs 60 times faster; it lives
until RUNS are on record, SECONDS have passed, or SIGTERM, then stops. It exits with 0: how it went is in its words.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import duly
from duly.events import Event, StoreFault, StoreRecovered, TaskRunCompleted, TaskRunFailed, TaskRunStarted
from tests.programs import ROOT, environment
from tests.system.clocks import AcceleratedClock
from tests.system.kill_chain import NOON

SPEED = 60


def say(word: str, *facts: Any) -> None:
    """One line, in one write."""
    os.write(1, (json.dumps([word, *facts]) + "\n").encode())


def _hear(event: Event) -> None:
    if isinstance(event, StoreFault | StoreRecovered | TaskRunStarted | TaskRunCompleted | TaskRunFailed):
        say(event.name, event.fields.get("taskName"), event.fields.get("runId"), event.fields.get("error"))


async def _quick() -> None:
    say("begin", "quick")


async def _fail() -> None:
    say("begin", "failing")
    raise RuntimeError("as it should")


async def _beat() -> None:
    """A sign of life of the event loop, ten times a second; and the longest that it was kept waiting."""
    longest, before = 0.0, time.monotonic()
    try:
        while True:
            await asyncio.sleep(0.05)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
    finally:
        say("longest pause", longest)


async def _live(store: str, runs: int, seconds: float) -> None:
    logging.getLogger("duly").setLevel(logging.CRITICAL)
    clock = AcceleratedClock(NOON, SPEED, origin=0.0, zone=UTC)  # the same for every life of a store
    recorded: asyncio.Queue[Event | None] = asyncio.Queue()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, recorded.put_nowait, None)

    def hear(event: Event) -> None:
        _hear(event)
        if isinstance(event, TaskRunCompleted | TaskRunFailed):
            recorded.put_nowait(event)

    scheduler = duly.Scheduler(store, clock=clock, trace=True, on_event=hear)
    beat = asyncio.ensure_future(_beat())
    tasks = [("quick", "* * * * *", _quick, timedelta(0)), ("failing", "* * * * *", _fail, timedelta(seconds=20))]
    for _ in range(5):
        try:
            await scheduler.initialize(tasks)
            break
        except duly.DulyError as error:
            say("refused", type(error).__name__, str(error))
    else:
        return
    say("initialised")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for _ in range(runs):
                if await recorded.get() is None:
                    break
    try:
        await scheduler.stop()
        say("stopped")
    except duly.StopSchedulerError as error:
        say("gave up", str(error))
    beat.cancel()
    await asyncio.gather(beat, return_exceptions=True)


def command(store: Path, runs: int, seconds: float) -> list[str]:
    """How to start it."""
    return [sys.executable, "-m", "tests.system.disk_program", str(store), str(runs), str(seconds)]


def lived(store: Path, runs: int, seconds: float, *wrapper: str) -> "subprocess.CompletedProcess[bytes]":
    """Let it live, under strace or whatever the wrapper is, to whatever end."""
    return subprocess.run(
        [*wrapper, *command(store, runs, seconds)],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )


def run(store: Path, runs: int, seconds: float, *wrapper: str) -> list[list[Any]]:
    """Let it run to an exit code of 0; returns what it said."""
    finished = lived(store, runs, seconds, *wrapper)
    assert finished.returncode == 0, finished.stderr.decode()[-2000:]
    return [json.loads(line) for line in finished.stdout.splitlines()]


def words(said: Sequence[Sequence[Any]]) -> list[str]:
    """The words alone."""
    return [word for word, *_ in said]


if __name__ == "__main__":
    asyncio.run(_live(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
