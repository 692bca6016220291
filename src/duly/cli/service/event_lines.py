"""Events of the scheduler as lines for people."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from duly import events
from duly.cli.output import first_line
from duly.core.cron import CronExpression
from duly.errors import CronCalculationError
from duly.events import Event
from duly.insight.cron_words import shortened, shortened_pair
from duly.insight.words import stretch
from duly.text import plain

ExpressionOf = Callable[[str], CronExpression | None]


class Line(NamedTuple):
    """One line of the log."""

    label: str
    style: str
    """Of the label."""

    task: str
    """Empty if the line is about no task."""

    text: str


def event_line(event: Event, now: datetime, expression_of: ExpressionOf) -> Line:
    """An event as a line for people; `expression_of` gives the expression of a declared task."""
    if isinstance(event, events.TaskRunFailed):
        return _failed(event, now, expression_of)
    form = _FORMS.get(type(event))
    if form is not None:
        return form(event)
    # Events about the inside of the scheduler, and those that are not known here yet: their name, and their fields.
    fields = dict(event.fields)
    task = str(fields.pop("taskName", ""))
    text = " ".join(f"{key}={first_line(str(value))}" for key, value in fields.items())
    return Line("·", "dim", task, f"{event.name} {text}".rstrip())


def _started(event: Any) -> Line:
    late = (event.actual_time - event.scheduled_time).total_seconds()
    lateness = f", {stretch(late)} ago" if late >= 1 else ""
    if event.cause == "manual":
        text = "by hand, without a store"
    elif event.cause == "retry":
        text = f"retry, ripe since {event.scheduled_time:%H:%M:%S}" if lateness else "retry"
    elif event.cause == "interrupted":
        text = f"again: its run of {_day_and_time(event.scheduled_time, event.actual_time)} was interrupted"
    else:
        text = f"due {_day_and_time(event.scheduled_time, event.actual_time)}{lateness}"
    return Line("start", "cyan", event.task_name, text)


def _failed(event: events.TaskRunFailed, now: datetime, expression_of: ExpressionOf) -> Line:
    text = f"after {_ms(event.duration)}: {first_line(event.error)}"
    if event.next_retry_at is not None:
        text += f"; {_again(event, event.next_retry_at, now, expression_of(event.task_name))}"
    return Line("failed", "bold red", event.task_name, text)


def _again(event: events.TaskRunFailed, retry: datetime, now: datetime, expression: CronExpression | None) -> str:
    """When a task starts again after a failure: at its retry, or at a due minute, which takes the retry's place."""
    if expression is not None:
        try:
            due = expression.next_after(now - timedelta(milliseconds=event.duration))
        except CronCalculationError:
            due = retry  # the calendar ends in 9999
        if due <= now:
            return f"again now, due since {_day_and_time(due, now)}"
        if due < retry:
            return f"again at {_day_and_time(due, now)}, when it is due"
    return f"retry at {retry:%H:%M:%S}" if retry.date() == now.date() else f"retry at {retry:%Y-%m-%d %H:%M:%S}"


def _overridden(event: Any) -> Line:
    old, new = event.old_state, event.new_state
    changes = []
    if old["cronExpression"] != new["cronExpression"]:
        changes.append(" → ".join(shortened_pair(old["cronExpression"], new["cronExpression"])))
    if old["retryDelayMs"] != new["retryDelayMs"]:
        changes.append(f"retry after {_ms(old['retryDelayMs'])} → {_ms(new['retryDelayMs'])}")
    return Line("changed", "yellow", event.task_name, ", ".join(changes) + _dropped(event.dropped))


def _interrupted(event: Any) -> Line:
    text = f"its run of {event.started_at:%Y-%m-%d %H:%M:%S} was cut short"
    if event.interruptions > 1:
        text += f", {event.interruptions} times in a row"
    if event.resumes_at is None:
        text += "; waits for its next due minute"
    return Line("interrupted", "bold yellow", event.task_name, text)


