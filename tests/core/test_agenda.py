"""The agenda: what is due, or ripe, is asked, in the order of its age; and everything else is left alone."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, tzinfo
from itertools import pairwise
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duly.core import agenda as agenda_module
from duly.core import group as group_module
from duly.core.agenda import Agenda, Slots, decide
from duly.core.batch import Starts
from duly.core.moments import Instant, Minute, as_datetime, begin, minute_of
from duly.core.registration import STEP_TASKS, Kind
from duly.core.task import (
    AwaitingRetry,
    AwaitingRun,
    Cause,
    Interrupted,
    Owed,
    Running,
    Start,
    Task,
    TaskState,
    Withdrawn,
    corrected,
    fail,
    grounds_for,
    newly_declared,
    succeed,
)
from tests.core.helpers import BERLIN, MINUTE, SECOND, at, minute, task

NOON = at("2025-06-15T12:00")
LOOP, THREAD = Kind.LOOP, Kind.THREAD


def through(steps: Iterator[object]) -> None:
    """Go through steps that let others work in between."""
    for _ in steps:
        pass


def agenda_of(*tasks: Task, now: Instant = NOON, zone: tzinfo = UTC) -> Agenda:
    agenda = Agenda(zone)
    through(agenda.enter(tasks, now))
    return agenda


def fresh(
    name: str, cron: str = "* * * * *", *, kind: Kind = LOOP, since: str = "12:00", delay_ms: int = 5_000
) -> Task:
    """A task that was declared at a time of 15 June 2025."""
    return task(name, cron, newly_declared(minute(f"2025-06-15T{since}")), kind=kind, delay_ms=delay_ms)


def retrying(name: str, when: str, cron: str = "0 3 * * *", *, kind: Kind = LOOP) -> Task:
    """A task that failed earlier today and is to be retried."""
    served, tried = minute("2025-06-15T11:58"), at("2025-06-15T11:58")
    return task(name, cron, AwaitingRetry(served, tried, None, tried, at(f"2025-06-15T{when}"), 1), kind=kind)


def serve(agenda: Agenda, now: Instant, slots: Slots = Slots(), *, limit: int = 1_000) -> list[Start]:  # noqa: B008
    """What the loop does at each look: notice, decide, apply, until there is nothing more to find."""
    started: list[Start] = []
    while True:
        agenda.notice(now)
        used = Counter(start.task.kind for start in started)
        left = Slots(
            None if slots.total is None else slots.total - len(started),
            None if slots.threads is None else slots.threads - used[THREAD],
        )
        decision = decide(agenda, now, left, limit=limit, first_run=1 + len(started))
        assert len(decision.starts) <= limit
        if not decision.evaluated:
            return started
        agenda.apply(decision, decision.starts)
        started += decision.starts


def names(starts: Iterable[Start]) -> list[str]:
    return [start.task.name for start in starts]


def end(agenda: Agenda, which: Task, now: Instant, *, failed: bool = False) -> bool:
    """A run ends: what the loop does when that is durable."""
    assert isinstance(which.state, Running)
    which.state = fail(which.state, now, which.delay) if failed else succeed(which.state, now)
    return agenda.review(which, now)


def after(seconds: float) -> Instant:
    return Instant(NOON + int(seconds * SECOND))


# --- deciding only reads ---------------------------------------------------------------------------------------------


def test_the_same_agenda_at_the_same_moment_gives_the_same_decision() -> None:
    """Architecture: `decide` only reads; the agenda changes only after the commit."""
    agenda = agenda_of(fresh("a"), fresh("b", kind=THREAD), retrying("c", "11:59:30"), retrying("d", "12:00:01"))
    agenda.notice(NOON)
    first = decide(agenda, NOON, Slots(), limit=10, first_run=1)
    second = decide(agenda, NOON, Slots(), limit=10, first_run=1)
    assert first == second
    assert names(first.starts) == ["c", "a", "b"]
    assert all(isinstance(each.state, AwaitingRun | AwaitingRetry) for each in agenda.tasks())


def test_a_decision_that_was_not_committed_is_taken_again() -> None:
    """SPEC 4.6: a store that refuses, or a stop that overtakes, loses nothing that is owed."""
    agenda = agenda_of(fresh("a"), fresh("b"))
    agenda.notice(NOON)
    decide(agenda, NOON, Slots(), limit=10, first_run=1)
    assert agenda.waiting
    assert names(serve(agenda, after(40))) == ["a", "b"]


def test_a_start_that_was_not_granted_does_not_run() -> None:
    """Store port: a start is a claim that may be refused."""
    agenda = agenda_of(a := fresh("a"), b := fresh("b"))
    agenda.notice(NOON)
    decision = decide(agenda, NOON, Slots(), limit=10, first_run=1)
    agenda.apply(decision, Starts(decision.starts[:1]))
    assert isinstance(a.state, Running)
    assert isinstance(b.state, AwaitingRun)


@pytest.mark.parametrize("in_one_state", [False, True])
def test_a_decision_carries_its_moment_and_counts_its_runs(in_one_state: bool) -> None:
    """SPEC 3.9: one clock sample; run numbers are consecutive, over all that starts together."""
    tasks = [fresh(f"t{n}", "* * * * *" if n % 2 else "0 12 * * *") for n in range(5)]
    for each in tasks if in_one_state else ():
        each.state = tasks[0].state
    agenda = agenda_of(*tasks)
    agenda.notice(after(7))
    decision = decide(agenda, after(7), Slots(), limit=10, first_run=41)
    assert decision.at == after(7)
    assert [start.run for start in decision.starts] == [41, 42, 43, 44, 45]
    assert {start.grounds.at for start in decision.starts} == {after(7)}


def test_tasks_in_one_situation_share_one_answer() -> None:
    """Task states are values: a tick of many tasks that start for the same reason is one statement."""
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
    """SPEC 3.1: every start raises the mark to its own minute."""
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


@pytest.mark.parametrize("looks", [(180,), (0, 180), (0, 60, 180), (60, 120, 180)])
def test_a_start_that_is_late_serves_the_minute_that_was_due(looks: tuple[int, ...]) -> None:
    """SPEC 3.2: whether nobody looked or no slot was free, what is reported is the due minute, not that of the look."""
    agenda = agenda_of(fresh("a", "0 * * * *", since="11:59"), now=after(-60))
    *without_slots, last = looks
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
    through(agenda.enter([fresh("b", "5 12 * * *")], after(60)))
    assert names(serve(agenda, after(300))) == ["a", "b"]


def test_what_enters_owing_something_is_queued_by_its_age() -> None:
    """SPEC 3.10: longest owed first; a restart's backlog included."""
    old, older = (
        task(name, "* * * * *", AwaitingRun(minute(f"2025-06-15T{mark}")))
        for name, mark in (("b", "11:30"), ("a", "10:00"))
    )
    agenda = agenda_of(fresh("c"), old, older)
    assert names(serve(agenda, NOON)) == ["a", "b", "c"]


