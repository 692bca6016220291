"""What a snapshot of a store means: the situation of each task, what is owed, and whether that is healthy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from duly.cli.reading import KnownTask, Snapshot
from duly.core.agenda import Group
from duly.core.due import next_due
from duly.core.moments import MICROSECONDS, Instant, Minute, begin, minute_of
from duly.core.task import AwaitingRetry, Running, interrupt, lateness_threshold
from duly.errors import CronCalculationError
from duly.insight.words import between, stretch
from duly.text import plain

POLL_PERIOD: Final = 60 * MICROSECONDS
_NAMES_MAX: Final = 5


class Problem(NamedTuple):
    """A reason why a store is unhealthy: a stable code for programs, and a sentence."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a task stands."""

    task: KnownTask
    state: str
    """`waiting`, `running`, `retrying`, `owed`, `interrupted`."""

    next_at: Instant | None
    next_is: str | None
    """When it starts next, seen from now, and why: `cron`, `retry` or `interrupted`. None: when its run has ended."""

    owed_since: Instant | None
    late: int
    """Microseconds for which it could have been started already."""


@dataclass(frozen=True, slots=True)
class Health:
    """The situations of all tasks, and what is wrong with them."""

    situations: list[Situation]
    problems: list[Problem]


def examine(snapshot: Snapshot) -> Health:
    """Look at every task, and judge."""
    minute = minute_of(snapshot.at, snapshot.zone)
    groups: dict[str, Group] = {}
    following: dict[str, Minute | None] = {}
    situations = []
    for task in snapshot.tasks:
        text = task.stored.expression.text
        if text not in groups:
            groups[text] = Group(task.stored.expression)
            following[text] = _next(task, minute, snapshot)
        situations.append(_situation(task, groups[text], following[text], minute, snapshot))
    return Health(situations, list(_problems(snapshot, situations)))


def _next(task: KnownTask, minute: Minute, snapshot: Snapshot) -> Minute | None:
    try:
        return next_due(task.stored.expression, minute, snapshot.zone)
    except CronCalculationError:
        return None  # the calendar ends in 9999


def _situation(
    task: KnownTask, group: Group, following: Minute | None, minute: Minute, snapshot: Snapshot
) -> Situation:
    state, at = task.stored.state, snapshot.at
    owed = group.owed(state.served_through, minute, snapshot.zone)
    owed_since = begin(owed.earliest) if owed is not None else None
    next_at: Instant | None = begin(following) if following is not None else None
    if task.running:
        return Situation(task, "running", next_at if owed is None else None, "cron", owed_since, 0)
    words = "owed" if owed is not None else "waiting"
    reasons: list[tuple[Instant | None, str]] = [(next_at, "cron")] if owed_since is None else [(owed_since, "cron")]
    if isinstance(state, AwaitingRetry):
        reasons.append((state.pending_retry_until, "retry"))
        words = words if owed is not None else "retrying"
    elif isinstance(state, Running):
        resumed = interrupt(state, at, task.stored.delay, restart=True)
        reasons.append((resumed.resume_at, "interrupted"))
        words = "interrupted"
    first, why = min(((moment, why) for moment, why in reasons if moment is not None), default=(None, None))
    late = 0
    if first is not None and first <= at:
        owed_since = first
        if words == "retrying":
            words = "owed"
        late = _late(task, first, snapshot)
    return Situation(task, words, first, why, owed_since, late)


def _late(task: KnownTask, owed_since: Instant, snapshot: Snapshot) -> int:
    """For how long it could have been started: not before its last run ended, nor before its scheduler began."""
    state, holder = task.stored.state, snapshot.holder
    ended = max(getattr(state, "last_success_at", None) or 0, getattr(state, "last_failure_at", None) or 0)
    began = holder.since or 0 if holder.alive else 0
    return max(0, snapshot.at - max(owed_since, ended, began))


def _problems(snapshot: Snapshot, situations: Sequence[Situation]) -> "list[Problem]":
    problems = []
    holder, at = snapshot.holder, snapshot.at
    interrupted = [each for each in situations if each.state == "interrupted"]
    if interrupted and not holder.alive:
        who = f"process {holder.pid}, which held the store, is gone" if holder.pid else "nobody holds the store"
        problems.append(Problem("holder-gone", f"{who}, and left {_names(interrupted)} marked running"))
    threshold = lateness_threshold(len(situations))
    overdue = [each for each in situations if each.late > threshold and (holder.alive or each.state != "interrupted")]
    # With a living scheduler an interrupted run may have been told to wait.
    overdue = [each for each in overdue if each.next_is != "interrupted"]
    if overdue:
        latest = max(each.late for each in overdue)
        problems.append(Problem("overdue", f"{_names(overdue)} overdue, by {stretch(latest / MICROSECONDS)} at most"))
    if situations:
        if holder.last_poll is None:
            problems.append(Problem("never-polled", "no scheduler has looked at this store here: it has no lock file"))
        elif at - holder.last_poll > POLL_PERIOD + threshold:
            problems.append(
                Problem(
                    "poll-too-old",
                    f"the last poll was {between(holder.last_poll, at)} ago"
                    + ("" if holder.alive else ", and no scheduler holds the store"),
                )
            )
    return problems


def _names(situations: Sequence[Situation]) -> str:
    shown = ", ".join(plain(each.task.name) for each in situations[:_NAMES_MAX])
    more = len(situations) - _NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown
