"""Programs under load and with callbacks that do what they should not: each one a process of its own.

Run as a module: `python -m tests.system.load_program NAME STORE WITNESS`. What happened stands in the witness file, to
which callbacks append on their own; the last word on standard output is "done", or the process ended otherwise.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import duly
from duly.events import Event, TaskStartDelayed
from tests.system.clocks import AcceleratedClock, LongMinute

MINUTELY: Final = "* * * * *"
DELAY: Final = timedelta(hours=1)


class Witness:
    """An append-only file that callbacks write to."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __call__(self, *facts: object) -> None:
        os.write(self._descriptor, (json.dumps(facts) + "\n").encode())


def read(path: Path) -> list[Any]:
    """The word of a witness."""
    return [json.loads(line) for line in path.read_text().splitlines()]


async def crowd(store: str, witness: Witness) -> None:
    """10,000 tasks due at once, on the loop and in threads, each of them slow, at most 200 at once."""
    running = peak = 0
    guard = threading.Lock()
    loops, threads = 9_000, 1_000

    def enter(change: int) -> None:
        nonlocal running, peak
        with guard:
            running += change
            peak = max(peak, running)

    async def on_the_loop() -> None:
        enter(1)
        await asyncio.sleep(0.05)
        enter(-1)
        counted()

    def in_a_thread() -> None:
        enter(1)
        time.sleep(0.01)
        enter(-1)
        counted()

    left = loops + threads
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def counted() -> None:
        nonlocal left
        with guard:
            left -= 1
            last = not left
        if last:
            loop.call_soon_threadsafe(over.set)

    scheduler = duly.Scheduler(store, clock=LongMinute(), max_concurrency=200, trace=True)
    callbacks: list[Callable[[], Any]] = [on_the_loop] * loops + [in_a_thread] * threads
    await scheduler.initialize(
        [(f"task {number:05}", MINUTELY, callback, DELAY) for number, callback in enumerate(callbacks)]
    )
    await over.wait()
    await scheduler.stop()
    witness("crowd", {"peak": peak, "left": left, "threads": len(threading.enumerate())})


class StrangeError(BaseException):
    """An error that no `except Exception` catches."""


def _raises(error: BaseException, witness: Witness) -> Callable[[], Awaitable[None]]:
    async def callback() -> None:
        witness("began", type(error).__name__)
        raise error

    return callback


def _raises_in_a_thread() -> None:
    raise SystemExit(3)


