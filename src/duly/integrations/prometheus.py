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
    HostClockSkewed,
    HostLost,
    HostZoneChanged,
    LeaseLost,
    LeaseSuspended,
    PropertyViolated,
    SchedulerInitializationCompleted,
    SchedulerInitializationFailed,
    SchedulerReinitializationCompleted,
    SchedulerReinitializationFailed,
    StoreFault,
    TaskInterrupted,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunFenced,
    TaskRunOverdue,
    TaskRunStarted,
    TaskStartDelayed,
)
from duly.formal import PROPERTIES
from duly.insight import (
    NOT_READABLE,
    STORE_GAUGES,
    Examination,
    Gauge,
    GaugeFamily,
    TaskStatus,
    holder_gauges,
    task_gauges,
)
from duly.stores import Reader, RunSelection, View, label_of, reader_of

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
"""A sample is kept for this many times as long as it took: at most a twentieth of a core, here or at a server."""


class Family(NamedTuple):
    """A metric: its name in Prometheus, its type, its labels besides `store`, and what it tells."""

    name: str  #: in Prometheus
    type: str  #: `counter`, `gauge` or `histogram`
    labels: tuple[str, ...]  #: besides `store`
    help: str  #: what it tells
    of_store: bool = False
    """Whether a store alone tells it, without the events of a scheduler."""


def _of_store(family: GaugeFamily) -> Family:
    return Family(family.name, "gauge", family.labels, family.tells, of_store=True)


UP, LAST_POLL, TASKS, OWED, FAILING, RETRYING, RUNNING, OLDEST, INFO = map(_of_store, STORE_GAUGES)
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
LAST_SUCCESS, FAILURES, LAST_DURATION = map(
    _of_store,
    (
        GaugeFamily("duly_task_last_success_timestamp_seconds", "When a task last succeeded", ("task",)),
        GaugeFamily("duly_task_failures_in_a_row", "Failures of a task since it last succeeded", ("task",)),
        GaugeFamily("duly_task_last_duration_seconds", "How long the latest run of a task took", ("task",)),
    ),
)

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
    HostLost: "host_lost",
    LeaseSuspended: "lease_suspended",
    LeaseLost: "lease_lost",
    TaskRunFenced: "run_fenced",
    HostClockSkewed: "host_clock_skewed",
}
_COMPLETED: Final = (SchedulerInitializationCompleted, SchedulerReinitializationCompleted)
_FAILED: Final = (SchedulerInitializationFailed, SchedulerReinitializationFailed)
_REFUSED: Final = frozenset({"StoreLockedError", "TaskListMismatchError"})
"""Errors of an initialize() that say that the store belongs to others, or holds other tasks; the rest has failed."""


# --- public ----------------------------------------------------------------------------------------------------------


class StoreCollector(Collector):
    """The metrics that a store alone tells, read when scraped; for a process beside the scheduler, or without one.

    Parameters:
        store: the path or URL of the store.
        schema: that of a store on PostgreSQL.
        registry: where it registers itself; None: nowhere.
        name: the value of the label `store`; the file's name, or `database.schema`, by default.
        per_task: True for series of single tasks, or a function that is given the name of a task and says whether it
            has some.
        per_task_max: how many tasks have series at most: the first by name.

    Raises:
        TypeError: a parameter has the wrong type.
        ValueError: `per_task_max` is negative, or the registry has metrics of that name already.
    """

    name: str

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        schema: str = "duly",
        registry: CollectorRegistry | None = REGISTRY,
        name: str | None = None,
        per_task: bool | Callable[[str], bool] = False,
        per_task_max: int = PER_TASK_MAX,
    ) -> None:
        place = _place(store)
        self.name = label_of(place, schema=schema) if name is None else name
        self._samples = _Samples(self.name, _reader(place, schema), _predicate(per_task), _bound(per_task_max))
        if registry is not None:
            _register(registry, self)

    def collect(self) -> Iterator[Metric]:
        """The families with their samples, as a registry asks for them."""
        return _families([self])

    def samples(self) -> "Iterator[_Sample]":
        """The samples of a scrape of this store."""
        return self._samples.now()


