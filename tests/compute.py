"""Whether the machine gave a test the compute it needed, and what a test raises when something came too late.

A test that runs on real time can fail for two reasons. A durable fact is wrong: runs overlapped, a minute was served
twice, a run was lost. Then it fails, however busy the machine was. Or something has not come within the test's
patience, or a situation that it wanted to make was over before it could be used: then it raises `NotInTimeError`, and
if the machine gave no compute meanwhile, that says nothing about duly: `tests/conftest.py` repeats the test.
"""

import subprocess
import threading
import time
from pathlib import Path
from typing import Final

REPEATS_MAX: Final = 3
"""A machine that gives no compute four times in a row is not one to run tests on."""

PRESSURE: Final = Path("/proc/pressure/cpu")
"""Where Linux says how long somebody has waited for a processor, since it was started."""

SHARE_MAX: Final = 0.2
"""Of its time a test may wait for a processor, and its patience still means something."""

GAP_SECONDS_MAX: Final = 0.2
"""How late a thread may wake up where a processor is to be had."""


class NotInTimeError(AssertionError):
    """Something has not come within the patience of a test, or came when it was of no use any more."""


PATIENCE_IS_OVER: Final = (NotInTimeError, TimeoutError, subprocess.TimeoutExpired, threading.BrokenBarrierError)
"""Raised by a test that has waited long enough. `asyncio.wait_for` and `asyncio.timeout` raise a TimeoutError."""


class Compute:
    """Compute from the machine between `begin()` and `end()`: Linux's word, and a thread that wants to wake up often.

    Not every test can have such a thread beside it: Python warns who forks with threads around.
    """

    PERIOD_SECONDS: Final = 0.02

    def __init__(self, *, with_thread: bool) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True) if with_thread else None
        self._over = threading.Event()
        self._begun = self._waited = 0.0
        self._gap = 0.0
        self._pressed = 0.0
        self._seconds = 0.0

    def begin(self) -> "Compute":
        """Watch from here on."""
        self._begun, self._waited = time.monotonic(), _waited_seconds()
        if self._thread is not None:
            self._thread.start()
        return self

    def end(self) -> None:
        """Watch no longer."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._seconds = time.monotonic() - self._begun
        self._pressed = _waited_seconds() - self._waited

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._over.wait(self.PERIOD_SECONDS):
            now = time.monotonic()
            self._gap, last = max(self._gap, now - last - self.PERIOD_SECONDS), now

    @property
    def was_short(self) -> bool:
        """Whether a test that was not in time may blame the machine."""
        return self._gap > GAP_SECONDS_MAX or self._pressed > SHARE_MAX * self._seconds

    def __str__(self) -> str:
        return (
            f"of {self._seconds:.1f} s somebody waited for a processor in {self._pressed:.1f} s, "
            f"and a thread woke up {1000 * self._gap:.0f} ms late"
        )


def _waited_seconds() -> float:
    """How long, since the machine was started, somebody has waited for a processor; 0 where nobody counts that."""
    try:
        some = PRESSURE.read_text().split("\n", 1)[0]
    except OSError:
        return 0.0
    return int(some.rpartition("total=")[2]) / 1_000_000
