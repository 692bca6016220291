"""Declared against stored: new, preserved, overridden, orphaned, and interrupted."""

from collections.abc import Iterable, Mapping
from datetime import UTC, timedelta, tzinfo
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.core.moments import Instant, Minute, minute_of
from duly.core.registration import Registration, Registrations, RunsOn, read_registrations
from duly.core.resolution import (
    MARK_KEPT,
    NO_MARKS,
    Mark,
    Resolution,
    configuration,
    difference,
    in_force,
    lowered_marks,
    recent_marks,
    resolve,
    what_is_dropped,
)
from duly.core.steps import STEP_TASKS, finish
from duly.core.task import AwaitingRetry, AwaitingRun, Interrupted, Obligation, Running, Task, TaskState, Withdrawn
from tests.core.helpers import BERLIN, at, in_a_thread, minute, on_the_loop, states, task

NOW = at("2025-06-15T12:00:30")
THIS = minute("2025-06-15T12:00")
SERVED = AwaitingRun(THIS, at("2025-06-15T12:00"), at("2025-06-15T12:00:01"))
FIRST = Obligation(at("2025-06-15T11:58:01"), at("2025-06-15T11:58"), 1)
INTERRUPTED = Interrupted(
    minute("2025-06-15T11:58"), at("2025-06-15T11:58:01"), None, None, None, 0, 1, at("2025-06-15T11:58:01"), FIRST
)
RETRYING = AwaitingRetry(
    THIS, at("2025-06-15T12:00"), None, at("2025-06-15T12:00:10"), at("2025-06-15T12:05:10"), 1, FIRST
)
IN_FLIGHT = Running(THIS, at("2025-06-15T12:00"), None, None, None, 0, 0, FIRST)


def declare(*items: tuple[str, str, timedelta]) -> list[Registration]:
    return list(finish(read_registrations([(name, cron, in_a_thread, delay) for name, cron, delay in items])).singles())


def minutely(*names: str, delay_ms: int = 5_000) -> list[Registration]:
    return declare(*((name, "* * * * *", timedelta(milliseconds=delay_ms)) for name in names))


def resolved(
    declared: Iterable[Registration],
    stored: Iterable[Task],
    zone: tzinfo = UTC,
    first: int = 100,
    marks: Mapping[str, Mark] = NO_MARKS,
) -> Resolution:
    numbers = count(first)
    return finish(
        resolve(
            Registrations(declared),
            {each.name: each for each in stored},
            now=NOW,
            zone=zone,
            new_generations=lambda: next(numbers),
            marks=marks,
        )
    )


def names(result: Resolution) -> dict[str, list[str]]:
    return {
        "added": [each.name for each in result.added],
        "preserved": [each.name for each in result.preserved.tasks],
        "overridden": [each.new.name for each in result.overridden],
        "orphaned": [each.task.name for each in result.orphaned],
        "interrupted": [each.name for each in result.interrupted],
    }


# --- the four classes ------------------------------------------------------------------------------------------------


def test_each_task_is_in_one_class() -> None:
    """SPEC 5.1: new, preserved, overridden, orphaned."""
    result = resolved(
        minutely("new", "kept") + declare(("changed", "0 3 * * *", timedelta(seconds=5))),
        [task("kept", "* * * * *", SERVED), task("changed", "* * * * *", SERVED), task("gone", "* * * * *", SERVED)],
    )
    assert names(result) == {
        "added": ["new"],
        "preserved": ["kept"],
        "overridden": ["changed"],
        "orphaned": ["gone"],
        "interrupted": [],
    }
    assert result.changes_tasks
    assert result.now == NOW


def test_nothing_declared_and_nothing_stored_changes_nothing() -> None:
    """SPEC 4.4: an empty list is legal."""
    result = resolved([], [])
    assert not result.changes_tasks
    assert result.first_changed() is None


@pytest.mark.parametrize(
    ("declared", "changes"), [(("a", "b"), False), (("a", "b", "new"), True), (("a",), True), (("b", "a"), False)]
)
def test_one_task_that_is_new_or_orphaned_is_a_change(declared: tuple[str, ...], changes: bool) -> None:
    """SPEC 5.6: stored and declared sets differ."""
    stored = [task(name, "* * * * *", SERVED) for name in ("a", "b")]
    assert resolved(minutely(*declared), stored).changes_tasks is changes


def test_one_task_that_is_overridden_is_a_change() -> None:
    """SPEC 5.6: so do their configurations."""
    assert resolved(minutely("a", delay_ms=6_000), [task("a", "* * * * *", SERVED)]).changes_tasks


