"""The monitor's own behaviours: verdicts, served minutes, retries, interruptions, declarations, snapshots, bounds."""

import io
from datetime import datetime

import pytest

from duly.core.moments import Delay, Instant, instant_of
from duly.formal.checking import check
from duly.formal.monitor import Monitor
from duly.formal.properties import PROPERTIES, Value
from duly.formal.registers import RegisterSnapshot
from duly.formal.trace import BT, CK, IE, IS, RE, RG, RS, SE, SS, WK, Event, Header, Writer, digest
from duly.formal.verdicts import Violation
from tests.formal.story import SECOND, story

MINUTE = 60 * SECOND


def at(text: str) -> Instant:
    return instant_of(datetime.fromisoformat(text))


class Trace:
    """Events written by hand, numbered, at given moments, judged one by one."""

    def __init__(self, *, bounded: bool = True) -> None:
        self.monitor = Monitor(bounded=bounded)
        self.events: list[Event] = []
        self.found: list[Violation] = []

    def add(self, event: Event) -> list[str]:
        event = event._replace(seq=len(self.events) + 1)
        self.events.append(event)
        found = self.monitor.step(event)
        self.found += found
        return [each.property for each in found]

    def begin(
        self,
        moment: str,
        *names: str,
        cron: str = "0 * * * *",
        zone: str = "UTC",
        delay: int = 60_000,
        mode: str = "restart",
        max_concurrency: int | None = None,
        place: str = "loop",
    ) -> None:
        now = at(moment)
        self.add(BT(0, now, f"boot-{len(self.events)}", 0))
        self.add(IS(0, now, 1))
        for number, name in enumerate(names, 1):
            self.add(RG(0, now, name, number, "new", cron, Delay(delay), zone, now, place))
        self.add(IE(0, now, 1, len(names), "", mode, max_concurrency, 4, zone))

    def start(self, moment: str, name: str = "x", generation: int = 1, run: int = 1) -> list[str]:
        slots = self.monitor.registers.running
        return self.add(RS(0, at(moment), name, generation, run, "cron", slots))

    def end(self, moment: str, name: str = "x", generation: int = 1, run: int = 1, *, ok: bool = True) -> list[str]:
        return self.add(RE(0, at(moment), name, generation, run, ok))

    def wake(self, moment: str) -> list[str]:
        return self.add(WK(0, at(moment), 0))

    def boot(self, moment: str, *, mode: str = "restart", tasks: int = 1, zone: str = "UTC") -> None:
        self.add(BT(0, at(moment), f"boot-{len(self.events)}", 0))
        call = len(self.events)
        self.add(IS(0, at(moment), call))
        self.add(IE(0, at(moment), call, tasks, "", mode, None, 4, zone))


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_an_empty_trace_holds() -> None:
    assert {verdict.value for verdict in Monitor().verdicts().values()} == {Value.HOLDING}


def test_only_an_end_satisfies() -> None:
    """FORMAL A2: satisfied on a sealed trace only."""
    monitor = Monitor()
    for event in story("IS IE Due RS REs SS SE"):
        monitor.step(event)
    assert {verdict.value for verdict in monitor.verdicts().values()} == {Value.HOLDING}
    assert {verdict.value for verdict in monitor.verdicts(sealed=True).values()} == {Value.SATISFIED}


def test_what_is_open_says_who_and_since_when() -> None:
    """SPEC 7.5: pending, and violated once the trace has ended."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x", "y")
    trace.wake("2025-01-01T12:00:00Z")
    verdict = trace.monitor.verdicts()["L1"]
    assert verdict.value is Value.PENDING
    assert [(each.what, each.since) for each in verdict.open] == [
        ("x", at("2025-01-01T12:00Z")),
        ("y", at("2025-01-01T12:00Z")),
    ]
    assert trace.monitor.verdicts(sealed=True)["L1"].value is Value.VIOLATED


def test_open_calls_are_pending() -> None:
    monitor = Monitor()
    for event in story("IS IE SS IS"):
        monitor.step(event)
    verdicts = monitor.verdicts()
    assert (verdicts["L2"].value, verdicts["L3"].value) == (Value.PENDING, Value.PENDING)
    assert verdicts["L2"].open[0].what == "stop 2"


def test_a_violation_names_property_place_task_and_registers() -> None:
    """The registers just before."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x")
    trace.start("2025-01-01T12:00Z")
    assert trace.start("2025-01-01T12:00:01Z", run=2) == ["S1", "S2"]
    found = trace.found[0]
    assert (found.property, found.seq, found.event, found.task) == ("S1", 6, "RS", "x")
    assert found.registers["Running"] is True
    assert found.registers["run"] == 1
    assert str(found) == "S1 violated at 6 (RS), task 'x': starts while run 1 has not ended"