@pytest.mark.parametrize(("mark", "owed"), [("11:59", True), ("12:00", False), ("12:01", False)])
def test_what_was_served_before_a_restart_is_not_owed_after_it(mark: str, owed: bool) -> None:
    """SPEC 3.1: an occurrence after the served mark, not at it."""
    a = task("a", "0 * * * *", AwaitingRun(minute(f"2025-06-15T{mark}"), NOON, NOON))
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
    """SPEC 6.3: the same when the search leaves the calendar while the agenda is in use."""
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
    """SPEC 2.4: the loop wakes earlier for retries, but not for those that a start has consumed."""
    agenda = agenda_of(
        a := retrying("a", "12:00:05", "0 12 * * *"), retrying("b", "12:00:20"), retrying("c", "12:00:40")
    )
    assert agenda.next_timer() == after(5)
    serve(agenda, NOON)
    assert isinstance(a.state, Running)
    assert agenda.next_timer() == after(20)


def cut_short(resume: str | None, retry: str | None = None) -> Interrupted:
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
    )


@pytest.mark.parametrize(
    ("state", "seconds", "cause"),
    [
        (cut_short("11:58:01"), 0, Cause.INTERRUPTED),
        (cut_short("12:00:31"), 31, Cause.INTERRUPTED),
        (cut_short(None, retry="12:00:12"), 12, Cause.RETRY),
        (cut_short(None, retry="11:00:00"), 0, Cause.RETRY),
        (cut_short(None), 600, Cause.CRON),
        (cut_short("12:11"), 600, Cause.CRON),
    ],
)
def test_an_interrupted_task_starts_when_it_is_owed(state: Interrupted, seconds: int, cause: Cause) -> None:
    """SPEC 3.7: at once, after its wait, with its retry, or at its next due minute."""
    agenda = agenda_of(task("a", "10 12 * * *", state))
    if seconds:
        assert serve(agenda, Instant(after(seconds) - 1)) == []
    (start,) = serve(agenda, after(seconds))
    assert start.grounds.cause is cause


# --- slots -----------------------------------------------------------------------------------------------------------


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
    """SPEC 3.10: a start is committed only when a slot of its kind is free."""
    agenda = agenda_of(*(fresh(f"{kind.value}{n}", kind=kind) for n in range(3) for kind in Kind))
    assert names(serve(agenda, NOON, Slots(None, 1))) == ["loop0", "loop1", "loop2", "thread0"]
    assert serve(agenda, after(1), Slots(None, 0)) == []
    assert names(serve(agenda, after(1), Slots(None, 5))) == ["thread1", "thread2"]


def test_slots_of_threads_are_counted_over_all_that_one_decision_starts() -> None:
    """SPEC 3.10: whatever starts on the loop before them, and in however many waves they come."""
    agenda = agenda_of(
        *(retrying(f"r{n}", "11:59:10") for n in range(2)),
        *(fresh(f"{cron[0]}{n}", cron, kind=THREAD) for cron in ("* * * * *", "0 12 * * *") for n in range(3)),
    )
    agenda.notice(NOON)
    decision = decide(agenda, NOON, Slots(None, 4), limit=100, first_run=1)
    assert names(decision.starts) == ["r0", "r1", "*0", "*1", "*2", "00"]


def test_the_longest_owed_comes_first_across_kinds() -> None:
    """SPEC 3.10: with one slot for all, age decides, whatever the kind."""
    agenda = agenda_of(
        retrying("r1", "11:59:10", kind=THREAD),
        retrying("r2", "11:59:20", kind=LOOP),
        retrying("r3", "11:59:30", kind=THREAD),
        fresh("due", kind=LOOP),
        task("old", "* * * * *", AwaitingRun(minute("2025-06-15T11:00")), kind=THREAD),
    )
    order = [names(serve(agenda, NOON, Slots(1, 1))) for _ in range(5)]
    assert order == [["old"], ["r1"], ["r2"], ["r3"], ["due"]]


