"""Where events go: the logger `duly` and the application's `on_event`, in order, whatever either of them does."""

import ast
import asyncio
import io
import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import duly
from duly import events
from duly.clock import SystemClock
from duly.engine import outbox as delivery
from duly.events import Event, TaskPreserved, TaskRunCompleted, TaskRunFailed, TaskRunStarted
from duly.testing import SimulatedHost
from duly.text import plain
from tests.engine.helpers import EVERY_MINUTE, Registration, fail, registration, works
from tests.spec.helpers import ManualClock

TEN = "2024-05-01T10:00"
PATIENCE_SECONDS = 30.0
LOGGER = logging.getLogger("duly")


class Ear(logging.Handler):
    """A handler that keeps what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def events(self) -> list[str]:
        return [record.__dict__["event"] for record in self.records if "event" in record.__dict__]

    def of(self, event: str) -> list[logging.LogRecord]:
        return [record for record in self.records if record.__dict__.get("event") == event]

    def complaints(self) -> list[logging.LogRecord]:
        return [record for record in self.records if "event" not in record.__dict__]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger `duly`, on its own and at DEBUG; afterwards as it was."""
    level, handlers, filters, propagate = LOGGER.level, LOGGER.handlers[:], LOGGER.filters[:], LOGGER.propagate
    LOGGER.setLevel(logging.DEBUG)
    LOGGER.propagate = False
    yield LOGGER
    LOGGER.setLevel(level)
    LOGGER.handlers[:], LOGGER.filters[:], LOGGER.propagate = handlers, filters, propagate


@pytest.fixture
def ear(logger: logging.Logger) -> Ear:
    ear = Ear()
    logger.addHandler(ear)
    return ear


# --- records ---------------------------------------------------------------------------------------------------------


async def test_every_event_is_logged_under_duly_at_its_level_with_name_and_fields(ear: Ear) -> None:
    """Logging contract: to `logging` under logger `duly` at that level, with `event` (name) and `fields` (a dict)."""
    told: list[Event] = []
    async with SimulatedHost(TEN, "Europe/Berlin") as host:
        scheduler = host.scheduler(on_event=told.append)
        await scheduler.initialize([registration(callback=fail), registration("gone", "30 * * * *")])
        await host.advance(minutes=2)
        await scheduler.initialize([registration()])
        await scheduler.stop()
    assert len(told) > 20
    assert [record.__dict__["event"] for record in ear.records] == [event.name for event in told]
    for record, event in zip(ear.records, told, strict=True):
        assert record.name == "duly"
        assert record.levelno == event.level
        assert type(record.__dict__["fields"]) is dict
        assert record.__dict__["fields"] == event.fields
        assert record.getMessage().split(" ")[0] == event.name


async def test_a_record_says_in_words_what_its_fields_say(ear: Ear) -> None:
    """A person reads name and fields on one line."""
    async with SimulatedHost(TEN, "Europe/Berlin") as host:
        await host.scheduler().initialize([registration("backup", "0 10 * * *")])
        await host.advance()
    (started,) = ear.of("TaskRunStarted")
    assert started.getMessage() == (
        "TaskRunStarted taskName=backup scheduledTime=2024-05-01T10:00:00+02:00 "
        "actualTime=2024-05-01T10:00:00+02:00 cause=cron runId=1"
    )
    (added,) = ear.of("TaskAdded")
    assert added.getMessage() == 'TaskAdded taskName=backup cronExpression="0 10 * * *" retryDelayMs=60000'


