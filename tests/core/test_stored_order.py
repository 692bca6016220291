"""Registrations that are found in the order in which their tasks are stored, beside those that are looked up."""

from datetime import UTC, timedelta
from itertools import count, groupby
from random import Random
from typing import Any

import pytest

from duly.core.record import EqualRows
from duly.core.registration import Registrations, read_registrations
from duly.core.resolution import Mark, Preserved, Resolution, resolve
from duly.core.steps import STEP_TASKS, finish
from duly.core.stored_order import StoredOrder
from duly.core.task import AwaitingRun, Interrupted, Task
from tests.core.helpers import at, in_a_thread, minute, on_the_loop, task

NOW = at("2025-06-15T12:00:30")
THIS = minute("2025-06-15T12:00")
SERVED = AwaitingRun(THIS, at("2025-06-15T12:00"), at("2025-06-15T12:00:01"))
CRONS = ["* * * * *", "0 3 * * *", "0 4 * * *"]


def declared_as(*items: tuple[str, str, int]) -> Registrations:
    return finish(
        read_registrations(
            [
                (name, cron, on_the_loop if index % 3 else in_a_thread, timedelta(milliseconds=delay_ms))
                for index, (name, cron, delay_ms) in enumerate(items)
            ]
        )
    )


def blocks_of(tasks: list[Task], longest: int = 1_000) -> list[EqualRows]:
    """Rows of tasks as a store returns them, as far as `StoredOrder` reads them."""
    blocks = []
    for (cron, delay), alike in groupby(tasks, lambda each: (each.expression.text, each.delay)):
        some = list(alike)
        for first in range(0, len(some), longest):
            part = some[first : first + longest]
            blocks.append(EqualRows([each.generation for each in part], [each.name for each in part], (cron, delay)))
    return blocks


def found_in_order(declared: Registrations, stored: list[Task], longest: int) -> tuple[dict[str, Task], Any, Any]:
    """Stored tasks that are left, those that were found, and the order."""
    order = finish(StoredOrder.of(declared))
    preserved, others, position = Preserved(declared), dict[str, Task](), 0
    for block in blocks_of(stored, longest):
        tasks = stored[position : position + len(block.names)]
        position += len(tasks)
        indices = order.find(block)
        if indices is None:
            others |= {each.name: each for each in tasks}
            continue
        for each, index in zip(tasks, indices, strict=True):
            preserved.extend([each], indices[:0] + type(indices)("Q", [index]), each.state)
    return others, preserved, order


def said(result: Resolution) -> dict[str, Any]:
    """The parts in which two resolutions of equal tasks must agree."""
    return {
        "preserved": {(task.name, registration.name) for task, registration in result.preserved.pairs()},
        "added": [(each.generation, each.name, each.expression.text, each.state) for each in result.added],
        "overridden": [(each.old.name, each.new.generation, each.dropped) for each in result.overridden],
        "orphaned": {(each.task.name, each.dropped) for each in result.orphaned},
        "interrupted": [each.name for each in result.interrupted],
        "marks": result.marks,
        "first": result.first_changed() if result.changes_tasks else None,
    }


def test_what_is_found_in_order_is_what_looking_up_finds() -> None:
    """SPEC 5.1: with registrations that are new, gone, changed and moved, and blocks of any length."""
    for seed in range(150):
        find_in_order(seed)


def find_in_order(seed: int) -> None:
    dice = Random(seed)
    items = [(f"t{number}", dice.choice(CRONS), dice.choice([1_000, 1_000, 2_000])) for number in range(40)]
    interrupted = Interrupted(THIS, at("2025-06-15T11:58"), None, None, None, 0, 1, NOW, None)  # type: ignore[arg-type]
    # Stored in the order in which an earlier resolve() numbered them.
    earlier = finish(resolve(declared_as(*items), {}, now=NOW, zone=UTC, new_generations=count(1).__next__))
    stored = [
        task(
            each.name,
            each.expression.text,
            interrupted if dice.random() < 0.2 else SERVED,
            delay_ms=each.delay,
            generation=each.generation,
        )
        for each in earlier.added
    ]
    changes = dice.choice([0, 0, 1, 1, 5, 40])
    for _ in range(changes):
        place = dice.randrange(len(items))
        kind = dice.choice(["new", "gone", "changed", "moved"])
        if kind == "new":
            items.insert(place, (f"new{len(items)}{place}{dice.random()}", dice.choice(CRONS), 1_000))
        elif kind == "gone" and len(items) > 1:
            del items[place]
        elif kind == "changed":
            items[place] = (items[place][0], dice.choice(CRONS), 3_000)
        else:
            items.insert(dice.randrange(len(items)), items.pop(place))
    declared = declared_as(*items)
    marks = {name: Mark(THIS, NOW) for name, *_ in items if dice.random() < 0.1}
    looked_up = finish(
        resolve(
            declared,
            {each.name: each for each in stored},
            now=NOW,
            zone=UTC,
            new_generations=count(100).__next__,
            marks=marks,
        )
    )
    others, preserved, order = found_in_order(declared, stored, dice.choice([1, 3, 1_000]))
    if not changes:
        assert not others
        assert preserved.count == len(items)
    in_order = finish(
        resolve(
            declared,
            others,
            now=NOW,
            zone=UTC,
            new_generations=count(100).__next__,
            marks=marks,
            order=order,
            preserved=preserved,
        )
    )
    assert said(in_order) == said(looked_up)


def test_one_change_leaves_the_other_expressions_in_order() -> None:
    """A new task in front of an expression's others costs a look-up of these, and of no more."""
    items = [(f"{cron}-{number}", cron, 1_000) for number in range(20) for cron in CRONS]
    stored = [task(*each[:2], SERVED) for each in sorted(items, key=lambda each: CRONS.index(each[1]))]
    declared = declared_as(("new", CRONS[1], 1_000), *items)
    order = finish(StoredOrder.of(declared))
    blocks = [EqualRows(range(20), block.names, (block.rest[0], 1_000)) for block in blocks_of(stored)]
    assert [order.find(block) is not None for block in blocks] == [True, False, True]
    assert [len(indices) for indices in order.remaining()] == [21]


@pytest.mark.parametrize(
    "rest", [("* * * * *", 2_000), ("0 9 * * *", 1_000), (None, 1_000), (5, 1_000), (["x"], 1_000)]
)
def test_rows_that_say_something_else_are_not_found(rest: tuple[Any, int]) -> None:
    """SPEC 5.5: whatever a damaged row holds, it is left to the check of records."""
    order = finish(StoredOrder.of(declared_as(("a", "* * * * *", 1_000))))
    assert order.find(EqualRows([1], ["a"], rest)) is None
    for names in ([b"a"], [None], ["b"], ["a", "a"], ["a", "b"]):
        assert order.find(EqualRows([1], names, ("* * * * *", 1_000))) is None
    assert order.find(EqualRows([1], ["a"], ("* * * * *", 1_000))) is not None
    assert order.find(EqualRows([1], ["a"], ("* * * * *", 1_000))) is None  # only once


def test_the_order_is_found_in_steps() -> None:
    """Architecture: a large initialize lets others work in between."""
    declared = declared_as(*((f"{number}", "* * * * *", 0) for number in range(3 * STEP_TASKS)))
    assert sum(1 for _ in StoredOrder.of(declared)) == 3
    order = finish(StoredOrder.of(declared))
    order.find(EqualRows(range(100), declared.names[:100], ("* * * * *", 0)))
    assert list(finish(order.flags())) == [1] * 100 + [0] * (3 * STEP_TASKS - 100)
