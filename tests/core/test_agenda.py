"""The agenda: what is due, or ripe, is asked, and everything else is left alone."""

from dataclasses import replace
from datetime import UTC

import pytest

from duly.core.agenda import Agenda, Slots, decide
from duly.core.changes import Starts
from duly.core.moments import Instant, as_datetime
from duly.core.steps import finish
from duly.core.task import AwaitingRetry, AwaitingRun, Cause, Interrupted, Obligation, Running, newly_declared
from tests.core.agendas import NOON, THREAD, after, agenda_of, end, fresh, names, retrying, serve
from tests.core.helpers import BERLIN, MINUTE, at, minute, task

# --- deciding only reads ---------------------------------------------------------------------------------------------


def test_the_same_agenda_at_the_same_moment_gives_the_same_decision() -> None:
    """Architecture: `decide` only reads; the agenda changes only after the commit."""
    agenda = agenda_of(fresh("a"), fresh("b", runs_on=THREAD), retrying("c", "11:59:30"), retrying("d", "12:00:01"))
    finish(agenda.queue_due(NOON))
    first = decide(agenda, NOON, Slots(), limit=10, first_run=1)
    second = decide(agenda, NOON, Slots(), limit=10, first_run=1)
    assert list(first.starts.singles()) == list(second.starts.singles())
    assert replace(first, starts=second.starts) == second
    assert names(first.starts.singles()) == ["c", "a", "b"]
    assert all(isinstance(each.state, AwaitingRun | AwaitingRetry) for each in agenda.tasks())


def test_a_decision_that_was_not_committed_is_taken_again() -> None:
    """SPEC 4.6: a store that refuses, or a stop that overtakes, loses nothing that is owed."""
    agenda = agenda_of(fresh("a"), fresh("b"))
    finish(agenda.queue_due(NOON))
    decide(agenda, NOON, Slots(), limit=10, first_run=1)
    assert agenda.waiting
    assert names(serve(agenda, after(40))) == ["a", "b"]


def test_a_start_that_was_not_granted_does_not_run() -> None:
    """Store port: a start is a claim that may be refused."""
    agenda = agenda_of(a := fresh("a"), b := fresh("b"))
    finish(agenda.queue_due(NOON))
    decision = decide(agenda, NOON, Slots(), limit=10, first_run=1)
    agenda.apply(decision, Starts([next(decision.starts.singles())]))
    assert isinstance(a.state, Running)
    assert isinstance(b.state, AwaitingRun)


def test_a_start_is_written_by_the_scheduler_whose_agenda_it_is() -> None:
    """SPEC 5.4: a record names the scheduler that last wrote it; a task that does not start keeps the one before."""
    agenda = Agenda(UTC, scheduler_key=7)
    finish(agenda.enter([starts := fresh("a"), waits := fresh("b", "0 13 * * *")], NOON))
    starts.written_by = waits.written_by = 3
    assert names(serve(agenda, NOON)) == ["a"]
    assert (starts.written_by, waits.written_by) == (7, 3)
    finish((other := Agenda(UTC)).enter([starts := fresh("a")], NOON))
    serve(other, NOON)
    assert starts.written_by == 0


@pytest.mark.parametrize("in_one_state", [False, True])
def test_a_decision_carries_its_moment_and_counts_its_runs(in_one_state: bool) -> None:
    """SPEC 3.9: one clock sample; run numbers are consecutive, over all that starts together."""
    tasks = [fresh(f"t{n}", "* * * * *" if n % 2 else "0 12 * * *") for n in range(5)]
    for each in tasks if in_one_state else ():
        each.state = tasks[0].state
    agenda = agenda_of(*tasks)
    finish(agenda.queue_due(after(7)))
    decision = decide(agenda, after(7), Slots(), limit=10, first_run=41)
    assert decision.at == after(7)
    assert [start.run for start in decision.starts.singles()] == [41, 42, 43, 44, 45]
    assert {start.grounds.at for start in decision.starts.singles()} == {after(7)}


def test_tasks_in_one_situation_share_one_answer() -> None:
    """Task states are values: many tasks that start for the same reason are written by one statement."""
    shared = newly_declared(minute("2025-06-15T12:00"))
    agenda = agenda_of(*(task(f"t{n}", "* * * * *", shared) for n in range(10)))
    assert len({id(start.grounds) for start in serve(agenda, NOON)}) == 1


# --- due minutes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "owes_now"), [("* * * * *", True), ("0 12 * * *", True), ("1 12 * * *", False), ("59 11 * * *", False)]
)
def test_a_new_task_starts_if_this_minute_matches(cron: str, owes_now: bool) -> None:
    """SPEC 3.1, 000 first start-up: occurrences before its registration are not owed."""
    assert bool(serve(agenda_of(fresh("a", cron), now=after(30)), after(30))) is owes_now


