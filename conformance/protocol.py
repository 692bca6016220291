"""Line-based JSON over stdin and stdout: the way to an implementation, whatever language it is written in.

The runner starts the implementation's adapter as a process. Each request is one JSON object on one line of its stdin;
it answers with one JSON object on one line of stdout, with the request's `id`, in the order of the requests. Text on
stderr is passed on. When stdin ends, the adapter exits. schemas/protocol.schema.json has every request and answer.

    {"id": 0, "ask": "hello", "protocol": 1}
        {"id": 0, "name": "croniter", "version": "6.0.0", "groups": ["cron-parse", "calendar", "transitions"]}
    {"id": 1, "ask": "parse", "expression": "*/5 * * * *"}
        {"id": 1, "valid": true}
    {"id": 2, "ask": "next", "expression": "30 2 * * *", "zone": "UTC", "from": "2025-03-29T12:00:00Z", "count": 1}
        {"id": 2, "next": ["2025-03-30T02:30:00+00:00"]}

An answer is `{"notApplicable": why}` where a question does not concern the implementation, and `{"failed": text}` where
it raised.
"""

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, Any, Final, NamedTuple, Protocol

from conformance import schema
from conformance.vector_files import schema_of

VERSION: Final = 1
PATIENCE_SECONDS: Final = 60.0
"""After this long without an answer, a question counts as not answered, and the adapter is started again."""

Answer = dict[str, Any]


class ProtocolError(Exception):
    """An adapter does not speak the protocol; the text says what it did instead."""


class Hello(NamedTuple):
    """How an implementation introduces itself."""

    name: str
    version: str
    groups: tuple[str, ...]
    tz_database: str | None
    """The version of the tz database that it uses, if it says so."""


class Implementation(Protocol):
    """An implementation that can be asked."""

    def hello(self) -> Hello:
        """Introduce yourself."""
        ...

    def ask(self, request: dict[str, Any]) -> Answer:
        """Answer a question."""
        ...


def hello_of(answer: Answer) -> Hello:
    """The introduction in an answer. Raises ProtocolError."""
    if answer.get("protocol", VERSION) != VERSION:
        raise ProtocolError(f"the adapter speaks protocol {answer['protocol']!r}, the runner speaks {VERSION}")
    try:
        return Hello(answer["name"], answer["version"], tuple(answer["groups"]), answer.get("tzDatabase"))
    except KeyError as missing:
        raise ProtocolError(f"the adapter's answer to hello lacks {missing}") from missing


class Program:
    """An implementation in a process of its own."""

    def __init__(self, command: Sequence[str], *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._command = list(command)
        self._patience_seconds = patience_seconds
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._last = -1

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hello(self) -> Hello:
        """Ask for an introduction."""
        return hello_of(self.ask({"ask": "hello", "protocol": VERSION}))

    def ask(self, request: dict[str, Any]) -> Answer:
        """Ask one question. Raises ProtocolError if what comes back is not an answer."""
        process = self._process or self._start()
        assert process.stdin is not None
        self._last += 1
        with contextlib.suppress(OSError):  # it has ended, but may have written something before
            process.stdin.write(json.dumps({"id": self._last, **request}) + "\n")
            process.stdin.flush()
        try:
            line = self._lines.get(timeout=self._patience_seconds)
        except queue.Empty:
            self.close(kill=True)
            return {"failed": f"no answer within {self._patience_seconds:g} seconds"}
        if line is None:
            self.close()
            code = process.returncode
            raise ProtocolError(f"the adapter {' '.join(self._command)} ended with exit code {code}")
        return self._checked(line)

    def _checked(self, line: str) -> Answer:
        try:
            answer: Answer = json.loads(line)
        except ValueError as fault:
            raise ProtocolError(f"the adapter wrote a line that is not JSON: {line[:200]!r}") from fault
        if faults := schema.faults(answer, schema_of("protocol")["$defs"]["answer"] | _DEFINITIONS):
            raise ProtocolError(f"the adapter's answer is not one of the protocol: {faults[0]}: {line[:200]!r}")
        if answer.pop("id") != self._last:
            raise ProtocolError(f"the adapter answered another question than number {self._last}: {line[:200]!r}")
        return answer

    def _start(self) -> "subprocess.Popen[str]":
        try:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        except OSError as fault:
            raise ProtocolError(f"the adapter {self._command[0]!r} cannot be started: {fault}") from fault
        assert process.stdout is not None
        self._process, self._lines = process, queue.SimpleQueue()
        threading.Thread(target=_read, args=(process.stdout, self._lines), daemon=True).start()
        return process

    def close(self, *, kill: bool = False) -> None:
        """End the process: it exits when its stdin ends; if it does not, it is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        if kill:
            process.kill()
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=self._patience_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _read(stream: IO[str], lines: "queue.SimpleQueue[str | None]") -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
    stream.close()


_DEFINITIONS: Final[dict[str, Any]] = {"$defs": schema_of("protocol")["$defs"]}
