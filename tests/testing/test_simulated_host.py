"""The simulated host: time passes when told, the process dies when told, and all else is the real thing."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import uvloop

import duly
from duly.events import (
    ClockJumped,
    Event,
    PollCompleted,
    PollStarted,
    SchedulerStopped,
    TaskInterrupted,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunOverdue,
    TaskRunStarted,
)
from duly.stores import SqliteStore
from duly.testing import SimulatedHost
from duly.testing import host as simulated
from tests.spec.helpers import (
    CallbackError,
    Script,
    fail,
    fails,
    history,
    started,
    starts,
    stored,
    succeed,
    succeeds,
    told,
)

BERLIN = ZoneInfo("Europe/Berlin")
DELAY = timedelta(seconds=30)


def minutely(callback: Callable[[], object], name: str = "task") -> tuple[str, str, Callable[[], object], timedelta]:
    return name, "* * * * *", callback, DELAY


# --- where and when --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2024-06-01T12:00", "2024-06-01T12:00:00+02:00"),
        ("2024-06-01 12:00:07.5", "2024-06-01T12:00:07.500000+02:00"),
        ("2024-06-01", "2024-06-01T00:00:00+02:00"),
        ("2024-06-01T12:00Z", "2024-06-01T14:00:00+02:00"),
        ("2024-06-01T12:00-05:00", "2024-06-01T19:00:00+02:00"),
        (datetime(2024, 6, 1, 12), "2024-06-01T12:00:00+02:00"),
        (datetime(2024, 6, 1, 12, tzinfo=UTC), "2024-06-01T14:00:00+02:00"),
        (datetime(2024, 10, 27, 2, 30), "2024-10-27T02:30:00+02:00"),
        (datetime(2024, 10, 27, 2, 30, fold=1), "2024-10-27T02:30:00+01:00"),
    ],
)
@pytest.mark.parametrize("tz", ["Europe/Berlin", BERLIN])
def test_the_host_begins_at_a_moment_in_a_zone(at: str | datetime, expected: str, tz: str | ZoneInfo) -> None:
    """`at` is ISO text or datetime, naive meaning in `tz`, a zone name or ZoneInfo."""
    host = SimulatedHost(at, tz)
    assert host.now.isoformat() == expected
    assert host.now.tzinfo == BERLIN


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("2024-06-01T13:00", "13:00:00"),
        ("2024-06-01T11:30:15Z", "13:30:15"),
        (datetime(2024, 6, 1, 13), "13:00:00"),
        (datetime(2024, 6, 1, 13, tzinfo=timezone(timedelta(hours=1))), "14:00:00"),
    ],
)
async def test_moments_are_read_alike_everywhere(when: str | datetime, expected: str) -> None:
    """Every `when` like `at`."""
    async with SimulatedHost("2024-06-01T12:00", "Europe/Berlin") as host:
        await host.advance_to(when)
        assert host.now.time().isoformat() == expected
        await host.set_clock("2024-06-01T00:00")
        await host.set_clock(when)
        assert host.now.time().isoformat() == expected


async def test_the_scheduler_lives_in_the_zone_of_the_host() -> None:
    """SPEC 2.1: host clock, host zone."""
    async with SimulatedHost("2024-06-01T10:00Z", "America/New_York") as host:
        await host.scheduler().initialize([("task", "30 6 * * *", succeed, DELAY)])
        await host.advance(hours=24)
        assert [when.isoformat() for when in started(host)] == ["2024-06-01T06:30:00-04:00"]


async def test_a_new_host_settles_at_once_and_has_no_events() -> None:
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.advance()
        assert host.events == []
        await host.advance(days=1000)
        assert host.now == datetime(2027, 2, 26, 12, tzinfo=UTC)


# --- its scheduler ---------------------------------------------------------------------------------------------------


async def test_the_scheduler_is_the_real_one() -> None:
    """It drives the real scheduler and the real SQLite store."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        assert type(host.scheduler()) is duly.Scheduler


