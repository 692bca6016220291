"""Registers that declarations leave behind and take along: tasks that come, change, go, or were never declared."""

import gc

import pytest

from duly.core.moments import Delay, Instant
from duly.formal.calendar import Schedule
from duly.formal.monitor import Monitor
from duly.formal.registers import TaskRow
from duly.formal.trace import CK, IE, IS, RG, SE, SF, SS, digest
from tests.formal.test_monitor import Trace, at, redeclare


def hourly(moment: str = "2025-01-01T11:59:30Z", *, cron: str = "0 * * * *", delay: int = 60_000) -> Trace:
    trace = Trace()
    trace.begin(moment, "x", cron=cron, delay=delay)
    return trace


def rows(trace: Trace) -> list[TaskRow]:
    return [*trace.monitor.snapshot().tasks]


def moved(trace: Trace, moment: str, *, zone: str = "UTC", declared: int = 1, mode: str = "restart") -> list[str]:
    """An initialize that changes no task."""
    call = len(trace.events)
    trace.add(IS(0, at(moment), call))
    return trace.add(IE(0, at(moment), call, declared, "", mode, None, 4, zone))


# --- registers --------------------------------------------------------------------------------------------------------

MINUTE_BEFORE_KNOWN = at("2025-01-01T11:58Z")
NOON = at("2025-01-01T12:00Z")


def test_the_registers_of_a_task_that_has_not_started() -> None:
    """SPEC 3.1: it has served the minute before it was known; of runs there is nothing."""
    (row,) = rows(hourly())
    assert row == TaskRow(
        name="x", declared=True, generation=1, cron="0 * * * *", delay_ms=60_000, thread=False,
        served_through=MINUTE_BEFORE_KNOWN, retry_at=None, run=None, run_generation=-1, run_on_thread=False,
        epoch=-1, started=0, floor=0, ended=0, streak=0, due_since_success=True, fresh=False, unstarted=True,
        served_before=None,
    )  # fmt: skip


def test_the_registers_of_a_task_that_runs_and_of_one_that_ran() -> None:
    trace = hourly()
    trace.start("2025-01-01T12:00:01Z")
    started = at("2025-01-01T12:00:01Z")
    running = TaskRow(
        name="x", declared=True, generation=1, cron="0 * * * *", delay_ms=60_000, thread=False, served_through=NOON,
        retry_at=None, run=1, run_generation=1, run_on_thread=False, epoch=0, started=started, floor=started, ended=0,
        streak=0, due_since_success=True, fresh=True, unstarted=False,
        served_before=None,
    )  # fmt: skip
    assert rows(trace) == [running]
    trace.end("2025-01-01T12:00:02Z", ok=False)
    ended = at("2025-01-01T12:00:02Z")
    retry_at = at("2025-01-01T12:01:02Z")
    assert rows(trace) == [running._replace(run=None, ended=ended, retry_at=retry_at)]
    trace.start("2025-01-01T12:01:02Z", run=2)
    trace.end("2025-01-01T12:01:03Z", run=2)
    (row,) = rows(trace)
    assert (row.retry_at, row.due_since_success, row.fresh) == (None, False, True)


def test_the_registers_of_a_task_that_is_said_to_be_preserved_but_was_never_declared() -> None:
    """EW; the task exists from then on, without a declaration."""
    trace = hourly()
    trace.add(IS(0, NOON, 9))
    event = RG(0, NOON, "ghost", 7, "preserved", "* * * * *", Delay(5), "UTC", NOON, "thread")
    assert trace.add(event) == ["EW"]
    assert rows(trace)[1] == TaskRow(
        name="ghost", declared=False, generation=-1, cron=None, delay_ms=0, thread=True, served_through=0,
        retry_at=None, run=None, run_generation=-1, run_on_thread=False, epoch=-1, started=0, floor=0, ended=0,
        streak=0, due_since_success=False, fresh=False, unstarted=True,
        served_before=None,
    )  # fmt: skip