class JsonFormatter(logging.Formatter):
    """The form of JSON formatters: every attribute that is not logging's own becomes a member."""

    OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        members = {key: value for key, value in vars(record).items() if key not in self.OWN}
        return json.dumps({"level": record.levelname, "message": record.getMessage(), **members})


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
async def test_records_are_those_that_a_logger_makes_itself(
    monkeypatch: pytest.MonkeyPatch, logger: logging.Logger, level: int
) -> None:
    """A record made directly has all that `Logger.log()` puts into one, on which a class of the application relies."""

    class OwnLogger(logging.Logger):
        calls = 0

        def log(self, *arguments: Any, **named: Any) -> None:
            self.calls += 1
            super().log(*arguments, stacklevel=2, **named)

    own = OwnLogger("duly", level)
    logger.setLevel(level)
    heard: list[list[dict[str, Any]]] = []
    for each in (logger, own):
        monkeypatch.setattr(delivery, "_logger", each)
        ear = Ear()
        each.addHandler(ear)
        each.addFilter(lambda record: record.__dict__["event"] != "PollStarted")
        async with SimulatedHost(TEN, "UTC") as host:
            scheduler = host.scheduler()
            await scheduler.initialize([registration("good"), registration("bad", callback=fail)])
            await host.advance(minutes=2)
            await scheduler.stop()
        # A formatter of the test runner leaves its results in a record; tasks of the event loop are numbered.
        heard.append(
            [
                {key: vars(record)[key] for key in vars(record) if key not in ("message", "exc_text", "taskName")}
                for record in ear.records
            ]
        )
    assert own.calls >= len(heard[1]) > 0
    assert {record["event"] for record in heard[0]} >= {"TaskRunFailed"}
    for one, other in zip(*heard, strict=True):
        assert one.keys() == other.keys()
        for key in one.keys() - {"created", "msecs", "relativeCreated", "lineno", "exc_info", "fields", "args"}:
            assert one[key] == other[key]
        assert one["fields"].keys() == other["fields"].keys()
        if other["exc_info"] is None:
            assert one["exc_info"] is None
        else:
            kind, error, trace = one["exc_info"]
            assert kind is other["exc_info"][0]
            assert trace is error.__traceback__


@pytest.mark.parametrize("value", [0, -1, 1.5, float("inf"), True, None])
def test_numbers_in_log_text_are_what_their_text_is(value: object) -> None:
    """They take a shorter way, and none of them can hold anything that would have to be escaped."""
    assert delivery.readable("Event", {"field": value}) == f"Event field={plain(value)}"


def test_lists_and_mappings_in_log_text_are_as_python_writes_them() -> None:
    """Their texts are in quotes, so that one that holds a blank or a comma is not taken for two."""
    fields = {"dropped": ("a, b", "c"), "old": {"cron": "* * * * *"}, "at": timedelta(minutes=1)}
    assert delivery.readable("Event", fields) == ("Event dropped=('a, b', 'c') old={'cron': '* * * * *'} at=0:01:00")


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_listener_is_not_called_again_before_it_has_returned(flushed: bool) -> None:
    """Its events come after all that were emitted before."""
    heard: list[str] = []
    inside = False

    def listen(event: Event) -> None:
        nonlocal inside
        assert not inside
        inside = True
        heard.append(event.fields["taskName"])
        if event.fields["taskName"] in ("a", "b"):
            outbox.emit(TaskPreserved(event.fields["taskName"] * 2))
        inside = False

    outbox = delivery.Outbox(SystemClock(), listen)
    if flushed:
        outbox._waiting += [TaskPreserved("a"), TaskPreserved("b")]
        outbox.flush()
        assert heard == ["a", "b", "aa", "bb"]
    else:
        outbox.emit(TaskPreserved("a"))
        outbox.emit(TaskPreserved("b"))
        assert heard == ["a", "aa", "b", "bb"]


async def test_what_did_not_fit_into_one_round_of_the_event_loop_follows_in_the_next() -> None:
    """Without anything else that happens."""
    clock, heard = ManualClock(), list[str]()

    def listen(event: Event) -> None:
        clock.advance(1)
        heard.append(event.fields["taskName"])

    outbox = delivery.Outbox(clock, listen)
    for name in ("a", "b", "c"):
        outbox.emit(TaskPreserved(name))
    assert heard == ["a"]
    for _ in range(3):
        await asyncio.sleep(0)
    assert heard == ["a", "b", "c"]


async def test_an_event_that_nothing_wants_to_hear_is_handed_to_nothing(ear: Ear) -> None:
    """Neither to a listener that is not there, nor to one that ignores it."""
    heard: list[Event] = []
    delivery.Outbox(SystemClock(), None).emit(TaskPreserved("a"))
    delivery.Outbox(SystemClock(), heard.append, ignored=frozenset({TaskPreserved})).emit(TaskPreserved("b"))
    assert heard == []
    assert ear.complaints() == []
    assert ear.events() == ["TaskPreserved", "TaskPreserved"]


