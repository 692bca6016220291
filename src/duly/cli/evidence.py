"""What is known about a task and its runs, and the arithmetic and words on it that explanations share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, tzinfo
from enum import Enum
from itertools import islice
from typing import Any, Final

from duly.core.cron import CronExpression, parse_cron
from duly.core.moments import MICROSECONDS, Delay, Instant, Minute, after, as_datetime, begin, minute_of
from duly.core.occurrences import latest_until, next_after
from duly.core.task import effective
from duly.errors import CronCalculationError
from duly.insight.words import stretch
from duly.stores.port import Declaration, RunRecord

PUNCTUAL: Final = 5 * MICROSECONDS
"""A start this close to its minute is on time: looking, deciding and committing take a moment."""

COUNTED_MAX: Final = 10_000
"""More occurrences than this are not counted one by one."""


class Verdict(Enum):
    """The answer in a word."""

    RAN = "ran"
    RAN_LATE = "ranLate"
    NOT_DUE = "notDue"
    SERVED_LATER = "servedLater"
    NOT_RUN = "didNotRun"
    OWED = "owed"
    NOT_YET = "notYet"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known; runs in the order of their numbers, which no clock can change."""

    task: str
    zone: tzinfo
    now: Instant
    declarations: Sequence[Declaration]
    runs: Sequence[RunRecord]
    served_through: Minute | None = None
    """The mark of the declaration in force."""

    pending_retry_until: Instant | None = None
    history_complete_since: Instant | None = None
    """Runs that ended before this are no longer on record; None: nothing has been dropped."""

    arrivals: Sequence[Instant] = ()
    """When schedulers took over the store."""

    signs_of_life: Sequence[Instant] = ()
    """Starts and ends of all tasks: when some scheduler surely was alive."""

    alive: bool = False
    last_poll: Instant | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """One part of the answer: a stable code, a sentence, and the facts in it."""

    code: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole answer."""

    verdict: Verdict
    headline: str
    reasons: tuple[Reason, ...]
    run: RunRecord | None = None


class Timeline:
    """The evidence, seen from the day that a question is about."""

    def __init__(self, evidence: Evidence, day: date) -> None:
        self.evidence = evidence
        self.zone = evidence.zone
        self.runs = evidence.runs
        self.day = day

    # --- the runs ----------------------------------------------------------------------------------------------------

    def previous(self, moment: Instant) -> RunRecord | None:
        return next((run for run in reversed(self.runs) if run.started_at < moment), None)

    def retry_of(self, failed: RunRecord) -> Instant:
        declared = next((each for each in self.evidence.declarations if each.generation == failed.generation), None)
        delay = declared.retry_delay_ms if declared is not None else Delay(0)
        return after(Instant(failed.ended_at or failed.started_at), effective(delay))

    def declared_for(self, run: RunRecord) -> Declaration | None:
        return next((each for each in self.evidence.declarations if each.generation == run.generation), None)

    def mark_before(self, run: RunRecord) -> Minute | None:
        """No minute up to this one was still owed when a run started."""
        declared = self.declared_for(run)
        if declared is None:
            return None
        mark = Minute(minute_of(declared.known_since, self.zone) - 60)
        previous = self.previous(run.started_at)
        return mark if previous is None else max(mark, minute_of(previous.started_at, self.zone))

    def served_by(self, run: RunRecord) -> list[Minute]:
        """The occurrences that a run consumed."""
        declared, mark = self.declared_for(run), self.mark_before(run)
        if declared is None or mark is None:
            return []
        last = minute_of(run.started_at, self.zone)
        if self.evidence.history_complete_since is not None and self.previous(run.started_at) is None:
            return [minute_of(run.scheduled_time, self.zone)]  # what was served before it is no longer on record
        return list(islice(self.occurrences(parse_cron(declared.expression), mark, last), COUNTED_MAX))

    def occurrences(self, expression: CronExpression, mark: Minute, last: Minute) -> Iterator[Minute]:
        due = mark
        while (due := next_after(expression, due, self.zone)) <= last:
            yield due

    def lateness(self, run: RunRecord) -> int:
        """Microseconds between what a run served first and its start."""
        if run.cause == "cron" and (occurrences := self.served_by(run)):
            return run.started_at - begin(occurrences[0])
        return 0 if run.cause == "interrupted" else max(0, run.started_at - run.scheduled_time)

    def server_of(self, minute: Minute) -> RunRecord | None:
        return next((run for run in self.runs if minute_of(run.started_at, self.zone) >= minute), None)

    # --- schedulers --------------------------------------------------------------------------------------------------

    def absence(self, since: Instant, until: Instant | None) -> list[Reason]:
        """Whether a scheduler took over between two moments, and when one was last seen before that."""
        arrivals = [each for each in self.evidence.arrivals if since < each and (until is None or each <= until)]
        if arrivals:
            arrival = arrivals[-1]
            seen = max((sign for sign in self.evidence.signs_of_life if sign < arrivals[0]), default=None)
            text = f"no scheduler was there until {self.at(arrival)}"
            if seen is not None:
                text = f"the scheduler was down: last seen at {self.at(seen)}, there again at {self.at(arrival)}"
            return [Reason("schedulerStopped", text, {"lastSeen": self.iso(seen), "backAt": self.iso(arrival)})]
        if until is None and not self.evidence.alive:
            seen = self.evidence.last_poll
            text = "no scheduler is running" + ("" if seen is None else f"; one last looked at {self.at(seen)}")
            return [Reason("schedulerStopped", text, {"lastSeen": self.iso(seen), "backAt": None})]
        return []

    # --- words -------------------------------------------------------------------------------------------------------

    def nearest(self, expression: CronExpression, moment: Instant) -> Reason:
        before = latest_until(expression, minute_of(Instant(moment - 1), self.zone), self.zone)
        try:
            later: Minute | None = next_after(expression, minute_of(Instant(moment), self.zone), self.zone)
        except CronCalculationError:
            later = None
        facts = {
            name: None if at is None else self.iso(begin(at)) for name, at in (("before", before), ("after", later))
        }
        shown = [
            f"{name} {self.at(begin(at))}"
            for name, at in (("before it", before), ("after it", later))
            if at is not None
        ]
        return Reason("nearest", f"nearest due minutes: {', '.join(shown)}", facts)

    def facts(self, run: RunRecord) -> dict[str, Any]:
        return {"runId": run.run_id, "startedAt": self.iso(run.started_at), "endedAt": self.iso(run.ended_at)}

    def iso(self, instant: Instant | None) -> str | None:
        return None if instant is None else as_datetime(instant, self.zone).isoformat()

    def at(self, instant: Instant) -> str:
        """A moment as people read it beside the minute asked about."""
        when = as_datetime(instant, self.zone)
        shown = f"{when:%H:%M:%S}" if when.second or when.microsecond else f"{when:%H:%M}"
        return shown if when.date() == self.day else f"{when:%Y-%m-%d} {shown}"


def long(microseconds: int) -> str:
    """A length of time for people."""
    return stretch(microseconds / MICROSECONDS)