def test_the_registers_of_a_task_that_starts_without_a_declaration() -> None:
    """S2; its run is remembered like any other."""
    trace = hourly()
    assert trace.start("2025-01-01T12:00:01Z", "ghost", 7, 3) == ["S2"]
    started = at("2025-01-01T12:00:01Z")
    assert rows(trace)[1] == TaskRow(
        name="ghost", declared=False, generation=-1, cron=None, delay_ms=0, thread=False, served_through=NOON,
        retry_at=None, run=3, run_generation=7, run_on_thread=False, epoch=0, started=started, floor=started, ended=0,
        streak=0, due_since_success=False, fresh=False, unstarted=False,
        served_before=None,
    )  # fmt: skip


def test_the_registers_of_a_run_that_outlives_its_declaration() -> None:
    """SPEC 5.3: all that it owed is gone, and that is reported if it starts again."""
    trace = hourly(delay=7_200_000)
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:00:01Z", ok=False)  # a retry is pending ...
    trace.boot("2025-01-01T12:00:02Z")
    trace.start("2025-01-01T13:00Z", run=2)
    trace.boot("2025-01-01T13:00:02Z")
    trace.start("2025-01-01T13:00:03Z", run=3)  # ... and an interruption has been counted
    assert rows(trace)[0].streak == 1
    redeclare(trace, "2025-01-01T13:10Z", "orphaned", 1)
    started = at("2025-01-01T13:00:03Z")
    assert rows(trace) == [
        TaskRow(
            name="x", declared=False, generation=-1, cron="0 * * * *", delay_ms=7_200_000, thread=False,
            served_through=at("2025-01-01T13:00Z"), retry_at=None, run=3, run_generation=1, run_on_thread=False,
            epoch=2, started=started, floor=started, ended=at("2025-01-01T12:00:01Z"), streak=0,
            due_since_success=False, fresh=True, unstarted=True, served_before=at("2025-01-01T13:00Z"),
        )
    ]  # fmt: skip
    moved(trace, "2025-01-01T13:20Z", zone="Asia/Tokyo", declared=0)
    assert trace.start("2025-01-01T15:00Z", run=4) == ["S1", "S2"]
    known = trace.found[-1].registers
    assert (known["Registered"], known["Pending"], known["nextDue"], known["retryAt"]) == (False, False, None, None)


def test_interruptions_are_counted_up_to_two() -> None:
    """SPEC 3.7: only whether there were several matters."""
    trace = hourly("2025-01-01T11:30Z")
    trace.start("2025-01-01T12:00Z")
    for number, streak in enumerate((1, 2, 2, 2), 1):
        trace.boot(f"2025-01-01T12:{10 * number}:00Z")
        assert trace.start(f"2025-01-01T12:{10 * number}:01Z", run=1 + number) == []
        assert rows(trace)[0].streak == streak
    trace.end("2025-01-01T12:50:00Z", run=5)
    assert rows(trace)[0].streak == 0


# --- what is owed -----------------------------------------------------------------------------------------------------


def test_a_new_declaration_owes_no_retry_of_the_old_one() -> None:
    """SPEC 5.1."""
    trace = hourly()
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:00:01Z", ok=False)
    assert trace.monitor.obliged("x", at("2025-01-01T12:01:01Z"))
    redeclare(trace, "2025-01-01T12:00:30Z", "overridden", 2)
    assert not trace.monitor.obliged("x", at("2025-01-01T12:59:59Z"))
    assert trace.monitor.obliged("x", at("2025-01-01T13:00Z"))


def test_a_new_declaration_has_not_started() -> None:
    """SPEC 2.5: when the clock has gone far back, the minute in which it became known is to be served."""
    trace = hourly(cron="* * * * *")
    redeclare(trace, "2025-01-01T12:10Z", "overridden", 2, cron="* * * * *")
    assert (rows(trace)[0].unstarted, rows(trace)[0].served_before) == (True, None)
    trace.add(CK(0, at("2025-01-01T08:59:30Z"), at("2025-01-01T12:10:10Z")))
    assert trace.monitor.obliged("x", at("2025-01-01T08:59:30Z"))