async def test_a_json_formatter_sees_the_fields(logger: logging.Logger) -> None:
    """Logging contract: nested because LogRecord owns `taskName` since 3.12, so JSON formatters see them."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    async with SimulatedHost(TEN, "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([registration("näme", callback=fail)])
        await host.advance()
        await scheduler.initialize([registration("näme", "0 0 * * *")])
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    failed = next(line for line in lines if line["event"] == "TaskRunFailed")
    assert failed["level"] == "WARNING"
    assert failed["fields"] == {
        "taskName": "näme",
        "duration": 0.0,
        "success": False,
        "error": "ValueError: it did not work",
        "runId": 1,
        "nextRetryAt": "2024-05-01T10:01:00+00:00",
    }
    overridden = next(line for line in lines if line["event"] == "TaskOverridden")
    assert overridden["fields"]["oldState"]["cronExpression"] == EVERY_MINUTE
    assert overridden["fields"]["dropped"] == ["pending retry at 2024-05-01T10:01:00+00:00"]


async def test_a_failed_run_carries_its_traceback(ear: Ear) -> None:
    """Logging contract: `TaskRunFailed` records carry `exc_info`; no other event does."""
    async with SimulatedHost(TEN, "UTC") as host:
        await host.scheduler().initialize([registration(callback=fail)])
        await host.advance()
    (failed,) = ear.of("TaskRunFailed")
    assert failed.exc_info is not None
    kind, error, trace = failed.exc_info
    assert kind is ValueError
    assert str(error) == "it did not work"
    assert trace is not None
    assert 'raise ValueError("it did not work")' in logging.Formatter().format(failed)
    assert [record.__dict__["event"] for record in ear.records if record.exc_info] == ["TaskRunFailed"]


async def test_a_run_that_took_too_long_says_so(ear: Ear) -> None:
    """SPEC 3.10: `run_timeout` cancels a run, which then has failed, and the record carries why."""
    async with SimulatedHost(TEN, "UTC") as host:
        scheduler = host.scheduler(run_timeout=timedelta(seconds=5))
        await scheduler.initialize([registration(callback=works(host, 50))])
        await host.advance(seconds=30)
    (failed,) = ear.of("TaskRunFailed")
    assert failed.exc_info is not None
    assert failed.exc_info[0] is TimeoutError
    assert "run_timeout" in failed.__dict__["fields"]["error"]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(ValueError("x" * 10_000), "ValueError: " + "x" * (4096 - 12), id="letters"),
        pytest.param(ValueError("é" * 10_000), "ValueError: " + "é" * 2042, id="two bytes each"),
        pytest.param(ValueError("😀" * 10_000), "ValueError: " + "😀" * 1021, id="four bytes each"),
        pytest.param(ValueError("a\udc80b"), "ValueError: a\\udc80b", id="lone surrogate"),
        pytest.param(ValueError("a\0b"), "ValueError: a\\0b", id="NUL"),
        pytest.param(ValueError(), "ValueError", id="no text"),
        pytest.param(SystemExit(3), "SystemExit: 3", id="SystemExit"),
        pytest.param(asyncio.CancelledError("mine"), "asyncio.exceptions.CancelledError: mine", id="CancelledError"),
    ],
)
async def test_the_error_text_is_storable_and_cut_at_4_kb(
    logger: logging.Logger, tmp_path: Path, error: BaseException, text: str
) -> None:
    """Logging contract: the stored error text is cut at 4 KB; never inside a character."""
    logger.setLevel(logging.CRITICAL)  # a test runner's workers cannot send each other lone surrogates

    async def work() -> None:
        raise error

    path = tmp_path / "duly.db"
    async with SimulatedHost(TEN, "UTC", store=path) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([registration(callback=work)])
        await host.advance()
        await scheduler.stop()
        (failed,) = (event for event in host.events if isinstance(event, TaskRunFailed))
    assert failed.error == failed.fields["error"] == text
    assert len(text.encode()) <= 4096
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT error FROM runs").fetchall() == [(text,)]


async def test_an_exception_that_cannot_be_put_into_words_is_a_failure_all_the_same(ear: Ear) -> None:
    """SPEC 3.11: a callback that raises anything has failed; its class is still told."""

    async def work() -> None:
        raise UnspeakableError

    async with SimulatedHost(TEN, "UTC") as host:
        await host.scheduler().initialize([registration(callback=work)])
        await host.advance(minutes=1)
    assert len(ear.of("TaskRunFailed")) == 2
    assert "UnspeakableError" in ear.of("TaskRunFailed")[0].__dict__["fields"]["error"]


# --- names that want to be more than names ---------------------------------------------------------------------------

HOSTILE = [
    pytest.param("two\nlines", id="newline"),
    pytest.param("\r\nTaskRunCompleted taskName=other", id="injected line"),
    pytest.param("\x1b[2J\x1b[31mred\x1b[0m", id="terminal codes"),
    pytest.param("\x9b31m", id="one-byte terminal code"),
    pytest.param("\x07\x08\x7f", id="bell, backspace, delete"),
    pytest.param("\u202eelif.exe", id="right-to-left override"),
    pytest.param("\u200f\u061c\u2066x\u2069", id="right-to-left marks"),
    pytest.param("\u2028\u2029\x85\x0b\x0c\x1c", id="other line breaks"),
    pytest.param("\u00ad\u200b\ufeff", id="invisible"),
    pytest.param('"', id="one quote"),
    pytest.param("'", id="one apostrophe"),
    pytest.param('a" duration=0 error="', id="quote and fields"),
    pytest.param('\\" duration=0', id="escaped quote and fields"),
    pytest.param("\\n", id="backslash and n"),
    pytest.param("a \\n b", id="backslash, n and blanks"),
    pytest.param("trailing\\", id="trailing backslash"),
    pytest.param("trailing blank and \\", id="blanks and a trailing backslash"),
    pytest.param("%s %(name)s {0} {name}", id="formats"),
    pytest.param(" ", id="blank"),
    pytest.param("a=b", id="equals sign"),
    pytest.param("日本語 😀", id="other scripts"),
]


def name_in(message: str) -> str:
    """The task's name as a reader of `TaskPreserved taskName=...` reads it back."""
    head, shown = message.split("=", 1)
    assert head == "TaskPreserved taskName"
    return str(ast.literal_eval(shown)) if shown.startswith('"') else shown


