"""Registrations by the thousand: kept in columns, read in steps."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.core import registration
from duly.core.registration import Registration, RunsOn, read_registrations
from duly.core.steps import STEP_TASKS, finish
from duly.errors import (
    CronExpressionInvalidError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationError,
    RegistrationShapeError,
    ScheduleDuplicateTaskError,
)
from tests.core.helpers import in_a_thread, on_the_loop

MINUTE = timedelta(minutes=1)


class Word(StrEnum):
    """A str that is more than a str."""

    MINUTELY = "* * * * *"


class Wait(timedelta):
    """A delay of a class of its own."""


def equal(number: int) -> tuple[Any, ...]:
    """One of many that differ in their names alone."""
    return f"t{number}", "* * * * *", on_the_loop, MINUTE


def read(items: Sequence[Any]) -> list[Registration]:
    """All of them together."""
    return list(finish(read_registrations(items)).singles())


def one_by_one(items: list[Any]) -> list[Registration]:
    """Each read by itself, so that nothing is known from one before it."""
    return [each for item in items for each in read([item])]


def test_checked_registrations_are_kept_in_columns() -> None:
    """All of them, one of them, and how many there are."""
    items = [(f"t{n}", "* * * * *", on_the_loop, timedelta(seconds=n)) for n in range(4)]
    checked = finish(read_registrations(items))
    singles = list(checked.singles())
    assert [(each.name, each.delay, each.runs_on) for each in singles] == [
        (f"t{n}", 1_000 * n, RunsOn.LOOP) for n in range(4)
    ]
    assert checked.count == 4
    assert [checked.single(index) for index in range(4)] == singles


def test_many_registrations_are_read_in_steps() -> None:
    """Architecture: others may run after every step of many tasks, not after each task."""

    class Taken(list[Any]):
        """Counts how many items have been taken."""

        taken = 0

        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            self.taken += len(found)
            return found

    items = Taken((f"t{n}", "* * * * *", on_the_loop, timedelta(0)) for n in range(10 * STEP_TASKS))
    progress = [items.taken for _ in read_registrations(items)]
    assert progress == [STEP_TASKS * step for step in range(1, 11)]


# --- among many equal ones -------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[object, type[RegistrationError]]] = {
    "no registration": (5, RegistrationShapeError),
    "five items": ((*equal(-1), 5), RegistrationShapeError),
    "three items": (equal(-1)[:3], RegistrationShapeError),
    "name": ((None, "* * * * *", on_the_loop, MINUTE), RegistrationShapeError),
    "cron": (("x", None, on_the_loop, MINUTE), RegistrationShapeError),
    "callback": (("x", "* * * * *", None, MINUTE), RegistrationShapeError),
    "delay": (("x", "* * * * *", on_the_loop, 60), RegistrationShapeError),
    "empty name": (("", "* * * * *", on_the_loop, MINUTE), InvalidRegistrationError),
    "NUL": (("x\0y", "* * * * *", on_the_loop, MINUTE), InvalidRegistrationError),
    "surrogate": (("x\ud800", "* * * * *", on_the_loop, MINUTE), InvalidRegistrationError),
    "name of the first": (equal(0), ScheduleDuplicateTaskError),
    "name of one in a step before": (equal(STEP_TASKS + 5), ScheduleDuplicateTaskError),
    "name of the one before": (equal(-2), ScheduleDuplicateTaskError),
    "bad cron": (("x", "* * * *", on_the_loop, MINUTE), CronExpressionInvalidError),
    "negative delay": (("x", "* * * * *", on_the_loop, -MINUTE), NegativeRetryDelayError),
}


@pytest.mark.parametrize(("item", "expected"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("index", [2 * STEP_TASKS + 1, 3 * STEP_TASKS - 2])
def test_a_fault_among_many_is_found_where_it_is(item: Any, expected: type[RegistrationError], index: int) -> None:
    """SPEC 1.4: left to right, each completely before the next; whatever is the matter with a later one."""
    items = [equal(number) for number in range(4 * STEP_TASKS)]
    items[index] = equal(index - 1) if item == equal(-2) else item
    items[-1] = ("", "", None, None)  # worse, but later
    with pytest.raises(expected) as caught:
        read(items)
    assert caught.value.details["registrationIndex"] == index
    assert read(items[:index]) == one_by_one(items[:index])


NEW: dict[str, Callable[[int], object]] = {
    "list": lambda number: [*equal(number)],
    "text beyond ASCII": lambda number: (f"ä🎉{number}", "* * * * *", on_the_loop, MINUTE),
    "cron": lambda number: (f"t{number}", f"{number % 60} 3 * * *", on_the_loop, MINUTE),
    "cron of a class of its own": lambda number: (f"t{number}", Word.MINUTELY, on_the_loop, MINUTE),
    "callback": lambda number: (f"t{number}", "* * * * *", in_a_thread, MINUTE),
    "delay": lambda number: (f"t{number}", "* * * * *", on_the_loop, timedelta(seconds=number)),
    "no delay": lambda number: (f"t{number}", "* * * * *", on_the_loop, timedelta(0)),
    "delay of a class of its own": lambda number: (f"t{number}", "* * * * *", on_the_loop, Wait(seconds=number)),
}


def test_items_without_anything_new_are_not_checked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Architecture: a million tasks have few expressions, delays and callbacks."""
    looked_at = []
    fields = registration._fields

    def counting(index: int, item: object) -> Any:
        looked_at.append(index)
        return fields(index, item)

    monkeypatch.setattr(registration, "_fields", counting)
    assert len(read([equal(number) for number in range(10 * STEP_TASKS)])) == 10 * STEP_TASKS
    assert looked_at == list(range(STEP_TASKS))  # the others say nothing new


@given(st.lists(st.tuples(st.sampled_from([equal, *NEW.values()]), st.integers(1, 2 * STEP_TASKS)), max_size=6))
def test_many_are_read_as_one_by_one(runs: list[tuple[Callable[[int], Any], int]]) -> None:
    """SPEC 1.4: what is known from others before is read faster, and not differently."""
    makers = [make for make, times in runs for _ in range(times)]
    items = [make(number) for number, make in enumerate(makers)]
    checked = read(items)
    assert checked == one_by_one(items)
    assert all(type(each.name) is type(each.expression.text) is str for each in checked)