async def _swallows(witness: Witness) -> None:
    """Longer than its time limit, and deaf to being cancelled."""
    until = time.monotonic() + SWALLOWING_SECONDS
    while (left := until - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            witness("swallowed", "swallows")
    witness("ended", "swallows")


RUN_TIMEOUT: Final = timedelta(seconds=5)
SWALLOWING_SECONDS: Final = 7


async def bad_manners(store: str, witness: Witness) -> None:
    """Callbacks that raise what they should not, swallow their cancellation, spawn tasks, call the scheduler."""
    neighbour = asyncio.Event()

    async def stops(where: str) -> None:
        try:
            await scheduler.stop()
        except duly.StopSchedulerError:
            witness("refused", where)

    async def spawns() -> None:
        await asyncio.create_task(stops("stop in a task of a callback"))

    async def calls_back() -> None:
        await stops("stop")
        await scheduler.initialize(registrations)
        witness("accepted", "initialize")

    async def neighbourly() -> None:
        witness("began", "neighbour")
        neighbour.set()

    scheduler = duly.Scheduler(store, clock=LongMinute(), trace=True, run_timeout=RUN_TIMEOUT, max_concurrency=40)
    errors = [StrangeError(), SystemExit(1), GeneratorExit(), asyncio.CancelledError(), MemoryError(), RecursionError()]
    registrations: list[tuple[str, str, Callable[[], Any], timedelta]] = [
        *((type(error).__name__, MINUTELY, _raises(error, witness), DELAY) for error in errors),
        ("in a thread", MINUTELY, _raises_in_a_thread, DELAY),
        ("swallows", MINUTELY, partial(_swallows, witness), DELAY),
        ("spawns", MINUTELY, spawns, DELAY),
        ("calls back", MINUTELY, calls_back, DELAY),
        ("neighbour", MINUTELY, neighbourly, DELAY),
    ]
    await scheduler.initialize(registrations)
    await neighbour.wait()
    await scheduler.stop()


async def late_by_a_blocked_loop(store: str, witness: Witness) -> None:
    """A callback blocks the loop across the next due minute of another task: its late start is reported."""
    delayed = asyncio.Event()

    def heard(event: Event) -> None:
        if isinstance(event, TaskStartDelayed):
            witness("delayed", event.task_name, event.lateness_ms, event.threshold_ms)
            if event.task_name == "victim":
                delayed.set()

    async def blocks() -> None:
        witness("began", "blocks")
        time.sleep(3)  # noqa: ASYNC251 - three minutes, by the scheduler's clock

    async def victim() -> None:
        witness("began", "victim")

    scheduler = duly.Scheduler(store, clock=AcceleratedClock(1_748_865_595_000_000, 60), on_event=heard, trace=True)
    await scheduler.initialize([("blocks", "0 * * * *", blocks, DELAY), ("victim", "1 * * * *", victim, DELAY)])
    await delayed.wait()
    await scheduler.stop()


async def endless(store: str, witness: Witness) -> None:
    """A coroutine and a thread that never end: the process ends all the same, and what is cut short is owed again."""
    loop = asyncio.get_running_loop()
    under_way = [asyncio.Event(), asyncio.Event()]

    async def coroutine() -> None:
        under_way[0].set()
        await asyncio.Event().wait()

    def thread() -> None:
        loop.call_soon_threadsafe(under_way[1].set)
        threading.Event().wait()

    scheduler = duly.Scheduler(store, clock=LongMinute(), trace=True)
    await scheduler.initialize([("coroutine", MINUTELY, coroutine, DELAY), ("thread", MINUTELY, thread, DELAY)])
    for event in under_way:
        await event.wait()
    witness("began", "both")
    # No stop: it would wait for them. The program just returns, as programs do.


async def forks(store: str, witness: Witness) -> None:
    """A callback forks; the child lives on, and does nothing to the scheduler, its file or its lock."""

    def fork() -> None:
        child = os.fork()
        if not child:
            time.sleep(1)
            os._exit(0)
        witness("forked", child)
        os.waitpid(child, 0)
        done.set()

    done = threading.Event()
    scheduler = duly.Scheduler(store, clock=LongMinute(), trace=True)
    await scheduler.initialize([("forks", MINUTELY, fork, DELAY)])
    await asyncio.to_thread(done.wait)
    await scheduler.stop()


async def exits(store: str, witness: Witness) -> None:
    """A callback ends the whole process, without a word."""

    async def leave() -> None:
        witness("began", "leave")
        os._exit(17)

    async def other() -> None:
        witness("began", "other")
        await asyncio.sleep(60)

    scheduler = duly.Scheduler(store, clock=LongMinute(), trace=True)
    await scheduler.initialize([("other", MINUTELY, other, DELAY), ("leave", MINUTELY, leave, DELAY)])
    await asyncio.sleep(60)


async def survivor(store: str, witness: Witness) -> None:
    """After any of these: the same names, now harmless. Says what it found interrupted, when that has run again."""
    names, awaited = (text.split(",") if text else [] for text in sys.argv[4:6])
    interrupted: list[str] = []
    again = {name: asyncio.Event() for name in names}

    def harmless(name: str) -> Callable[[], Awaitable[None]]:
        async def callback() -> None:
            again[name].set()

        return callback

    def heard(event: Event) -> None:
        if event.name == "TaskInterrupted":
            interrupted.append(str(event.fields["taskName"]))

    scheduler = duly.Scheduler(store, clock=LongMinute(), on_event=heard, trace=True)
    await scheduler.initialize([(name, MINUTELY, harmless(name), DELAY) for name in names])
    for name in awaited:
        await again[name].wait()
    await scheduler.stop()
    witness("interrupted", *sorted(interrupted))


PROGRAMS: Final[dict[str, Callable[[str, Witness], Awaitable[None]]]] = {
    program.__name__: program
    for program in (crowd, bad_manners, late_by_a_blocked_loop, endless, forks, exits, survivor)
}


async def _main() -> None:
    await PROGRAMS[sys.argv[1]](sys.argv[2], Witness(sys.argv[3]))
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
