"""Facts about all tasks of a store, looked up in the background: counts, health, load, what fails and what runs.

Pages show the latest sample, so that none of them takes longer because a store has a million tasks. One daemon thread
looks when the store or the minute has changed, and then rests for twenty times as long as the look took: a twentieth of
one core at most. It ends when nobody has asked for three minutes, and the next question starts it again.

A look is several reads, each a transaction of its own, so that none keeps the write-ahead log for long. Their moments
differ by as much as they take; each is consistent in itself.
"""

import contextlib
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from statistics import median
from typing import Final
from weakref import ref

from duly.clock import Clock
from duly.core.cron import CronExpression, parse_cron
from duly.core.due import next_due
from duly.core.moments import MICROSECONDS, Instant, Minute, as_datetime, begin, instant_of, minute_of
from duly.errors import CronCalculationError, DulyError, StoreError
from duly.insight.health import Examination, Health, Situations, TaskStatus
from duly.insight.load import ComingLoad, load_of
from duly.insight.run import RunReport, run_report
from duly.stores.port import HistoryExtent, KnownTask, Reader, RunSelection, TaskCounts, TaskSelection, View
from duly.web.display import is_long, long_names

HOURS: Final = 24
HOUR: Final = 3600 * MICROSECONDS
OWED_SHOWN: Final = 200
STALE: Final = 5 * MICROSECONDS
"""Microseconds after which a page says of which moment its numbers are."""

LONG_HISTORY: Final = 1_000_000
"""Runs on record from which pages say that they take longer: history is scanned."""

EXPRESSIONS_MAX: Final = 2_000
"""Expressions whose load is computed: those that most tasks have."""

ARRIVALS_MAX: Final = 200
"""Arrivals of schedulers whose signs of life are kept, and that the days of a task show."""

_ROWS: Final = 10
_RUNS_COMPARED: Final = 20
_RUNNING: Final = TaskSelection(which="running")
_RUNNING_LOOKED_AT: Final = 1_000
"""Of more tasks that run at once, the longest running among the first of them are shown."""

_REST_FACTOR: Final = 20
_IDLE_SECONDS: Final = 180.0
"""Longer than any scrape interval of a monitoring system: its figures are those of the sample."""


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that runs, and how long its runs usually take."""

    status: TaskStatus
    cause: str | None
    usual_ms: float | None
    """The median of its latest successful runs; None if there are none on record."""


@dataclass(frozen=True, slots=True)
class NextStart:
    """The first due minute to come, and a task that is due in it."""

    at: Instant
    task: str


@dataclass(frozen=True, slots=True)
class Sample:
    """All tasks of a store at one moment."""

    at: Instant
    zone: tzinfo
    health: Health
    tally: TaskCounts
    longest_late: int
    """Microseconds for which the longest owed task could have been started already."""

    owed: Sequence[KnownTask]
    """The tasks that have been owed for longest."""

    latest_due: Mapping[str, Minute]
    """The latest due minutes of expressions that owe tasks something, by their text: a reader finds the tasks by them.
    """

    owed_left_out: int
    """Owed tasks that are not found by them, because too many different expressions owe something."""

    expressions: Sequence[tuple[CronExpression, int]]
    tasks_left_out: int
    """Tasks whose expressions are not among these, because there are too many different ones."""

    hours_begin: Instant
    hours: Mapping[tuple[int, str], int]
    """Runs of the last 24 hours, by the number of the hour and the outcome."""

    history_begins: Instant | None
    extent: HistoryExtent
    signs_of_life: Mapping[Instant, Instant | None]
    """The last sign of life before each of the latest arrivals of a scheduler: finding them takes a scan."""

    next_hour: ComingLoad
    next_start: NextStart | None
    """Before anything has run: what people wait for."""

    failing: Sequence[TaskStatus]
    running: Sequence[RunningTask]
    latest_troubles: Sequence[RunReport]
    """The latest runs that failed or were cut short."""

    long_names: Mapping[str, int]
    """The numbers of the declarations whose names, among all these, are too long for an address."""

    @property
    def has_long_history(self) -> bool:
        """Whether pages that scan history take noticeably longer."""
        return self.extent.runs > LONG_HISTORY


@dataclass(frozen=True, slots=True)
class _Declared:
    """The expressions of a store, as long as its declarations stay what they are."""

    version: Hashable
    expressions: Sequence[tuple[CronExpression, int]]
    tasks_left_out: int


@dataclass(frozen=True, slots=True)
class _History:
    """Facts about the runs on record."""

    hours_begin: Instant
    hours: Mapping[tuple[int, str], int]
    history_begins: Instant | None
    extent: HistoryExtent
    latest_troubles: Sequence[RunReport]


class SampleTaker:
    """Looks at all tasks of a store, one read after the other; keeps what need not be read again."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._declared: _Declared | None = None
        self._signs_of_life: dict[Instant, Instant | None] = {}

    def take(self, host_zone: tzinfo) -> Sample:
        """Look at all tasks."""
        examination, tally = self._reader.read(
            lambda view: (Examination(view, host_zone, shown=OWED_SHOWN), view.tally())
        )
        at, zone = examination.snapshot.at, examination.zone
        declared = self._declared = self._reader.read(self._read_declared)
        history = self._reader.read(lambda view: _history(view, at, zone))
        signs_of_life = self._reader.read(self._read_signs_of_life)
        self._signs_of_life = dict(signs_of_life)
        coming = [expression for expression, _ in declared.expressions]
        failing, running = self._reader.read(lambda view: _rows(view, host_zone))
        next_start = None
        if history.history_begins is None:
            next_start = self._reader.read(lambda view: _next_start(view, coming, at, zone))
        names = [status.task for status in failing] + [each.status.task for each in running]
        names += [run.task for run in history.latest_troubles] + ([] if next_start is None else [next_start.task])
        return Sample(
            at,
            zone,
            examination.health,
            tally,
            examination.longest_late,
            examination.owed_for_longest,
            examination.latest_due,
            examination.owed_left_out,
            declared.expressions,
            declared.tasks_left_out,
            history.hours_begin,
            history.hours,
            history.history_begins,
            history.extent,
            signs_of_life,
            load_of(declared.expressions, at, Instant(at + HOUR), zone, tasks_left_out=declared.tasks_left_out),
            next_start,
            failing,
            running,
            history.latest_troubles,
            self._reader.read(lambda view: long_names(view, names)) if any(map(is_long, names)) else {},
        )

    def _read_declared(self, view: View) -> _Declared:
        version = view.declared()
        if self._declared is not None and self._declared.version == version:
            return self._declared
        found = view.expressions(EXPRESSIONS_MAX)
        left_out = view.count_tasks() - sum(tasks for _, tasks in found)
        return _Declared(version, [(parse_cron(text), tasks) for text, tasks in found], left_out)

    def _read_signs_of_life(self, view: View) -> Mapping[Instant, Instant | None]:
        """Look for each once: it does not change after the arrival."""
        arrivals = view.snapshot().arrivals[-ARRIVALS_MAX:]
        return {
            arrival: self._signs_of_life[arrival] if arrival in self._signs_of_life else view.last_sign_of_life(arrival)
            for arrival in arrivals
        }


