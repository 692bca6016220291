"""The program that `tests/fork_server.py` starts: it imports the command line, and forks a process for each request.

It runs by itself, as a file: what it imports, every process that it forks has imported.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import sys
import termios
import threading
import time
from typing import Any, Final, TextIO

LENGTH: Final = struct.Struct("!I")
"""The head of a request: how many bytes follow. With it come the three streams, and a socket for the answers."""
STARTED: Final = struct.Struct("!Q")
"""The first answer: the number of the process."""
CHANGED: Final = struct.Struct("!i")
"""Further answers: what `waitpid` says when it was stopped, and when it has ended."""


PACKAGES: Final = ("duly.cli", "duly.engine", "duly.insight", "duly.simulation", "duly.stores", "duly.web")
LEFT_OUT: Final = {"duly.cli.mcp_server"}
"""Modules of few tests whose libraries take longer than all others."""


class _Requests:
    """The requests, and the processes that they have become."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._running: dict[int, socket.socket] = {}
        self._changes, self._wake = socket.socketpair()  # what is written when the state of a process changes
        self._selector = selectors.DefaultSelector()

    def serve(self) -> dict[str, Any] | None:
        """Fork a process for each request: returns the request there, and None here, after the last one."""
        for side in (self._changes, self._wake):
            side.setblocking(False)
        signal.signal(signal.SIGCHLD, _do_nothing)
        signal.signal(signal.SIGINT, _do_nothing)  # Ctrl-C is for the tests, which then end this program
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._requests, selectors.EVENT_READ)
        self._selector.register(self._changes, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._changes:
                    self._report()
                elif (received := self._receive()) is None:
                    return None
                elif self._forked(*received):
                    return received[0]

    def _receive(self) -> tuple[dict[str, Any], list[int]] | None:
        head, descriptors, _, _ = socket.recv_fds(self._requests, LENGTH.size, 4)
        if not head:
            return None
        (length,) = LENGTH.unpack(head)
        return json.loads(self._requests.recv(length, socket.MSG_WAITALL)), descriptors

    def _forked(self, request: dict[str, Any], descriptors: list[int]) -> bool:
        """Whether this is the new process."""
        *streams, answers = descriptors
        if (process := os.fork()) == 0:
            self._leave()
            os.close(answers)
            _begin(request, streams)
            return True
        for stream in streams:
            os.close(stream)
        self._running[process] = socket.socket(fileno=answers)
        self._answer(process, STARTED.pack(process))
        return False

    def _report(self) -> None:
        """Tell of processes that were stopped or have ended."""
        with contextlib.suppress(BlockingIOError):
            self._changes.recv(4096)
        while self._running:
            process, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if process == 0:
                break
            self._answer(process, CHANGED.pack(status))
            if not os.WIFSTOPPED(status):
                self._running.pop(process).close()

    def _answer(self, process: int, answer: bytes) -> None:
        with contextlib.suppress(OSError):  # the test that asked has ended
            self._running[process].sendall(answer)

    def _leave(self) -> None:
        """In the new process: keep nothing of the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for each in (self._requests, self._changes, self._wake, *self._running.values()):
            each.close()


def _begin(request: dict[str, Any], streams: list[int]) -> None:
    """Make a process what it would be if an interpreter had just been started: `python -m duly` in a folder."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["on_a_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        opened = _stream(number, getattr(sys, name), mode)
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)
    sys.path[0] = os.getcwd()
    sys.argv = ["-m", *request["arguments"]]


def _stream(number: int, like: TextIO, mode: str) -> io.TextIOWrapper:
    """A standard stream, as an interpreter opens it."""
    raw = io.FileIO(number, mode, closefd=False)
    unbuffered = mode == "w" and bool(os.environ.get("PYTHONUNBUFFERED"))
    buffered = io.BufferedReader(raw) if mode == "r" else raw if unbuffered else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffered,
        encoding=like.encoding,
        errors=like.errors,
        newline="\n",
        line_buffering=number == 2 or raw.isatty(),
        write_through=unbuffered,
    )


def _do_nothing(*_: object) -> None:
    """A handler; the signal wakes the selector."""


def _import_the_command_line() -> None:
    """Import what commands import when they are used."""
    for package in PACKAGES:
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if module.name not in LEFT_OUT:
                with contextlib.suppress(ImportError):  # it needs an extra that is not installed
                    importlib.import_module(module.name)
    assert threading.active_count() == 1, "a process with threads cannot be forked safely"
    gc.collect()
    gc.freeze()  # a collection in a forked process would otherwise copy all of this memory


def _exit(code: int) -> None:
    """End as an interpreter does, but leave its objects where they are: to take them apart would copy their memory."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads; processes of `multiprocessing` end so, too
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _import_the_command_line()
    if _Requests(socket.socket(fileno=int(sys.argv[1]))).serve() is not None:
        try:
            runpy.run_module("duly", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            if isinstance(ended.code, int):
                _exit(ended.code)
            raise