@pytest.mark.parametrize("limit", [3, 1_000])
def test_the_longest_owed_comes_first_among_many_waves(limit: int) -> None:
    """SPEC 3.10: in whatever order they came, and however many of them one decision takes."""
    scrambled = [n * 17 % 40 for n in range(40)]
    agenda = agenda_of(*(retrying(f"t{n:02}", f"11:59:{n:02}") for n in scrambled))
    assert names(serve(agenda, NOON, limit=limit)) == [f"t{n:02}" for n in range(40)]


def test_a_kind_without_slots_does_not_hold_up_the_other() -> None:
    """SPEC 3.10: blocking work that fills its threads leaves the event loop free."""
    agenda = agenda_of(retrying("blocked", "11:59:10", kind=THREAD), fresh("free", kind=LOOP))
    assert names(serve(agenda, NOON, Slots(5, 0))) == ["free"]
    assert names(serve(agenda, after(1), Slots(5, 1))) == ["blocked"]


def test_a_task_that_was_served_while_its_wave_waited_takes_its_new_place() -> None:
    """SPEC 3.10: longest owed first. A wave is older than what a task in it may owe by now."""
    failed, ripe = at("2025-06-15T11:59:01"), at("2025-06-15T11:59:50")
    early = task("early", "* * * * *", AwaitingRetry(minute("2025-06-15T11:59"), failed, None, failed, ripe, 1))
    waits = fresh("waits")
    agenda = agenda_of(early, waits, retrying("between", "12:00:30"), now=after(-5))
    assert names(serve(agenda, after(10), Slots(1))) == ["early"]  # its retry is older than the due minute
    end(agenda, early, after(20))
    assert serve(agenda, after(90), Slots(0)) == []
    assert names(serve(agenda, after(90), Slots(2))) == ["waits", "between"]  # not early: owed since 12:01 only
    assert names(serve(agenda, after(90), Slots(1))) == ["early"]


def test_a_task_that_was_served_while_two_of_its_waves_waited_starts_once() -> None:
    """002 S1: its group's wave and its ripe retry both waited for a slot, and were both older than what it owes now."""
    first = task("first", "* * * * *", AwaitingRun(minute("2025-06-15T11:58")))
    twice = retrying("twice", "12:00", "* * * * *")
    agenda = agenda_of(first, twice, now=after(-60))
    assert names(serve(agenda, after(-60), Slots(1))) == ["first"]
    assert serve(agenda, NOON, Slots(0)) == []  # two more waves form, and wait
    assert names(serve(agenda, after(10), Slots(1))) == ["twice"]  # for 11:59
    end(agenda, twice, after(20))
    assert names(serve(agenda, after(90), Slots(5))) == ["twice"]  # for 12:01, and once


def test_several_waves_of_one_group_wait_in_line() -> None:
    """A wave half gone through keeps its place when the next minute comes."""
    tasks = [fresh(f"t{n}") for n in range(4)]
    agenda = agenda_of(*tasks)
    assert names(serve(agenda, NOON, Slots(2))) == ["t0", "t1"]
    end(agenda, tasks[0], after(30))
    assert names(serve(agenda, after(60), Slots(1))) == ["t2"]
    assert names(serve(agenda, after(61), Slots(1))) == ["t3"]
    assert names(serve(agenda, after(62), Slots(1))) == ["t0"]


def test_a_wave_that_nobody_has_touched_is_not_queued_twice() -> None:
    """Cost: minutes that pass while no slot is free do not pile up."""
    agenda = agenda_of(*(fresh(f"t{n}", "* * * * *", kind=THREAD) for n in range(10)))
    serve(agenda, NOON, Slots(None, 1))
    for n in range(1, 500):
        assert serve(agenda, after(60 * n), Slots(None, 0)) == []
    assert sum(1 for _ in agenda.in_order(THREAD)) <= 2


def test_a_task_in_several_waves_starts_once() -> None:
    """002 S1: due, ripe and interrupted at once, still one run."""
    state = AwaitingRetry(minute("2025-06-15T11:00"), NOON, None, NOON, at("2025-06-15T11:30:30"), 1)
    agenda = agenda_of(task("a", "* * * * *", state))
    agenda.review(next(agenda.tasks()), NOON)
    agenda.review(next(agenda.tasks()), NOON)
    agenda.notice(NOON)
    assert len(decide(agenda, NOON, Slots(), limit=10, first_run=1).starts) == 1
    assert len(serve(agenda, NOON)) == 1
    assert not agenda.waiting


def test_a_task_in_several_waves_behind_another_starts_once() -> None:
    """002 S1: the same where the oldest wave of its group is that of another."""
    older, a = (
        task(name, "* * * * *", AwaitingRun(minute(f"2025-06-15T{mark}")))
        for name, mark in (("older", "11:00"), ("a", "11:30"))
    )
    agenda = agenda_of(older, a)
    agenda.review(a, NOON)
    agenda.review(a, NOON)
    assert names(decide(agenda, NOON, Slots(), limit=10, first_run=1).starts) == ["older", "a"]


