"""The trace that a scheduler leaves, and the monitor that shadows it: from the store to the verdict."""

import io
import json
import sqlite3
from collections.abc import Callable, Coroutine
from datetime import UTC, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import duly
from duly import parse_cron
from duly.core.changes import Batch
from duly.core.moments import Delay, Instant, Minute
from duly.core.registration import RunsOn, read_registrations
from duly.core.resolution import Mark
from duly.core.steps import finish
from duly.core.task import AwaitingRun, Interrupted, Obligation, Task, TaskState
from duly.engine.setup import Setup
from duly.engine.trace import BatchRows, Trace, registers_of
from duly.events import PropertyViolated, TaskInterrupted
from duly.formal.checking import Report, check
from duly.formal.properties import Value
from duly.formal.registers import TaskRow
from duly.formal.trace import RS
from duly.stores import SqliteStore
from duly.stores.sqlite import schema
from duly.stores.sqlite.trace import Tracing, export
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.engine.helpers import engine_of
from tests.stores.contract import AT_NOON, ended, start, task
from tests.stores.helpers import older_layout

Job = Callable[[], Coroutine[Any, Any, None]]
HOURLY = "0 * * * *"
DELAY = timedelta(minutes=1)


def exported(path: Path, *, clean: bool = True) -> bytes:
    """A store's trace in its exchange format."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    try:
        return b"".join(export(connection, clean=clean))
    finally:
        connection.close()


def judged(path: Path, *, clean: bool = True) -> Report:
    """The checker's verdict on it."""
    return check(io.BytesIO(exported(path, clean=clean)))


def values(report: Report) -> set[Value]:
    return {verdict.value for verdict in report.verdicts.values()}


async def quick() -> None:
    """A callback that succeeds."""


async def fail() -> None:
    """A callback that does not."""
    raise ValueError("no")


async def a_day_with_everything(host: SimulatedHost, path: Path) -> None:
    """Retries, long runs, threads, a crash, overriding, orphaning, clock steps, a refused initialize, a stop."""

    async def long() -> None:
        await host.sleep(100)

    scheduler = host.scheduler(path, trace=True)
    tasks: list[tuple[str, str, Callable[[], Any], timedelta]] = [
        ("long", "* * * * *", long, DELAY),
        ("fails", "0,30 * * * *", fail, timedelta(minutes=7)),
        ("blocks", HOURLY, lambda: None, DELAY),
    ]
    await scheduler.initialize(tasks)
    await host.advance(hours=2, minutes=20, seconds=30)
    await host.crash()
    await host.jump(hours=1)
    scheduler = host.scheduler(path, trace=True, max_concurrency=2)
    await scheduler.initialize(tasks)
    await host.advance(minutes=30)
    await scheduler.initialize([tasks[0], ("fails", HOURLY, fail, timedelta(0)), ("new", HOURLY, quick, DELAY)])
    with pytest.raises(duly.RegistrationsNotArrayError):
        await scheduler.initialize(None)  # type: ignore[arg-type]
    await host.advance(hours=1)
    await host.set_clock(host.now - timedelta(hours=2))
    await host.advance(hours=1)
    await host.set_clock(host.now - timedelta(hours=8))
    await host.advance(hours=1)
    await host.set_clock(host.now + timedelta(days=1))
    await host.advance(minutes=10)
    await scheduler.initialize([("new", HOURLY, quick, DELAY)])
    await host.advance(hours=2)
    await scheduler.stop()


@pytest.mark.slow
async def test_a_trace_of_a_day_with_everything_satisfies_every_property(tmp_path: Path) -> None:
    """SPEC 7.6: the trace is the durable log, and the checker derives the rest itself."""
    path = tmp_path / "traced.db"
    async with SimulatedHost("2024-03-30T22:10:10", "Europe/Berlin") as host:
        await a_day_with_everything(host, path)
        assert any(isinstance(event, TaskInterrupted) for event in host.events)
    report = judged(path)
    assert values(report) == {Value.SATISFIED}, report.violations
    assert (report.crashes, report.ended) == (1, True)
    assert report.events > 500


