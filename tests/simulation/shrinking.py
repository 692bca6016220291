"""Makes a failing history smaller: whatever can be left out while it still fails in the same way is left out.

Hypothesis shrinks what it drew itself; this is for histories of seeds, which are made without it.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.simulation.histories import Declared, History, Initialize, Pass, Stop

KEPT: Final = Path(os.environ.get("DULY_SOAK_FAILURES", "soak-failures.txt"))
"""Where a soak keeps the seeds of failures, in the folder in which it runs, with what repeats them."""


def shrunk(history: History, fails: Callable[[History], bool], *, attempts_max: int = 400) -> History:
    """The smallest history found that still fails."""
    attempts = 0
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(history):
            attempts += 1
            if attempts > attempts_max:
                return history
            if fails(smaller):
                history, progress = smaller, True
                break
    return history


def _smaller(history: History) -> Iterator[History]:
    steps = history.steps
    for size in (4, 2, 1):
        for index in range(len(steps) - size + 1):
            yield replace(history, steps=steps[:index] + steps[index + size :])
    for operation in history.faults:
        yield replace(history, faults={key: fault for key, fault in history.faults.items() if key != operation})
    for option in history.options:
        yield replace(history, options={key: value for key, value in history.options.items() if key != option})
    if history.seed:
        yield replace(history, seed=0)
    for index, step in enumerate(steps):
        for other in _smaller_step(step):
            yield replace(history, steps=(*steps[:index], other, *steps[index + 1 :]))
    if not history.idle_looks:
        yield replace(history, idle_looks=True)
    if history.zone != "UTC":
        yield replace(history, zone="UTC")


def _smaller_step(step: object) -> Iterator[Initialize | Stop | Pass]:
    if isinstance(step, Initialize | Stop):
        if step.background:
            yield replace(step, background=False)
        if step.cancelled_after is not None:
            yield replace(step, cancelled_after=None)
    if isinstance(step, Initialize):
        tasks = step.tasks
        for index in range(len(tasks)):
            yield replace(step, tasks=tasks[:index] + tasks[index + 1 :])
        for index, task in enumerate(tasks):
            for other in _smaller_task(task):
                yield replace(step, tasks=(*tasks[:index], other, *tasks[index + 1 :]))
    elif isinstance(step, Pass) and step.seconds > 60:
        yield Pass(60)


def _smaller_task(task: Declared) -> Iterator[Declared]:
    doings = task.doings
    for index in range(len(doings)):
        yield replace(task, doings=doings[:index] + doings[index + 1 :])
    for index, doing in enumerate(doings):
        if doing.end != "returns":
            yield replace(task, doings=(*doings[:index], replace(doing, end="returns"), *doings[index + 1 :]))
        if doing.seconds:
            yield replace(task, doings=(*doings[:index], replace(doing, seconds=0), *doings[index + 1 :]))
    if task.blocking:
        yield replace(task, blocking=False)
