"""Traces that go wrong twice, at one instant, or for long: one mistake is reported once, and nothing else is."""

import pytest

from duly.core.moments import Instant
from duly.formal.machine import OVERLAPPED_MAX
from duly.formal.monitor import Monitor
from duly.formal.trace import BT, CK, IF, IS, RE, RS, SE, SF, SS, WK, Event
from tests.formal.story import HOUR, SECOND, Story
from tests.formal.test_monitor import Trace, at, minutes, redeclare


def hourly(moment: str = "2025-01-01T11:59:30Z", *names: str, cron: str = "0 * * * *") -> Trace:
    trace = Trace()
    trace.begin(moment, *(names or ("x",)), cron=cron)
    return trace


def test_two_starts_at_one_instant_do_not_go_back_in_time() -> None:
    """EW is about starts that are stamped earlier than the last one."""
    trace = hourly()
    trace.start("2025-01-01T12:00Z")
    assert trace.start("2025-01-01T12:00Z", run=2) == ["S1", "S2"]
    assert trace.start("2025-01-01T11:59:59.999999Z", run=3) == ["S1", "EW", "S2"]


def test_a_start_on_the_boundary_serves_the_minute_that_begins() -> None:
    """SPEC 3.1: after a start in the minute before."""
    trace = hourly(cron="* * * * *")
    for run, moment in enumerate(("12:00:00", "12:01:00", "12:02:00"), 1):
        assert trace.start(f"2025-01-01T{moment}Z", run=run) == []
        assert trace.end(f"2025-01-01T{moment}Z", run=run) == []
    assert not trace.monitor.obliged("x", at("2025-01-01T12:02:59.999999Z"))
    assert trace.monitor.obliged("x", at("2025-01-01T12:03Z"))


def test_the_end_of_an_overlapped_run_is_right_once() -> None:
    """S1 has reported the overlap: both runs end without a further alarm, and a second end of the first is reported."""
    trace = hourly()
    trace.start("2025-01-01T12:00Z")
    assert trace.start("2025-01-01T13:00Z", run=2) == ["S1"]
    assert trace.end("2025-01-01T13:01Z") == []
    assert trace.end("2025-01-01T13:02Z") == ["E2"]


def test_runs_that_overlap_are_remembered_up_to_a_bound() -> None:
    """Memory does not grow with the number of mistakes."""
    trace = hourly()
    noon = at("2025-01-01T12:00Z")
    for run in range(1, OVERLAPPED_MAX + 5):
        trace.monitor.step(RS(4 + run, Instant(noon + run), "x", 1, run, "cron", 0))
    assert len(trace.monitor.snapshot().scheduler["overlapped"]) == OVERLAPPED_MAX == 10_000


def test_ends_that_belong_to_nothing_are_reported_with_the_reason() -> None:
    """E2; afterwards a declared task is as before, and an undeclared one is forgotten."""
    trace = hourly()
    assert trace.end("2025-01-01T11:59:40Z") == ["E2"]
    assert trace.found[-1].sentence == "run 1 ends, but nothing was running"
    assert trace.end("2025-01-01T11:59:40Z", "stranger") == ["E2"]
    assert [row.name for row in trace.monitor.snapshot().tasks] == ["x"]
    assert trace.start("2025-01-01T12:00Z") == []
    trace.boot("2025-01-01T12:00:10Z")
    assert trace.end("2025-01-01T12:00:20Z") == ["E2", "S6b"]
    assert trace.found[-2].sentence == "run 1 ends, but a crash had cut it short"


def test_a_due_minute_that_comes_with_the_end_begins_a_new_period() -> None:
    """S3: the second success is wrong for another reason (S2, it was not owed), but not the second in its period."""
    for end, alarms in (("2025-01-01T13:00Z", []), ("2025-01-01T12:59:59.999999Z", ["S3"])):
        trace = hourly()
        trace.start("2025-01-01T12:00Z")
        assert trace.end(end) == []
        assert trace.start("2025-01-01T12:59:59Z", run=2) == ["S2"]
        assert trace.end("2025-01-01T12:59:59.999999Z", run=2) == alarms


# --- ends as evidence -------------------------------------------------------------------------------------------------