@pytest.mark.parametrize(
    ("clock", "silent_until"),
    [
        (
            "2025-01-01T08:59:30Z",
            "2025-01-01T09:00Z",
        ),  # what was served is too far ahead: this minute, and known with it
        ("2025-01-01T09:05:30Z", "2025-01-01T12:01Z"),  # known too far ahead, but what was served is not
        ("2025-01-01T09:15:30Z", "2025-01-01T12:10Z"),  # neither: nothing before it was known
    ],
)
@pytest.mark.parametrize("change", ["overridden", "new"])
def test_what_an_earlier_declaration_has_served_is_not_served_again(clock: str, silent_until: str, change: str) -> None:
    """SPEC 2.5, 5.1: overridden or removed and declared again, never started since, and the clock goes back."""
    trace = hourly(cron="* * * * *")
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:00:01Z")
    if change == "new":
        redeclare(trace, "2025-01-01T12:05Z", "orphaned", 1)
    assert redeclare(trace, "2025-01-01T12:10Z", change, 2, cron="* * * * *") == []
    assert (rows(trace)[0].unstarted, rows(trace)[0].served_before) == (True, NOON)
    trace.add(CK(0, at(clock), at("2025-01-01T12:10:10Z")))
    assert not trace.monitor.obliged("x", Instant(at(silent_until) - 1))
    assert trace.monitor.obliged("x", at(silent_until))


def test_a_new_declaration_owes_no_interrupted_run_of_the_old_one() -> None:
    """SPEC 5.1, 3.7."""
    trace = hourly()
    trace.start("2025-01-01T12:00Z")
    trace.boot("2025-01-01T12:00:10Z")
    assert trace.monitor.obliged("x", at("2025-01-01T12:00:10Z"))
    redeclare(trace, "2025-01-01T12:00:30Z", "overridden", 2)
    assert not trace.monitor.obliged("x", at("2025-01-01T12:59:59Z"))


def test_a_run_that_had_ended_is_not_interrupted_by_a_crash() -> None:
    trace = hourly()
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:00:01Z")
    trace.boot("2025-01-01T12:00:10Z")
    assert not trace.monitor.obliged("x", at("2025-01-01T12:59:59Z"))


def test_a_new_declaration_begins_a_new_period() -> None:
    """S3: a second success after it is wrong by S2 alone."""
    for change in ("overridden", None):
        trace = hourly()
        trace.start("2025-01-01T12:00Z")
        trace.end("2025-01-01T12:00:01Z")
        generation = 1 if change is None else 2
        if change is not None:
            redeclare(trace, "2025-01-01T12:10Z", change, generation)
        assert trace.start("2025-01-01T12:20Z", generation=generation, run=2) == ["S2"]
        assert trace.end("2025-01-01T12:21Z", generation=generation, run=2) == ([] if change else ["S3"])


