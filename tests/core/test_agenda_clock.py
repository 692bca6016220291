"""The agenda when the clock is set back, and when the zone changes."""

from collections.abc import Callable
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from duly.core.agenda import Agenda, Slots
from duly.core.moments import Instant, begin, minute_of
from duly.core.steps import STEP_TASKS, Steps, finish
from tests.core.agendas import NOON, THREAD, after, agenda_of, correct, end, fresh, names, retrying, serve
from tests.core.helpers import MINUTE, SECOND, at, minute


@pytest.mark.parametrize("work", [Agenda.too_far_ahead, Agenda.correct])
def test_states_are_examined_in_steps_after_the_clock_was_set_back(
    work: Callable[[Agenda, Instant], Steps[object]],
) -> None:
    """A million tasks are not gone through in one go."""
    agenda = agenda_of(*(fresh(f"t{n}") for n in range(3 * STEP_TASKS)))
    assert len(list(work(agenda, after(1)))) == 3


def test_after_a_small_step_back_a_task_is_silent_until_the_clock_passes_served_through() -> None:
    """SPEC 2.5: as in a repeated DST hour."""
    agenda = agenda_of(a := fresh("a"))
    serve(agenda, NOON)
    end(agenda, a, after(1))
    back = Instant(NOON - 3_600 * SECOND)
    assert not correct(agenda, back)
    finish(agenda.rebuild(back))
    assert serve(agenda, back) == []
    assert serve(agenda, NOON) == []
    assert names(serve(agenda, after(60))) == ["a"]


def test_after_a_large_step_back_served_through_is_lowered_to_this_minute() -> None:
    """SPEC 2.5: `served_through` more than 3 hours ahead means that the clock was set back."""
    agenda = agenda_of(a := fresh("a"), b := fresh("b", "0 3 * * *"))
    serve(agenda, NOON)
    end(agenda, a, after(1))
    back = at("2025-06-14T12:00:30")
    assert correct(agenda, back)
    assert a.state.served_through == minute("2025-06-14T12:00")
    assert b.state.served_through == minute("2025-06-14T11:59")  # never run: known since this minute
    assert not correct(agenda, back)
    finish(agenda.rebuild(back))
    assert serve(agenda, back) == []
    assert names(serve(agenda, at("2025-06-14T12:01:00"))) == ["a"]


def test_after_a_step_back_a_retry_is_no_further_away_than_its_delay() -> None:
    """SPEC 2.5: and the timer follows it."""
    agenda = agenda_of(retrying("a", "12:00:05"))
    back = Instant(NOON - 7_200 * SECOND)
    assert correct(agenda, back)
    finish(agenda.rebuild(back))
    assert agenda.next_timer() == back + 5 * SECOND
    assert names(serve(agenda, Instant(back + 5 * SECOND))) == ["a"]


def test_after_a_step_back_the_longest_owed_still_comes_first() -> None:
    """SPEC 3.10: a task is requeued as owed since later than its due list, and newer tasks do not pass it."""
    a, b = fresh("a", "* * * * *", since="12:59"), fresh("b", "0-59 13 * * *", since="12:59")
    agenda = agenda_of(a, b)
    assert serve(agenda, after(90)) == []
    assert names(serve(agenda, after(3690), Slots(1))) == ["a"]
    assert names(serve(agenda, after(3691))) == ["b"]


def test_a_rebuild_keeps_every_task_and_all_that_is_owed() -> None:
    """SPEC 2.5: stepping back does not lose what waited for a slot."""
    agenda = agenda_of(fresh("a"), fresh("b", runs_on=THREAD), retrying("c", "11:59:00"), retrying("d", "12:00:40"))
    serve(agenda, after(30), Slots(0))
    finish(agenda.rebuild(after(20)))
    assert agenda.size == 4
    assert names(serve(agenda, after(20))) == ["c", "a", "b"]
    assert agenda.next_timer() == after(40)


def test_in_another_zone_other_minutes_are_due() -> None:
    """SPEC 2.1: the host's zone; HostZoneChanged at a re-initialisation."""
    agenda = agenda_of(fresh("a", "30 17 * * *"))
    finish(agenda.rebuild(NOON, zone=ZoneInfo("Asia/Kolkata")))
    assert agenda.zone == ZoneInfo("Asia/Kolkata")
    assert names(serve(agenda, NOON)) == ["a"]  # 17:30 there


def test_in_another_zone_the_next_due_minute_is_another_one() -> None:
    """SPEC 2.4: what the old zone would have waited for does not count any more."""
    agenda = agenda_of(fresh("a", "0 3 * * *"))
    assert agenda.next_due() == minute("2025-06-16T03:00")
    finish(agenda.rebuild(NOON, zone=ZoneInfo("America/New_York")))
    assert agenda.next_due() == minute("2025-06-16T07:00")


def test_in_a_zone_of_odd_seconds_the_minute_is_another_one() -> None:
    """SPEC 2.1: an occurrence is an instant whose local second is 0."""
    now = at("1971-06-01T12:00:10")
    agenda = agenda_of(now=now)
    assert agenda.minute(now) == minute("1971-06-01T12:00")
    monrovia = ZoneInfo("Africa/Monrovia")  # -0:44:30
    finish(agenda.rebuild(now, zone=monrovia))
    assert agenda.minute(now) == minute_of(now, monrovia) == minute("1971-06-01T11:59:30")


@pytest.mark.parametrize("moment", ["12:00:00", "12:00:59.999999", "12:01:00"])
def test_a_minute_ends_where_the_next_one_begins(moment: str) -> None:
    """SPEC 2.4: the loop wakes at every minute boundary at the latest."""
    now = at(f"2025-06-15T{moment}")
    assert agenda_of().minute_ends(now) == begin(minute_of(now, UTC)) + MINUTE


def test_the_next_due_minute_is_known() -> None:
    """SPEC 2.4: no poll before it finds anything."""
    agenda = Agenda(UTC)
    assert agenda.next_due() is None
    finish(agenda.enter([fresh("a", "0 3 * * *"), fresh("b", "5 12 * * *")], NOON))
    assert agenda.next_due() == minute("2025-06-15T12:05")
    serve(agenda, after(300))
    assert agenda.next_due() == minute("2025-06-16T03:00")


def test_an_end_that_settles_during_a_rebuild_is_not_lost() -> None:
    """Rebuilding a million tasks is done in slices, and ends settle in between."""
    agenda = agenda_of(a := fresh("a"), b := fresh("b", "0-59 * * * *"))
    serve(agenda, NOON)
    steps = agenda.rebuild(after(70))
    assert end(agenda, b, after(70)) is False  # the rebuild has not come to it yet, so the loop is not woken for it
    assert agenda.due_since(b, after(70)) is None  # unknown until then
    next(steps)
    end(agenda, a, after(70), failed=True)  # after it
    finish(steps)
    assert sorted(names(serve(agenda, after(70)))) == ["a", "b"]