def test_a_decision_is_bounded_and_the_next_one_goes_on() -> None:
    """Architecture: chunks commit and launch one after the other."""
    agenda = agenda_of(*(fresh(f"t{n}") for n in range(25)))
    agenda.notice(NOON)
    sizes = []
    while (decision := decide(agenda, NOON, Slots(), limit=10, first_run=1)).evaluated:
        assert decision.evaluated <= 2 * 10
        sizes.append(len(decision.starts))
        agenda.apply(decision, decision.starts)
    assert sizes == [10, 10, 5]


@pytest.mark.parametrize("limit", [1, 10])
def test_a_decision_is_bounded_also_where_nothing_is_owed(limit: int) -> None:
    """Architecture: one decision is short, however many tasks of a wave still run."""
    tasks = [fresh(f"t{n}") for n in range(100)]
    agenda = agenda_of(*tasks)
    assert len(serve(agenda, NOON)) == 100
    agenda.notice(after(60))
    decision = decide(agenda, after(60), Slots(), limit=limit, first_run=1)
    assert decision.starts == []
    assert 0 < decision.evaluated <= 2 * limit


def test_a_decision_is_bounded_also_where_little_is_owed() -> None:
    """Architecture: the same while there are slots for fewer than a decision may start."""
    tasks = [fresh(f"t{n}") for n in range(100)]
    agenda = agenda_of(*tasks)
    assert len(serve(agenda, NOON)) == 100
    end(agenda, tasks[1], after(50))
    agenda.notice(after(60))
    decision = decide(agenda, after(60), Slots(3), limit=10, first_run=1)
    assert names(decision.starts) == ["t1"]
    assert decision.evaluated <= 20


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
    through(agenda.leave([crossed]))
    assert agenda.due_since(crossed, after(120)) is None
    assert agenda.due_since(beside, after(120)) == minute("2025-06-15T12:01")
    through(agenda.leave([beside]))
    assert agenda.due_since(beside, after(120)) is None


# --- who is in it ----------------------------------------------------------------------------------------------------


def test_the_agenda_knows_who_is_in_it() -> None:
    agenda = agenda_of(a := fresh("a"), b := fresh("b", "0 3 * * *", kind=THREAD))
    assert (agenda.size, set(agenda.tasks())) == (2, {a, b})
    through(agenda.leave([a]))
    assert (agenda.size, set(agenda.tasks())) == (1, {b})
    through(agenda.leave([b]))
    assert (agenda.size, list(agenda.tasks())) == (0, [])


def test_a_task_that_left_owes_nothing() -> None:
    """SPEC 5.1, 5.3: neither its due minutes nor its retry, also where a wave or a timer still names it."""
    gone, ripe, stays = fresh("gone"), retrying("ripe", "12:00:01"), fresh("stays")
    agenda = agenda_of(gone, ripe, stays)
    agenda.notice(NOON)
    through(agenda.leave([gone, ripe]))
    assert isinstance(gone.state, Withdrawn)
    assert gone.state.served_through == minute("2025-06-15T11:59")
    assert agenda.next_timer() is None
    assert names(serve(agenda, after(120))) == ["stays"]
    assert agenda.review(gone, after(120)) is False


def test_a_timer_of_a_task_that_left_finds_nothing() -> None:
    """SPEC 5.1: a pending retry is dropped with its declaration, the last of its expression too."""
    agenda = agenda_of(a := retrying("a", "12:00:01"))
    through(agenda.leave([a]))
    assert serve(agenda, after(2)) == []


def test_who_enters_after_another_left_is_due_though_no_slot_was_free_meanwhile() -> None:
    """SPEC 3.10: still owed, not lost."""
    agenda = agenda_of(a := fresh("a"), fresh("b"), now=after(-5))
    assert serve(agenda, NOON, Slots(0)) == []
    through(agenda.leave([a]))
    c = task("c", "* * * * *", AwaitingRun(minute("2025-06-15T12:00")))
    through(agenda.enter([c], after(10)))
    assert serve(agenda, after(60), Slots(0)) == []
    assert names(serve(agenda, after(70))) == ["b", "c"]


def test_who_moves_while_no_slot_is_free_is_due_at_the_next_minute() -> None:
    """SPEC 3.10: the same for a task that changes its kind and changes it back."""
    agenda = agenda_of(a := fresh("a"), fresh("b"), now=after(-5))
    assert serve(agenda, NOON, Slots(0)) == []
    a.state = AwaitingRun(minute("2025-06-15T12:00"))
    agenda.change_kind([(a, THREAD)], after(10))
    agenda.change_kind([(a, LOOP)], after(11))
    assert serve(agenda, after(60), Slots(0)) == []
    assert names(serve(agenda, after(70))) == ["b", "a"]


def test_who_enters_after_another_moved_is_due_though_no_slot_was_free_meanwhile() -> None:
    """SPEC 3.10: the wave that waits since the minute before does not know the newcomer."""
    agenda = agenda_of(a := fresh("a"), fresh("b"), now=after(-5))
    assert serve(agenda, NOON, Slots(0)) == []
    agenda.change_kind([(a, THREAD)], after(10))
    through(agenda.enter([task("c", "* * * * *", AwaitingRun(minute("2025-06-15T12:00")))], after(20)))
    assert serve(agenda, after(60), Slots(0)) == []
    assert names(serve(agenda, after(70), Slots(None, 0))) == ["b", "c"]


def test_a_group_whose_tasks_all_left_is_forgotten_and_can_come_back() -> None:
    """SPEC 5.1: declared again later it is new."""
    agenda = agenda_of(a := fresh("a", "5 12 * * *"))
    through(agenda.leave([a]))
    through(agenda.enter([fresh("b", "5 12 * * *")], after(60)))
    assert names(serve(agenda, after(300))) == ["b"]
    assert serve(agenda, after(301)) == []