def test_violations_are_counted_beyond_those_that_are_kept() -> None:
    """Memory does not grow with the number of mistakes."""
    trace = Trace(bounded=False)
    trace.begin("2025-01-01T11:30Z", "x")
    for run in range(300):
        trace.monitor.step(RE(run, at("2025-01-01T11:31Z"), "x", 1, run, True))
    assert trace.monitor.verdicts()["E2"].violations == 300
    assert len(trace.monitor.violations) == 100


def test_every_property_has_a_verdict() -> None:
    assert list(Monitor().verdicts()) == [each.id for each in PROPERTIES]
    assert set(Monitor().verdicts()) - set(Monitor(bounded=False).verdicts()) == {"R1", "R2", "L2ᵇ"}


# --- due minutes ------------------------------------------------------------------------------------------------------


def test_one_start_serves_all_that_was_missed() -> None:
    """SPEC 3.2: a year of downtime is one question to the calendar."""
    trace = Trace()
    trace.begin("2024-01-01T00:30Z", "x")
    trace.boot("2025-01-01T00:30Z")
    assert trace.start("2025-01-01T00:30:01Z") == []
    assert trace.end("2025-01-01T00:30:02Z") == []
    assert trace.start("2025-01-01T00:30:03Z", run=2) == ["S2"]


def test_a_skipped_minute_is_not_due() -> None:
    """SPEC 2.2."""
    trace = Trace()
    trace.begin("2025-03-30T01:30+01:00", "x", cron="30 2 * * *", zone="Europe/Berlin")
    assert trace.start("2025-03-30T03:30+02:00") == ["S2"]


def test_a_repeated_minute_is_due_once() -> None:
    """SPEC 2.3."""
    trace = Trace()
    trace.begin("2025-10-26T01:30+02:00", "x", cron="30 2 * * *", zone="Europe/Berlin")
    assert trace.start("2025-10-26T02:30+02:00") == []
    assert trace.end("2025-10-26T02:31+02:00") == []
    assert trace.start("2025-10-26T02:30+01:00", run=2) == ["S2"]


def test_a_first_start_up_in_the_second_copy_does_not_run() -> None:
    """SPEC 2.3."""
    trace = Trace()
    trace.begin("2025-10-26T02:30+01:00", "x", cron="30 2 * * *", zone="Europe/Berlin")
    assert trace.start("2025-10-26T02:30:01+01:00") == ["S2"]


def test_a_small_step_back_silences_what_was_served() -> None:
    """SPEC 2.5: what was served up to three hours ahead stays served."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x")
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:00:01Z")
    trace.add(CK(0, at("2025-01-01T11:59Z"), at("2025-01-01T12:00:02Z")))
    assert trace.start("2025-01-01T12:00Z", run=2) == ["S2"]


def test_a_large_step_back_lowers_the_mark() -> None:
    """SPEC 2.5: the clock was corrected, and no task falls silent for long."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x")
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:00:01Z")
    trace.add(CK(0, at("2025-01-01T08:59Z"), at("2025-01-01T12:00:02Z")))
    assert trace.start("2025-01-01T09:00Z", run=2) == []


def test_a_boot_with_an_earlier_clock_lowers_it_too() -> None:
    """SPEC 2.5: even at initialize."""
    trace = Trace()
    trace.begin("2025-06-01T11:30Z", "x")
    trace.start("2025-06-01T12:00Z")
    trace.end("2025-06-01T12:00:01Z", ok=False)
    trace.boot("2025-01-01T11:30Z")
    assert trace.start("2025-01-01T11:30:59Z", run=2) == ["S2"]
    trace.end("2025-01-01T11:30:59Z", run=2, ok=False)
    assert trace.start("2025-01-01T11:31:59Z", run=3) == []  # the retry lies no further ahead than its delay


def test_another_zone_moves_what_is_due() -> None:
    """The host's zone is in force for all tasks from the initialize that found it."""
    trace = Trace()
    trace.begin("2025-01-01T00:30Z", "x", cron="0 12 * * *")
    trace.boot("2025-01-01T01:00Z", zone="Asia/Tokyo")
    assert trace.start("2025-01-01T03:00Z") == []  # noon in Tokyo


# --- retries and interruptions ----------------------------------------------------------------------------------------