async def test_the_store_is_a_real_file_that_outlives_the_host(tmp_path: Path) -> None:
    """`store`; the disk keeps what was durable."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        await host.scheduler().initialize([minutely(succeed)])
        await host.advance(minutes=2)
    assert len(history(path)) == 3
    async with SimulatedHost("2024-06-01T13:00", "UTC", str(path)) as host:
        await host.scheduler().initialize([minutely(succeed)])
        await host.advance()
        assert starts(host) == ["13:00:00"]
    assert len(history(path)) == 4


async def test_a_store_of_ones_own_can_be_given(tmp_path: Path) -> None:
    """`store` is a path or a Store."""
    store = SqliteStore(tmp_path / "state.db")
    async with SimulatedHost("2024-06-01T12:00", "UTC", store) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([minutely(succeed)])
        await scheduler.stop()
    assert stored(tmp_path / "state.db")["cron"] == "* * * * *"


async def test_without_a_store_the_disk_is_gone_with_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`store=None`; nothing is left behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([minutely(succeed)])
        (folder,) = os.listdir(tmp_path)
        assert "duly.db" in os.listdir(tmp_path / folder)
    assert os.listdir(tmp_path) == []


async def test_what_lives_in_memory_dies_with_its_process() -> None:
    """Also ":memory:"."""
    async with SimulatedHost("2024-06-01T12:00:30", "UTC", ":memory:") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", succeed, DELAY)])
        await host.advance()
        assert len(started(host)) == 1
        await host.crash()
        await host.scheduler().initialize([("task", "0 12 * * *", succeed, DELAY)])
        await host.advance()
        assert len(started(host)) == 2, "nothing is known of the first run"


async def test_two_schedulers_on_two_stores_share_the_host(tmp_path: Path) -> None:
    """Two schedulers on two stores in one process."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler(tmp_path / "a.db").initialize([minutely(succeed, "a")])
        await host.scheduler(tmp_path / "b.db").initialize([minutely(succeed, "b")])
        await host.advance(minutes=2)
        assert starts(host, "a") == starts(host, "b") == ["12:00:00", "12:01:00", "12:02:00"]


async def test_two_schedulers_on_one_disk_are_refused() -> None:
    """SPEC 5.7: the default store of a host is one store."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([])
        with pytest.raises(duly.StoreLockedError):
            await host.scheduler().initialize([])


async def test_options_are_those_of_a_scheduler() -> None:
    """`host.scheduler(**options)`."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        callbacks = [Script(host, succeeds(after=10)) for _ in range(3)]
        scheduler = host.scheduler(max_concurrency=1, history=2, run_timeout=timedelta(seconds=20))
        await scheduler.initialize([minutely(callback, f"t{n}") for n, callback in enumerate(callbacks)])
        await host.advance(seconds=30)
        assert [when.second for event in range(3) for when in started(host, f"t{event}")] == [0, 10, 20]


async def test_listeners_hear_every_event_polls_included() -> None:
    """`on_event`; `host.events` leaves out the two that each poll makes."""
    heard: list[Event] = []
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler(on_event=heard.append).initialize([minutely(succeed)])
        await host.advance(minutes=1)
        polls = {PollStarted, PollCompleted}
        assert polls <= {type(event) for event in heard}
        assert [event for event in heard if type(event) not in polls] == host.events