_FORMS: Final[dict[type[Event], Callable[[Any], Line]]] = {
    events.StandbyStarted: lambda event: Line(
        "standby", "cyan", "", f"the store is held by {holder_text(event.holder)}; waiting until it is free"
    ),
    events.StandbyEnded: lambda event: Line(
        "standby", "cyan", "", "the store was free: taken over" if event.holding else "ended before the store was free"
    ),
    events.TaskRunStarted: _started,
    events.TaskRunCompleted: lambda event: Line("ok", "green", event.task_name, f"after {_ms(event.duration)}"),
    events.TaskRetryPreempted: lambda event: Line("retry", "cyan", event.task_name, event.reason),
    events.TaskInterrupted: _interrupted,
    events.TaskStartDelayed: lambda event: Line(
        "late", "yellow", event.task_name,
        f"owed since {event.due_time:%H:%M:%S}, started {stretch(event.lateness_ms / 1000)} after it could have been",
    ),
    events.TaskRunOverdue: lambda event: Line(
        "overdue", "yellow", event.task_name,
        f"is due again since {event.due_time:%H:%M}, and has been running since {event.started_at:%H:%M:%S}",
    ),
    events.TaskAdded: lambda event: Line(
        "new", "green", event.task_name, f"{shortened(event.cron_expression)}, retry after {_ms(event.retry_delay_ms)}"
    ),
    events.TaskOverridden: _overridden,
    events.TaskOrphaned: lambda event: Line(
        "orphaned", "yellow", event.task_name, f"no longer declared, removed{_dropped(event.dropped)}"
    ),
    events.PropertyViolated: lambda event: Line(
        "violated", "bold red", event.task_name or "", f"{event.property}: {event.sentence}"
    ),
    events.EventLoopBlocked: lambda event: Line(
        "blocked", "yellow", event.task_name,
        f"kept the event loop for {_ms(event.blocked_ms)}: nothing else could run; use a thread for blocking calls",
    ),
    events.ClockJumped: lambda event: Line(
        "clock", "yellow", "", f"moved by {stretch(event.jump_ms / 1000)}, to {event.new_time:%Y-%m-%d %H:%M:%S}"
    ),
    events.HostZoneChanged: lambda event: Line("zone", "yellow", "", f"{event.old_zone} → {event.new_zone}"),
    events.StoreFault: lambda event: Line(
        "store", "bold red", "", f"{event.error}; next attempt in {_ms(event.retry_in_ms)}"
    ),
    events.StoreRecovered: lambda event: Line(
        "store", "green", "", f"answers again after {event.attempts} attempts"
    ),
    events.HostJoined: lambda event: Line("hosts", "cyan", "", f"{_host(event)} has joined"),
    events.HostLeft: lambda event: Line("hosts", "cyan", "", f"host {event.host} has left"),
    events.HostLost: lambda event: Line(
        "hosts", "yellow", "", f"{_host(event)} has not beaten for longer than its lease: its runs were interrupted"
    ),
    events.HostClockSkewed: lambda event: Line(
        "hosts", "yellow", "", f"the clock of this host is {_skew(event)} that of the store, which counts"
    ),
    events.HostOptionOverruled: lambda event: Line(
        "hosts", "yellow", "",
        f"{event.option}={event.value} does not count: {event.option}={event.in_force} is in force",
    ),
    events.LeaseSuspended: lambda event: Line(
        "lease", "yellow", "", "the store has not answered for a lease: nothing starts, callbacks are held"
    ),
    events.LeaseResumed: lambda event: Line("lease", "green", "", f"goes on after {_ms(event.after_ms)}"),
    events.LeaseLost: lambda event: Line(
        "lease", "bold red", "", f"{event.error}; {event.runs} runs are cancelled, and this host joins again"
    ),
    events.RejoinFailed: lambda event: Line(
        "hosts", "bold red", "", f"cannot join again: {event.error}; next attempt in {_ms(event.retry_in_ms)}"
    ),
    events.TaskRunFenced: lambda event: Line(
        "fenced", "bold red", event.task_name, "ended after its host was buried: its end is not recorded"
    ),
    events.DeclarationSuperseded: lambda event: Line(
        "edition", "yellow", "",
        f"{event.superseded_by} is in force, this host declares {event.edition}: {event.tasks_withdrawn} of its tasks "
        f"are withdrawn, {event.tasks_unknown} in force are unknown to it",
    ),
    events.EditionReinstated: lambda event: Line("edition", "yellow", "", f"{event.edition} is in force again"),
}  # fmt: skip


def _host(event: events.HostJoined | events.HostLost) -> str:
    return f"host {event.host}" if event.label is None else f"host {event.host} ({plain(event.label)})"


def _skew(event: events.HostClockSkewed) -> str:
    return f"{stretch(abs(event.skew_ms) / 1000)} {'ahead of' if event.skew_ms > 0 else 'behind'}"


def holder_text(holder: Mapping[str, Any]) -> str:
    """The holder of a store, as far as it has named itself."""
    if holder.get("pid") is None:
        return "another process"
    return f"process {holder['pid']} on {plain(holder.get('host') or '?')}"


def _ms(milliseconds: float) -> str:
    return stretch(milliseconds / 1000)


def _day_and_time(when: datetime, seen_from: datetime) -> str:
    return f"{when:%H:%M}" if when.date() == seen_from.date() else f"{when:%Y-%m-%d %H:%M}"


def _dropped(dropped: Sequence[str]) -> str:
    return f"; dropped: {', '.join(dropped)}" if dropped else ""
