"""The clock of a shared store as one of its hosts knows it (SPEC 9.11)."""

import asyncio
from datetime import UTC, tzinfo

import pytest

from duly.core.moments import MICROSECONDS
from duly.engine.shared_clock import SharedClock

HERE = 1_000 * MICROSECONDS
"""The wall clock of this host."""

THERE = 5_000 * MICROSECONDS
"""The clock of the store."""


class Steady:
    """This host's own clock."""

    def __init__(self) -> None:
        self.wall = HERE
        self.seconds = 7.0
        self.slept_until: list[int] = []

    def now(self) -> int:
        return self.wall

    def elapsed(self) -> float:
        return self.seconds

    def zone(self) -> tzinfo:
        return UTC

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        self.slept_until.append(instant)

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += int(seconds * MICROSECONDS)


@pytest.fixture
def steady() -> Steady:
    return Steady()


@pytest.fixture
def clock(steady: Steady) -> SharedClock:
    """A clock that has just heard what the store's clock shows."""
    clock = SharedClock(steady)
    clock.hear(THERE)
    return clock


def test_before_the_first_answer_it_is_this_hosts_own_clock(steady: Steady) -> None:
    """There is nothing better."""
    clock = SharedClock(steady)
    assert clock.now() == HERE
    clock.hear(THERE)
    assert clock.now() == THERE


def test_it_counts_on_by_the_steady_clock_and_not_by_the_wall_clock(clock: SharedClock, steady: Steady) -> None:
    """SPEC 9.11: a wall clock that is set on one host changes nothing."""
    steady.advance(2.5)
    assert clock.now() == THERE + 2_500_000
    steady.wall += 3_600 * MICROSECONDS
    assert clock.now() == THERE + 2_500_000
    clock.hear(THERE)
    assert clock.now() == THERE
    assert (clock.elapsed(), clock.zone()) == (9.5, UTC)


def test_an_answer_that_was_long_under_way_changes_nothing(clock: SharedClock, steady: Steady) -> None:
    """It says that the store's clock showed this much at some moment of the last three seconds: nothing new."""
    steady.advance(5)
    sent = steady.elapsed()
    steady.advance(3)
    clock.hear(THERE + 5_001_000, sent)
    assert clock.now() == THERE + 8_000_000 - 8_000  # less what the two clocks may have drifted apart
    sent = steady.elapsed()
    steady.advance(0.001)
    clock.hear(THERE + 8_000_000, sent)
    assert clock.now() == THERE + 8_000_000


def test_an_answer_that_was_long_under_way_tells_of_a_step_that_it_cannot_explain(
    clock: SharedClock, steady: Steady
) -> None:
    """SPEC 2.5: the store's clock was set back before it answered, or forward."""
    sent = steady.elapsed()
    steady.advance(3)
    clock.hear(THERE - MICROSECONDS, sent)
    assert clock.now() == THERE - MICROSECONDS
    sent = steady.elapsed()
    steady.advance(3)
    clock.hear(THERE + 60_000_000, sent)
    assert clock.now() == THERE + 60_000_000


def test_a_clock_that_runs_slower_than_the_hosts_is_never_behind_its_estimate(
    clock: SharedClock, steady: Steady
) -> None:
    """Five beats whose answers took a second each, on a store whose clock lost a millisecond in a second."""
    store = THERE
    for _ in range(5):
        steady.advance(4)
        sent = steady.elapsed()
        store += 4 * 999_000
        steady.advance(1)
        clock.hear(store, sent)
        store += 999_000
        assert store - 1_000_000 <= clock.now() <= store


def test_what_it_has_shown_has_passed(clock: SharedClock, steady: Steady) -> None:
    """SPEC 9.11: an estimate that is lowered a little, for want of a quick answer, sets no clock back."""
    shown = clock.now()
    for _ in range(3):
        steady.advance(5)
        shown, sent = clock.now(), steady.elapsed() - 1
        clock.hear(shown - MICROSECONDS, sent)
        assert clock.now() == shown
    steady.advance(1)
    assert clock.now() == shown + MICROSECONDS - 5_000


@pytest.mark.parametrize("ahead", [1, 500_000, MICROSECONDS])
def test_an_instant_in_the_log_has_passed(clock: SharedClock, steady: Steady, ahead: int) -> None:
    """It stands still until its own count has come so far; an earlier instant changes nothing."""
    clock.passed(THERE + ahead)
    clock.passed(THERE - 1)
    assert clock.now() == THERE + ahead
    steady.advance(ahead / MICROSECONDS)
    assert clock.now() == THERE + ahead
    steady.advance(1)
    assert clock.now() == THERE + ahead + MICROSECONDS


def test_an_instant_in_the_log_that_lies_far_ahead_shows_that_the_stores_clock_was_set_back(
    clock: SharedClock, steady: Steady
) -> None:
    """SPEC 2.5: it is forgotten, once and for all."""
    clock.passed(THERE + MICROSECONDS + 1)
    assert clock.now() == THERE
    steady.advance(0.5)
    assert clock.now() == THERE + 500_000
    clock.passed(THERE + 600_000)
    assert clock.now() == THERE + 600_000


async def test_it_sleeps_on_this_hosts_clock_for_as_long_as_the_stores_needs(
    clock: SharedClock, steady: Steady
) -> None:
    """However far the two clocks are apart."""
    await clock.sleep_until(THERE + 30 * MICROSECONDS, asyncio.Event())
    assert steady.slept_until == [HERE + 30 * MICROSECONDS]


def test_two_readings_of_one_moment_are_equal_whatever_floats_make_of_it() -> None:
    """SPEC 9.9: a stamp that is ahead of the store's clock, by a microsecond even, is refused."""
    steady = Steady()
    for microsecond in range(1, 200_000_000, 999_983):
        steady.seconds = microsecond / 1_000_000
        clock = SharedClock(steady)
        clock.hear(THERE)
        steady.seconds = (microsecond + 60_000_001) / 1_000_000
        assert clock.now() == THERE + 60_000_001
