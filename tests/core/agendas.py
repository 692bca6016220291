"""Short ways to fill an agenda, to poll as the loop does, and to let runs end."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, tzinfo

from duly.core.agenda import Agenda, Slots, decide
from duly.core.moments import Instant
from duly.core.registration import RunsOn
from duly.core.steps import finish
from duly.core.task import AwaitingRetry, Running, Start, Task, fail, newly_declared, succeed
from tests.core.helpers import FIRST, SECOND, at, minute, task

NOON = at("2025-06-15T12:00")
LOOP, THREAD = RunsOn.LOOP, RunsOn.THREAD


def agenda_of(*tasks: Task, now: Instant = NOON, zone: tzinfo = UTC) -> Agenda:
    """An agenda that these have entered."""
    agenda = Agenda(zone)
    finish(agenda.enter(tasks, now))
    return agenda


def fresh(
    name: str, cron: str = "* * * * *", *, runs_on: RunsOn = LOOP, since: str = "12:00", delay_ms: int = 5_000
) -> Task:
    """A task that was declared at a time of 15 June 2025."""
    return task(name, cron, newly_declared(minute(f"2025-06-15T{since}")), runs_on=runs_on, delay_ms=delay_ms)


def retrying(name: str, when: str, cron: str = "0 3 * * *", *, runs_on: RunsOn = LOOP) -> Task:
    """A task that failed earlier today and is to be retried."""
    served, tried = minute("2025-06-15T11:58"), at("2025-06-15T11:58")
    return task(
        name, cron, AwaitingRetry(served, tried, None, tried, at(f"2025-06-15T{when}"), 1, FIRST), runs_on=runs_on
    )


def serve(agenda: Agenda, now: Instant, slots: Slots = Slots(), *, limit: int = 1_000) -> list[Start]:  # noqa: B008
    """One poll: queue what is due, decide, apply, until there is nothing more to find."""
    started: list[Start] = []
    while True:
        finish(agenda.queue_due(now))
        used = Counter(start.task.runs_on for start in started)
        left = Slots(
            None if slots.total is None else slots.total - len(started),
            None if slots.threads is None else slots.threads - used[THREAD],
        )
        decision = decide(agenda, now, left, limit=limit, first_run=1 + len(started))
        assert decision.starts.count <= limit
        if not decision.evaluated:
            return started
        agenda.apply(decision, decision.starts)
        started += decision.starts.singles()


def names(starts: Iterable[Start]) -> list[str]:
    """The names of their tasks."""
    return [start.task.name for start in starts]


def end(agenda: Agenda, which: Task, now: Instant, *, failed: bool = False) -> bool:
    """A run ends: what the loop does when that is durable."""
    assert isinstance(which.state, Running)
    which.state = fail(which.state, now, which.delay) if failed else succeed(which.state, now)
    return agenda.review(which, now)


def after(seconds: float) -> Instant:
    """This many seconds after noon."""
    return Instant(NOON + int(seconds * SECOND))


def correct(agenda: Agenda, back: Instant) -> bool:
    """Whether there was anything to correct."""
    too_far_ahead = finish(agenda.too_far_ahead(back))
    finish(agenda.correct(back))
    return too_far_ahead
