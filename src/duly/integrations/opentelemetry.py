"""Traces and metrics of runs with OpenTelemetry: a root span around each run, over the API alone.

The application chooses and configures the SDK. Without one, everything here does next to nothing.
"""

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.metadata import version
from typing import Any, Final
from weakref import WeakKeyDictionary

import tzlocal
from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer, TracerProvider

import duly
from duly import CurrentRun, DulyError
from duly.insight import Examination
from duly.integrations.wrapping import Callback, runs_on_loop, wrapped
from duly.stores import Reader, RunSelection, View, label_of, reader_of

__all__ = ["traced"]

_logger: Final = logging.getLogger(__name__)

_SCOPE: Final = "duly"
_LINKS_MAX: Final = 10_000
"""Attempts that a later one may link to; beyond this, the earliest are forgotten."""

_LATENESS_BUCKETS: Final = (0.005, 0.05, 0.25, 1, 5, 15, 60, 300, 3600)
_DURATION_BUCKETS: Final = (0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)


def traced(
    registrations: Any,
    *,
    store: str | os.PathLike[str] | None = None,
    schema: str = "duly",
    span_name: Callable[[CurrentRun], str] | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Any:
    """The registrations with a span and metrics around each run: `await scheduler.initialize(traced(registrations))`.

    Every run is the root of a trace of its own. A retry links to the span of the attempt that it repeats, if that ran
    in this process.

    Parameters:
        registrations: what `Scheduler.initialize` takes.
        store: the path or URL of the scheduler's store. With it there are gauges of its tasks as well, and a run that
            repeats an interrupted one names that.
        schema: that of a store on PostgreSQL.
        span_name: given the run, returns the name of its span; `run TASK` by default.
        tracer_provider: makes the spans; the global one by default.
        meter_provider: makes the metrics; the global one by default.

    Raises:
        TypeError: `span_name` is not a function, or `store` is neither a path nor a URL.
    """
    if span_name is not None and not callable(span_name):
        raise TypeError(f"span_name must be a function of a run, got {type(span_name).__name__}")
    if store is not None and not isinstance(store, str | os.PathLike):
        raise TypeError(f"store must be the path or the URL of a store, got {type(store).__name__}")
    reader = None if store is None else reader_of(store, _now, schema=schema)
    release = version("duly")
    meter = metrics.get_meter(_SCOPE, release, meter_provider)
    tracing = _Tracing(
        trace.get_tracer(_SCOPE, release, tracer_provider),
        _Instruments(meter),
        span_name,
        reader,
    )
    if store is not None and reader is not None:
        _observe(meter, label_of(store, schema=schema), reader)
    return wrapped(registrations, tracing.wrap)


# --- runs ------------------------------------------------------------------------------------------------------------

_attempts: dict[str, SpanContext] = {}
"""The span of the latest attempt for each obligation that has not succeeded yet, by its key."""


class _Instruments:
    """The instruments that measure runs."""

    def __init__(self, meter: Meter) -> None:
        self.duration = meter.create_histogram(
            "duly.run.duration",
            "s",
            "From the call of a callback to its end",
            explicit_bucket_boundaries_advisory=_DURATION_BUCKETS,
        )
        self.lateness = meter.create_histogram(
            "duly.start.lateness",
            "s",
            "From the due minute to the start",
            explicit_bucket_boundaries_advisory=_LATENESS_BUCKETS,
        )
        self.active = meter.create_up_down_counter("duly.run.active", "{run}", "Runs under way")


class _Tracing:
    """The wrapping of callbacks."""

    def __init__(
        self,
        tracer: Tracer,
        instruments: _Instruments,
        span_name: Callable[[CurrentRun], str] | None,
        reader: Reader | None,
    ) -> None:
        self._tracer = tracer
        self._instruments = instruments
        self._span_name = span_name
        self._reader = reader

    def wrap(self, _: str, cron: str, callback: Callback) -> Callback:
        """A callback with a span around each of its runs."""
        if runs_on_loop(callback):

            @wraps(callback, updated=())
            async def on_loop() -> Any:
                if (run := duly.current_run()) is None:
                    return await callback()
                interrupted = await asyncio.to_thread(self._interrupted_run, run) if self._asks(run) else None
                with _RunSpan(self._begin(run, cron, interrupted), run, self._instruments).active():
                    return await callback()

            return on_loop

        @wraps(callback, updated=())
        def in_thread() -> Any:
            if (run := duly.current_run()) is None:
                return callback()
            interrupted = self._interrupted_run(run) if self._asks(run) else None
            around = _RunSpan(self._begin(run, cron, interrupted), run, self._instruments)
            with around.active():
                result = callback()
                around.goes_on = inspect.isawaitable(result)
            return around.awaited(result) if around.goes_on else result

        return in_thread

    def _begin(self, run: CurrentRun, cron: str, interrupted: int | None) -> Span:
        attributes: dict[str, str | int | float] = {
            "duly.task.name": run.task,
            "duly.task.cron": cron,
            "duly.run.id": run.run_id,
            "duly.run.cause": run.cause,
            "duly.run.attempt": run.attempt,
            "duly.run.scheduled_time": run.scheduled_time.isoformat(),
        }
        if run.cause == "cron":  # the scheduled time of a later attempt is that of the first
            attributes["duly.run.lateness_ms"] = round(_lateness(run) * 1000)
            self._instruments.lateness.record(_lateness(run), {"duly.run.cause": run.cause})
        if interrupted is not None:
            attributes["duly.run.interrupted_run_id"] = interrupted
        repeated = _attempts.get(run.key) if run.attempt > 1 else None
        links = [] if repeated is None else [Link(repeated, {"duly.link": "repeats"})]
        # An empty context: that of a run is a copy of the one in which initialize() was called, and a span that was
        # active there would be the parent of every run for ever.
        return self._tracer.start_span(self._name(run), Context(), SpanKind.INTERNAL, attributes, links)

    def _name(self, run: CurrentRun) -> str:
        if self._span_name is not None:
            try:
                return str(self._span_name(run))
            except Exception:
                _logger.exception("span_name raised; the span has its default name")
        return f"run {run.task}"

    def _asks(self, run: CurrentRun) -> bool:
        return run.cause == "interrupted" and self._reader is not None

    def _interrupted_run(self, run: CurrentRun) -> int | None:
        """The number of the run that was cut short, from the store; None if that cannot be told."""
        which = RunSelection(task=run.task, outcomes=("interrupted",))
        assert self._reader is not None
        try:
            return self._reader.read(lambda view: next((each.run_id for each in view.runs(which, limit=1)), None))
        except DulyError:
            return None


class _RunSpan:
    """The span and the measurements of one run."""

    def __init__(self, span: Span, run: CurrentRun, instruments: _Instruments) -> None:
        self._span = span
        self._run = run
        self._instruments = instruments
        self._began = time.monotonic()
        self.goes_on = False
        """Whether the callback has returned something that is still to be awaited."""
        instruments.active.add(1)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make the span the current one inside a block, and end it with the block unless the run goes on."""
        # Baggage of the context in which initialize() was called is left out as well.
        token = otel_context.attach(trace.set_span_in_context(self._span, Context()))
        try:
            yield
        except BaseException as error:
            self._end(error)
            raise
        else:
            if not self.goes_on:
                self._end(None)
        finally:
            otel_context.detach(token)

    async def awaited(self, awaitable: Any) -> Any:
        """Go on with what a blocking callback has returned, on the event loop (SPEC 1.3)."""
        self.goes_on = False
        with self.active():
            return await awaitable

    def _end(self, error: BaseException | None) -> None:
        attributes = {"duly.run.outcome": "success" if error is None else "failure", "duly.run.cause": self._run.cause}
        if error is None:
            _attempts.pop(self._run.key, None)
        else:
            attributes["error.type"] = kind = _qualified(type(error))
            self._span.set_attribute("error.type", kind)
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
            _remember(self._run.key, self._span.get_span_context())
        self._span.end()
        self._instruments.active.add(-1)
        self._instruments.duration.record(time.monotonic() - self._began, attributes)


def _remember(key: str, span: SpanContext) -> None:
    _attempts.pop(key, None)  # so that it becomes the latest
    _attempts[key] = span
    while len(_attempts) > _LINKS_MAX:
        _attempts.pop(next(iter(_attempts)), None)


def _lateness(run: CurrentRun) -> float:
    """Seconds from the due minute to the start, in passing time."""
    return max(0.0, run.started_at.timestamp() - run.scheduled_time.timestamp())


def _qualified(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- gauges of a store -----------------------------------------------------------------------------------------------

_SAMPLE_REST: Final = 20
"""A count is kept for this many times as long as it took: a twentieth of a core at most, here or elsewhere."""


class _TaskCounts:
    """Numbers of tasks in one store; the gauges of one export share them."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._counted: dict[str, int] = {}
        self._next_at = float("-inf")

    def get(self, name: str) -> int | None:
        """A number; None if the store cannot be read: what is not known is not shown."""
        if time.monotonic() >= self._next_at:
            begun = time.monotonic()
            try:
                self._counted = self._reader.read(_count)
            except DulyError:
                self._counted = {}
            self._next_at = time.monotonic() + max(1.0, _SAMPLE_REST * (time.monotonic() - begun))
        return self._counted.get(name)


def _count(view: View) -> dict[str, int]:
    examination = Examination(view, tzlocal.get_localzone())
    counts = examination.counts
    return {
        "duly.task.count": counts.total(),
        "duly.task.owed": counts["owed"] + counts["interrupted"],
        "duly.task.failing": examination.count_failing(),
    }


_observed: "WeakKeyDictionary[Meter, dict[tuple[str, str], _TaskCounts]]" = WeakKeyDictionary()
"""The stores of each meter: an instrument is made once, and observes all of them."""


def _observe(meter: Meter, label: str, reader: Reader) -> None:
    store = (label, repr(reader))  # files of one name in two folders are two stores
    if (stores := _observed.get(meter)) is not None:
        stores.setdefault(store, _TaskCounts(reader))
        return
    stores = _observed[meter] = {store: _TaskCounts(reader)}

    def gauge(name: str, description: str) -> None:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            for (label, _), counts in sorted(stores.items(), key=lambda each: each[0]):
                if (found := counts.get(name)) is not None:
                    yield Observation(found, {"duly.store": label})

        meter.create_observable_gauge(name, [observe], "{task}", description)

    gauge("duly.task.count", "Tasks in force")
    gauge("duly.task.owed", "Tasks that are owed a start")
    gauge("duly.task.failing", "Tasks whose latest run failed")


def _now() -> int:
    return time.time_ns() // 1_000
