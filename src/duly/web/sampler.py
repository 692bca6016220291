"""What concerns all tasks of a store, looked up in the background: counts, health, load, what fails and what runs.

Pages show the latest sample, so that none of them takes longer because a store has a million tasks. One daemon thread
looks when the store or the minute has changed, and then rests for twenty times as long as the look took: a twentieth of
one core at most. It ends when nobody has asked for a minute, and the next question starts it again.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from statistics import median
from typing import Final
from weakref import ref

from duly.clock import Clock
from duly.core.cron import CronExpression, parse_cron
from duly.core.moments import MICROSECONDS, Instant, as_datetime, instant_of
from duly.errors import DulyError, StoreError
from duly.insight.health import Examination, Health, TaskStatus
from duly.insight.load import ComingLoad, load_of
from duly.insight.run import RunReport, run_report
from duly.stores.port import Cohort, Reader, RunSelection, TaskCounts, TaskSelection, View

HOURS: Final = 24
HOUR: Final = 3600 * MICROSECONDS
OWED_SHOWN: Final = 200
EXPRESSIONS_MAX: Final = 2_000
"""Expressions whose load is computed: those that most tasks have."""

_ROWS: Final = 10
_RUNS_COMPARED: Final = 20
_RUNNING: Final = TaskSelection(which="running")
_RUNNING_LOOKED_AT: Final = 1_000
"""Of more tasks that run at once, the longest running among the first of them are shown."""

_REST_FACTOR: Final = 20
_IDLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that runs, and how long its runs usually take."""

    status: TaskStatus
    cause: str | None
    usual_ms: float | None
    """The median of its latest successful runs; None if there are none on record."""


@dataclass(frozen=True, slots=True)
class Sample:
    """All tasks of a store at one moment."""

    at: Instant
    zone: tzinfo
    health: Health
    tally: TaskCounts
    owed: Sequence[tuple[Cohort, Instant]]
    """Where the tasks are that have been owed for longest, for `View.longest_owed`."""

    expressions: Sequence[tuple[CronExpression, int]]
    tasks_left_out: int
    """Tasks whose expressions are not among these, because there are too many different ones."""

    hours_begin: Instant
    hours: Mapping[tuple[int, str], int]
    """Runs of the last 24 hours, by the number of the hour and the outcome."""

    history_begins: Instant | None
    next_hour: ComingLoad
    failing: Sequence[TaskStatus]
    running: Sequence[RunningTask]
    latest_troubles: Sequence[RunReport]
    """The latest runs that failed or were cut short."""


def take_sample(view: View, host_zone: tzinfo) -> Sample:
    """Look at all tasks of a store."""
    examination = Examination(view, host_zone, shown=OWED_SHOWN)
    at, zone = examination.snapshot.at, examination.zone
    found = view.expressions(EXPRESSIONS_MAX)
    expressions = [(parse_cron(text), tasks) for text, tasks in found]
    left_out = examination.health.tasks - sum(tasks for _, tasks in found)
    hour = as_datetime(at, zone).replace(minute=0, second=0, microsecond=0)
    hours_begin = Instant(instant_of(hour) - (HOURS - 1) * HOUR)
    running = [(examination.status_of(task), task.run_cause) for task in view.page(_RUNNING, _RUNNING_LOOKED_AT)]
    running.sort(key=lambda found: found[0].last_attempt_at or at)
    return Sample(
        at,
        zone,
        examination.health,
        view.tally(),
        examination.owed_for_longest,
        expressions,
        left_out,
        hours_begin,
        view.runs_by_time(hours_begin, HOUR),
        view.history_begins(),
        load_of(expressions, at, Instant(at + HOUR), zone, tasks_left_out=left_out),
        [examination.status_of(task) for task in view.page(TaskSelection(which="failing", order="failure"), _ROWS)],
        [RunningTask(status, cause, _usual_ms(view, status.task)) for status, cause in running[:_ROWS]],
        [run_report(run) for run in view.runs(RunSelection(outcomes=("failure", "interrupted")), limit=_ROWS)],
    )


def _usual_ms(view: View, task: str) -> float | None:
    runs = map(run_report, view.runs(RunSelection(task, outcomes=("success",)), limit=_RUNS_COMPARED))
    durations = [run.duration_ms for run in runs if run.duration_ms is not None]
    return median(durations) if durations else None


class Sampler:
    """Keeps the latest sample of a store, or why there is none."""

    def __init__(self, reader: Reader, clock: Clock, refresh_seconds: float) -> None:
        self._reader = reader
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running = False
        self._seen: object = None
        self._asked_at = 0.0
        self._number = 0
        self._sample: Sample | None = None
        self._fault: DulyError | None = None

    @property
    def number(self) -> int:
        """How many samples have been taken, failed ones included."""
        return self._number

    def latest(self, wait_seconds: float) -> Sample | None:
        """The latest sample; if there is none yet, wait for it, but not for longer than that.

        Raises the error that kept the store from being read.
        """
        self.keep_awake()
        with self._changed:
            self._changed.wait_for(lambda: self._number > 0, wait_seconds)
            if self._fault is not None:
                raise self._fault
            return self._sample

    def keep_awake(self) -> None:
        """Note that somebody looks; starts the thread if it does not run."""
        with self._lock:
            self._asked_at = time.monotonic()
            if not self._running:
                self._running = True
                self._seen = None
                # By a weak reference: the thread ends with a dashboard that its application has dropped.
                threading.Thread(target=_keep_sampling, args=(ref(self),), name="duly-web-sampler", daemon=True).start()

    def sample_if_changed(self) -> float:
        """Take a sample if the store or the minute is another one than at the last; returns the seconds to rest."""
        version = (self._reader.version(), self._clock.now() // (60 * MICROSECONDS))
        cost = 0.0
        if version != self._seen:
            began = time.monotonic()
            self._take()
            cost, self._seen = time.monotonic() - began, version
        return max(self._refresh_seconds, _REST_FACTOR * cost)

    def fall_asleep(self) -> bool:
        """End the sampling if nobody has looked for a while; returns whether it has ended."""
        with self._lock:
            if time.monotonic() - self._asked_at <= _IDLE_SECONDS:
                return False
            # A sample of long ago must not be shown as the present one.
            self._running, self._number, self._sample, self._fault = False, 0, None, None
            return True

    def _take(self) -> None:
        sample, fault = None, None
        try:
            host_zone = self._clock.zone()
            sample = self._reader.read(lambda view: take_sample(view, host_zone))
        except DulyError as error:
            fault = error
        except Exception as error:  # the thread must go on: the next look may succeed
            fault = StoreError(
                f"The store cannot be read: {type(error).__name__}", store=str(self._reader), cause=error
            )
        with self._changed:
            self._sample, self._fault = sample, fault
            self._number += 1
            self._changed.notify_all()


def _keep_sampling(sampler: "ref[Sampler]") -> None:
    """The thread: look, rest, look again, until nobody has looked for a while or the sampler is gone."""
    rest = 0.0
    while (present := sampler()) is not None and not (rest and present.fall_asleep()):
        rest = present.sample_if_changed()
        del present
        time.sleep(rest)
