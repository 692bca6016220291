"""The derived properties as alarms of their own, and the words in which a broken log is reported."""

import pytest

from duly.core.moments import Delay, Instant
from duly.formal.monitor import Monitor
from duly.formal.trace import BT, IE, IS, RE, RG, RS, Event
from duly.formal.verdicts import Violation
from tests.formal.story import SECOND, Story, story


def violations(events: list[Event]) -> list[Violation]:
    monitor = Monitor()
    return [found for event in events for found in monitor.step(event)]


@pytest.mark.parametrize(
    ("text", "alarms"),
    [
        ("IS IE Due SS SE RS", {"S2", "S4"}),  # a start after a completed stop
        ("IS IE Due RS SS SE REs", {"S5⁺", "S5"}),  # an end after one
        ("IS IE Due Crash RS", {"S2", "S6a"}),  # a start before the next initialize
        ("IS IE Due RS Crash IS IE REs", {"E2", "S6b"}),  # an end of what a crash had cut short
        ("IS IE Due RS REs REs", {"E2"}),
        ("IS IE Due RS REs RS REs", {"S2", "S3"}),  # two successes for one due minute
    ],
)
def test_each_derived_property_raises_its_own_alarm(text: str, alarms: set[str]) -> None:
    """FORMAL A4: they follow from the primitive ones, and are reported beside them, as a second opinion."""
    assert {found.property for found in violations(story(text))} == alarms


@pytest.mark.parametrize(("run", "generation"), [(2, 1), (1, 2), (7, 7)])
def test_the_end_of_another_run_is_reported_with_both_runs(run: int, generation: int) -> None:
    """E2: which run ended, and which one had not."""
    events = story("IS IE Due RS REs")
    start, end = events[-2], events[-1]
    assert isinstance(start, RS)
    assert isinstance(end, RE)
    (found,) = violations([*events[:-1], end._replace(run=run, generation=generation)])
    assert found.property == "E2"
    assert f"run {run} of declaration {generation} ends" in found.sentence
    assert f"run {start.run} of declaration {start.generation} was going on" in found.sentence


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_a_preserved_task_may_move_to_where_threads_are(place: str) -> None:
    """Where a callback runs decides which slots it needs, so a snapshot has to know."""
    told = Story().tell("IS IE")
    first = next(event for event in told.events if isinstance(event, RG))
    told.tell("IS")
    call, seq, at = told.events[-1], len(told.events) + 1, told.events[-1].at
    assert isinstance(call, IS)
    moved = RG(seq, at, "x", first.generation, "preserved", first.cron, Delay(60_000), "UTC", first.known_since, place)
    done = IE(seq + 1, at, call.call, 1, "", "restart", None, 4, "UTC")
    monitor = Monitor()
    assert [found for event in (*told.events, moved, done) for found in monitor.step(event)] == []
    assert [row.thread for row in monitor.snapshot().tasks] == [place == "thread"]


def test_the_first_violation_of_a_property_stands_in_its_verdict() -> None:
    """Of several runs the earliest is named, and all are counted."""
    monitor = Monitor()
    found = [each for event in story("IS IE Due RS Due RS Due RS") for each in monitor.step(event)]
    verdict = monitor.verdicts()["S1"]
    assert [each.property for each in found] == ["S1", "S1"]
    assert (verdict.first, verdict.violations) == (found[0], 2)
    assert monitor.verdicts()["S3"].first is None
    assert monitor.violations == found


NOON = 1_735_732_800 * SECOND  # 2025-01-01T12:00:00Z


