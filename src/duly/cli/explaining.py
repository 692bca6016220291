"""Why a task ran, did not run, or ran late at a minute: the reasoning, from values to a structured answer.

It rests on what is durable: the declarations and their times, the state, the history of runs, the arrivals of
schedulers; and on cron algebra. Scheduling keeps no record of doing nothing, so a gap between two signs of life is told
as what it is: a gap.
"""

from datetime import UTC, datetime

from duly.cli.evidence import (
    COUNTED_MAX,
    PUNCTUAL,
    Answer,
    Evidence,
    Reason,
    Timeline,
    Verdict,
    long,
)
from duly.core.cron import parse_cron
from duly.core.moments import MICROSECONDS, Instant, Minute, begin, instant_of, minute_of
from duly.core.occurrences import latest_until
from duly.core.task import CRASH_LOOP_DELAY
from duly.insight.zone_changes import zone_change_around
from duly.stores.port import Declaration, RunRecord


def explain(evidence: Evidence, asked: datetime) -> Answer:
    """Why the task did what it did at the minute that contains a moment, given in the evidence's zone.

    A naive-looking time that does not exist, or exists twice, is told apart by its `fold`, as Python has it.
    """
    return _Case(evidence, asked).answer()


class _Case(Timeline):
    """One question."""

    def __init__(self, evidence: Evidence, asked: datetime) -> None:
        # Converting to the zone it is in already would lose the name of a time that does not exist.
        wall = asked if asked.tzinfo is evidence.zone else asked.astimezone(evidence.zone)
        self.wall = wall.replace(second=0, microsecond=0)
        super().__init__(evidence, self.wall.date())
        self.change = zone_change_around(self.zone, self.wall.replace(tzinfo=None, fold=0))
        self.minute = minute_of(instant_of(self.wall), self.zone)
        self.begins = begin(self.minute)
        self.ends = Instant(self.begins + 60 * MICROSECONDS)

    # --- the questions, in the order in which they are asked ---------------------------------------------------------

    def answer(self) -> Answer:
        if self.change is not None and self.change.skips:
            return self._skipped()
        if started := [run for run in self.runs if self.begins <= run.started_at < self.ends]:
            return self._ran(started)
        declared = self._in_force()
        if self.begins > self.evidence.now:
            return self._future(declared)
        if declared is None:
            return self._undeclared()
        if self.change is not None and self.wall.fold:
            return self._second_copy(declared)
        if not self._is_due(declared):
            return self._not_due(declared)
        return self._due_but_not_started(declared)

    def _skipped(self) -> Answer:
        assert self.change is not None
        named = [
            each
            for each in self.evidence.declarations
            if parse_cron(each.expression).matches(self.wall.replace(tzinfo=UTC))
        ]
        clocks = f"clocks went forward from {self.change.clock_before:%H:%M} to {self.change.clock_after:%H:%M}"
        reasons = [
            Reason(
                "skippedByDst",
                f"{self.wall:%H:%M} does not exist on {self.wall:%Y-%m-%d}: {clocks}; nothing is due then, nor missed",
                {
                    "clockBefore": self.change.clock_before.isoformat(),
                    "clockAfter": self.change.clock_after.isoformat(),
                },
            )
        ]
        if self.evidence.declarations:
            expression = parse_cron((named or list(self.evidence.declarations))[-1].expression)
            reasons.append(self.nearest(expression, instant_of(self.change.at)))
        headline = "did not run: this minute does not exist" if named else "not due, and this minute does not exist"
        return Answer(Verdict.NOT_RUN if named else Verdict.NOT_DUE, headline, tuple(reasons))

    def _ran(self, started: list[RunRecord]) -> Answer:
        first = started[0]
        reasons: list[Reason] = []
        for run in started:
            reasons += self._why_started(run)
            reasons += self._what_became_of(run)
        if self.change is not None and not self.change.skips and not self.wall.fold:
            reasons.append(self._repeated())
        lateness = self.lateness(first)
        if lateness > PUNCTUAL:
            return Answer(Verdict.RAN_LATE, f"ran, late by {long(lateness)}", tuple(reasons), first)
        headline = {"cron": "ran on time", "retry": "ran: a retry", "interrupted": "ran: an interrupted run again"}
        return Answer(Verdict.RAN, headline.get(first.cause, "ran"), tuple(reasons), first)

    def _future(self, declared: Declaration | None) -> Answer:
        if declared is None:
            return Answer(Verdict.NOT_YET, "not yet, and no such task is declared", (self._known(),))
        reasons = [Reason("notYet", f"{self.at(self.begins)} is still to come")]
        if self.change is not None and self.wall.fold:
            reasons.append(self._repeated())
            return Answer(Verdict.NOT_YET, "will not run: this minute occurs twice", tuple(reasons))
        due = self._is_due(declared)
        if due:
            reasons.append(Reason("due", f"{declared.expression!r} is due then"))
        else:
            reasons.append(self.nearest(parse_cron(declared.expression), self.begins))
        retry = self.evidence.pending_retry_until
        if retry is not None:
            reasons.append(self._waiting_for(retry))
        return Answer(Verdict.NOT_YET, "will run then" if due else "will not be due then", tuple(reasons))

    def _undeclared(self) -> Answer:
        reasons = [self._known()]
        if gone := self.beyond_history():
            return Answer(Verdict.UNKNOWN, "unknown: nothing is on record", (*reasons, gone))
        return Answer(Verdict.NOT_RUN, "did not run: it was not declared", tuple(reasons))

    def _second_copy(self, declared: Declaration) -> Answer:
        named = parse_cron(declared.expression).matches(self.wall.replace(tzinfo=UTC))
        if not named:
            return self._not_due(declared)
        reasons = [self._repeated()]
        copy = Minute(instant_of(self.wall.replace(fold=0)) // MICROSECONDS)
        if (server := self.server_of(copy)) is not None:
            reasons.append(self._already_served(server))
        return Answer(Verdict.NOT_RUN, "did not run: this minute had been before", tuple(reasons))

    def _not_due(self, declared: Declaration) -> Answer:
        reasons = [
            Reason("notDue", f"{declared.expression!r} is not due at {self.wall:%H:%M} on {self.wall:%A %Y-%m-%d}"),
            self.nearest(parse_cron(declared.expression), self.begins),
            *self._meanwhile(),
        ]
        if gone := self.beyond_history():
            reasons.append(gone)
        return Answer(Verdict.NOT_DUE, "not due", tuple(reasons))

    def _due_but_not_started(self, declared: Declaration) -> Answer:
        reasons = self._meanwhile()
        earlier = [run for run in self.runs if run.started_at < self.begins]
        ahead = [run for run in self.runs if run.started_at >= self.ends]
        if gone := self.beyond_history():
            return Answer(Verdict.UNKNOWN, "unknown: history no longer reaches back", (*reasons, gone))
        if ahead and earlier and ahead[0].run_id < earlier[-1].run_id:
            # A run with a lower number and a later time: the clock was set back since, and the mark lies ahead.
            reasons.append(self._already_served(ahead[0]))
            return Answer(Verdict.NOT_RUN, "did not run: already served", tuple(reasons), ahead[0])
        server = ahead[0] if ahead else None
        retired = declared.retired_at
        if retired is not None and (server is None or server.started_at >= retired):
            reasons.append(self._dropped(declared, retired))
            reasons += self.absence(self.begins, retired)
            return Answer(Verdict.NOT_RUN, "did not run: its declaration was withdrawn first", tuple(reasons))
        if server is not None:
            reasons += [
                each for each in self._why_started(server) if each.code not in {given.code for given in reasons}
            ]
            late = long(server.started_at - self.begins)
            return Answer(
                Verdict.SERVED_LATER, f"ran {late} later, at {self.at(server.started_at)}", tuple(reasons), server
            )
        return self._unserved(reasons)

    def _unserved(self, reasons: list[Reason]) -> Answer:
        """Due, in force, and no start at or after it on record."""
        mark = self.evidence.served_through
        if mark is not None and mark >= self.minute:
            text = f"the store says that {self.at(begin(mark))} and all before is served, and no run on record did it"
            reasons.append(Reason("noRecord", f"{text}: history is kept shorter, or not at all"))
            return Answer(Verdict.UNKNOWN, "served, by a run that is not on record", tuple(reasons))
        running = next((run for run in self.runs if run.outcome == "running"), None)
        if running is None:
            reasons += self.absence(self.begins, None)
            if not reasons:
                reasons.append(self.no_known_cause())
        return Answer(Verdict.OWED, "has not run yet: it is owed", tuple(reasons))

    # --- what was going on -------------------------------------------------------------------------------------------

    def _in_force(self) -> Declaration | None:
        """The declaration at the end of the minute: of two in one minute, the later one decides what is due."""
        found = [
            each
            for each in self.evidence.declarations
            if each.known_since < self.ends and (each.retired_at is None or each.retired_at > self.begins)
        ]
        return found[-1] if found else None

    def _is_due(self, declared: Declaration) -> bool:
        return latest_until(parse_cron(declared.expression), self.minute, self.zone) == self.minute

    def _meanwhile(self) -> list[Reason]:
        """A run under way at the minute, or a retry it waits for."""
        reasons: list[Reason] = []
        for run in self.runs:
            if run.started_at >= self.begins:
                continue
            if run.outcome == "running" or (run.ended_at is not None and run.ended_at > self.begins):
                until = "it still does" if run.ended_at is None else f"until {self.at(run.ended_at)}"
                text = f"the run of {self.at(run.started_at)} was still running, {until}; what falls due then is owed"
                reasons.append(Reason("stillRunning", text, self.facts(run)))
        previous = self.previous(self.begins)
        if previous is not None and previous.outcome == "failure" and previous.ended_at is not None:
            retry = self.retry_of(previous)
            if previous.ended_at <= self.begins < retry:
                reasons.append(self._waiting_for(retry))
        if previous is not None and previous.outcome == "interrupted":
            reasons.append(
                Reason(
                    "interrupted",
                    f"a crash had cut short the run of {self.at(previous.started_at)}",
                    self.facts(previous),
                )
            )
        return reasons

    def _why_started(self, run: RunRecord) -> list[Reason]:
        """Why a run started, and if it was late why."""
        previous = self.previous(run.started_at)
        if run.cause == "retry":
            return [self._a_retry(run, previous)]
        if run.cause == "interrupted":
            return self._a_restart(run, previous)
        reasons = []
        occurrences = self.served_by(run)
        lateness = self.lateness(run)
        if lateness <= PUNCTUAL:
            reasons.append(Reason("onTime", f"due at {self.at(run.scheduled_time)}, started {long(lateness)} later"))
        else:
            reasons += self._why_late(run, previous, occurrences)
        if previous is not None and previous.outcome == "failure":
            retry = self.retry_of(previous)
            if retry > run.started_at:
                text = f"the due minute took the place of the retry that waited for {self.at(retry)}"
                reasons.append(Reason("retryPreempted", text, {"retryAt": self.iso(retry)}))
        return reasons

    def _why_late(self, run: RunRecord, previous: RunRecord | None, occurrences: list[Minute]) -> list[Reason]:
        earliest = begin(occurrences[0]) if occurrences else run.scheduled_time
        reasons = []
        declared = self.declared_for(run)
        if declared is not None and declared.known_since > earliest:
            text = f"due at {self.at(earliest)}, and declared in that minute, at {self.at(declared.known_since)}"
            return [Reason("knownOnlySince", text, {"knownSince": self.iso(declared.known_since)})]
        blocked = previous is not None and previous.ended_at is not None and previous.ended_at > earliest
        if blocked and previous is not None and previous.ended_at is not None:
            text = f"the run of {self.at(previous.started_at)} was still running until {self.at(previous.ended_at)}"
            reasons.append(Reason("stillRunning", text, self.facts(previous)))
            earliest = previous.ended_at
        absence = self.absence(earliest, run.started_at)
        reasons += absence
        if len(occurrences) > 1:
            more = "more than " if len(occurrences) >= COUNTED_MAX else ""
            text = f"one start serves {more}{len(occurrences)} occurrences, from {self.at(begin(occurrences[0]))} to "
            reasons.append(
                Reason("servedOnceForMany", text + self.at(begin(occurrences[-1])), {"occurrences": len(occurrences)})
            )
        if run.started_at - earliest > 60 * MICROSECONDS and not absence:
            reasons.append(self.no_known_cause())
        elif not reasons:
            reasons.append(
                Reason("late", f"due at {self.at(run.scheduled_time)}, started {long(self.lateness(run))} later")
            )
        return reasons

    def _a_retry(self, run: RunRecord, previous: RunRecord | None) -> Reason:
        text = f"a retry, due at {self.at(run.scheduled_time)}"
        if previous is not None and previous.outcome == "failure" and previous.ended_at is not None:
            delay = long(run.scheduled_time - previous.ended_at)
            text += f": the run of {self.at(previous.started_at)} had failed at {self.at(previous.ended_at)}, "
            text += f"and the delay is {delay}"
        return Reason(
            "retry", text, {"retryAt": self.iso(run.scheduled_time), "latenessMs": self.lateness(run) // 1000}
        )

    def _a_restart(self, run: RunRecord, previous: RunRecord | None) -> list[Reason]:
        cut = self.at(run.scheduled_time)
        facts = {"interruptedRunStartedAt": self.iso(run.scheduled_time)}
        reasons = [
            Reason("interruptedAndRestarted", f"a crash had cut short the run of {cut}; this is that run again", facts)
        ]
        arrival = max((each for each in self.evidence.arrivals if each <= run.started_at), default=None)
        if arrival is not None and arrival > run.scheduled_time:
            reasons += self.absence(run.scheduled_time, run.started_at)
            if run.started_at - arrival >= CRASH_LOOP_DELAY * 1000:
                reasons.append(
                    Reason("crashLoopDelay", "it was not the first interruption in a row, so it waited its delay")
                )
        return reasons

    def _what_became_of(self, run: RunRecord) -> list[Reason]:
        facts = self.facts(run)
        if run.outcome == "failure":
            ended = Instant(run.ended_at or run.started_at)
            text = f"it failed at {self.at(ended)}: {run.error or 'unknown error'}"
            return [Reason("failed", text, facts)]
        if run.outcome == "interrupted":
            again = next((each for each in self.runs if each.cause == "interrupted" and each.run_id > run.run_id), None)
            text = "it was cut short by a crash"
            return [
                Reason(
                    "interrupted",
                    f"{text}, and started again at {self.at(again.started_at)}" if again else text,
                    facts,
                )
            ]
        if run.outcome == "running":
            return [Reason("running", "it is still running", facts)]
        ended = Instant(run.ended_at or run.started_at)
        return [Reason("succeeded", f"it succeeded at {self.at(ended)}, after {long(ended - run.started_at)}", facts)]

    def no_known_cause(self) -> Reason:
        text = "no downtime is on record for it: all slots were taken, the event loop was blocked, the host slept, "
        return Reason(
            "noDowntimeOnRecord", text + "its clock was set, or a store fault kept the start from being written"
        )

    def _dropped(self, declared: Declaration, retired: Instant) -> Reason:
        successor = next((each for each in self.evidence.declarations if each.known_since == retired), None)
        if successor is None:
            return Reason(
                "orphaned", f"it was no longer declared from {self.at(retired)} on; what was owed was dropped"
            )
        change = f"{declared.expression!r} became {successor.expression!r}"
        if declared.expression == successor.expression:
            change = f"the retry delay became {long(successor.retry_delay_ms * 1000)}"
        return Reason("overridden", f"it was overridden at {self.at(retired)} ({change}); what was owed was dropped")

    def _known(self) -> Reason:
        later = [each for each in self.evidence.declarations if each.known_since >= self.ends]
        earlier = [
            each
            for each in self.evidence.declarations
            if each.retired_at is not None and each.retired_at <= self.begins
        ]
        if earlier and earlier[-1].retired_at is not None:
            gone = self.at(earlier[-1].retired_at)
            again = f", and declared again only at {self.at(later[0].known_since)}" if later else ""
            return Reason("orphaned", f"it was no longer declared since {gone}{again}")
        if later:
            since = later[0].known_since
            return Reason("knownOnlySince", f"it is known only since {self.at(since)}", {"knownSince": self.iso(since)})
        return Reason("unknownTask", "no declaration of it is on record")

    def _repeated(self) -> Reason:
        assert self.change is not None
        clocks = f"clocks go back from {self.change.clock_before:%H:%M} to {self.change.clock_after:%H:%M}"
        which = "this is the second" if self.wall.fold else "this is the first"
        text = f"{self.wall:%H:%M} occurs twice on {self.wall:%Y-%m-%d} ({clocks}), and is due the first time only"
        return Reason("repeatedByDst", f"{text}; {which}")

    def _already_served(self, run: RunRecord) -> Reason:
        return Reason("alreadyServed", f"already served by the run of {self.at(run.started_at)}", self.facts(run))

    def _waiting_for(self, retry: Instant) -> Reason:
        return Reason(
            "waitingForRetry", f"it was waiting for its retry until {self.at(retry)}", {"retryAt": self.iso(retry)}
        )

    def beyond_history(self) -> Reason | None:
        complete = self.evidence.history_complete_since
        if complete is None or complete <= self.begins:
            return None
        text = f"history no longer reaches back to this minute: it is complete since {self.at(complete)}"
        return Reason("historyTrimmed", text, {"completeSince": self.iso(complete)})
