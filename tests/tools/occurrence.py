"""The calls of one occurrence of one task: `python -m tests.tools.occurrence` prints it as JSON.

A scheduler on a real file, with one task and neither listener nor trace, waits for its next minute. A clock lets that
minute come, and from there on every function of `duly` that is called is noted, on the event loop's thread and on the
store's, until the end of the run is durable and the scheduler waits again. Of several such minutes all but the first
must agree.

A change of file is a call into another module than the call before it. "Without leaves" leaves out what answers a
question or does a small thing and calls nothing further that matters to a reader: the modules in `LEAVES`, and special
methods such as `__len__`. Only public names of duly are used, so this runs with any version of it on the path.
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
import threading
from contextlib import closing
from datetime import UTC, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import duly

PACKAGE: Final = str(Path(duly.__file__).parent)
LEAVES: Final = frozenset(
    {"clock", "moments", "sink", "outbox", "faults", "file", "place", "lock", "lockfile", "pacing"}
)
MINUTES: Final = 3
PATIENCE_SECONDS: Final = 60


class StoppedClock:
    """A clock that stands still until a test moves it to the instant that the loop waits for."""

    def __init__(self) -> None:
        self._wall = 1_700_000_010_000_000  # half a minute past a minute
        self._passed = 1_000.0
        self.waiting: tuple[int, asyncio.Event] | None = None

    def now(self) -> int:
        """The wall clock."""
        return self._wall

    def elapsed(self) -> float:
        """The steady clock."""
        return self._passed

    def zone(self) -> tzinfo:
        """A zone without changes."""
        return UTC

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        """Wait to be woken."""
        if wake.is_set() or instant <= self._wall:
            await asyncio.sleep(0)
            return
        self.waiting = instant, wake
        await wake.wait()
        self.waiting = None

    def go_on(self) -> None:
        """Let the instant come that is waited for."""
        assert self.waiting is not None
        instant, wake = self.waiting
        self._passed += (instant - self._wall) / 1_000_000
        self._wall = instant
        wake.set()


class Calls:
    """The functions of duly that are called, in order, on all threads that begin after this."""

    def __init__(self) -> None:
        self._called: list[CodeType] = []
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            # The watchdog looks in from time to time, whatever occurs.
            if threading.current_thread().name != "duly-watchdog":
                self._called.append(frame.f_code)

    def begin(self) -> None:
        """Note them from here on."""
        self._called.clear()
        sys.setprofile(self._note)

    def end(self) -> list[CodeType]:
        """The calls."""
        sys.setprofile(None)
        return list(self._called)


def counted(called: list[CodeType]) -> dict[str, int]:
    """The figures of a list of calls."""
    modules = [code.co_filename for code in called]
    read_on = [code.co_filename for code in called if not _is_leaf(code)]
    named = {(code.co_filename, code.co_qualname) for code in called if not code.co_name.startswith("<")}
    return {
        "calls": len(called),
        "functions": len(named),
        "modules": len(set(modules)),
        "changes of file": _changes(modules),
        "changes of file without leaves": _changes(read_on),
    }


def _is_leaf(code: CodeType) -> bool:
    return Path(code.co_filename).stem in LEAVES or code.co_name.startswith("__")


def _changes(modules: list[str]) -> int:
    return sum(one != other for one, other in pairwise(modules))


async def measured() -> dict[str, int]:
    """Let some minutes come, and count what each of them was called through."""
    clock, calls = StoppedClock(), Calls()

    async def callback() -> None:
        pass

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "state.db")
        scheduler = duly.Scheduler(store, clock=clock)
        await scheduler.initialize([("task", "* * * * *", callback, timedelta(minutes=1))])
        await _at_rest(store, clock, runs=1)  # the minute in which it was declared
        found = []
        for minute in range(1, MINUTES + 1):
            calls.begin()
            clock.go_on()
            await _at_rest(store, clock, runs=1 + minute)
            found.append(counted(calls.end()))
        await scheduler.stop()
    if any(each != found[-1] for each in found[1:]):
        raise SystemExit(f"one occurrence is not like the other: {found}")
    return found[-1]


async def _at_rest(store: Path, clock: StoppedClock, *, runs: int) -> None:
    """Wait until this many ends are durable and the scheduler sleeps; then a moment longer."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            await asyncio.sleep(0.05)
            if _ends(store) >= runs and clock.waiting is not None:
                break
        await asyncio.sleep(0.2)


def _ends(store: Path) -> int:
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured())))
