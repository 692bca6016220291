"""SPEC 9.8: which part of what is due a host takes at once, and when it takes the rest."""

from datetime import UTC, timedelta

import pytest

from duly.core.agenda import Agenda, Slots, decide
from duly.core.cron import parse_cron
from duly.core.moments import Delay, Instant, Minute
from duly.core.registration import RunsOn
from duly.core.share import ALL, COURTESY_MAX, Share
from duly.core.steps import finish
from duly.core.task import AwaitingRun, Task

SECOND = 1_000_000
MINUTE = 60 * SECOND
NOON = Instant(int(timedelta(days=20_000, hours=12).total_seconds()) * SECOND)


async def nothing() -> None:
    """A callback that is never called here."""


def agenda_of(share: Share, tasks: int = 9, alike: int | None = None) -> Agenda:
    """An agenda with tasks that fall due at noon: all of one expression, or as many of each as are `alike`."""
    agenda = Agenda(UTC, share.me)
    agenda.share = share
    before = NOON - 30 * SECOND
    state = AwaitingRun(Minute(NOON // SECOND - 60))
    expressions = [parse_cron("* * * * *"), *(parse_cron(f"0,{minute} * * * *") for minute in range(1, 60))]
    made = [
        Task(n, f"task {n}", expressions[(n - 1) // (alike or tasks)], Delay(0), state, nothing, RunsOn.LOOP, 1)
        for n in range(1, tasks + 1)
    ]
    finish(agenda.enter(made, Instant(before)))
    return agenda


def starts(agenda: Agenda, at: int, at_most: int | None = None) -> list[int]:
    """The generations that start now, and then are running; with `at_most`, those of one short decision."""
    now = Instant(at)
    finish(agenda.queue_due(now))
    found: list[int] = []
    while (decision := decide(agenda, now, Slots(), limit=at_most or 100, first_run=1)).evaluated:
        agenda.apply(decision, decision.starts)
        found += [start.task.generation for start in decision.starts.singles()]
        if at_most is not None:
            break
    return found


@pytest.mark.parametrize(
    ("me", "first", "second", "third"),
    [(1, [1, 2, 3], [7, 8, 9], [4, 5, 6]), (2, [4, 5, 6], [1, 2, 3], [7, 8, 9]), (5, [7, 8, 9], [4, 5, 6], [1, 2, 3])],
)
def test_each_host_takes_its_own_part_at_once_and_the_others_in_turn(
    me: int, first: list[int], second: list[int], third: list[int]
) -> None:
    agenda = agenda_of(Share((1, 2, 5), me))
    assert starts(agenda, NOON) == first
    assert agenda.next_timer() == NOON + SECOND
    assert not agenda.has_ripe_share(Instant(NOON + SECOND - 1))
    assert agenda.has_ripe_share(Instant(NOON + SECOND))
    assert starts(agenda, NOON + SECOND) == second
    assert starts(agenda, NOON + 2 * SECOND) == third


def test_a_host_that_is_slow_goes_on_with_its_own_part_before_it_takes_those_of_others() -> None:
    """Else all hosts would be after the same tasks as soon as their courtesy is over, and most starts be refused."""
    agenda = agenda_of(Share((1, 2, 5), 2), tasks=90)
    assert starts(agenda, NOON, at_most=10) == list(range(31, 41))
    rest = starts(agenda, NOON + 2 * SECOND)
    assert rest[:20] == list(range(41, 61))
    assert sorted(rest[20:]) == [*range(1, 31), *range(61, 91)]


def test_together_the_first_parts_of_all_hosts_are_everything() -> None:
    for hosts in range(1, 8):
        keys = tuple(range(1, hosts + 1))
        taken = [generation for me in keys for generation in starts(agenda_of(Share(keys, me), tasks=23), NOON)]
        assert sorted(taken) == list(range(1, 24))


@pytest.mark.parametrize("hosts", [2, 3, 4, 5])
@pytest.mark.parametrize("alike", [1, 2, 3, 4, 7])
def test_of_many_short_lists_each_host_gets_as_many_tasks(hosts: int, alike: int) -> None:
    """Tasks of 60 expressions that are due together; all of them were declared, and so written, by host 1."""
    keys = tuple(range(1, hosts + 1))
    taken = [starts(agenda_of(Share(keys, me), tasks=60 * alike, alike=alike), NOON) for me in keys]
    assert sorted(generation for each in taken for generation in each) == list(range(1, 60 * alike + 1))
    assert {len(each) for each in taken} == {60 * alike // hosts}


@pytest.mark.parametrize("hosts", [1, 2, 3, 5, 8, 50])
def test_parts_end_where_the_list_divided_by_the_hosts_says(hosts: int) -> None:
    """Also where most hosts get nothing, because the list is short."""
    share = Share(tuple(range(1, hosts + 1)), 1)
    for length in range(20):
        for first in range(1, 2 * hosts + 1):
            shift = (first - 1) % hosts
            ends = [(length * place + shift) // hosts for place in range(hosts + 1)]
            wanted = {place: range(*ends[place : place + 2]) for place in range(hosts) if ends[place] < ends[place + 1]}
            assert {place: part for place, part, _ in share.parts(range(length), NOON, first)} == wanted


def test_minutes_that_pass_while_no_slot_is_free_do_not_pile_up() -> None:
    """A part that no decision has touched will ask all its tasks, whatever has fallen due since."""
    agenda = agenda_of(Share((1, 2, 5), 2))
    for minute in range(100):
        finish(agenda.queue_due(Instant(NOON + minute * MINUTE)))
        finish(agenda.queue_due(Instant(NOON + minute * MINUTE + 10 * SECOND)))
    assert sum(1 for _ in agenda.due_lists(RunsOn.LOOP)) == 3
    assert sorted(starts(agenda, NOON + 99 * MINUTE + 10 * SECOND)) == list(range(1, 10))
    assert not agenda.waiting


def test_a_part_that_was_touched_is_queued_again_with_the_next_minute() -> None:
    agenda = agenda_of(Share((1, 2, 5), 2), tasks=90)
    assert len(starts(agenda, NOON, at_most=10)) == 10
    for minute in range(1, 100):
        finish(agenda.queue_due(Instant(NOON + minute * MINUTE)))
    assert sum(1 for _ in agenda.due_lists(RunsOn.LOOP)) == 4  # its own, which was touched, and one of each


def test_other_hosts_and_other_tasks_make_other_parts() -> None:
    """Parts for hosts that are gone, or without a task that has come, do not stand for those of now."""
    agenda = agenda_of(Share((1, 2, 5), 2))
    finish(agenda.queue_due(NOON))
    agenda.share = Share((2, 5), 2)
    finish(agenda.queue_due(Instant(NOON + MINUTE)))
    late = Task(
        10, "late", parse_cron("* * * * *"), Delay(0), AwaitingRun(Minute(NOON // SECOND)), nothing, RunsOn.LOOP
    )
    finish(agenda.enter([late], Instant(NOON + MINUTE)))
    taken = starts(agenda, NOON + 2 * MINUTE) + starts(agenda, NOON + 2 * MINUTE + 5 * SECOND)
    assert sorted(taken) == list(range(1, 11))


def test_a_host_alone_takes_everything_at_once() -> None:
    assert starts(agenda_of(Share((3,), 3)), NOON) == starts(agenda_of(ALL), NOON) == list(range(1, 10))


def test_an_outdated_host_comes_after_all_others() -> None:
    agenda = agenda_of(Share((1, 2), 7))
    assert starts(agenda, NOON) == []
    assert agenda.next_timer() == NOON + COURTESY_MAX
    assert starts(agenda, NOON + COURTESY_MAX) == list(range(1, 10))


def test_no_host_waits_for_longer_than_five_seconds() -> None:
    keys = tuple(range(1, 21))
    agenda = agenda_of(Share(keys, 20), tasks=40)
    taken = starts(agenda, NOON) + starts(agenda, NOON + 5 * SECOND)
    assert sorted(taken) == list(range(1, 41))


def test_courtesy_counts_from_the_moment_at_which_the_host_joined() -> None:
    """A minute that fell due long before is not taken by every host that comes."""
    joined = Instant(NOON + 600 * SECOND)
    agenda = agenda_of(Share((1, 2), 2, since=joined))
    assert sorted(starts(agenda, joined)) == [5, 6, 7, 8, 9]
    assert starts(agenda, joined + SECOND - 1) == []
    assert starts(agenda, joined + SECOND) == [1, 2, 3, 4]


def test_a_single_task_is_first_the_host_s_that_wrote_it_last() -> None:
    share = Share((1, 2, 3), 2)
    assert share.turn(17, written_by=2, due=NOON) == NOON
    assert share.turn(17, written_by=1, due=NOON) == NOON + SECOND
    assert share.turn(17, written_by=3, due=NOON) == NOON + 2 * SECOND


def test_a_single_task_of_a_host_that_is_gone_is_any_host_s_by_its_generation() -> None:
    turns = {generation: Share((1, 2, 3), 2).turn(generation, written_by=9, due=NOON) for generation in (3, 4, 5)}
    assert sorted(turn - NOON for turn in turns.values()) == [0, SECOND, 2 * SECOND]