class Metrics(Collector):
    """All metrics of one scheduler: give it to `Scheduler` as `on_event`. Use one object for each scheduler.

    Parameters:
        store: the path or URL of the scheduler's store; `":memory:"` for one in memory, whose events are counted, and
            of which nothing is read.
        schema: that of a store on PostgreSQL.
        registry: where it registers itself; None: nowhere.
        name: the value of the label `store`; the file's name, or `database.schema`, by default.
        per_task: True for series of single tasks, or a function that is given the name of a task and says whether it
            has some.
        per_task_max: how many tasks have series at most: the first by name.

    Raises:
        TypeError: a parameter has the wrong type.
        ValueError: `per_task_max` is negative, or the registry has metrics of that name already.
    """

    name: str

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        schema: str = "duly",
        registry: CollectorRegistry | None = REGISTRY,
        name: str | None = None,
        per_task: bool | Callable[[str], bool] = False,
        per_task_max: int = PER_TASK_MAX,
    ) -> None:
        place, wanted, bound = _place(store), _predicate(per_task), _bound(per_task_max)
        self.name = label_of(place, schema=schema) if name is None else name
        self._samples = None if place == ":memory:" else _Samples(self.name, _reader(place, schema), wanted, bound)
        self._starts = {"cron": 0, "retry": 0, "interrupted": 0}
        self._runs = {"success": 0, "failure": 0, "interrupted": 0}
        self._succeeded, self._failed = _Histogram(DURATION_BUCKETS), _Histogram(DURATION_BUCKETS)
        self._lateness = {"cron": _Histogram(LATENESS_BUCKETS), "retry": _Histogram(LATENESS_BUCKETS)}
        self._warnings = dict.fromkeys(_WARNING_KINDS.values(), 0)
        # From zero on: Prometheus sees an increase only in a series that was there before.
        self._store_faults = dict.fromkeys(("write", "beat", "news", "trace"), 0)
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
        """The samples of a scrape of this scheduler and its store."""
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


def _place(store: object) -> str:
    """The path or the URL of a store."""
    if not isinstance(store, str | os.PathLike):
        raise TypeError(f"store must be the path or the URL of a store, got {type(store).__name__}")
    path = os.fspath(store)
    if not isinstance(path, str):
        raise TypeError("store must be a path as text, got bytes")
    return path


def _reader(place: str, schema: str) -> Reader:
    return reader_of(place, lambda: time.time_ns() // 1_000, schema=schema)


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
    """The store, as its metrics name it."""
    reader: Reader
    wanted: Callable[[str], bool] | None
    per_task_max: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _taken: Sequence[_Sample] = ()
    _next_at: float = float("-inf")
    """The earliest moment of the steady clock at which all tasks are counted again."""
    _complained: str | None = None

    def now(self) -> Iterator[_Sample]:
        """The gauges as they are; only `duly_scheduler_up 0` for a store that cannot be read: the rest is not known."""
        with self._lock:  # scrapes come from several threads, and one of them at a time reads
            try:
                holder = self.reader.read(_holder_samples)
                if time.monotonic() >= self._next_at:
                    begun = time.monotonic()
                    self._taken = self.reader.read(self._task_samples)
                    cost = time.monotonic() - begun
                    self._next_at = time.monotonic() + max(_SAMPLE_SECONDS_MIN, _SAMPLE_REST * cost)
            except (StoreError, StoreUnusedError, TaskTryDeserializeError) as error:
                self._complain(error)
                self._next_at = float("-inf")
                return map(_sample, NOT_READABLE)
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
        gauges = task_gauges(examination.counts, examination.count_failing(), examination.longest_late)
        samples = list(map(_sample, gauges))
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
    return list(map(_sample, holder_gauges(view.snapshot(), version("duly"))))


def _sample(gauge: Gauge) -> _Sample:
    return _Sample(_of_store(gauge.family), gauge.labels, gauge.value)


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