def test_an_end_of_another_task_shows_that_a_start_is_late() -> None:
    """R1 is found at whatever event comes first after the bound."""
    trace = hourly("2025-01-01T11:59:30Z", "x", "y")
    trace.start("2025-01-01T12:00Z")
    assert trace.end("2025-01-01T12:01:00Z") == []
    trace = hourly("2025-01-01T11:59:30Z", "x", "y")
    trace.start("2025-01-01T12:00Z")
    assert trace.end("2025-01-01T12:01:00.000001Z") == ["R1"]
    assert (trace.found[0].task, trace.found[0].event, trace.found[0].at) == ("y", "RE", trace.events[-1].at)


def test_a_start_of_another_task_shows_that_a_start_is_late() -> None:
    """R1: at a start."""
    for moment, found in (("2025-01-01T12:01:00Z", []), ("2025-01-01T12:01:00.000001Z", ["R1"])):
        trace = hourly("2025-01-01T11:59:30Z", "x", "y", cron="0 * * * *")
        assert minutes(trace, "2025-01-01T12:00:00Z", 1) == []
        assert trace.start(moment)[:1] == found
        assert [each.task for each in trace.found] == ["x", "y"][: 2 * len(found)]


@pytest.mark.parametrize("silence", [90 * SECOND, 90 * SECOND + 1])
@pytest.mark.parametrize("kind", ["start", "end", "wake"])
def test_a_silence_of_more_than_90_seconds_is_a_freeze_whatever_ends_it(kind: str, silence: int) -> None:
    """Then the bound begins anew at that event; up to 90 s the process is taken to have had compute."""
    trace = hourly("2025-01-01T11:59:30Z", "x", "y")
    noon = at("2025-01-01T12:00Z")
    if kind == "end":
        trace.start("2025-01-01T12:00Z")
    else:
        trace.wake("2025-01-01T12:00Z")
    after = Instant(noon + silence)
    if kind == "wake":
        found = trace.add(trace.events[-1]._replace(at=after))
    elif kind == "start":
        found = trace.add(RS(0, after, "x", 1, 1, "cron", 0))
    else:
        found = trace.add(RE(0, after, "x", 1, 1, True))
    late = {"start": ["R1", "R1"], "end": ["R1"], "wake": ["R1", "R1"]}[kind]
    assert found == (late if silence == 90 * SECOND else [])


# --- the clock goes back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("started", "to", "owed_from"),
    [
        (True, "2025-01-01T09:00:30Z", "2025-01-01T12:01Z"),  # three hours ahead: what was served stays served
        (True, "2025-01-01T08:59:30Z", "2025-01-01T09:00Z"),  # more: the minute that is shown now counts as served
        (False, "2025-01-01T09:00:30Z", "2025-01-01T12:00Z"),  # the same for the minute in which it became known ...
        (False, "2025-01-01T08:59:30Z", "2025-01-01T08:59:30Z"),  # ... but that minute itself is to be served
    ],
)
def test_a_served_minute_more_than_three_hours_ahead_is_lowered(started: bool, to: str, owed_from: str) -> None:
    """SPEC 2.5, to the minute."""
    trace = hourly("2025-01-01T12:00Z", cron="* * * * *")
    if started:
        trace.start("2025-01-01T12:00Z")
        trace.end("2025-01-01T12:00:01Z")
    trace.add(CK(0, at(to), at("2025-01-01T12:00:02Z")))
    assert trace.monitor.obliged("x", at(owed_from))
    assert at(owed_from) == at(to) or not trace.monitor.obliged("x", Instant(at(owed_from) - 1))


def test_the_first_minute_of_the_epoch_is_a_minute() -> None:
    """Instants are numbers, and none of them is special."""
    trace = hourly("1969-12-31T23:59:30Z", cron="* * * * *")
    assert trace.start("1970-01-01T00:00:30Z") == []
    assert [row.served_through for row in trace.monitor.snapshot().tasks] == [0]
    assert Monitor(trace.monitor.snapshot()).snapshot() == trace.monitor.snapshot()


