"""Tasks enter the agenda, leave it, wait for a predecessor, and move between its queues."""

import pytest

from duly.core.agenda import Slots
from duly.core.registration import RunsOn
from duly.core.steps import finish
from duly.core.task import AwaitingRun, Withdrawn
from tests.core.agendas import LOOP, NOON, THREAD, after, agenda_of, end, fresh, names, retrying, serve
from tests.core.helpers import at, minute, task


def test_the_agenda_knows_who_is_in_it() -> None:
    agenda = agenda_of(a := fresh("a"), b := fresh("b", "0 3 * * *", runs_on=THREAD))
    assert (agenda.size, set(agenda.tasks())) == (2, {a, b})
    finish(agenda.leave([a]))
    assert (agenda.size, set(agenda.tasks())) == (1, {b})
    finish(agenda.leave([b]))
    assert (agenda.size, list(agenda.tasks())) == (0, [])


def test_a_task_that_left_owes_nothing() -> None:
    """SPEC 5.1, 5.3: neither its due minutes nor its retry, even if a due list or a timer still contains it."""
    gone, ripe, stays = fresh("gone"), retrying("ripe", "12:00:01"), fresh("stays")
    agenda = agenda_of(gone, ripe, stays)
    finish(agenda.queue_due(NOON))
    finish(agenda.leave([gone, ripe]))
    assert isinstance(gone.state, Withdrawn)
    assert gone.state.served_through == minute("2025-06-15T11:59")
    assert agenda.next_timer() is None
    assert names(serve(agenda, after(120))) == ["stays"]
    assert agenda.review(gone, after(120)) is False


def test_a_timer_of_a_task_that_left_finds_nothing() -> None:
    """SPEC 5.1: a pending retry is dropped with its declaration, the last of its expression too."""
    agenda = agenda_of(a := retrying("a", "12:00:01"))
    finish(agenda.leave([a]))
    assert serve(agenda, after(2)) == []


def test_who_enters_after_another_left_is_due_though_no_slot_was_free_meanwhile() -> None:
    """SPEC 3.10: still owed, not lost."""
    agenda = agenda_of(a := fresh("a"), fresh("b"), now=after(-5))
    assert serve(agenda, NOON, Slots(0)) == []
    finish(agenda.leave([a]))
    c = task("c", "* * * * *", AwaitingRun(minute("2025-06-15T12:00")))
    finish(agenda.enter([c], after(10)))
    assert serve(agenda, after(60), Slots(0)) == []
    assert names(serve(agenda, after(70))) == ["b", "c"]


def test_who_moves_while_no_slot_is_free_is_due_at_the_next_minute() -> None:
    """SPEC 3.10: once for a task that moves to the other queue and back."""
    agenda = agenda_of(a := fresh("a"), fresh("b"), now=after(-5))
    assert serve(agenda, NOON, Slots(0)) == []
    a.state = AwaitingRun(minute("2025-06-15T12:00"))
    agenda.change_queue([(a, THREAD)], after(10))
    agenda.change_queue([(a, LOOP)], after(11))
    assert serve(agenda, after(60), Slots(0)) == []
    assert names(serve(agenda, after(70))) == ["b", "a"]


def test_who_enters_after_another_moved_is_due_though_no_slot_was_free_meanwhile() -> None:
    """SPEC 3.10: the due list that waits since the minute before does not contain the new task."""
    agenda = agenda_of(a := fresh("a"), fresh("b"), now=after(-5))
    assert serve(agenda, NOON, Slots(0)) == []
    agenda.change_queue([(a, THREAD)], after(10))
    finish(agenda.enter([task("c", "* * * * *", AwaitingRun(minute("2025-06-15T12:00")))], after(20)))
    assert serve(agenda, after(60), Slots(0)) == []
    assert names(serve(agenda, after(70), Slots(None, 0))) == ["b", "c"]


def test_a_group_whose_tasks_all_left_is_forgotten_and_can_come_back() -> None:
    """SPEC 5.1: a task that is declared again later is new."""
    agenda = agenda_of(a := fresh("a", "5 12 * * *"))
    finish(agenda.leave([a]))
    finish(agenda.enter([fresh("b", "5 12 * * *")], after(60)))
    assert names(serve(agenda, after(300))) == ["b"]
    assert serve(agenda, after(301)) == []