def test_both_kinds_of_one_group_can_leave_together() -> None:
    agenda = agenda_of(a := fresh("a"), b := fresh("b", kind=THREAD), c := fresh("c"))
    through(agenda.leave([a, b, c]))
    assert agenda.size == 0
    assert serve(agenda, after(60)) == []


def test_a_running_task_can_leave() -> None:
    """SPEC 5.3: its run goes on, its end changes nothing here."""
    agenda = agenda_of(a := fresh("a"))
    serve(agenda, NOON)
    through(agenda.leave([a]))
    assert isinstance(a.state, Withdrawn)
    assert agenda.review(a, after(70)) is False
    assert serve(agenda, after(120)) == []


def test_those_who_stay_keep_their_place_when_others_leave() -> None:
    """SPEC 3.8: during a re-initialisation the old registrations go on."""
    tasks = [fresh(f"t{n}") for n in range(6)]
    agenda = agenda_of(*tasks)
    serve(agenda, NOON, Slots(2))
    through(agenda.leave([tasks[2], tasks[4]]))
    assert names(serve(agenda, after(1))) == ["t3", "t5"]
    assert names(serve(agenda, after(61))) == []


@pytest.mark.parametrize("in_one_state", [False, True])
def test_whoever_waits_for_a_predecessor_starts_when_that_has_ended(in_one_state: bool) -> None:
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


@pytest.mark.parametrize("kind", Kind)
def test_a_task_whose_callback_moved_elsewhere_starts_there(kind: Kind) -> None:
    """SPEC 4.2: the newest callbacks are used from the next start on, on the loop or in a thread."""
    other = THREAD if kind is LOOP else LOOP
    agenda = agenda_of(a := fresh("a", kind=kind), fresh("b", kind=kind))
    agenda.change_kind([(a, other)], NOON)
    assert a.kind is other
    started = serve(agenda, NOON, Slots(None, 0))
    assert names(started) == (["b"] if kind is LOOP else ["a"])
    assert len(serve(agenda, NOON, Slots(None, 1))) == 1
    assert serve(agenda, after(10)) == []


def test_a_task_whose_callback_moved_elsewhere_does_not_start_where_it_was() -> None:
    """SPEC 3.10: the wave that waits there was formed before, and knows nobody else."""
    agenda = agenda_of(a := fresh("a"))
    agenda.change_kind([(a, THREAD)], NOON)
    assert serve(agenda, NOON, Slots(None, 0)) == []
    assert names(serve(agenda, NOON, Slots(None, 1))) == ["a"]


def test_a_ripe_retry_moves_with_its_task() -> None:
    """SPEC 4.6: nothing owed is forgotten, also what waited for a slot of the other kind."""
    agenda = agenda_of(a := retrying("a", "11:59", kind=THREAD))
    assert serve(agenda, NOON, Slots(None, 0)) == []
    agenda.change_kind([(a, LOOP)], NOON)
    assert names(serve(agenda, NOON, Slots(None, 0))) == ["a"]


def test_a_task_that_moved_is_due_at_its_next_minute_too() -> None:
    agenda = agenda_of(a := fresh("a", "5 12 * * *"), fresh("b", "5 12 * * *"))
    agenda.change_kind([(a, THREAD)], after(10))
    assert sorted(names(serve(agenda, after(300)))) == ["a", "b"]
    end(agenda, a, after(301))
    agenda.change_kind([(a, LOOP)], after(302))
    assert names(serve(agenda, at("2025-06-16T12:05:00"))) == ["a"]


# --- a clock set back, a zone that changed ---------------------------------------------------------------------------


def correct(agenda: Agenda, back: Instant) -> bool:
    """Whether there was anything to correct."""
    too_far = [False, *agenda.too_far_ahead(back)]
    through(agenda.correct(back))
    return too_far[-1]


@pytest.mark.parametrize("work", [Agenda.too_far_ahead, Agenda.correct])
def test_others_have_their_turn_while_a_step_back_is_looked_at(
    work: Callable[[Agenda, Instant], Iterator[object]],
) -> None:
    """A million tasks are not gone through in one go."""
    agenda = agenda_of(*(fresh(f"t{n}") for n in range(3 * STEP_TASKS)))
    assert len(list(work(agenda, after(1)))) == 3


def test_after_a_small_step_back_a_task_is_silent_until_the_clock_passes_its_mark() -> None:
    """SPEC 2.5: as in a repeated DST hour."""
    agenda = agenda_of(a := fresh("a"))
    serve(agenda, NOON)
    end(agenda, a, after(1))
    back = Instant(NOON - 3_600 * SECOND)
    assert not correct(agenda, back)
    through(agenda.rebuild(back))
    assert serve(agenda, back) == []
    assert serve(agenda, NOON) == []
    assert names(serve(agenda, after(60))) == ["a"]