def test_each_due_minute_starts_a_task_once() -> None:
    """SPEC 3.1: every start raises `served_through` to its own minute."""
    agenda = agenda_of(a := fresh("a"))
    starts = []
    for second in range(0, 300, 10):
        for start in serve(agenda, after(second)):
            starts.append(second)
            assert start.task is a
            end(agenda, a, after(second + 1))
    assert starts == [0, 60, 120, 180, 240]


def test_however_many_minutes_were_missed_one_start_serves_them_all() -> None:
    """SPEC 3.2."""
    agenda = agenda_of(a := fresh("a"))
    (start,) = serve(agenda, after(3_600 * 5 + 30))
    assert (start.grounds.owed_since, start.grounds.scheduled) == (NOON, after(3_600 * 5))
    end(agenda, a, after(3_600 * 5 + 31))
    assert serve(agenda, after(3_600 * 5 + 59)) == []
    assert names(serve(agenda, after(3_600 * 5 + 60))) == ["a"]


@pytest.mark.parametrize("polls", [(180,), (0, 180), (0, 60, 180), (60, 120, 180)])
def test_a_start_that_is_late_serves_the_minute_that_was_due(polls: tuple[int, ...]) -> None:
    """SPEC 3.2: whether nothing polled or no slot was free, the due minute is reported, not the minute of the poll."""
    agenda = agenda_of(fresh("a", "0 * * * *", since="11:59"), now=after(-60))
    *without_slots, last = polls
    for seconds in without_slots:
        assert serve(agenda, after(seconds), Slots(0)) == []
    (start,) = serve(agenda, after(last))
    assert (start.grounds.owed_since, start.grounds.scheduled) == (NOON, NOON)


def test_a_minute_that_falls_due_inside_a_run_is_owed_when_it_ends() -> None:
    """SPEC 3.3: and starts then, at once."""
    agenda = agenda_of(a := fresh("a"))
    serve(agenda, NOON)
    assert serve(agenda, after(60)) == []
    assert end(agenda, a, after(75.5)) is True
    (start,) = serve(agenda, after(75.5))
    assert start.grounds.scheduled == after(60)
    assert end(agenda, a, after(76)) is False


def test_tasks_of_one_expression_start_together_whenever_they_entered() -> None:
    agenda = agenda_of(fresh("a", "5 12 * * *"))
    finish(agenda.enter([fresh("b", "5 12 * * *")], after(60)))
    assert names(serve(agenda, after(300))) == ["a", "b"]


def test_what_enters_owing_something_is_queued_by_its_age() -> None:
    """SPEC 3.10: longest owed first; a restart's backlog included."""
    old, older = (
        task(name, "* * * * *", AwaitingRun(minute(f"2025-06-15T{served}")))
        for name, served in (("b", "11:30"), ("a", "10:00"))
    )
    agenda = agenda_of(fresh("c"), old, older)
    assert names(serve(agenda, NOON)) == ["a", "b", "c"]


@pytest.mark.parametrize(("served", "owed"), [("11:59", True), ("12:00", False), ("12:01", False)])
def test_what_was_served_before_a_restart_is_not_owed_after_it(served: str, owed: bool) -> None:
    """SPEC 3.1: an occurrence after `served_through`, not at it."""
    a = task("a", "0 * * * *", AwaitingRun(minute(f"2025-06-15T{served}"), NOON, NOON))
    agenda = agenda_of(a, now=after(200))
    assert bool(agenda.due_since(a, after(200))) is owed
    assert bool(serve(agenda, after(200))) is owed


def test_nothing_is_due_beyond_the_end_of_the_calendar() -> None:
    """SPEC 6.3: the search leaves the calendar, the agenda does not."""
    now = at("9999-12-31T12:00:00")
    agenda = agenda_of(task("a", "0 3 * * *", newly_declared(minute("9999-12-31T12:00"))), now=now)
    assert serve(agenda, now) == []
    assert serve(agenda, at("9999-12-31T23:59:59")) == []


def test_after_its_last_minute_in_the_calendar_a_task_is_silent() -> None:
    """SPEC 6.3: even if the search leaves the calendar while the agenda is in use."""
    agenda = agenda_of(
        a := task("a", "0 23 * * *", newly_declared(minute("9999-12-31T12:00"))), now=at("9999-12-31T12:00")
    )
    assert names(serve(agenda, at("9999-12-31T23:00"))) == ["a"]
    assert end(agenda, a, at("9999-12-31T23:00:01")) is False
    assert serve(agenda, at("9999-12-31T23:59:59")) == []


