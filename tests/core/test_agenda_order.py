"""The agenda with few slots: the task that is owed for longest comes first, and a decision is bounded."""

import pytest

from duly.core.agenda import Slots, decide
from duly.core.registration import RunsOn
from duly.core.steps import finish
from duly.core.task import AwaitingRetry, AwaitingRun
from tests.core.agendas import LOOP, NOON, THREAD, after, agenda_of, end, fresh, names, retrying, serve
from tests.core.helpers import FIRST, at, minute, task


def test_slots_bound_what_starts_and_the_rest_stays_owed() -> None:
    """SPEC 3.10: at most max_concurrency at once; the rest wait their turn, not lost."""
    tasks = [fresh(f"t{n}") for n in range(5)]
    agenda = agenda_of(*tasks)
    assert names(serve(agenda, NOON, Slots(2))) == ["t0", "t1"]
    assert agenda.waiting
    assert serve(agenda, after(5), Slots(0)) == []
    assert serve(agenda, after(5), Slots(-1)) == []
    for each in tasks[:2]:
        end(agenda, each, after(10))
    assert names(serve(agenda, after(10), Slots(2))) == ["t2", "t3"]
    end(agenda, tasks[2], after(20))
    assert names(serve(agenda, after(20), Slots(1))) == ["t4"]
    assert not agenda.waiting


def test_threads_have_slots_of_their_own() -> None:
    """SPEC 3.10: a start is committed only when a slot of its queue is free."""
    agenda = agenda_of(*(fresh(f"{runs_on.value}{n}", runs_on=runs_on) for n in range(3) for runs_on in RunsOn))
    assert names(serve(agenda, NOON, Slots(None, 1))) == ["loop0", "loop1", "loop2", "thread0"]
    assert serve(agenda, after(1), Slots(None, 0)) == []
    assert names(serve(agenda, after(1), Slots(None, 5))) == ["thread1", "thread2"]


def test_slots_of_threads_are_counted_over_all_that_one_decision_starts() -> None:
    """SPEC 3.10: whatever starts on the loop before them, and however many due lists they are in."""
    agenda = agenda_of(
        *(retrying(f"r{n}", "11:59:10") for n in range(2)),
        *(fresh(f"{cron[0]}{n}", cron, runs_on=THREAD) for cron in ("* * * * *", "0 12 * * *") for n in range(3)),
    )
    finish(agenda.queue_due(NOON))
    decision = decide(agenda, NOON, Slots(None, 4), limit=100, first_run=1)
    assert names(decision.starts.singles()) == ["r0", "r1", "*0", "*1", "*2", "00"]


def test_the_longest_owed_comes_first_across_queues() -> None:
    """SPEC 3.10: with one slot for all, age decides, whatever the queue."""
    agenda = agenda_of(
        retrying("r1", "11:59:10", runs_on=THREAD),
        retrying("r2", "11:59:20", runs_on=LOOP),
        retrying("r3", "11:59:30", runs_on=THREAD),
        fresh("due", runs_on=LOOP),
        task("old", "* * * * *", AwaitingRun(minute("2025-06-15T11:00")), runs_on=THREAD),
    )
    order = [names(serve(agenda, NOON, Slots(1, 1))) for _ in range(5)]
    assert order == [["old"], ["r1"], ["r2"], ["r3"], ["due"]]


@pytest.mark.parametrize("limit", [3, 1_000])
def test_the_longest_owed_comes_first_among_many_due_lists(limit: int) -> None:
    """SPEC 3.10: in whatever order they came, and however many of them one decision takes."""
    scrambled = [n * 17 % 40 for n in range(40)]
    agenda = agenda_of(*(retrying(f"t{n:02}", f"11:59:{n:02}") for n in scrambled))
    assert names(serve(agenda, NOON, limit=limit)) == [f"t{n:02}" for n in range(40)]


def test_a_queue_without_slots_does_not_hold_up_the_other() -> None:
    """SPEC 3.10: blocking work that fills its threads leaves the event loop free."""
    agenda = agenda_of(retrying("blocked", "11:59:10", runs_on=THREAD), fresh("free", runs_on=LOOP))
    assert names(serve(agenda, NOON, Slots(5, 0))) == ["free"]
    assert names(serve(agenda, after(1), Slots(5, 1))) == ["blocked"]


def test_a_task_that_was_served_while_its_due_list_waited_takes_its_new_place() -> None:
    """SPEC 3.10: longest owed first. A due list is older than what a task in it may owe by now."""
    failed, ripe = at("2025-06-15T11:59:01"), at("2025-06-15T11:59:50")
    early = task("early", "* * * * *", AwaitingRetry(minute("2025-06-15T11:59"), failed, None, failed, ripe, 1, FIRST))
    waits = fresh("waits")
    agenda = agenda_of(early, waits, retrying("between", "12:00:30"), now=after(-5))
    assert names(serve(agenda, after(10), Slots(1))) == ["early"]  # its retry is older than the due minute
    end(agenda, early, after(20))
    assert serve(agenda, after(90), Slots(0)) == []
    assert names(serve(agenda, after(90), Slots(2))) == ["waits", "between"]  # not early: owed since 12:01 only
    assert names(serve(agenda, after(90), Slots(1))) == ["early"]


