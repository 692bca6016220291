"""Deadlines that are set, moved, shared and missed: none is lost, none comes twice, none comes early."""

import pytest

from duly.core.moments import Delay, Instant
from duly.formal.monitor import Monitor
from duly.formal.registers import RegisterSnapshot
from duly.formal.trace import BT, CK, IE, IS, RE, RG, RS, SS, WK, digest
from tests.formal.test_bounds import ended, shown, started, with_slots
from tests.formal.test_declarations import hourly, moved
from tests.formal.test_monitor import Trace, at, minutes

NOON = at("2025-01-01T12:00Z")


def test_a_deadline_outlives_an_initialize_that_changes_nothing() -> None:
    """R1: computed anew, the deadline is the same."""
    trace = hourly()
    assert moved(trace, "2025-01-01T11:59:40Z") == []
    assert moved(trace, "2025-01-01T11:59:50Z") == []
    assert trace.wake("2025-01-01T12:01:00Z") == []
    assert trace.wake("2025-01-01T12:01:00.000001Z") == ["R1"]
    assert trace.wake("2025-01-01T12:01:01Z") == []


def test_a_run_that_went_on_during_an_initialize_is_watched_when_it_ends() -> None:
    """R1, for a retry: whatever deadline the task had before."""
    trace = hourly()
    trace.start("2025-01-01T12:00Z")
    assert moved(trace, "2025-01-01T12:00:10Z") == []
    trace.end("2025-01-01T12:00:20Z", ok=False)
    assert trace.wake("2025-01-01T12:01:20Z") == []
    assert trace.wake("2025-01-01T12:02:20Z") == []
    assert trace.wake("2025-01-01T12:02:20.000001Z") == ["R1"]


def test_a_task_that_was_late_once_can_be_late_again() -> None:
    """R1: after a late start the next deadline is watched."""
    trace = hourly()
    assert minutes(trace, "2025-01-01T12:00:00Z", 2) == []
    assert trace.wake("2025-01-01T12:01:30Z") == ["R1"]
    assert trace.start("2025-01-01T12:02:00Z") == []
    trace.end("2025-01-01T12:02:10Z", ok=False)
    assert trace.wake("2025-01-01T12:03:10Z") == []
    assert trace.wake("2025-01-01T12:04:10Z") == []
    assert trace.wake("2025-01-01T12:04:10.000001Z") == ["R1"]


def test_tasks_that_share_a_deadline_are_all_late() -> None:
    """R1: even if one of them was watched for something earlier in between."""
    trace = Trace()
    trace.begin("2025-01-01T12:30Z", "x", "y")
    assert trace.start("2025-01-01T12:31:00Z") == ["S2"]  # a mistake, and it fails: there is a retry now
    trace.end("2025-01-01T12:31:10Z", ok=False)
    assert trace.start("2025-01-01T12:32:10Z", run=2) == []
    trace.end("2025-01-01T12:32:20Z", run=2)
    assert minutes(trace, "2025-01-01T12:33:00Z", 29) == []
    assert trace.wake("2025-01-01T13:01:00.000001Z") == ["R1", "R1"]
    assert sorted(str(each.task) for each in trace.found[-2:]) == ["x", "y"]


def test_a_task_that_runs_does_not_hide_those_that_shared_its_deadline() -> None:
    """R1: the deadline of one task is out of date, that of the others is not."""
    trace = Trace()
    trace.begin("2025-01-01T12:30Z", "x", "y")
    assert trace.start("2025-01-01T12:31:00Z") == ["S2"]
    trace.end("2025-01-01T12:31:10Z", ok=False)
    assert trace.start("2025-01-01T12:32:10Z", run=2) == []
    assert minutes(trace, "2025-01-01T12:33:00Z", 29) == []
    assert trace.wake("2025-01-01T13:01:00.000001Z") == ["R1"]
    assert trace.found[-1].task == "y"


def test_a_deadline_that_moved_to_this_very_moment_is_kept() -> None:
    """R1: a slot became free at 12:00:30; at 12:01:30 the start is in time."""
    judge = with_slots("loop", "loop", max_concurrency=1)
    assert started(judge, 1, "00:00") == []
    assert ended(judge, 1, "00:30") == []
    assert shown(judge, "01:30") == []
    assert shown(judge, "01:30.000001") == ["R1"]


def test_a_stop_is_late_a_minute_after_the_clock_went_back() -> None:
    """L2ᵇ: the bound of a stop does not wait for the old time to come again."""
    trace = hourly()
    trace.add(SS(0, at("2025-01-01T11:59:40Z"), 2))
    trace.add(CK(0, at("2025-01-01T11:00:00Z"), at("2025-01-01T11:59:50Z")))
    assert trace.wake("2025-01-01T11:01:00Z") == []
    assert trace.wake("2025-01-01T11:01:00.000001Z") == ["L2ᵇ"]


def test_a_trace_may_begin_with_a_run() -> None:
    """As a part of a trace does; what is wrong with it is reported, and nothing raises."""
    monitor = Monitor()
    assert [each.property for each in monitor.step(RS(1, NOON, "x", 1, 1, "cron", 0))] == ["S2"]
    assert monitor.step(RE(2, NOON, "x", 1, 1, False)) == []
    assert monitor.step(WK(3, Instant(NOON + 1), 0)) == []


# --- snapshots of all this --------------------------------------------------------------------------------------------


