"""SPEC 5: persistence. Declared against stored, one transaction, runs that outlive their declaration, ownership."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.events import (
    SchedulerInitializationFailed,
    TaskAdded,
    TaskInterrupted,
    TaskOrphaned,
    TaskOverridden,
    TaskPreserved,
    TaskRetryStarted,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunStarted,
)
from duly.stores import SqliteStore
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.spec.helpers import told
from tests.spec.workload import HOURLY, MINUTELY, NEVER_TODAY, RestlessClock, Workload, outcome, sequence
from tests.stores.helpers import (
    change,
    constrain_tasks,
    contents,
    everything,
    history,
    query,
    stored_state,
    stored_tasks,
    table,
)

RESOLUTIONS = (TaskAdded, TaskPreserved, TaskOverridden, TaskOrphaned)
UNTOUCHED = {
    "last_attempt_at": None,
    "last_success_at": None,
    "last_failure_at": None,
    "pending_retry_until": None,
    "failures": 0,
    "interruptions": 0,
    "run": None,
}


def resolutions(host: SimulatedHost) -> list[tuple[str, str]]:
    """The verdict of initialize() on each task, in the order of the events."""
    return [(event.name, event.fields["taskName"]) for event in host.events if isinstance(event, RESOLUTIONS)]


def times(state: dict[str, Any]) -> dict[str, Any]:
    """The times that an override resets, out of a stored state."""
    return {key: state[key] for key in UNTOUCHED}


# --- 5.1 what is compared --------------------------------------------------------------------------------------------

BASE = ("task", "0 13 * * *", timedelta(seconds=90))
COMPARISONS: dict[str, tuple[tuple[str, str, timedelta], set[str], str]] = {
    "the same": (BASE, {"TaskPreserved"}, ""),
    "the delay in other units": (("task", "0 13 * * *", timedelta(minutes=1.5)), {"TaskPreserved"}, ""),
    "another cron text": (("task", "0 14 * * *", timedelta(seconds=90)), {"TaskOverridden"}, "cronExpression"),
    "another text of the same minutes": (
        ("task", "00 13 * * *", timedelta(seconds=90)),
        {"TaskOverridden"},
        "cronExpression",
    ),
    "another blank": (("task", "0 13 * *  *", timedelta(seconds=90)), {"TaskOverridden"}, "cronExpression"),
    "another delay": (("task", "0 13 * * *", timedelta(seconds=91)), {"TaskOverridden"}, "retryDelayMs"),
    "a delay one millisecond longer": (
        ("task", "0 13 * * *", timedelta(seconds=90, milliseconds=1)),
        {"TaskOverridden"},
        "retryDelayMs",
    ),
    "both": (("task", "0 14 * * *", timedelta(0)), {"TaskOverridden"}, "cronExpression,retryDelayMs"),
    "another name": (("Task", "0 13 * * *", timedelta(seconds=90)), {"TaskAdded", "TaskOrphaned"}, ""),
    "a name with a blank": (("task ", "0 13 * * *", timedelta(seconds=90)), {"TaskAdded", "TaskOrphaned"}, ""),
}


@pytest.mark.parametrize("again", [False, True], ids=["after a restart", "while running"])
@pytest.mark.parametrize("case", COMPARISONS)
async def test_declared_and_stored_are_compared_by_name_cron_text_and_delay(
    host: SimulatedHost, work: Workload, store: Path, case: str, again: bool
) -> None:
    """SPEC 5.1: `initialize` compares by name, cron text, delay; the callback is never compared."""
    (name, cron, delay), expected, change_type = COMPARISONS[case]
    scheduler = host.scheduler()
    await scheduler.initialize([work.task(BASE[0], BASE[1], delay=BASE[2])])
    if not again:
        await scheduler.stop()
        scheduler = host.scheduler()
    host.events.clear()
    await scheduler.initialize([work.task(name, cron, delay=delay, label="another callback")])
    assert {kind for kind, _ in resolutions(host)} == expected
    assert [event.change_type for event in told(host, TaskOverridden)] == ([change_type] if change_type else [])
    assert stored_tasks(store) == {name: (cron, delay // timedelta(milliseconds=1))}


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [
        (timedelta(0), 0),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=999), 1),
        (timedelta(microseconds=1000), 1),
        (timedelta(microseconds=1001), 2),
        (timedelta(days=365, microseconds=1), 31_536_000_001),
    ],
)
async def test_delays_are_compared_in_whole_milliseconds_rounded_up(
    host: SimulatedHost, work: Workload, store: Path, delay: timedelta, milliseconds: int
) -> None:
    """SPEC 5.1: delay as integer milliseconds, sub-millisecond delays rounded up."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", NEVER_TODAY, delay=delay)])
    assert stored_tasks(store)["a"] == (NEVER_TODAY, milliseconds)
    await scheduler.initialize([work.task("a", NEVER_TODAY, delay=timedelta(milliseconds=milliseconds))])
    await scheduler.initialize([work.task("a", NEVER_TODAY, delay=delay)])
    assert [kind for kind, _ in resolutions(host)] == ["TaskAdded", "TaskPreserved", "TaskPreserved"]


