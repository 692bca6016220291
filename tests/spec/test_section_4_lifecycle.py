"""SPEC 4: the lifecycle. States and transitions, calls that overlap, stopping, empty lists, failures, faults."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.events import (
    Event,
    PollingStarted,
    PollingStopped,
    PollStarted,
    SchedulerInitializationCompleted,
    SchedulerInitializationFailed,
    SchedulerInitializationStarted,
    SchedulerReinitializationCompleted,
    SchedulerReinitializationFailed,
    SchedulerReinitializationStarted,
    SchedulerStopped,
    SchedulerStopRequested,
    StoreFault,
    StoreRecovered,
    TaskAdded,
    TaskInterrupted,
    TaskOrphaned,
    TaskOverridden,
    TaskPreserved,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunStarted,
)
from duly.testing import SimulatedHost
from tests.spec.helpers import told
from tests.spec.workload import DELAY, HOURLY, MINUTELY, NEVER_TODAY, RestlessClock, Workload, outcome, sequence
from tests.stores.helpers import (
    contents,
    create_empty,
    everything,
    files_in,
    full_disk,
    history,
    stored_state,
    stored_tasks,
)

LIFECYCLE = (
    SchedulerInitializationStarted,
    SchedulerInitializationCompleted,
    SchedulerInitializationFailed,
    SchedulerReinitializationStarted,
    SchedulerReinitializationCompleted,
    SchedulerReinitializationFailed,
    SchedulerStopRequested,
    SchedulerStopped,
)


def begin(call: Any) -> "asyncio.Task[None]":
    """A call under way in a task of its own."""
    return asyncio.get_running_loop().create_task(call)


async def rounds(count: int) -> None:
    """Let the event loop go round, without any time passing."""
    for _ in range(count):
        await asyncio.sleep(0)


async def nothing() -> None:
    """Work that is done at once."""


# --- 4.1 states and transitions --------------------------------------------------------------------------------------


async def test_the_states_follow_each_other_and_each_transition_is_told(host: SimulatedHost, work: Workload) -> None:
    """SPEC 4.1, 000 Scheduler Lifecycle: initialised, re-initialised, stopped, and all of it again."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a")])
    await scheduler.initialize([work.task("a"), work.task("b")])
    with pytest.raises(duly.RegistrationsNotArrayError):
        await scheduler.initialize({})  # type: ignore[arg-type]
    await scheduler.stop()
    with pytest.raises(duly.RegistrationShapeError):
        await scheduler.initialize([()])
    await scheduler.initialize([work.task("a"), work.task("b")])
    await scheduler.stop()
    assert sequence(host, *LIFECYCLE) == [
        "SchedulerInitializationStarted",
        "SchedulerInitializationCompleted",
        "SchedulerReinitializationStarted",
        "SchedulerReinitializationCompleted",
        "SchedulerReinitializationFailed",
        "SchedulerStopRequested",
        "SchedulerStopped",
        "SchedulerInitializationFailed",
        "SchedulerInitializationStarted",
        "SchedulerInitializationCompleted",
        "SchedulerStopRequested",
        "SchedulerStopped",
    ]