def test_a_decision_ends_before_those_who_are_owed_for_less_long_than_one_it_put_off() -> None:
    """SPEC 3.10: longest owed first; a decision that stopped early for that says so, and the next one goes on."""
    early, waits = retrying("early", "11:59:50", "* * * * *"), fresh("waits")
    agenda = agenda_of(early, waits, retrying("late", "12:01:10"), now=after(-5))
    assert names(serve(agenda, after(10), Slots(1))) == ["early"]
    end(agenda, early, after(20))
    finish(agenda.queue_due(after(90)))
    decision = decide(agenda, after(90), Slots(), limit=10, first_run=2)
    assert names(decision.starts.singles()) == ["waits"]  # early is owed since 12:01 only, and late still less long
    assert decision.stopped_early
    agenda.apply(decision, decision.starts)
    decision = decide(agenda, after(90), Slots(), limit=10, first_run=3)
    assert names(decision.starts.singles()) == ["early", "late"]
    assert not decision.stopped_early


def test_a_task_that_was_served_while_two_of_its_due_lists_waited_starts_once() -> None:
    """002 S1: its due minute and its ripe retry both waited for a slot, and both are older than what it owes now."""
    first = task("first", "* * * * *", AwaitingRun(minute("2025-06-15T11:58")))
    twice = retrying("twice", "12:00", "* * * * *")
    agenda = agenda_of(first, twice, now=after(-60))
    assert names(serve(agenda, after(-60), Slots(1))) == ["first"]
    assert serve(agenda, NOON, Slots(0)) == []  # two more due lists form, and wait
    assert names(serve(agenda, after(10), Slots(1))) == ["twice"]  # for 11:59
    end(agenda, twice, after(20))
    assert names(serve(agenda, after(90), Slots(5))) == ["twice"]  # for 12:01, and once


def test_several_due_lists_of_one_group_wait_in_line() -> None:
    """A due list that is half done keeps its place when the next minute comes."""
    tasks = [fresh(f"t{n}") for n in range(4)]
    agenda = agenda_of(*tasks)
    assert names(serve(agenda, NOON, Slots(2))) == ["t0", "t1"]
    end(agenda, tasks[0], after(30))
    assert names(serve(agenda, after(60), Slots(1))) == ["t2"]
    assert names(serve(agenda, after(61), Slots(1))) == ["t3"]
    assert names(serve(agenda, after(62), Slots(1))) == ["t0"]


def test_an_untouched_due_list_is_not_queued_twice() -> None:
    """Cost: minutes that pass while no slot is free do not pile up."""
    agenda = agenda_of(*(fresh(f"t{n}", "* * * * *", runs_on=THREAD) for n in range(10)))
    serve(agenda, NOON, Slots(None, 1))
    for n in range(1, 500):
        assert serve(agenda, after(60 * n), Slots(None, 0)) == []
    assert sum(1 for _ in agenda.due_lists(THREAD)) <= 2


def test_a_task_in_several_due_lists_starts_once() -> None:
    """002 S1: due, ripe and interrupted at once, still one run."""
    state = AwaitingRetry(minute("2025-06-15T11:00"), NOON, None, NOON, at("2025-06-15T11:30:30"), 1, FIRST)
    agenda = agenda_of(task("a", "* * * * *", state))
    agenda.review(next(agenda.tasks()), NOON)
    agenda.review(next(agenda.tasks()), NOON)
    finish(agenda.queue_due(NOON))
    assert decide(agenda, NOON, Slots(), limit=10, first_run=1).starts.count == 1
    assert len(serve(agenda, NOON)) == 1
    assert not agenda.waiting


def test_a_task_in_several_due_lists_behind_another_starts_once() -> None:
    """002 S1: even if the oldest due list of its group belongs to another task."""
    older, a = (
        task(name, "* * * * *", AwaitingRun(minute(f"2025-06-15T{served}")))
        for name, served in (("older", "11:00"), ("a", "11:30"))
    )
    agenda = agenda_of(older, a)
    agenda.review(a, NOON)
    agenda.review(a, NOON)
    assert names(decide(agenda, NOON, Slots(), limit=10, first_run=1).starts.singles()) == ["older", "a"]


def test_a_decision_is_bounded_and_the_next_one_goes_on() -> None:
    """Architecture: chunks commit and launch one after the other."""
    agenda = agenda_of(*(fresh(f"t{n}") for n in range(25)))
    finish(agenda.queue_due(NOON))
    sizes = []
    while (decision := decide(agenda, NOON, Slots(), limit=10, first_run=1)).evaluated:
        assert decision.evaluated <= 2 * 10
        sizes.append(decision.starts.count)
        agenda.apply(decision, decision.starts)
    assert sizes == [10, 10, 5]


@pytest.mark.parametrize("limit", [1, 10])
def test_a_decision_is_bounded_also_where_nothing_is_owed(limit: int) -> None:
    """Architecture: one decision is short, however many tasks of a due list still run."""
    tasks = [fresh(f"t{n}") for n in range(100)]
    agenda = agenda_of(*tasks)
    assert len(serve(agenda, NOON)) == 100
    finish(agenda.queue_due(after(60)))
    decision = decide(agenda, after(60), Slots(), limit=limit, first_run=1)
    assert decision.starts.count == 0
    assert 0 < decision.evaluated <= 2 * limit


def test_a_decision_is_bounded_also_where_little_is_owed() -> None:
    """Architecture: even if there are slots for fewer starts than a decision may have."""
    tasks = [fresh(f"t{n}") for n in range(100)]
    agenda = agenda_of(*tasks)
    assert len(serve(agenda, NOON)) == 100
    end(agenda, tasks[1], after(50))
    finish(agenda.queue_due(after(60)))
    decision = decide(agenda, after(60), Slots(3), limit=10, first_run=1)
    assert names(decision.starts.singles()) == ["t1"]
    assert decision.evaluated <= 20
