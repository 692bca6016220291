"""Two processes for some real minutes: many tasks due every minute, and one due task among a million.

They share the minutes, not the moments: the clock of the second process is half a minute ahead of that of the first,
whose burst is over by then. Both report the processor time that they used while the other one was being measured, so
the results show whether they disturbed each other.
"""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.ours.one_due import READY

AHEAD_SECONDS = 30.0
READY_WITHIN_SECONDS = 240.0


def measure(
    folder: Path, tasks: int, others: int, history: int, minutes: int, *, system_clock: bool = True
) -> dict[str, float]:
    """`tasks` due every minute in one process, one due among `others` with a `history` in the other."""
    with ExitStack() as stack:
        clock = {"minutes": minutes, "system_clock": system_clock}
        # The first minute of this one may still meet the beginning of the other.
        one = {"tasks": others, "history": history, "ahead_seconds": AHEAD_SECONDS, "warm_up": 1, **clock}
        single = stack.enter_context(_child("ours.one_due", one, folder / "one"))
        _await_file(folder / "one" / READY, single)
        many = stack.enter_context(_child("ours.minutely", {"tasks": tasks, **clock}, folder / "many"))
        figures = {f"many: {name}": value for name, value in _figures(many).items()}
        return figures | {f"one: {name}": value for name, value in _figures(single).items()}


def _child(module: str, arguments: dict[str, Any], folder: Path) -> "subprocess.Popen[str]":
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.child", module, json.dumps(arguments), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _await_file(path: Path, child: "subprocess.Popen[str]") -> None:
    until = time.monotonic() + READY_WITHIN_SECONDS
    while not path.exists():
        if child.poll() is not None:
            raise RuntimeError(f"the process of one due task ended with {child.returncode}")
        if time.monotonic() > until:
            child.kill()
            raise RuntimeError(f"a million tasks were not declared within {READY_WITHIN_SECONDS:.0f} s")
        time.sleep(0.1)


def _figures(child: "subprocess.Popen[str]") -> dict[str, float]:
    output, _ = child.communicate()
    if child.returncode != 0:
        raise RuntimeError(f"{child.args!r} ended with {child.returncode}")
    answer: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return answer