@pytest.mark.parametrize("by", ["CK", "BT"])
def test_lateness_is_noticed_after_the_clock_went_back(by: str) -> None:
    """R1: what became so at a moment that is still to come does not excuse lateness until then."""
    trace = hourly("2025-01-01T12:30Z", "x")
    trace.start("2025-01-01T13:00Z")
    trace.end("2025-01-01T13:00:10Z")
    if by == "CK":
        trace.add(CK(0, at("2025-01-01T08:59:30Z"), at("2025-01-01T13:00:20Z")))
    else:
        trace.boot("2025-01-01T08:59:30Z")
    assert minutes(trace, "2025-01-01T09:00:00Z", 1) == []
    assert [each.since for each in trace.monitor.verdicts()["L1"].open] == [at("2025-01-01T09:00Z")]
    assert trace.wake("2025-01-01T09:01:00Z") == []
    assert trace.wake("2025-01-01T09:01:00.000001Z") == ["R1"]


def test_a_step_forward_gives_a_new_minute_however_short_it_is() -> None:
    """A step is not a silence: it is on record, and the process could do nothing about it."""
    trace = hourly()
    trace.add(CK(0, at("2025-01-01T12:00:50Z"), at("2025-01-01T11:59:40Z")))
    assert trace.wake("2025-01-01T12:01:50Z") == []
    assert trace.wake("2025-01-01T12:01:50.000001Z") == ["R1"]


def test_an_interruption_does_not_wait_for_a_start_that_lies_ahead() -> None:
    """SPEC 3.7, 2.5: twice interrupted, a minute from the lowest the clock was set to since the boot."""
    trace = hourly(cron="0 * * * *")
    trace.start("2025-01-01T12:00:00Z")
    trace.boot("2025-01-01T12:00:10Z")
    trace.start("2025-01-01T12:00:20Z", run=2)
    trace.boot("2025-01-01T12:00:30Z")
    assert not trace.monitor.obliged("x", at("2025-01-01T12:01:19Z"))
    trace.add(CK(0, at("2025-01-01T11:50Z"), at("2025-01-01T12:00:40Z")))
    trace.add(CK(0, at("2025-01-01T11:50:20Z"), at("2025-01-01T11:50:10Z")))
    assert not trace.monitor.obliged("x", at("2025-01-01T11:50:59.999999Z"))
    assert trace.monitor.obliged("x", at("2025-01-01T11:51Z"))


def test_only_a_step_back_within_a_boot_is_remembered_as_one() -> None:
    """Not a step forward, nor one to what the clock showed, nor what a boot finds."""
    trace = hourly()

    def stepped_to() -> int | None:
        found: int | None = trace.monitor.snapshot().scheduler["stepped_to"]
        return found

    trace.add(CK(0, at("2025-01-01T11:59:40Z"), at("2025-01-01T11:59:30Z")))
    trace.add(CK(0, at("2025-01-01T11:59:40Z"), at("2025-01-01T11:59:39Z")))
    assert stepped_to() is None
    trace.add(CK(0, at("2025-01-01T11:59:35Z"), at("2025-01-01T11:59:41Z")))
    assert stepped_to() == at("2025-01-01T11:59:35Z")
    trace.boot("2025-01-01T11:50Z")
    assert stepped_to() is None


# --- calls and registrations ------------------------------------------------------------------------------------------


def test_a_call_or_a_boot_that_comes_twice_is_noticed() -> None:
    """EW: numbers and names are given once."""
    trace = hourly()
    moment = at("2025-01-01T11:59:40Z")
    assert trace.add(IS(0, moment, 7)) == []
    assert trace.add(IS(0, moment, 7)) == ["EW"]
    assert trace.found[-1].sentence == "initialize 7 is called twice"
    assert trace.add(SS(0, moment, 8)) == []
    assert trace.add(SS(0, moment, 8)) == ["EW"]
    assert trace.found[-1].sentence == "stop 8 is called twice"
    assert trace.add(BT(0, moment, "boot-0", 0)) == ["EW"]
    assert trace.found[-1].sentence == "boot 'boot-0' comes twice"


def test_an_overlapped_run_ends_with_its_process() -> None:
    """An overlapped run that ends after a crash belongs to nothing, like any other run."""
    trace = hourly()
    trace.start("2025-01-01T12:00Z")
    assert trace.start("2025-01-01T13:00Z", run=2) == ["S1"]
    trace.boot("2025-01-01T13:00:10Z")
    assert trace.end("2025-01-01T13:00:20Z") == ["E2", "S6b"]