def test_an_empty_declaration_orphans_all() -> None:
    """SPEC 4.4: stored tasks become orphaned."""
    result = resolved([], [task("a", "* * * * *", SERVED), task("b", "0 3 * * *", SERVED)])
    assert names(result)["orphaned"] == ["a", "b"]
    assert [each.last_attempt_at for each in result.orphaned] == [at("2025-06-15T12:00")] * 2


def test_the_same_again_changes_nothing() -> None:
    """SPEC 4.2: equal registrations change nothing but the callback."""
    old = task("a", "* * * * *", SERVED)
    (registration,) = minutely("a")
    result = resolved([registration], [old])
    assert not result.changes_tasks
    ((kept, declared),) = result.preserved.pairs()
    assert kept is old
    assert declared == registration
    assert old.state is SERVED
    assert old.callback is on_the_loop, "it takes effect when the transaction is through, not before"


@pytest.mark.parametrize(
    ("cron", "delay", "change"),
    [
        ("*  * * * *", timedelta(seconds=5), "cronExpression"),
        ("0-59 * * * *", timedelta(seconds=5), "cronExpression"),
        ("* * * * *", timedelta(seconds=5, microseconds=1), "retryDelayMs"),
        ("* * * * *", timedelta(seconds=6), "retryDelayMs"),
        ("0 3 * * *", timedelta(0), "cronExpression,retryDelayMs"),
    ],
)
def test_any_difference_in_text_or_delay_overrides(cron: str, delay: timedelta, change: str) -> None:
    """SPEC 5.1: compared by cron text, not by meaning, and by whole milliseconds, rounded up."""
    result = resolved(declare(("a", cron, delay)), [task("a", "* * * * *", SERVED)])
    assert names(result)["overridden"] == ["a"]
    assert result.overridden[0].change_type == change


@pytest.mark.parametrize("delay", [timedelta(milliseconds=5_000), timedelta(milliseconds=4_999, microseconds=1)])
def test_delays_that_round_to_the_same_milliseconds_are_the_same(delay: timedelta) -> None:
    """SPEC 5.1: integer milliseconds, sub-millisecond delays rounded up."""
    assert not resolved(declare(("a", "* * * * *", delay)), [task("a", "* * * * *", SERVED)]).changes_tasks


def test_names_are_compared_exactly() -> None:
    """SPEC 1.4: case- and blank-sensitive."""
    result = resolved(minutely("A", "a "), [task("a", "* * * * *", SERVED)])
    assert names(result)["added"] == ["A", "a "]
    assert names(result)["orphaned"] == ["a"]


# --- new-task start-up -----------------------------------------------------------------------------------------------


def test_a_new_task_may_owe_this_minute_and_none_before_it() -> None:
    """SPEC 3.1: occurrences before the task was first registered are not owed."""
    (added,) = resolved(minutely("a"), []).added
    assert added.state == AwaitingRun(Minute(THIS - 60))


@pytest.mark.parametrize(
    ("served", "expected"), [("11:00", "11:59"), ("11:59", "11:59"), ("12:00", "12:00"), ("14:00", "14:00")]
)
def test_an_overriding_task_starts_again_but_keeps_served_through(served: str, expected: str) -> None:
    """SPEC 5.1: new configuration, times reset, start-up of a new task; what a start has served stays served."""
    old = task("a", "0 3 * * *", AwaitingRun(minute(f"2025-06-15T{served}"), NOW, NOW, NOW))
    (override,) = resolved(minutely("a"), [old]).overridden
    before = minute(f"2025-06-15T{served}")
    assert override.new.state == AwaitingRun(minute(f"2025-06-15T{expected}"), served_before=before)
    assert override.old is old
    assert override.old_state is old.state


@pytest.mark.parametrize("state", [RETRYING, INTERRUPTED, IN_FLIGHT])
def test_an_overriding_task_owes_nothing_of_the_old_one(state: TaskState) -> None:
    """SPEC 5.1: an interrupted run or a pending retry included; SPEC 5.3: nor of a run in flight."""
    (override,) = resolved(minutely("a"), [task("a", "0 3 * * *", state)]).overridden
    assert isinstance(override.new.state, AwaitingRun)
    assert override.new.state.last_attempt_at is None
    assert names(resolved(minutely("a"), [task("a", "0 3 * * *", state)]))["interrupted"] == []