async def coroutine_listener(event: Event) -> None:
    """No listener: it would have to be awaited."""


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"clock": object()}, TypeError, "clock"),
        ({"on_event": 5}, TypeError, "on_event"),
        ({"on_event": coroutine_listener}, TypeError, "on_event"),
        ({"max_concurrency": 0}, ValueError, "max_concurrency"),
        ({"history": "many"}, TypeError, "history"),
        ({"interrupted": "maybe"}, ValueError, "interrupted"),
        ({"colour": "red"}, TypeError, "colour"),
        ({"store": 5}, TypeError, "store"),
    ],
)
async def test_wrong_options_are_refused_as_by_a_scheduler(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Wrong arguments get a clear TypeError/ValueError at construction."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        with pytest.raises(error, match=text):
            host.scheduler(**options)


# --- time passes -----------------------------------------------------------------------------------------------------


async def test_everything_due_runs_at_its_own_instant() -> None:
    """Time passes, everything due runs and settles at its own instant."""
    seen: list[tuple[str, str]] = []
    async with SimulatedHost("2024-06-01T12:00:20", "UTC") as host:

        def noting(name: str) -> Callable[[], Awaitable[None]]:
            async def note() -> None:
                seen.append((name, host.now.time().isoformat()))

            return note

        await host.scheduler().initialize(
            [minutely(noting("often"), "often"), ("seldom", "2,4 12 * * *", noting("seldom"), DELAY)]
        )
        await host.advance(minutes=4)
        assert [time for _, time in seen] == sorted(time for _, time in seen)
        assert sorted(seen, key=lambda each: (each[1], each[0])) == [
            ("often", "12:00:20"),
            ("often", "12:01:00"),
            ("often", "12:02:00"),
            ("seldom", "12:02:00"),
            ("often", "12:03:00"),
            ("often", "12:04:00"),
            ("seldom", "12:04:00"),
        ]
        assert host.now.time().isoformat() == "12:04:20"


@pytest.mark.parametrize(
    "duration",
    [
        {"weeks": 1},
        {"days": 1},
        {"hours": 1},
        {"minutes": 1},
        {"seconds": 1.5},
        {"milliseconds": 7},
        {"microseconds": 1},
        {"hours": 2, "minutes": -30},
        {},
    ],
)
async def test_durations_are_the_keywords_of_timedelta(duration: dict[str, float]) -> None:
    """`advance` and `jump` take timedelta's keywords."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        begun = host.now
        await host.advance(**duration)
        assert host.now - begun == timedelta(**duration)
        await host.jump(**duration)
        assert host.now - begun == 2 * timedelta(**duration)


async def test_a_start_on_the_last_instant_of_an_advance_belongs_to_it() -> None:
    """`advance_to`: settled means that nothing of the scheduler is ready."""
    async with SimulatedHost("2024-06-01T12:00:30", "UTC") as host:
        await host.scheduler().initialize([("task", "1,2 12 * * *", succeed, DELAY)])
        await host.advance_to("2024-06-01T12:01")
        assert [type(event) for event in host.events[-2:]] == [TaskRunStarted, TaskRunCompleted]
        await host.advance_to("2024-06-01T12:01:59.999999")
        assert len(started(host)) == 1
        await host.advance(microseconds=1)
        assert len(started(host)) == 2


async def test_small_steps_and_one_large_one_come_to_the_same(tmp_path: Path) -> None:
    """Time passes only through the clock seam, whichever call moves it."""

    async def story(*steps: float) -> list[dict[str, Any]]:
        async with SimulatedHost("2024-06-01T12:00:10", "UTC") as host:
            callback = Script(host, fails(after=7.5), succeeds(after=70), fails(), succeeds())
            await host.scheduler().initialize([minutely(callback)])
            for step in steps:
                await host.advance(seconds=step)
            return [event.fields for event in host.events]

    assert await story(600) == await story(*[0.5] * 1200) == await story(0.1, 59.9, 0, 500, 40)


async def test_advancing_by_nothing_settles() -> None:
    """`advance()` of nothing just settles. SPEC 3.8: the first evaluation follows initialize at once."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([minutely(succeed)])
        assert started(host) == []
        await host.advance()
        assert len(told(host, TaskRunCompleted)) == 1
        assert host.now.time().isoformat() == "12:00:00"


async def test_retries_come_with_sub_second_timing() -> None:
    """SPEC 3.4: the host stops at every instant that somebody waits for."""
    async with SimulatedHost("2024-06-01T12:00:00.250", "UTC") as host:
        callback = Script(host, fails(after=1.125), succeeds())
        await host.scheduler().initialize([("task", "0 12 * * *", callback, timedelta(milliseconds=1500))])
        await host.advance(minutes=1)
        assert starts(host) == ["12:00:00.250000", "12:00:02.875000"]


async def test_daylight_saving_time_is_that_of_the_zone() -> None:
    """SPEC 2.2, 2.3: skipped and repeated hours on the host's clock."""
    async with SimulatedHost("2024-03-31T01:50", "Europe/Berlin") as host:
        await host.scheduler().initialize([("task", "30 1,2,3 * * *", succeed, DELAY)])
        await host.advance_to("2024-03-31T03:45")
        assert host.now.isoformat() == "2024-03-31T03:45:00+02:00"
        assert starts(host) == ["03:30:00"]


# --- leaps and steps -------------------------------------------------------------------------------------------------


async def test_a_jump_is_one_leap() -> None:
    """Suspend or forward step, then settle. SPEC 3.2: what was missed is served once."""
    async with SimulatedHost("2024-06-01T12:00:30", "UTC") as host:
        await host.scheduler().initialize([minutely(succeed)])
        await host.advance()
        await host.jump(hours=8)
        assert starts(host) == ["12:00:30", "20:00:30"]
        assert told(host, ClockJumped) == [], "time did pass"


async def test_simulated_work_ends_at_the_target_of_a_leap() -> None:
    """A leap lets it end at the leap's target."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", Script(host, succeeds(after=60)), DELAY)])
        await host.advance(seconds=1)
        await host.jump(hours=1)
        (completed,) = told(host, TaskRunCompleted)
        assert completed.duration == 3_601_000


async def test_a_retry_ripens_in_a_leap() -> None:
    """SPEC 2.1: suspended time counts."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", Script(host, fails(), succeeds()), DELAY)])
        await host.advance()
        await host.jump(minutes=20)
        assert starts(host) == ["12:00:00", "12:20:00"]


