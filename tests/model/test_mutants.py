"""Mistakes put into the core, each of which the search must find: a search that finds nothing proves nothing.

Each replaces one function of the core, or one method of the agenda, by one with a plausible mistake in it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from duly.core import agenda as agenda_module
from duly.core import resolution, task
from duly.core.agenda import Agenda, Decision
from duly.core.changes import Starts
from duly.core.moments import LAST_INSTANT, Delay, Instant, Minute, after
from duly.core.registration import Registrations
from duly.core.resolution import Resolution
from duly.core.steps import Steps
from duly.core.task import (
    AwaitingRetry,
    AwaitingRun,
    Cause,
    Grounds,
    Interrupted,
    Owed,
    Running,
    Task,
    TaskState,
)
from duly.engine import runner, settle
from tests.counts import share
from tests.model import world
from tests.model.search import Found, Search
from tests.model.words import Instance

SMALL = Instance(sets=("x", "x'", ""), fails="x", neglect_max=1)
Patch = pytest.MonkeyPatch


def starts_while_running(patch: Patch) -> None:
    right = task.grounds_for

    def grounds_for(state: TaskState, owed: Owed | None, now: Instant, minute: Minute) -> Grounds | None:
        return right(AwaitingRun(state.served_through) if isinstance(state, Running) else state, owed, now, minute)

    patch.setattr(agenda_module, "grounds_for", grounds_for)


def the_mark_is_not_raised(patch: Patch) -> None:
    right = task.begin_run
    patch.setattr(
        task,
        "begin_run",
        lambda state, *given: replace(right(state, *given), served_through=state.served_through),
    )


def a_start_forgets_the_retry_it_took_the_place_of(patch: Patch) -> None:
    right = task.begin_run
    patch.setattr(task, "begin_run", lambda *given: replace(right(*given), pending_retry_until=None, failures=0))


def a_start_forgets_the_interruptions_before_it(patch: Patch) -> None:
    right = task.begin_run
    patch.setattr(task, "begin_run", lambda *given: replace(right(*given), interruptions=0))


def a_failure_is_not_remembered(patch: Patch) -> None:
    right = task.fail
    _fails(patch, lambda run, at, delay: replace(right(run, at, delay), pending_retry_until=LAST_INSTANT))


def a_failure_is_retried_at_once(patch: Patch) -> None:
    right = task.fail
    _fails(patch, lambda run, at, delay: right(run, at, Delay(0)))


def _fails(patch: Patch, fail: Callable[[Running, Instant, Delay], AwaitingRetry]) -> None:
    """Patches both places: where an end is recorded, and where it is settled."""
    for module in (runner, settle):
        patch.setattr(module, "fail", fail)


def the_first_minute_is_not_owed(patch: Patch) -> None:
    patch.setattr(resolution, "newly_declared", lambda minute, mark=None: AwaitingRun(max(minute, mark or minute)))


def minutes_before_the_first_are_owed(patch: Patch) -> None:
    patch.setattr(resolution, "newly_declared", lambda minute, mark=None: AwaitingRun(mark or Minute(minute - 86_400)))


def an_override_serves_this_minute_again(patch: Patch) -> None:
    right = task.newly_declared
    patch.setattr(resolution, "newly_declared", lambda minute, mark=None: right(minute))


def a_removed_name_is_forgotten(patch: Patch) -> None:
    def resolve(declared: Registrations, stored: dict[str, Task], **given: Any) -> Steps[Resolution]:
        return right(declared, stored, **{**given, "marks": {}})

    right = resolution.resolve
    patch.setattr(world, "resolve", resolve)


def an_interrupted_run_has_failed(patch: Patch) -> None:
    def interrupt(run: Running, now: Instant, delay: Delay, *, restart: bool) -> AwaitingRetry:
        return task.fail(run, now, delay)

    patch.setattr(world, "interrupt", interrupt)


def an_interrupted_run_keeps_its_retry_too(patch: Patch) -> None:
    right = task.interrupt

    def interrupt(run: Running, now: Instant, delay: Delay, *, restart: bool) -> Interrupted:
        return replace(right(run, now, delay, restart=restart), pending_retry_until=run.pending_retry_until)

    patch.setattr(world, "interrupt", interrupt)


def an_interrupted_run_never_has_to_rest(patch: Patch) -> None:
    patch.setattr(task, "CRASH_LOOP_DELAY", Delay(0))
    right = task.interrupt

    def interrupt(run: Running, now: Instant, delay: Delay, *, restart: bool) -> Interrupted:
        return right(replace(run, interruptions=0), now, delay, restart=restart)

    patch.setattr(world, "interrupt", interrupt)


def an_override_keeps_what_was_owed(patch: Patch) -> None:
    right = resolution.resolve

    def resolve(declared: Registrations, stored: dict[str, Task], **given: Any) -> Steps[Resolution]:
        result = yield from right(declared, stored, **given)
        for each in result.overridden:
            if isinstance(each.old_state, AwaitingRetry):
                each.new.state = each.old_state
        return result

    patch.setattr(world, "resolve", resolve)


def a_removed_task_stays(patch: Patch) -> None:
    def leave(agenda: Agenda, tasks: object) -> Steps[None]:
        yield

    patch.setattr(Agenda, "leave", leave)


def a_retry_holds_up_cron(patch: Patch) -> None:
    right = task.obligation

    def obligation(state: TaskState, owed: Owed | None, now: Instant) -> Cause | None:
        if isinstance(state, AwaitingRetry) and state.pending_retry_until > now:
            return None
        return right(state, owed, now)

    patch.setattr(task, "obligation", obligation)


def a_retry_is_ripe_a_delay_too_early(patch: Patch) -> None:
    right = task.obligation

    def obligation(state: TaskState, owed: Owed | None, now: Instant) -> Cause | None:
        return right(state, owed, after(now, Delay(1_800_000)) if isinstance(state, AwaitingRetry) else now)

    patch.setattr(task, "obligation", obligation)
    patch.setattr(Agenda, "_arm", lambda agenda, each: agenda._queue(each.runs_on, Instant(0), _due_list(agenda, each)))


def _due_list(agenda: Agenda, each: Task) -> agenda_module.DueList:
    return agenda_module.DueList((each,), agenda._groups[each.expression.text])


def nobody_watches_the_timers(patch: Patch) -> None:
    patch.setattr(Agenda, "_arm", lambda agenda, each: None)


def what_fell_due_inside_a_run_is_not_looked_for(patch: Patch) -> None:
    patch.setattr(Agenda, "review", lambda agenda, each, now: False)


def a_due_list_stays_untouched_for_ever(patch: Patch) -> None:
    right = Agenda.apply

    def apply(agenda: Agenda, decision: Decision, granted: Starts) -> None:
        untouched = {group: dict(group.untouched) for group in agenda._groups.values()}
        right(agenda, decision, granted)
        for group, due_lists in untouched.items():
            group.untouched = due_lists

    patch.setattr(Agenda, "apply", apply)


def nobody_waits_for_a_predecessor(patch: Patch) -> None:
    patch.setattr(settle.ReplacedRuns, "adopt", lambda self, tasks: None)


MUTANTS: dict[Callable[[Patch], None], set[str]] = {
    starts_while_running: {"decision"},
    the_mark_is_not_raised: {"decision"},
    a_start_forgets_the_retry_it_took_the_place_of: {"decision"},
    a_start_forgets_the_interruptions_before_it: {"decision"},
    a_failure_is_not_remembered: {"decision"},
    a_failure_is_retried_at_once: {"decision"},
    the_first_minute_is_not_owed: {"decision"},
    minutes_before_the_first_are_owed: {"decision"},
    an_override_serves_this_minute_again: {"store"},
    a_removed_name_is_forgotten: {"store"},
    an_interrupted_run_has_failed: {"store"},
    an_interrupted_run_keeps_its_retry_too: {"decision"},
    an_interrupted_run_never_has_to_rest: {"decision"},
    an_override_keeps_what_was_owed: {"store"},
    a_removed_task_stays: {"decision"},
    a_retry_holds_up_cron: {"decision"},
    a_retry_is_ripe_a_delay_too_early: {"decision"},
    nobody_watches_the_timers: {"decision"},
    what_fell_due_inside_a_run_is_not_looked_for: {"decision"},
    a_due_list_stays_untouched_for_ever: {"decision"},
    nobody_waits_for_a_predecessor: {"decision"},
}
"""Each mistake, and what the search finds wrong first."""


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(each, id=each.__name__) for each in share(list(MUTANTS), 8)],
)
def test_the_search_finds(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """The search stops at the first state or step in which the mistake shows, and returns the way to it."""
    mutant(monkeypatch)
    with pytest.raises(Found) as found:
        Search(SMALL).check_liveness()
    print(found.value)
    assert found.value.property in MUTANTS[mutant]
    assert len(found.value.path) < 20
