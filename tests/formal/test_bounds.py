"""Bounds to the microsecond, ties, and what a new declaration forgets: places where one sign makes the difference."""

from datetime import datetime

from duly.core.moments import Delay, Instant, instant_of
from duly.formal.monitor import Monitor
from duly.formal.trace import BT, IE, IS, RE, RG, RS, SS, WK, Event
from tests.formal.story import story


def at(text: str) -> Instant:
    return instant_of(datetime.fromisoformat(text))


class Judge:
    """A monitor that is shown events one by one, with their numbers filled in."""

    def __init__(self) -> None:
        self._monitor = Monitor()
        self._seq = 0

    def show(self, event: Event) -> list[str]:
        self._seq += 1
        return [each.property for each in self._monitor.step(event._replace(seq=self._seq))]

    def boot(self, moment: Instant, call: int, *, cron: str | None = None) -> None:
        """A process comes, and initialises; with `cron` it declares x."""
        self.show(BT(0, moment, f"boot {call}", 0))
        self.show(IS(0, moment, call))
        if cron is not None:
            self.show(RG(0, moment, "x", 1, "new", cron, Delay(60_000), "UTC", moment, "loop"))
        self.show(IE(0, moment, call, 1, "", "restart", None, 4, "UTC"))

    def wake(self, moment: int) -> list[str]:
        return self.show(WK(0, Instant(moment), 0))


def test_a_start_is_late_one_microsecond_after_its_bound() -> None:
    """R1: 60 s are in time."""
    judge = Judge()
    judge.boot(at("2025-01-01T11:59:30Z"), 1, cron="0 * * * *")
    assert judge.wake(at("2025-01-01T12:00:00Z")) == []
    assert judge.wake(at("2025-01-01T12:01:00Z")) == []
    assert judge.wake(at("2025-01-01T12:01:00Z") + 1) == ["R1"]


def test_a_stop_is_late_one_microsecond_after_its_bound() -> None:
    """L2ᵇ: 60 s after the last end are in time."""
    judge = Judge()
    judge.boot(at("2025-01-01T11:59:30Z"), 1, cron="0 * * * *")
    assert judge.show(RS(0, at("2025-01-01T12:00:00Z"), "x", 1, 1, "cron", 0)) == []
    assert judge.show(SS(0, at("2025-01-01T12:00:10Z"), 2)) == []
    assert judge.show(RE(0, at("2025-01-01T12:00:30Z"), "x", 1, 1, True)) == []
    assert judge.wake(at("2025-01-01T12:01:30Z")) == []
    assert judge.wake(at("2025-01-01T12:01:30Z") + 1) == ["L2ᵇ"]


def test_an_interruption_that_ripens_at_a_due_minute_names_the_debt() -> None:
    """R2, not R1, if both come at the same instant: the interrupted run came first."""
    judge = Judge()
    noon = at("2025-01-01T12:00:00Z")
    judge.boot(noon, 1, cron="* * * * *")
    assert judge.show(RS(0, noon, "x", 1, 1, "cron", 0)) == []
    judge.boot(noon, 2)
    assert judge.show(RS(0, noon, "x", 1, 2, "interrupted", 0)) == []
    judge.boot(at("2025-01-01T12:00:10Z"), 3)
    # Interrupted twice in a row: owed again a minute after its last start, which is the next due minute.
    assert judge.wake(at("2025-01-01T12:01:00Z")) == []
    assert judge.wake(at("2025-01-01T12:02:00Z")) == []
    assert judge.wake(at("2025-01-01T12:02:00Z") + 1) == ["R2"]


def test_a_new_declaration_forgets_how_often_the_old_one_was_interrupted() -> None:
    """SPEC 3.7, 5.1: its first interruption is owed at once, whatever the one before it had been through."""
    text = "IS IE Due RS Crash IS IE RS Crash IS IE Rest RS Crash Override Due RS Crash IS IE RS REs"
    monitor = Monitor()
    assert [found for event in story(text) for found in monitor.step(event)] == []


def test_the_third_start_in_a_row_waits() -> None:
    """SPEC 3.7: the neighbour of the trace above, without the new declaration and without the rest, is refused."""
    monitor = Monitor()
    found = [each for event in story("IS IE Due RS Crash IS IE RS Crash IS IE RS") for each in monitor.step(event)]
    assert [each.property for each in found] == ["S2"]