@pytest.mark.parametrize(("when", "jump_ms"), [("2024-06-01T11:30:30", -1_800_000), ("2024-06-01T12:30:30", 1_800_000)])
async def test_setting_the_clock_moves_wall_time_only(when: str, jump_ms: int) -> None:
    """Set_clock moves wall time only; SPEC 2.4: noticed within a minute."""
    async with SimulatedHost("2024-06-01T12:00:30", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", Script(host, succeeds(after=90)), DELAY)])
        await host.advance()
        await host.set_clock(when)
        assert host.now == datetime.fromisoformat(when).replace(tzinfo=UTC)
        assert told(host, TaskRunCompleted) == [], "work is measured in elapsed time"
        await host.advance(seconds=60)
        (jumped,) = told(host, ClockJumped)
        assert jumped.jump_ms == jump_ms
        await host.advance(seconds=30)
        (completed,) = told(host, TaskRunCompleted)
        assert completed.duration == 90_000


async def test_no_time_passes_when_the_clock_is_set() -> None:
    """Any step, also back; the loop sleeps on until its next look."""
    async with SimulatedHost("2024-06-01T12:00:30", "UTC") as host:
        await host.scheduler().initialize([("task", "45 12 * * *", succeed, DELAY)])
        await host.advance()
        await host.set_clock("2024-06-01T12:50")
        assert started(host) == []
        await host.advance(seconds=29.999)
        assert started(host) == []
        await host.advance(seconds=0.001)
        assert starts(host) == ["12:50:30"]


# --- work ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, 0.001, 12.5, 59, 7_200])
async def test_simulated_work_takes_simulated_time(seconds: float) -> None:
    """For callbacks."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", Script(host, succeeds(after=seconds)), DELAY)])
        await host.advance(hours=3)
        (completed,) = told(host, TaskRunCompleted)
        assert completed.duration == seconds * 1000


@pytest.mark.parametrize("max_concurrency", [None, 1])
@pytest.mark.parametrize("kind", ["on the loop", "in a thread"])
async def test_work_that_crosses_a_due_minute_is_overdue(max_concurrency: int | None, kind: str) -> None:
    """SPEC 3.3: the minute is owed when the run ends, and starts then; TaskRunOverdue, also when no slot is free."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        script = Script(host, succeeds(after=90), succeeds())

        def hands_it_back() -> Awaitable[None]:
            return script()

        callback = script if kind == "on the loop" else hands_it_back
        await host.scheduler(max_concurrency=max_concurrency).initialize([minutely(callback)])
        await host.advance(minutes=2)
        assert starts(host) == ["12:00:00", "12:01:30", "12:02:00"]
        (overdue,) = told(host, TaskRunOverdue)
        assert overdue.due_time.time().isoformat() == "12:01:00"


async def test_a_callback_that_waits_for_something_else_counts_as_running() -> None:
    """A callback that waits for anything but `host.sleep` simply counts as still running."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        released = asyncio.Event()
        await host.scheduler().initialize([("task", "0 12 * * *", released.wait, DELAY)])
        await host.advance(hours=1)
        assert len(started(host)) == 1
        assert told(host, TaskRunCompleted) == []
        released.set()
        await host.advance()
        (completed,) = told(host, TaskRunCompleted)
        assert completed.duration == 3_600_000


async def test_callbacks_may_use_tasks_of_their_own() -> None:
    """Everything settles at its own instant, however a callback goes about its work."""

    async def in_parts() -> None:
        async with asyncio.TaskGroup() as group:
            for seconds in (1, 2, 3):
                group.create_task(host.sleep(seconds))
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(5)))

    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([minutely(in_parts)])
        await host.advance(minutes=5)
        assert {event.duration for event in told(host, TaskRunCompleted)} == {3_000}
        assert len(started(host)) == 6


async def test_a_callback_that_takes_many_rounds_of_the_loop_ends_when_it_has_had_them() -> None:
    """It counts as still running meanwhile; settling gives it rounds, and no time passes."""

    async def busy() -> None:
        for _ in range(200):
            await asyncio.sleep(0)

    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([minutely(busy)])
        for _ in range(100):
            await host.advance()
        (completed,) = told(host, TaskRunCompleted)
        assert completed.duration == 0


async def test_blocking_callbacks_run_inline_without_threads() -> None:
    """Store calls and blocking callbacks run inline, without threads."""
    before, where = threading.active_count(), set()

    def blocking() -> None:
        where.add((threading.get_ident(), threading.active_count()))

    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([minutely(blocking)])
        await host.advance(minutes=2)
        assert len(told(host, TaskRunCompleted)) == 3
        await scheduler.stop()
    assert where == {(threading.get_ident(), before)}


async def test_what_a_blocking_callback_hands_back_is_awaited() -> None:
    """SPEC 1.3: an awaitable it returns is awaited on the loop."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", lambda: host.sleep(5), DELAY)])
        await host.advance(minutes=1)
        (completed,) = told(host, TaskRunCompleted)
        assert completed.duration == 5_000


async def test_blocking_callbacks_fail_as_others_do() -> None:
    """SPEC 3.11: a callback that raises anything has failed."""

    def blocking() -> None:
        raise SystemExit("not here")

    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", blocking, DELAY)])
        await host.advance(seconds=31)
        assert starts(host) == ["12:00:00", "12:00:30"]
        assert isinstance(told(host, TaskRunFailed)[0].exception, SystemExit)


