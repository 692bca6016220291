"""Why a task ran, did not run, or ran late at a minute.

The answer rests on what is durable (the declarations and their times, the state, the history of runs, the arrivals of
schedulers) and on cron algebra. A scheduler keeps no record of doing nothing, so its absence shows only as the time
between a sign of life and the next arrival.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from enum import Enum
from typing import Any, Final

from duly.core.cron import parse_cron
from duly.core.due import latest_due, next_due
from duly.core.moments import MICROSECONDS, Instant, Minute, as_datetime, begin, instant_of, minute_of, zone_name
from duly.core.task import CRASH_LOOP_DELAY
from duly.errors import CronCalculationError
from duly.insight.cluster import host_text
from duly.insight.cron_words import shortened, shortened_pair
from duly.insight.evidence import OCCURRENCES_COUNTED_MAX, Evidence, evidence_of
from duly.insight.run import RunReport, run_report
from duly.insight.words import between, stretch
from duly.insight.zone_changes import zone_change_around
from duly.stores.port import Declaration, HistoryExtent, RunRecord, View

PUNCTUAL: Final = 5 * MICROSECONDS
"""A start this close to its minute is on time: polling, deciding and committing take a moment."""

_EXPLAINED_MAX: Final = 6
"""If more runs than this began in one minute, such as retries every second, those in the middle are only counted."""

_FIRST_EXPLAINED: Final = 4
"""The number of first runs that are then explained, beside the last one."""


class Answer(Enum):
    """The answer in a word."""

    RAN = "ran"  #: it started in that minute
    RAN_LATE = "ranLate"  #: it started in that minute, and late
    NOT_DUE = "notDue"  #: its expression does not name that minute
    SERVED_LATER = "servedLater"  #: a later start served that minute
    NOT_RUN = (
        "didNotRun"  #: its expression names that minute, and nothing was owed for it: skipped, repeated, not declared
    )
    OWED = "owed"  #: no start has served that minute yet
    NOT_YET = "notYet"  #: that minute is still to come
    UNKNOWN = "unknown"  #: the store does not know any more


@dataclass(frozen=True, slots=True)
class Reason:
    """One part of an explanation: a stable code, a sentence, and the facts in it under their names in JSON."""

    code: str  #: stable; docs/reference/json.md has all of them
    text: str  #: the reason in a sentence
    facts: dict[str, Any] = field(default_factory=dict)  #: the facts in that sentence, under their names in JSON


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task did what it did at one minute."""

    task: str  #: the name of the task
    at: datetime
    """The minute asked about, in the zone of the question."""

    zone: str  #: the zone of the question
    verdict: Answer  #: the answer in a word
    headline: str  #: the answer in a few words
    reasons: Sequence[Reason]  #: what it rests on
    run: RunReport | None
    """The run that the answer is about, if there is one."""


def explain(view: View, task: str, asked: datetime, *, extent: HistoryExtent | None = None) -> Explanation:
    """Explain what a task of a store did at the minute that contains a moment.

    Parameters:
        view: the store at one moment.
        task: the name of the task.
        asked: the moment, with a zone, which says what is due. Of a wall-clock time that exists twice, `fold` says
            which one is meant.
        extent: that of the history, if it is known from a moment ago: finding it takes a scan.

    Raises:
        ValueError: the moment has no zone.
        InvalidCronExpressionError: the expression of a declaration cannot be read.
    """
    zone = asked.tzinfo
    if zone is None:
        raise ValueError("the moment needs a zone, such as that of zone_in_use()")
    return explanation_of(evidence_of(view, task, instant_of(asked), zone, extent), asked)


def explanation_of(evidence: Evidence, asked: datetime) -> Explanation:
    """Explain what the task did at the minute that contains a moment.

    Parameters:
        evidence: what a store knows about the task.
        asked: the moment, in the zone of the evidence. Of a wall-clock time that does not exist, or exists twice,
            `fold` says which one is meant, as Python has it.

    Raises:
        InvalidCronExpressionError: the expression of a declaration cannot be read.
    """
    return _Question(evidence, asked).explanation()