async def test_a_trace_is_off_by_default_and_one_that_was_interrupted_begins_anew(tmp_path: Path) -> None:
    """A trace that does not reach up to now is no trace of now."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-05-01T12:30", "Europe/Berlin") as host:
        for trace in (True, False, True):
            scheduler = host.scheduler(path, trace=trace)
            await scheduler.initialize([("a", HOURLY, quick, DELAY)])
            await host.advance(hours=2)
            await scheduler.stop()
            if not trace:
                assert exported(path).count(b'"RS"') == 2  # what the first one left
    report = judged(path)
    assert values(report) == {Value.SATISFIED}, report.violations
    assert exported(path).count(b'"BT"') == 1
    assert b'"registers":{' in exported(path).splitlines()[0]


async def test_a_segment_that_is_full_is_followed_by_one_that_can_be_checked_alone(tmp_path: Path) -> None:
    """FORMAL A1: each begins with the registers and the hash of the one before; the oldest are dropped."""
    path = tmp_path / "state.db"
    store = SqliteStore(path, worker=Inline(), synchronous="OFF")
    store.tracing = Tracing(segment_events=100, segments_kept=3)
    async with SimulatedHost("2024-05-01T12:30", "Europe/Berlin") as host:
        scheduler = host.scheduler(store, trace=True)
        await scheduler.initialize([("a", "* * * * *", quick, DELAY), ("b", "0,7 * * * *", fail, DELAY)])
        await host.advance(hours=6)
        await scheduler.stop()
    lines = exported(path).splitlines(keepends=True)
    headers = [index for index, line in enumerate(lines) if line.startswith(b'{"trace"')]
    assert len(headers) == 3
    report = judged(path)
    assert values(report) == {Value.SATISFIED}, report.violations
    assert report.first_segment > 3
    alone = check(io.BytesIO(b"".join(lines[headers[-1] :])))
    assert values(alone) == {Value.SATISFIED}, alone.violations
    edited = [line.replace(b'"cron"', b'"retry"') if index == 5 else line for index, line in enumerate(lines)]
    edited = [*edited[:5], edited[5].replace(b"true", b"false").replace(b'"WK"', b'"WK" '), *edited[6:]]
    if edited != lines:
        with pytest.raises(duly.errors.TraceError):
            check(io.BytesIO(b"".join(edited)))


async def test_a_store_of_the_first_version_is_migrated_when_it_is_used(tmp_path: Path) -> None:
    """Persisted formats carry a version: an older one is migrated, by the initialize() that first uses it."""
    path = tmp_path / "old.db"
    async with SimulatedHost("2024-05-01T12:30", "Europe/Berlin") as host:
        scheduler = host.scheduler(path)
        await scheduler.initialize([("a", HOURLY, quick, DELAY)])
        await host.advance(hours=1)
        await scheduler.stop()
        older_layout(path, 1)

        scheduler = host.scheduler(path, trace=True)
        await scheduler.initialize([("a", HOURLY, quick, DELAY)])
        await host.advance(hours=1)
        await scheduler.stop()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (2,)
    connection.close()
    assert values(judged(path)) == {Value.SATISFIED}


async def test_a_violation_is_told_as_an_event_at_error(tmp_path: Path) -> None:
    """The monitor shadows the running scheduler; a forged start shows that it looks."""
    host = SimulatedHost("2024-05-01T12:30", "Europe/Berlin")
    async with host:
        scheduler = host.scheduler()
        await scheduler.initialize([("a", HOURLY, quick, DELAY)])
        engine_of(scheduler).journal.note(RS(0, host._clock.now(), "a", 1, 99, "cron", 0))
        with pytest.raises(AssertionError, match="S2 violated: a starts although nothing is owed"):
            await host.advance(seconds=1)
        (violation,) = [event for event in host.events if isinstance(event, PropertyViolated)]
        assert (violation.name, violation.level, violation.property) == ("PropertyViolated", 40, "S2")
        assert violation.fields["taskName"] == "a"


async def test_a_zone_without_a_name_is_refused_by_a_trace(tmp_path: Path) -> None:
    """The checker knows zones by their names; a clear error says what to do."""

    class Nowhere(duly.clock.tzinfo):  # type: ignore[name-defined,misc]
        def utcoffset(self, when: object) -> timedelta:
            return timedelta(hours=1)

        def dst(self, when: object) -> timedelta:
            return timedelta(0)

    async with SimulatedHost("2024-05-01T12:30", Nowhere()) as host:
        with pytest.raises(duly.DulyError, match="needs a zone with a name"):
            await host.scheduler(tmp_path / "state.db", trace=True).initialize([("a", HOURLY, quick, DELAY)])
        await host.scheduler().initialize([("a", HOURLY, quick, DELAY)])
        await host.advance(hours=1)
        assert len([event for event in host.events if event.name == "TaskRunStarted"]) == 1


async def test_each_start_says_how_many_runs_were_open_before_it(tmp_path: Path) -> None:
    """FORMAL A1: `slots` of a start: starts of one batch count one another, and its ends are over."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-05-01T12:00", "UTC") as host:

        async def long() -> None:
            await host.sleep(90)

        scheduler = host.scheduler(path, trace=True)
        tasks = [
            ("a", "* * * * *", quick, DELAY),
            ("b", "0 * * * *", long, DELAY),
            ("c", "* * * * *", lambda: None, DELAY),
        ]
        await scheduler.initialize(tasks)
        await host.advance(minutes=3)
        await scheduler.stop()
    running = 0
    seen = set()
    for line in exported(path).splitlines():
        match json.loads(line):
            case ["RS", *_, slots]:
                assert slots == running, line
                seen.add(slots)
                running += 1
            case ["RE", *_]:
                running -= 1
            case _:
                pass
    assert seen == {0, 1, 2}


