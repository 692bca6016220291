"""Registrations by the thousand: kept in columns, read in steps."""

from datetime import timedelta
from itertools import pairwise

from duly.core.registration import STEP_TASKS, Kind, Registrations, read_registrations, reading_registrations
from tests.core.helpers import on_the_loop


def test_checked_registrations_read_like_a_list() -> None:
    """They are kept in columns."""
    items = [(f"t{n}", "* * * * *", on_the_loop, timedelta(seconds=n)) for n in range(4)]
    checked = read_registrations(items)
    singles = list(checked)
    assert [(each.name, each.delay, each.kind) for each in singles] == [
        (f"t{n}", 1_000 * n, Kind.LOOP) for n in range(4)
    ]
    assert len(checked) == 4
    assert (checked[1], checked[-1], checked[1:3]) == (singles[1], singles[-1], singles[1:3])


def test_many_registrations_are_read_in_steps() -> None:
    """Architecture: others have their turn in between, after so many tasks, and not after each."""
    items = [(f"t{n}", "* * * * *", on_the_loop, timedelta(0)) for n in range(10 * STEP_TASKS)]
    checked = Registrations()
    progress = [len(checked) for _ in reading_registrations(items, checked)]
    assert all(later - earlier == STEP_TASKS for earlier, later in pairwise(progress))
    assert len(progress) == 10
    assert len(checked) == len(items)