async def test_every_registration_gets_its_own_answer(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 5.1: *new*, *preserved*, *overridden*, *orphaned*, side by side."""
    first = host.scheduler()
    await first.initialize([work.task("kept", HOURLY), work.task("changed", HOURLY), work.task("gone", HOURLY)])
    await host.advance_to("2024-01-01T13:00:10")
    kept = stored_state(store, "kept")
    await first.stop()
    host.events.clear()
    second = host.scheduler()
    await second.initialize([work.task("fresh", HOURLY), work.task("kept", HOURLY), work.task("changed", MINUTELY)])
    assert sorted(resolutions(host)) == [
        ("TaskAdded", "fresh"),
        ("TaskOrphaned", "gone"),
        ("TaskOverridden", "changed"),
        ("TaskPreserved", "kept"),
    ]
    added, overridden = told(host, TaskAdded)[0], told(host, TaskOverridden)[0]
    assert (added.cron_expression, added.retry_delay_ms) == (HOURLY, 300_000)
    assert overridden.old_state["cronExpression"] == HOURLY
    assert overridden.old_state["lastSuccessAt"] == "2024-01-01T13:00:00+00:00"
    assert overridden.new_state["cronExpression"] == MINUTELY
    assert overridden.new_state["lastSuccessAt"] is None
    assert stored_state(store, "kept") == kept
    assert times(stored_state(store, "changed")) == UNTOUCHED


# --- 5.1 overridden --------------------------------------------------------------------------------------------------


async def test_an_override_resets_the_times_and_starts_up_as_a_new_task_would(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.1: new configuration, times reset, new-task start-up: minutes before it are not owed, this one is."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "5 12 * * *", fails=True, delay=timedelta(hours=9))])
    await host.advance_to("2024-01-01T12:30:20")
    assert stored_state(store, "a")["failures"] == 1
    await scheduler.initialize([work.task("a", "10 * * * *", label="before")])
    assert times(stored_state(store, "a")) == UNTOUCHED
    await host.advance(seconds=5)
    assert work.starts("before") == []  # 12:10 was before this configuration
    await scheduler.initialize([work.task("a", "30 * * * *", label="now")])
    await host.advance()
    assert work.starts("now") == ["12:30:25"]
    await host.advance_to("2024-01-01T21:10")
    assert work.starts("a") == ["12:05:00"]  # the retry at 21:05 was the old configuration's
    assert work.starts("now")[-1] == "20:30:00"


async def test_an_override_keeps_the_served_mark_so_no_minute_is_served_twice(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.1: `served_through` stays: a task that has run in this minute does not run again in it."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", MINUTELY)])
    await host.advance(seconds=1)
    mark = stored_state(store, "a")["served_through"]
    for cron in ("0 12 * * *", "0-5 * * * *", MINUTELY):
        await scheduler.initialize([work.task("a", cron, delay=timedelta(seconds=len(cron)))])
        await host.advance(seconds=1)
        assert stored_state(store, "a")["served_through"] == mark
    assert work.starts("a") == ["12:00:30"]
    await host.advance_to("2024-01-01T12:01")
    assert work.starts("a") == ["12:00:30", "12:01:00"]


async def test_an_override_keeps_a_mark_that_lies_ahead_of_the_clock(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.1, 2.5: after a small step back an overridden task is silent until the clock passes `served_through`."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a")])
    await host.advance_to("2024-01-01T12:10:30")
    await host.set_clock("2024-01-01T12:08:30")
    await host.advance(seconds=31)
    begun = len(work.begun)
    await scheduler.initialize([work.task("a", "0-59 * * * *")])
    await host.advance_to("2024-01-01T12:12")
    assert work.begun[begun:] == [("a", "12:11:00"), ("a", "12:12:00")]


async def test_an_override_drops_a_pending_retry_and_says_so(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 5.1: what was owed under the old one, a pending retry included, is dropped, and the event says so."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "0 12 * * *", fails=True)])
    await host.advance(seconds=1)
    await scheduler.initialize([work.task("a", NEVER_TODAY)])
    (event,) = told(host, TaskOverridden)
    assert len(event.dropped) == 1
    assert "retry" in event.dropped[0]
    assert "12:05:30" in event.dropped[0]
    assert event.old_state["pendingRetryUntil"] == "2024-01-01T12:05:30+00:00"
    assert event.new_state["pendingRetryUntil"] is None
    await host.advance(hours=2)
    assert len(work.begun) == 1
    assert sequence(host, TaskRetryStarted) == []


async def test_an_override_drops_an_owed_catch_up_and_says_so(host: SimulatedHost, work: Workload) -> None:
    """SPEC 5.1: minutes missed in a downtime are not caught up under another configuration."""
    first = host.scheduler()
    await first.initialize([work.task("a", "10 12 * * *"), work.task("same", "10 12 * * *")])
    await first.stop()
    await host.advance_to("2024-01-01T12:30")
    second = host.scheduler()
    await second.initialize([work.task("a", "10 13 * * *"), work.task("same", "10 12 * * *")])
    await host.advance(minutes=5)
    (event,) = told(host, TaskOverridden)
    assert len(event.dropped) == 1
    assert "12:10" in event.dropped[0]
    assert work.begun == [("same", "12:30:00")]


async def test_an_override_drops_an_interrupted_run_and_says_so(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.1: an interrupted run is dropped with its configuration, and stays readable in history."""
    first = host.scheduler()
    await first.initialize([work.task("a", "0 12 * * *", takes=60), work.task("same", "0 12 * * *", takes=60)])
    await host.advance(seconds=5)
    await host.crash()
    second = host.scheduler()
    await second.initialize([work.task("a", NEVER_TODAY), work.task("same", "0 12 * * *", takes=60)])
    await host.advance(minutes=5)
    (event,) = told(host, TaskOverridden)
    assert len(event.dropped) == 1
    assert "interrupted" in event.dropped[0]
    assert "12:00:30" in event.dropped[0]
    assert [event.task_name for event in told(host, TaskInterrupted)] == ["same"]
    assert work.starts("a") == ["12:00:30"]
    assert work.starts("same") == ["12:00:30", "12:00:35"]
    assert ("a", "cron", "interrupted") in history(store)


async def test_an_override_that_drops_nothing_says_nothing(host: SimulatedHost, work: Workload) -> None:
    """SPEC 5.1: the event names what was dropped, and only that."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a"), work.task("never ran", HOURLY)])
    await host.advance(seconds=1)
    await scheduler.initialize([work.task("a", HOURLY), work.task("never ran")])
    assert [list(event.dropped) for event in told(host, TaskOverridden)] == [[], []]


# --- 5.1 orphaned ----------------------------------------------------------------------------------------------------


async def test_an_orphaned_task_is_removed_and_new_when_it_is_declared_again(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.1: *orphaned*: stored, not declared: removed; declared again later it is new."""
    scheduler = host.scheduler()
    registrations = [work.task("a", "0-1 12 * * *", fails=True), work.task("other", NEVER_TODAY)]
    await scheduler.initialize(registrations)
    await host.advance(seconds=1)
    await scheduler.initialize(registrations[1:])
    assert set(stored_tasks(store)) == {"other"}
    await host.advance_to("2024-01-01T12:10")
    assert work.starts("a") == ["12:00:30"]  # neither 12:01 nor the retry at 12:05
    host.events.clear()
    await scheduler.initialize([work.task("a", "0-1,5,11 12 * * *", label="again"), *registrations[1:]])
    assert times(stored_state(store, "a")) == UNTOUCHED
    await host.advance(minutes=1)
    assert resolutions(host)[0] == ("TaskAdded", "a")
    assert work.starts("again") == ["12:11:00"]  # nothing of what the old one had been owed


async def test_a_task_that_is_orphaned_and_declared_again_in_one_minute_does_not_serve_it_again(
    host: SimulatedHost, work: Workload
) -> None:
    """SPEC 5.1: it is new, but a minute that any earlier declaration of the name has served is not served again."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", MINUTELY)])
    await host.advance(seconds=1)
    for cron in ("0 12 * * *", MINUTELY):  # the first of them never starts
        await scheduler.initialize([])
        await scheduler.initialize([work.task("a", cron)])
        await host.advance(seconds=1)
    assert work.starts("a") == ["12:00:30"]
    await host.advance_to("2024-01-01T12:01")
    assert work.starts("a") == ["12:00:30", "12:01:00"]


async def test_a_task_that_never_started_leaves_nothing_behind_that_counts_as_served(
    host: SimulatedHost, work: Workload
) -> None:
    """SPEC 5.1: `served_through` stays if a start has made it; the minute before `knownSince` is not one."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", NEVER_TODAY)])
    await host.advance(seconds=1)
    await host.set_clock("2024-01-01T11:30:10")
    await host.advance(seconds=60)
    await scheduler.initialize([work.task("a", MINUTELY)])
    await host.advance_to("2024-01-01T11:33")
    assert work.starts("a") == ["11:31:10", "11:32:00", "11:33:00"]