def test_a_delay_of_zero_waits_a_second() -> None:
    """SPEC 3.6."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x", delay=0)
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:00:01Z", ok=False)
    assert not trace.monitor.obliged("x", at("2025-01-01T12:00:01.999999Z"))
    assert trace.monitor.obliged("x", at("2025-01-01T12:00:02Z"))


def test_with_wait_a_kept_retry_is_owed_at_its_stored_instant() -> None:
    """Decision 6: not at once, the delay after a failure is what a retry promises."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x", delay=600_000, mode="wait")
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:01Z", ok=False)  # the retry is due at 12:11 ...
    trace.monitor.registers.tasks["x"].next_due = at("2025-01-01T12:05Z")  # ... and a due minute takes its place
    assert trace.start("2025-01-01T12:05Z", run=2) == []
    trace.boot("2025-01-01T12:06Z", mode="wait")
    assert not trace.monitor.obliged("x", at("2025-01-01T12:10:59Z"))
    assert trace.monitor.obliged("x", at("2025-01-01T12:11Z"))


def test_two_interruptions_in_a_row_wait_a_minute_from_the_last_start() -> None:
    """SPEC 3.7: a task that kills the process cannot make a crash loop."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x", delay=1_000)
    trace.start("2025-01-01T12:00Z")
    trace.boot("2025-01-01T12:00:05Z")
    assert trace.start("2025-01-01T12:00:06Z", run=2) == []
    trace.boot("2025-01-01T12:00:10Z")
    assert not trace.monitor.obliged("x", at("2025-01-01T12:01:05Z"))
    assert trace.monitor.obliged("x", at("2025-01-01T12:01:06Z"))
    assert trace.start("2025-01-01T12:01:06Z", run=3) == []
    trace.end("2025-01-01T12:01:07Z", run=3)
    trace.monitor.registers.tasks["x"].next_due = at("2025-01-01T12:02Z")
    trace.start("2025-01-01T12:02Z", run=4)
    trace.boot("2025-01-01T12:02:05Z")  # an end in between: the count begins anew
    assert trace.monitor.obliged("x", at("2025-01-01T12:02:05Z"))


def test_the_scheduler_that_finds_an_interrupted_run_says_how_it_is_read() -> None:
    """SPEC 3.7: the mode of the latest initialize, as long as the task has not started again."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x")
    trace.start("2025-01-01T12:00Z")
    trace.boot("2025-01-01T12:00:05Z", mode="wait")
    assert not trace.monitor.obliged("x", at("2025-01-01T12:00:06Z"))
    trace.boot("2025-01-01T12:00:10Z", mode="restart")
    assert trace.monitor.obliged("x", at("2025-01-01T12:00:11Z"))


# --- declarations -----------------------------------------------------------------------------------------------------


def redeclare(trace: Trace, moment: str, change: str, generation: int, *, cron: str = "0 * * * *") -> list[str]:
    call = len(trace.events)
    found = trace.add(IS(0, at(moment), call))
    found += trace.add(RG(0, at(moment), "x", generation, change, cron, Delay(60_000), "UTC", at(moment), "loop"))
    declared = 0 if change == "orphaned" else 1
    return found + trace.add(IE(0, at(moment), call, declared, "", "restart", None, 4, "UTC"))


def test_the_end_of_an_overridden_run_does_not_touch_the_new_declaration() -> None:
    """SPEC 5.3: no retry, no times; and the new one does not start until it ended."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x")
    trace.start("2025-01-01T12:00Z")
    assert redeclare(trace, "2025-01-01T12:30Z", "overridden", 2, cron="30 * * * *") == []
    assert trace.start("2025-01-01T12:30Z", generation=2, run=2) == ["S1"]
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x")
    trace.start("2025-01-01T12:00Z")
    redeclare(trace, "2025-01-01T12:30Z", "overridden", 2)
    assert trace.end("2025-01-01T12:31Z", ok=False) == []
    assert not trace.monitor.obliged("x", at("2025-01-01T12:40Z"))


def test_an_overriding_declaration_keeps_the_mark() -> None:
    """SPEC 5.1: a minute that was served is not served again."""
    trace = Trace()
    trace.begin("2025-01-01T12:00Z", "x")
    trace.start("2025-01-01T12:00:01Z")
    trace.end("2025-01-01T12:00:02Z")
    redeclare(trace, "2025-01-01T12:00:03Z", "overridden", 2, cron="* * * * *")
    assert trace.start("2025-01-01T12:00:04Z", generation=2, run=2) == ["S2"]
    assert trace.start("2025-01-01T12:01Z", generation=2, run=3) == ["S1"]  # the wrong start is on record


def test_a_start_of_an_old_declaration_is_wrong() -> None:
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x")
    redeclare(trace, "2025-01-01T11:40Z", "overridden", 2)
    assert trace.start("2025-01-01T12:00Z", generation=1) == ["S2"]
    assert "declaration 1" in trace.found[0].sentence


def test_registrations_add_up_to_what_was_declared() -> None:
    """EW: an RG that is missing in the trace is noticed at its IE."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x")
    moment = at("2025-01-01T11:31Z")
    trace.add(IS(0, moment, 2))
    right = digest([("x", 1, "0 * * * *", 60_000)])
    assert trace.add(IE(0, moment, 2, 1, right, "restart", None, 4, "UTC")) == []
    trace.add(IS(0, moment, 3))
    assert trace.add(IE(0, moment, 3, 2, "", "restart", None, 4, "UTC")) == ["EW"]
    trace.add(IS(0, moment, 4))
    assert trace.add(IE(0, moment, 4, 1, "0" * 16, "restart", None, 4, "UTC")) == ["EW"]


