"""Figures about a store as a whole, by the names that a monitoring system knows them by.

docs/reference/metrics.md lists them, with those that only the events of a scheduler tell.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from duly.core.moments import MICROSECONDS
from duly.stores.port import Snapshot


class GaugeFamily(NamedTuple):
    """A figure: its name, what it tells, and its labels besides the store."""

    name: str  #: as a monitoring system knows it
    tells: str  #: what it tells
    labels: tuple[str, ...] = ()  #: besides the store


class Gauge(NamedTuple):
    """The value of a figure, with those of its labels."""

    family: GaugeFamily  #: what it is a value of
    value: float  #: the figure
    labels: tuple[str, ...] = ()  #: the values of the labels of its family


SCHEDULER_UP: Final = GaugeFamily("duly_scheduler_up", "1 if a running scheduler holds the store")
LAST_POLL: Final = GaugeFamily("duly_last_poll_timestamp_seconds", "When a scheduler last polled")
TASKS: Final = GaugeFamily("duly_tasks", "Tasks in force")
OWED: Final = GaugeFamily("duly_tasks_owed", "Tasks that are owed a start, interrupted ones included")
FAILING: Final = GaugeFamily("duly_tasks_failing", "Tasks whose latest run failed")
RETRYING: Final = GaugeFamily("duly_tasks_retrying", "Tasks that wait for their retry delay to pass")
RUNNING: Final = GaugeFamily("duly_runs_running", "Runs under way")
OLDEST: Final = GaugeFamily("duly_owed_oldest_seconds", "For how long the longest owed task could have been started")
INFO: Final = GaugeFamily("duly_info", "1; what is in use", ("version", "layout", "zone"))

STORE_GAUGES: Final = (SCHEDULER_UP, LAST_POLL, TASKS, OWED, FAILING, RETRYING, RUNNING, OLDEST, INFO)
"""Every figure that a store alone tells."""

NOT_READABLE: Final = (Gauge(SCHEDULER_UP, 0),)
"""All that is said of a store that cannot be read: the rest is not known."""


def holder_gauges(snapshot: Snapshot, version: str) -> Sequence[Gauge]:
    """The gauges that need no counting of tasks.

    Parameters:
        snapshot: the store at one moment.
        version: that of duly.
    """
    holder = snapshot.holder
    gauges = [
        Gauge(SCHEDULER_UP, int(holder.alive)),
        Gauge(INFO, 1, (version, str(snapshot.schema_version), snapshot.zone or "")),
    ]
    if holder.last_poll_at is not None:
        gauges.append(Gauge(LAST_POLL, holder.last_poll_at / MICROSECONDS))
    return gauges


def task_gauges(counts: Mapping[str, int], failing: int, longest_late: int) -> Sequence[Gauge]:
    """The gauges of what an examination has counted.

    Parameters:
        counts: `Examination.counts`: the number of tasks in each state.
        failing: `Examination.count_failing()`.
        longest_late: `Examination.longest_late`, in microseconds.
    """
    return [
        Gauge(TASKS, sum(counts.values())),
        Gauge(OWED, counts.get("owed", 0) + counts.get("interrupted", 0)),
        Gauge(FAILING, failing),
        Gauge(RETRYING, counts.get("retrying", 0)),
        Gauge(RUNNING, counts.get("running", 0)),
        Gauge(OLDEST, longest_late / MICROSECONDS),
    ]