def test_in_the_second_copy_of_a_minute_a_new_task_begins_after_it_too() -> None:
    """SPEC 2.3: `served_through` is the host's minute, in the repeated hour as well."""
    now = at("~2025-10-26T02:30:10", BERLIN)
    numbers = count(1)
    declared = Registrations(minutely("a"))
    result = finish(resolve(declared, {}, now=now, zone=BERLIN, new_generations=lambda: next(numbers)))
    assert result.added[0].state.served_through == minute("~2025-10-26T02:29", BERLIN)


def test_declared_values_reach_the_task() -> None:
    (added,) = resolved(declare(("a", "0 3 * * *", timedelta(seconds=7))), []).added
    assert (added.name, added.expression.text, added.delay) == ("a", "0 3 * * *", 7_000)
    assert added.callback is in_a_thread


# --- generations -----------------------------------------------------------------------------------------------------


def test_every_new_or_overriding_task_gets_a_generation_of_its_own() -> None:
    """SPEC 5.3: so an end that belongs to the old configuration cannot touch the new one."""
    old = task("b", "0 3 * * *", SERVED, generation=7)
    result = resolved(minutely("a", "b", "c"), [old])
    arrived = [*result.added, *(each.new for each in result.overridden)]
    assert sorted(each.generation for each in arrived) == [100, 101, 102]
    assert old.generation == 7


def test_tasks_of_one_expression_get_neighbouring_generations() -> None:
    """They fall due together, and their rows then lie together on disk."""
    declared = declare(
        *((f"t{n}", "* * * * *" if n % 2 else "0 3 * * *", timedelta(0)) for n in range(10)),
    )
    by_generation = sorted(resolved(declared, []).added, key=lambda each: each.generation)
    assert [each.expression.text for each in by_generation] == ["0 3 * * *"] * 5 + ["* * * * *"] * 5


# --- interrupted -----------------------------------------------------------------------------------------------------


def test_interrupted_is_a_preserved_task_whose_run_a_crash_ended() -> None:
    """SPEC 5.1: one word, one meaning; an orphan whose run a crash ended is an orphan."""
    stored = [task(name, "* * * * *", INTERRUPTED) for name in ("kept", "gone")] + [
        task("changed", "0 3 * * *", INTERRUPTED)
    ]
    result = resolved(minutely("kept", "changed"), stored)
    assert names(result)["interrupted"] == ["kept"]
    assert names(result)["preserved"] == ["kept"]


# --- what is dropped -------------------------------------------------------------------------------------------------

DROPPED: list[tuple[str, TaskState, tuple[str, ...]]] = [
    ("nothing", SERVED, ()),
    ("catch-up", AwaitingRun(minute("2025-06-15T11:40")), ("owed catch-up of 2025-06-15T12:00:00+00:00",)),
    ("retry", RETRYING, ("pending retry at 2025-06-15T12:05:10+00:00",)),
    (
        "interrupted",
        INTERRUPTED,
        ("interrupted run of 2025-06-15T11:58:01+00:00", "owed catch-up of 2025-06-15T12:00:00+00:00"),
    ),
    (
        "interrupted, waiting",
        Interrupted(
            THIS, at("2025-06-15T12:00"), None, at("2025-06-15T11:00"), at("2025-06-15T11:30"), 1, 1, None, FIRST
        ),
        ("interrupted run of 2025-06-15T12:00:00+00:00", "pending retry at 2025-06-15T11:30:00+00:00"),
    ),
    ("in flight", IN_FLIGHT, ()),
    ("withdrawn", Withdrawn(minute("2025-06-15T11:40")), ()),
]


@pytest.mark.parametrize(("state", "expected"), [row[1:] for row in DROPPED], ids=[row[0] for row in DROPPED])
def test_what_is_dropped_is_said(state: TaskState, expected: tuple[str, ...]) -> None:
    """SPEC 5.1: what was owed under the old one is dropped, and the event says so."""
    old = task("a", "* * * * *", state)
    assert what_is_dropped(old, THIS, UTC) == expected
    assert resolved([], [old]).orphaned[0].dropped == expected
    assert resolved(declare(("a", "0 3 * * *", timedelta(0))), [old]).overridden[0].dropped == expected


def test_what_is_dropped_is_said_in_the_time_of_the_host() -> None:
    """Times in ISO 8601 with offset."""
    (override,) = resolved(
        minutely("a"), [task("a", "0 * * * *", AwaitingRun(minute("2025-06-15T11:00")))], BERLIN
    ).overridden
    assert override.dropped == ("owed catch-up of 2025-06-15T14:00:00+02:00",)


