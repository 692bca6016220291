"""Bounds to the microsecond, ties, and what a new declaration forgets: places where one sign makes the difference."""

from datetime import datetime

from duly.core.moments import Delay, Instant, instant_of
from duly.formal.monitor import Monitor
from duly.formal.trace import BT, CK, IE, IS, RE, RG, RS, SS, WK, Event
from duly.formal.verdicts import Violation
from tests.formal.story import story


def at(text: str) -> Instant:
    return instant_of(datetime.fromisoformat(text))


class Judge:
    """A monitor that is fed events one by one, with their numbers filled in."""

    def __init__(self) -> None:
        self._monitor = Monitor()
        self._seq = 0

    @property
    def last(self) -> Violation:
        """The latest finding."""
        return self._monitor.violations[-1]

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


def test_an_interruption_that_ripens_at_a_due_minute_is_reported_as_interrupted() -> None:
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
    """SPEC 3.7, 5.1: its first interruption is owed at once, however often the old declaration was interrupted."""
    text = "IS IE Due RS Crash IS IE RS Crash IS IE Rest RS Crash Override Due RS Crash IS IE RS REs"
    monitor = Monitor()
    assert [found for event in story(text) for found in monitor.step(event)] == []


def test_the_third_start_in_a_row_waits() -> None:
    """SPEC 3.7: the neighbour of the trace above, without the new declaration and without the rest, is refused."""
    monitor = Monitor()
    found = [each for event in story("IS IE Due RS Crash IS IE RS Crash IS IE RS") for each in monitor.step(event)]
    assert [each.property for each in found] == ["S2"]


# --- slots ------------------------------------------------------------------------------------------------------------


def with_slots(*places: str, max_concurrency: int | None = None, threads: int | None = None) -> Judge:
    """Hourly tasks named 1, 2, ..., half a minute before noon."""
    judge = Judge()
    moment = at("2025-01-01T11:59:30Z")
    judge.show(BT(0, moment, "boot", 0))
    judge.show(IS(0, moment, 1))
    for number, place in enumerate(places, 1):
        judge.show(RG(0, moment, str(number), number, "new", "0 * * * *", Delay(60_000), "UTC", moment, place))
    assert judge.show(IE(0, moment, 1, len(places), "", "restart", max_concurrency, threads, "UTC")) == []
    return judge


def shown(judge: Judge, *moments: str) -> list[str]:
    """The verdict on wake-ups at these moments of the hour after noon."""
    return [found for moment in moments for found in judge.wake(at(f"2025-01-01T12:{moment}Z"))]


def started(judge: Judge, number: int, moment: str) -> list[str]:
    return judge.show(RS(0, at(f"2025-01-01T12:{moment}Z"), str(number), number, number, "cron", 0))


def ended(judge: Judge, number: int, moment: str) -> list[str]:
    return judge.show(RE(0, at(f"2025-01-01T12:{moment}Z"), str(number), number, number, True))


def test_one_thread_is_a_slot() -> None:
    """A pool of one that nothing uses does not excuse lateness."""
    judge = with_slots("thread", threads=1)
    assert shown(judge, "00:00", "01:00") == []
    assert shown(judge, "01:00.000001") == ["R1"]


def test_the_bound_runs_from_when_a_thread_is_free() -> None:
    """SPEC 3.10: a task that waits for a thread has its minute from the moment one is free."""
    judge = with_slots("thread", "thread", threads=1)
    assert started(judge, 1, "00:00") == []
    assert shown(judge, "01:00", "02:00", "02:30") == []
    assert ended(judge, 1, "02:40") == []
    assert shown(judge, "03:39", "03:40") == []
    assert shown(judge, "03:40.000001") == ["R1"]


def test_a_coroutine_does_not_wait_for_a_thread() -> None:
    """A coroutine has its minute from noon on, although a thread became free later."""
    judge = with_slots("thread", "loop", threads=1)
    assert started(judge, 1, "00:00") == []
    assert ended(judge, 1, "00:50") == []
    assert shown(judge, "01:00") == []
    assert shown(judge, "01:00.000001") == ["R1"]