def test_a_start_does_not_count_runs_that_end_in_its_batch() -> None:
    """FORMAL A1: their ends are written before it."""
    at = Instant(AT_NOON + 60_000_000)
    begun = [start(task(number), number, at) for number in (1, 2)]
    follows = start(task(3), 3, at)
    rows = list(BatchRows(Batch.of([*(ended(each, at) for each in begun), follows]), (), running=3))
    assert [row[0] for row in rows] == ["RE", "RE", "RS"]
    assert rows[-1] == ("RS", at, "task 3", 3, 3, "cron", 1)


def test_starts_that_were_refused_are_neither_judged_nor_counted() -> None:
    """SPEC 9.8: another host makes them; the numbers of runs under way, which stand in each start, close up."""
    heard: list[tuple[Any, ...]] = []
    monitor = SimpleNamespace(seq=4, counts={}, violations=[], feed=heard.extend)
    setup = SimpleNamespace(options=SimpleNamespace(trace=False, monitor=False))
    trace = Trace(cast(Setup, setup), registers_of({}, {}, {}, finish(read_registrations([])), UTC))
    trace.monitor = cast(Any, monitor)
    at = Instant(AT_NOON + 60_000_000)
    first = start(task(1), 1, at)
    trace.became_durable(trace.rows_of(Batch.of([first]), ()))
    heard.clear()
    starts = [start(task(number), 9 + number, at) for number in (2, 3, 4, 5)]
    trace.became_durable(trace.rows_of(Batch.of([ended(first, at), *starts]), ()), frozenset({11, 13}))
    assert heard == [
        ("RE", 5, at, "task 1", 1, 1, True),
        ("RS", 6, at, "task 3", 3, 12, "cron", 0),
        ("RS", 7, at, "task 5", 5, 14, "cron", 1),
    ]
    (row,) = trace.rows_of(Batch.of([start(task(6), 15, at)]), ())
    assert row == ("RS", at, "task 6", 6, 15, "cron", 2)


