"""The past-time formulas against reelay, an independent runtime-verification library, on random traces.

reelay reads another syntax and has its own algorithms; it knows nothing of registers. Its `since` and `pre` are our S
and Y, so S1, S2, S4, S5 and E2, with their registers written out, must come out the same at every position.
"""

import importlib.util
import random
from typing import Any

import pytest

from duly.formal.properties import BY_ID
from tests.conftest import require
from tests.formal.reference.formulas import Evaluation, Formula, read
from tests.formal.reference.unfold import instances, unfold
from tests.formal.story import story
from tests.formal.test_monitor_against_formulas import ONE_TASK, legal_story

reelay: Any = importlib.import_module("reelay") if importlib.util.find_spec("reelay") else None


@pytest.fixture(autouse=True)
def _reelay_is_there() -> None:
    require("reelay", "it is among the pinned requirements, but not every platform has a wheel of it")


def in_reelay(formula: Formula) -> str:
    """A past-time formula in reelay's syntax."""
    operands = [in_reelay(each) for each in formula.operands]
    match (formula.operator, operands):
        case ("¬", [a]):
            return f"(not {a})"
        case ("Y", [a]):
            return f"(pre {a})"
        case ("∧", [a, b]):
            return f"({a} and {b})"
        case ("∨", [a, b]):
            return f"({a} or {b})"
        case ("S", [a, b]):
            return f"({a} since {b})"
        case (letter, []):
            return f"{{{letter}}}"
        case _:
            raise AssertionError(f"{formula.operator} is not a past-time operator")


def letters_in(formula: Formula) -> set[str]:
    if not formula.operands:
        return {formula.operator}
    return set().union(*map(letters_in, formula.operands))


def by_reelay(formula: Formula, trace: list[frozenset[str]]) -> list[bool]:
    monitor = reelay.discrete_timed_monitor(pattern=in_reelay(formula), condense=False)
    letters = letters_in(formula)
    return [monitor.update({letter: letter in position for letter in letters})["value"] for position in trace]


@pytest.mark.parametrize("property_id", ["S1", "S2", "S4", "S5", "E2"])
def test_an_independent_monitor_agrees_at_every_position(property_id: str) -> None:
    """The formulas' values, not only their verdicts, on traces with and without mistakes."""
    chance = random.Random(property_id)
    seen: set[bool] = set()
    for number in range(8):
        if number % 2:
            events = legal_story(chance, 40, wrong=0.1)
        else:
            events = story("IS IE Due RS " + " ".join(chance.choices(ONE_TASK, k=30)))
        trace: list[frozenset[str]] = [*unfold(events, "x")]
        for text in list(instances(BY_ID[property_id].formula, events, "x"))[:2]:
            always = read(text[2:-1])  # what stands under the outermost G
            ours = Evaluation(trace).at(always)
            assert by_reelay(always, trace) == ours
            seen.update(ours)
    assert seen == {True, False}  # both happened: the comparison can fail