async def test_the_scheduler_stops_on_the_host() -> None:
    """SPEC 4.3: stop waits for running callbacks, while the host lets time pass."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([minutely(Script(host, succeeds(after=20)))])
        await host.advance(seconds=5)
        stopping = asyncio.create_task(scheduler.stop())
        await host.advance(seconds=14)
        assert not stopping.done()
        await host.advance(seconds=1)
        assert stopping.done()
        assert type(host.events[-1]) is SchedulerStopped
        await host.advance(hours=1)
        assert len(started(host)) == 1
        await scheduler.initialize([minutely(succeed)])
        await host.advance()
        assert len(started(host)) == 2


# --- death -----------------------------------------------------------------------------------------------------------


async def test_in_a_crash_running_callbacks_vanish_and_nothing_more_is_recorded(tmp_path: Path) -> None:
    """The disk keeps what was durable, and that is the start."""
    path = tmp_path / "state.db"
    finished: list[datetime] = []

    async def works() -> None:
        await host.sleep(30)
        finished.append(host.now)

    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        await host.scheduler().initialize([("task", "0 12 * * *", works, DELAY)])
        await host.advance(seconds=10)
        before = list(host.events)
        await host.crash()
        await host.advance(hours=1)
        assert finished == []
        assert host.events == before
        record = stored(path)
        assert (record["run"], record["last_success_at"], record["last_failure_at"]) == (1, None, None)
        assert history(path) == []


async def test_after_a_crash_a_new_process_finds_the_interrupted_run() -> None:
    """SPEC 3.7: owed again, and starts at once after the next initialize."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        registrations = [("task", "0 12 * * *", Script(host, succeeds(after=30)), DELAY)]
        await host.scheduler().initialize(registrations)
        await host.advance(seconds=10)
        await host.crash()
        await host.advance(seconds=5)
        await host.scheduler().initialize(registrations)
        await host.advance(minutes=1)
        (interrupted,) = told(host, TaskInterrupted)
        assert interrupted.started_at.time().isoformat() == "12:00:00"
        assert starts(host) == ["12:00:00", "12:00:15"]
        assert len(told(host, TaskRunCompleted)) == 1


async def test_a_crash_between_runs_loses_nothing() -> None:
    """SPEC 3.1: occurrences after the registration are owed, also across a restart."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([minutely(succeed)])
        await host.advance(minutes=1)
        await host.crash()
        await host.advance(minutes=10)
        await host.scheduler().initialize([minutely(succeed)])
        await host.advance()
        assert starts(host) == ["12:00:00", "12:01:00", "12:11:00"]
        assert told(host, TaskInterrupted) == []


async def test_a_dead_scheduler_says_so() -> None:
    """Errors in its use are explained."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([])
        await host.crash()
        with pytest.raises(RuntimeError, match=r"host\.crash\(\).*host\.scheduler\(\)"):
            await scheduler.initialize([])
        with pytest.raises(RuntimeError, match="died"):
            await scheduler.stop()


async def test_a_crash_of_nothing_is_nothing() -> None:
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.crash()
        host.scheduler()  # never initialised
        await host.crash()
        await host.scheduler().initialize([minutely(succeed)])
        await host.advance()
        assert len(started(host)) == 1


async def test_a_callback_can_kill_its_process() -> None:
    """SPEC 3.7: one task that kills the process cannot make a crash loop."""

    async def kills() -> None:
        await host.crash()

    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        for _ in range(3):
            await host.scheduler().initialize([("task", "0 12 * * *", kills, DELAY)])
            await host.advance(seconds=1)
        assert starts(host) == ["12:00:00", "12:00:01"]
        await host.advance(seconds=57)
        assert len(starts(host)) == 2
        await host.advance(seconds=1)
        assert starts(host)[2:] == ["12:01:01"]


async def test_a_callback_that_resists_its_end_is_not_waited_for(tmp_path: Path) -> None:
    """The process dies now; no outcome is made up (000 S6b)."""
    release = asyncio.Event()

    async def resists() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    path = tmp_path / "state.db"
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        await host.scheduler().initialize([("task", "0 12 * * *", resists, DELAY)])
        await host.advance()
        await host.crash()
        release.set()
        await host.advance(minutes=1)
        assert told(host, TaskRunCompleted) == []
        assert stored(path)["run"] == 1


async def test_a_crash_takes_a_call_in_progress_with_it(tmp_path: Path) -> None:
    """SPEC 4.3: initialize is all or nothing, in a crash too."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as host:
        for rounds in range(12):
            call = asyncio.create_task(host.scheduler().initialize([minutely(succeed, f"t{rounds}")]))
            for _ in range(rounds):
                await asyncio.sleep(0)
            await host.crash()
            await asyncio.wait([call])
            await host.advance(minutes=1)
            assert call.cancelled() or call.exception() is None or "died" in str(call.exception())
            if path.exists():
                with closing(sqlite3.connect(path)) as connection:
                    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        await host.scheduler().initialize([minutely(succeed)])
        await host.advance()
        assert len(started(host)) == 1


async def test_a_crash_takes_a_stop_in_progress_with_it() -> None:
    """Nothing more is recorded."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("task", "0 12 * * *", Script(host, succeeds(after=30)), DELAY)])
        await host.advance(seconds=1)
        stopping = asyncio.create_task(scheduler.stop())
        await host.advance(seconds=1)
        await host.crash()
        await asyncio.wait([stopping])
        assert stopping.cancelled()
        assert told(host, SchedulerStopped) == []