async def test_a_text_that_no_trace_can_hold_is_refused_before_anything_changes(tmp_path: Path) -> None:
    """docs/formal.md: a longer one would be written and then refused by every reader."""
    path = tmp_path / "state.db"
    long = "0," * 40_000 + "0 * * * *"
    async with SimulatedHost("2024-05-01T12:30", "Europe/Berlin", path) as host:
        scheduler = host.scheduler(trace=True)
        for wrong, most in (
            (("n" * 2_100_000, HOURLY, quick, DELAY), "2,097,152"),
            (("x", long, quick, DELAY), "65,536"),
        ):
            with pytest.raises(duly.DulyError, match=rf"(?s)at most {most} characters.*keep no trace"):
                await scheduler.initialize([wrong])
        await scheduler.initialize([("a", HOURLY, quick, DELAY)])
        with pytest.raises(duly.DulyError, match="65,536"):
            await scheduler.initialize([("b", long, quick, DELAY)])
        await host.advance(hours=1)
        await scheduler.stop()
    assert values(judged(path)) == {Value.SATISFIED}


def test_a_monitor_knows_of_a_stored_task_when_it_last_ended() -> None:
    """FORMAL A2: by success or by failure, whichever came later; never is 0."""
    ends = {}
    for success, failure in ((None, None), (5, None), (None, 7), (5, 7), (9, 7)):
        state = AwaitingRun(Minute(0), Instant(1), _instant(success), _instant(failure))
        task = Task(1, "a", parse_cron(HOURLY), Delay(0), state, quick, RunsOn.LOOP)
        (row,) = registers_of({"a": task}, {}, {}, finish(read_registrations([])), UTC).tasks
        ends[success, failure] = row.ended
    assert ends == {(None, None): 0, (5, None): 5, (None, 7): 7, (5, 7): 7, (9, 7): 9}


def _instant(number: int | None) -> Instant | None:
    return None if number is None else Instant(number)


def register_of(state: TaskState, *, run: int | None = None, runs_on: RunsOn = RunsOn.LOOP) -> TaskRow:
    """The registers of a stored task before anything happens."""
    task = Task(4, "a", parse_cron(HOURLY), Delay(0), state, quick, RunsOn.LOOP)
    declared = finish(read_registrations([("a", HOURLY, quick if runs_on is RunsOn.LOOP else print, DELAY)]))
    (row,) = registers_of({"a": task}, {}, {} if run is None else {"a": run}, declared, UTC).tasks
    return row


@pytest.mark.parametrize(("interruptions", "streak"), [(1, 0), (2, 1), (3, 2), (9, 2)])
def test_a_monitor_knows_of_a_run_that_a_crash_cut_short(interruptions: int, streak: int) -> None:
    """FORMAL A2, SPEC 3.7: its number, when it started, where it ran, and how many were cut short in a row before."""
    first = Obligation(Instant(5), Instant(0), 1)
    state = Interrupted(Minute(60), Instant(7), Instant(3), None, Instant(9), 0, interruptions, None, first)
    row = register_of(state, run=12, runs_on=RunsOn.THREAD)
    assert (row.run, row.run_generation, row.epoch, row.started) == (12, 4, 0, 7)
    assert (row.thread, row.run_on_thread, row.retry_at, row.streak) == (True, True, 9, streak)
    assert not row.unstarted
    assert not register_of(state, run=12).run_on_thread


