"""Starts and ends in blocks are the sequences that they stand for."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.core.changes import Batch, Ends, StartBlock, Starts, SuccessBlock, in_blocks
from duly.core.cron import parse_cron
from duly.core.moments import Delay, Instant, Minute
from duly.core.registration import Kind
from duly.core.task import Cause, Change, Correction, End, Grounds, Running, Start, Task, newly_declared

AT = Instant(1_000_000)
ONE = Grounds(Cause.CRON, AT, AT, AT, 0, False, Running(Minute(0), AT, None, None, None, 0, 0))
OTHER = replace(ONE, cause=Cause.RETRY)
TASKS = [
    Task(n, f"t{n}", parse_cron("* * * * *"), Delay(0), newly_declared(Minute(60)), print, Kind.LOOP) for n in range(8)
]


def start(run: int, grounds: Grounds = ONE) -> Start:
    return Start(TASKS[run % 8], run, grounds)


def end(run: int, at: int = AT, error: str | None = None) -> End:
    return End(TASKS[run % 8], run, ONE, Instant(at), error)


def ends_of(*singles: End) -> Ends:
    ends = Ends()
    for each in singles:
        ends.append(each)
    return ends


def test_starts_of_one_reason_with_consecutive_numbers_are_one_block() -> None:
    """A tick of thousands is a handful of statements."""
    singles = [start(1), start(2), start(3, OTHER), start(4), start(6), start(7)]
    starts = Starts(singles)
    assert [(block.first_run, len(block.tasks), block.grounds) for block in starts.blocks] == [
        (1, 2, ONE),
        (3, 1, OTHER),
        (4, 1, ONE),
        (6, 2, ONE),
    ]
    assert starts == singles
    assert len(starts) == 6


def test_a_block_takes_many_tasks_at_once_and_no_list_of_others() -> None:
    """What it was given stays the giver's: a wave's tasks are not changed by those that join them."""
    wave = TASKS[:3]
    starts = Starts()
    starts.add(wave, 5, ONE)
    starts.add(TASKS[3:5], 8, ONE)
    starts.add(tuple(TASKS[5:6]), 20, ONE)
    assert wave == TASKS[:3]
    assert [(each.task, each.run) for each in starts] == [*zip(TASKS[:5], range(5, 10), strict=True), (TASKS[5], 20)]
    assert len(starts.blocks) == 2


def test_they_are_indexed_as_a_list_is() -> None:
    """First, last, a part; and what is not there is an IndexError."""
    singles = [start(1), start(2, OTHER), start(3)]
    starts, ends = Starts(singles), ends_of(end(1), end(2, error="it broke"), end(3))
    assert (starts[0], starts[-1], starts[1:]) == (singles[0], singles[2], singles[1:])
    assert (ends[1].error, ends[-1].run) == ("it broke", 3)
    assert starts != [start(1)]
    assert starts != "starts"
    for sequence in (starts, ends):
        with pytest.raises(IndexError):
            sequence[3]


def test_ends_of_one_instant_and_reason_are_one_block_and_failures_stand_alone() -> None:
    """In the order in which they came, also around a failure."""
    singles = [end(1), end(2), end(3), end(4), end(5, AT + 1000), end(6, AT + 1000, "it broke"), end(7, AT + 1000)]
    ends = ends_of(*singles)
    assert [len(block.runs) if isinstance(block, SuccessBlock) else block.error for block in ends.blocks] == [
        4,
        1,
        "it broke",
        1,
    ]
    assert ends == singles
    assert len(ends) == 7
    apart = ends_of(end(1), End(TASKS[2], 2, OTHER, AT))
    assert [block.grounds for block in apart.blocks] == [ONE, OTHER]
    assert Ends(ends.blocks) == singles
    assert len(Ends(ends.blocks)) == 7


def test_nothing_is_nothing() -> None:
    """An empty one is false, as an empty list is."""
    assert not Starts()
    assert not Ends()
    assert not Batch([Ends(), Starts(), []])
    assert list(in_blocks([])) == []


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12), st.integers(0, 14))
def test_divided_ends_are_the_first_and_the_others(kinds: list[tuple[int, bool]], most: int) -> None:
    """A batch is bounded, wherever in a block its bound lies."""
    singles = [end(n, AT + later * 1000, "it broke" if failed else None) for n, (later, failed) in enumerate(kinds)]
    first, others = ends_of(*singles).divided(most)
    assert (list(first), list(others)) == (singles[:most], singles[most:])
    assert (len(first), len(others)) == (len(singles[:most]), len(singles[most:]))
    assert all(block.runs for each in (first, others) for block in each.blocks if isinstance(block, SuccessBlock))
    others.append(end(7, AT + 9000))
    assert list(others) == [*singles[most:], end(7, AT + 9000)]


def test_a_batch_is_its_parts_one_after_the_other() -> None:
    """Whatever its parts are made of, and in the same order."""
    correction = Correction(AT, Minute(60))
    changes: list[Change] = [end(1), end(2, error="it broke"), start(3), start(4), correction]
    whole = Batch([ends_of(end(1), end(2, error="it broke")), Starts([start(3), start(4)]), [correction]])
    assert list(whole) == changes
    assert len(whole) == 5
    assert whole[-1] is correction
    for sequence in (whole, changes):
        success, failure, starts, last = in_blocks(sequence)
        assert isinstance(success, SuccessBlock)
        assert (success.tasks, success.runs) == ([TASKS[1]], [1])
        assert failure == end(2, error="it broke")
        assert isinstance(starts, StartBlock)
        assert (starts.first_run, starts.tasks) == (3, [TASKS[3], TASKS[4]])
        assert last is correction