@pytest.mark.parametrize(("change", "generation"), [("new", 2), ("overridden", 1), ("orphaned", 2), ("preserved", 2)])
def test_a_registration_that_does_not_follow_is_noticed(change: str, generation: int) -> None:
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x")
    assert "EW" in redeclare(trace, "2025-01-01T11:40Z", change, generation)


def test_what_is_gone_is_forgotten() -> None:
    """Memory follows the tasks that are declared now, or ran within the last day, not all that ever were (SPEC 5.1)."""
    trace = Trace()
    trace.begin("2025-01-01T11:30Z", "x")
    trace.start("2025-01-01T12:00Z")
    redeclare(trace, "2025-01-01T12:10Z", "orphaned", 1)
    assert list(trace.monitor.registers.tasks) == ["x"]  # its run goes on
    assert trace.end("2025-01-01T12:11Z") == []
    trace.boot("2025-01-02T12:00Z", tasks=0)
    assert list(trace.monitor.registers.tasks) == ["x"]  # what it has served counts
    trace.boot("2025-01-02T12:00:01Z", tasks=0)
    assert list(trace.monitor.registers.tasks) == []


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_at_every_position_changes_nothing() -> None:
    """Saved, written as JSON, restored after each event: the same violations and verdicts."""
    text = "IS IE Due RS REf RetryDue RS Crash IS IE RS Crash IS IE RS Override REs Due RS RS SS SE REs"
    straight, restored = Monitor(), Monitor()
    found: list[Violation] = []
    for event in story(text):
        straight.step(event)
        found += restored.step(event)
        restored = Monitor(RegisterSnapshot.from_json(restored.snapshot().as_json()))
        assert restored.snapshot().as_json() == straight.snapshot().as_json()
    assert found == straight.violations
    assert found


# --- bounds -----------------------------------------------------------------------------------------------------------


def minutes(trace: Trace, begin: str, count: int, *, step: int = 60) -> list[str]:
    """Wake-ups, one per minute: evidence of compute."""
    found: list[str] = []
    for number in range(count):
        found += trace.add(WK(0, Instant(at(begin) + number * step * SECOND), 0))
    return found


def test_a_start_that_does_not_come_is_late_after_a_minute() -> None:
    """R1, SPEC 7.5."""
    trace = Trace()
    trace.begin("2025-01-01T11:59:30Z", "x")
    assert minutes(trace, "2025-01-01T12:00:00Z", 2) == []
    assert trace.wake("2025-01-01T12:01:00.000001Z") == ["R1"]
    assert trace.wake("2025-01-01T12:02Z") == []  # reported once
    assert trace.monitor.verdicts()["R1"].value is Value.VIOLATED
    assert trace.monitor.verdicts()["S2"].value is Value.HOLDING


def test_a_late_retry_counts_from_its_instant() -> None:
    trace = Trace()
    trace.begin("2025-01-01T11:59:30Z", "x")
    trace.start("2025-01-01T12:00Z")
    trace.end("2025-01-01T12:00:10Z", ok=False)
    assert minutes(trace, "2025-01-01T12:01:00Z", 2) == []  # ripe at 12:01:10
    assert trace.wake("2025-01-01T12:02:11Z") == ["R1"]


def test_what_was_interrupted_has_a_bound_of_its_own() -> None:
    """R2."""
    trace = Trace()
    trace.begin("2025-01-01T11:59:30Z", "x")
    trace.start("2025-01-01T12:00Z")
    trace.boot("2025-01-01T12:10Z")
    assert minutes(trace, "2025-01-01T12:10:30Z", 1) == []
    assert trace.wake("2025-01-01T12:11:01Z") == ["R2"]


