"""Metrics for Prometheus: counted from events, and read from a store when they are scraped.

Events are counted in plain integers, which become samples at a scrape: a burst of a hundred thousand starts pays for
counting alone. The number of series does not depend on the number of tasks, unless series for single tasks are asked
for, and then there are at most `per_task_max` of each kind. docs/reference/metrics.md lists them all.
"""

import logging
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import version
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import tzlocal
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from duly import StoreError, StoreUnusedError, TaskTryDeserializeError
from duly.events import (
    ClockJumped,
    Event,
    HostZoneChanged,
    PropertyViolated,
    SchedulerInitializationCompleted,
    SchedulerInitializationFailed,
    SchedulerReinitializationCompleted,
    SchedulerReinitializationFailed,
    StoreFault,
    TaskInterrupted,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunOverdue,
    TaskRunStarted,
    TaskStartDelayed,
)
from duly.formal import PROPERTIES
from duly.insight import Examination, TaskStatus
from duly.stores import RunSelection, SqliteReader, View

__all__ = ["TABLE", "Family", "Metrics", "StoreCollector"]

_logger: Final = logging.getLogger(__name__)

DURATION_BUCKETS: Final = (0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
LATENESS_BUCKETS: Final = (0.005, 0.05, 0.25, 1, 5, 15, 60, 300, 3600)

PER_TASK_MAX: Final = 200
_LABEL_VALUES_MAX: Final = 50
"""Operations and properties that have a series of their own; a further one is counted as `other`."""

_NAMES_AT_ONCE: Final = 1_000
_SAMPLE_SECONDS_MIN: Final = 1.0
_SAMPLE_REST: Final = 20
"""A sample is kept for this many times the compute that it took: sampling takes at most a twentieth of a core."""


class Family(NamedTuple):
    """A metric: its name in Prometheus, its type, its labels besides `store`, and what it tells."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str
    of_store: bool = False
    """Whether a store alone tells it, without the events of a scheduler."""


def _gauge(name: str, tells: str, *labels: str) -> Family:
    return Family(name, "gauge", labels, tells, of_store=True)


UP: Final = _gauge("duly_scheduler_up", "1 if a running scheduler holds the store")
LAST_POLL: Final = _gauge("duly_last_poll_timestamp_seconds", "When a scheduler last polled")
TASKS: Final = _gauge("duly_tasks", "Tasks in force")
OWED: Final = _gauge("duly_tasks_owed", "Tasks that are owed a start, interrupted ones included")
FAILING: Final = _gauge("duly_tasks_failing", "Tasks whose latest run failed")
RETRYING: Final = _gauge("duly_tasks_retrying", "Tasks that wait for their retry delay to pass")
RUNNING: Final = _gauge("duly_runs_running", "Runs under way")
OLDEST: Final = _gauge("duly_owed_oldest_seconds", "For how long the longest owed task could have been started")
STARTS: Final = Family("duly_run_starts_total", "counter", ("cause",), "Starts")
RUNS: Final = Family("duly_runs_total", "counter", ("outcome",), "Runs that have ended")
DURATION: Final = Family(
    "duly_run_duration_seconds", "histogram", ("outcome",), "From the call of a callback to its end"
)
LATENESS: Final = Family("duly_start_lateness_seconds", "histogram", ("cause",), "From the scheduled time to the start")
WARNINGS: Final = Family("duly_warnings_total", "counter", ("kind",), "Events that warn of something")
STORE_FAULTS: Final = Family("duly_store_faults_total", "counter", ("operation",), "Failed operations of the store")
VIOLATIONS: Final = Family(
    "duly_property_violations_total", "counter", ("property",), "Violations of properties that the monitor found"
)
INITIALIZATIONS: Final = Family("duly_initializations_total", "counter", ("result",), "Calls of initialize()")
LAST_SUCCESS: Final = _gauge("duly_task_last_success_timestamp_seconds", "When a task last succeeded", "task")
FAILURES: Final = _gauge("duly_task_failures_in_a_row", "Failures of a task since it last succeeded", "task")
LAST_DURATION: Final = _gauge("duly_task_last_duration_seconds", "How long the latest run of a task took", "task")
INFO: Final = _gauge("duly_info", "1; what is in use", "version", "layout", "zone")

TABLE: Final = (
    UP, LAST_POLL, TASKS, OWED, FAILING, RETRYING, RUNNING, OLDEST, STARTS, RUNS, DURATION, LATENESS, WARNINGS,
    STORE_FAULTS, VIOLATIONS, INITIALIZATIONS, LAST_SUCCESS, FAILURES, LAST_DURATION, INFO,
)  # fmt: skip
"""Every metric, in the order of docs/reference/metrics.md."""

_WARNING_KINDS: Final[dict[type[Event], str]] = {
    TaskStartDelayed: "start_delayed",
    TaskRunOverdue: "run_overdue",
    ClockJumped: "clock_jumped",
    HostZoneChanged: "zone_changed",
}
_COMPLETED: Final = (SchedulerInitializationCompleted, SchedulerReinitializationCompleted)
_FAILED: Final = (SchedulerInitializationFailed, SchedulerReinitializationFailed)
_REFUSED: Final = frozenset({"StoreLockedError", "TaskListMismatchError"})
"""Errors of an initialize() that say that the store belongs to others, or holds other tasks; the rest has failed."""


# --- public ----------------------------------------------------------------------------------------------------------


class StoreCollector(Collector):
    """What a store alone tells, read when it is scraped; for a process beside the scheduler, or without one.

    `store` is the path of the store, `name` the value of the label `store` (default: the file's name). With `per_task`
    there are series for single tasks: of all tasks, or of those whose name the function accepts, the first
    `per_task_max` by name. It registers itself at `registry`, unless that is None.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        registry: CollectorRegistry | None = REGISTRY,
        name: str | None = None,
        per_task: bool | Callable[[str], bool] = False,
        per_task_max: int = PER_TASK_MAX,
    ) -> None:
        path = _path(store)
        self.name = os.path.basename(path) if name is None else name
        self._samples = _Samples(path, _predicate(per_task), _bound(per_task_max))
        if registry is not None:
            _register(registry, self)

    def collect(self) -> Iterator[Metric]:
        """The families with their samples, as a registry asks for them."""
        return _families([self])

    def samples(self) -> "Iterator[_Sample]":
        """What a scrape shows of this store."""
        return self._samples.now()


class Metrics(Collector):
    """All metrics of one scheduler: give it to `Scheduler` as `on_event`, and to `store` the path of its store.

    The other parameters are those of `StoreCollector`. For a scheduler in memory (`store=":memory:"`), the events are
    counted, and nothing is read. Use one object for each scheduler.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        registry: CollectorRegistry | None = REGISTRY,
        name: str | None = None,
        per_task: bool | Callable[[str], bool] = False,
        per_task_max: int = PER_TASK_MAX,
    ) -> None:
        path, wanted, bound = _path(store), _predicate(per_task), _bound(per_task_max)
        self.name = os.path.basename(path) if name is None else name
        self._samples = None if path == ":memory:" else _Samples(path, wanted, bound)
        self._starts = {"cron": 0, "retry": 0, "interrupted": 0}
        self._runs = {"success": 0, "failure": 0, "interrupted": 0}
        self._succeeded, self._failed = _Histogram(DURATION_BUCKETS), _Histogram(DURATION_BUCKETS)
        self._lateness = {"cron": _Histogram(LATENESS_BUCKETS), "retry": _Histogram(LATENESS_BUCKETS)}
        self._warnings = dict.fromkeys(_WARNING_KINDS.values(), 0)
        # From zero on: Prometheus sees an increase only in a series that was there before.
        self._store_faults = {"write": 0}
        self._violations = dict.fromkeys((each.id for each in PROPERTIES), 0)
        self._initializations = {"completed": 0, "failed": 0, "refused": 0}
        self._latest: tuple[object, object, float] = (None, None, 0.0)
        """Scheduled time, actual time and lateness of the latest start; those of a burst are equal."""
        if registry is not None:
            _register(registry, self)

    def __call__(self, event: Event) -> None:
        """Count an event."""
        if type(event) is TaskRunStarted:
            self._count_start(event)
        elif type(event) is TaskRunCompleted:
            self._runs["success"] += 1
            self._succeeded.observe(event.duration / 1000)
        elif type(event) is TaskRunFailed:
            self._runs["failure"] += 1
            self._failed.observe(event.duration / 1000)
        else:
            self._count_rare(event)

    def _count_start(self, event: TaskRunStarted) -> None:
        cause, scheduled, actual = event.cause, event.scheduled_time, event.actual_time
        self._starts[cause] = self._starts.get(cause, 0) + 1
        if (histogram := self._lateness.get(cause)) is None:
            return  # a run that repeats an interrupted one was not due at any minute
        known_scheduled, known_actual, late = self._latest
        if scheduled != known_scheduled or actual != known_actual:
            # The difference of two times in one zone is that of the clocks on the wall, wrong where the offset changes.
            moved = (actual.utcoffset() or _NO_OFFSET) - (scheduled.utcoffset() or _NO_OFFSET)
            late = max(0.0, (actual - scheduled - moved).total_seconds())
            self._latest = scheduled, actual, late
        histogram.observe(late)

    def _count_rare(self, event: Event) -> None:
        if isinstance(event, TaskInterrupted):
            self._runs["interrupted"] += 1
        elif (warning := _WARNING_KINDS.get(type(event))) is not None:
            self._warnings[warning] += 1
        elif isinstance(event, StoreFault):
            _count(self._store_faults, event.operation)
        elif isinstance(event, PropertyViolated):
            _count(self._violations, event.property)
        elif isinstance(event, _COMPLETED):
            self._initializations["completed"] += 1
        elif isinstance(event, _FAILED):
            self._initializations["refused" if event.error_type in _REFUSED else "failed"] += 1

    def collect(self) -> Iterator[Metric]:
        """The families with their samples, as a registry asks for them."""
        return _families([self])

    def samples(self) -> "Iterator[_Sample]":
        """What a scrape shows of this scheduler and its store."""
        if self._samples is not None:
            yield from self._samples.now()
        counted = (
            (STARTS, self._starts), (RUNS, self._runs), (WARNINGS, self._warnings), (STORE_FAULTS, self._store_faults),
            (VIOLATIONS, self._violations), (INITIALIZATIONS, self._initializations),
        )  # fmt: skip
        for family, counts in counted:
            for label, number in counts.copy().items():  # a copy, because the scheduler's thread goes on counting
                yield _Sample(family, (label,), number)
        yield _Sample(DURATION, ("success",), self._succeeded)
        yield _Sample(DURATION, ("failure",), self._failed)
        for cause, histogram in self._lateness.items():
            yield _Sample(LATENESS, (cause,), histogram)


# --- arguments -------------------------------------------------------------------------------------------------------


def _path(store: object) -> str:
    if not isinstance(store, str | os.PathLike):
        raise TypeError(f"store must be the path of a store, got {type(store).__name__}")
    path = os.fspath(store)
    if not isinstance(path, str):
        raise TypeError("store must be a path as text, got bytes")
    return path


def _predicate(per_task: object) -> Callable[[str], bool] | None:
    if isinstance(per_task, bool):
        return _every if per_task else None
    if not callable(per_task):
        raise TypeError(f"per_task must be True, False or a function of a task's name, got {type(per_task).__name__}")
    return per_task


def _every(_: str) -> bool:
    return True


def _bound(per_task_max: object) -> int:
    if not isinstance(per_task_max, int) or isinstance(per_task_max, bool):
        raise TypeError(f"per_task_max must be an int, got {type(per_task_max).__name__}")
    if per_task_max < 0:
        raise ValueError(f"per_task_max must be at least 0, got {per_task_max}")
    return per_task_max


# --- counting --------------------------------------------------------------------------------------------------------

_NO_OFFSET: Final = timedelta(0)


class _Histogram:
    """Observations by bucket; not cumulative, and made so when they are shown."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """The number of observations up to each bound, as Prometheus wants it."""
        shown, sum_so_far = [], 0
        for bound, count in zip((*map(_number, self._bounds), "+Inf"), self.counts.copy(), strict=True):
            sum_so_far += count
            shown.append((bound, float(sum_so_far)))
        return shown


def _number(value: float) -> str:
    return repr(float(value))


def _count(counts: dict[str, int], label: str) -> None:
    """Count in a bounded number of series, whatever labels come."""
    label = label if label in counts or len(counts) < _LABEL_VALUES_MAX else "other"
    counts[label] = counts.get(label, 0) + 1


# --- reading a store -------------------------------------------------------------------------------------------------


class _Sample(NamedTuple):
    """One series: its family, the values of its labels but `store`, and its value."""

    family: Family
    labels: tuple[str, ...]
    value: float | _Histogram


@dataclass
class _Samples:
    """The gauges of one store; what concerns all tasks is counted again only after a rest."""

    store: str
    wanted: Callable[[str], bool] | None
    per_task_max: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _taken: Sequence[_Sample] = ()
    _next_at: float = float("-inf")
    """The earliest moment of the steady clock at which all tasks are counted again."""
    _complained: str | None = None

    def now(self) -> Iterator[_Sample]:
        """The gauges as they are; only `duly_scheduler_up 0` for a store that cannot be read: the rest is not known."""
        reader = SqliteReader(self.store, lambda: time.time_ns() // 1_000)
        with self._lock:  # scrapes come from several threads, and one of them at a time reads
            try:
                holder = reader.read(_holder_samples)
                if time.monotonic() >= self._next_at:
                    begun = time.thread_time()
                    self._taken = reader.read(self._task_samples)
                    cost = time.thread_time() - begun
                    self._next_at = time.monotonic() + max(_SAMPLE_SECONDS_MIN, _SAMPLE_REST * cost)
            except (StoreError, StoreUnusedError, TaskTryDeserializeError) as error:
                self._complain(error)
                self._next_at = float("-inf")
                return iter((_Sample(UP, (), 0),))
            self._complained = None
            return iter((*holder, *self._taken))

    def _complain(self, error: Exception) -> None:
        """Say once why there are no gauges; a store that does not exist yet is nothing to complain of."""
        text = str(error)
        if text != self._complained and not isinstance(error, StoreUnusedError):
            _logger.warning("no gauges for %s: %s", self.store, text)
        self._complained = text

    def _task_samples(self, view: View) -> Sequence[_Sample]:
        examination = Examination(view, tzlocal.get_localzone())
        counts = examination.counts
        samples = [
            _Sample(TASKS, (), counts.total()),
            _Sample(OWED, (), counts["owed"] + counts["interrupted"]),
            _Sample(FAILING, (), examination.count_failing()),
            _Sample(RETRYING, (), counts["retrying"]),
            _Sample(RUNNING, (), counts["running"]),
            _Sample(OLDEST, (), examination.longest_late / 1_000_000),
        ]
        for status in self._chosen(view, examination):
            name = status.task
            if status.last_success_at is not None:
                samples.append(_Sample(LAST_SUCCESS, (name,), status.last_success_at / 1_000_000))
            samples.append(_Sample(FAILURES, (name,), status.failures))
            for run in view.runs(RunSelection(task=name, outcomes=("success", "failure")), limit=1):
                if run.ended_at is not None:
                    began = run.started_at if run.called_at is None else run.called_at
                    samples.append(_Sample(LAST_DURATION, (name,), max(0, run.ended_at - began) / 1_000_000))
        return samples

    def _chosen(self, view: View, examination: Examination) -> Iterator[TaskStatus]:
        """The tasks that have series of their own."""
        if self.wanted is None:
            return
        chosen, after = 0, None
        while chosen < self.per_task_max and (names := view.names(after=after, limit=_NAMES_AT_ONCE)):
            after = names[-1]
            for name in filter(self.wanted, names):
                # `names` has those of history as well, which may no longer be in force.
                if chosen < self.per_task_max and (task := view.task(name)) is not None:
                    chosen += 1
                    yield examination.status_of(task)


def _holder_samples(view: View) -> Sequence[_Sample]:
    snapshot = view.snapshot()
    holder = snapshot.holder
    samples = [
        _Sample(UP, (), int(holder.alive)),
        _Sample(INFO, (version("duly"), str(snapshot.schema_version), snapshot.zone or ""), 1),
    ]
    if holder.last_poll_at is not None:
        samples.append(_Sample(LAST_POLL, (), holder.last_poll_at / 1_000_000))
    return samples


# --- showing ---------------------------------------------------------------------------------------------------------


class _Exposition(Collector):
    """The one collector of a registry: several stores share their families, which may be shown only once."""

    def __init__(self) -> None:
        self.sources: list[Metrics | StoreCollector] = []

    def describe(self) -> Iterable[Metric]:
        """The families without samples: the registry then knows the names and need not scrape."""
        return [_family(family) for family in TABLE]

    def collect(self) -> Iterator[Metric]:
        """The families with the samples of all sources."""
        return _families(self.sources)


_expositions: "WeakKeyDictionary[CollectorRegistry, _Exposition]" = WeakKeyDictionary()


def _register(registry: CollectorRegistry, source: "Metrics | StoreCollector") -> None:
    if not isinstance(registry, CollectorRegistry):
        raise TypeError(f"registry must be a prometheus_client.CollectorRegistry, got {type(registry).__name__}")
    if (exposition := _expositions.get(registry)) is None:
        exposition = _Exposition()
        registry.register(exposition)
        _expositions[registry] = exposition
    if any(other.name == source.name for other in exposition.sources):
        raise ValueError(
            f"the registry has metrics of a store named {source.name!r} already: "
            "use one Metrics or StoreCollector for each store, and `name=` for stores whose files have one name"
        )
    exposition.sources.append(source)


def _families(sources: Iterable["Metrics | StoreCollector"]) -> Iterator[Metric]:
    built = {family: _family(family) for family in TABLE}
    for source in list(sources):
        for family, labels, value in source.samples():
            values = [source.name, *labels]
            metric = built[family]
            if isinstance(metric, HistogramMetricFamily):
                assert isinstance(value, _Histogram)
                metric.add_metric(values, value.cumulative(), value.total)
            else:
                assert isinstance(metric, CounterMetricFamily | GaugeMetricFamily)
                assert not isinstance(value, _Histogram)
                metric.add_metric(values, value)
    return (metric for metric in built.values() if metric.samples)


def _family(family: Family) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    labels = ["store", *family.labels]
    match family.type:
        case "counter":
            return CounterMetricFamily(family.name, family.help, labels=labels)
        case "histogram":
            return HistogramMetricFamily(family.name, family.help, labels=labels)
        case _:
            return GaugeMetricFamily(family.name, family.help, labels=labels)