def test_a_task_that_is_gone_is_forgotten_unless_it_runs() -> None:
    """Memory follows what is declared: whether it never ran, has ended, or was cut short by a crash.

    What it has served is kept for a day (SPEC 5.1).
    """
    for history in ("never", "ended", "interrupted"):
        trace = hourly()
        if history != "never":
            trace.start("2025-01-01T12:00Z")
        if history == "ended":
            trace.end("2025-01-01T12:01Z")
        if history == "interrupted":
            trace.boot("2025-01-01T12:01Z")
        assert redeclare(trace, "2025-01-01T12:02Z", "orphaned", 1) == []
        served = [row.served_before for row in trace.monitor.snapshot().tasks]
        assert served == ([] if history == "never" else [at("2025-01-01T12:00Z")])
        trace.boot("2025-01-02T12:03Z", tasks=0)
        assert trace.monitor.snapshot().tasks == ()


def test_the_minute_in_which_a_task_became_known_is_one_of_its_zone() -> None:
    """SPEC 2.2, 3.1: Monrovia was 44 min 30 s behind, so its minutes began at half past those of others."""
    trace = Trace()
    trace.begin("1971-01-01T12:00:45Z", "x", cron="* * * * *", zone="Africa/Monrovia")
    assert [row.served_through for row in trace.monitor.snapshot().tasks] == [at("1971-01-01T11:59:30Z")]
    assert trace.monitor.obliged("x", at("1971-01-01T12:00:45Z"))


def test_registers_say_up_to_which_event_they_were_kept() -> None:
    """At every kind of event."""
    trace = hourly()
    moment = at("2025-01-01T12:00Z")
    more: tuple[Event, ...] = (
        RS(0, moment, "x", 1, 1, "cron", 0), CK(0, moment, moment), WK(0, moment, 0), RE(0, moment, "x", 1, 1, True),
        IS(0, moment, 5), IF(0, moment, 5, "ScheduleTaskError"), SS(0, moment, 6), SF(0, moment, 6, "StopError"),
        SS(0, moment, 7), SE(0, moment, 7), BT(0, moment, "later", 0),
    )  # fmt: skip
    for number, event in enumerate(more, len(trace.events) + 1):
        assert trace.add(event) == []
        assert trace.monitor.snapshot().scheduler["seq"] == number


# --- stops ------------------------------------------------------------------------------------------------------------


def test_a_stop_is_late_after_the_end_of_a_run_whose_task_is_gone() -> None:
    """L2ᵇ: the last run counts, even one of a withdrawn declaration."""
    trace = hourly()
    trace.start("2025-01-01T12:00Z")
    redeclare(trace, "2025-01-01T12:00:10Z", "orphaned", 1)
    trace.add(SS(0, at("2025-01-01T12:00:20Z"), 77))
    trace.end("2025-01-01T12:00:30Z")
    assert trace.wake("2025-01-01T12:01:30Z") == []
    assert trace.wake("2025-01-01T12:01:30.000001Z") == ["L2ᵇ"]


def test_a_retry_is_watched_from_the_end_of_the_run_that_failed() -> None:
    """R1: even if the run outlasted the deadline that its task had before."""
    trace = hourly()
    trace.start("2025-01-01T12:00Z")
    assert minutes(trace, "2025-01-01T12:01:00Z", 2) == []
    trace.end("2025-01-01T12:02:10Z", ok=False)
    assert trace.wake("2025-01-01T12:03:10Z") == []
    assert trace.wake("2025-01-01T12:04:10Z") == []
    assert trace.wake("2025-01-01T12:04:10.000001Z") == ["R1"]


@pytest.mark.parametrize(("seconds", "owed"), [(0, False), (2, True)])
def test_three_hours_ahead_are_counted_to_the_second(seconds: int, owed: bool) -> None:
    """SPEC 2.5: minutes of another zone may begin at another second."""
    told = Story(cron="* * * * *").tell("IS IE Due RS REs")
    told.zone = f"UTC+00:00:0{seconds}"
    told.tell("IS IE")
    told.now -= told.now % HOUR + 3 * HOUR + seconds * SECOND
    told.events.append(CK(len(told.events) + 1, Instant(told.now), told.events[-1].at))
    told.now += 60 * SECOND
    monitor = Monitor(bounded=False)
    found = [each.property for event in told.tell("RS").events for each in monitor.step(event)]
    assert found == ([] if owed else ["S2"])
