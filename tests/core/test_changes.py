"""Starts and ends in blocks stand for the single starts and ends that they were made of."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from duly.core.changes import Batch, Ends, StartBlock, Starts, SuccessBlock
from duly.core.cron import parse_cron
from duly.core.moments import Delay, Instant, Minute
from duly.core.registration import RunsOn
from duly.core.task import Cause, Change, Correction, End, Grounds, Obligation, Running, Start, Task, newly_declared

AT = Instant(1_000_000)
ONE = Grounds(Cause.CRON, AT, AT, AT, 0, False, Running(Minute(0), AT, None, None, None, 0, 0, Obligation(AT, AT, 1)))
OTHER = replace(ONE, cause=Cause.RETRY)
TASKS = [
    Task(n, f"t{n}", parse_cron("* * * * *"), Delay(0), newly_declared(Minute(60)), print, RunsOn.LOOP)
    for n in range(8)
]


def start(run: int, grounds: Grounds = ONE) -> Start:
    return Start(TASKS[run % 8], run, grounds)


def end(run: int, at: int = AT, error: str | None = None) -> End:
    return End(TASKS[run % 8], run, ONE, Instant(at), error)


def ends_of(*singles: End) -> Ends:
    ends = Ends()
    for each in singles:
        ends.add(each)
    return ends


def test_starts_of_one_reason_with_consecutive_numbers_are_one_block() -> None:
    """A poll that starts thousands of tasks is a handful of statements."""
    singles = [start(1), start(2), start(3, OTHER), start(4), start(6), start(7)]
    starts = Starts(singles)
    assert [(block.first_run, len(block.tasks), block.grounds) for block in starts.blocks] == [
        (1, 2, ONE),
        (3, 1, OTHER),
        (4, 1, ONE),
        (6, 2, ONE),
    ]
    assert list(starts.singles()) == singles
    assert starts.count == 6


def test_a_block_copies_the_tasks_it_is_given() -> None:
    """The list belongs to the caller: tasks that join the block later do not join the list."""
    due = TASKS[:3]
    starts = Starts()
    starts.add(due, 5, ONE)
    starts.add(TASKS[3:5], 8, ONE)
    starts.add(tuple(TASKS[5:6]), 20, ONE)
    assert due == TASKS[:3]
    assert [(each.task, each.run) for each in starts.singles()] == [
        *zip(TASKS[:5], range(5, 10), strict=True),
        (TASKS[5], 20),
    ]
    assert len(starts.blocks) == 2


def test_ends_of_one_instant_and_reason_are_one_block_and_failures_stand_alone() -> None:
    """In the order in which they came, even around a failure."""
    singles = [end(1), end(2), end(3), end(4), end(5, AT + 1000), end(6, AT + 1000, "it broke"), end(7, AT + 1000)]
    ends = ends_of(*singles)
    assert [len(block.runs) if isinstance(block, SuccessBlock) else block.error for block in ends.blocks] == [
        4,
        1,
        "it broke",
        1,
    ]
    assert list(ends.singles()) == singles
    assert ends.count == 7
    apart = ends_of(end(1), End(TASKS[2], 2, OTHER, AT))
    assert [block.grounds for block in apart.blocks] == [ONE, OTHER]
    again = Ends(ends.blocks)
    assert list(again.singles()) == singles
    assert again.count == 7


def test_nothing_is_counted_as_nothing() -> None:
    """An empty block list has no single changes."""
    for nothing in (Starts(), Ends(), Batch(), Batch.of([])):
        assert nothing.count == 0
        assert list(nothing.singles()) == []


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12), st.integers(0, 14))
def test_split_ends_are_the_first_ones_and_the_rest(kinds: list[tuple[int, bool]], at: int) -> None:
    """A batch is bounded, wherever in a block its bound lies."""
    singles = [end(n, AT + later * 1000, "it broke" if failed else None) for n, (later, failed) in enumerate(kinds)]
    first, rest = ends_of(*singles).split(at)
    assert (list(first.singles()), list(rest.singles())) == (singles[:at], singles[at:])
    assert (first.count, rest.count) == (len(singles[:at]), len(singles[at:]))
    assert all(block.runs for each in (first, rest) for block in each.blocks if isinstance(block, SuccessBlock))
    rest.add(end(7, AT + 9000))
    assert list(rest.singles()) == [*singles[at:], end(7, AT + 9000)]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12), st.integers(0, 14))
def test_ends_are_counted_up_to_some_failures(kinds: list[tuple[int, bool]], failures: int) -> None:
    """Ends that follow the last of them, up to the next one, count as well."""
    singles = [end(n, AT + later * 1000, "it broke" if failed else None) for n, (later, failed) in enumerate(kinds)]
    found = ends_of(*singles).count_up_to(failures)
    assert sum(each.error is not None for each in singles[:found]) <= failures
    assert found == len(singles) or sum(each.error is not None for each in singles[: found + 1]) > failures


def test_a_batch_is_its_blocks_one_after_the_other() -> None:
    """Made of blocks or of single changes, it is the same batch."""
    correction = Correction(AT, Minute(60))
    changes: list[Change] = [end(1), end(2, error="it broke"), start(3), start(4), correction]
    ends, starts = ends_of(end(1), end(2, error="it broke")), Starts([start(3), start(4)])
    for batch in (Batch([*ends.blocks, *starts.blocks, correction]), Batch.of(changes)):
        assert list(batch.singles()) == changes
        assert batch.count == 5
        success, failure, started, last = batch.blocks
        assert isinstance(success, SuccessBlock)
        assert (success.tasks, success.runs) == ([TASKS[1]], [1])
        assert failure == end(2, error="it broke")
        assert isinstance(started, StartBlock)
        assert (started.first_run, started.tasks) == (3, [TASKS[3], TASKS[4]])
        assert last is correction