@pytest.mark.parametrize("mode", ["restart", "wait"])
def test_a_pending_retry_is_merged_into_the_restart_of_an_interrupted_run(mode: str) -> None:
    """SPEC 3.7: one start serves both; but with `wait` it is the retry itself, and outlives a further crash."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x", cron="0 12,13 * * *", delay=7_200_000, mode=mode)
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:00:10Z", ok=False)  # the retry comes at 14:00:10 ...
    trace.start("2025-01-01T13:00Z", run=2)  # ... and a due minute takes its place
    trace.boot("2025-01-01T14:00:20Z", mode=mode)
    assert trace.start("2025-01-01T14:00:30Z", run=3) == []
    trace.boot("2025-01-01T14:00:40Z", mode="wait")
    assert trace.monitor.obliged("x", at("2025-01-01T14:00:50Z")) == (mode == "wait")


@pytest.mark.parametrize(("delay", "owed_from"), [(60_000, "11:01:00"), (0, "11:00:01"), (1_500, "11:00:01.5")])
def test_a_retry_lies_no_further_ahead_than_its_delay(delay: int, owed_from: str) -> None:
    """SPEC 2.5, 3.6: when the clock has gone back."""
    trace = hourly(delay=delay)
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:00:10Z", ok=False)
    trace.add(CK(0, at("2025-01-01T11:00Z"), at("2025-01-01T12:00:11Z")))
    moment = at(f"2025-01-01T{owed_from}Z")
    assert not trace.monitor.obliged("x", Instant(moment - 1))
    assert trace.monitor.obliged("x", moment)


def test_minutes_are_those_of_the_zone_in_force() -> None:
    """SPEC 2.2: in 1971 the minutes of Monrovia began at half past those of others."""
    trace = Trace()
    trace.begin("1971-01-01T11:30:00Z", "x", cron="* * * * *")
    trace.start("1971-01-01T12:00:05Z")
    trace.end("1971-01-01T12:00:06Z")
    moved(trace, "1971-01-01T12:00:10Z", zone="Africa/Monrovia")
    assert trace.start("1971-01-01T12:00:40Z", run=2) == []
    assert rows(trace)[0].served_through == at("1971-01-01T12:00:30Z")
    restored = Monitor(trace.monitor.snapshot())
    restored.step(trace.events[-1]._replace(seq=99, at=at("1971-01-01T12:01:20Z")))
    assert restored.snapshot().tasks[0].served_through == at("1971-01-01T12:00:30Z")


# --- sums -------------------------------------------------------------------------------------------------------------


def test_the_digest_follows_what_is_declared() -> None:
    """EW: an overriding declaration counts once, a removed one not at all."""
    trace = hourly()
    moment = at("2025-01-01T11:59:40Z")

    def initialized(declared: int, text: str, *registrations: RG) -> list[str]:
        call = len(trace.events)
        trace.add(IS(0, moment, call))
        for each in registrations:
            assert trace.add(each) == []
        return trace.add(IE(0, moment, call, declared, text, "restart", None, 4, "UTC"))

    first = RG(0, moment, "x", 2, "overridden", "5 * * * *", Delay(7), "UTC", moment, "loop")
    assert initialized(1, digest([("x", 2, "5 * * * *", 7)]), first) == []
    assert initialized(1, digest([("x", 1, "0 * * * *", 60_000)])) == ["EW"]
    second = first._replace(task="y", generation=3, change="new")
    assert initialized(2, digest([("y", 3, "5 * * * *", 7), ("x", 2, "5 * * * *", 7)]), second) == []
    assert initialized(1, digest([("y", 3, "5 * * * *", 7)]), first._replace(change="orphaned")) == []
    assert initialized(0, digest([]), second._replace(change="orphaned")) == []
    assert digest([]) == "0" * 16


def test_an_empty_declaration_is_compared_with_what_is_registered() -> None:
    """EW: zero is a number of tasks like any other."""
    assert moved(hourly(), "2025-01-01T11:59:40Z", declared=0) == ["EW"]
    assert moved(hourly(), "2025-01-01T11:59:40Z", declared=2) == ["EW"]
    assert moved(hourly(), "2025-01-01T11:59:40Z", declared=1) == []


def test_a_task_that_went_and_came_back_while_it_ran_counts_once() -> None:
    """SPEC 5.3: the task is declared anew while its old run has not ended."""
    trace = hourly()
    trace.start("2025-01-01T12:00Z")
    assert redeclare(trace, "2025-01-01T12:10Z", "orphaned", 1) == []
    assert redeclare(trace, "2025-01-01T12:20Z", "new", 2) == []
    assert redeclare(trace, "2025-01-01T12:30Z", "overridden", 3) == []
    assert trace.end("2025-01-01T12:31Z") == []


def test_the_digest_is_the_same_in_every_version() -> None:
    """The digest stands in traces that are kept, so it must not change."""
    assert digest([("backup", 3, "0 3 * * *", 60_000)]) == "8fe52cb7957d9215"


def test_schedules_of_declarations_that_are_gone_are_forgotten(request: pytest.FixtureRequest) -> None:
    """A task that is declared anew again and again leaves at most about a thousand schedules behind."""

    def alive() -> int:
        gc.collect()
        return sum(type(each) is Schedule for each in gc.get_objects())

    request.addfinalizer(gc.unfreeze)
    gc.freeze()  # what other tests have left is not looked at
    trace = Trace(bounded=False)
    trace.begin("2025-01-01T11:30Z", "x", cron="0 0 1 1 *")
    trace.add(RG(0, NOON, "ghost", 7, "preserved", "* * * * *", Delay(5), "UTC", NOON, "loop"))
    for number in range(1, 1_002):
        cron = f"{number % 60} {number // 60} * * *"
        redeclare(trace, "2025-01-01T11:31Z", "overridden", 1 + number, cron=cron)
    assert alive() == 1_002
    redeclare(trace, "2025-01-01T11:31Z", "overridden", 2_000, cron="0 0 2 2 *")
    assert alive() == 1
    redeclare(trace, "2025-01-01T11:31Z", "overridden", 2_001, cron="0 0 2 2 *")
    assert alive() == 1


# --- stops ------------------------------------------------------------------------------------------------------------


def test_a_stop_of_an_idle_scheduler_is_late_after_a_minute() -> None:
    """L2ᵇ: nothing ran, so it counts from the call."""
    trace = hourly()
    trace.add(SS(0, at("2025-01-01T11:59:40Z"), 2))
    assert trace.wake("2025-01-01T12:00:40Z") == []
    assert trace.wake("2025-01-01T12:00:40.000001Z") == ["L2ᵇ"]
    assert trace.found[-1].sentence == "a stop is open 60 s after the last run ended"
    assert trace.wake("2025-01-01T12:01:41Z") == []  # reported once


@pytest.mark.parametrize("returns", ["SE", "SF"])
def test_a_stop_that_has_returned_is_neither_open_nor_late(returns: str) -> None:
    """L2, L2ᵇ: the stop completed, or it raised."""
    trace = hourly()
    trace.add(SS(0, at("2025-01-01T11:59:40Z"), 2))
    now = at("2025-01-01T11:59:50Z")
    assert trace.add(SE(0, now, 2) if returns == "SE" else SF(0, now, 2, "StopSchedulerError")) == []
    assert trace.monitor.verdicts()["L2"].open == ()
    assert trace.wake("2025-01-01T12:00:50Z") == []
    assert trace.wake("2025-01-01T12:01:50Z") == []
    assert moved(trace, "2025-01-01T12:02Z") == []
    assert trace.monitor.obliged("x", at("2025-01-01T12:02Z"))


def test_a_stop_that_completes_without_a_call_still_stops() -> None:
    """SPEC 7.4, and EW for the call; FORMAL A5, P12: SE clears Active too."""
    trace = hourly()
    assert trace.add(SE(0, at("2025-01-01T11:59:40Z"), 2)) == ["EW"]
    assert not trace.monitor.obliged("x", NOON)


def test_a_freeze_in_a_stop_is_not_lateness() -> None:
    """L2ᵇ: like a task, a stop has its minute again after a long silence."""
    trace = hourly()
    trace.add(SS(0, at("2025-01-01T11:59:40Z"), 2))
    assert trace.wake("2025-01-01T12:10:00Z") == []
    assert trace.wake("2025-01-01T12:11:00Z") == []
    assert trace.wake("2025-01-01T12:11:00.000001Z") == ["L2ᵇ"]


def test_the_bound_runs_from_when_the_scheduler_became_active() -> None:
    """R1 and L1: what was owed before an initialize took effect is owed to it from then on."""
    trace = hourly("2025-01-01T11:30Z")
    moment = at("2025-01-01T11:31Z")
    trace.add(SS(0, moment, 2))
    trace.add(SE(0, moment, 2))
    trace.wake("2025-01-01T12:00:00Z")
    trace.wake("2025-01-01T12:00:40Z")
    assert moved(trace, "2025-01-01T12:00:50Z") == []
    (open_,) = trace.monitor.verdicts()["L1"].open
    assert (open_.what, open_.since) == ("x", at("2025-01-01T12:00:50Z"))
    assert trace.wake("2025-01-01T12:01:50Z") == []
    assert trace.wake("2025-01-01T12:01:50.000001Z") == ["R1"]