def busy(*, threads: int = 2) -> Trace:
    """A thread is taken, slots are limited, the clock has gone back, the zone is not UTC."""
    trace = Trace()
    now = at("2025-01-01T11:59:30Z")
    trace.add(BT(0, now, "boot", 0))
    trace.add(IS(0, now, 1))
    for number, (name, place) in enumerate((("a", "thread"), ("b", "thread"), ("c", "loop")), 1):
        trace.add(RG(0, now, name, number, "new", "0 * * * *", Delay(60_000), "Europe/Berlin", now, place))
    trace.add(IE(0, now, 1, 3, "", "wait", 3, threads, "Europe/Berlin"))
    trace.start("2025-01-01T12:00Z", "a", 1, 1)
    trace.add(CK(0, at("2025-01-01T11:59:50Z"), at("2025-01-01T12:00:01Z")))
    return trace


def restored(trace: Trace) -> Trace:
    """The rest of a trace is judged by a monitor that begins with the snapshot."""
    again = Trace()
    again.events = trace.events
    again.monitor = Monitor(RegisterSnapshot.from_json(trace.monitor.snapshot().as_json()))
    return again


def test_a_busy_scheduler_is_restored_as_it_was() -> None:
    """Limits, threads, modes, steps and zones stand in the snapshot, and are read from it."""
    trace = busy()
    snapshot = trace.monitor.snapshot().as_json()
    assert Monitor(RegisterSnapshot.from_json(snapshot)).snapshot().as_json() == snapshot
    kept = snapshot["scheduler"]
    assert (kept["limit"], kept["pool"], kept["restart"], kept["zone"]) == (3, 2, False, "Europe/Berlin")
    assert kept["stepped_to"] == at("2025-01-01T11:59:50Z")
    assert [(row[5], row[10]) for row in snapshot["tasks"]] == [(True, True), (True, False), (False, False)]


def test_a_restored_monitor_knows_which_slots_are_taken() -> None:
    """The pool of one is full: b waits for a thread, c is late."""
    trace = restored(busy(threads=1))
    assert minutes(trace, "2025-01-01T12:00:00Z", 2) == []
    assert trace.wake("2025-01-01T12:01:00.000001Z") == ["R1"]
    assert trace.found[-1].task == "c"
    trace = restored(busy(threads=2))
    assert minutes(trace, "2025-01-01T12:00:00Z", 2) == []
    assert trace.wake("2025-01-01T12:01:00.000001Z") == ["R1", "R1"]


def test_a_restored_monitor_knows_what_is_declared() -> None:
    """EW: the digest is computed from the tasks of the snapshot."""
    trace = restored(hourly())
    now = at("2025-01-01T11:59:40Z")
    right = digest([("x", 1, "0 * * * *", 60_000)])
    trace.add(IS(0, now, 7))
    assert trace.add(IE(0, now, 7, 1, right, "restart", None, 4, "UTC")) == []
    trace.add(IS(0, now, 8))
    assert trace.add(IE(0, now, 8, 1, digest([]), "restart", None, 4, "UTC")) == ["EW"]


def test_a_snapshot_without_registers_is_refused() -> None:
    """A snapshot that was made by hand; one that was read has been checked."""
    with pytest.raises(ValueError, match="the register snapshot cannot be read"):
        Monitor(RegisterSnapshot())


# --- answers ----------------------------------------------------------------------------------------------------------


def test_what_is_open_is_listed_in_the_order_of_its_age() -> None:
    """L1: the oldest first, whatever its name."""
    trace = Trace(bounded=False)
    now = at("2025-01-01T11:30Z")
    trace.add(BT(0, now, "boot", 0))
    trace.add(IS(0, now, 1))
    trace.add(RG(0, now, "a", 1, "new", "40 * * * *", Delay(0), "UTC", now, "loop"))
    trace.add(RG(0, now, "b", 2, "new", "35 * * * *", Delay(0), "UTC", now, "loop"))
    trace.add(IE(0, now, 1, 2, "", "restart", None, None, "UTC"))
    trace.wake("2025-01-01T11:50Z")
    verdict = trace.monitor.verdicts()["L1"]
    assert [(each.what, each.since) for each in verdict.open] == [
        ("b", at("2025-01-01T11:35Z")),
        ("a", at("2025-01-01T11:40Z")),
    ]


def test_what_is_open_is_listed_up_to_ten_and_counted() -> None:
    trace = Trace(bounded=False)
    trace.begin("2025-01-01T11:59:30Z", *(f"task {number:02}" for number in range(12)))
    trace.wake("2025-01-01T12:00Z")
    verdict = trace.monitor.verdicts()["L1"]
    assert (len(verdict.open), verdict.open_count) == (10, 12)


def test_whether_a_task_is_obliged_is_a_plain_answer() -> None:
    """Even for a task that is unknown, no longer declared, or running."""
    trace = hourly()
    assert trace.monitor.obliged("nobody", NOON) is False
    assert trace.monitor.obliged("x", NOON) is True
    trace.start("2025-01-01T12:00Z")
    assert trace.monitor.obliged("x", at("2025-01-01T13:00Z")) is False


def test_a_finding_is_the_callers_to_keep() -> None:
    """The list that a step has returned does not grow when rows are fed later."""
    trace = hourly()
    found = trace.monitor.step(RE(5, NOON, "x", 1, 1, True))
    assert [each.property for each in found] == ["E2"]
    trace.monitor.feed([["RE", 6, NOON, "x", 1, 1, True]])
    assert len(found) == 1
    assert trace.monitor.counts["E2"] == 2
