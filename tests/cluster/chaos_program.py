"""One host of a cluster of real processes, whose callbacks note every step that they take in a file of their own.

A step is stamped with the clock that counts suspended time and that all processes of the machine share. Guards can be
taken out, to show that the tests notice it.
"""

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, timedelta
from typing import Any, NamedTuple

import duly
from duly.errors import DulyError, StopSchedulerError
from duly.events import Event
from duly.stores import PostgresStore
from tests.cluster.guards import take_out_of_a_host
from tests.system.clocks import AcceleratedClock

SPEED = 20
"""Seconds of the cluster in one second of the world: a minute takes three."""

NOTED = (
    "HostLost",
    "LeaseLost",
    "LeaseSuspended",
    "RejoinFailed",
    "StartsRefused",
    "StoreFault",
    "TaskRunFenced",
)
"""Events that are counted, to say how much of what the faults were to provoke has happened."""

BROKE = 3
"""The exit code of a host that ended by an error that nobody expects."""


class Errand(NamedTuple):
    """A task; times in seconds of the world."""

    name: str
    takes: float
    fails: bool = False
    blocks: bool = False
    spawns: bool = False


ERRANDS = (
    *(Errand(f"quick {number}", 0) for number in range(12)),
    *(Errand(f"short {number}", 0.4) for number in range(12)),
    *(Errand(f"medium {number}", 2.2) for number in range(8)),
    *(Errand(f"long {number}", 5.0) for number in range(4)),
    *(Errand(f"failing {number}", 0.2, fails=True) for number in range(4)),
    *(Errand(f"blocking {number}", 0.6, blocks=True) for number in range(4)),
    *(Errand(f"spawning {number}", 2.0, spawns=True) for number in range(2)),
)


@dataclass(frozen=True)
class Life:
    """The orders of a host; one argument, as JSON."""

    url: str
    schema: str
    folder: str
    label: str
    lease: float
    origin: float
    begins: int
    without: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """The command that starts it."""
        return [sys.executable, "-m", "tests.cluster.chaos_program", json.dumps(asdict(self))]


class Steps:
    """A file that only grows: one line for each step of each callback."""

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, f"{os.getpid()}-{time.monotonic_ns()}.jsonl")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def take(self, errand: Errand, run: duly.CurrentRun, what: str = "step") -> None:
        """Note a step, in one write."""
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        line = [now, errand.name, run.run_id, run.fence, what, threading.get_ident()]
        os.write(self._file, (json.dumps(line) + "\n").encode())

    def callback(self, errand: Errand) -> Callable[[], Any]:
        """The work of an errand."""

        async def on_the_loop() -> None:
            run = _current_run()
            self.take(errand, run, "begin")
            until = time.monotonic() + errand.takes
            while time.monotonic() < until:
                await asyncio.sleep(0.05)
                self.take(errand, run)
            if errand.fails and run.attempt % 3:
                raise RuntimeError("fails")

        async def in_tasks_of_its_own() -> None:
            """Spawned tasks are not held; each asks before it acts (SPEC 9.7)."""
            run = _current_run()
            self.take(errand, run, "begin")

            async def part() -> None:
                until = time.monotonic() + errand.takes
                while time.monotonic() < until:
                    await asyncio.sleep(0.1)
                    run.check()
                    self.take(errand, run)

            async with asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(part())
            await asyncio.wait_for(asyncio.gather(asyncio.sleep(0.01), asyncio.sleep(0.01)), 60)

        def in_a_thread() -> None:
            run = _current_run()
            run.check()
            self.take(errand, run, "begin")
            time.sleep(errand.takes)

        return in_a_thread if errand.blocks else in_tasks_of_its_own if errand.spawns else on_the_loop


def _current_run() -> duly.CurrentRun:
    run = duly.current_run()
    assert run is not None
    return run


class Notes:
    """The events of this host, in a file beside its steps, for the report."""

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, f"{os.getpid()}-{time.monotonic_ns()}.events")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def hear(self, event: Event) -> None:
        """Note an event that counts, by its name, and what it says."""
        if type(event).__name__ in NOTED:
            os.write(self._file, f"{type(event).__name__}\t{event}\n".encode())


async def live(life: Life) -> None:
    """Be a host until SIGTERM, or until it is killed."""
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    clock = AcceleratedClock(life.begins, SPEED, origin=life.origin, zone=UTC)
    steps = Steps(life.folder)
    lease = timedelta(seconds=life.lease)
    store = PostgresStore(life.url, schema=life.schema, lease=lease, label=life.label)
    scheduler = duly.Scheduler(store, clock=clock, trace=True, on_event=Notes(life.folder).hear)
    tasks = [(each.name, "* * * * *", steps.callback(each), timedelta(seconds=20)) for each in ERRANDS]
    while not terminated.is_set():
        try:
            await scheduler.initialize(tasks)
            break
        except DulyError:  # the server restarts, or the network is cut
            await asyncio.sleep(0.2)
    await terminated.wait()
    clock.slow_down()  # stop() has a patience of 30 seconds
    with contextlib.suppress(StopSchedulerError):  # it was buried, or the store was away: the others know what to do
        await scheduler.stop()


def main() -> None:
    """Live as the one argument says; what duly itself did not expect goes to the standard error."""
    life = Life(**json.loads(sys.argv[1]))
    logging.basicConfig(format="%(message)s")
    logging.getLogger("duly").addFilter(lambda record: record.msg.startswith("duly: unexpected"))
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # a task that was spawned and then lost its lease
    take_out_of_a_host(life.without)
    if "FAKETIME_DONT_FAKE_MONOTONIC" in os.environ:
        # libfaketime refuses the system call that time.sleep() makes, because that names an elapsed time.
        setattr(time, "sleep", lambda seconds: select.select([], [], [], seconds))  # noqa: B010
    try:
        asyncio.run(live(life))
    except Exception:
        logging.getLogger("duly").exception("duly: unexpected end")
        os._exit(BROKE)
    os._exit(0)  # a thread that still works keeps nobody


if __name__ == "__main__":
    main()
