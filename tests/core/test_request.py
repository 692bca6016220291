"""A host's request to a shared store: values, and texts that any store can keep."""

import pytest

from duly.core.changes import Batch
from duly.core.moments import Instant, Minute
from duly.core.news import Changes, Ended, FailedRun, Started
from duly.core.request import TEXT_MAX, changes_of, storable
from duly.core.task import Cause, Correction, End
from tests.stores.contract import AT_NOON, DELAY, NOON, ended, start, task

MINUTE = Minute(NOON + 60)
AT = Instant(AT_NOON + 60_000_000)


def test_starts_are_asked_for_with_their_grounds() -> None:
    """SPEC 9.8: what a start consumes and leaves behind, without the task itself."""
    begun = start(task(4), 17, Instant(AT + 5))
    (started,) = changes_of(Batch.of([begun])).starts
    assert started == Started((4,), 17, Cause.CRON, Instant(AT + 5), AT, MINUTE, None, 0, begun.grounds.obligation)


def test_ends_are_asked_for_with_what_history_records() -> None:
    """SPEC 3.9: a success, and a failure with its texts and the retry that it arms."""
    first, second = start(task(1), 11, AT), start(task(2), 12, AT)
    over = Instant(AT + 9)
    success = ended(first, over)
    failure = ended(second, over, "ValueError: no\0")
    failure = End(*failure[:7], called_at=Instant(AT + 1), traceback="Traceback\0")
    asked = changes_of(Batch.of([success, failure]), on_record=3)
    common = (over, Cause.CRON, AT, AT)
    assert asked == Changes(
        ends=(
            Ended((1,), (11,), *common, None, first.grounds.obligation),
            Ended(
                (2,),
                (12,),
                *common,
                Instant(AT + 1),
                second.grounds.obligation,
                FailedRun("ValueError: no\\x00", "Traceback\\x00", Instant(over + 1_000 * DELAY), 1),
            ),
        ),
        running=1,
    )


def test_a_failure_without_a_traceback_has_none() -> None:
    """Such as that of a run that took too long."""
    (end,) = changes_of(Batch.of([ended(start(task(1), 1, AT), AT, "TimeoutError")])).ends
    assert end.failure == FailedRun("TimeoutError", None, Instant(AT + 1_000 * DELAY), 1)


def test_a_correction_is_asked_for_and_nothing_else_is() -> None:
    """SPEC 2.5: the store corrects by its own clock."""
    assert changes_of(Batch.of([Correction(AT, MINUTE)])) == Changes(correct=True)
    assert changes_of(Batch.of([])) == Changes(correct=False)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain ü", "plain ü"),
        ("a\0b", "a\\x00b"),
        ("a\ud800b", "a\\ud800b"),
        ("x" * TEXT_MAX, "x" * TEXT_MAX),
        ("x" * (TEXT_MAX + 1), "x" * (TEXT_MAX - 1) + "…"),
        ("\0" * (TEXT_MAX // 4), "\\x00" * (TEXT_MAX // 4)),
        ("\0" * (TEXT_MAX // 4) + "x", ("\\x00" * (TEXT_MAX // 4))[:-1] + "…"),
        ("\0" * TEXT_MAX, ("\\x00" * TEXT_MAX)[: TEXT_MAX - 1] + "…"),
    ],
    ids=["plain", "NUL", "surrogate", "longest", "too long", "longest escaped", "too long escaped", "only NUL"],
)
def test_a_text_is_kept_as_any_store_can_keep_it(text: str, kept: str) -> None:
    """SPEC 9.20: an error text that could never be stored would stop its host for ever."""
    assert storable(text) == kept
