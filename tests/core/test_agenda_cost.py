"""The agenda costs what is due, not what exists: counted, never timed."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest

from duly.core import agenda as agenda_module
from duly.core import groups as group_module
from duly.core.agenda import Agenda, Slots, decide
from duly.core.moments import Instant
from duly.core.steps import STEP_TASKS, finish
from duly.core.task import newly_declared
from tests.core.agendas import NOON, THREAD, after, agenda_of, end, fresh, retrying, serve
from tests.core.helpers import minute, task


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the agenda asks what a task owes, and when an expression occurs."""
    calls: Counter[str] = Counter()

    def counting(module: ModuleType, name: str) -> Callable[..., Any]:
        original = getattr(module, name)

        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return original(*arguments)

        return call

    for module, name in (
        (agenda_module, "grounds_for"),
        (group_module, "latest_due"),
        (group_module, "next_due"),
    ):
        monkeypatch.setattr(module, name, counting(module, name))
    return calls


def evaluated(agenda: Agenda, now: Instant) -> int:
    """How many tasks are asked in one poll."""
    total = 0
    while True:
        finish(agenda.queue_due(now))
        decision = decide(agenda, now, Slots(), limit=1_000, first_run=1)
        if not decision.evaluated:
            return total
        total += decision.evaluated
        agenda.apply(decision, decision.starts)


@pytest.mark.parametrize("bystanders", [0, 3_000])
def test_a_poll_costs_what_is_due_not_what_exists(counted: Counter[str], bystanders: int) -> None:
    """Architecture: the cost of a poll follows what is due."""
    idle = [fresh(f"idle{n}", f"{n % 50} 3 * * *") for n in range(bystanders)]
    due = [fresh(f"due{n}", "5 12 * * *") for n in range(20)]
    agenda = agenda_of(*idle, *due, *(retrying(f"retry{n}", "12:05:00") for n in range(3)))
    counted.clear()
    assert evaluated(agenda, after(60)) == 0
    assert counted == {}
    assert evaluated(agenda, after(300)) == 23
    assert counted["grounds_for"] <= 23
    assert counted["latest_due"] <= 2  # one for each expression of the tasks that are asked
    assert counted["next_due"] <= 4


@pytest.mark.parametrize("size", [1, 2_000])
def test_occurrences_are_computed_once_for_all_tasks_of_an_expression(counted: Counter[str], size: int) -> None:
    """Architecture: latest and next once per distinct expression; tasks in one situation share an answer."""
    shared = newly_declared(minute("2025-06-15T12:00"))
    agenda = agenda_of(*(task(f"t{n}", "* * * * *", shared) for n in range(size)))
    entering = counted.copy()
    assert entering["latest_due"] <= 1
    assert 1 <= entering["next_due"] <= 2
    assert evaluated(agenda, NOON) == size
    assert 1 <= counted["grounds_for"] <= 1 + size // 1_000
    assert counted["latest_due"] <= 1


def test_an_end_costs_the_same_however_many_tasks_there_are(counted: Counter[str]) -> None:
    """Architecture: completing a run concerns its own task only."""
    agenda = agenda_of(a := fresh("a"), *(fresh(f"t{n}", f"{n % 50} 3 * * *") for n in range(1_000)))
    serve(agenda, NOON)
    counted.clear()
    end(agenda, a, after(10), failed=True)
    evaluated_at_the_retry = evaluated(agenda, after(15))
    assert evaluated_at_the_retry == 1
    assert sum(counted.values()) <= 3


def test_withdrawn_tasks_cost_nothing_any_more(counted: Counter[str]) -> None:
    """SPEC 5.1: orphaned tasks are gone."""
    agenda = agenda_of(
        a := fresh("a", "5 12 * * *"), b := fresh("b", "5 12 * * *", runs_on=THREAD), fresh("c", "0 3 * * *")
    )
    finish(agenda.leave([a, b]))
    counted.clear()
    assert evaluated(agenda, after(400)) == 0
    assert counted == {}


def test_a_timer_that_no_longer_counts_costs_nothing() -> None:
    """SPEC 3.5: the retry that a due minute took the place of."""
    agenda = agenda_of(retrying("a", "12:00:07", "0 12 * * *"))
    assert evaluated(agenda, NOON) == 1
    assert evaluated(agenda, after(7)) == 0


def test_a_rebuild_does_not_double_the_timers() -> None:
    """SPEC 2.5: however often the clock is set back, a ripe retry is one question."""
    agenda = agenda_of(retrying("a", "12:00:40"))
    for _ in range(5):
        finish(agenda.rebuild(after(20)))
    assert agenda.next_timer() == after(40)
    assert evaluated(agenda, after(40)) == 1


def test_entering_pauses_now_and_then() -> None:
    """SPEC 2.4: a million tasks enter in steps, and a step has more than a few of them."""
    agenda = Agenda(UTC)
    sizes = [agenda.size for _ in agenda.enter([fresh(f"t{n}") for n in range(1_000)], NOON)]
    steps = [later - earlier for earlier, later in pairwise([0, *sizes, 1_000])]
    assert max(steps) <= STEP_TASKS
    assert len(steps) <= 1_000 / STEP_TASKS + 2


def test_minutes_that_pass_with_nothing_due_cost_nothing(counted: Counter[str]) -> None:
    """SPEC 2.4: the loop wakes at every minute; SPEC 6.4: it observes every minute."""
    agenda = agenda_of(*(fresh(f"t{n}", f"{n % 50} 3 * * *") for n in range(1_000)))
    counted.clear()
    assert sum(evaluated(agenda, after(60 * n)) for n in range(1, 600)) == 0
    assert counted == {}