# --- the first that would have changed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (minutely("kept", "new"), ("new", "* * * * *")),
        (declare(("changed", "1 * * * *", timedelta(0)), ("new", "* * * * *", timedelta(0))), ("changed", "1 * * * *")),
        (declare(("new", "1 * * * *", timedelta(0)), ("changed", "* * * * *", timedelta(0))), ("new", "1 * * * *")),
        (
            declare(
                ("changed", "1 * * * *", timedelta(0)),
                ("new", "* * * * *", timedelta(0)),
                ("newer", "1 * * * *", timedelta(0)),
            ),
            ("changed", "1 * * * *"),
        ),
        (
            minutely("kept")
            + declare(
                ("n1", "2 * * * *", timedelta(0)), ("n2", "1 * * * *", timedelta(0)), ("n3", "2 * * * *", timedelta(0))
            ),
            ("n1", "2 * * * *"),
        ),
        (minutely("kept"), ("changed", "0 3 * * *")),
    ],
)
def test_the_first_task_that_would_have_changed_is_named(
    declared: list[Registration], expected: tuple[str, str]
) -> None:
    """SPEC 1.5: a ScheduleTaskError names it; in the order of declaration, what is gone coming last."""
    stored = [task("kept", "* * * * *", SERVED), task("changed", "0 3 * * *", SERVED)]
    assert resolved(declared, stored).first_changed() == expected


def test_a_transaction_that_changes_no_task_names_the_first_it_keeps() -> None:
    """SPEC 1.5: there is always a name, even if only the zone or a correction had to be stored."""
    assert resolved(
        minutely("a", "b"), [task("b", "* * * * *", SERVED), task("a", "* * * * *", SERVED)]
    ).first_changed() == (
        "a",
        "* * * * *",
    )


# --- the difference --------------------------------------------------------------------------------------------------


def test_a_mismatch_is_reported_in_full() -> None:
    """SPEC 5.6: TaskListMismatchError with the difference in `details`."""
    result = resolved(
        minutely("n2", "n1", "kept", "changed"),
        [task("kept", "* * * * *", SERVED), task("changed", "0 3 * * *", SERVED), task("gone", "* * * * *", SERVED)],
    )
    assert difference(result) == {
        "expected": ["changed", "gone", "kept"],
        "actual": ["changed", "kept", "n1", "n2"],
        "added": ["n1", "n2"],
        "removed": ["gone"],
        "changed": {
            "changed": {
                "stored": {"cronExpression": "0 3 * * *", "retryDelayMs": 5_000},
                "declared": {"cronExpression": "* * * * *", "retryDelayMs": 5_000},
            }
        },
    }


def test_a_configuration_is_what_is_compared() -> None:
    assert configuration(task("a", "0 3 * * *", SERVED, delay_ms=7)) == {
        "cronExpression": "0 3 * * *",
        "retryDelayMs": 7,
    }


# --- properties ------------------------------------------------------------------------------------------------------

some_names = st.sets(st.sampled_from("abcdefgh"))
crons = st.sampled_from(["* * * * *", "0 3 * * *"])


@st.composite
def declared_and_stored(draw: st.DrawFn) -> tuple[list[Registration], list[Task]]:
    """Any declaration against any store."""
    declared = declare(*((name, draw(crons), timedelta(seconds=5)) for name in sorted(draw(some_names))))
    stored = [
        task(name, draw(crons), draw(states), delay_ms=draw(st.sampled_from([5_000, 7_000])), generation=n)
        for n, name in enumerate(sorted(draw(some_names)), 1)
    ]
    return declared, stored


@given(declared_and_stored())
def test_the_classes_are_exhaustive_and_exclusive(both: tuple[list[Registration], list[Task]]) -> None:
    """SPEC 5.1: declared = new + preserved + overridden; stored = preserved + overridden + orphaned."""
    declared, stored = both
    found = names(resolved(declared, stored))
    assert sorted(found["added"] + found["preserved"] + found["overridden"]) == sorted(each.name for each in declared)
    assert sorted(found["preserved"] + found["overridden"] + found["orphaned"]) == sorted(each.name for each in stored)
    assert set(found["interrupted"]) <= set(found["preserved"])


@given(declared_and_stored())
def test_resolving_changes_nothing_by_itself(both: tuple[list[Registration], list[Task]]) -> None:
    """SPEC 5.2: if the transaction fails, the previous state stands; so nothing stored was touched."""
    declared, stored = both
    before = [(each.state, each.callback, each.generation, each.runs_on, each.delay) for each in stored]
    resolved(declared, stored)
    assert [(each.state, each.callback, each.generation, each.runs_on, each.delay) for each in stored] == before