@pytest.mark.parametrize("history", [0, 1_000])
async def test_what_a_removed_name_has_served_is_kept_for_a_day(
    host: SimulatedHost, work: Workload, store: Path, history: int
) -> None:
    """SPEC 5.1: whatever `history` is, and across restarts."""
    scheduler = host.scheduler(history=history)
    await scheduler.initialize([work.task("a", MINUTELY)])
    await host.advance(seconds=1)
    await scheduler.initialize([])
    await scheduler.stop()
    await host.set_clock("2024-01-02T12:00")
    scheduler = host.scheduler(history=history)
    await scheduler.initialize([])
    assert query(store, "SELECT name FROM marks") == [("a",)]
    await host.advance(seconds=1)
    await scheduler.initialize([work.task("other", NEVER_TODAY)])
    assert query(store, "SELECT name FROM marks") == []


async def test_orphaning_says_when_the_task_last_ran_who_wrote_it_and_what_it_drops(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.1, 003: lastExecutionTime, schedulerIdentifier; what was owed is dropped, and the event says so."""
    first = host.scheduler()
    await first.initialize(
        [
            work.task("retrying", "0 12 * * *", fails=True),
            work.task("interrupted", "0 12 * * *", takes=600),
            work.task("owed", "5 12 * * *"),
            work.task("quiet", "0 12 * * *"),
            work.task("never", NEVER_TODAY),
        ]
    )
    await host.advance(seconds=5)
    await host.crash()
    ((identifier,),) = query(store, "SELECT identifier FROM schedulers")
    await host.jump(minutes=5)
    second = host.scheduler()
    await second.initialize([])
    orphaned = {event.task_name: event for event in told(host, TaskOrphaned)}
    assert set(orphaned) == {"retrying", "interrupted", "owed", "quiet", "never"}
    assert {event.scheduler_identifier for event in orphaned.values()} == {identifier}
    ran = "2024-01-01T12:00:30+00:00"
    assert {name: event.fields["lastExecutionTime"] for name, event in orphaned.items()} == {
        "retrying": ran,
        "interrupted": ran,
        "owed": None,
        "quiet": ran,
        "never": None,
    }
    assert [len(orphaned[name].dropped) for name in ("retrying", "interrupted", "owed")] == [1, 1, 1]
    assert "retry" in orphaned["retrying"].dropped[0]
    assert "interrupted" in orphaned["interrupted"].dropped[0]
    assert "12:05" in orphaned["owed"].dropped[0]
    assert list(orphaned["quiet"].dropped) == list(orphaned["never"].dropped) == []


async def test_orphaned_tasks_stay_readable_in_history(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 5.1, 003: removed from the tasks, not from memory: even after restarts, even under a reused name."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "0 12 * * *"), work.task("b", "0 12 * * *", fails=True)])
    await host.advance(seconds=1)
    await scheduler.initialize([])
    for _ in range(2):
        await scheduler.stop()
        scheduler = host.scheduler()
        await scheduler.initialize([work.task("a", "5 12 * * *")])
    await host.advance_to("2024-01-01T12:05")
    assert history(store) == [("a", "cron", "success"), ("b", "cron", "failure"), ("a", "cron", "success")]
    crons = query(store, "SELECT t.cron FROM runs r JOIN tasks t USING (generation) ORDER BY r.seq")
    assert crons == [("0 12 * * *",), ("0 12 * * *",), ("5 12 * * *",)]
    assert stored_tasks(store) == {"a": ("5 12 * * *", 300_000)}


async def test_interrupted_is_declared_unchanged_and_cut_short_and_nothing_else(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.1: *interrupted* is something else than *orphaned*: declared unchanged, and cut short by a crash."""
    first = host.scheduler()
    registrations = [work.task("cut", "0 12 * * *", takes=600), work.task("done", "0 12 * * *")]
    await first.initialize(registrations)
    await host.advance(seconds=5)
    await host.crash()
    host.events.clear()
    second = host.scheduler()
    await second.initialize(registrations)
    assert sorted(resolutions(host)) == [("TaskPreserved", "cut"), ("TaskPreserved", "done")]
    assert [event.task_name for event in told(host, TaskInterrupted)] == ["cut"]
    await second.initialize(registrations)  # it is running by then, or about to; not interrupted a second time
    assert len(told(host, TaskInterrupted)) == 1


# --- 5.2 one transaction ---------------------------------------------------------------------------------------------


def refuse_insertion_of(store: Path, name: str) -> None:
    """Have SQLite itself fail in the middle of a transaction that adds this task."""
    constrain_tasks(store, f"name != '{name}'")


@pytest.mark.parametrize("again", [False, True], ids=["first", "while running"])
async def test_an_initialize_that_fails_in_the_middle_of_its_transaction_leaves_the_previous_state(
    host: SimulatedHost, work: Workload, store: Path, again: bool
) -> None:
    """SPEC 5.2: all of it is one transaction. If it fails: previous state, `ScheduleTaskError`."""
    old = [work.task("kept", HOURLY), work.task("changed", HOURLY, fails=True), work.task("gone", HOURLY)]
    scheduler = host.scheduler()
    await scheduler.initialize(old)
    await host.advance_to("2024-01-01T13:00:05")
    await scheduler.stop()
    refuse_insertion_of(store, "last")
    scheduler = host.scheduler()
    if again:
        await scheduler.initialize(old)
    before = everything(store)
    files = contents(store)
    new = [work.task("kept", HOURLY), work.task("changed", MINUTELY), work.task("fresh"), work.task("last")]
    with pytest.raises(duly.ScheduleTaskError) as caught:
        await scheduler.initialize(new)
    assert everything(store) == before
    if not again:
        assert contents(store) == files
    # The first task that would have changed is named, with the store's own word as the cause (SPEC 1.5).
    assert caught.value.details["name"] == "changed"
    assert caught.value.details["cronExpression"] == MINUTELY
    assert isinstance(caught.value.__cause__, duly.StoreError)
    assert caught.value.details["cause"] is caught.value.__cause__
    assert str(caught.value).startswith("Failed to schedule task 'changed': ")
    if not again:
        await scheduler.initialize(old)
    await host.advance_to("2024-01-01T13:06")
    assert work.starts("changed") == ["13:00:00", "13:05:00"]
    await host.advance_to("2024-01-01T14:00")
    assert {label for label, when in work.begun if when == "14:00:00"} == {"kept", "changed", "gone"}
    assert work.starts("fresh") == work.starts("last") == []


async def test_the_first_task_that_would_have_changed_is_named_also_when_it_is_an_orphan(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.2, 1.5: nothing declared changes, so what is removed names the failure."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("kept", HOURLY), work.task("gone", HOURLY)])
    await scheduler.stop()
    constrain_tasks(store, "retired_at IS NULL")
    with pytest.raises(duly.ScheduleTaskError) as caught:
        await host.scheduler().initialize([work.task("kept", HOURLY)])
    assert caught.value.details["name"] == "gone"
    assert set(stored_tasks(store)) == {"kept", "gone"}


# --- 5.3 runs that outlive their declaration -------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True], ids=["success", "failure"])
async def test_a_run_of_an_overridden_task_goes_on_and_its_end_does_not_touch_the_new_configuration(
    host: SimulatedHost, work: Workload, store: Path, fails: bool
) -> None:
    """SPEC 5.3: its end belongs to the old configuration, does not touch the new one's times, arms no retry."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "0 12 * * *", label="old", takes=20, fails=fails)])
    await host.advance(seconds=5)
    await scheduler.initialize([work.task("a", "30 12 * * *", label="new", delay=timedelta(seconds=10))])
    before = stored_state(store, "a")
    assert times(before) == UNTOUCHED
    assert work.alive["old"] == 1
    await host.advance(seconds=15)
    assert work.ends("old") == ["12:00:50"]
    assert stored_state(store, "a") == before
    assert history(store) == [("a", "cron", "failure" if fails else "success")]
    ended = told(host, TaskRunFailed if fails else TaskRunCompleted)
    assert len(ended) == 1
    assert "nextRetryAt" not in ended[0].fields
    await host.advance_to("2024-01-01T12:31")
    assert work.begun == [("old", "12:00:30"), ("new", "12:30:00")]


@pytest.mark.parametrize("fails", [False, True], ids=["success", "failure"])
async def test_a_run_of_an_orphaned_task_goes_on_and_owes_nothing_when_it_ends(
    host: SimulatedHost, work: Workload, store: Path, fails: bool
) -> None:
    """SPEC 5.3: a run in flight while its task is orphaned goes on, arms no retry, and is in history."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", takes=90, fails=fails), work.task("b", NEVER_TODAY)])
    await host.advance(seconds=5)
    await scheduler.initialize([work.task("b", NEVER_TODAY)])
    await host.advance(hours=1)
    assert work.begun == [("a", "12:00:30")]
    assert work.ends("a") == ["12:02:00"]
    assert history(store) == [("a", "cron", "failure" if fails else "success")]
    assert query(store, "SELECT count(*) FROM states") == [(1,)]


