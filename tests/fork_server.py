"""Processes of `duly` without the start of an interpreter: forked from one that has imported the command line.

A start of the program computes for 0.3 s before it looks at its first argument, and the tests start it a thousand
times. A forked process is as real: its own folder, environment, zone, streams, signals and exit code. It does not show
the start itself: a program with another path, language or interpreter is started (`can_be_forked`), and
`cli/test_exit_codes.py` starts every command.
"""

import atexit
import contextlib
import json
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Final

from tests.fork_server_program import CHANGED, LENGTH, STARTED
from tests.programs import ROOT

PROGRAM: Final = Path(__file__).with_name("fork_server_program.py")
SOURCE: Final = str(ROOT / "src")
READ_AT_THE_START: Final = ("PYTHON", "LD_", "DYLD_", "LC_", "LANG", "COVERAGE")
"""Beginnings of the environment variables that an interpreter reads when it starts."""


class ForkedProcess:
    """A process of `duly`, with as much of `subprocess.Popen` as tests use.

    A stream that it is not given is /dev/null to read from, or a pipe to write to. A terminal becomes its own.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self.returncode: int | None = None
        self.stdout: FileIO | None = None
        self.stderr: FileIO | None = None
        self._answers, theirs = socket.socketpair()
        request = {
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(environment),
            "on_a_terminal": stdin is not None and os.isatty(stdin),
        }
        with theirs, contextlib.ExitStack() as made:
            if stdin is None:
                stdin = _closed_by(made, os.open(os.devnull, os.O_RDONLY))
            if stdout is None:
                self.stdout, stdout = _pipe(made)
            if stderr is None:
                self.stderr, stderr = _pipe(made)
            _server(os.getpid()).ask(request, [stdin, stdout, stderr, theirs.fileno()])
        (self.pid,) = STARTED.unpack(self._answer(STARTED.size))

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code; -N means that signal N has ended it."""
        while self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._answers, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired("duly", timeout or 0)
            self._hear()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Pause it, and wait until it stands still; SIGCONT lets it go on."""
        self.send_signal(signal.SIGSTOP)
        while not os.WIFSTOPPED(self._hear()):
            assert self.returncode is None, "it has ended"

    def _hear(self) -> int:
        """Wait for a change of its state."""
        (status,) = CHANGED.unpack(self._answer(CHANGED.size))
        if not os.WIFSTOPPED(status):
            self.returncode = os.waitstatus_to_exitcode(status)
            self._answers.close()
        return int(status)

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Wait for its end, and return the rest of what it has written."""
        until = time.monotonic() + timeout if timeout is not None else math.inf
        read: dict[FileIO | None, bytes] = {self.stdout: b"", self.stderr: b""}
        with selectors.DefaultSelector() as selector:
            for pipe in (self.stdout, self.stderr):
                if pipe is not None and not pipe.closed:
                    selector.register(pipe, selectors.EVENT_READ, pipe)
            while selector.get_map():
                if not (ready := selector.select(_seconds(until))):
                    raise subprocess.TimeoutExpired("duly", timeout or 0)
                for key, _ in ready:
                    part = key.data.read(65536)
                    read[key.data] += part
                    if not part:
                        selector.unregister(key.data)
                        key.data.close()
        self.wait(_seconds(until))
        return read[self.stdout], read[self.stderr]

    def _answer(self, size: int) -> bytes:
        answer = self._answers.recv(size, socket.MSG_WAITALL)
        assert len(answer) == size, "the fork server has ended"
        return answer


def _closed_by(made: contextlib.ExitStack, descriptor: int) -> int:
    made.callback(os.close, descriptor)
    return descriptor


def _pipe(made: contextlib.ExitStack) -> tuple[FileIO, int]:
    """The end to read from, and the one of the new process, which `made` closes here."""
    ours, theirs = os.pipe()
    return FileIO(ours), _closed_by(made, theirs)


def _seconds(until: float) -> float | None:
    """The time left until a moment that may never come."""
    return None if until == math.inf else max(0.0, until - time.monotonic())


def can_be_forked(environment: Mapping[str, str]) -> bool:
    """Whether an interpreter would start with these variables as the server has."""
    here = {**os.environ, "PYTHONPATH": SOURCE}
    measured = any(name.startswith("COVERAGE") for name in here)  # a process starts its own measurement
    return not measured and _read_at_the_start(environment) == _read_at_the_start(here)


def _read_at_the_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_THE_START) and name != "PYTHONUNBUFFERED"  # the server sees to that
    }


class _Server:
    """The process that forks; it ends when nobody can ask it any more."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": SOURCE},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self._end)

    def ask(self, request: object, descriptors: Sequence[int]) -> None:
        """Send a request; its answers come by the last descriptor."""
        text = json.dumps(request).encode("utf-8", "surrogateescape")
        socket.send_fds(self._requests, [LENGTH.pack(len(text))], list(descriptors))
        self._requests.sendall(text)

    def _end(self) -> None:
        self._requests.close()
        self._process.wait()


@cache
def _server(process: int) -> _Server:
    """The one server of a process; what is forked from it has another one."""
    return _Server()