async def test_a_further_initialize_puts_the_new_registrations_in_the_place_of_the_old(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.1: `initialize` on a running scheduler re-initialises."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("kept", HOURLY), work.task("dropped", HOURLY)])
    await host.advance_to("2024-01-01T13:00")
    await scheduler.initialize([work.task("kept", HOURLY), work.task("fresh", HOURLY)])
    await host.advance_to("2024-01-01T14:00")
    assert work.starts("kept") == ["13:00:00", "14:00:00"]
    assert work.starts("dropped") == ["13:00:00"]
    # New in a minute that matches: its first start-up runs at once (SPEC 3.1), then at the next hour.
    assert work.starts("fresh") == ["13:00:00", "14:00:00"]
    assert set(stored_tasks(store)) == {"kept", "fresh"}


def _bad_cron(work: Workload) -> list[Any]:
    return [work.task("new"), work.task("bad", "61 * * * *")]


BAD_REGISTRATIONS: dict[str, tuple[Callable[[Workload], Any], type[duly.DulyError]]] = {
    "no list": (lambda work: "registrations", duly.RegistrationsNotArrayError),
    "shape": (lambda work: [work.task("new"), ("bad",)], duly.RegistrationShapeError),
    "name": (lambda work: [work.task("new"), work.task("")], duly.InvalidRegistrationError),
    "duplicate": (lambda work: [work.task("new"), work.task("new")], duly.ScheduleDuplicateTaskError),
    "cron": (_bad_cron, duly.CronExpressionInvalidError),
    "delay": (
        lambda work: [work.task("new"), work.task("bad", delay=timedelta(seconds=-1))],
        duly.NegativeRetryDelayError,
    ),
}


@pytest.mark.parametrize("kind", BAD_REGISTRATIONS)
async def test_a_refused_reinitialisation_leaves_the_old_registrations_running_untouched(
    host: SimulatedHost, work: Workload, store: Path, kind: str
) -> None:
    """SPEC 4.1: when re-initialisation fails the old registrations keep running untouched."""
    registrations, error = BAD_REGISTRATIONS[kind]
    scheduler = host.scheduler()
    await scheduler.initialize(
        [work.task("long", takes=90), work.task("failing", fails=True, delay=timedelta(seconds=100)), work.task("c")]
    )
    await host.advance(seconds=10)  # `long` runs, `failing` waits for its retry at 12:02:10
    before = everything(store)
    with pytest.raises(error):
        await scheduler.initialize(registrations(work))
    assert everything(store) == before
    assert sequence(host, SchedulerReinitializationStarted, SchedulerReinitializationFailed) == [
        "SchedulerReinitializationFailed"
    ]
    failed = told(host, SchedulerReinitializationFailed)[0]
    assert failed.error_type == error.__name__
    assert failed.error
    await host.advance_to("2024-01-01T12:02:40")
    assert work.starts("long") == ["12:00:30", "12:02:00"]  # the minute that fell due meanwhile is served at its end
    assert work.starts("failing") == ["12:00:30", "12:01:00", "12:02:00"]
    assert work.starts("c") == ["12:00:30", "12:01:00", "12:02:00"]
    assert work.starts("new") == []


async def test_a_reinitialisation_whose_transaction_fails_leaves_the_old_registrations_running_untouched(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.1, 5.2: the previous state stands, in the store and in force, and the pending retry with it."""
    scheduler = host.scheduler()
    await scheduler.initialize(
        [work.task("long", takes=100), work.task("failing", HOURLY, fails=True), work.task("c", HOURLY)]
    )
    await host.advance_to("2024-01-01T13:00:01")
    before = everything(store)
    with full_disk(), pytest.raises(duly.ScheduleTaskError):
        await scheduler.initialize([work.task("long", HOURLY, label="other"), work.task("new")])
    assert everything(store) == before
    assert sequence(host, TaskOverridden, TaskOrphaned) == []
    assert told(host, SchedulerReinitializationFailed)[0].error_type == "ScheduleTaskError"
    await host.advance_to("2024-01-01T13:06")
    assert work.starts("failing") == ["13:00:00", "13:05:00"]
    assert work.starts("new") == work.starts("other") == []
    await scheduler.initialize([work.task("long", HOURLY, label="other"), work.task("new", HOURLY)])
    assert stored_tasks(store) == {"long": (HOURLY, 300_000), "new": (HOURLY, 300_000)}


async def test_after_stop_a_new_initialize_goes_on_where_the_store_stands(host: SimulatedHost, work: Workload) -> None:
    """SPEC 4.1: after `stop` a new `initialize` is legal; what fell due in between is owed once (SPEC 3.2)."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "10,20,30,40,50 * * * *")])
    await host.advance_to("2024-01-01T12:10:30")
    await scheduler.stop()
    await host.advance_to("2024-01-01T12:45")
    assert work.starts("a") == ["12:10:00"]
    await scheduler.initialize([work.task("a", "10,20,30,40,50 * * * *")])
    await host.advance_to("2024-01-01T12:51")
    assert work.starts("a") == ["12:10:00", "12:45:00", "12:50:00"]
    assert len(told(host, TaskPreserved)) == 1


async def test_a_scheduler_can_be_started_and_stopped_again_and_again(host: SimulatedHost, work: Workload) -> None:
    """SPEC 4.1: the way from stopped back to uninitialised has no limit."""
    scheduler = host.scheduler()
    for _ in range(20):
        await scheduler.initialize([work.task("a")])
        await host.advance(minutes=1)
        await scheduler.stop()
    assert work.starts("a") == ["12:00:30", *(f"12:{minute:02}:00" for minute in range(1, 21))]


# --- 4.2 concurrent initialize calls ---------------------------------------------------------------------------------


async def test_concurrent_initialize_calls_take_effect_in_call_order(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.2: concurrent `initialize` calls are allowed and take effect one after the other, in call order."""
    scheduler = host.scheduler()
    calls = [begin(scheduler.initialize([work.task(f"t{index}", HOURLY)])) for index in range(6)]
    await asyncio.gather(*calls)
    assert [event.task_name for event in told(host, TaskAdded)] == [f"t{index}" for index in range(6)]
    assert [event.task_name for event in told(host, TaskOrphaned)] == [f"t{index}" for index in range(5)]
    assert set(stored_tasks(store)) == {"t5"}
    assert sequence(host, *LIFECYCLE)[:4] == [
        "SchedulerInitializationStarted",
        "SchedulerInitializationCompleted",
        "SchedulerReinitializationStarted",
        "SchedulerReinitializationCompleted",
    ]
    await host.advance_to("2024-01-01T13:00")
    assert [label for label, _ in work.begun] == ["t5"]


async def test_an_initialize_that_fails_between_others_changes_nothing_for_them(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.2: each call takes effect, or fails, for itself."""
    scheduler = host.scheduler()
    calls = [
        begin(scheduler.initialize(registrations))
        for registrations in (
            _bad_cron(work),
            [work.task("first", HOURLY)],
            [()],
            [work.task("second", HOURLY)],
            _bad_cron(work),
        )
    ]
    await asyncio.wait(calls)
    assert [type(outcome(call)) for call in calls] == [
        duly.CronExpressionInvalidError,
        str,
        duly.RegistrationShapeError,
        str,
        duly.CronExpressionInvalidError,
    ]
    assert set(stored_tasks(store)) == {"second"}


async def test_a_long_list_takes_effect_before_a_short_one_that_was_declared_after_it(store: Path) -> None:
    """SPEC 4.2: the order is that of the calls, not of how long they take."""
    scheduler = duly.Scheduler(store, clock=RestlessClock())
    long = [(f"t{index}", NEVER_TODAY, nothing, DELAY) for index in range(2_000)]
    calls = [begin(scheduler.initialize(long)), begin(scheduler.initialize([("short", NEVER_TODAY, nothing, DELAY)]))]
    await asyncio.gather(*calls)
    assert set(stored_tasks(store)) == {"short"}
    await scheduler.stop()


async def test_an_initialize_called_while_a_stop_waits_takes_effect_after_that_stop(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.2: called while a stop is waiting, it takes effect after that stop."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("old", takes=20)])
    await host.advance(seconds=5)
    stopping = begin(scheduler.stop())
    await rounds(5)
    coming = begin(scheduler.initialize([work.task("new")]))
    await host.advance(seconds=10)
    assert outcome(stopping) == outcome(coming) == "pending"
    assert set(stored_tasks(store)) == {"old"}
    await host.advance(seconds=10)
    assert outcome(stopping) == outcome(coming) == "returned"
    assert sequence(host, *LIFECYCLE)[2:] == [
        "SchedulerStopRequested",
        "SchedulerStopped",
        "SchedulerInitializationStarted",
        "SchedulerInitializationCompleted",
    ]
    assert work.ends("old") == ["12:00:50"]
    assert work.starts("new") == ["12:00:50"]


@pytest.mark.parametrize("spawned", [False, True], ids=["itself", "a task it spawned"])
async def test_initialize_inside_a_callback_that_a_stop_waits_for_says_so_instead_of_deadlocking(
    host: SimulatedHost, work: Workload, store: Path, spawned: bool
) -> None:
    """SPEC 4.2: from inside a callback, where waiting for the stop would deadlock: `SchedulerStoppingError`."""
    scheduler = host.scheduler()
    errors: list[BaseException] = []

    async def reconfigure() -> None:
        await host.sleep(10)
        call = scheduler.initialize([work.task("new")])
        try:
            await (asyncio.ensure_future(call) if spawned else call)
        except duly.DulyError as error:
            errors.append(error)

    await scheduler.initialize([("self", MINUTELY, reconfigure, DELAY)])
    await host.advance(seconds=5)
    stopping = begin(scheduler.stop())
    await host.advance(seconds=10)
    assert outcome(stopping) == "returned"
    assert [type(error) for error in errors] == [duly.SchedulerStoppingError]
    assert isinstance(errors[0], duly.DulyError)
    assert errors[0].details["taskName"] == "self"
    assert "outside" in errors[0].details["hint"]
    assert set(stored_tasks(store)) == {"self"}


async def test_a_task_spawned_by_a_run_that_has_ended_waits_for_the_stop_as_anybody_would(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.2, 4.3: *inside* means in the context of a run that has not ended."""
    scheduler = host.scheduler()
    spawned: list[asyncio.Task[None]] = []

    async def later() -> None:
        await host.sleep(10)
        await scheduler.initialize([work.task("new", HOURLY)])

    async def spawn() -> None:
        spawned.append(begin(later()))

    await scheduler.initialize([("spawning", HOURLY, spawn, DELAY), work.task("long", takes=20)])
    await host.advance_to("2024-01-01T13:00:01")
    stopping = begin(scheduler.stop())
    await host.advance(seconds=12)
    assert outcome(stopping) == outcome(spawned[0]) == "pending"
    await host.advance(seconds=10)
    assert outcome(stopping) == outcome(spawned[0]) == "returned"
    assert set(stored_tasks(store)) == {"new"}


async def test_a_callback_may_reinitialise_its_own_scheduler_and_even_remove_itself(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.2: only a waiting stop forbids it; the run goes on, and its end is recorded (SPEC 5.3)."""
    scheduler = host.scheduler()

    async def reconfigure() -> None:
        await scheduler.initialize([work.task("next")])
        await host.sleep(5)

    await scheduler.initialize([("first", MINUTELY, reconfigure, DELAY)])
    await host.advance(seconds=40)
    assert set(stored_tasks(store)) == {"next"}
    assert [event.task_name for event in told(host, TaskRunCompleted)] == ["next", "first", "next"]
    assert work.starts("next") == ["12:00:30", "12:01:00"]


async def test_the_same_registrations_again_change_nothing(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 4.2: the same registrations again change nothing: no row, no byte, no event of a change, no start."""
    scheduler = host.scheduler()
    registrations = [
        work.task("a"),
        work.task("failing", HOURLY, fails=True, delay=timedelta(hours=2)),
        work.task("long", HOURLY, takes=3600),
    ]
    await scheduler.initialize(registrations)
    await host.advance_to("2024-01-01T13:00:30")
    before, files = everything(store), contents(store)
    told_before = len(host.events)
    for _ in range(3):
        await scheduler.initialize(registrations)
    await host.advance(seconds=20)
    assert everything(store) == before
    assert contents(store) == files
    kinds = {event.name for event in host.events[told_before:]}
    assert kinds == {
        "SchedulerReinitializationStarted",
        "SchedulerReinitializationCompleted",
        "TaskPreserved",
        "TaskSkipped",
    }
    completed = told(host, SchedulerReinitializationCompleted)
    assert [(each.total_registrations, each.scheduled_count, each.skipped_count) for each in completed] == [
        (3, 0, 3)
    ] * 3
    await host.advance_to("2024-01-01T15:00:10")
    assert work.starts("failing") == ["13:00:00", "14:00:00", "15:00:00"]
    assert work.starts("long") == ["13:00:00", "14:00:00", "15:00:00"]


async def test_the_newest_callbacks_are_used_from_the_next_start_on(host: SimulatedHost, work: Workload) -> None:
    """SPEC 4.2: … except that the newest callbacks are used from the next start on, even by a retry."""
    scheduler = host.scheduler()
    delay = timedelta(seconds=20)
    await scheduler.initialize(
        [
            work.task("running", label="running 1", takes=20),
            work.task("failing", HOURLY, label="failing 1", fails=True, delay=delay),
        ]
    )
    await host.advance_to("2024-01-01T13:00:10")
    await scheduler.initialize(
        [
            work.task("running", label="running 2", takes=20),
            work.task("failing", HOURLY, label="failing 2", delay=delay),
        ]
    )
    await host.advance_to("2024-01-01T13:01:10")
    assert work.starts("running 1")[-1] == "13:00:00"
    assert work.ends("running 1")[-1] == "13:00:20"
    assert work.starts("running 2") == ["13:01:00"]
    assert work.starts("failing 1") == ["13:00:00"]
    assert work.starts("failing 2") == ["13:00:20"]


async def test_the_newest_callback_may_be_of_the_other_kind(host: SimulatedHost, work: Workload) -> None:
    """SPEC 4.2, 1.3: a coroutine function in the place of a blocking one, and back, from the next start on."""
    scheduler = host.scheduler()
    blocking: list[str] = []

    def block() -> None:
        blocking.append(work.clock())

    await scheduler.initialize([("a", MINUTELY, block, DELAY), ("b", MINUTELY, work.callback("b"), DELAY)])
    await host.advance(minutes=1)
    await scheduler.initialize([("a", MINUTELY, work.callback("a"), DELAY), ("b", MINUTELY, block, DELAY)])
    await host.advance(minutes=1)
    await scheduler.initialize([("a", MINUTELY, block, DELAY), ("b", MINUTELY, work.callback("b"), DELAY)])
    await host.advance(minutes=1)
    assert blocking == ["12:00:30", "12:01:00", "12:02:00", "12:03:00"]
    assert work.starts("a") == ["12:02:00"]
    assert work.starts("b") == ["12:00:30", "12:01:00", "12:03:00"]


# --- 4.3 stop --------------------------------------------------------------------------------------------------------


async def test_stop_waits_for_an_initialize_in_progress_and_nothing_of_it_starts(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.3: stop waits for an `initialize` in progress; nothing starts, even when the overtaken one completes."""
    scheduler = host.scheduler()
    coming = begin(scheduler.initialize([work.task("due now")]))
    await rounds(1)
    stopping = begin(scheduler.stop())
    await host.advance(minutes=3)
    assert outcome(coming) == outcome(stopping) == "returned"
    assert set(stored_tasks(store)) == {"due now"}
    assert work.begun == []
    assert sequence(host, *LIFECYCLE) == [
        "SchedulerInitializationStarted",
        "SchedulerInitializationCompleted",
        "SchedulerStopRequested",
        "SchedulerStopped",
    ]


async def test_the_error_of_an_initialize_in_progress_is_not_that_of_the_stop(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.3: … succeeding or failing: its error is not stop's."""
    scheduler = host.scheduler()
    failing, stopping = begin(scheduler.initialize(_bad_cron(work))), begin(scheduler.stop())
    await asyncio.wait([failing, stopping])
    assert isinstance(outcome(failing), duly.CronExpressionInvalidError)
    assert outcome(stopping) == "returned"
    await scheduler.initialize([work.task("a", HOURLY)])
    with full_disk():
        failing, stopping = begin(scheduler.initialize([work.task("b")])), begin(scheduler.stop())
        await asyncio.wait([failing])
    await asyncio.wait([stopping])
    assert isinstance(outcome(failing), duly.ScheduleTaskError)
    assert outcome(stopping) == "returned"
    assert set(stored_tasks(store)) == {"a"}


async def test_stop_returns_when_all_running_callbacks_have_ended_and_their_ends_are_recorded(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.3: stop waits for all running callbacks, whose ends are recorded, failures with their retries."""
    scheduler = host.scheduler()
    await scheduler.initialize(
        [work.task("short", takes=5), work.task("failing", takes=10, fails=True), work.task("long", takes=20)]
    )
    await host.advance(seconds=1)
    stopping = begin(scheduler.stop())
    await host.advance(seconds=18)
    assert outcome(stopping) == "pending"
    assert work.alive["long"] == 1
    await host.advance(seconds=1)
    assert outcome(stopping) == "returned"
    assert history(store) == [
        ("short", "cron", "success"),
        ("failing", "cron", "failure"),
        ("long", "cron", "success"),
    ]
    assert [stored_state(store, name)["run"] for name in ("short", "failing", "long")] == [None, None, None]
    failing = stored_state(store, "failing")
    assert failing["pending_retry_until"] == failing["last_failure_at"] + 300 * 1_000_000
    assert sequence(host, TaskRunCompleted, TaskRunFailed, SchedulerStopped) == [
        "TaskRunCompleted",
        "TaskRunFailed",
        "TaskRunCompleted",
        "SchedulerStopped",
    ]


async def test_concurrent_stops_all_return_when_the_last_callback_has_ended(
    host: SimulatedHost, work: Workload
) -> None:
    """SPEC 4.3: concurrent stops all return then."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("long", takes=20)])
    await host.advance(seconds=1)
    stops = [begin(scheduler.stop())]
    await host.advance(seconds=5)
    stops += [begin(scheduler.stop()) for _ in range(3)]
    await host.advance(seconds=13)
    assert [outcome(each) for each in stops] == ["pending"] * 4
    await host.advance(seconds=1)
    assert [outcome(each) for each in stops] == ["returned"] * 4
    assert sequence(host, SchedulerStopRequested, SchedulerStopped) == ["SchedulerStopRequested", "SchedulerStopped"]


async def test_stop_on_an_uninitialised_scheduler_returns_and_leaves_no_trace(
    host: SimulatedHost, work: Workload, tmp_path: Path
) -> None:
    """SPEC 4.3: on an uninitialised scheduler it returns; so does a second one."""
    scheduler = host.scheduler()
    await scheduler.stop()
    await scheduler.stop()
    assert files_in(tmp_path) == set()
    assert host.events == []
    await scheduler.initialize([work.task("a")])
    await scheduler.stop()
    told_before = len(host.events)
    await scheduler.stop()
    assert len(host.events) == told_before


async def test_nothing_that_falls_due_while_stop_waits_is_started(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.3: nothing starts after it was called: no due minute, no ripe retry, no catch-up after a long run."""
    scheduler = host.scheduler()
    await scheduler.initialize(
        [
            work.task("long", takes=200),
            work.task("minutely"),
            work.task("retrying", "0 12 * * *", fails=True, delay=timedelta(seconds=50)),
        ]
    )
    await host.advance(seconds=10)
    begun = list(work.begun)
    stopping = begin(scheduler.stop())
    await host.advance(minutes=10)
    assert outcome(stopping) == "returned"
    assert work.begun == begun
    assert work.ends("long") == ["12:03:50"]
    # Owed and not forgotten: each of them starts once after the next initialize().
    await scheduler.initialize(
        [
            work.task("long", takes=200),
            work.task("minutely"),
            work.task("retrying", "0 12 * * *", delay=timedelta(seconds=50)),
        ]
    )
    await host.advance()
    assert work.starts("long")[-1] == work.starts("minutely")[-1] == work.clock()
    assert work.starts("retrying")[1:] == ([work.clock()] if work.starts("retrying")[:1] else [])


async def test_open_stops_are_counted_per_call(host: SimulatedHost, work: Workload) -> None:
    """SPEC 4.3: stop, initialize, stop: the initialize takes effect between them, and nothing starts."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("long", HOURLY, takes=90), work.task("other", HOURLY)])
    await host.advance_to("2024-01-01T13:00:30")
    calls = [
        begin(scheduler.stop()),
        begin(scheduler.initialize([work.task("due now")])),
        begin(scheduler.stop()),
        begin(scheduler.initialize([work.task("due now, too")])),
        begin(scheduler.stop()),
    ]
    await host.advance(minutes=10)
    assert [outcome(call) for call in calls] == ["returned"] * 5
    assert work.starts("due now") == work.starts("due now, too") == []
    stopped = ["SchedulerStopRequested", "SchedulerStopped"]
    initialised = ["SchedulerInitializationStarted", "SchedulerInitializationCompleted"]
    assert sequence(host, *LIFECYCLE)[2:] == [*stopped, *initialised, *stopped, *initialised, *stopped]


async def test_a_start_whose_commit_had_begun_before_stop_may_run_and_is_waited_for(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.3: such a start may still enter its callback, counts as running, and stop waits for it."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "1 * * * *", takes=10), work.task("b", "1 * * * *", takes=30)])
    await host.advance(seconds=29)
    with full_disk():
        await host.advance(seconds=1.05)  # 12:01: the commit of both starts is under way, and fails
        stopping = begin(scheduler.stop())
        await host.advance(seconds=1)
        assert work.begun == []
    await host.advance(seconds=20)
    assert [label for label, _ in work.begun] == ["a", "b"]
    assert outcome(stopping) == "pending"
    await host.advance(seconds=20)
    assert outcome(stopping) == "returned"
    assert history(store) == [("a", "cron", "success"), ("b", "cron", "success")]


async def test_stop_keeps_trying_for_thirty_seconds_to_store_ends_and_then_says_why_it_cannot(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.3: 30 s after the last callback ended it releases thread, file and lock and raises `StopSchedulerError`
    with the store's fault as cause; those runs are interrupted at the next start."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("early", takes=5), work.task("late", takes=20)])
    await host.advance(seconds=1)
    with full_disk():
        stopping = begin(scheduler.stop())
        await host.advance(seconds=19)
        assert work.ends("late") == ["12:00:50"]
        await host.advance(seconds=29)
        assert outcome(stopping) == "pending"
        await host.advance(seconds=2)
        error = outcome(stopping)
    assert isinstance(error, duly.StopSchedulerError)
    assert isinstance(error.__cause__, duly.StoreError)
    assert error.details["cause"] is error.__cause__
    assert str(error).startswith("Failed to stop scheduler: ")
    assert "interrupted" in error.details["hint"]
    successor = host.scheduler()  # the lock is free, the file is sound
    await successor.initialize([work.task("early", label="early again"), work.task("late", label="late again")])
    await host.advance()
    assert {event.task_name for event in told(host, TaskInterrupted)} == {"early", "late"}
    assert work.starts("early again") == work.starts("late again") == ["12:01:21"]


async def test_a_stop_whose_ends_can_be_stored_again_in_time_returns(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.3: stop keeps trying; a store that recovers within 30 s loses nothing."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", takes=5), work.task("failing", takes=10, fails=True)])
    await host.advance(seconds=1)
    with full_disk():
        stopping = begin(scheduler.stop())
        await host.advance(seconds=35)
        assert outcome(stopping) == "pending"
    await host.advance(seconds=3)
    assert outcome(stopping) == "returned"
    assert sequence(host, StoreFault, StoreRecovered, SchedulerStopped) == [
        "StoreFault",
        "StoreRecovered",
        "SchedulerStopped",
    ]
    assert sorted(history(store)) == [("a", "cron", "success"), ("failing", "cron", "failure")]


async def test_the_thirty_seconds_begin_when_the_last_callback_has_ended(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.3: a callback that takes its time is waited for, however long the store has been failing."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("early", takes=5), work.task("late", takes=300)])
    await host.advance(seconds=1)
    with full_disk():
        stopping = begin(scheduler.stop())
        await host.advance(seconds=310)
        assert work.ends("late") == ["12:05:30"]
        assert outcome(stopping) == "pending"
    await host.advance(seconds=10)
    assert outcome(stopping) == "returned"
    assert history(store) == [("early", "cron", "success"), ("late", "cron", "success")]


async def test_stop_ends_also_when_it_is_a_start_that_cannot_be_stored(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """002 L2: stop terminates. Nothing has begun, so nothing is interrupted, and the start is owed as before."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "1 12 * * *")])
    await host.advance(seconds=29)
    with full_disk():
        await host.advance(seconds=2)
        stopping = begin(scheduler.stop())
        await host.advance(seconds=40)
        ended = outcome(stopping)
    assert ended == "returned" or isinstance(ended, duly.StopSchedulerError)
    assert work.begun == []
    successor = host.scheduler()
    await successor.initialize([work.task("a", "1 12 * * *")])
    await host.advance()
    assert len(work.begun) == 1
    assert told(host, TaskInterrupted) == []


@pytest.mark.parametrize("after", range(16))
async def test_a_cancelled_first_initialize_has_all_of_its_effect_or_none(
    host: SimulatedHost, work: Workload, store: Path, after: int
) -> None:
    """SPEC 4.3: cancelling the awaiting task: `initialize` is all or nothing, wherever the cancellation falls."""
    scheduler = host.scheduler()
    call = begin(scheduler.initialize([work.task("a"), work.task("b")]))
    await rounds(after)
    call.cancel()
    await asyncio.wait([call])
    await host.advance()
    if store.name in files_in(store.parent):
        assert set(stored_tasks(store)) == {"a", "b"}
        assert sorted(work.begun) == [("a", "12:00:30"), ("b", "12:00:30")]
        await host.advance(minutes=1)
        assert work.starts("a") == ["12:00:30", "12:01:00"]
    else:
        assert outcome(call) == "cancelled"
        await host.advance(minutes=1)
        assert work.begun == []
        await scheduler.initialize([work.task("a"), work.task("b")])  # and nothing of it stands in the way
    await scheduler.stop()


@pytest.mark.parametrize("after", range(16))
async def test_a_cancelled_reinitialisation_has_all_of_its_effect_or_none(
    host: SimulatedHost, work: Workload, store: Path, after: int
) -> None:
    """SPEC 4.3: on a running scheduler, the old registrations or the new ones are in force, never a mixture."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", HOURLY), work.task("b", HOURLY)])
    call = begin(scheduler.initialize([work.task("b", MINUTELY), work.task("c", HOURLY)]))
    await rounds(after)
    call.cancel()
    await asyncio.wait([call])
    await host.advance_to("2024-01-01T13:00")
    names = {label for label, when in work.begun if when == "13:00:00"}
    assert names == set(stored_tasks(store))
    assert names in ({"a", "b"}, {"b", "c"})
    assert stored_tasks(store)["b"][0] == (MINUTELY if names == {"b", "c"} else HOURLY)
    await scheduler.stop()


async def test_a_cancelled_initialize_that_waits_behind_a_stop_has_no_effect(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.3: cancelled before its turn it leaves the order of the other calls as it was."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("old", takes=20)])
    await host.advance(seconds=1)
    stopping = begin(scheduler.stop())
    waiting = begin(scheduler.initialize([work.task("cancelled")]))
    last = begin(scheduler.initialize([work.task("last")]))
    await rounds(5)
    waiting.cancel()
    await rounds(20)
    assert outcome(waiting) == "cancelled"
    assert outcome(stopping) == outcome(last) == "pending"  # those behind it still wait for the stop
    await host.advance(seconds=20)
    assert outcome(stopping) == outcome(last) == "returned"
    assert set(stored_tasks(store)) == {"last"}
    assert "cancelled" not in {event.task_name for event in told(host, TaskAdded)}


async def test_a_cancelled_stop_goes_on_without_its_caller(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 4.3: a stop goes on without its caller."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", takes=20)])
    await host.advance(seconds=1)
    stopping = begin(scheduler.stop())
    await rounds(3)
    stopping.cancel()
    await asyncio.wait([stopping])
    assert outcome(stopping) == "cancelled"
    second = begin(scheduler.stop())
    await rounds(5)
    assert outcome(second) == "pending"
    await host.advance(minutes=5)
    assert outcome(second) == "returned"
    assert work.starts("a") == ["12:00:30"]
    assert work.ends("a") == ["12:00:50"]
    assert history(store) == [("a", "cron", "success")]
    assert sequence(host, SchedulerStopRequested, SchedulerStopped) == ["SchedulerStopRequested", "SchedulerStopped"]


def _directly(stop: Callable[[], Awaitable[None]]) -> Awaitable[None]:
    return stop()


def _in_a_task(stop: Callable[[], Awaitable[None]]) -> Awaitable[None]:
    return asyncio.ensure_future(stop())


async def _with_a_timeout(stop: Callable[[], Awaitable[None]]) -> None:
    await asyncio.wait_for(stop(), 30)


async def _two_tasks_deep(stop: Callable[[], Awaitable[None]]) -> None:
    async def inner() -> None:
        await asyncio.ensure_future(stop())

    await asyncio.gather(asyncio.ensure_future(inner()))


@pytest.mark.parametrize("how", [_directly, _in_a_task, _with_a_timeout, _two_tasks_deep])
async def test_stop_inside_a_callback_raises_and_the_scheduler_goes_on(
    host: SimulatedHost, work: Workload, how: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
) -> None:
    """SPEC 4.3: awaited from inside a callback it raises instead of deadlocking; tasks it spawned are inside, too."""
    scheduler = host.scheduler()
    errors: list[duly.StopSchedulerError] = []

    async def suicidal() -> None:
        try:
            await how(scheduler.stop)
        except duly.StopSchedulerError as error:
            errors.append(error)

    await scheduler.initialize([("suicidal", MINUTELY, suicidal, DELAY), work.task("other")])
    await host.advance(minutes=2)
    assert len(errors) == 3
    assert all("set an event" in error.details["hint"] for error in errors)
    assert all("suicidal" in str(error) for error in errors)
    assert work.starts("other") == ["12:00:30", "12:01:00", "12:02:00"]
    assert sequence(host, SchedulerStopRequested) == []
    await scheduler.stop()


async def test_a_blocking_callback_that_hands_back_a_stop_is_inside_as_well(host: SimulatedHost) -> None:
    """SPEC 4.3, 1.3: what a blocking callback returns is awaited in the context of its run."""
    scheduler = host.scheduler()

    def hand_back() -> Awaitable[None]:
        return scheduler.stop()

    await scheduler.initialize([("blocking", HOURLY, hand_back, DELAY)])
    await host.advance_to("2024-01-01T13:00")
    assert "StopSchedulerError" in told(host, TaskRunFailed)[0].error
    await scheduler.stop()


async def test_a_task_spawned_by_a_run_that_has_ended_may_stop_the_scheduler(
    host: SimulatedHost, work: Workload
) -> None:
    """SPEC 4.3: *inside* means in the context of a run that has not ended."""
    scheduler = host.scheduler()
    spawned: list[asyncio.Task[None]] = []

    async def later() -> None:
        await host.sleep(5)
        await scheduler.stop()

    async def spawn() -> None:
        spawned.append(begin(later()))

    await scheduler.initialize([("spawning", MINUTELY, spawn, DELAY), work.task("long", takes=10)])
    await host.advance(seconds=8)
    assert outcome(spawned[0]) == "pending"  # `long` is still running
    await host.advance(seconds=2)
    assert outcome(spawned[0]) == "returned"


async def test_the_documented_way_out_of_a_callback_is_an_event(host: SimulatedHost, work: Workload) -> None:
    """SPEC 4.3: the hint says: set an event and stop from outside."""
    scheduler = host.scheduler()
    enough = asyncio.Event()

    async def last() -> None:
        enough.set()

    async def application() -> None:
        await scheduler.initialize([("last", MINUTELY, last, DELAY)])
        await enough.wait()
        await scheduler.stop()

    running = begin(application())
    await asyncio.wait_for(running, 30)
    assert sequence(host, SchedulerStopped) == ["SchedulerStopped"]


async def test_a_callback_may_stop_another_scheduler_but_not_one_inside_whose_run_it_was_started(
    host: SimulatedHost, work: Workload, tmp_path: Path
) -> None:
    """SPEC 4.3: what counts is whose run would wait for itself."""
    outer, other = host.scheduler(), host.scheduler(store=tmp_path / "other.db")
    inner = host.scheduler(store=tmp_path / "inner.db")
    errors: list[str] = []

    async def stop(scheduler: duly.Scheduler) -> None:
        try:
            await scheduler.stop()
        except duly.StopSchedulerError as error:
            errors.append(str(error))

    async def inside_both() -> None:
        await stop(inner)
        await stop(outer)
        await stop(other)

    async def start_inner() -> None:
        await inner.initialize([("inner task", MINUTELY, inside_both, DELAY)])
        await host.sleep(5)
        await inner.stop()

    await other.initialize([work.task("bystander")])
    await outer.initialize([("outer task", MINUTELY, start_inner, DELAY)])
    await host.advance(seconds=10)
    assert len(errors) == 2
    assert "inner task" in errors[0]
    assert "outer task" in errors[1]
    await host.advance(minutes=1)
    assert work.starts("bystander") == ["12:00:30"]
    await outer.stop()


# --- 4.4 the empty list ----------------------------------------------------------------------------------------------


async def test_an_empty_list_orphans_what_is_stored_and_the_scheduler_is_running(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.4: an empty list is legal: stored tasks become orphaned, no polling goes on, the scheduler is running."""
    polls: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, PollStarted):
            polls.append(work.clock())

    scheduler = host.scheduler(on_event=hear)
    await scheduler.initialize([work.task("a"), work.task("b")])
    await host.advance(minutes=2)
    assert polls
    await scheduler.initialize([])
    await host.advance()
    assert [event.task_name for event in told(host, TaskOrphaned)] == ["a", "b"]
    assert stored_tasks(store) == {}
    polls.clear()
    begun = len(work.begun)
    await host.advance(hours=2)
    assert polls == []
    assert len(work.begun) == begun
    assert sequence(host, PollingStarted, PollingStopped) == ["PollingStarted", "PollingStopped"]
    # It is running: this is a re-initialisation, and no other scheduler may have the store.
    with pytest.raises(duly.StoreLockedError):
        await host.scheduler().initialize([])
    await scheduler.initialize([work.task("c")])
    await host.advance(minutes=1)
    assert sequence(host, SchedulerReinitializationStarted) == ["SchedulerReinitializationStarted"] * 2
    assert polls
    assert work.starts("c") == ["14:02:30", "14:03:00"]
    await scheduler.stop()


async def test_an_empty_list_is_a_legal_first_one(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 4.4: also on a new store, and on one with tasks in it."""
    scheduler = host.scheduler()
    await scheduler.initialize([])
    assert stored_tasks(store) == {}
    assert sequence(host, *LIFECYCLE) == ["SchedulerInitializationStarted", "SchedulerInitializationCompleted"]
    await host.advance(minutes=1)
    await scheduler.initialize([work.task("a", HOURLY)])
    await scheduler.stop()
    successor = host.scheduler()
    await successor.initialize(())
    await host.advance(hours=3)
    assert work.begun == []
    assert [event.task_name for event in told(host, TaskOrphaned)] == ["a"]
    await successor.stop()


async def test_a_run_in_flight_outlives_the_empty_list_that_orphans_it(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.4, 5.3: it goes on, its end is in history, and stop waits for it."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("long", takes=120)])
    await host.advance(seconds=1)
    await scheduler.initialize([])
    stopping = begin(scheduler.stop())
    await host.advance(seconds=100)
    assert outcome(stopping) == "pending"
    await host.advance(seconds=20)
    assert outcome(stopping) == "returned"
    assert history(store) == [("long", "cron", "success")]


# --- 4.5 a first initialize that fails -------------------------------------------------------------------------------


@pytest.mark.parametrize("existing", ["none", "empty", "used"])
@pytest.mark.parametrize("kind", [*BAD_REGISTRATIONS, "mismatch", "transaction"])
async def test_a_first_initialize_that_fails_leads_back_to_uninitialised(
    host: SimulatedHost, work: Workload, store: Path, kind: str, existing: str
) -> None:
    """SPEC 4.5: any failure of the first `initialize`: uninitialised, store as before, resources released."""
    if existing == "empty":
        create_empty(store)
    elif existing == "used":
        earlier = host.scheduler()
        await earlier.initialize([work.task("earlier", HOURLY)])
        await earlier.stop()
    before = contents(store)
    fails = contextlib.nullcontext() if kind != "transaction" else full_disk()
    scheduler = host.scheduler(on_mismatch="refuse" if kind == "mismatch" else "override")
    registrations, error = BAD_REGISTRATIONS.get(kind, (lambda work: [work.task("new")], duly.ScheduleTaskError))
    if kind == "mismatch":
        if existing != "used":
            registrations, error = BAD_REGISTRATIONS["cron"]  # nothing is stored that could differ
        else:
            error = duly.TaskListMismatchError
    events_before = len(host.events)
    with fails, pytest.raises(error):
        await scheduler.initialize(registrations(work))
    assert contents(store) == before
    if existing != "used":
        assert files_in(store.parent) <= {store.name, f"{store.name}.lock"}
    assert host.events[-1].name == "SchedulerInitializationFailed"
    assert "SchedulerInitializationCompleted" not in [event.name for event in host.events[events_before:]]
    await host.advance(minutes=2)
    assert work.begun == []
    # Uninitialised: a stop has nothing to do, another scheduler may take the store, and so may this one again.
    await scheduler.stop()
    other = host.scheduler()
    await other.initialize([work.task("earlier", HOURLY)])
    await other.stop()
    await scheduler.initialize([work.task("earlier", HOURLY)])
    assert host.events[-1].name == "SchedulerInitializationCompleted"
    await scheduler.stop()


# --- 4.6 storage faults ----------------------------------------------------------------------------------------------


async def test_a_storage_fault_never_ends_the_loop(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 4.6: it is reported and retried; when the store is back, what is owed starts, once, and all goes on."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task(f"t{index}", "1 * * * *") for index in range(20)] + [work.task("minutely")])
    await host.advance(seconds=20)
    with full_disk():
        await host.advance(minutes=10)
        assert len(work.begun) == 1  # `minutely`, when there was no fault yet
    await host.advance(seconds=40)
    assert {label for label, _ in work.begun} == {f"t{index}" for index in range(20)} | {"minutely"}
    assert all(len(work.starts(f"t{index}")) == 1 for index in range(20))
    fault, recovered = told(host, StoreFault)[0], told(host, StoreRecovered)[0]
    assert (fault.operation, fault.error_type) == ("write", "StoreError")
    assert str(store) in fault.error
    assert fault.retry_in_ms > 0
    assert recovered.attempts > 1
    await host.advance_to("2024-01-01T12:15")
    assert work.starts("minutely")[-3:] == ["12:13:00", "12:14:00", "12:15:00"]


async def test_a_faulty_store_is_retried_with_backoff_and_found_again_within_half_a_minute(
    host: SimulatedHost, work: Workload
) -> None:
    """SPEC 4.6: retried with backoff: soon at first, seldom later, never so seldom that recovery takes long."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "1 12,13 * * *")])
    await host.advance(seconds=29)
    with full_disk():
        await host.advance(seconds=1.05)
    await host.advance(seconds=1)
    assert told(host, StoreRecovered)[0].attempts == 2  # a short fault costs a fraction of a second
    assert work.starts("a") == ["12:01:00"]
    await host.advance_to("2024-01-01T13:00:59")
    with full_disk():
        await host.advance(hours=1)
    await host.advance(seconds=30)
    assert len(work.starts("a")) == 2
    attempts = told(host, StoreRecovered)[1].attempts
    assert 3600 / 30 <= attempts < 200


async def test_a_task_whose_end_could_not_be_stored_stays_running_until_it_is(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.6: tasks whose end could not be stored stay running; the minute owed meanwhile is served then."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", takes=10), work.task("failing", takes=10, fails=[True], delay=DELAY)])
    await host.advance(seconds=5)
    with full_disk():
        await host.advance_to("2024-01-01T12:01:30")
        assert work.starts("a") == work.starts("failing") == ["12:00:30"]
        assert sequence(host, TaskRunCompleted, TaskRunFailed) == []  # it happened when it is durable
        assert stored_state(store, "a")["run"] is not None
    await host.advance(seconds=30)
    assert len(work.starts("a")) >= 2
    assert sequence(host, StoreRecovered, TaskRunCompleted, TaskRunFailed)[:3] == [
        "StoreRecovered",
        "TaskRunCompleted",
        "TaskRunFailed",
    ]
    # The end carries the instant at which it happened, not the one at which it could be stored (SPEC 3.9).
    ended = told(host, TaskRunFailed)[0]
    assert ended.next_retry_at is not None
    assert ended.next_retry_at.strftime("%H:%M:%S") == "12:05:40"
    assert next(entry for entry in history(store) if entry[0] == "failing") == ("failing", "cron", "failure")


async def test_an_end_that_waits_for_its_store_is_not_lost_to_a_reinitialisation(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.6, 5.2: nothing is forgotten when initialize() commits before the repeated write of an end does."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "0 12 * * *", takes=10)])
    await host.advance(seconds=9)
    with full_disk():
        await host.advance(seconds=1.05)
        assert sequence(host, StoreFault) == ["StoreFault"]
    await scheduler.initialize([work.task("a", "0 12 * * *", takes=10), work.task("b", "0 12 * * *", takes=10)])
    await host.advance(seconds=5)
    assert ("a", "cron", "success") in history(store)
    state = stored_state(store, "a")
    assert state["run"] is None
    assert state["last_success_at"] is not None
    await host.crash()
    successor = host.scheduler()
    await successor.initialize([work.task("a", "0 12 * * *"), work.task("b", "0 12 * * *")])
    assert [event.task_name for event in told(host, TaskInterrupted)] == ["b"]


async def test_a_reinitialisation_that_fails_beside_a_write_that_succeeds_is_not_taken_for_done(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.2: what initialize() returns from is in the store, whatever was written around it."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "0 12 * * *", takes=10)])
    await host.advance(seconds=9)
    with full_disk():
        await host.advance(seconds=1.05)
        failing = begin(scheduler.initialize([work.task("b")]))
        await asyncio.wait([failing])
    assert isinstance(outcome(failing), duly.ScheduleTaskError)
    await host.advance(seconds=5)
    assert set(stored_tasks(store)) == {"a"}
    assert history(store) == [("a", "cron", "success")]
    await scheduler.initialize([work.task("b", HOURLY)])
    assert set(stored_tasks(store)) == {"b"}


async def test_retries_and_due_minutes_of_a_long_fault_are_owed_after_it(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.6: nothing owed is forgotten, even when the process dies during the fault."""
    scheduler = host.scheduler()
    registrations = [
        work.task("retrying", "0 12 * * *", fails=[True], delay=timedelta(seconds=40)),
        work.task("due", "5 12 * * *"),
    ]
    await scheduler.initialize(registrations)
    await host.advance(seconds=10)
    with full_disk():
        await host.advance(minutes=20)
        assert work.begun == [("retrying", "12:00:30")] or work.begun == []
        await host.crash()
    begun = len(work.begun)
    successor = host.scheduler()
    await successor.initialize(registrations)
    await host.advance(seconds=1)
    assert sorted(label for label, _ in work.begun[begun:]) == ["due", "retrying"]
    assert [event.cause for event in told(host, TaskRunStarted)][-2:] in (["retry", "cron"], ["cron", "retry"])


async def test_time_limits_hold_while_the_store_is_faulty(host: SimulatedHost, work: Workload) -> None:
    """SPEC 4.6, 3.10: a start that cannot be stored does not keep a run whose time is up from being cancelled."""
    scheduler = host.scheduler(run_timeout=timedelta(seconds=60))
    cancelled: list[str] = []

    async def endless() -> None:
        try:
            await host.sleep(10_000)
        except asyncio.CancelledError:
            cancelled.append(work.clock())
            raise

    await scheduler.initialize([("endless", "0 12 * * *", endless, DELAY), work.task("minutely")])
    await host.advance(seconds=20)
    with full_disk():
        await host.advance(minutes=10)
        assert cancelled == ["12:01:30"]
    await host.advance(minutes=1)
    assert "run_timeout" in told(host, TaskRunFailed)[0].error


async def test_a_start_that_waited_for_its_store_keeps_its_sample_and_what_passed_meanwhile_is_served_once(
    host: SimulatedHost, work: Workload
) -> None:
    """SPEC 3.9, 3.2: its write may have been applied, so it stays as decided; one more start serves the rest."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a")])
    await host.advance(seconds=20)
    with full_disk():
        await host.advance_to("2024-01-01T12:10:05")
    await host.advance_to("2024-01-01T12:12")
    said = [event.actual_time.strftime("%H:%M:%S") for event in told(host, TaskRunStarted)]
    assert said[1] == "12:01:00"
    assert "12:10" in said[2] or "12:11" in said[2]
    assert said[3:] == ["12:11:00", "12:12:00"] or said[3:] == ["12:12:00"]
    assert len(work.starts("a")) == len(said)


async def test_calls_end_also_while_a_start_cannot_be_stored(host: SimulatedHost, work: Workload, store: Path) -> None:
    """002 L2, SPEC 5.2: an initialize() then fails as any that cannot commit does, and the stop behind it ends."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "1 12 * * *")])
    await host.advance(seconds=29)
    with full_disk():
        await host.advance(seconds=2)
        failing = begin(scheduler.initialize([work.task("b")]))
        stopping = begin(scheduler.stop())
        await host.advance(minutes=2)
        ended = outcome(failing), outcome(stopping)
    assert isinstance(ended[0], duly.ScheduleTaskError)
    assert ended[1] == "returned" or isinstance(ended[1], duly.StopSchedulerError)
    assert set(stored_tasks(store)) == {"a"}