async def test_the_new_configuration_does_not_start_until_the_old_run_has_ended_and_then_at_once(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.3: the new one does not start until it ended; what fell due meanwhile starts then."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", label="old", takes=200)])
    await host.advance(seconds=5)
    await scheduler.initialize([work.task("a", label="new", takes=1, delay=timedelta(seconds=1))])
    await host.advance_to("2024-01-01T12:03:49")
    assert work.starts("new") == []
    await host.advance_to("2024-01-01T12:04")
    assert work.ends("old") == ["12:03:50"]
    assert work.starts("new") == ["12:03:50", "12:04:00"]
    assert work.alive == {"old": 0, "new": 0} or work.alive["old"] == 0


async def test_only_the_last_of_a_chain_of_overrides_starts_when_the_old_run_ends(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.3: chains of overrides while the old run lives."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", label="link 0", takes=300)])
    await host.advance(seconds=5)
    for link in range(1, 6):
        await scheduler.initialize([work.task("a", label=f"link {link}", delay=timedelta(minutes=link))])
        await host.advance(seconds=31)
    assert [event.task_name for event in told(host, TaskOverridden)] == ["a"] * 5  # and link 5 declares what link 0 did
    assert {label for label, _ in work.begun} == {"link 0"}
    await host.advance_to("2024-01-01T12:06")
    assert work.ends("link 0") == ["12:05:30"]
    assert work.begun[1:] == [("link 5", "12:05:30"), ("link 5", "12:06:00")]