def test_after_a_large_step_back_marks_are_lowered_to_this_minute() -> None:
    """SPEC 2.5: a mark more than 3 hours ahead means that the clock was corrected."""
    agenda = agenda_of(a := fresh("a"), b := fresh("b", "0 3 * * *"))
    serve(agenda, NOON)
    end(agenda, a, after(1))
    back = at("2025-06-14T12:00:30")
    assert correct(agenda, back)
    assert a.state.served_through == minute("2025-06-14T12:00")
    assert b.state.served_through == minute("2025-06-14T11:59")  # never run: known since this minute
    assert not correct(agenda, back)
    through(agenda.rebuild(back))
    assert serve(agenda, back) == []
    assert names(serve(agenda, at("2025-06-14T12:01:00"))) == ["a"]


def test_after_a_step_back_a_retry_is_no_further_away_than_its_delay() -> None:
    """SPEC 2.5: and the timer follows it."""
    agenda = agenda_of(retrying("a", "12:00:05"))
    back = Instant(NOON - 7_200 * SECOND)
    assert correct(agenda, back)
    through(agenda.rebuild(back))
    assert agenda.next_timer() == back + 5 * SECOND
    assert names(serve(agenda, Instant(back + 5 * SECOND))) == ["a"]


def test_after_a_step_back_the_longest_owed_still_comes_first() -> None:
    """SPEC 3.10: a wave from before a task's mark does not let younger ones pass while the task waits its own turn."""
    a, b = fresh("a", "* * * * *", since="12:59"), fresh("b", "0-59 13 * * *", since="12:59")
    agenda = agenda_of(a, b)
    assert serve(agenda, after(90)) == []
    assert names(serve(agenda, after(3690), Slots(1))) == ["a"]
    assert names(serve(agenda, after(3691))) == ["b"]


def test_a_rebuild_keeps_everybody_and_all_that_is_owed() -> None:
    """SPEC 2.5: stepping back does not lose what waited for a slot."""
    agenda = agenda_of(fresh("a"), fresh("b", kind=THREAD), retrying("c", "11:59:00"), retrying("d", "12:00:40"))
    serve(agenda, after(30), Slots(0))
    through(agenda.rebuild(after(20)))
    assert agenda.size == 4
    assert names(serve(agenda, after(20))) == ["c", "a", "b"]
    assert agenda.next_timer() == after(40)


def test_in_another_zone_other_minutes_are_due() -> None:
    """SPEC 2.1: the host's zone; HostZoneChanged at a re-initialisation."""
    agenda = agenda_of(fresh("a", "30 17 * * *"))
    through(agenda.rebuild(NOON, zone=ZoneInfo("Asia/Kolkata")))
    assert agenda.zone == ZoneInfo("Asia/Kolkata")
    assert names(serve(agenda, NOON)) == ["a"]  # 17:30 there


def test_in_another_zone_the_next_due_minute_is_another_one() -> None:
    """SPEC 2.4: what the old zone would have waited for does not count any more."""
    agenda = agenda_of(fresh("a", "0 3 * * *"))
    assert agenda.next_due() == minute("2025-06-16T03:00")
    through(agenda.rebuild(NOON, zone=ZoneInfo("America/New_York")))
    assert agenda.next_due() == minute("2025-06-16T07:00")


def test_in_a_zone_of_odd_seconds_the_minute_is_another_one() -> None:
    """SPEC 2.1: an occurrence is an instant whose local second is 0."""
    now = at("1971-06-01T12:00:10")
    agenda = agenda_of(now=now)
    assert agenda.minute(now) == minute("1971-06-01T12:00")
    monrovia = ZoneInfo("Africa/Monrovia")  # -0:44:30
    through(agenda.rebuild(now, zone=monrovia))
    assert agenda.minute(now) == minute_of(now, monrovia) == minute("1971-06-01T11:59:30")


@pytest.mark.parametrize("moment", ["12:00:00", "12:00:59.999999", "12:01:00"])
def test_a_minute_ends_where_the_next_one_begins(moment: str) -> None:
    """SPEC 2.4: the loop wakes at every minute boundary at the latest."""
    now = at(f"2025-06-15T{moment}")
    assert agenda_of().minute_ends(now) == begin(minute_of(now, UTC)) + MINUTE


def test_the_next_due_minute_is_known() -> None:
    """SPEC 2.4: what lies before it need not be looked at."""
    agenda = Agenda(UTC)
    assert agenda.next_due() is None
    through(agenda.enter([fresh("a", "0 3 * * *"), fresh("b", "5 12 * * *")], NOON))
    assert agenda.next_due() == minute("2025-06-15T12:05")
    serve(agenda, after(300))
    assert agenda.next_due() == minute("2025-06-16T03:00")


def test_an_end_that_settles_during_a_rebuild_is_not_lost() -> None:
    """Rebuilding a million tasks is done in slices, and ends settle in between."""
    agenda = agenda_of(a := fresh("a"), b := fresh("b", "0-59 * * * *"))
    serve(agenda, NOON)
    steps = agenda.rebuild(after(70))
    assert end(agenda, b, after(70)) is False  # before its turn has come: nobody need be woken for it
    assert agenda.due_since(b, after(70)) is None  # unknown until then
    next(steps)
    end(agenda, a, after(70), failed=True)  # after it
    through(steps)
    assert sorted(names(serve(agenda, after(70)))) == ["a", "b"]


# --- cost ------------------------------------------------------------------------------------------------------------


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
        (group_module, "latest_until"),
        (group_module, "next_after"),
    ):
        monkeypatch.setattr(module, name, counting(module, name))
    return calls


