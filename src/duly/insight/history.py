"""The history: how many runs there are, which, and how long the runs of each task took."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from duly.core.moments import Instant
from duly.insight.run import RunReport, run_report
from duly.stores.port import RunSelection, TaskRuns, View

TASKS_COMPARED: Final = 10
DURATIONS_COMPARED: Final = 60


@dataclass(frozen=True, slots=True)
class History:
    """The extent of a store's record of the runs that were asked for; `runs_of` has them one by one."""

    store: str  #: the path of the store, or its URL without a password
    at: Instant  #: the moment at which the store was read
    history_begins: Instant | None
    """The start of the earliest run on record, whatever was asked for."""

    matching: int
    """How many runs there are of those asked for, shown or not."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the runs of some tasks compare: those tasks whose runs on record begin first."""

    tasks: int
    """How many tasks have such runs, compared or not."""

    compared: Sequence[TaskRuns]  #: the durations of the runs, task by task


def history_of(view: View, which: RunSelection) -> History:
    """The history of a store, as far as a filter lets it through.

    Parameters:
        view: the store at one moment.
        which: the filter.
    """
    snapshot = view.snapshot()
    return History(snapshot.store, snapshot.at, view.history_begins(), view.count_runs(which))


def runs_of(view: View, which: RunSelection, limit: int | None, *, tracebacks: bool = False) -> Iterator[RunReport]:
    """The latest runs that a filter lets through, the latest last.

    Parameters:
        view: the store at one moment.
        which: the filter.
        limit: how many at most; None: all of them.
        tracebacks: whether failures have their traceback.
    """
    if limit is None:
        return map(run_report, view.runs(which, oldest_first=True, tracebacks=tracebacks))
    return map(run_report, reversed(list(view.runs(which, limit=limit, tracebacks=tracebacks))))


def compare(view: View, which: RunSelection) -> Comparison:
    """How long the runs took, task by task.

    Parameters:
        view: the store at one moment.
        which: the runs to compare.
    """
    return Comparison(*view.runs_by_task(which, limit=TASKS_COMPARED, latest=DURATIONS_COMPARED))
