"""What a first initialize() makes of stored rows: tasks, most of them with their registrations at once."""

from datetime import UTC, timedelta
from itertools import count
from random import Random
from typing import Any

import pytest

from duly.core.record import EqualRows, read_equal
from duly.core.registration import Registrations, read_registrations
from duly.core.resolution import NO_MARKS, resolve
from duly.core.steps import finish
from duly.core.task import AwaitingRun, Interrupted
from duly.engine.declare import Existing, Loading
from duly.errors import TaskInvalidTypeError, TaskInvalidValueError
from tests.core.helpers import at, on_the_loop

NOW = at("2025-06-15T12:00:30")
HOURLY, DAILY = "0 * * * *", "0 3 * * *"
SETTLED = (5, 60, None, None, None, None, 0, 0, None, None, None, 1, None, None, None)
CUT_SHORT = (5, 60, 50, None, None, None, 0, 0, 7, "cron", 40, 1, None, None, None)


def declared_as(*names: str, cron: str = HOURLY) -> Registrations:
    return finish(read_registrations([(name, cron, on_the_loop, timedelta(seconds=1)) for name in names]))


def rows(first: int, *names: Any, cron: str = HOURLY, state: tuple[Any, ...] = SETTLED) -> EqualRows:
    return EqualRows(range(first, first + len(names)), list(names), (cron, 1_000, *state))


def loaded(declared: Registrations, *records: EqualRows) -> Existing:
    return finish(Loading(declared, NO_MARKS, NOW, UTC, restart=True).load(records))


def test_tasks_that_are_declared_in_their_order_have_their_registrations_at_once() -> None:
    """SPEC 5.1: preserved; the name is the caller's own text, not a second copy."""
    declared = declared_as("task a", "task b", "task c")
    copies = [name.encode().decode() for name in declared.names]
    found = loaded(declared, rows(1, *copies[:2]), rows(3, copies[2], state=CUT_SHORT))
    assert not found.others
    assert found.count == 3
    assert found.preserved is not None
    assert [each.callback for each in found.tasks()] == 3 * [on_the_loop]
    assert [(each.generation, each.name) for each in found.tasks()] == [(1, "task a"), (2, "task b"), (3, "task c")]
    assert all(each.name is name for each, name in zip(found.tasks(), declared.names, strict=True))
    assert [type(each.state) for each in found.tasks()] == [AwaitingRun, AwaitingRun, Interrupted]
    assert [(index, each.name) for index, each in found.preserved.interrupted] == [(2, "task c")]


def test_a_name_that_is_found_in_its_order_and_elsewhere_again_appears_twice() -> None:
    """SPEC 5.5: the index of the store forbids it; a damaged one may not."""
    for records in (
        [rows(1, "a", "b"), rows(3, "a")],
        [rows(1, "a"), rows(2, "a", "b")],
        [rows(1, "x", "a"), rows(3, "a"), rows(4, "b")],
        [rows(1, "a", "b"), rows(3, "a", cron=DAILY)],
        [rows(1, "x"), rows(2, "a", "b"), rows(4, "x")],
    ):
        with pytest.raises(TaskInvalidValueError, match="appears twice"):
            loaded(declared_as("a", "b"), *records)


def test_the_first_bad_row_is_named_though_a_later_one_is_noticed_before_it() -> None:
    """SPEC 5.5: as a check row by row would name it."""
    records = [rows(1, "a", "b"), rows(3, "a", cron=DAILY), rows(4, "c", state=("x", *SETTLED[1:]))]
    with pytest.raises(TaskInvalidValueError, match="appears twice"):
        loaded(declared_as("a", "b", "c"), *records)
    with pytest.raises(TaskInvalidTypeError):
        loaded(declared_as("a", "b", "c"), records[0], records[2])


@pytest.mark.parametrize("seed", range(100))
def test_every_record_is_checked_as_it_is_without_registrations(seed: int) -> None:
    """SPEC 5.5: the error does not depend on what is declared."""
    dice = Random(seed)
    names: list[Any] = [f"t{number}" for number in range(12)]
    if dice.random() < 0.7:
        names[dice.randrange(12)] = dice.choice(["t3", "t8", "", None, 5, b"t3"])
    cuts = sorted(dice.sample(range(1, 12), 3))
    records = [
        rows(begin + 1, *names[begin:end], cron=dice.choice([HOURLY, DAILY]), state=dice.choice([SETTLED, CUT_SHORT]))
        for begin, end in zip([0, *cuts], [*cuts, 12], strict=True)
    ]
    if dice.random() < 0.3:
        records[dice.randrange(4)] = rows(1, "q", state=("x", *SETTLED[1:]))

    def raised(work: Any) -> tuple[type, str] | None:
        try:
            work()
        except Exception as error:
            return type(error), str(error)
        return None

    expected = raised(lambda: list(read_equal(records)))
    for declared in (declared_as(*(f"t{number}" for number in range(12))), declared_as("t8", "q"), declared_as()):
        assert raised(lambda declared=declared: loaded(declared, *records)) == expected


def test_what_is_left_is_resolved_as_before() -> None:
    """SPEC 5.1: new, overridden, orphaned, beside those that were found in their order."""
    declared = finish(
        read_registrations(
            [
                (name, cron, on_the_loop, timedelta(seconds=1))
                for name, cron in zip("anbc", (HOURLY, HOURLY, DAILY, DAILY), strict=True)
            ]
        )
    )
    found = loaded(declared, rows(1, "a", "b", "o"), rows(4, "c", cron=DAILY))
    result = finish(
        resolve(
            declared,
            found.others,
            now=NOW,
            zone=UTC,
            new_generations=count(9).__next__,
            order=found.order,
            preserved=found.preserved,
        )
    )
    assert {each.name for each in result.preserved.tasks} == {"a", "c"}
    assert [each.name for each in result.added] == ["n"]
    assert [each.new.name for each in result.overridden] == ["b"]
    assert [each.task.name for each in result.orphaned] == ["o"]