def test_a_freeze_is_not_lateness() -> None:
    """A long silence says that the process had no compute; the bound begins anew after it."""
    trace = Trace()
    trace.begin("2025-01-01T11:59:30Z", "x")
    assert trace.wake("2025-01-01T15:00Z") == []
    assert trace.wake("2025-01-01T15:00:30Z") == []
    assert trace.start("2025-01-01T15:00:59Z") == []


def test_a_step_of_the_clock_is_not_lateness() -> None:
    trace = Trace()
    trace.begin("2025-01-01T11:59:30Z", "x")
    trace.add(CK(0, at("2025-01-01T18:00Z"), at("2025-01-01T11:59:40Z")))
    assert trace.start("2025-01-01T18:00:10Z") == []


def test_waiting_for_a_slot_is_not_lateness() -> None:
    """SPEC 3.10: the rest wait their turn."""
    trace = Trace()
    trace.begin("2025-01-01T11:59:30Z", "x", "y", max_concurrency=1)
    trace.start("2025-01-01T12:00Z")
    assert minutes(trace, "2025-01-01T12:01:00Z", 10) == []
    trace.end("2025-01-01T12:10:30Z")
    assert trace.wake("2025-01-01T12:11:00Z") == []
    assert trace.start("2025-01-01T12:11:10Z", "y", 2, 2) == []


def test_threads_have_slots_of_their_own() -> None:
    """SPEC 3.10: a full pool delays blocking callbacks, and coroutines not at all."""
    for place, expected in (("thread", []), ("loop", ["R1"])):
        trace = Trace()
        now = at("2025-01-01T11:59:30Z")
        trace.add(BT(0, now, "boot", 0))
        trace.add(IS(0, now, 1))
        trace.add(RG(0, now, "x", 1, "new", "0 * * * *", Delay(0), "UTC", now, "thread"))
        trace.add(RG(0, now, "y", 2, "new", "0 * * * *", Delay(0), "UTC", now, place))
        trace.add(IE(0, now, 1, 2, "", "restart", None, 1, "UTC"))
        trace.start("2025-01-01T12:00Z")
        assert minutes(trace, "2025-01-01T12:00:30Z", 2) == expected


def test_the_bound_grows_with_the_number_of_tasks() -> None:
    """000 R1: 100,000 tasks, ten minutes."""
    trace = Trace()
    trace.begin("2025-01-01T11:59:30Z", *(f"task-{n}" for n in range(20_000)))
    assert minutes(trace, "2025-01-01T12:00Z", 3) == []
    assert trace.wake("2025-01-01T12:02:01Z").count("R1") == 20_000


def test_a_stop_that_lingers_is_late() -> None:
    """L2ᵇ: after the last callback has ended."""
    trace = Trace()
    trace.begin("2025-01-01T11:59:30Z", "x")
    trace.start("2025-01-01T12:00Z")
    trace.add(SS(0, at("2025-01-01T12:00:10Z"), 2))
    assert minutes(trace, "2025-01-01T12:01:00Z", 10) == []
    trace.end("2025-01-01T12:10:30Z")
    assert trace.wake("2025-01-01T12:11:00Z") == []
    assert trace.wake("2025-01-01T12:11:31Z") == ["L2ᵇ"]
    assert trace.add(SE(0, at("2025-01-01T12:12Z"), 2)) == []


def test_obligations_are_what_a_scheduler_must_start() -> None:
    """SPEC 7.2: a start is legal exactly if Obl held just before."""
    trace = Trace()
    trace.begin("2025-01-01T11:59:30Z", "x", "y")
    assert list(trace.monitor.obligations(at("2025-01-01T11:59:59Z"))) == []
    assert list(trace.monitor.obligations(at("2025-01-01T12:00Z"))) == ["x", "y"]
    trace.start("2025-01-01T12:00Z")
    assert list(trace.monitor.obligations(at("2025-01-01T12:00:01Z"))) == ["y"]
    trace.add(SS(0, at("2025-01-01T12:00:02Z"), 2))
    assert list(trace.monitor.obligations(at("2025-01-01T12:00:03Z"))) == []


def test_check_is_the_monitor_on_bytes() -> None:
    """The fast path and the values give the same verdicts."""
    events = story("IS IE Due RS REf RetryDue RS REs RS REs SS SE")
    out = io.BytesIO()
    Writer(out.write, Header("s")).add_all(events)
    monitor = Monitor()
    for event in events:
        monitor.step(event)
    report = check(io.BytesIO(out.getvalue()), unsealed=True)
    assert report.verdicts == monitor.verdicts()
    assert report.violated