@given(declared_and_stored())
def test_a_second_resolution_finds_nothing_to_change(both: tuple[list[Registration], list[Task]]) -> None:
    """SPEC 4.2: idempotence."""
    declared, stored = both
    first = resolved(declared, stored)
    in_force = first.preserved.tasks + first.added + [each.new for each in first.overridden]
    again = resolved(declared, in_force)
    assert not again.changes_tasks
    assert again.preserved.count == len(declared)


def test_resolving_goes_in_steps() -> None:
    """Architecture: a large initialize lets others work in between."""
    steps = resolve(
        Registrations(minutely("a", "b", "c")),
        {"d": task("d", "* * * * *", SERVED)},
        now=NOW,
        zone=UTC,
        new_generations=lambda: 1,
    )
    assert sum(1 for _ in steps) >= 3
    assert minute_of(NOW, UTC) == THIS


def test_no_step_is_long_and_few_are_short() -> None:
    """Architecture: about `STEP_TASKS` tasks per step, whether new, preserved, overridden or orphaned."""
    stored = [task(f"kept{n}", "* * * * *", SERVED) for n in range(500)]
    stored += [task(f"changed{n}", "0 3 * * *", SERVED) for n in range(500)]
    stored += [task(f"gone{n}", "* * * * *", SERVED) for n in range(500)]
    declared = minutely(*(f"{kind}{n}" for kind in ("kept", "changed", "new") for n in range(500)))

    class Counting(dict[str, Task]):
        """Stored tasks; counts how many of them are looked up by name, and how many are gone through."""

        looked_up = gone_through = 0

        def get(self, name: str, default: Any = None) -> Any:
            self.looked_up += 1
            return super().get(name, default)

        def items(self) -> Any:
            for item in super().items():
                self.gone_through += 1
                yield item

    counting = Counting({each.name: each for each in stored})
    generations: list[int] = []

    def new_generation() -> int:
        generations.append(len(generations) + 1)
        return generations[-1]

    steps = resolve(Registrations(declared), counting, now=NOW, zone=UTC, new_generations=new_generation)
    progress = [(counting.looked_up, len(generations), counting.gone_through) for _ in steps]
    progress.append((counting.looked_up, len(generations), counting.gone_through))
    assert progress[-1] == (1_500, 1_000, 1_500)
    for earlier, later in pairwise([(0, 0, 0), *progress]):
        assert all(after - before <= STEP_TASKS for before, after in zip(earlier, later, strict=True))
    # Declared tasks, tasks that get a generation, and stored tasks are gone through once each; those that are withdrawn
    # once more, for their marks.
    assert len(progress) <= (1_500 + 1_000 + 1_500 + 1_000) / STEP_TASKS + 6


# --- what is in force afterwards -------------------------------------------------------------------------------------


def test_loaded_tasks_take_over_what_their_registrations_say() -> None:
    """SPEC 4.2: the newest callbacks; and all of them, however many steps it takes."""
    stored = {f"t{n}": task(f"t{n}", "* * * * *", SERVED) for n in range(3 * STEP_TASKS)}
    declared = minutely(*stored)
    result = finish(
        resolve(Registrations(declared), stored, now=NOW, zone=UTC, new_generations=lambda: 1, take_over=True)
    )
    assert result.preserved.count == len(stored)
    for registration, each in zip(declared, stored.values(), strict=True):
        assert (each.callback, each.runs_on) == (in_a_thread, RunsOn.THREAD)
        assert each.name is registration.name  # one text for both


def test_all_that_is_declared_is_in_force() -> None:
    """SPEC 5.1, 5.4: preserved records are not rewritten; new ones name the scheduler that wrote them."""
    kept, changed, gone = (task(name, "* * * * *", SERVED) for name in ("kept", "changed", "gone"))
    stored = {each.name: each for each in (gone, kept, changed)}
    declared = minutely("new", "kept") + declare(("changed", "0 3 * * *", timedelta(seconds=5)))
    result = resolved(declared, stored.values())
    found = list(in_force(result, stored.values(), 7))
    assert [(each.name, each.expression.text, each.written_by) for each in found] == [
        ("kept", "* * * * *", 0),
        ("new", "* * * * *", 7),
        ("changed", "0 3 * * *", 7),
    ]
    assert found[0] is kept