def evaluated(agenda: Agenda, now: Instant) -> int:
    """How many tasks are asked in one look."""
    total = 0
    while True:
        agenda.notice(now)
        decision = decide(agenda, now, Slots(), limit=1_000, first_run=1)
        if not decision.evaluated:
            return total
        total += decision.evaluated
        agenda.apply(decision, decision.starts)


@pytest.mark.parametrize("bystanders", [0, 3_000])
def test_a_look_costs_what_is_due_not_what_exists(counted: Counter[str], bystanders: int) -> None:
    """Architecture: cost per wake-up follows what is due."""
    idle = [fresh(f"idle{n}", f"{n % 50} 3 * * *") for n in range(bystanders)]
    due = [fresh(f"due{n}", "5 12 * * *") for n in range(20)]
    agenda = agenda_of(*idle, *due, *(retrying(f"retry{n}", "12:05:00") for n in range(3)))
    counted.clear()
    assert evaluated(agenda, after(60)) == 0
    assert counted == {}
    assert evaluated(agenda, after(300)) == 23
    assert counted["grounds_for"] <= 23
    assert counted["latest_until"] <= 2  # one for each expression that somebody is asked about
    assert counted["next_after"] <= 4


@pytest.mark.parametrize("size", [1, 2_000])
def test_occurrences_are_computed_once_for_all_tasks_of_an_expression(counted: Counter[str], size: int) -> None:
    """Architecture: latest and next once per distinct expression; tasks in one situation share an answer."""
    shared = newly_declared(minute("2025-06-15T12:00"))
    agenda = agenda_of(*(task(f"t{n}", "* * * * *", shared) for n in range(size)))
    entering = counted.copy()
    assert entering["latest_until"] <= 1
    assert 1 <= entering["next_after"] <= 2
    assert evaluated(agenda, NOON) == size
    assert 1 <= counted["grounds_for"] <= 1 + size // 1_000
    assert counted["latest_until"] <= 1


def test_an_end_costs_the_same_however_many_tasks_there_are(counted: Counter[str]) -> None:
    """Architecture: completing a run looks at its own task."""
    agenda = agenda_of(a := fresh("a"), *(fresh(f"t{n}", f"{n % 50} 3 * * *") for n in range(1_000)))
    serve(agenda, NOON)
    counted.clear()
    end(agenda, a, after(10), failed=True)
    end_of_look = evaluated(agenda, after(15))
    assert end_of_look == 1
    assert sum(counted.values()) <= 3


def test_those_who_left_cost_nothing_any_more(counted: Counter[str]) -> None:
    """SPEC 5.1: orphaned tasks are gone."""
    agenda = agenda_of(
        a := fresh("a", "5 12 * * *"), b := fresh("b", "5 12 * * *", kind=THREAD), fresh("c", "0 3 * * *")
    )
    through(agenda.leave([a, b]))
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
        through(agenda.rebuild(after(20)))
    assert agenda.next_timer() == after(40)
    assert evaluated(agenda, after(40)) == 1


def test_entering_pauses_now_and_then() -> None:
    """SPEC 2.4: a million tasks may enter while others run, and neither wait for them for long nor pay for each."""
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


# --- against an agenda that asks everybody ---------------------------------------------------------------------------

CRONS = ("* * * * *", "0,30 * * * *", "0-59 2 * * *", "15 2 * * *", "0 3 * * *")
ZONES = (UTC, BERLIN)
STEPS = (0, 7, 30, 59, 60, 61, 90, 600, 1_800, 3_600)