def _history(view: View, at: Instant, zone: tzinfo) -> _History:
    hour = as_datetime(at, zone).replace(minute=0, second=0, microsecond=0)
    hours_begin = Instant(instant_of(hour) - (HOURS - 1) * HOUR)
    troubles = view.runs(RunSelection(outcomes=("failure", "interrupted")), limit=_ROWS)
    return _History(
        hours_begin,
        view.runs_by_time(hours_begin, HOUR),
        view.history_begins(),
        view.extent(),
        [run_report(run) for run in troubles],
    )


def _rows(view: View, host_zone: tzinfo) -> tuple[Sequence[TaskStatus], Sequence[RunningTask]]:
    """The first tasks that fail, and those that run for longest."""
    situations = Situations(view.snapshot(), host_zone)
    failing = view.page(TaskSelection(which="failing", order="failure"), _ROWS)
    running = [(situations.status_of(task), task.run_cause) for task in view.page(_RUNNING, _RUNNING_LOOKED_AT)]
    running.sort(key=lambda found: found[0].last_attempt_at or situations.snapshot.at)
    return (
        [situations.status_of(task) for task in failing],
        [RunningTask(status, cause, _usual_ms(view, status.task)) for status, cause in running[:_ROWS]],
    )


def _next_start(view: View, expressions: Sequence[CronExpression], at: Instant, zone: tzinfo) -> NextStart | None:
    minute = minute_of(at, zone)
    coming = []
    for expression in expressions:
        with contextlib.suppress(CronCalculationError):  # the calendar ends in 9999
            coming.append((next_due(expression, minute, zone), expression.text))
    if not coming:
        return None
    due, text = min(coming)
    first = view.page(TaskSelection(order="expression", ranks={text: 0}), 1)
    return NextStart(begin(due), first[0].name) if first else None


def _usual_ms(view: View, task: str) -> float | None:
    runs = map(run_report, view.runs(RunSelection(task, outcomes=("success",)), limit=_RUNS_COMPARED))
    durations = [run.duration_ms for run in runs if run.duration_ms is not None]
    return median(durations) if durations else None


class Sampler:
    """Keeps the latest sample of a store, or why there is none."""

    def __init__(self, reader: Reader, clock: Clock, refresh_seconds: float) -> None:
        self._reader = reader
        self._taker = SampleTaker(reader)
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
        self.ahead = 0
        """Microseconds by which the clock of the store was ahead of ours when the latest sample was taken."""

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
            self.ahead = self._reader.read(lambda view: view.snapshot().at - self._clock.now())
            sample = self._taker.take(self._clock.zone())
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
