"""The killed program on the host's own clock, which libfaketime makes 60 times faster, without a clock of the tests."""

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.programs import ROOT, environment
from tests.system.clocks import AcceleratedClock
from tests.system.kill_program import SPEED


def library() -> Path | None:
    """Where Debian's libfaketime is, in its variant for programs with threads."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


class FakedTimeStarter:
    """Takes the orders of a `ForkServer`, and starts an interpreter under libfaketime for each program."""

    def __init__(self, preload: Path) -> None:
        self._preload = preload
        self._children: dict[int, tuple[subprocess.Popen[bytes], float | None]] = {}

    def order(self, verb: str, *arguments: Any) -> Any:
        """Start, end or look after a program."""
        if verb == "start":
            return self._start(*arguments)
        process, deadline = self._children[arguments[0]]
        if verb == "kill in":
            self._children[process.pid] = (process, time.monotonic() + arguments[1])
            return None
        if verb == "terminate":
            process.terminate()
            return None
        if deadline is not None and time.monotonic() >= deadline:
            process.kill()
            process.wait()
        status = process.poll()
        if status is not None:
            del self._children[process.pid]
        return status

    def _start(self, store: str, witness: str, boot: int, wall: int, origin: float, forgetful: bool) -> int:
        assert not forgetful
        # In whole seconds, and always a little ahead of what the life before can have seen.
        now = AcceleratedClock(wall, SPEED, origin=origin).now() // 1_000_000 + 5 * boot
        begins = datetime.fromtimestamp(now, UTC).strftime("@%Y-%m-%d %H:%M:%S")
        with open(f"{witness}.errors", "ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.kill_program", store, witness, str(boot)],
                cwd=ROOT,
                env=environment(LD_PRELOAD=str(self._preload), FAKETIME=f"{begins} x{SPEED}", TZ="UTC"),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        self._children[process.pid] = (process, None)
        return process.pid

    def close(self) -> None:
        """End what is left after a failure."""
        for process, _ in self._children.values():
            process.kill()
            process.wait()