def test_tasks_that_are_kept_come_in_the_order_of_the_store() -> None:
    """Rows of one expression lie together on disk, whatever order the tasks are declared in."""
    stored = {name: task(name, "* * * * *", SERVED) for name in ("a", "b", "c")}
    result = resolved(minutely("c", "new", "a", "b"), stored.values())
    assert [each.name for each in in_force(result, stored.values(), 7)] == ["a", "b", "c", "new"]
    result = resolved(minutely("c", "a"), stored.values())
    assert [each.name for each in in_force(result, stored.values(), 7)] == ["a", "c"]


def test_preserved_tasks_are_paired_with_their_registrations() -> None:
    """They are kept in columns; the store's order and the declared one may differ."""
    stored = [task(name, "* * * * *", SERVED) for name in ("a", "b", "c")]
    declared = minutely("a", "b", "c")
    preserved = resolved(declared[1:], stored[::-1]).preserved
    assert preserved.count == 2
    assert list(preserved.pairs()) == list(zip(stored[1:], declared[1:], strict=True))


# --- marks of earlier declarations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [SERVED, RETRYING, INTERRUPTED, IN_FLIGHT])
def test_a_withdrawn_task_leaves_the_mark_that_its_starts_have_made(state: TaskState) -> None:
    """SPEC 5.1: orphaned or overridden; a preserved one keeps its mark in its own state."""
    result = resolved(
        minutely("kept") + declare(("changed", "0 3 * * *", timedelta(seconds=5))),
        [task(name, "* * * * *", state) for name in ("kept", "changed", "gone")],
    )
    assert result.marks == dict.fromkeys(["changed", "gone"], Mark(state.served_through, NOW))


def test_a_task_that_never_started_leaves_the_mark_of_an_earlier_declaration_and_none_of_its_own() -> None:
    """SPEC 5.1: its `served_through` is the minute before it was declared, which nothing has served."""
    earlier = Minute(THIS - 600)
    stored = [
        task("never", "* * * * *", AwaitingRun(Minute(THIS - 60))),
        task("again", "* * * * *", AwaitingRun(Minute(THIS - 60), served_before=earlier)),
        task("overridden", "* * * * *", AwaitingRun(Minute(THIS - 60), served_before=earlier)),
    ]
    result = resolved(declare(("overridden", "0 3 * * *", timedelta(0))), stored)
    assert result.marks == {name: Mark(earlier, NOW) for name in ("again", "overridden")}
    (override,) = result.overridden
    assert override.new.state == AwaitingRun(Minute(THIS - 60), served_before=earlier)


@pytest.mark.parametrize(("served", "through"), [(-60, -60), (0, 0), (60, 60), (3 * 3600, 3 * 3600)])
def test_a_name_that_is_declared_again_does_not_serve_what_was_served_before(served: int, through: int) -> None:
    """SPEC 5.1: not the minute of its own declaration either, and none ahead, after a small step back of the clock."""
    mark = Mark(Minute(THIS + served), Instant(NOW - 1))
    (again, other) = resolved(minutely("again", "other"), [], marks={"again": mark, "elsewhere": mark}).added
    assert again.state == AwaitingRun(Minute(THIS + through), served_before=mark.served_through)
    assert other.state == AwaitingRun(Minute(THIS - 60))


def test_a_mark_counts_for_a_day() -> None:
    """SPEC 5.1: from the minute that it served. A new declaration owes nothing that is as old."""
    day = MARK_KEPT // 1_000_000
    marks = {"a day": Mark(Minute(THIS + 60 - day), NOW), "longer": Mark(Minute(THIS - day), NOW)}
    assert recent_marks(marks, NOW) == {"a day": marks["a day"]}
    states = {each.name: each.state for each in resolved(minutely("a day", "longer"), [], marks=marks).added}
    assert states["longer"] == AwaitingRun(Minute(THIS - 60))
    assert states["a day"] == AwaitingRun(Minute(THIS - 60), served_before=marks["a day"].served_through)


def test_a_mark_is_lowered_when_the_clock_was_set_back() -> None:
    """SPEC 2.5: three hours ahead are a small step, one minute more is a correction of the clock."""
    three_hours = 3 * 3600
    ahead = {"ahead": Mark(Minute(THIS + three_hours), NOW)}
    assert lowered_marks(ahead, NOW, THIS) is ahead
    marks = {**ahead, "too far": Mark(Minute(THIS + three_hours + 60), Instant(NOW + MARK_KEPT))}
    assert lowered_marks(marks, NOW, THIS) == {**ahead, "too far": Mark(THIS, NOW)}