def test_a_monitor_knows_that_a_task_which_waits_has_no_run() -> None:
    """FORMAL A2: whether it has ever started or not."""
    new = register_of(AwaitingRun(Minute(60), None, None, None), runs_on=RunsOn.THREAD)
    assert (new.run, new.run_generation, new.epoch, new.started, new.streak) == (None, -1, -1, 0, 0)
    assert (new.unstarted, new.thread, new.run_on_thread, new.retry_at) == (True, True, False, None)
    old = register_of(AwaitingRun(Minute(60), Instant(7), Instant(8), None))
    assert (old.run, old.started, old.unstarted, old.thread) == (None, 7, False, False)


def test_a_monitor_knows_what_a_removed_name_has_served() -> None:
    """SPEC 5.1: until it is declared again; from then on its own row says it."""
    task = Task(1, "a", parse_cron(HOURLY), Delay(0), AwaitingRun(Minute(0), None, None, None), quick, RunsOn.LOOP)
    marks = {"a": Mark(Minute(60), Instant(5)), "gone": Mark(Minute(120), Instant(5))}
    rows = registers_of({"a": task}, marks, {}, finish(read_registrations([])), UTC).tasks
    assert [(row.name, row.declared) for row in rows] == [("a", True), ("gone", False)]
    assert rows[1].served_before == 120_000_000


async def test_where_a_callback_runs_is_on_record_for_each_process_and_when_it_changes(tmp_path: Path) -> None:
    """FORMAL A1: it is not stored with the task, so a task that needs a thread is recorded again."""
    path = tmp_path / "state.db"

    def blocking() -> None:
        """A callback that needs a thread."""

    async with SimulatedHost("2024-05-01T12:30", "UTC") as host:
        for callbacks in ([(quick, blocking)], [(quick, blocking), (quick, blocking), (blocking, quick)]):
            scheduler = host.scheduler(path, trace=True)
            for one, other in callbacks:
                await scheduler.initialize([("a", HOURLY, one, DELAY), ("b", HOURLY, other, DELAY)])
            await scheduler.stop()
    rows = [json.loads(line) for line in exported(path).splitlines()]
    declared = [(row[3], row[5], row[-1]) for row in rows if isinstance(row, list) and row[0] == "RG"]
    assert declared == [
        *[("a", "new", "loop"), ("b", "new", "thread")],
        ("b", "preserved", "thread"),  # by the second process
        *[("a", "preserved", "thread"), ("b", "preserved", "loop")],  # by the third call of it
    ]


async def test_a_violation_is_reported_once_however_many_follow() -> None:
    """Each comes with the batch that it is in."""
    host = SimulatedHost("2024-05-01T12:30", "Europe/Berlin")

    async def be_forged() -> None:
        async with host:
            scheduler = host.scheduler()
            await scheduler.initialize([("a", HOURLY, quick, DELAY)])
            trace = engine_of(scheduler).trace
            assert trace is not None
            for number in (98, 99):
                trace.became_durable([("RS", host._clock.now(), "a", 1, number, "cron", 0)])

    with pytest.raises(AssertionError, match="at odds with its specification"):
        await be_forged()
    told = [(event.property, event.position) for event in host.events if isinstance(event, PropertyViolated)]
    assert len(told) == len(set(told))
    assert {position for _, position in told} == {5, 6}


@pytest.mark.parametrize(("most", "taken"), [(9, True), (8, False)])
async def test_a_text_of_the_most_characters_is_taken(monkeypatch: pytest.MonkeyPatch, most: int, taken: bool) -> None:
    """docs/formal.md: readers refuse a longer one, and not this one."""
    monkeypatch.setattr("duly.engine.trace.CRON_CHARACTERS_MAX", most)
    assert len(HOURLY) == 9
    async with SimulatedHost("2024-05-01T12:30", "UTC") as host:
        scheduler = host.scheduler(monitor=True)
        if taken:
            await scheduler.initialize([("a", HOURLY, quick, DELAY)])
        else:
            with pytest.raises(duly.DulyError, match="at most 8 characters"):
                await scheduler.initialize([("a", HOURLY, quick, DELAY)])