async def test_every_scheduler_of_the_host_dies(tmp_path: Path) -> None:
    """The process dies, and that is all of it."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        for name in ("a", "b"):
            await host.scheduler(tmp_path / name).initialize([minutely(succeed, name)])
        await host.advance()
        await host.crash()
        await host.advance(minutes=5)
        assert len(started(host, "a")) == len(started(host, "b")) == 1


async def test_leaving_the_host_leaves_nothing_behind() -> None:
    """No threads or tasks left."""
    threads = threading.active_count()
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize(
            [minutely(Script(host, succeeds(after=1_000))), minutely(asyncio.Event().wait, "w")]
        )
        await host.advance(minutes=1)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert threading.active_count() == threads


async def test_an_error_in_the_test_comes_through() -> None:
    """The context manager hides nothing."""

    async def goes_wrong() -> None:
        async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
            await host.scheduler().initialize([minutely(succeed)])
            await fail()

    with pytest.raises(CallbackError):
        await goes_wrong()


# --- the same script, the same story ---------------------------------------------------------------------------------


async def eventful_day(store: Path) -> list[tuple[str, dict[str, Any]]]:
    """A script with everything in it: failures, threads, slots, leaps, steps, deaths, new declarations."""
    async with SimulatedHost("2024-10-26T20:00:07", "Europe/Berlin", store) as host:

        async def flaky() -> None:
            await host.sleep(host.now.minute * 1.5)
            if host.now.minute % 4:
                raise CallbackError(f"at {host.now}")

        def blocking() -> None:
            if host.now.minute % 20 == 0 and host.now.second < 3:
                raise CallbackError(f"at {host.now}")

        def registrations(extra: str) -> list[tuple[str, str, Callable[[], object], timedelta]]:
            return [
                ("flaky", "0-20 * * * *", flaky, timedelta(seconds=45)),
                ("blocking", "0,10,20,30,40,50 * * * *", blocking, timedelta(0)),
                ("slow", "15,45 * * * *", Script(host, succeeds(after=2_000)), timedelta(hours=1)),
                *((f"many{n}", "0 * * * *", succeed, DELAY) for n in range(20)),
                (extra, "30 2 * * *", fail, timedelta(minutes=7)),
            ]

        scheduler = host.scheduler(max_concurrency=5, run_timeout=timedelta(minutes=20))
        await scheduler.initialize(registrations("night"))
        await host.advance(hours=3)
        await host.crash()
        await host.advance(minutes=17)
        scheduler = host.scheduler(max_concurrency=5, interrupted="wait")
        await scheduler.initialize(registrations("night"))
        await host.advance(hours=3)
        await host.jump(hours=2)
        await scheduler.initialize(registrations("another"))
        await host.set_clock("2024-10-27T01:00")
        await host.advance(hours=4)
        stopping = asyncio.create_task(scheduler.stop())
        await host.advance(hours=1)
        await stopping
        return [(event.name, event.fields) for event in host.events]


def contents(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


async def test_the_same_script_gives_the_same_story_and_the_same_store(tmp_path: Path) -> None:
    """Deterministic, byte for byte."""
    first = await eventful_day(tmp_path / "first.db")
    second = await eventful_day(tmp_path / "second.db")
    assert first == second
    assert contents(tmp_path / "first.db") == contents(tmp_path / "second.db")
    assert (tmp_path / "first.db").read_bytes() == (tmp_path / "second.db").read_bytes()
    assert len({name for name, _ in first}) > 15, "an eventful day"


def test_every_event_loop_tells_the_same_story(tmp_path: Path) -> None:
    """The host works in any running loop, on uvloop too."""
    with asyncio.Runner() as stock:
        first = stock.run(eventful_day(tmp_path / "first.db"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as fast:
        second = fast.run(eventful_day(tmp_path / "second.db"))
    assert first == second
    assert contents(tmp_path / "first.db") == contents(tmp_path / "second.db")


async def test_the_application_around_it_does_not_matter(tmp_path: Path) -> None:
    """Inside an existing application, whose tasks are always ready."""
    alone = await eventful_day(tmp_path / "first.db")

    async def busy() -> None:
        while True:  # noqa: ASYNC110 - always ready, which is the point
            await asyncio.sleep(0)

    others = [asyncio.create_task(busy()) for _ in range(3)]
    among_others = await eventful_day(tmp_path / "second.db")
    for other in others:
        other.cancel()
    await asyncio.wait(others)
    assert among_others == alone


async def test_two_hosts_have_two_times() -> None:
    """Time passes only through the clock seam."""
    async with (
        SimulatedHost("2024-06-01T12:00", "UTC") as first,
        SimulatedHost("2030-01-01T00:00", "Asia/Tokyo") as second,
    ):
        await first.scheduler().initialize([minutely(succeed)])
        await second.scheduler().initialize([minutely(succeed)])
        await first.advance(minutes=3)
        await second.advance()
        assert (len(started(first)), len(started(second))) == (4, 1)


async def test_identifiers_are_counted_not_drawn(tmp_path: Path) -> None:
    """SPEC 5.4: one per scheduler; on this host chance is simulated, too."""
    async with SimulatedHost("2024-06-01T12:00", "UTC", tmp_path / "state.db") as host:
        for _ in range(2):
            await host.scheduler().initialize([])
            await host.crash()
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        found = [row[0] for row in connection.execute("SELECT identifier FROM schedulers ORDER BY key")]
    assert [int(identifier, 16) for identifier in found] == [1, 2]


# --- long times ------------------------------------------------------------------------------------------------------


async def quiet_days(store: Path, *, idle_looks: bool, limit: timedelta | None = None) -> list[Event]:
    """A script with much time between what happens in it."""
    async with SimulatedHost("2024-10-26T22:00:07", "Europe/Berlin", store, idle_looks=idle_looks) as host:

        async def flaky() -> None:
            await host.sleep(host.now.hour * 60)
            if host.now.hour % 3 and host.now.minute < 40:
                raise CallbackError(f"at {host.now}")

        await host.scheduler(run_timeout=limit).initialize(
            [
                ("flaky", "7 * * * *", flaky, timedelta(seconds=90)),
                ("night", "30 2 * * *", Script(host, fails(), succeeds()), timedelta(hours=5)),
                ("rare", "0 0 29 2 *", succeed, DELAY),
            ]
        )
        await host.advance(hours=10)
        await host.jump(minutes=100)
        await host.advance(hours=10)
        await host.crash()
        await host.scheduler().initialize([("night", "30 2 * * *", succeed, timedelta(hours=5))])
        await host.advance(days=3)
        return host.events


async def test_looks_that_find_nothing_can_be_left_out(tmp_path: Path) -> None:
    """`idle_looks=False`: the story, and the store, are the same with and without them."""
    with_them = await quiet_days(tmp_path / "with.db", idle_looks=True)
    without = await quiet_days(tmp_path / "without.db", idle_looks=False)
    assert [(event.name, event.fields) for event in without] == [(event.name, event.fields) for event in with_them]
    assert contents(tmp_path / "without.db") == contents(tmp_path / "with.db")


async def test_time_limits_hold_without_idle_looks(tmp_path: Path) -> None:
    """SPEC 3.10: run_timeout; by the microsecond a look comes earlier or later, what happens is the same."""
    limit = timedelta(minutes=11)
    with_them = await quiet_days(tmp_path / "with.db", idle_looks=True, limit=limit)
    without = await quiet_days(tmp_path / "without.db", idle_looks=False, limit=limit)
    assert [event.name for event in without] == [event.name for event in with_them]
    failures = [event for event in without if isinstance(event, TaskRunFailed) and "run_timeout" in event.error]
    assert len(failures) > 10
    assert {round(event.duration) for event in failures} == {660_000}


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("2024-03-30T00:00", "2024-04-01T23:59:59", 3 * 96 - 4),  # 02:00 to 03:00 is skipped
        ("2024-10-26T00:00", "2024-10-28T23:59:59", 3 * 96),  # 02:00 to 03:00 comes twice, and counts once
    ],
)
async def test_every_quarter_of_an_hour_round_a_change_of_the_clocks(first: str, last: str, expected: int) -> None:
    """SPEC 2.2, 2.3: on days of 23 and of 25 hours."""
    async with SimulatedHost(first, "Europe/Berlin") as host:
        await host.scheduler().initialize([("task", "0,15,30,45 * * * *", succeed, DELAY)])
        await host.advance_to(last)
        assert len(told(host, TaskRunCompleted)) == expected


@pytest.mark.slow
async def test_a_year_of_a_task_every_quarter_of_an_hour() -> None:
    """A simulated year. SPEC 2.2, 2.3: 366 days of 96 quarters, but for the hour that was skipped."""
    runs = 0

    async def count() -> None:
        nonlocal runs
        runs += 1

    async with SimulatedHost("2024-01-01T00:00", "Europe/Berlin", idle_looks=False) as host:
        await host.scheduler(history=10).initialize([("task", "0,15,30,45 * * * *", count, DELAY)])
        await host.advance_to("2024-12-31T23:59:59")
        assert runs == 366 * 96 - 4
        assert len(told(host, TaskRunCompleted)) == runs
        walls = [event.scheduled_time.replace(tzinfo=None) for event in told(host, TaskRunStarted)]
        assert len(set(walls)) == runs, "no minute of the wall clock twice"
        assert all(event.scheduled_time == event.actual_time for event in told(host, TaskRunStarted))


# --- wrong use -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("noon", "UTC"), ValueError, "ISO 8601.*noon"),
        (("2024-06-01T25:00", "UTC"), ValueError, "ISO 8601"),
        ((date(2024, 6, 1), "UTC"), TypeError, "datetime.*date"),
        ((1_717_243_200, "UTC"), TypeError, "datetime.*int"),
        (("2024-06-01T12:00", "Mars/Olympus"), ValueError, "time zone.*Mars/Olympus"),
        (("2024-06-01T12:00", "../etc/passwd"), ValueError, "time zone"),
        (("2024-06-01T12:00", ""), ValueError, "time zone"),
        (("2024-06-01T12:00", 2), TypeError, "zone.*int"),
        (("2024-06-01T12:00", None), TypeError, "zone.*NoneType"),
    ],
)
def test_a_host_that_cannot_be_is_explained(arguments: tuple[Any, Any], error: type[Exception], text: str) -> None:
    """Errors in its use are explained."""
    with pytest.raises(error, match=text):
        SimulatedHost(*arguments)


@pytest.mark.parametrize(
    "use",
    [
        lambda host: host.advance(minutes=1),
        lambda host: host.advance_to("2024-06-01T13:00"),
        lambda host: host.jump(hours=1),
        lambda host: host.set_clock("2024-06-01T13:00"),
        lambda host: host.sleep(1),
    ],
    ids=["advance", "advance_to", "jump", "set_clock", "sleep"],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_host_outside_its_context_says_how_it_is_used(
    use: Callable[[SimulatedHost], Awaitable[None]], when: str
) -> None:
    """An async context manager; otherwise time would stand still for ever."""
    host = SimulatedHost("2024-06-01T12:00", "UTC")
    if when == "after":
        async with host:
            pass
    with pytest.raises(RuntimeError, match="async with SimulatedHost"):
        await asyncio.wait_for(use(host), 5)


def test_a_scheduler_outside_the_context_says_how_the_host_is_used() -> None:
    with pytest.raises(RuntimeError, match="async with SimulatedHost"):
        SimulatedHost("2024-06-01T12:00", "UTC").scheduler()


async def test_wrong_durations_are_explained() -> None:
    """Errors in its use are explained."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        for verb in (host.advance, host.jump):
            with pytest.raises(TypeError, match="minutes=5"):
                await verb(fortnights=1)
            with pytest.raises(TypeError, match="minutes=5"):
                await verb(minutes="5")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="set_clock"):
                await verb(seconds=-1)
        assert host.now == datetime(2024, 6, 1, 12, tzinfo=UTC)