def minute_to_explain(declarations: Sequence[Declaration], now: Instant, zone: tzinfo) -> datetime:
    """The minute that is meant if none is named: the latest that was due while the latest declaration was in force.

    If none was, it is the minute of `now`.

    Parameters:
        declarations: the declarations of a task, the latest last; at least one.
        now: when the question is asked.
        zone: the zone of the question.

    Raises:
        InvalidCronExpressionError: the expression of the latest declaration cannot be read.
    """
    latest = declarations[-1]
    known, until = minute_of(latest.known_since, zone), minute_of(Instant(min(latest.retired_at or now, now)), zone)
    due = latest_due(parse_cron(latest.expression), until, zone)
    return as_datetime(begin(minute_of(now, zone) if due is None or due < known else due), zone)


class _Question:
    """One minute that is asked about."""

    def __init__(self, evidence: Evidence, asked: datetime) -> None:
        self.evidence = evidence
        self.zone = evidence.zone
        self.runs = evidence.runs
        # Converting to the zone it is in already would lose the name of a time that does not exist.
        wall = asked if asked.tzinfo is evidence.zone else asked.astimezone(evidence.zone)
        self.wall = wall.replace(second=0, microsecond=0)
        self.change = zone_change_around(self.zone, self.wall.replace(tzinfo=None, fold=0))
        self.minute = minute_of(instant_of(self.wall), self.zone)
        self.begins = begin(self.minute)
        self.ends = Instant(self.begins + 60 * MICROSECONDS)

    # --- the possible answers, in the order in which they are tried --------------------------------------------------

    def explanation(self) -> Explanation:
        if self.change is not None and self.change.skips:
            return self._skipped()
        if started := [run for run in self.runs if self.begins <= run.started_at < self.ends]:
            return self._ran(started)
        declaration = self._in_force()
        if self.begins > self.evidence.now:
            return self._future(declaration)
        if declaration is None:
            return self._undeclared()
        if self.change is not None and self.wall.fold:
            return self._second_copy(declaration)
        if not self._is_due(declaration):
            return self._not_due(declaration)
        return self._due_but_not_started(declaration)

    def _answer(
        self, answer: Answer, headline: str, reasons: Sequence[Reason], run: RunRecord | None = None
    ) -> Explanation:
        shown = None if run is None else run_report(run)
        return Explanation(self.evidence.task, self.wall, zone_name(self.zone), answer, headline, reasons, shown)

    def _skipped(self) -> Explanation:
        assert self.change is not None
        declarations, before, after = self.evidence.declarations, self.change.clock_before, self.change.clock_after
        named = [each for each in declarations if self._names_the_minute(each)]
        to_come = instant_of(self.change.at) > self.evidence.now
        clocks = f"clocks {'go' if to_come else 'went'} forward from {before:%H:%M} to {after:%H:%M}"
        text = f"{self.wall:%H:%M} does not exist on {self.wall:%Y-%m-%d}: {clocks}"
        reasons = [
            Reason(
                "skippedByDst",
                f"{text}; nothing is due then, and nothing is missed",
                {"clockBefore": before, "clockAfter": after},
            )
        ]
        if declarations:
            # The minute at which clocks go forward is the first one after the gap, not one in it.
            reasons.append(self._nearest((named or declarations)[-1], Instant(instant_of(self.change.at) - 1)))
        if to_come:
            return self._answer(Answer.NOT_YET, "will not run: this minute does not exist", reasons)
        if named:
            return self._answer(Answer.NOT_RUN, "did not run: this minute does not exist", reasons)
        return self._answer(Answer.NOT_DUE, "not due, and this minute does not exist", reasons)

    def _ran(self, started: list[RunRecord]) -> Explanation:
        first = started[0]
        reasons: list[Reason] = []
        last = len(started) - 1
        counted_from = _FIRST_EXPLAINED if len(started) > _EXPLAINED_MAX else last
        for run in started[:counted_from]:
            reasons += self._story_of(run)
        if counted_from < last:
            reasons.append(self._more_runs(started[counted_from:last]))
        reasons += self._story_of(started[last])
        if self.change is not None and not self.change.skips and not self.wall.fold:
            reasons.append(self._repeated())
        lateness = self._lateness_of(first)
        if lateness > PUNCTUAL:
            return self._answer(Answer.RAN_LATE, f"ran, late by {_duration(lateness)}", reasons, first)
        headlines = {"cron": "ran on time", "retry": "ran: a retry", "interrupted": "ran: repeats an interrupted run"}
        headline = headlines.get(first.cause, "ran")
        if self.evidence.lateness(first) > PUNCTUAL:
            headline += ", for earlier minutes as well"
        return self._answer(Answer.RAN, headline, reasons, first)

    def _story_of(self, run: RunRecord) -> list[Reason]:
        """Why it started, where it ran, and what became of it."""
        return [*self._why_started(run), *self._ran_on(run), *self._held(run), *self._what_became_of(run)]

    def _more_runs(self, runs: list[RunRecord]) -> Reason:
        """Runs of the minute that are only counted, such as retries every second."""
        failed = sum(run.outcome == "failure" for run in runs)
        text = f"{len(runs):,} more runs began in this minute"
        if failed:
            text += ", and all of them failed" if failed == len(runs) else f", and {failed:,} of them failed"
        return Reason("moreRuns", text, {"runs": len(runs), "failed": failed})

    def _lateness_of(self, run: RunRecord) -> int:
        """How late a run began for the minute asked about; if that was not due, for the first thing that it served."""
        declaration = self.evidence.declaration_of(run)
        if run.cause == "cron" and declaration is not None and self._is_due(declaration):
            return run.started_at - self.begins
        return self.evidence.lateness(run)

    def _future(self, declaration: Declaration | None) -> Explanation:
        if declaration is None:
            return self._answer(Answer.NOT_YET, "not yet, and no such task is declared", [self._not_declared()])
        reasons = [Reason("notYet", f"{self.at(self.begins)} is still to come")]
        if self.change is not None and self.wall.fold:
            reasons.append(self._repeated())
            return self._answer(Answer.NOT_YET, "will not run: this is the second copy of a repeated minute", reasons)
        due = self._is_due(declaration)
        if due:
            reasons.append(Reason("due", f"{shortened(declaration.expression)!r} is due then"))
        else:
            reasons.append(self._nearest(declaration, self.begins))
        if self.evidence.pending_retry_until is not None:
            now = minute_of(self.evidence.now, self.zone)
            reasons.append(self._waiting_for(self.evidence.pending_retry_until, now, "it is"))
        return self._answer(Answer.NOT_YET, "will run then" if due else "will not be due then", reasons)

    def _undeclared(self) -> Explanation:
        reasons = [self._not_declared()]
        if trimmed := self._history_trimmed():
            return self._answer(Answer.UNKNOWN, "unknown: nothing is on record", [*reasons, trimmed])
        return self._answer(Answer.NOT_RUN, "did not run: it was not declared", reasons)

    def _second_copy(self, declaration: Declaration) -> Explanation:
        if not self._names_the_minute(declaration):
            return self._not_due(declaration)
        reasons = [self._repeated()]
        first_copy = Minute(instant_of(self.wall.replace(fold=0)) // MICROSECONDS)
        if (run := self.evidence.run_that_served(first_copy)) is not None:
            reasons.append(self._already_served(run))
        return self._answer(Answer.NOT_RUN, "did not run: this is the second copy of a repeated minute", reasons)

    def _not_due(self, declaration: Declaration) -> Explanation:
        text = f"{shortened(declaration.expression)!r} is not due at {self.wall:%H:%M} on {self.wall:%A %Y-%m-%d}"
        reasons = [Reason("notDue", text), self._nearest(declaration, self.begins), *self._meanwhile()]
        if trimmed := self._history_trimmed():
            reasons.append(trimmed)
        return self._answer(Answer.NOT_DUE, "not due", reasons)

    def _due_but_not_started(self, declaration: Declaration) -> Explanation:
        reasons = self._meanwhile()
        earlier = [run for run in self.runs if run.started_at < self.begins]
        later = [run for run in self.runs if run.started_at >= self.ends]
        if trimmed := self._history_trimmed():
            return self._answer(Answer.UNKNOWN, "unknown: history no longer reaches back", [*reasons, trimmed])
        if later and earlier and self.evidence.comes_before(later[0], earlier[-1]):
            # A run with a lower number and a later time: the clock was set back since, and this minute was served.
            reasons.append(self._already_served(later[0]))
            return self._answer(Answer.NOT_RUN, "did not run: already served", reasons, later[0])
        server = later[0] if later else None
        retired = declaration.retired_at
        if retired is not None and (server is None or server.started_at >= retired):
            reasons.append(self._dropped(declaration, retired))
            reasons += self._absence(self.begins, retired)
            return self._answer(Answer.NOT_RUN, "did not run: its declaration was withdrawn first", reasons)
        if server is not None:
            given = {each.code for each in reasons}
            reasons += [each for each in self._why_started(server) if each.code not in given]
            reasons += self._ran_on(server)
            headline = f"ran {between(self.begins, server.started_at)} later, at {self.at(server.started_at)}"
            return self._answer(Answer.SERVED_LATER, headline, reasons, server)
        return self._unserved(reasons)

    def _unserved(self, reasons: list[Reason]) -> Explanation:
        """Due, in force, and no start in the minute or after it on record."""
        served_through = self.evidence.served_through
        if served_through is not None and served_through >= self.minute:
            text = (
                f"everything up to {self.at(begin(served_through))} has been served, by a run that is not on record: "
            )
            reasons.append(Reason("noRecord", text + "the history is bounded, or none is kept"))
            return self._answer(Answer.UNKNOWN, "served, by a run that is not on record", reasons)
        if not any(run.outcome == "running" for run in self.runs):
            reasons += self._absence(self.begins, None)
            if not reasons:
                reasons.append(_no_downtime_on_record())
        return self._answer(Answer.OWED, "has not run yet: it is owed", reasons)

    # --- what was going on at the minute -----------------------------------------------------------------------------

    def _in_force(self) -> Declaration | None:
        """The declaration at the end of the minute: of two in one minute, the later one decides what is due."""
        found = [
            each
            for each in self.evidence.declarations
            if each.known_since < self.ends and (each.retired_at is None or each.retired_at > self.begins)
        ]
        return found[-1] if found else None

    def _is_due(self, declaration: Declaration) -> bool:
        return latest_due(parse_cron(declaration.expression), self.minute, self.zone) == self.minute

    def _names_the_minute(self, declaration: Declaration) -> bool:
        """Whether the expression names the wall-clock time, whether or not it exists or is the first copy."""
        return parse_cron(declaration.expression).matches(self.wall.replace(tzinfo=UTC))

    def _meanwhile(self) -> list[Reason]:
        """A run under way at the minute, a retry that the task waited for, a crash before it."""
        reasons: list[Reason] = []
        for run in self.runs:
            if run.started_at >= self.begins:
                continue
            if run.outcome == "running" or (run.ended_at is not None and run.ended_at > self.begins):
                text = f"the run of {self.at(run.started_at)} "
                if run.ended_at is None:
                    text += "is still running; what falls due meanwhile starts when it ends"
                else:
                    text += f"was under way until {self.at(run.ended_at)}; what falls due meanwhile is owed"
                reasons.append(Reason("stillRunning", text, self._facts(run)))
        previous = self.evidence.run_before(self.begins)
        if previous is not None and previous.outcome == "failure" and previous.ended_at is not None:
            retry = self.evidence.retry_after(previous)
            if previous.ended_at <= self.begins < retry:
                reasons.append(self._waiting_for(retry, Minute(self.minute - 60)))
        if previous is not None and previous.outcome == "interrupted":
            text = f"a crash had cut short the run of {self.at(previous.started_at)}"
            reasons.append(Reason("interrupted", text, self._facts(previous)))
            reasons += self._burial(previous)
        return reasons

    def _absence(self, since: Instant, until: Instant | None) -> list[Reason]:
        """The time without a scheduler between two moments, if there is one on record."""
        absence = self.evidence.absence(since, until)
        if absence is None:
            return []
        seen, back = absence
        shared = self.evidence.cluster is not None
        who, sign, down = ("host", "beat", "every host") if shared else ("scheduler", "poll", "the scheduler")
        if back is None:
            text = f"no {who} is running" + ("" if seen is None else f"; the last {sign} was at {self.at(seen)}")
        elif seen is None:
            text = f"no {who} was running until {self.at(back)}"
        else:
            text = f"{down} was down: last seen at {self.at(seen)}, back at {self.at(back)}"
        return [Reason("schedulerStopped", text, {"lastSeen": self._local(seen), "backAt": self._local(back)})]

    # --- why a run started, and what became of it --------------------------------------------------------------------

    def _why_started(self, run: RunRecord) -> list[Reason]:
        previous = self.evidence.run_before(run.started_at)
        if run.cause == "retry":
            return [self._retry(run, previous), *self._repetition(run)]
        if run.cause == "interrupted":
            return [*self._restart(run), *self._repetition(run)]
        lateness = self.evidence.lateness(run)
        reasons = [self._due_at("onTime", run)] if lateness <= PUNCTUAL else self._why_late(run, previous)
        if previous is not None and previous.outcome == "failure":
            retry = self.evidence.retry_after(previous)
            if retry > run.started_at:
                text = f"the due minute took the place of the retry that was to come at {self.at(retry)}"
                reasons.append(Reason("retryPreempted", text, {"retryAt": self._local(retry)}))
        return reasons

    def _why_late(self, run: RunRecord, previous: RunRecord | None) -> list[Reason]:
        occurrences = self.evidence.served_by(run)
        earliest = begin(occurrences[0]) if occurrences else run.scheduled_time
        declaration = self.evidence.declaration_of(run)
        if declaration is not None and declaration.known_since > earliest:
            known_since = declaration.known_since
            text = f"due at {self.at(earliest)}, and declared in that minute, at {self.at(known_since)}"
            return [Reason("knownOnlySince", text, {"knownSince": self._local(known_since)})]
        reasons = []
        if previous is not None and previous.ended_at is not None and previous.ended_at > earliest:
            text = f"the run of {self.at(previous.started_at)} was under way until {self.at(previous.ended_at)}"
            reasons.append(Reason("stillRunning", text, self._facts(previous)))
            earliest = previous.ended_at
        absence = self._absence(earliest, run.started_at)
        reasons += absence
        if len(occurrences) > 1:
            first, last = self.at(begin(occurrences[0])), self.at(begin(occurrences[-1]))
            more = "more than " if len(occurrences) >= OCCURRENCES_COUNTED_MAX else ""
            text = f"one start serves {more}{len(occurrences)} occurrences, from {first} to {last}"
            reasons.append(Reason("servedOnceForMany", text, {"occurrences": len(occurrences)}))
        if run.started_at - earliest > 60 * MICROSECONDS and not absence:
            reasons.append(_no_downtime_on_record())
        elif not reasons:
            reasons.append(self._due_at("late", run))
        return reasons

    def _due_at(self, code: str, run: RunRecord) -> Reason:
        lateness = _duration(self.evidence.lateness(run))
        return Reason(code, f"due at {self.at(run.scheduled_time)}, started {lateness} later")

    def _retry(self, run: RunRecord, previous: RunRecord | None) -> Reason:
        text = f"a retry, due at {self.at(run.scheduled_time)}"
        if previous is not None and previous.outcome == "failure" and previous.ended_at is not None:
            delay = between(previous.ended_at, run.scheduled_time)
            text += f": the run of {self.at(previous.started_at)} had failed at {self.at(previous.ended_at)}, "
            text += f"and the delay is {delay}"
        late = self.evidence.lateness(run) // 1000
        return Reason("retry", text, {"retryAt": self._local(run.scheduled_time), "latenessMs": late})

    def _restart(self, run: RunRecord) -> list[Reason]:
        cut_short = run.scheduled_time
        text = f"a crash had cut short the run of {self.at(cut_short)}; this run repeats it"
        reasons = [Reason("interruptedAndRestarted", text, {"interruptedRunStartedAt": self._local(cut_short)})]
        if (previous := self.evidence.run_before(run.started_at)) is not None:
            reasons += self._burial(previous)
        arrival = max((each for each in self.evidence.arrivals if each <= run.started_at), default=None)
        if arrival is not None and arrival > cut_short:
            reasons += self._absence(cut_short, run.started_at)
            if run.started_at - arrival >= CRASH_LOOP_DELAY * 1000:
                text = "it was not the first interruption in a row, so it waited before it started again"
                reasons.append(Reason("crashLoopDelay", text))
        return reasons

    def _repetition(self, run: RunRecord) -> list[Reason]:
        """Which attempt it was, if that is on record."""
        if run.attempt is None or run.first_started_at is None:
            return []
        facts = {"attempt": run.attempt, "key": run.key, "firstStartedAt": self._local(run.first_started_at)}
        text = f"attempt {run.attempt}; key {run.key}"
        return [Reason("repetition", text, facts)]

    def _ran_on(self, run: RunRecord) -> list[Reason]:
        """Which host of a shared store ran it, and whether that took it over from another."""
        if run.host is None:
            return []
        key, label = run.host
        reasons = [Reason("ranOn", f"{host_text(run.host)} ran it", {"host": key, "label": label})]
        previous = self.evidence.run_before(run.started_at)
        if run.cause != "cron" and previous is not None and previous.host is not None and previous.host.key != key:
            text = f"it took the task over from {host_text(previous.host)}, which ran it before"
            reasons.append(Reason("takenOver", text, {"host": key, "from": previous.host.key}))
        return reasons

    def _held(self, run: RunRecord) -> list[Reason]:
        """When the host of a run did not trust its lease, and took no step of it (SPEC 9.6)."""
        if run.host is None:
            return []
        reasons = []
        host, label, who = run.host.key, run.host.label, host_text(run.host)
        if holds := self.evidence.holds_during(run):
            begun, over, held = holds[0].since, holds[-1].until, sum(until - since for since, until in holds)
            begun_at, over_at = self.at(begun), self.at(over)
            if len(holds) == 1:
                when = f"from {begun_at} to {over_at} it took no step of its coroutines"
            else:
                when = f"between {begun_at} and {over_at} it took no step of its coroutines {len(holds)} times"
                when += f", for {_duration(held)} in all"
            facts = {
                "host": host,
                "label": label,
                "since": self._local(begun),
                "until": self._local(over),
                "times": len(holds),
                "heldMs": held // 1000,
            }
            reasons.append(Reason("stepsHeld", f"{who} did not reach the store in time: {when}", facts))
        if (since := self.evidence.holds_since(run)) is not None:
            text = f"{who} has not reached the store in time: since {self.at(since)} it takes no step of its coroutines"
            going_on = {"host": host, "label": label, "since": self._local(since), "until": None}
            reasons.append(Reason("stepsHeld", text, going_on))
        return reasons

    def _burial(self, run: RunRecord) -> list[Reason]:
        """That the host of an interrupted run was buried, or has left."""
        host = self.evidence.host_of(run)
        if host is None or host.gone is None:
            return []
        facts = {"host": host.key, "label": host.label, "lastBeatAt": self._local(host.beat_at)}
        if host.gone == "left":
            return [Reason("hostLeft", f"{host_text(host.name)} had left at {self.at(host.beat_at)}", facts)]
        text = f"{host_text(host.name)} was buried: its last beat was at {self.at(host.beat_at)}"
        return [Reason("hostBuried", text, facts)]

    def _what_became_of(self, run: RunRecord) -> list[Reason]:
        facts = self._facts(run)
        ended = Instant(run.ended_at or run.started_at)
        if run.outcome == "failure":
            return [Reason("failed", f"it failed at {self.at(ended)}: {run.error or 'unknown error'}", facts)]
        if run.outcome == "interrupted":
            later = self.runs[self.runs.index(run) + 1 :]
            again = next((each for each in later if each.cause == "interrupted"), None)
            restarted = "" if again is None else f", and started again at {self.at(again.started_at)}"
            return [Reason("interrupted", f"it was cut short by a crash{restarted}", facts), *self._burial(run)]
        if run.outcome == "running":
            return [Reason("running", "it is still running", facts)]
        took = stretch((run_report(run).duration_ms or 0) / 1000)
        return [Reason("succeeded", f"it succeeded at {self.at(ended)}, after {took}", facts)]

    # --- single reasons ----------------------------------------------------------------------------------------------

    def _nearest(self, declaration: Declaration, moment: Instant) -> Reason:
        expression = parse_cron(declaration.expression)
        before = latest_due(expression, minute_of(Instant(moment - 1), self.zone), self.zone)
        try:
            after: Minute | None = next_due(expression, minute_of(moment, self.zone), self.zone)
        except CronCalculationError:
            after = None  # the calendar ends in 9999
        shown = [
            f"{self.at(begin(minute))} {where}"
            for where, minute in (("before it", before), ("after it", after))
            if minute is not None
        ]
        facts = {
            "before": None if before is None else self._local(begin(before)),
            "after": None if after is None else self._local(begin(after)),
        }
        return Reason("nearest", f"nearest due minutes: {', '.join(shown)}", facts)

    def _dropped(self, declaration: Declaration, retired: Instant) -> Reason:
        when = self.at(retired)
        successor = next((each for each in self.evidence.declarations if each.known_since == retired), None)
        if successor is None:
            return Reason("orphaned", f"it was no longer declared from {when} on; what was owed was dropped")
        change = " became ".join(map(repr, shortened_pair(declaration.expression, successor.expression)))
        if declaration.expression == successor.expression:
            change = f"the retry delay became {stretch(successor.retry_delay_ms / 1000)}"
        return Reason("overridden", f"it was overridden at {when} ({change}); what was owed was dropped")

    def _not_declared(self) -> Reason:
        declarations = self.evidence.declarations
        later = [each.known_since for each in declarations if each.known_since >= self.ends]
        withdrawn = [at for each in declarations if (at := each.retired_at) is not None and at <= self.begins]
        if withdrawn:
            again = f", and was declared again only at {self.at(later[0])}" if later else ""
            return Reason("orphaned", f"it was no longer declared since {self.at(withdrawn[-1])}{again}")
        if later:
            text = f"it was first declared at {self.at(later[0])}"
            return Reason("knownOnlySince", text, {"knownSince": self._local(later[0])})
        return Reason("unknownTask", "no declaration of it is on record")

    def _repeated(self) -> Reason:
        assert self.change is not None
        clocks = f"clocks go back from {self.change.clock_before:%H:%M} to {self.change.clock_after:%H:%M}"
        which = "this is the second" if self.wall.fold else "this is the first"
        text = f"{self.wall:%H:%M} occurs twice on {self.wall:%Y-%m-%d} ({clocks}), and is due the first time only"
        return Reason("repeatedByDst", f"{text}; {which}")

    def _already_served(self, run: RunRecord) -> Reason:
        return Reason("alreadyServed", f"already served by the run of {self.at(run.started_at)}", self._facts(run))

    def _waiting_for(self, retry: Instant, after: Minute, it: str = "it was") -> Reason:
        """Until when a task waits: for its retry, or for the first due minute after one, whichever comes first."""
        declaration, due = self._in_force(), None
        if declaration is not None:
            with contextlib.suppress(CronCalculationError):  # the calendar ends in 9999
                due = begin(next_due(parse_cron(declaration.expression), after, self.zone))
        text = f"{it} waiting for its retry until {self.at(retry)}"
        if due is not None and due < retry:
            first = f"its next due minute, {self.at(due)}"
            text = f"{it} waiting for {first}, which comes before its retry at {self.at(retry)}"
        return Reason("waitingForRetry", text, {"retryAt": self._local(retry), "nextDue": self._local(due)})

    def _history_trimmed(self) -> Reason | None:
        complete = self.evidence.history_complete_since
        if complete is None or complete <= self.begins:
            return None
        text = f"history no longer reaches back to this minute: it is complete since {self.at(complete)}"
        if complete == self.evidence.now:
            text = "no run that has ended is on record: no history is kept (--history 0)"
        return Reason("historyTrimmed", text, {"completeSince": self._local(complete)})

    # --- moments -----------------------------------------------------------------------------------------------------

    def _facts(self, run: RunRecord) -> dict[str, Any]:
        return {
            "runId": run.run_id,
            "startedAt": self._local(run.started_at),
            "endedAt": self._local(run.ended_at),
        }

    def _local(self, instant: Instant | None) -> datetime | None:
        return None if instant is None else as_datetime(instant, self.zone)

    def at(self, instant: Instant) -> str:
        """A moment as people read it beside the minute asked about: the date only if it is another day."""
        when = as_datetime(instant, self.zone)
        shown = f"{when:%H:%M:%S}" if when.second or when.microsecond else f"{when:%H:%M}"
        return shown if when.date() == self.wall.date() else f"{when:%Y-%m-%d} {shown}"


def _no_downtime_on_record() -> Reason:
    text = (
        "no downtime is on record for it: all slots were taken, the event loop was blocked, the host slept, its clock "
    )
    text += (
        "was set, the scheduler was stopped and initialised again in the same process, or a store fault kept the start "
    )
    return Reason("noDowntimeOnRecord", text + "from being written")


def _duration(microseconds: int) -> str:
    return stretch(microseconds / MICROSECONDS)