def test_the_repeated_hour_counts_once() -> None:
    """SPEC 2.3: a wall-clock minute that occurs twice is due at its first occurrence only."""
    begun = at("2025-10-26T01:59", BERLIN)
    agenda = agenda_of(
        a := task("a", "* * * * *", newly_declared(minute("2025-10-26T01:59", BERLIN))), now=begun, zone=BERLIN
    )
    started = []
    for n in range(183):
        now = Instant(begun + n * MINUTE)
        for start in serve(agenda, now):
            started.append(as_datetime(start.grounds.at, BERLIN))
            end(agenda, a, now)
    assert [each.fold for each in started] == [0] * len(started)
    walls = [each.strftime("%H:%M") for each in started]
    assert walls[:2] == ["01:59", "02:00"]
    assert walls[60:63] == ["02:59", "03:00", "03:01"]


# --- retries and resumptions -----------------------------------------------------------------------------------------


def test_a_retry_starts_when_it_is_ripe_to_the_microsecond() -> None:
    """SPEC 3.4: with sub-second timing."""
    agenda = agenda_of(retrying("a", "12:00:07.250000"))
    assert agenda.next_timer() == after(7.25)
    assert serve(agenda, Instant(after(7.25) - 1)) == []
    (start,) = serve(agenda, after(7.25))
    assert (start.grounds.cause, start.grounds.scheduled) == (Cause.RETRY, after(7.25))
    assert agenda.next_timer() is None


def test_a_failure_arms_a_retry_and_a_success_clears_it() -> None:
    """SPEC 3.4."""
    agenda = agenda_of(a := fresh("a", "0 12 * * *"))
    serve(agenda, NOON)
    assert end(agenda, a, after(1), failed=True) is False
    assert agenda.next_timer() == after(6)
    serve(agenda, after(6))
    end(agenda, a, after(7))
    assert agenda.next_timer() is None
    assert serve(agenda, after(3_600)) == []


def test_a_due_minute_takes_the_place_of_the_retry() -> None:
    """SPEC 3.5: one run; the timer of the retry that was preempted finds nothing."""
    agenda = agenda_of(a := retrying("a", "12:00:07", "0 12 * * *"))
    (start,) = serve(agenda, NOON)
    assert start.grounds.preempts_retry
    end(agenda, a, after(3))
    assert serve(agenda, after(30)) == []


def test_the_next_timer_is_the_earliest_that_still_counts() -> None:
    """SPEC 2.4: the loop wakes earlier for retries, but not for a retry that a start has served."""
    agenda = agenda_of(
        a := retrying("a", "12:00:05", "0 12 * * *"), retrying("b", "12:00:20"), retrying("c", "12:00:40")
    )
    assert agenda.next_timer() == after(5)
    serve(agenda, NOON)
    assert isinstance(a.state, Running)
    assert agenda.next_timer() == after(20)


def interrupted(resume: str | None, retry: str | None = None) -> Interrupted:
    started = at("2025-06-15T11:58:01")
    return Interrupted(
        minute("2025-06-15T11:58"),
        started,
        None,
        started if retry else None,
        at(f"2025-06-15T{retry}") if retry else None,
        1 if retry else 0,
        1,
        at(f"2025-06-15T{resume}") if resume else None,
        Obligation(started, started, 1),
    )


@pytest.mark.parametrize(
    ("state", "seconds", "cause"),
    [
        (interrupted("11:58:01"), 0, Cause.INTERRUPTED),
        (interrupted("12:00:31"), 31, Cause.INTERRUPTED),
        (interrupted(None, retry="12:00:12"), 12, Cause.RETRY),
        (interrupted(None, retry="11:00:00"), 0, Cause.RETRY),
        (interrupted(None), 600, Cause.CRON),
        (interrupted("12:11"), 600, Cause.CRON),
    ],
)
def test_an_interrupted_task_starts_when_it_is_owed(state: Interrupted, seconds: int, cause: Cause) -> None:
    """SPEC 3.7: at once, after its wait, with its retry, or at its next due minute."""
    agenda = agenda_of(task("a", "10 12 * * *", state))
    if seconds:
        assert serve(agenda, Instant(after(seconds) - 1)) == []
    (start,) = serve(agenda, after(seconds))
    assert start.grounds.cause is cause


# --- overdue ---------------------------------------------------------------------------------------------------------


def test_a_due_minute_that_a_running_task_crosses_is_known() -> None:
    """TaskRunOverdue: the first minute that it has not served, whether it runs or waits."""
    crossed, other, beside = fresh("a"), fresh("b", "30 12 * * *"), fresh("c")
    agenda = agenda_of(crossed, other, beside)
    serve(agenda, NOON)
    assert [agenda.due_since(crossed, after(seconds)) for seconds in (59, 60, 120)] == [
        None,
        minute("2025-06-15T12:01"),
        minute("2025-06-15T12:01"),
    ]
    assert agenda.due_since(other, after(120)) is None
    finish(agenda.leave([crossed]))
    assert agenda.due_since(crossed, after(120)) is None
    assert agenda.due_since(beside, after(120)) == minute("2025-06-15T12:01")
    finish(agenda.leave([beside]))
    assert agenda.due_since(beside, after(120)) is None
