"""Work that may take seconds, in a child process: one at a time, within limits of time and memory.

The child opens the store by itself, only reads it, and answers with one JSON document. So a long trace or simulation
takes the interpreter neither from the pages nor from a scheduler that runs in this process, and cannot exhaust it.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from duly.stores.place import StorePlace
from duly.stores.postgres.url import StoreUrl

SECONDS_MAX: Final = 10
"""Processor time of one answer."""

WAIT_FACTOR: Final = 3
"""On a busy machine an answer is waited for that many times as long as it may compute."""

MEMORY_BYTES_MAX: Final = 1 << 30
"""Address space of the child, of which an interpreter with the checker takes less than a tenth."""

_GRACE_SECONDS: Final = 3
"""How much longer than its limit a child is waited for: an interpreter needs a moment to start."""

_LOG: Final = logging.getLogger("duly.web")
_OUT_OF_TIME: Final = (-signal.SIGKILL, -signal.SIGXCPU)


class NotAnsweredError(Exception):
    """A question has no answer: a sentence that says why, what to do instead, and the status to send it with."""

    def __init__(self, text: str, hint: str | None = None, status: int = 503) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.status = status


class Children:
    """Asks child processes about one store, one at a time."""

    def __init__(
        self, store: StorePlace, seconds_max: int = SECONDS_MAX, memory_bytes_max: int = MEMORY_BYTES_MAX
    ) -> None:
        self._store = store
        self._seconds_max = seconds_max
        self._memory_bytes_max = memory_bytes_max
        self._turn = threading.Lock()

    def ask(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one of the questions of `duly.web.worker`; waits for it. Raises a NotAnsweredError."""
        if not self._turn.acquire(blocking=False):
            raise NotAnsweredError(
                "Another verdict or simulation is being computed.", "one is computed at a time: try again soon", 429
            )
        try:
            return self._answered(question, arguments)
        finally:
            self._turn.release()

    def _answered(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        request = {
            "question": question,
            "store": _written(self._store),
            "secondsMax": self._seconds_max,
            "memoryBytesMax": self._memory_bytes_max,
            **arguments,
        }
        try:
            with tempfile.TemporaryDirectory(prefix="duly-web-") as scratch:  # a child that is killed removes nothing
                done = subprocess.run(
                    [sys.executable, "-P", "-m", "duly.web.worker"],
                    input=json.dumps(request).encode(),
                    capture_output=True,
                    env=_environment(scratch),
                    timeout=WAIT_FACTOR * self._seconds_max + _GRACE_SECONDS,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            raise out_of_time(self._seconds_max) from None
        except OSError as fault:
            raise NotAnsweredError(f"No child process can be started: {fault.strerror or fault}.") from fault
        if done.returncode in _OUT_OF_TIME:
            raise out_of_time(self._seconds_max)
        if done.returncode != 0:
            _LOG.error("a child process ended with %d: %s", done.returncode, done.stderr.decode(errors="replace"))
            raise NotAnsweredError(
                "The child process that computes this has failed.", "the log of the dashboard has the reason"
            )
        answer: dict[str, Any] = json.loads(done.stdout)
        if (refusal := answer.get("refusal")) is not None:
            raise NotAnsweredError(refusal["text"], refusal["hint"], refusal["status"])
        return answer


def _written(place: StorePlace) -> dict[str, Any]:
    """A place for a request. It goes through a pipe: a password in it is in no argument and no environment."""
    if isinstance(place, Path):
        return {"path": str(place)}
    return {"parameters": place.parameters, "schema": place.schema}


def store_in(request: Mapping[str, Any]) -> StorePlace:
    """The store that a request is about."""
    store: Mapping[str, Any] = request["store"]
    return Path(store["path"]) if "path" in store else StoreUrl(store["parameters"], store["schema"])


def out_of_time(seconds: int) -> NotAnsweredError:
    """The error of an answer that takes too long."""
    return NotAnsweredError(f"This takes more than the {seconds} s of processor time that the dashboard gives it.")


def no_trace() -> NotAnsweredError:
    """The error of a verdict on a store without a trace."""
    return NotAnsweredError(
        "This store holds no trace: no scheduler on it was asked to keep one.",
        "a trace is kept by `duly run --trace`, or Scheduler(..., trace=True)",
        404,
    )


def _environment(scratch: str) -> dict[str, str]:
    """The environment of a child: it finds the package that this module belongs to, and a folder for its files."""
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), "TMPDIR": scratch}