class AskingEverybody(RuleBasedStateMachine):
    """The agenda against its definition: at each look, every task is asked what it owes, minute by minute."""

    def __init__(self) -> None:
        super().__init__()
        self.now = at("2025-10-25T23:58:30")  # an hour before Berlin repeats one
        self.zone: tzinfo = UTC
        self.agenda = Agenda(self.zone)
        self.tasks: dict[str, Task] = {}
        self.serial = 0

    # What happens.

    @initialize(zone=st.sampled_from(ZONES))
    def begin(self, zone: tzinfo) -> None:
        self.zone = zone
        self.agenda = Agenda(zone)

    @rule(
        crons=st.lists(st.sampled_from(CRONS), min_size=1, max_size=4),
        kind=st.sampled_from(Kind),
        delay=st.sampled_from([0, 5_000, 90_000, 7_200_000]),
        served=st.none() | st.integers(0, 120),
        retry=st.none() | st.integers(-300, 300),
        resume=st.none() | st.integers(-300, 120),
    )
    def enter(
        self, crons: list[str], kind: Kind, delay: int, served: int | None, retry: int | None, resume: int | None
    ) -> None:
        this = minute_of(self.now, self.zone)
        state: TaskState = newly_declared(this)
        if served is not None:  # it was stored, and has run
            mark = Minute(this - 60 * served)
            begun = min(begin(mark), self.now)
            ripe = None if retry is None else Instant(self.now + retry * SECOND)
            state = AwaitingRun(mark, begun, begun)
            if ripe is not None:
                state = AwaitingRetry(mark, begun, None, begun, ripe, 1)
            if resume is not None:
                state = Interrupted(mark, begun, None, begun, None, 1, 1, Instant(self.now + resume * SECOND))
            elif delay == 0:
                state = Interrupted(mark, begun, None, begun, ripe, 1, 1, None)
        self._enter([task("", cron, state, kind=kind, delay_ms=delay) for cron in crons])

    def _enter(self, tasks: list[Task]) -> None:
        for each in tasks:
            self.serial += 1
            each.name = f"t{self.serial}"
            self.tasks[each.name] = each
        through(self.agenda.enter(tasks, self.now))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(sorted(self.tasks)), unique=True, max_size=3))
        through(self.agenda.leave([self.tasks.pop(name) for name in gone]))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.tasks)), unique=True, max_size=3))
        moves = [(self.tasks[name], THREAD if self.tasks[name].kind is LOOP else LOOP) for name in chosen]
        self.agenda.change_kind(moves, self.now)

    @precondition(lambda self: any(isinstance(each.state, Running) for each in self.tasks.values()))
    @rule(data=st.data(), failed=st.booleans())
    def finish(self, data: st.DataObject, failed: bool) -> None:
        running = sorted(name for name, each in self.tasks.items() if isinstance(each.state, Running))
        for name in data.draw(st.lists(st.sampled_from(running), unique=True, min_size=1)):
            end(self.agenda, self.tasks[name], self.now, failed=failed)

    @rule(seconds=st.none() | st.sampled_from([60, 3_600, 86_400]), zone=st.sampled_from(ZONES))
    def upset(self, seconds: int | None, zone: tzinfo) -> None:
        """The clock is set back, or the host moves."""
        if seconds is None:
            self.zone = zone
            through(self.agenda.rebuild(self.now, zone=zone))
            return
        self.now = Instant(self.now - seconds * SECOND)
        this = minute_of(self.now, self.zone)
        expected = {name: corrected(each.state, self.now, this, each.delay) for name, each in self.tasks.items()}
        changed = any(expected[name] is not each.state for name, each in self.tasks.items())
        assert correct(self.agenda, self.now) == changed
        assert {name: each.state for name, each in self.tasks.items()} == expected
        through(self.agenda.rebuild(self.now))

    @rule(seconds=st.sampled_from(STEPS))
    def look_freely(self, seconds: int) -> None:
        self._look(seconds, Slots(), 100)
        assert not self.owing()
        timers = [
            ripe
            for each in self.tasks.values()
            for ripe in (getattr(each.state, "pending_retry_until", None), getattr(each.state, "resume_at", None))
            if ripe is not None and not isinstance(each.state, Running)
        ]
        assert self.agenda.next_timer() == min(timers, default=None)

    @rule(seconds=st.sampled_from(STEPS))
    def look_without_slots(self, seconds: int) -> None:
        self._look(seconds, Slots(0), 100)

    @rule(
        seconds=st.sampled_from(STEPS),
        total=st.none() | st.integers(1, 3),
        threads=st.none() | st.integers(0, 2),
        limit=st.sampled_from([1, 2, 100]),
    )
    def look_with_slots(self, seconds: int, total: int | None, threads: int | None, limit: int) -> None:
        self._look(seconds, Slots(total, threads), limit)

    def _look(self, seconds: int, slots: Slots, limit: int) -> None:
        self.now = Instant(self.now + seconds * SECOND)
        self.agenda.notice(self.now)
        first, second = (decide(self.agenda, self.now, slots, limit=limit, first_run=1) for _ in range(2))
        assert first == second
        expected = self.brute_force(slots)
        started = serve(self.agenda, self.now, slots, limit=limit)
        assert [start.grounds.owed_since for start in started] == [since for since, _ in expected]

    # What is expected.

    def owing(self) -> list[tuple[Instant, Kind]]:
        """Since when each task owes something, by asking all of them, minute by minute."""
        this = minute_of(self.now, self.zone)
        found = []
        for each in self.tasks.values():
            owed = occurrences(each, this, self.zone)
            grounds = grounds_for(each.state, owed, self.now, this)
            if grounds is not None:
                found.append((grounds.owed_since, each.kind))
        return sorted(found, key=lambda one: one[0])

    def brute_force(self, slots: Slots) -> list[tuple[Instant, Kind]]:
        """Longest owed first, while there are slots of its kind."""
        chosen: list[tuple[Instant, Kind]] = []
        threads = 0
        for since, kind in self.owing():
            if slots.total is not None and len(chosen) >= slots.total:
                break
            if kind is THREAD:
                if slots.threads is not None and threads >= slots.threads:
                    continue
                threads += 1
            chosen.append((since, kind))
        return chosen

    @invariant()
    def everybody_is_known(self) -> None:
        assert self.agenda.size == len(self.tasks)
        assert {each.name for each in self.agenda.tasks()} == set(self.tasks)


def occurrences(each: Task, this: Minute, zone: tzinfo) -> Owed | None:
    """The due minutes after the mark, found by looking at every one of them."""
    candidates = range(this, max(each.state.served_through, this - 3 * 86_400), -60)
    due = [second for second in candidates if each.expression.matches(as_datetime(second * SECOND, zone))]
    return Owed(Minute(due[-1]), Minute(due[0])) if due else None


TestAskingEverybody = pytest.mark.slow(AskingEverybody.TestCase)
TestAskingEverybody.settings = settings(max_examples=150, stateful_step_count=40)


def test_the_helpers_agree_with_the_expressions() -> None:
    """The brute force finds what there is: the repeated hour of Berlin counts once."""
    a = task("a", "15 2 * * *", AwaitingRun(minute("2025-10-25T12:00", BERLIN)))
    found = occurrences(a, minute("~2025-10-26T02:30", BERLIN), BERLIN)
    assert found == Owed(minute("2025-10-26T02:15", BERLIN), minute("2025-10-26T02:15", BERLIN))