async def test_the_past_is_explained() -> None:
    """Time passes forward; set_clock moves it back."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        with pytest.raises(ValueError, match="set_clock"):
            await host.advance_to("2024-06-01T11:59")
        with pytest.raises(ValueError, match="ISO 8601"):
            await host.set_clock("later")
        with pytest.raises(TypeError, match="datetime"):
            await host.advance_to(5)  # type: ignore[arg-type]


async def test_a_callback_that_would_pass_time_itself_is_told_to_sleep() -> None:
    """Errors in its use are explained; work that takes time is `host.sleep`."""

    async def passes_time() -> None:
        await host.advance(seconds=90)

    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("task", "0 12 * * *", passes_time, timedelta(hours=1))])
        await host.advance(minutes=5)
        assert host.now.time().isoformat() == "12:05:00"
        (failed,) = told(host, TaskRunFailed)
        assert "host.sleep()" in failed.error


async def test_time_passes_for_one_at_a_time() -> None:
    """Errors in its use are explained; two that pass time at once would not know when it is."""
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([minutely(succeed)])
        first, second = await asyncio.gather(
            host.advance(minutes=5), host.advance_to("2024-06-01T12:03"), return_exceptions=True
        )
        assert first is None
        assert isinstance(second, RuntimeError)
        assert host.now.time().isoformat() == "12:05:00"
        await host.advance(minutes=1)


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan")])
async def test_work_takes_no_negative_time(seconds: float) -> None:
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        with pytest.raises(ValueError, match="not negative"):
            await host.sleep(seconds)


async def test_a_callback_that_never_lets_time_pass_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors in its use are explained; the test does not hang."""
    monkeypatch.setattr(simulated, "_ROUNDS_MAX", 1_000)

    async def spins() -> None:
        while True:
            await host.sleep(0)

    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([minutely(spins)])
        with pytest.raises(RuntimeError, match="does not settle"):
            await host.advance()