async def test_an_orphan_declared_again_while_its_run_lives_waits_for_that_run(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.3: the same declaration as before is a new one, and no second run begins beside the first."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", label="old", takes=100)])
    await host.advance(seconds=5)
    await scheduler.initialize([])
    await host.advance(seconds=5)
    await scheduler.initialize([work.task("a", label="new", takes=100)])
    assert [event.task_name for event in told(host, TaskAdded)] == ["a", "a"]
    await host.advance_to("2024-01-01T12:02:09")
    assert work.begun == [("old", "12:00:30")]
    before = stored_state(store, "a")
    await host.advance(seconds=1)
    assert work.begun == [("old", "12:00:30"), ("new", "12:02:10")]
    assert times(before) == UNTOUCHED
    # The second run's end is the new declaration's own.
    await host.advance(seconds=100)
    assert stored_state(store, "a")["last_success_at"] is not None


@pytest.mark.parametrize(
    "steps",
    [
        ("override", "orphan", "declare"),
        ("orphan", "declare", "override"),
        ("orphan", "declare", "orphan", "declare"),
        ("override", "override", "orphan", "declare", "override"),
        ("orphan", "declare", "override", "orphan"),
        ("override", "orphan"),
    ],
    ids="-".join,
)
async def test_whatever_is_declared_while_a_run_lives_the_last_declaration_starts_once_after_it(
    host: SimulatedHost, work: Workload, store: Path, steps: tuple[str, ...]
) -> None:
    """SPEC 5.3: overriding, orphaning and declaring again in any order."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", label="old", takes=120)])
    await host.advance(seconds=5)
    delay = 1
    for index, step in enumerate(steps):
        delay += step == "override"
        declared = [] if step == "orphan" else [work.task("a", label=f"step {index}", delay=timedelta(minutes=delay))]
        await scheduler.initialize(declared)
        await host.advance(seconds=10)
    await host.advance_to("2024-01-01T12:02:29")
    assert [label for label, _ in work.begun] == ["old"]
    await host.advance(seconds=1)
    expected = [] if steps[-1] == "orphan" else [(f"step {len(steps) - 1}", "12:02:30")]
    assert work.begun[1:] == expected
    await host.advance_to("2024-01-01T12:03:30")
    assert len(work.begun) == 1 + 2 * len(expected)


async def test_each_of_several_declarations_that_got_to_run_is_waited_for_in_turn(
    host: SimulatedHost, work: Workload
) -> None:
    """SPEC 5.3: the run of an overriding declaration is itself overridden while it lives."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", label="1", takes=20)])
    await host.advance(seconds=5)
    await scheduler.initialize([work.task("a", label="2", takes=20, delay=timedelta(minutes=2))])
    await host.advance(seconds=26)  # "1" ended at 12:00:50, "2" began at 12:01:00
    await scheduler.initialize([work.task("a", label="3", takes=20, delay=timedelta(minutes=3))])
    await host.advance_to("2024-01-01T12:02:10")
    assert work.begun == [("1", "12:00:30"), ("2", "12:01:00"), ("3", "12:02:00")]
    assert work.ended == [("1", "12:00:50"), ("2", "12:01:20")]


