"""The habits of a task: how long its runs usually take, and how often they fail."""

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from duly.core.cron import CronExpression
from duly.core.moments import Delay
from duly.stores.port import RunSelection, TaskSelection, View

_RUNS_MAX: Final = 200_000
"""Of a longer history, the latest runs are looked at."""

_ENDED: Final = ("success", "failure")


@dataclass(frozen=True, slots=True)
class Habit:
    """A task in force, and what its runs on record are like."""

    task: str
    expression: CronExpression
    retry_delay_ms: Delay
    runs: int
    """Its runs on record that have ended; without any, nothing is known about their length."""

    median_ms: float
    failure_rate: float
    """The share of its runs that failed, from 0 to 1."""


def habits_of(view: View, expressions: Collection[str], most: int) -> Sequence[Habit]:
    """The habits of up to `most` tasks that have one of these expressions, by name."""
    selection = TaskSelection(order="expression", ranks=dict.fromkeys(expressions, 0))
    tasks = view.page(selection, most) if expressions else ()
    took = {task.name: array("q") for task in tasks}
    failures = dict.fromkeys(took, 0)
    for run in view.runs(RunSelection(outcomes=_ENDED, names=tuple(took)), limit=_RUNS_MAX) if took else ():
        if run.ended_at is not None:
            took[run.task].append(max(0, run.ended_at - (run.called_at or run.started_at)))
            failures[run.task] += run.outcome == "failure"
    return [
        Habit(
            task.name,
            task.stored.expression,
            task.stored.delay,
            runs := len(took[task.name]),
            median(took[task.name]) / 1000 if runs else 0.0,
            failures[task.name] / runs if runs else 0.0,
        )
        for task in tasks
    ]