class Told:
    """The trace of one task, hourly, whose declaration is number 1; seconds count from noon."""

    def __init__(self, *, delay: int = 60_000, mode: str = "restart") -> None:
        self.monitor = Monitor(bounded=False)
        self._mode = mode
        self._seq = self._call = 0
        self.boot(-1_800, RG(0, Instant(0), "x", 1, "new", "0 * * * *", Delay(delay), "UTC", Instant(0), "loop"))

    def add(self, second: float, event: Event) -> list[Violation]:
        self._seq += 1
        moment = Instant(NOON + round(second * SECOND))
        if isinstance(event, RG):
            event = event._replace(known_since=moment)
        return [*self.monitor.step(event._replace(seq=self._seq, at=moment))]

    def boot(self, second: float, *registrations: RG) -> None:
        self._call += 1
        ignored = Instant(0)
        events: list[Event] = [BT(0, ignored, f"boot {self._call}", 0), IS(0, ignored, self._call), *registrations]
        events.append(IE(0, ignored, self._call, 1, "", self._mode, None, None, "UTC"))
        for event in events:
            assert self.add(second, event) == []

    def start(self, second: float, run: int, generation: int = 1) -> list[Violation]:
        return self.add(second, RS(0, Instant(0), "x", generation, run, "cron", self.monitor.registers.running))

    def end(self, second: float, run: int, *, ok: bool) -> None:
        assert self.add(second, RE(0, Instant(0), "x", 1, run, ok)) == []

    def known(self, second: float, generation: int = 9) -> dict[str, object]:
        """The registers in the alarm, when the task starts as a declaration that is not in force."""
        return self.start(second, 99, generation)[0].registers


def hence(second: float) -> int:
    return NOON + round(second * SECOND)


@pytest.mark.parametrize(("second", "pending"), [(-0.000001, False), (0, True)])
def test_an_alarm_tells_of_a_due_minute(second: float, pending: bool) -> None:
    """A due minute has come at its very instant; the minute before the task was known counts as served."""
    assert Told().known(second) == {
        "Active": True, "Quiet": False, "openStops": 0, "Registered": True, "Running": False, "Pending": pending,
        "RetryPending": False, "InterruptedPending": False, "generation": 1, "run": None,
        "mark": hence(-1_860), "nextDue": hence(0), "retryAt": None, "resumeAt": None,
    }  # fmt: skip


@pytest.mark.parametrize(("second", "pending"), [(69.999999, False), (70, True)])
def test_an_alarm_tells_of_a_retry(second: float, pending: bool) -> None:
    """A retry is owed from its very instant on."""
    told = Told()
    assert told.start(0, 1) == []
    told.end(10, 1, ok=False)
    assert told.known(second) == {
        "Active": True, "Quiet": False, "openStops": 0, "Registered": True, "Running": False, "Pending": False,
        "RetryPending": pending, "InterruptedPending": False, "generation": 1, "run": None,
        "mark": hence(0), "nextDue": hence(3_600), "retryAt": hence(70), "resumeAt": None,
    }  # fmt: skip


def test_an_alarm_tells_of_a_retry_that_waits_for_the_outcome_of_a_run() -> None:
    """The present run decides whether there is a retry, so none is pending."""
    told = Told(delay=7_200_000)
    assert told.start(0, 1) == []
    told.end(10, 1, ok=False)
    assert told.start(3_600, 2) == []
    known = told.known(8_000)
    assert (known["Running"], known["run"], known["RetryPending"], known["Pending"]) == (True, 2, False, True)
    assert known["retryAt"] == hence(7_210)


@pytest.mark.parametrize(("second", "pending"), [(79.999999, False), (80, True)])
@pytest.mark.parametrize("mode", ["restart", "wait"])
def test_an_alarm_tells_of_an_interruption(mode: str, second: float, pending: bool) -> None:
    """Twice in a row, so it waits a minute from its last start; the retry before it is merged into it, or kept."""
    told = Told(delay=1_000, mode=mode)
    assert told.start(0, 1) == []
    told.end(10, 1, ok=False)
    assert told.start(15, 2) == []
    told.boot(16)
    assert told.start(20, 3) == []
    told.boot(21)
    known = told.known(second)
    assert (known["Running"], known["Pending"], known["run"]) == (False, False, 3)
    if mode == "restart":
        assert (known["InterruptedPending"], known["RetryPending"]) == (pending, False)
        assert known["resumeAt"] == hence(80)
    else:
        assert (known["InterruptedPending"], known["RetryPending"]) == (False, True)
        assert (known["retryAt"], known["resumeAt"]) == (hence(11), None)