@pytest.mark.parametrize("declared", ["overridden", "orphaned", "declared again"])
async def test_a_run_whose_declaration_is_gone_owes_nothing_when_the_process_dies(
    host: SimulatedHost, work: Workload, store: Path, declared: str
) -> None:
    """SPEC 5.3: if the process dies, it owes nothing."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "0 12 * * *", label="old", takes=600)])
    await host.advance(seconds=5)
    registrations = {
        "overridden": [work.task("a", "30 12 * * *", label="new")],
        "orphaned": [],
        "declared again": [work.task("a", "30 12 * * *", label="new")],
    }[declared]
    if declared == "declared again":
        await scheduler.initialize([])
    await scheduler.initialize(registrations)
    await host.advance(minutes=1)
    await host.crash()
    successor = host.scheduler()
    await successor.initialize(registrations)
    await host.advance_to("2024-01-01T12:29")
    assert told(host, TaskInterrupted) == []
    assert work.begun == [("old", "12:00:30")]
    await host.advance(minutes=1)
    assert work.begun[1:] == [(label, "12:30:00") for label in ("new",) if registrations]


async def test_stop_waits_for_a_run_whose_declaration_is_gone(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 5.3, 4.3: all running callbacks are waited for, and their ends recorded."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", takes=60)])
    await host.advance(seconds=5)
    await scheduler.initialize([work.task("b", NEVER_TODAY)])
    stopping = asyncio.ensure_future(scheduler.stop())
    await host.advance(seconds=50)
    assert outcome(stopping) == "pending"
    await host.advance(seconds=5)
    assert outcome(stopping) == "returned"
    assert history(store) == [("a", "cron", "success")]


async def test_the_same_name_gets_the_slot_of_a_blocking_run_that_outlives_its_declaration(
    host: SimulatedHost, work: Workload
) -> None:
    """SPEC 5.3, 3.10: a run that goes on keeps its slot, and gives it back."""
    scheduler = host.scheduler(max_concurrency=1)
    await scheduler.initialize([work.task("a", "0 12 * * *", label="old", takes=60)])
    await host.advance(seconds=5)
    await scheduler.initialize([work.task("a", label="new"), work.task("b")])
    await host.advance_to("2024-01-01T12:01:29")
    assert [label for label, _ in work.begun] == ["old"]
    await host.advance(seconds=1)
    assert sorted(work.begun[1:]) == [("b", "12:01:30"), ("new", "12:01:30")]


async def test_runs_that_end_while_thousands_of_tasks_are_being_overridden_hold_nobody_up(store: Path) -> None:
    """SPEC 5.3, 3.8: a large initialize() lets others run in pauses; an end in such a pause frees its successor."""
    clock = RestlessClock()
    scheduler = duly.Scheduler(SqliteStore(store, worker=Inline(), synchronous="OFF"), clock=clock)
    release = asyncio.Event()
    begun: Counter[int] = Counter()
    new_ones: set[int] = set()
    count = 500

    def old(index: int) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            begun[index] += 1
            await release.wait()
            for _ in range(index // 3):  # they end one after the other, all through the initialize()
                await asyncio.sleep(0)

        return run

    def new(index: int) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            begun[index] += 1
            new_ones.add(index)

        return run

    await scheduler.initialize([(f"t{index}", MINUTELY, old(index), timedelta(0)) for index in range(count)])
    await until(lambda: begun.total() == count)
    # The mark stays, so it takes another minute for the new ones to be owed. An old one that ends before the new one is
    # in force serves that minute itself.
    clock.minutes += 1
    release.set()
    await scheduler.initialize([(f"t{index}", "0-59 * * * *", new(index), timedelta(0)) for index in range(count)])
    await until(lambda: begun.total() == 2 * count)
    assert set(begun.values()) == {2}
    assert len(new_ones) > count // 2
    await scheduler.stop()
    assert query(store, "SELECT count(*) FROM states WHERE run IS NOT NULL") == [(0,)]


async def until(happened: Callable[[], bool], *, rounds: int = 20_000) -> None:
    """Let the event loop go round until something has happened; on this clock no time passes."""
    for _ in range(rounds):
        if happened():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


# --- 5.4 identifiers -------------------------------------------------------------------------------------------------


def writers(store: Path) -> dict[str, str]:
    """Which scheduler last wrote each task, through the table of identifiers."""
    return {
        str(name): str(identifier)
        for name, identifier in query(
            store,
            "SELECT t.name, i.identifier FROM tasks t JOIN states s USING (generation) "
            "JOIN schedulers i ON i.key = s.written_by WHERE t.retired_at IS NULL",
        )
    }


async def test_a_scheduler_has_one_identifier_for_its_whole_life(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.4: one identifier per scheduler instance, generated at its first initialisation."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", HOURLY)])
    await scheduler.initialize([work.task("a", HOURLY), work.task("b", HOURLY)])
    await scheduler.stop()
    await scheduler.initialize([work.task("a", HOURLY), work.task("b", HOURLY), work.task("c", HOURLY)])
    await scheduler.stop()
    assert len(table(store, "schedulers")) == 1
    assert len(set(writers(store).values())) == 1
    assert set(writers(store)) == {"a", "b", "c"}
    other = host.scheduler()
    await other.initialize([work.task("d", HOURLY)])
    identifiers = [identifier for _, identifier, _ in table(store, "schedulers")]
    assert len(identifiers) == len(set(identifiers)) == 2
    assert all(identifiers)


async def test_every_record_names_the_scheduler_that_last_wrote_it(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.4: every record names the one that last wrote it, by an integer key into a table of identifiers."""
    registrations = [
        work.task("ran by both", HOURLY),
        work.task("ran by the first", "0 13 * * *"),
        work.task("x", HOURLY),
    ]
    first = host.scheduler()
    await first.initialize(registrations)
    await host.advance_to("2024-01-01T13:00:30")
    (identifier,) = set(writers(store).values())
    await first.stop()
    second = host.scheduler()
    await second.initialize([*registrations[:2], work.task("x", MINUTELY), work.task("new", NEVER_TODAY)])
    after = writers(store)
    assert after["ran by both"] == after["ran by the first"] == identifier
    assert after["x"] == after["new"] != identifier
    await host.advance_to("2024-01-01T14:00")
    assert writers(store)["ran by both"] == after["new"]
    assert writers(store)["ran by the first"] == identifier
    assert query(store, "SELECT DISTINCT typeof(written_by) FROM states") == [("integer",)]


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "crashed"])
async def test_a_preserved_record_is_not_rewritten_by_initialize(
    host: SimulatedHost, work: Workload, store: Path, crashed: bool
) -> None:
    """SPEC 5.4: whatever state it is in, whichever scheduler initialises: the rows are the same before and after."""
    registrations = [
        work.task("idle", NEVER_TODAY),
        work.task("done", "0 12 * * *"),
        work.task("retrying", "0 12 * * *", fails=True, delay=timedelta(hours=5)),
        work.task("running", "0 12 * * *", takes=5),
    ]
    first = host.scheduler()
    await first.initialize(registrations)
    await host.advance(seconds=1)
    if crashed:
        await host.crash()
    else:
        stopping = asyncio.ensure_future(first.stop())
        await host.advance(seconds=10)
        assert outcome(stopping) == "returned"
    states, tasks = table(store, "states"), table(store, "tasks")
    second = host.scheduler()
    await second.initialize(registrations)
    assert table(store, "states") == states
    assert table(store, "tasks") == tasks
    assert len(told(host, TaskInterrupted)) == crashed


