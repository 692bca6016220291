"""Finds of the simulation: each history as it was printed, made small, with what was wrong then."""

import pytest

from tests.simulation.executor import check
from tests.simulation.faults import Fault, Kind
from tests.simulation.histories import Declared, Doing, History, Initialize, Pass, SetClock, Stop, Suspend

TENS = "0,10,20,30,40,50 * * * *"


def test_a_clock_set_back_while_the_store_opens() -> None:
    """SPEC 2.5, 3.1: known since 01:40:00, and 01:39:30 when the loop began: the minute 01:40 was not served.

    The first look found the wave of 01:40 not owed yet and dropped it, and the calendar waited for 01:50.
    """
    tasks = (Declared(name="b", cron=TENS, delay_ms=0),)
    history = History(
        at="2024-10-06T01:40",
        steps=(Initialize(tasks=tasks), Pass(seconds=300)),
        faults={0: Fault(Kind.STEPPED, -30)},
    )
    result = check(history)
    assert [row[2] for row in result.rows if row[0] == "RS"] == [1728178800000000]


def test_a_clock_set_back_while_a_re_initialisation_is_stored() -> None:
    """On a running scheduler: the step back ended after the last poll, so it was not noticed."""
    history = History(
        at="2024-10-06T01:39:10",
        steps=(
            Initialize(tasks=(Declared(name="c", cron="30 2 * * *"),)),
            Pass(seconds=55),  # without a look, as after a freeze
            Initialize(tasks=(Declared(name="c", cron="30 2 * * *"), Declared(name="b", cron=TENS))),
            Pass(seconds=300),
        ),
        faults={4: Fault(Kind.STEPPED, -10)},
        idle_looks=False,
    )
    result = check(history)
    assert sum(row[0] == "RS" for row in result.rows) == 1


def test_a_step_back_and_a_greater_one_forward() -> None:
    """The host complained: what is owed since before its wave is put off to the next decision of the same look."""
    check(
        History(
            at="2024-03-31T01:55",
            steps=(
                Initialize(tasks=(Declared(name="d", cron="0,1,2,30,31 * * * *", delay_ms=90000),)),
                SetClock(seconds=-3000),
                Pass(seconds=60),
                Suspend(seconds=18000),
            ),
        )
    )


@pytest.mark.parametrize("rounds", range(12))
def test_a_caller_that_goes_away_leaves_nothing_behind(rounds: int) -> None:
    """SPEC 4.3: cancelled while the trace took note of its call, initialize() left a task that waited for ever."""
    tasks = (Declared(doings=(Doing(end="raises", seconds=30),)),)
    history = History(
        steps=(
            Initialize(tasks=tasks),
            Pass(seconds=30),
            Initialize(tasks=(), background=True, cancelled_after=rounds),
            Pass(seconds=60),
            Stop(background=True, cancelled_after=rounds),
        ),
        faults={4: Fault(Kind.HUNG, 45), 6: Fault(Kind.SLOW, 5)},
    )
    check(history)


def test_the_last_fraction_of_a_microsecond_of_patience() -> None:
    """SPEC 4.3: with 30 s of patience almost over, stop() waited for no time at all, over and over."""
    history = History(
        at="2024-10-06T01:40",
        options={"run_timeout": 5},
        steps=(Initialize(tasks=(Declared(name="b", cron=TENS, doings=(Doing(seconds=200),)),)), Stop()),
        faults={3: Fault(Kind.HUNG, 45)},
    )
    assert check(history).errors["StopSchedulerError"] == 1


def test_a_replacement_that_is_applied_and_denied_again_and_again() -> None:
    """SPEC 5.2: initialize() raised, the old registrations went on in memory, and the store held the new ones."""
    history = History(
        steps=(
            Initialize(tasks=(Declared(name="a"), Declared(name="b", cron=TENS))),
            Pass(seconds=30),
            Initialize(tasks=(Declared(name="b", cron=TENS),)),
            Pass(seconds=120),
        ),
        faults={operation: Fault(Kind.UNACKNOWLEDGED) for operation in range(5, 9)},
    )
    check(history)
