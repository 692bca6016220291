"""The program that is killed: a dozen tasks of different kinds, whose callbacks write a witness file of their own.

Run as a module it is a fork server: it forks such programs on demand, so that a start costs a fork instead of an
interpreter. With arguments it is one such program, on the host's own clock.
"""

import asyncio
import json
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from datetime import UTC, timedelta
from typing import Any, NamedTuple

import duly
from duly.clock import SystemClock
from duly.core.changes import Batch
from duly.events import Event, TaskRunCompleted, TaskRunFailed, TaskRunStarted
from duly.stores.port import COMPLETE, Outcome, TraceRow
from duly.stores.sqlite import SqliteStore
from tests.system.clocks import AcceleratedClock

SPEED = 60
MAX_CONCURRENCY = 3


class Errand(NamedTuple):
    """One of the dozen; times in seconds of the program's clock."""

    name: str
    cron: str = "* * * * *"
    takes: float = 0
    fails: str = "never"  # or always, in odd minutes, every other time
    blocks: bool = False
    delay: float = 30


DOZEN = (
    Errand("quick"),
    Errand("quick, every other minute", ",".join(map(str, range(0, 60, 2))) + " * * * *", delay=0),
    Errand("quick and blocking", blocks=True),
    Errand("failing", fails="always", delay=7),
    Errand("failing and retried at once", fails="every other time", delay=0, cron="0,10,20,30,40,50 * * * *"),
    Errand("failing now and then", takes=5, fails="odd", delay=20),
    Errand("failing late", takes=40, fails="always", delay=120, cron="5,15,25,35,45,55 * * * *"),
    Errand("long", takes=50, cron="0,3,6,9,12,15,18,21,24,27,30,33,36,39,42,45,48,51,54,57 * * * *", delay=90),
    Errand("outlives its minute", takes=75),
    Errand("blocking", takes=15, blocks=True, cron=",".join(map(str, range(1, 60, 2))) + " * * * *"),
    Errand("blocking beyond its minute", takes=70, blocks=True, cron="0,15,30,45 * * * *"),
    Errand("daily", "0 0 * * *", takes=10),
)


