"""Spans and metrics of runs, with the SDK's exporters in memory."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import duly
from duly.errors import RegistrationShapeError, RegistrationsNotArrayError
from duly.integrations.opentelemetry import traced
from duly.stores import PostgresStore
from duly.testing import SimulatedHost
from tests.postgres_server import PostgresServer

RETRY = timedelta(seconds=20)


class Telemetry:
    """Providers, and what they export."""

    def __init__(self) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self._reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))

    def traced(self, *registrations: Any, **options: Any) -> Any:
        return traced(list(registrations), tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self, name: str = "run job") -> list[ReadableSpan]:
        """The spans that have ended, in the order of their ends."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """The attributes of each point of a metric, and its value or count."""
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        return [
            (dict(point.attributes or {}), getattr(point, "count", None) or getattr(point, "value", None))
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


@pytest.fixture
async def noon(store: Path) -> AsyncIterator[SimulatedHost]:
    async with SimulatedHost("2026-11-16T11:59:59", "UTC", store) as host:
        yield host


async def test_each_run_is_the_root_of_a_trace_of_its_own(telemetry: Telemetry, noon: SimulatedHost) -> None:
    """A span that was active during initialize() is not their parent; spans of the callback are inside of them."""
    tracer, seen = telemetry.tracers.get_tracer("test"), []

    async def job() -> None:
        seen.append(baggage.get_baggage("request"))
        with tracer.start_as_current_span("query"):
            pass

    with tracer.start_as_current_span("startup"):
        token = context.attach(baggage.set_baggage("request", "7"))
        await noon.scheduler().initialize(telemetry.traced(("job", "* * * * *", job, RETRY)))
        context.detach(token)
    await noon.advance(minutes=2)
    runs, queries = telemetry.spans(), telemetry.spans("query")
    assert len(runs) == len(queries) == 3
    assert all(span.parent is None for span in runs)
    assert len({span.context.trace_id for span in runs if span.context}) == 3
    assert [query.parent.span_id for query in queries if query.parent] == [
        run.context.span_id for run in runs if run.context
    ]
    assert seen == [None, None, None]


async def test_a_span_says_which_run_it_is(telemetry: Telemetry, noon: SimulatedHost) -> None:
    """The attributes; the name can be chosen."""

    def job() -> None: ...

    registrations = telemetry.traced(
        ("job", "0 12 * * *", job, RETRY), span_name=lambda run: f"{run.task} number {run.run_id}"
    )
    await noon.scheduler().initialize(registrations)
    await noon.advance(minutes=1)
    (span,) = telemetry.spans("job number 1")
    assert span.kind is trace.SpanKind.INTERNAL
    assert dict(span.attributes or {}) == {
        "duly.task.name": "job",
        "duly.task.cron": "0 12 * * *",
        "duly.run.id": 1,
        "duly.run.cause": "cron",
        "duly.run.attempt": 1,
        "duly.run.scheduled_time": "2026-11-16T12:00:00+00:00",
        "duly.run.lateness_ms": 0,
    }


async def test_a_retry_links_to_the_attempt_that_it_repeats(telemetry: Telemetry, noon: SimulatedHost) -> None:
    """Attempts are in different traces; the next obligation links to nothing."""
    outcomes = iter([ValueError("first"), ValueError("second"), None, None])

    async def job() -> None:
        if (error := next(outcomes)) is not None:
            raise error

    await noon.scheduler().initialize(telemetry.traced(("job", "0 * * * *", job, RETRY)))
    await noon.advance(hours=1, minutes=1)
    first, second, third, fresh = telemetry.spans()
    assert [len(span.links) for span in (first, second, third, fresh)] == [0, 1, 1, 0]
    assert second.links[0].context == first.context
    assert third.links[0].context == second.context
    assert [(span.attributes or {})["duly.run.attempt"] for span in (first, second, third, fresh)] == [1, 2, 3, 1]
    assert not first.status.is_ok
    assert (first.attributes or {})["error.type"] == "ValueError"
    assert [event.name for event in first.events] == ["exception"]
    assert "duly.run.lateness_ms" not in (second.attributes or {})
    assert third.status.status_code is trace.StatusCode.UNSET


async def test_a_run_after_a_crash_names_the_run_that_was_interrupted(
    telemetry: Telemetry, noon: SimulatedHost, store: Path
) -> None:
    """From the store, if its path is given; blocking callbacks too."""

    async def hangs() -> None:
        await noon.sleep(10_000)

    done: list[str] = []
    await noon.scheduler().initialize(
        telemetry.traced(("job", "0 12 * * *", hangs, RETRY), ("blocking", "0 12 * * *", hangs, RETRY), store=store)
    )
    await noon.advance(seconds=30)
    await noon.crash()

    async def job() -> None:
        done.append("job")

    await noon.scheduler().initialize(
        telemetry.traced(
            ("job", "0 12 * * *", job, RETRY),
            ("blocking", "0 12 * * *", partial(done.append, "blocking"), RETRY),
            store=store,
        )
    )
    while len(done) < 2:  # the store is read in a real thread
        await noon.advance()
    await noon.advance(seconds=1)
    for name in ("job", "blocking"):
        *_, span = telemetry.spans(f"run {name}")
        attributes = dict(span.attributes or {})
        assert attributes["duly.run.cause"] == "interrupted"
        assert attributes["duly.run.interrupted_run_id"] in {1, 2}
        assert attributes["duly.run.id"] in {3, 4}


async def test_every_kind_of_callback_is_traced(telemetry: Telemetry, noon: SimulatedHost) -> None:
    """Coroutine functions, partials, bound methods, objects, blocking functions, and one that returns an awaitable."""
    current: list[str] = []
    in_one_span: list[bool] = []

    async def note(name: str) -> None:
        await asyncio.sleep(0)
        current.append(name)

    class Thing:
        async def method(self) -> None:
            await note("method")

        async def __call__(self) -> None:
            await note("object")

    def returns_an_awaitable() -> Any:
        before = trace.get_current_span()

        async def rest() -> None:
            in_one_span.append(trace.get_current_span() is before and before.is_recording())
            await note("awaitable")

        return rest()

    callbacks = {
        "function": partial(note, "function"),
        "method": Thing().method,
        "object": Thing(),
        "blocking": lambda: current.append("blocking"),
        "awaitable": returns_an_awaitable,
    }
    await noon.scheduler().initialize(
        telemetry.traced(*((name, "0 12 * * *", callback, RETRY) for name, callback in callbacks.items()))
    )
    await noon.advance(minutes=1)
    assert sorted(current) == sorted(callbacks)
    assert in_one_span == [True]
    assert all(len(telemetry.spans(f"run {name}")) == 1 for name in callbacks)
    assert not [event for event in noon.events if event.name == "TaskRunFailed"]


async def test_what_is_refused_without_tracing_is_refused_with_it(telemetry: Telemetry, noon: SimulatedHost) -> None:
    """SPEC 10.3, 1.2: the errors are those of initialize()."""

    def generator() -> Iterator[int]:
        yield 1

    scheduler = noon.scheduler()
    for callback in (generator, partial(generator), lambda needed: None, "text"):
        with pytest.raises(RegistrationShapeError):
            await scheduler.initialize(telemetry.traced(("job", "* * * * *", callback, RETRY)))
    with pytest.raises(RegistrationsNotArrayError):
        await scheduler.initialize(traced("jobs"))
    with pytest.raises(RegistrationShapeError):
        await scheduler.initialize(traced([("job", "* * * * *")]))


async def test_durations_lateness_and_runs_under_way_are_measured(telemetry: Telemetry, noon: SimulatedHost) -> None:
    """With outcome, cause and the type of the error; no attribute has the name of a task."""
    fails = True

    async def job() -> None:
        nonlocal fails
        if fails:
            fails = False
            raise ConnectionError("no")

    async def hangs() -> None:
        await noon.sleep(600)

    await noon.scheduler().initialize(
        telemetry.traced(("job", "0 12 * * *", job, RETRY), ("hangs", "0 12 * * *", hangs, RETRY))
    )
    await noon.advance(minutes=1)
    assert telemetry.points("duly.run.active") == [({}, 1)]
    failed = {"duly.run.outcome": "failure", "duly.run.cause": "cron", "error.type": "ConnectionError"}
    retried = {"duly.run.outcome": "success", "duly.run.cause": "retry"}
    assert telemetry.points("duly.run.duration") == [(failed, 1), (retried, 1)]
    assert telemetry.points("duly.start.lateness") == [({"duly.run.cause": "cron"}, 2)]
    await noon.advance(minutes=10)
    assert telemetry.points("duly.run.active") == [({}, 0)]


async def test_tasks_of_a_store_are_counted_once_however_often_it_is_declared(
    telemetry: Telemetry, noon: SimulatedHost, store: Path
) -> None:
    """The gauges; a store that does not exist has none."""
    scheduler = noon.scheduler()
    for count in (1, 2):
        await scheduler.initialize(
            telemetry.traced(*((f"job-{n}", "0 0 1 1 *", print, RETRY) for n in range(count)), store=store)
        )
    telemetry.traced(store=store.with_name("missing.db"))
    assert telemetry.points("duly.task.count") == [({"duly.store": "state.db"}, 2)]
    assert [attributes for attributes, _ in telemetry.points("duly.task.failing")] == [{"duly.store": "state.db"}]


async def test_a_store_that_hosts_share_is_read_by_its_url(
    telemetry: Telemetry, server: PostgresServer, schema: str
) -> None:
    """Its tasks are counted, and a run names the one that another host was torn away from."""
    url = server.url()

    def leave_a_run_behind() -> None:
        async def until_it_runs() -> None:
            began = asyncio.Event()

            async def hangs() -> None:
                began.set()
                await asyncio.Event().wait()

            scheduler = duly.Scheduler(PostgresStore(url, schema=schema))
            await scheduler.initialize([("job", "* * * * *", hangs, RETRY)])
            await began.wait()

        asyncio.run(until_it_runs())  # its loop ends without a stop: the host buries itself

    await asyncio.to_thread(leave_a_run_behind)
    done = asyncio.Event()

    async def job() -> None:
        done.set()

    scheduler = duly.Scheduler(PostgresStore(url, schema=schema))
    await scheduler.initialize(telemetry.traced(("job", "* * * * *", job, RETRY), store=url, schema=schema))
    await done.wait()
    await scheduler.stop()
    span = telemetry.spans()[0]
    attributes = dict(span.attributes or {})
    assert attributes["duly.run.cause"] == "interrupted"
    assert attributes["duly.run.interrupted_run_id"] == 10**12 + 1  # the first run of the first host
    assert telemetry.points("duly.task.count") == [({"duly.store": f"postgres.{schema}"}, 1)]


async def test_a_span_name_that_raises_does_not_fail_the_run(
    telemetry: Telemetry, noon: SimulatedHost, caplog: pytest.LogCaptureFixture
) -> None:
    """The span has its default name."""

    def broken(run: duly.CurrentRun) -> str:
        raise KeyError(run.task)

    await noon.scheduler().initialize(telemetry.traced(("job", "0 12 * * *", lambda: None, RETRY), span_name=broken))
    await noon.advance(minutes=1)
    assert len(telemetry.spans()) == 1
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "span_name raised; the span has its default name"
    ]


async def test_a_callback_outside_of_a_run_is_called_as_it_is(telemetry: Telemetry) -> None:
    """In a test of your own, for example."""

    async def job() -> str:
        return "done"

    [(_, _, on_loop, _), (_, _, blocking, _)] = telemetry.traced(
        ("job", "* * * * *", job, RETRY), ("blocking", "* * * * *", lambda: "done", RETRY)
    )
    assert (await on_loop(), blocking()) == ("done", "done")
    assert telemetry.spans() == []


def test_wrong_options_are_named() -> None:
    """When the registrations are made."""
    with pytest.raises(TypeError, match="span_name must be a function of a run, got str"):
        traced([], span_name="run")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="store must be the path or the URL of a store, got int"):
        traced([], store=7)  # type: ignore[arg-type]