# --- 5.5 records are validated ---------------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[str, type[duly.TaskTryDeserializeError]]] = {
    "a state is missing": (
        "DELETE FROM states WHERE generation = (SELECT generation FROM tasks WHERE name = 'b')",
        duly.TaskTryDeserializeError,
    ),
    "text where a number belongs": ("UPDATE states SET served_through = 'noon'", duly.TaskInvalidTypeError),
    "a value that duly never writes": ("UPDATE states SET failures = -1", duly.TaskInvalidValueError),
    "cron text that cannot be parsed": ("UPDATE tasks SET cron = 'x' WHERE name = 'b'", duly.TaskInvalidValueError),
    "fields that contradict each other": (
        "UPDATE states SET pending_retry_until = 1, failures = 0",
        duly.TaskInvalidStructureError,
    ),
    "a run without its cause": (
        "UPDATE states SET run = 1, run_cause = NULL WHERE last_attempt_at IS NOT NULL",
        duly.TaskMissingFieldError,
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_bad_record_keeps_the_scheduler_from_starting_and_the_store_as_it_is(
    host: SimulatedHost, work: Workload, store: Path, damage: str
) -> None:
    """SPEC 5.5: a bad record raises its `TaskTryDeserializeError` subclass, and the store is left exactly as it was."""
    statement, error = DAMAGE[damage]
    registrations = [work.task("a", "0 12 * * *"), work.task("b", "0 12 * * *")]
    first = host.scheduler()
    await first.initialize(registrations)
    await host.advance(seconds=1)
    await first.stop()
    change(store, statement)
    before = contents(store)
    second = host.scheduler()
    with pytest.raises(error) as caught:
        await second.initialize(registrations)
    assert isinstance(caught.value, duly.TaskTryDeserializeError)
    assert contents(store) == before
    assert told(host, SchedulerInitializationFailed)[-1].error_type == type(caught.value).__name__
    begun = len(work.begun)
    await host.advance(days=1)
    assert len(work.begun) == begun
    with pytest.raises(error):  # nothing holds the store, and nothing has fixed it
        await host.scheduler().initialize([])


# --- 5.6 on_mismatch="refuse" ----------------------------------------------------------------------------------------

MISMATCHES: dict[str, tuple[list[tuple[str, str, int]], dict[str, Any]]] = {
    "added": (
        [("a", HOURLY, 5), ("b", HOURLY, 5), ("c", MINUTELY, 5)],
        {"expected": ["a", "b"], "actual": ["a", "b", "c"], "added": ["c"], "removed": [], "changed": {}},
    ),
    "removed": (
        [("b", HOURLY, 5)],
        {"expected": ["a", "b"], "actual": ["b"], "added": [], "removed": ["a"], "changed": {}},
    ),
    "all removed": ([], {"expected": ["a", "b"], "actual": [], "added": [], "removed": ["a", "b"], "changed": {}}),
    "changed": (
        [("a", MINUTELY, 5), ("b", HOURLY, 6)],
        {
            "expected": ["a", "b"],
            "actual": ["a", "b"],
            "added": [],
            "removed": [],
            "changed": {
                "a": {
                    "stored": {"cronExpression": HOURLY, "retryDelayMs": 5000},
                    "declared": {"cronExpression": MINUTELY, "retryDelayMs": 5000},
                },
                "b": {
                    "stored": {"cronExpression": HOURLY, "retryDelayMs": 5000},
                    "declared": {"cronExpression": HOURLY, "retryDelayMs": 6000},
                },
            },
        },
    ),
    "renamed": (
        [("a", HOURLY, 5), ("B", HOURLY, 5)],
        {"expected": ["a", "b"], "actual": ["B", "a"], "added": ["B"], "removed": ["b"], "changed": {}},
    ),
}


@pytest.mark.parametrize("again", [False, True], ids=["first", "while running"])
@pytest.mark.parametrize("case", MISMATCHES)
async def test_refuse_raises_the_difference_and_changes_nothing(
    host: SimulatedHost, work: Workload, store: Path, case: str, again: bool
) -> None:
    """SPEC 5.6: stored and declared sets differ → `TaskListMismatchError` with the difference, nothing changed."""
    declared, details = MISMATCHES[case]
    stored = [work.task(name, HOURLY, delay=timedelta(seconds=5)) for name in ("a", "b")]
    scheduler = host.scheduler(on_mismatch="refuse")
    await scheduler.initialize(stored)
    if not again:
        await scheduler.stop()
        scheduler = host.scheduler(on_mismatch="refuse")
    before, files = everything(store), contents(store)
    with pytest.raises(duly.TaskListMismatchError) as caught:
        await scheduler.initialize(
            [work.task(name, cron, label="refused", delay=timedelta(seconds=delay)) for name, cron, delay in declared]
        )
    assert {key: caught.value.details[key] for key in details} == details
    assert "override" in caught.value.details["hint"]
    assert everything(store) == before
    assert contents(store) == files
    if not again:
        await scheduler.initialize(stored)  # what is stored is still welcome
    await host.advance_to("2024-01-01T13:00")
    assert sorted(work.begun) == [("a", "13:00:00"), ("b", "13:00:00")]


async def test_refuse_takes_the_same_set_in_any_order_and_an_empty_store_as_a_first_start_up(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.6: an empty store is a first start-up; the same set is not a mismatch, whatever its order or callbacks."""
    tasks = [work.task("a", HOURLY), work.task("b", MINUTELY)]
    scheduler = host.scheduler(on_mismatch="refuse")
    await scheduler.initialize([])  # empty, and stays so
    await scheduler.initialize(tasks)
    await scheduler.initialize(tuple(reversed(tasks)))
    await scheduler.stop()
    second = host.scheduler(on_mismatch="refuse")
    await second.initialize([work.task("b", MINUTELY, label="another callback"), work.task("a", HOURLY)])
    assert set(stored_tasks(store)) == {"a", "b"}
    assert sequence(host, TaskOverridden, TaskOrphaned) == []


async def test_the_default_is_override(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 5.6: the default is `"override"`."""
    first = host.scheduler()
    await first.initialize([work.task("a", HOURLY)])
    await first.stop()
    await host.scheduler().initialize([work.task("a", MINUTELY)])
    assert stored_tasks(store) == {"a": (MINUTELY, 300_000)}


# --- 5.7 one live scheduler a store ----------------------------------------------------------------------------------


async def test_a_second_live_scheduler_in_one_process_gets_an_error_that_names_the_holder(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.7: two live schedulers never share one embedded store, in one process or in two."""
    first, second = host.scheduler(), host.scheduler()
    await first.initialize([work.task("a")])
    with pytest.raises(duly.StoreLockedError) as caught:
        await second.initialize([work.task("b")])
    holder = caught.value.details["holder"]
    assert (holder["pid"], holder["host"]) == (os.getpid(), socket.gethostname())
    assert holder["since"].startswith("2024-01-01T12:00:30")
    assert all(str(part) in str(caught.value) for part in (store, os.getpid(), socket.gethostname(), holder["since"]))
    assert "duly.standby" in caught.value.details["hint"]
    await host.advance(minutes=1)
    assert [label for label, _ in work.begun] == ["a", "a"]
    await first.stop()
    await second.initialize([work.task("b")])
    assert set(stored_tasks(store)) == {"b"}


async def test_a_dead_holders_store_is_free(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 5.7: a dead holder's store is free."""
    first = host.scheduler()
    await first.initialize([work.task("a", takes=60)])
    await host.advance(seconds=1)
    await host.crash()
    second = host.scheduler()
    await second.initialize([work.task("a", takes=60)])
    await host.advance()
    assert len(told(host, TaskRunStarted)) == 2


@pytest.mark.parametrize("path", ["state.db", ":memory:"])
async def test_two_schedulers_do_not_share_one_store_object_either(
    host: SimulatedHost, work: Workload, tmp_path: Path, path: str
) -> None:
    """SPEC 5.7: the second gets a clear error, and the first goes on undisturbed."""
    shared = SqliteStore(path if path == ":memory:" else tmp_path / path, worker=Inline())
    first, second = host.scheduler(store=shared), host.scheduler(store=shared)
    await first.initialize([work.task("a")])
    with pytest.raises(duly.StoreLockedError):
        await second.initialize([work.task("b")])
    await second.stop()
    with pytest.raises(duly.StoreLockedError):
        await second.initialize([work.task("b")])
    await host.advance(minutes=2)
    assert work.starts("b") == []
    assert len(work.starts("a")) == 3
    await first.stop()
    await second.initialize([work.task("b")])
    await host.advance()
    assert len(work.starts("b")) == 1
    assert {event.task_name for event in told(host, TaskOrphaned)} == {"a"}
    await second.stop()
