"""Generations as spans, and what the values of the log say if nothing else is said."""

import pytest

from duly.core.news import Changes, Spans, Written, spans_of, within


@pytest.mark.parametrize(
    ("generations", "spans"),
    [
        ([], ()),
        ([7], ((7, 7),)),
        ([3, 1, 2], ((1, 3),)),
        ([9, 1, 8, 3, 2, 12], ((1, 3), (8, 9), (12, 12))),
        ([1, 3, 5], ((1, 1), (3, 3), (5, 5))),
    ],
)
def test_generations_and_their_spans_say_the_same(generations: list[int], spans: Spans) -> None:
    assert spans_of(generations) == spans
    assert list(within(spans)) == sorted(generations)


def test_changes_and_their_entry_in_the_log_change_nothing_unless_they_say_so() -> None:
    changes = Changes()
    assert (changes.ends, changes.starts, changes.correct, changes.notes, changes.running) == ((), (), False, (), 0)
    assert Written((), (), None, (), ()).running == 0