def told_about(name: str, ear: Ear) -> list[logging.LogRecord]:
    return [record for record in ear.records if record.__dict__["fields"].get("taskName") == name]


@pytest.mark.parametrize("name", HOSTILE)
async def test_task_names_are_escaped_in_log_text(ear: Ear, name: str) -> None:
    """Logging contract, 003 (sanitize): no injected lines, no terminal codes; `fields` has the name as it is."""
    async with SimulatedHost(TEN, "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([registration(name, callback=fail)])
        await host.advance(minutes=1)
        await scheduler.initialize([registration(name, callback=fail)])
        await scheduler.initialize([registration(name, "0 0 * * *")])
        await scheduler.initialize([])
    heard = {record.__dict__["event"] for record in told_about(name, ear)}
    assert heard >= {"TaskAdded", "TaskScheduled", "TaskRunStarted", "TaskRunFailed", "TaskRetryPreempted"}
    assert heard >= {"TaskPreserved", "TaskSkipped", "TaskOverridden", "TaskOrphaned"}
    for record in ear.records:
        assert record.getMessage().isprintable(), record.getMessage()
    (preserved,) = ear.of("TaskPreserved")
    assert name_in(preserved.getMessage()) == name


def test_a_name_in_log_text_can_be_read_back() -> None:
    """Logging contract: escaped, so that two names never look alike and none looks like more than a name."""

    # Surrogates never get this far (SPEC 1.4).
    @given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\\" \n\x1b='), min_size=1))
    def check(name: str) -> None:
        from duly.engine.outbox import readable

        message = readable("TaskPreserved", {"taskName": name})
        assert message.isprintable()
        assert name_in(message) == name

    check()


async def test_an_error_text_is_escaped_too(ear: Ear) -> None:
    """Logging contract: no injected lines, no terminal codes, also from what a callback raised."""

    async def work() -> None:
        raise ValueError("first\nsecond \x1b[31m")

    async with SimulatedHost(TEN, "UTC") as host:
        await host.scheduler().initialize([registration(callback=work)])
        await host.advance()
    (failed,) = ear.of("TaskRunFailed")
    assert failed.getMessage().isprintable()
    assert failed.__dict__["fields"]["error"] == "ValueError: first\nsecond \x1b[31m"


async def test_a_refused_name_is_escaped_too(ear: Ear) -> None:
    """Logging contract: also in the message of an error, which the failure event repeats."""
    with pytest.raises(duly.ScheduleDuplicateTaskError):
        await duly.Scheduler(":memory:").initialize([registration("a\nb\x1b[31m")] * 2)
    (failed,) = ear.of("SchedulerInitializationFailed")
    assert failed.getMessage().isprintable()


async def test_an_error_that_is_raised_to_the_caller_is_no_error_in_the_log(ear: Ear) -> None:
    """Logging contract: it is the caller's to report, and a caller that expects it has nothing to report."""
    scheduler = duly.Scheduler(":memory:")
    for _ in range(2):
        with pytest.raises(duly.RegistrationsNotArrayError):
            await scheduler.initialize(None)  # type: ignore[arg-type]
        await scheduler.initialize([])
    await scheduler.stop()
    failed = [*ear.of("SchedulerInitializationFailed"), *ear.of("SchedulerReinitializationFailed")]
    assert [record.levelname for record in failed] == ["INFO", "INFO"]


# --- sinks that raise ------------------------------------------------------------------------------------------------


class TroubleError(Exception):
    """The errors of bad sinks."""


class BadHandler(logging.Handler):
    """A handler that does not keep its exceptions to itself."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error
        self.calls = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.calls += 1
        raise self._error


async def two_minutes(**options: Any) -> list[Event]:
    """Three runs of a task, as an honest listener hears of them."""
    async with SimulatedHost(TEN, "UTC") as host:
        scheduler = host.scheduler(**options)
        await scheduler.initialize([registration()])
        await host.advance(minutes=2)
        await scheduler.initialize([registration(), registration("other", "0 0 * * *")])
        await scheduler.stop()
        return host.events


def reports_in(text: str) -> int:
    """How often a bad sink is reported in a text, with its traceback."""
    return text.count("logging raised") if "bad sink" in text and "Traceback" in text else 0


def raising(error: BaseException) -> Callable[[Event], None]:
    def on_event(event: Event) -> None:
        raise error

    return on_event


RAISED = [
    pytest.param(TroubleError("bad sink"), id="Exception"),
    pytest.param(asyncio.CancelledError("bad sink"), id="CancelledError"),
    pytest.param(SystemExit("bad sink"), id="SystemExit"),
    pytest.param(StopIteration("bad sink"), id="StopIteration"),
]


@pytest.mark.parametrize("error", RAISED)
async def test_an_on_event_that_raises_is_reported_once_and_disturbs_nothing(ear: Ear, error: BaseException) -> None:
    """Logging contract: a sink that raises is reported once and does not disturb scheduling; logging goes on."""
    undisturbed = await two_minutes()
    heard, ear.records = ear.events(), []
    disturbed = await two_minutes(on_event=raising(error))
    assert disturbed == undisturbed
    assert [name for name in ear.events() if "Poll" not in name] == [name for name in heard if "Poll" not in name]
    (complaint,) = ear.complaints()
    assert complaint.levelno == logging.ERROR
    assert "on_event" in complaint.getMessage()
    assert complaint.exc_info is not None
    assert complaint.exc_info[1] is error


@pytest.mark.parametrize("error", RAISED)
@pytest.mark.parametrize("order", ["before", "after"])
async def test_a_handler_that_raises_is_reported_once_and_disturbs_nothing(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], order: str, error: BaseException
) -> None:
    """Logging contract: a sink that raises is reported once and does not disturb scheduling; `on_event` goes on."""
    undisturbed = await two_minutes()
    ear, bad = Ear(), BadHandler(error)
    for handler in (bad, ear) if order == "before" else (ear, bad):
        logger.addHandler(handler)
    told: list[Event] = []
    disturbed = await two_minutes(on_event=told.append)
    assert disturbed == undisturbed
    assert [event for event in told if "Poll" not in event.name or "Polling" in event.name] == undisturbed
    assert bad.calls > 10
    # Heard by a handler that came first; where the bad one stands in the way of all others, by the person at stderr.
    spoken = capsys.readouterr().err
    reports = [record for record in ear.complaints() if "logging" in record.getMessage()]
    if order == "after":
        assert len(reports) == 1
        assert reports[0].exc_info is not None
        assert reports[0].exc_info[1] is error
    else:
        assert reports_in(spoken) == 1


@pytest.mark.parametrize("place", ["logger", "handler"])
async def test_a_filter_that_raises_is_reported_once_and_disturbs_nothing(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    """Logging contract: the same for a filter, on the logger or on a handler."""

    def bad(record: logging.LogRecord) -> bool:
        raise TroubleError("bad sink")

    undisturbed = await two_minutes()
    ear = Ear()
    logger.addHandler(ear)
    (logger if place == "logger" else ear).addFilter(bad)
    assert await two_minutes() == undisturbed
    assert reports_in(capsys.readouterr().err) == 1


async def test_a_filter_that_stumbles_over_one_record_loses_that_record_only(ear: Ear) -> None:
    """Logging contract: the next record is logged again, and the fault is reported where logging works."""

    def picky(record: logging.LogRecord) -> bool:
        if record.__dict__.get("event") == "TaskAdded":
            raise TroubleError("bad sink")
        return True

    undisturbed = await two_minutes()
    heard, ear.records = ear.events(), []
    ear.addFilter(picky)
    assert await two_minutes() == undisturbed
    assert ear.events() == [name for name in heard if name != "TaskAdded"]
    assert len(ear.complaints()) == 1


async def test_each_sink_that_raises_is_reported(ear: Ear) -> None:
    """Logging contract: a sink that raises is reported; that the other one did before takes nothing from it."""

    def picky(record: logging.LogRecord) -> bool:
        if record.__dict__.get("event") == "TaskAdded":
            raise TroubleError("bad filter")
        return True

    ear.addFilter(picky)
    await two_minutes(on_event=raising(TroubleError("bad sink")))
    errors = [str(record.exc_info[1]) for record in ear.complaints() if record.exc_info]
    assert sorted(errors) == ["bad filter", "bad sink"]


async def test_each_scheduler_reports_its_own_bad_sink(ear: Ear) -> None:
    """Logging contract: once each, not once for all."""
    for _ in range(2):
        await two_minutes(on_event=raising(TroubleError("bad sink")))
    assert len(ear.complaints()) == 2


async def test_an_on_event_that_raises_now_and_then_hears_everything_else(ear: Ear) -> None:
    """Logging contract: raising costs a sink nothing but that event."""
    told: list[Event] = []

    def sometimes(event: Event) -> None:
        told.append(event)
        if isinstance(event, TaskRunStarted):
            raise TroubleError("bad sink")

    honest = await two_minutes(on_event=sometimes)
    assert [event for event in told if event in honest] == honest
    assert len(ear.complaints()) == 1


# --- order and place -------------------------------------------------------------------------------------------------


async def test_on_event_is_called_in_commit_order(tmp_path: Path) -> None:
    """Logging contract: in commit order; ends as history has them, starts by number, each before its end."""
    told: list[Event] = []
    path = tmp_path / "duly.db"
    async with SimulatedHost(TEN, "UTC", store=path) as host:

        def task(n: int) -> Registration:
            async def work() -> None:
                await host.sleep((n * 37) % 100)
                if n % 3 == 0:
                    raise TroubleError

            return registration(f"task {n}", callback=work, delay=timedelta(seconds=n % 7))

        scheduler = host.scheduler(on_event=told.append)
        await scheduler.initialize([task(n) for n in range(40)])
        await host.advance(minutes=4)
        await asyncio.gather(scheduler.stop(), host.advance(minutes=4))
    starts = [event.run_id for event in told if isinstance(event, TaskRunStarted)]
    ends = [event.run_id for event in told if isinstance(event, TaskRunCompleted | TaskRunFailed)]
    with closing(sqlite3.connect(path)) as connection:
        recorded = [run for (run,) in connection.execute("SELECT run FROM runs ORDER BY seq")]
    assert len(ends) > 100
    assert ends == recorded
    assert starts == sorted(starts)
    assert sorted(ends) == starts
    first_told = {event.fields["runId"]: event.name for event in reversed(told) if "runId" in event.fields}
    assert set(first_told.values()) == {"TaskRunStarted"}


async def test_on_event_is_called_on_the_loops_thread(tmp_path: Path) -> None:
    """Logging contract: called on the loop thread, also about what ran in another, and with the loop running."""
    threads: set[int] = set()
    done = asyncio.Event()

    def on_event(event: Event) -> None:
        asyncio.get_running_loop()
        threads.add(threading.get_ident())
        if isinstance(event, TaskRunFailed):
            done.set()

    def blocking() -> None:
        raise TroubleError

    scheduler = duly.Scheduler(tmp_path / "duly.db", on_event=on_event)
    await scheduler.initialize([registration(callback=blocking)])
    async with asyncio.timeout(PATIENCE_SECONDS):
        await done.wait()
    await scheduler.stop()
    assert threads == {threading.get_ident()}


async def test_on_event_may_start_a_stop() -> None:
    """SPEC 4.3: `on_event` is not inside a run; a task it makes may stop the scheduler."""
    stops: list[asyncio.Task[None]] = []
    async with SimulatedHost(TEN, "UTC") as host:

        def on_event(event: Event) -> None:
            if isinstance(event, TaskRunCompleted) and not stops:
                stops.append(asyncio.create_task(scheduler.stop()))

        scheduler = host.scheduler(on_event=on_event)
        await scheduler.initialize([registration()])
        await host.advance(minutes=3)
        assert stops[0].done()
        stops[0].result()
        assert host.events[-1].name == "SchedulerStopped"


class FastClock(SystemClock):
    """A clock on which every look costs a millisecond, so that work seems long."""

    def __init__(self) -> None:
        self._looks = 0

    def elapsed(self) -> float:
        self._looks += 1
        return super().elapsed() + self._looks / 1000


async def test_a_burst_is_delivered_in_slices_and_in_order(ear: Ear) -> None:
    """Logging contract: commit order, however many; others on the loop have their turn in between."""
    tasks = 100
    told: list[Event] = []
    seen_at: list[int] = []
    rounds = completed = 0
    ended = asyncio.Event()

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    def on_event(event: Event) -> None:
        nonlocal completed
        told.append(event)
        if isinstance(event, TaskRunStarted):
            seen_at.append(rounds)
        completed += isinstance(event, TaskRunCompleted)
        if completed == tasks:
            ended.set()

    company = asyncio.create_task(others())
    scheduler = duly.Scheduler(":memory:", on_event=on_event, clock=FastClock())
    await scheduler.initialize([registration(f"task {n}") for n in range(tasks)])
    async with asyncio.timeout(PATIENCE_SECONDS):
        await ended.wait()
    await scheduler.stop()
    company.cancel()
    assert len(set(seen_at)) > 5
    assert ear.events() == [event.name for event in told]
    starts = [event.run_id for event in told if isinstance(event, TaskRunStarted)]
    assert starts == sorted(starts)
    assert told[-1].name == "SchedulerStopped"
    stories: dict[str, list[str]] = {}
    for event in told:
        stories.setdefault(event.fields.get("taskName", ""), []).append(event.name)
    for n in range(tasks):
        assert stories[f"task {n}"][:4] == ["TaskAdded", "TaskScheduled", "TaskRunStarted", "TaskRunCompleted"]


async def test_everything_is_told_before_initialize_and_stop_return() -> None:
    """000 Scheduler Lifecycle: when a call returns, all of its events are reported, however long the queue was."""
    told: list[Event] = []
    scheduler = duly.Scheduler(":memory:", on_event=told.append, clock=FastClock())
    await scheduler.initialize([registration(f"task {n}", "0 0 1 1 *") for n in range(300)])
    assert told[-1].name == "SchedulerInitializationCompleted"
    await scheduler.initialize([registration(f"task {n}", "0 0 1 1 *") for n in range(200)])
    assert [event.name for event in told if "Poll" not in event.name][-1] == "SchedulerReinitializationCompleted"
    assert [event.name for event in told].count("TaskOrphaned") == 100
    with pytest.raises(duly.RegistrationsNotArrayError):
        await scheduler.initialize(None)  # type: ignore[arg-type]
    assert told[-1].name == "SchedulerReinitializationFailed"
    await scheduler.stop()
    assert told[-1].name == "SchedulerStopped"


async def test_an_interrupt_from_the_keyboard_does_not_silence_the_outbox(ear: Ear) -> None:
    """SPEC 3.11: a KeyboardInterrupt goes through, wherever it strikes; the events after it are delivered."""
    from duly.engine.outbox import Outbox

    told: list[Event] = []

    def on_event(event: Event) -> None:
        told.append(event)
        if isinstance(event, events.SchedulerStopRequested):
            outbox.emit(events.PollingStopped())  # something waits behind it
            raise KeyboardInterrupt

    outbox = Outbox(SystemClock(), on_event)
    with pytest.raises(KeyboardInterrupt):
        outbox.emit(events.SchedulerStopRequested())
    outbox.emit(events.SchedulerStopped())
    assert [event.name for event in told] == ["SchedulerStopRequested", "PollingStopped", "SchedulerStopped"]


class InterruptedHandler(logging.Handler):
    """A handler in which Ctrl-C strikes, at a level or above."""

    def emit(self, record: logging.LogRecord) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("strikes", ["an event", "an unexpected fault", "a complaint"])
async def test_an_interrupt_inside_a_log_handler_goes_through(logger: logging.Logger, strikes: str) -> None:
    """SPEC 3.11: whatever is being logged, a KeyboardInterrupt is not taken for a fault of the handler."""
    from duly.engine.outbox import Outbox

    logger.addHandler(InterruptedHandler(logging.DEBUG if strikes == "an event" else logging.ERROR))
    outbox = Outbox(SystemClock(), raising(TroubleError("bad sink")) if strikes == "a complaint" else None)
    if strikes == "an unexpected fault":
        with pytest.raises(KeyboardInterrupt):
            outbox.unexpected(TroubleError("a defect"))
    else:
        with pytest.raises(KeyboardInterrupt):
            outbox.emit(events.SchedulerStopRequested())


async def test_an_unexpected_fault_is_logged_each_time_and_a_bad_handler_once(
    logger: logging.Logger, ear: Ear, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logging contract: a defect of duly's own stands in the log; if that fails, standard error has it once."""
    from duly.engine.outbox import Outbox

    outbox, fault = Outbox(SystemClock(), None), TroubleError("a defect")
    for _ in range(2):
        outbox.unexpected(fault)
    assert [record.exc_info and record.exc_info[1] for record in ear.complaints()] == [fault, fault]
    logger.handlers[:] = [BadHandler(TroubleError("bad sink"))]
    for _ in range(2):
        outbox.unexpected(fault)
    assert reports_in(capsys.readouterr().err) == 1


# --- nobody listens --------------------------------------------------------------------------------------------------

OFTEN = [
    events.TaskRunStarted,
    events.TaskRunCompleted,
    events.TaskRetryStarted,
    events.TaskRetryPreempted,
    events.PollStarted,
    events.PollCompleted,
    events.TaskAdded,
    events.TaskPreserved,
    events.TaskScheduled,
    events.TaskSkipped,
    events.TaskOverridden,
]
"""Events per task or per poll, below WARNING."""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the frequent events, as they are built."""
    names: list[str] = []

    def count(kind: type[Event]) -> None:
        initialize: Callable[..., None] = kind.__init__

        def counting(self: Event, *values: Any, **named: Any) -> None:
            names.append(kind.__name__)
            initialize(self, *values, **named)

        monkeypatch.setattr(kind, "__init__", counting)

    for kind in OFTEN:
        count(kind)
    return names


async def busy_minute(**options: Any) -> None:
    """A real scheduler on which each of the frequent events has its occasion, but those of retries."""
    ran = asyncio.Event()

    async def work() -> None:
        ran.set()

    scheduler = duly.Scheduler(":memory:", **options)
    tasks = [registration("a", callback=work), registration("b", "0 0 1 1 *")]
    await scheduler.initialize(tasks)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await ran.wait()
    await scheduler.initialize([*tasks, registration("c", "0 0 1 1 *")])
    await scheduler.initialize([tasks[0], registration("b", "0 0 1 2 *")])
    await scheduler.stop()


async def test_events_that_nobody_hears_are_not_built(logger: logging.Logger, ear: Ear, built: list[str]) -> None:
    """Logging contract: with INFO disabled and no `on_event`, nothing is built for it."""
    logger.setLevel(logging.WARNING)
    await busy_minute()
    assert built == []
    assert ear.events() == ["TaskOrphaned"]


async def test_at_info_the_details_of_polling_are_not_built(logger: logging.Logger, ear: Ear, built: list[str]) -> None:
    """Logging contract: the same at DEBUG, which is about every look and every preserved task."""
    logger.setLevel(logging.INFO)
    await busy_minute()
    assert set(built) == {"TaskAdded", "TaskRunStarted", "TaskRunCompleted", "TaskOverridden"}


@pytest.mark.parametrize("listener", ["on_event", "logging"])
async def test_one_listener_is_enough(logger: logging.Logger, built: list[str], listener: str) -> None:
    """Logging contract: to `logging` and to `on_event`, each of which may be the only one."""
    logger.setLevel(logging.DEBUG if listener == "logging" else logging.CRITICAL)
    told: list[Event] = []
    await busy_minute(on_event=told.append if listener == "on_event" else None)
    assert set(built) == {each.__name__ for each in OFTEN} - {"TaskRetryStarted", "TaskRetryPreempted"}
    assert bool(told) == (listener == "on_event")


async def test_a_level_that_changes_is_obeyed_at_once(logger: logging.Logger, ear: Ear) -> None:
    """Logging contract: whether anybody listens is asked anew, not decided at the start."""
    logger.setLevel(logging.WARNING)
    async with SimulatedHost(TEN, "UTC") as host:
        await host.scheduler().initialize([registration()])
        await host.advance(minutes=1)
        assert ear.events() == []
        logger.setLevel(logging.INFO)
        await host.advance(minutes=1)
        assert ear.events() == ["TaskRunStarted", "TaskRunCompleted"]


def test_a_duration_is_written_without_the_noise_of_its_last_digits() -> None:
    """As in the JSON log of `duly run`; `fields` of the record keep all of them."""
    event = TaskRunCompleted("job", 5.17066999987037, 7)
    assert delivery.readable(event.name, event.fields).split()[:3] == [
        "TaskRunCompleted",
        "taskName=job",
        "duration=5.171",
    ]
    assert event.fields["duration"] == 5.17066999987037