class Witness:
    """A file that only grows: what callbacks and listeners saw, one line each, whatever the store says."""

    def __init__(self, path: str, boot: int, now: Callable[[], int]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._boot = boot
        self._now = now
        self._failed: set[str] = set()

    def say(self, what: str, task: str = "", run: int = 0) -> None:
        """Append a line, in one write."""
        os.write(self._file, (json.dumps([what, self._boot, self._now(), task, run]) + "\n").encode())

    def hear(self, event: Event) -> None:
        """The facts that the scheduler calls durable."""
        if isinstance(event, TaskRunStarted):
            self.say("started", event.task_name, event.run_id)
        elif isinstance(event, TaskRunCompleted | TaskRunFailed):
            self.say("completed" if isinstance(event, TaskRunCompleted) else "failed", event.task_name, event.run_id)

    def _is_to_fail(self, errand: Errand) -> bool:
        if errand.fails == "every other time":
            self._failed ^= {errand.name}
            return errand.name in self._failed
        odd = self._now() // 60_000_000 % 2 == 1
        return errand.fails == "always" or (errand.fails == "odd" and odd)

    def callback(self, errand: Errand, speed: float) -> Callable[[], Any]:
        """The work of an errand, with a witness at both ends."""

        def begin() -> tuple[int, bool]:
            around = duly.current_run()
            assert around is not None
            self.say("begin", errand.name, around.run_id)
            return around.run_id, self._is_to_fail(errand)

        def end(run: int, fails: bool) -> None:
            self.say("raise" if fails else "end", errand.name, run)
            if fails:
                raise RuntimeError(f"{errand.name} fails")

        async def on_the_loop() -> None:
            run, fails = begin()
            if errand.takes:
                await asyncio.sleep(errand.takes / speed)
            end(run, fails)

        def in_a_thread() -> None:
            run, fails = begin()
            if errand.takes:
                time.sleep(errand.takes / speed)
            end(run, fails)

        return in_a_thread if errand.blocks else on_the_loop


async def live(store: str | SqliteStore, witness: str, boot: int, clock: duly.Clock, speed: float) -> None:
    """Run the dozen until SIGTERM, or until it is killed."""
    logging.getLogger("duly").setLevel(logging.CRITICAL)  # failures are part of the test
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    seen = Witness(witness, boot, clock.now)
    scheduler = duly.Scheduler(store, max_concurrency=MAX_CONCURRENCY, clock=clock, trace=True, on_event=seen.hear)
    await scheduler.initialize(
        [(each.name, each.cron, seen.callback(each, speed), timedelta(seconds=each.delay)) for each in DOZEN]
    )
    seen.say("initialised")
    await terminated.wait()
    await scheduler.stop()
    seen.say("stopped")


class ForgetfulStore(SqliteStore):
    """Reports a batch as durable one batch too early: the checks of the killed program must notice."""

    _held: tuple[Any, ...] | None = None

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        """Write the batch before this one."""
        before, self._held = self._held, (batch, number, trace)
        return await super().write(*before) if before is not None else COMPLETE


# --- the fork server -------------------------------------------------------------------------------------------------


def _fork(store: str, witness: str, boot: int, wall: int, origin: float, forgetful: bool) -> int:
    assert threading.active_count() == 1, "only a process of one thread forks cleanly"
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        errors = os.open(f"{witness}.errors", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor, target in ((nowhere, 0), (errors, 1), (errors, 2)):
            os.dup2(descriptor, target)
        place = ForgetfulStore(store) if forgetful else store
        asyncio.run(live(place, witness, boot, AcceleratedClock(wall, SPEED, origin=origin, zone=UTC), SPEED))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class _ForkServer:
    """Forks programs, kills each at its deadline, and reports how they ended."""

    def __init__(self) -> None:
        self._living: set[int] = set()
        self._deadlines: dict[int, float] = {}
        self._ended: dict[int, int] = {}

    def obey(self, verb: str, *arguments: Any) -> Any:
        """Carry out an order."""
        if verb == "start":
            self._living.add(child := _fork(*arguments))
            return child
        child = arguments[0]
        if verb == "kill in":
            self._deadlines[child] = time.monotonic() + arguments[1]
            return None
        if verb == "terminate":
            os.kill(child, signal.SIGTERM)
            return None
        found, status = (0, 0) if child in self._ended else os.waitpid(child, os.WNOHANG)
        if found:
            self._living.discard(child)
            self._deadlines.pop(child, None)
            self._ended[child] = os.waitstatus_to_exitcode(status)
        return self._ended.pop(child, None)

    def kill_at_deadlines(self) -> float | None:
        """Returns the seconds until the next one's."""
        now = time.monotonic()
        for child, deadline in list(self._deadlines.items()):
            if deadline <= now:
                del self._deadlines[child]
                self._ended[child] = self._kill(child)
        return max(0.0, min(self._deadlines.values()) - now) if self._deadlines else None

    def kill_all(self) -> None:
        """End the programs of a test that failed and will not ask about them."""
        for child in list(self._living):
            self._kill(child)

    def _kill(self, child: int) -> int:
        self._living.discard(child)
        # Not yet waited for, so the number is still its own.
        os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def serve() -> None:
    """Carry out orders, one JSON line each, until there are no more."""
    server = _ForkServer()
    os.write(1, b"ready\n")
    heard = b""
    while True:
        if not select.select([0], [], [], server.kill_at_deadlines())[0]:
            continue
        piece = os.read(0, 65536)
        if not piece:
            server.kill_all()
            return
        heard += piece
        while b"\n" in heard:
            line, heard = heard.split(b"\n", 1)
            os.write(1, (json.dumps(server.obey(*json.loads(line))) + "\n").encode())


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve()
    else:
        _store, _witness, _boot = sys.argv[1:]
        asyncio.run(live(_store, _witness, int(_boot), SystemClock(), 1))
