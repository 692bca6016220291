"""The judges of chaos object to what they must, and to nothing else: to steps that overlap, and to wrong logs."""

from itertools import count

import pytest

from duly.core.moments import Instant, Minute
from duly.core.news import Buried, Content, Ended, FailedRun, Left, LogEntry, Replaced, Started, Statement, Written
from duly.core.task import Cause, Obligation
from tests.cluster.chaos import Freeze, Overlap, Step, overlaps
from tests.cluster.replay import Replay

NOON = 1_704_110_400
A, B = 1_000_000_000_000, 2_000_000_000_000  # runs of two hosts


# --- steps -----------------------------------------------------------------------------------------------------------


def step(at: int, run: int, fence: int, *, task: str = "report", thread: int = 1, process: int = 100) -> Step:
    return Step(at, task, run, fence, "step", thread, process)


def test_runs_one_after_the_other_do_not_overlap() -> None:
    assert overlaps([step(1, A, 1), step(2, A, 1), step(3, B, 2), step(4, B, 2)]) == []


def test_a_step_after_the_first_one_of_a_later_run_is_an_overlap() -> None:
    found = overlaps([step(1, A, 1), step(2_000_000_000, B, 2), step(3_000_000_000, A, 1)])
    assert found == [Overlap("report", A, B, 1.0)]


def test_other_tasks_may_run_meanwhile() -> None:
    assert overlaps([step(1, A, 1), step(2, B, 2, task="backup"), step(3, A, 1)]) == []


def test_the_rest_of_the_step_that_was_under_way_at_a_freeze_is_not_held_against_a_host() -> None:
    """SPEC 9.7: but a second one is, and so is one of another process."""
    steps = [step(1, A, 1), step(5, B, 2, process=200), step(8, A, 1)]
    assert overlaps(steps, [Freeze(100, since=2, until=7)]) == []
    assert overlaps(steps, [Freeze(200, since=2, until=7)]) == [Overlap("report", A, B, 3e-9)]
    assert overlaps([*steps, step(9, A, 1)], [Freeze(100, since=2, until=7)]) == [Overlap("report", A, B, 4e-9)]
    other_thread = step(9, A, 1, thread=2)
    assert overlaps([*steps, other_thread], [Freeze(100, since=2, until=7)]) == []


# --- the log ---------------------------------------------------------------------------------------------------------

SAID = Statement(1, 2, "", "restart", None, 4, 0)
DECLARED = Replaced(1, Instant(NOON * 1_000_000), 1, 2, (), (), False, "UTC", None, SAID)


def started(run: int, *generations: int, cause: Cause = Cause.CRON, minute: int = NOON, at: int = 0) -> Started:
    at = at or minute
    scheduled, served = Instant(minute * 1_000_000), Minute(at // 60 * 60)
    return Started(generations or (1,), run, cause, Instant(at * 1_000_000), scheduled, served, None, 0, OBLIGATION)


def ended(run: int, generation: int = 1, retry: int | None = None) -> Ended:
    failure = None if retry is None else FailedRun("no", None, Instant(retry * 1_000_000), 1)
    at = Instant(NOON * 1_000_000)
    return Ended((generation,), (run,), at, Cause.CRON, at, at, None, OBLIGATION, failure)


OBLIGATION = Obligation(Instant(NOON * 1_000_000), Instant(NOON * 1_000_000), 1)


def written(*changes: Started | Ended, refused: tuple[int, ...] = (), fenced: tuple[int, ...] = ()) -> Written:
    ends = tuple(each for each in changes if isinstance(each, Ended))
    starts = tuple(each for each in changes if isinstance(each, Started))
    return Written(ends, starts, None, refused, fenced)


def replayed(*contents: tuple[int, Content]) -> Replay:
    numbers = count(1)
    entries = [(1, DECLARED), *contents]
    return Replay.of(
        LogEntry(next(numbers), host, number, "n", Instant(0), content)
        for number, (host, content) in enumerate(entries, 1)
    )


def test_a_right_log_has_nothing_wrong() -> None:
    replay = replayed(
        (1, written(started(A + 1, 1, 2))),
        (1, written(ended(A + 1, 1), ended(A + 2, 2, retry=NOON + 20))),
        (2, written(started(B + 1, 2, cause=Cause.RETRY, at=NOON + 20))),
        (1, Buried(2)),
        (1, written(started(A + 3, 2, cause=Cause.INTERRUPTED, at=NOON + 30))),
        (1, written(started(A + 4, 1, minute=NOON + 60), started(A + 5, 2), refused=(2,))),
        (1, written(ended(A + 9), fenced=(A + 9,))),
    )
    assert (replay.wrongs, replay.served_twice) == ([], [])
    assert replay.runs == {A + 1, A + 2, B + 1, A + 3, A + 4}
    assert (replay.burials, replay.refused) == (1, 1)


@pytest.mark.parametrize(
    ("contents", "wrong"),
    [
        ([(1, written(started(A))), (2, written(started(B, minute=NOON + 60)))], "during run"),
        ([(1, written(started(A, cause=Cause.RETRY)))], "waits for no retry"),
        (
            [(1, written(started(A))), (1, written(ended(A, retry=NOON + 20), started(A + 1, cause=Cause.RETRY)))],
            "retry",
        ),
        ([(1, written(started(A, cause=Cause.INTERRUPTED)))], "not interrupted"),
        ([(1, written(started(B)))], "not a new one of its host"),
        ([(1, written(started(A), ended(A))), (1, written(started(A, minute=NOON + 60)))], "not a new one"),
        ([(1, written(started(A))), (2, written(ended(A)))], "ends run"),
        ([(1, written(ended(A)))], "ends run"),
        ([(2, Left()), (2, written())], "is gone"),
        ([(1, Buried(2)), (2, written())], "is gone"),
    ],
)
def test_a_wrong_entry_is_found(contents: list[tuple[int, Content]], wrong: str) -> None:
    assert any(wrong in each for each in replayed(*contents).wrongs)


def test_a_minute_that_is_served_twice_is_found() -> None:
    replay = replayed((1, written(started(A))), (1, written(ended(A))), (2, written(started(B))))
    assert (len(replay.served_twice), replay.wrongs) == (1, [])


def test_a_log_with_a_gap_is_found() -> None:
    entries = [LogEntry(seq, 1, seq, "n", Instant(0), DECLARED) for seq in (1, 3)]
    assert Replay.of(entries).wrongs == ["entry 3 follows entry 1"]