def test_the_bound_runs_from_when_a_slot_is_free() -> None:
    """`max_concurrency` counts callbacks on the loop and in threads alike."""
    for place in ("loop", "thread"):
        judge = with_slots("loop", place, max_concurrency=1, threads=1)
        assert started(judge, 1, "00:00") == []
        assert shown(judge, "01:00", "02:00", "02:30") == []
        assert ended(judge, 1, "02:40") == []
        assert shown(judge, "03:39", "03:40") == []
        assert shown(judge, "03:40.000001") == ["R1"]


def test_a_slot_that_was_free_all_along_gives_no_new_minute() -> None:
    """Of two slots one was free: the end of a run changes nothing for tasks that wait."""
    for threads, places in ((None, ("loop", "loop")), (2, ("thread", "thread"))):
        limit = 2 if threads is None else None
        judge = with_slots(*places, max_concurrency=limit, threads=threads)
        assert started(judge, 1, "00:00") == []
        assert ended(judge, 1, "00:50") == []
        assert shown(judge, "01:00") == []
        assert shown(judge, "01:00.000001") == ["R1"]


def test_a_thread_is_given_back_once() -> None:
    """After one run has come and gone a pool of one is full again with the next."""
    judge = with_slots("thread", "thread", "thread", threads=1)
    assert started(judge, 1, "00:00") == []
    assert ended(judge, 1, "00:20") == []
    assert started(judge, 2, "00:30") == []
    assert shown(judge, "01:00", "02:00", "03:00") == []


def test_a_crash_frees_all_slots() -> None:
    """SPEC 3.7: runs are gone after a crash, and so are the threads that they held."""
    for place in ("loop", "thread"):
        judge = with_slots(place, place, max_concurrency=1, threads=1)
        assert started(judge, 1, "00:00") == []
        moment = at("2025-01-01T12:00:30Z")
        for event in (BT(0, moment, "again", 0), IS(0, moment, 2), IE(0, moment, 2, 2, "", "restart", 1, 1, "UTC")):
            assert judge.show(event) == []
        assert shown(judge, "01:00", "01:30") == []
        assert sorted(shown(judge, "01:30.000001")) == ["R1", "R2"]


def test_a_slot_that_was_free_later_is_free_when_the_clock_has_gone_back() -> None:
    """SPEC 2.5: the slot has been free ever since, so the bound does not wait for that moment to come again."""
    for place in ("loop", "thread"):
        judge = with_slots(place, place, max_concurrency=1 if place == "loop" else None, threads=1)
        assert started(judge, 1, "00:00") == []
        assert ended(judge, 1, "00:10") == []
        assert judge.show(CK(0, at("2025-01-01T07:59:30Z"), at("2025-01-01T12:00:20Z"))) == []
        assert judge.wake(at("2025-01-01T08:00:00Z")) == []
        assert judge.wake(at("2025-01-01T08:01:00Z")) == []
        assert judge.wake(at("2025-01-01T08:01:00.000001Z")) == ["R1", "R1"]


def test_a_tie_between_a_due_minute_and_a_retry_is_reported_as_due() -> None:
    """SPEC 3.5: the minute takes the retry's place."""
    judge = Judge()
    judge.boot(at("2025-01-01T11:59:30Z"), 1, cron="* * * * *")
    assert judge.show(RS(0, at("2025-01-01T12:00:00Z"), "x", 1, 1, "cron", 0)) == []
    assert judge.show(RE(0, at("2025-01-01T12:00:00Z"), "x", 1, 1, False)) == []  # its retry comes at 12:01
    assert shown(judge, "01:00", "02:00") == []
    assert shown(judge, "02:00.000001") == ["R1"]
    assert judge.last.sentence == "owed (due) for 60 s and not started; the bound is 60 s"
