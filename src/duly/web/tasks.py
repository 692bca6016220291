"""The list of tasks: searched, filtered and ordered, a page at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

from duly.core.due import next_due
from duly.core.moments import Instant, minute_of
from duly.errors import CronCalculationError
from duly.insight.closest_name import closest_name
from duly.insight.health import Situations, TaskStatus
from duly.stores.port import KnownTask, TaskFilter, TaskOrder, TaskPlace, TaskSelection, View
from duly.web.display import Display, long_names, shown_name
from duly.web.forms import Form, place_text
from duly.web.frame import Frame
from duly.web.sampler import OWED_SHOWN, STALE, Sample

PAGE: Final = 50
COUNTING: Final = "Counting …"
STATES: Final = {
    "": "every state",
    "running": "running",
    "owed": "owed, not interrupted",
    "failing": "failing",
    "retrying": "waiting for a retry",
    "interrupted": "interrupted",
    "never": "never ran",
}
_BY_FAILURES: Final = {"failure": "last failure", "failures": "failures in a row"}
SORTS: Final = {"": "name", "next": "next due minute", **_BY_FAILURES}
OWED_SORTS: Final = {"": "owed for longest", "name": "name", **_BY_FAILURES}
"""Owed tasks are next at once, all of them."""

_ORDERS: Final[dict[str, TaskOrder]] = {
    "": "name", "name": "name", "next": "expression", "failure": "failure", "failures": "failures",
}  # fmt: skip
_LEFT_OUT: Final = {
    "failure": "Tasks that never failed are left out.",
    "failures": "Tasks whose latest run did not fail are left out.",
}
_NONE_LEFT: Final = {
    "next": "None of these tasks has a due minute that is known.",
    "failure": "None of these tasks has failed.",
    "failures": "None of these tasks failed in its latest run.",
}
"""The sentences for lists whose order leaves out every task."""

_NOBODY: Final = {
    "running": ("Nothing runs.", "No task that matches {} runs."),
    "owed": ("Nothing is owed.", "No task that matches {} is owed."),
    "failing": ("Nothing fails.", "No task that matches {} fails."),
    "retrying": ("No task waits for a retry.", "No task that matches {} waits for a retry."),
    "interrupted": ("No task is interrupted now.", "No task that matches {} is interrupted now."),
    "never": ("Every task has run.", "Every task that matches {} has run."),
}
"""The sentences for states that no task is in, and for those in which no task has a name that was searched for."""


@dataclass(frozen=True, slots=True)
class Row:
    """A task of the list, and the number of its declaration."""

    status: TaskStatus
    generation: int


@dataclass(frozen=True, slots=True)
class TaskList:
    """A page of the list."""

    display: Display
    rows: Sequence[Row]
    earlier: str | None
    later: str | None
    """Links to the neighbouring pages."""

    note: str | None
    empty: "Empty | None" = None
    by_name: str | None = None
    """A link to all tasks by name, where the list has only some of them."""


@dataclass(frozen=True, slots=True)
class Empty:
    """Why a list has no rows: true of what was asked for, and of no more than that."""

    sentence: str
    suggestion: str | None = None
    """A name that is close to one that was searched for and not found."""

    beyond: bool = False
    """The list has rows, and none at the place that was asked for."""


def page(frame: Frame, form: Form) -> str:
    """Show one page of the list."""
    query, state, sort = form.text("q"), form.choice("state", STATES), form.choice("sort", {**SORTS, **OWED_SORTS})
    after, before = form.place("after"), form.place("before")
    sort = _sort(sort, state, part=bool(query or after or before))
    selection = TaskSelection(query, order=_ORDERS[sort], after=after, before=None if after else before)
    if state in get_args(TaskFilter):
        selection = replace(selection, which=state)  # type: ignore[arg-type]
    sample = frame.source.sample_if_any()
    host_zone = frame.source.clock.zone()
    keep = {"q": query, "state": state, "sort": sort}

    def question(view: View) -> TaskList:
        situations = Situations(view.snapshot(), host_zone)
        display = frame.display(situations.zone, situations.snapshot.at)
        note = _LEFT_OUT.get(sort)
        chosen = selection
        if state == "owed" or sort == "next":
            if sample is None:
                return TaskList(display, (), None, None, None, Empty(COUNTING))
            if sort == "next":
                chosen, note = _by_next_start(selection, sample, situations.snapshot.at)
            elif sort:
                chosen = replace(selection, latest_due=sample.latest_due)
                note = " ".join(filter(None, [note, *_owed_notes(sample, display)]))
            else:
                return _longest_owed(situations, sample, display)
        found = _found(view, chosen, sample)
        more = len(found) > PAGE
        shown = list(found[-PAGE:] if chosen.before is not None else found[:PAGE])
        rows = [Row(situations.status_of(task), task.stored.generation) for task in shown]
        earlier = later = None
        if shown and (chosen.after is not None or (chosen.before is not None and more)):
            earlier = display.link("tasks", **keep, before=place_text(_place(rows[0].status, chosen)))
        if shown and (more if chosen.before is None else True):
            later = display.link("tasks", **keep, after=place_text(_place(rows[-1].status, chosen)))
        if state == "retrying" and any(row.status.state == "owed" for row in rows):
            note = f"{note or ''} Tasks that are owed are among them: their retry is ripe, or a minute is due.".strip()
        empty = None if rows else _empty(view, chosen, sample, state, sort)
        display = display.knowing(long_names(view, [(empty and empty.suggestion) or ""]))
        return TaskList(display, rows, earlier, later, note, empty)

    found = frame.source.read(question)
    return frame.rendered(
        "tasks.html",
        found.display,
        "Tasks",
        "Tasks",
        found=found,
        q=query,
        state=state,
        sort=sort,
        states=STATES,
        sorts=OWED_SORTS if state == "owed" else SORTS,
        total=_total(sample, state, sort, query),
        owed=any(row.status.owed_since is not None for row in found.rows),
        counting=found.empty is not None and found.empty.sentence == COUNTING,
    )


def _sort(sort: str, state: str, *, part: bool) -> str:
    """The order as `sorts` has it; `part`: it is that of a search, or of another page than the first."""
    if state != "owed":
        return "" if sort == "name" else sort
    return "name" if sort == "next" or (part and not sort) else sort  # the longest owed are one page


def _place(task: TaskStatus, selection: TaskSelection) -> TaskPlace:
    match selection.order:
        case "expression":
            return TaskPlace(task.task, (selection.ranks or {}).get(task.expression.text, 0))
        case "failure":
            return TaskPlace(task.task, -(task.last_failure_at or 0))
        case "failures":
            return TaskPlace(task.task, -task.failures)
        case _:
            return TaskPlace(task.task)


def _longest_owed(situations: Situations, sample: Sample, display: Display) -> TaskList:
    """The tasks that have been owed for longest, as the sample has them."""
    rows = [Row(situations.status_of(task), task.stored.generation) for task in sample.owed]
    rows = [row for row in rows if row.status.state == "owed"]
    owed = sample.health.counts["owed"]
    notes, by_name = ["Longest owed first."], None
    if owed > OWED_SHOWN:
        notes.append(f"These are the {OWED_SHOWN:,} longest owed.")
        by_name = display.link("tasks", state="owed", sort="name")
    notes += _owed_notes(sample, display)
    empty = None if rows else Empty(_nothing_owed(sample, ""))
    return TaskList(display, rows, None, None, " ".join(notes), empty, by_name)


def _owed_notes(sample: Sample, display: Display) -> Iterator[str]:
    """Sentences about every list of owed tasks."""
    if sample.owed_left_out:
        yield f"{sample.owed_left_out:,} tasks are left out: too many different expressions owe something."
    if interrupted := sample.health.counts["interrupted"]:
        yield f"Interrupted tasks are owed, too, and have a list of their own: {interrupted:,}."
    if display.at - sample.at > STALE:
        yield f"As of {display.clock(sample.at)}."


def _nothing_owed(sample: Sample, query: str) -> str:
    if sample.health.counts["interrupted"]:
        return f"No task{f' that matches {shown_name(query)}' if query else ''} is owed, interrupted ones aside."
    return _NOBODY["owed"][bool(query)].format(shown_name(query))


def _empty(view: View, chosen: TaskSelection, sample: Sample | None, state: str, sort: str) -> Empty:
    """Why a selection has no tasks: its place, its search, its state or its order."""
    query, which = chosen.containing, chosen.which
    if chosen.after is not None or chosen.before is not None:
        if _found(view, replace(chosen, after=None, before=None), sample):
            side = "before" if chosen.after is None else "after"
            return Empty(f"No task of this list comes {side} this place.", beyond=True)
    if chosen == TaskSelection(query) or not view.page(TaskSelection(query), 1):
        if not query:
            return Empty("The store has no tasks.")
        return Empty(f"No task matches {shown_name(query)}.", closest_name(view, query))
    everywhere = TaskSelection(query, which=which, latest_due=chosen.latest_due)
    if state and (chosen.order == "name" or not view.page(everywhere, 1)):
        if state == "owed" and sample is not None:
            return Empty(_nothing_owed(sample, query))
        return Empty(_NOBODY[state][bool(query)].format(shown_name(query)))
    return Empty(_NONE_LEFT[sort])


def _by_next_start(selection: TaskSelection, sample: Sample, at: Instant) -> tuple[TaskSelection, str]:
    """The selection with the expressions ranked by their next due minute."""
    minute = minute_of(at, sample.zone)
    ranks = {}
    for expression, _ in sample.expressions:
        try:
            ranks[expression.text] = int(next_due(expression, minute, sample.zone))
        except CronCalculationError:
            continue  # the calendar ends in 9999
    note = "By the next due minute of the expression; a retry may come before it."
    if sample.tasks_left_out:
        note += f" {sample.tasks_left_out:,} tasks are left out: the store has too many different expressions."
    return replace(selection, ranks=ranks), note


def _found(view: View, selection: TaskSelection, sample: Sample | None) -> Sequence[KnownTask]:
    """The tasks of a page, and one more if another page follows."""
    if selection.ranks is None:
        return view.page(selection, PAGE + 1)
    if not selection.ranks:
        return []
    if sample is not None and not selection.containing and selection.which == "all":
        counted = {each.text: tasks for each, tasks in sample.expressions}
        found = view.page(replace(selection, ranks=_first_ranks(selection, counted)), PAGE + 1)
        if len(found) > PAGE:
            return found  # otherwise this is the last page, or tasks were withdrawn since they were counted
    return view.page(selection, PAGE + 1)


def _first_ranks(selection: TaskSelection, counted: Mapping[str, int]) -> dict[str, int]:
    """The expressions whose tasks fill a page, so that only these are sorted; `counted` says how many each has."""
    place, backwards = selection.after or selection.before, selection.after is None and selection.before is not None
    first: dict[str, int] = {}
    found, latest = 0, None
    for text, rank in sorted((selection.ranks or {}).items(), key=lambda item: item[1], reverse=backwards):
        if place is not None and (rank > place.value if backwards else rank < place.value):
            continue
        if found > PAGE and rank != latest:
            break
        first[text] = latest = rank
        # Of the minute in which the page begins, all tasks may stand before it.
        found += 0 if place is not None and rank == place.value else counted[text]
    return first


def _total(sample: Sample | None, state: str, sort: str, query: str) -> int | None:
    """How many tasks the list has, where the sample knows it."""
    if sample is None or query:
        return None
    counts, tally = sample.health.counts, sample.tally
    if state == "failing" or (sort == "failures" and not state):
        return tally.failing
    # Of other orders it is not known whom they leave out, and the list of retries has ripe ones, which count as owed.
    if sort in _LEFT_OUT or state == "retrying":
        return None
    if state == "never":
        return tally.never_ran
    return counts[state] if state else sample.health.tasks