def test_tasks_of_both_queues_of_one_group_can_leave_together() -> None:
    agenda = agenda_of(a := fresh("a"), b := fresh("b", runs_on=THREAD), c := fresh("c"))
    finish(agenda.leave([a, b, c]))
    assert agenda.size == 0
    assert serve(agenda, after(60)) == []


def test_a_running_task_can_leave() -> None:
    """SPEC 5.3: its run goes on, its end changes nothing here."""
    agenda = agenda_of(a := fresh("a"))
    serve(agenda, NOON)
    finish(agenda.leave([a]))
    assert isinstance(a.state, Withdrawn)
    assert agenda.review(a, after(70)) is False
    assert serve(agenda, after(120)) == []


def test_those_who_stay_keep_their_place_when_others_leave() -> None:
    """SPEC 3.8: during a re-initialisation the old registrations go on."""
    tasks = [fresh(f"t{n}") for n in range(6)]
    agenda = agenda_of(*tasks)
    serve(agenda, NOON, Slots(2))
    finish(agenda.leave([tasks[2], tasks[4]]))
    assert names(serve(agenda, after(1))) == ["t3", "t5"]
    assert names(serve(agenda, after(61))) == []


@pytest.mark.parametrize("in_one_state", [False, True])
def test_a_task_that_waits_for_a_predecessor_starts_when_that_has_ended(in_one_state: bool) -> None:
    """SPEC 5.3: the new one does not start until the run of the one it replaced ended."""
    a, b = fresh("a"), fresh("b")
    if in_one_state:
        b.state = a.state
    agenda = agenda_of(a, b)
    a.predecessor_runs = True
    assert names(serve(agenda, NOON)) == ["b"]
    assert serve(agenda, after(60)) == []
    a.predecessor_runs = False
    assert agenda.review(a, after(70)) is True
    (start,) = serve(agenda, after(70))
    assert (start.task, start.grounds.owed_since) == (a, NOON)


@pytest.mark.parametrize("runs_on", RunsOn)
def test_a_task_whose_callback_moved_elsewhere_starts_there(runs_on: RunsOn) -> None:
    """SPEC 4.2: the newest callbacks are used from the next start on, on the loop or in a thread."""
    other = THREAD if runs_on is LOOP else LOOP
    agenda = agenda_of(a := fresh("a", runs_on=runs_on), fresh("b", runs_on=runs_on))
    agenda.change_queue([(a, other)], NOON)
    assert a.runs_on is other
    started = serve(agenda, NOON, Slots(None, 0))
    assert names(started) == (["b"] if runs_on is LOOP else ["a"])
    assert len(serve(agenda, NOON, Slots(None, 1))) == 1
    assert serve(agenda, after(10)) == []


def test_a_task_whose_callback_moved_elsewhere_does_not_start_where_it_was() -> None:
    """SPEC 3.10: the due list that waits there was made before, and does not contain the task."""
    agenda = agenda_of(a := fresh("a"))
    agenda.change_queue([(a, THREAD)], NOON)
    assert serve(agenda, NOON, Slots(None, 0)) == []
    assert names(serve(agenda, NOON, Slots(None, 1))) == ["a"]


def test_a_ripe_retry_moves_with_its_task() -> None:
    """SPEC 4.6: nothing owed is forgotten, even if it waited for a slot of the other queue."""
    agenda = agenda_of(a := retrying("a", "11:59", runs_on=THREAD))
    assert serve(agenda, NOON, Slots(None, 0)) == []
    agenda.change_queue([(a, LOOP)], NOON)
    assert names(serve(agenda, NOON, Slots(None, 0))) == ["a"]


def test_a_task_that_moved_is_due_at_its_next_minute_too() -> None:
    agenda = agenda_of(a := fresh("a", "5 12 * * *"), fresh("b", "5 12 * * *"))
    agenda.change_queue([(a, THREAD)], after(10))
    assert sorted(names(serve(agenda, after(300)))) == ["a", "b"]
    end(agenda, a, after(301))
    agenda.change_queue([(a, LOOP)], after(302))
    assert names(serve(agenda, at("2025-06-16T12:05:00"))) == ["a"]
