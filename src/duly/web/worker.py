"""The child process of a dashboard: one question on standard input, one answer on standard output.

It bounds its own time and memory before it opens the store, so that it ends even if the dashboard is gone.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final

from duly.errors import DulyError
from duly.web.child import WAIT_FACTOR, NotAnsweredError, out_of_time

_NICENESS: Final = 10
"""A scheduler beside the dashboard goes first."""


_ALARM_SECONDS: Final = 1.0


class OutOfTimeError(KeyboardInterrupt):
    """The time is over. As Ctrl-C does, it ends an event loop: any other exception would be that of one task in it."""


def _questions() -> Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]:
    from duly.web import forecast, verdict

    return {"verify": verdict.judge, "whatif": forecast.simulate}


def main() -> None:
    """Answer the question."""
    request = json.load(sys.stdin)
    seconds: int = request["secondsMax"]
    try:
        _limit(seconds, request["memoryBytesMax"])
        answer = _questions()[request["question"]](request)
    except OutOfTimeError:
        answer = _refusal(out_of_time(seconds))
    except MemoryError:
        answer = _refusal(NotAnsweredError("This takes more memory than the dashboard gives it."))
    except NotAnsweredError as fault:
        answer = _refusal(fault)
    except DulyError as fault:
        hint = fault.details.get("hint")
        answer = _refusal(NotAnsweredError(fault.message, None if hint is None else str(hint)))
    except OSError as fault:
        answer = _refusal(NotAnsweredError(f"The child process that computes this met a fault: {fault.strerror}."))
    signal.setitimer(signal.ITIMER_REAL, 0)
    json.dump(answer, sys.stdout)


def _refusal(fault: NotAnsweredError) -> dict[str, Any]:
    return {"refusal": {"text": fault.text, "hint": fault.hint, "status": fault.status}}


def _limit(seconds: int, memory_bytes: int) -> None:
    import resource

    def end(signal_number: int, frame: FrameType | None) -> None:
        # Again, until it is caught: raised while asyncio sets up the next step of a task, it leaves a task without one,
        # and `asyncio.run` waits for that task.
        signal.setitimer(signal.ITIMER_REAL, _ALARM_SECONDS, _ALARM_SECONDS)
        raise OutOfTimeError

    signal.signal(signal.SIGXCPU, end)
    signal.signal(signal.SIGALRM, end)
    # Repeated: an alarm in the instant before an event loop sleeps is handled only when the next one wakes the loop.
    signal.setitimer(signal.ITIMER_REAL, WAIT_FACTOR * seconds, _ALARM_SECONDS)
    limits = ((resource.RLIMIT_CPU, seconds, seconds + 2), (resource.RLIMIT_AS, memory_bytes, memory_bytes))
    for limit, soft, hard in limits:
        with contextlib.suppress(ValueError, OSError):  # a lower one is in force, or the system has none
            resource.setrlimit(limit, (soft, hard))
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)


if __name__ == "__main__":
    main()
