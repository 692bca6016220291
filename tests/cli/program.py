"""The real program in real processes, in pipes and on pseudo-terminals, and stores with something in them."""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from duly.testing import SimulatedHost
from tests.compute import NotInTimeError
from tests.fork_server import ForkedProcess, can_be_forked

ROOT = Path(__file__).parent.parent.parent
ZONE = "Africa/Lagos"  # no daylight saving: what these tests expect holds in every night of the year
PATIENCE_SECONDS = 60.0
"""How long a test waits for a program; only a hang comes near it, or a machine without compute."""

_UNWANTED = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "DULY_STORE", "NOTIFY_SOCKET", "WATCHDOG_USEC"}

# Takes the terminal that it is started on as its own, so that Ctrl-C reaches it as it would a shell's foreground job.
_ON_ITS_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""

REGISTRATIONS = """
import asyncio, logging
from datetime import timedelta

async def quick() -> None: ...

async def endless() -> None:
    await asyncio.Event().wait()

def broken() -> None:
    raise ConnectionError("the upstream service is asleep")
"""


def environment(**extra: str) -> dict[str, str]:
    """The environment of every program that the tests start."""
    kept = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    return {**kept, "TZ": ZONE, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", **extra}


Process = subprocess.Popen[bytes] | ForkedProcess


class Outcome(NamedTuple):
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on its standard output."""
        return json.loads(self.out)


def duly(*arguments: str | Path, folder: Path, under: Sequence[str] = (), **extra: str) -> Outcome:
    """Run `duly` with these arguments, to its end; `under` is a command that starts it."""
    given, variables = [*map(str, arguments)], environment(**extra)
    return _outcome(_piped(given, folder, variables) if not under else _started(given, folder, variables, under))


def duly_into(stdout: int, *arguments: str | Path, folder: Path) -> Outcome:
    """Run `duly` to its end with a file, a device or a pipe as its standard output."""
    return _outcome(_piped([*map(str, arguments)], folder, environment(), stdout))


def started(*arguments: str | Path, folder: Path, **extra: str) -> Outcome:
    """Run `duly` to its end with an interpreter of its own, which imports what it needs."""
    return _outcome(_started([*map(str, arguments)], folder, environment(**extra)))


def _outcome(process: Process) -> Outcome:
    try:
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        _end(process)
    assert process.returncode is not None
    return Outcome(process.returncode, (out or b"").decode(), errors.decode())


def _piped(arguments: Sequence[str], folder: Path, variables: Mapping[str, str], stdout: int | None = None) -> Process:
    if can_be_forked(variables):
        return ForkedProcess(arguments, folder, variables, stdout=stdout)
    return _started(arguments, folder, variables, stdout=stdout)


def _started(
    arguments: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    under: Sequence[str] = (),
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*under, sys.executable, "-m", "duly", *arguments],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
    )


def _on_a_terminal(terminal: int, arguments: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Process:
    if can_be_forked(variables):
        return ForkedProcess(arguments, folder, variables, stdin=terminal, stdout=terminal, stderr=terminal)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _ON_ITS_TERMINAL, sys.executable, "-m", "duly", *arguments],
        cwd=folder,
        env=variables,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )


def _end(process: Process) -> None:
    """Leave no process behind, however a test ended."""
    if process.poll() is None:
        process.kill()
    process.wait()


class Service:
    """`duly run` in a pipe: its JSON lines, as they come."""

    def __init__(self, *arguments: str | Path, folder: Path, **extra: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self._process = _piped(["run", *map(str, arguments)], folder, environment(**extra))
        self.pid = self._process.pid
        self._unread = b""

    def __enter__(self) -> "Service":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._process)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def expect(self, event: str, **fields: object) -> dict[str, Any]:
        """Read on until a line has this event with these fields."""
        while (line := self._line()) is not None:
            self.lines.append(json.loads(line))
            if self.lines[-1]["event"] == event and fields.items() <= self.lines[-1].items():
                return self.lines[-1]
        raise AssertionError(f"no {event} {fields} in {self.lines}; stderr: {self._process.communicate()[1]!r}")

    def expect_text(self, text: str) -> str:
        """Read on until a line of a text log contains this, and return that line."""
        while (line := self._line()) is not None:
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"no {text!r}; stderr: {self._process.communicate()[1]!r}")

    def _line(self) -> bytes | None:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_SECONDS)
            if not ready:
                raise NotInTimeError(f"no further line comes: {self.lines}")
            if not (read := os.read(self._process.stdout.fileno(), 65536)):
                return None
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Pause the process: what changes in its files meanwhile was changed by another one."""
        if isinstance(self._process, ForkedProcess):
            self._process.freeze()
        else:
            self.send(signal.SIGSTOP)
            os.waitpid(self.pid, os.WUNTRACED)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def send_until_it_ends(self, number: signal.Signals) -> None:
        """Send a signal again and again: two that the program handles within half a second are one."""
        while self._process.poll() is None:
            self.send(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.2)

    def stop_reading(self) -> None:
        """Close the pipe that the log goes into."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def wait(self) -> tuple[int, str]:
        """Wait for the end without the log: the exit code, and standard error."""
        assert self._process.stderr is not None
        errors = self._process.stderr.read().decode()
        return self._process.wait(PATIENCE_SECONDS), errors

    def end(self) -> Outcome:
        """Wait for the end, and read the remaining lines."""
        out, err = self._process.communicate(timeout=PATIENCE_SECONDS)
        self.lines += [json.loads(line) for line in (self._unread + out).splitlines()]
        assert self._process.returncode is not None
        return Outcome(self._process.returncode, out.decode(), err.decode())

    @property
    def events(self) -> list[str]:
        """The names of the events so far."""
        return [line["event"] for line in self.lines]


class Terminal:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, *arguments: str | Path, folder: Path, columns: int = 160, **extra: str) -> None:
        self._screen, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = _on_a_terminal(theirs, [*map(str, arguments)], folder, environment(**extra))
        os.close(theirs)
        self.pid = self._process.pid
        self.shown = ""
        self._seen = 0

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _end(self._process)
        self.hang_up()

    def expect(self, text: str) -> None:
        """Read until the text is shown, after all that was expected before."""
        while (found := self.shown.find(text, self._seen)) < 0:
            assert self._read(), f"{text!r} is not in what was shown: {self.shown}"
        self._seen = found + len(text)

    def press(self, keys: str) -> None:
        """Type something; `\\x03` is Ctrl-C."""
        os.write(self._screen, keys.encode())

    def press_until(self, keys: str, text: str) -> None:
        """Type something once per second until the text is shown; more often, Ctrl-C would drop what is unread."""
        while text not in self.shown:
            self.press(keys)
            until = time.monotonic() + 1
            while text not in self.shown and (left := until - time.monotonic()) > 0:
                if select.select([self._screen], [], [], left)[0]:
                    assert self._read(), f"{text!r} is not in what was shown: {self.shown}"

    def hang_up(self) -> None:
        """Close the terminal under the program."""
        with contextlib.suppress(OSError):
            os.close(self._screen)

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        while self._read():
            pass
        return self._process.wait(PATIENCE_SECONDS)

    def wait(self) -> int:
        """Wait for the exit code without reading."""
        return self._process.wait(PATIENCE_SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], PATIENCE_SECONDS)
        if not ready:
            raise NotInTimeError(f"nothing more is shown: {self.shown}")
        try:
            read = os.read(self._screen, 65536)
        except OSError:  # what Linux answers when the other side is closed
            return False
        self.shown += read.decode(errors="replace")
        return bool(read)


# --- stores ----------------------------------------------------------------------------------------------------------


def write_target(folder: Path, registrations: str, name: str = "tasks.py") -> Path:
    """A target with some callbacks, and the given list of registrations."""
    path = folder / name
    path.write_text(f"{REGISTRATIONS}\nregistrations = {registrations}\n")
    return path


def ago(**duration: float) -> datetime:
    """A moment before now, in the zone of the tests."""
    return datetime.now(ZoneInfo(ZONE)) - timedelta(**duration)


@contextlib.asynccontextmanager
async def simulated(store: Path, begin: datetime) -> AsyncIterator[SimulatedHost]:
    """A simulated host on a real store file."""
    async with SimulatedHost(begin, ZONE, store=store) as host:
        yield host


async def nothing() -> None:
    """A callback that succeeds."""


async def failing() -> None:
    """A callback that fails."""
    raise ConnectionError("the upstream service is asleep")


async def forever() -> None:
    """A callback that never ends."""
    await asyncio.Event().wait()


def fingerprint(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its content, except `-shm`, which readers of a live store share."""
    return {
        path.name: path.read_bytes() if not path.name.endswith("-shm") else b""
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
