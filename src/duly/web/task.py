"""One task: its fourteen days, durations, coming starts, an explanation, its runs; also of tasks that are gone."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from statistics import median
from typing import Any, Final

from markupsafe import Markup

from duly.core.cron import CronExpression, parse_cron
from duly.core.due import next_due
from duly.core.moments import Instant, Minute, as_datetime, instant_of, minute_of
from duly.errors import CronCalculationError, InvalidCronExpressionError
from duly.insight.coming import Calendar
from duly.insight.cron_words import in_words
from duly.insight.explanation import Answer, Explanation, explain, minute_to_explain
from duly.insight.health import Situations, TaskStatus
from duly.insight.moment_text import parse_moment
from duly.insight.run import RunReport, run_report
from duly.insight.words import between, stretch
from duly.insight.zone_changes import leap_in_words, zone_changes
from duly.stores.port import Declaration, RunRecord, RunSelection, Snapshot, View
from duly.text import plain
from duly.web.display import Display, shown_name
from duly.web.forms import Form, ParameterError, run_place_text
from duly.web.frame import Frame, NotThereError
from duly.web.missing import unknown_task
from duly.web.pictures import Days, Span, durations

RUNS_SHOWN: Final = 25
COMING_SHOWN: Final = 8
DURATIONS_SHOWN: Final = 80
_RUNS_DRAWN_MAX: Final = 25_000
"""A task of every minute has 20,160 runs in fourteen days."""

_ARRIVALS_DRAWN_MAX: Final = 20
_DOWN_MIN: Final = 120_000_000
"""Microseconds without a scheduler that are drawn: a restart of a few seconds is no outage."""

_LATE: Final = 60_000
_TONES: Final = {
    Answer.RAN: "success",
    Answer.RAN_LATE: "owed",
    Answer.SERVED_LATER: "owed",
    Answer.NOT_RUN: "failure",
    Answer.OWED: "failure",
}


@dataclass(frozen=True, slots=True)
class ComingLine:
    """A coming start, or a note about a change of the zone between two of them."""

    at: Instant
    note: str | None


def page(frame: Frame, form: Form) -> str:
    """Show a task."""
    name, generation = form.text("name"), form.number("generation", 1, 2**62)
    asked_text, runs_before = form.text("at"), form.run_place("runs_before")
    host_zone = frame.source.clock.zone()

    def question(view: View) -> tuple[Display, dict[str, Any]]:
        snapshot = view.snapshot()
        situations = Situations(snapshot, host_zone)
        display = frame.display(situations.zone, snapshot.at)
        wanted = _name(view, name, generation)
        declarations = view.declarations(wanted)
        if not declarations:
            raise unknown_task(view, wanted, display)
        try:
            about = _About(frame, view, situations, display, declarations)
            return display, about.values(asked_text, runs_before)
        except InvalidCronExpressionError as fault:
            raise NotThereError(f"The store holds a declaration of this task that cannot be read: {fault}") from fault

    display, values = frame.source.read(question)
    return frame.rendered("task.html", display, "Tasks", shown_name(values["name"]), **values)


def _name(view: View, name: str, generation: int | None) -> str:
    if generation is None:
        if not name:
            raise ParameterError("name is missing: the address names a task as ?name=")
        return name
    declaration = view.declaration(generation)
    if declaration is None:
        raise NotThereError(f"The store has no declaration {generation}.")
    return declaration.task


class _About:
    """Everything about one task that its page shows."""

    def __init__(
        self, frame: Frame, view: View, situations: Situations, display: Display, declarations: Sequence[Declaration]
    ) -> None:
        self._frame = frame
        self._view = view
        self._display = display
        self._snapshot: Snapshot = situations.snapshot
        self._zone: tzinfo = situations.zone
        self._declarations = declarations
        self._latest = declarations[-1]
        self._name = self._latest.task
        self._expression: CronExpression = parse_cron(self._latest.expression)
        in_force = view.task(self._name)
        self._status: TaskStatus | None = None if in_force is None else situations.status_of(in_force)

    def values(self, asked_text: str, runs_before: tuple[Instant, int] | None) -> dict[str, Any]:
        """What the template needs."""
        days = Days(self._snapshot.at, self._zone)
        recent = list(self._view.runs(RunSelection(self._name, since=days.begin), limit=_RUNS_DRAWN_MAX))
        runs, earlier = self._runs(runs_before)
        asked = self._asked(asked_text)
        return {
            "name": self._name,
            "generation": self._latest.generation,
            "declaration": self._latest,
            "status": self._status,
            "label": self._label(),
            "words": in_words(self._expression),
            "delay": stretch(self._latest.retry_delay_ms / 1000),
            "timeline": self._timeline(days, recent),
            "coming": self._coming(),
            "explanation": (explanation := explain(self._view, self._name, asked)),
            "tone": _TONES.get(explanation.verdict, "waiting"),
            "asked": f"{asked:%Y-%m-%dT%H:%M}",
            "asked_now": bool(asked_text),
            "late": self._late_start(recent),
            "failure": self._last_failure(),
            "runs": runs,
            "earlier": earlier,
            "newest": runs_before is not None,
            "commands": self._commands(explanation),
            **self._durations(),
        }

    def _label(self) -> tuple[str, str]:
        """The state, and its words."""
        status = self._status
        if status is None:
            return "gone", "no longer declared"
        if status.state == "running" and status.last_attempt_at is not None:
            return "running", f"running {between(status.last_attempt_at, self._snapshot.at)}"
        if status.state == "owed" and status.owed_since is not None:
            return "owed", f"owed since {self._display.clock(status.owed_since)}"
        return status.state, status.state

    # --- the past ----------------------------------------------------------------------------------------------------

    def _timeline(self, days: Days, recent: Sequence[RunRecord]) -> Markup:
        at = self._snapshot.at
        spans = [Span(run.outcome, run.started_at, _end(run, at)) for run in recent]
        spans += self._absences(days.begin)
        history_begins = self._view.history_begins()
        if history_begins is None or history_begins > days.begin:
            spans.append(Span("unknown", days.begin, at if history_begins is None else history_begins))
        changes = zone_changes(self._zone, as_datetime(days.begin, UTC), as_datetime(at, UTC))
        return days.picture(spans, self._unserved(days.begin, recent), changes)

    def _absences(self, since: Instant) -> list[Span]:
        """Times without a scheduler, from a sign of life to the next arrival, or up to now."""
        spans = []
        for arrival in [each for each in self._snapshot.arrivals if each > since][-_ARRIVALS_DRAWN_MAX:]:
            seen = self._view.last_sign_of_life(arrival)
            if seen is not None and arrival - seen > _DOWN_MIN:
                spans.append(Span("down", seen, arrival))
        holder = self._snapshot.holder
        if not holder.alive and holder.last_poll_at is not None and self._snapshot.at - holder.last_poll_at > _DOWN_MIN:
            spans.append(Span("down", holder.last_poll_at, self._snapshot.at))
        return spans

    def _unserved(self, since: Instant, recent: Sequence[RunRecord]) -> list[Minute]:
        """Due minutes of the declaration in force in which nothing started, since history has runs."""
        known = self._latest.known_since
        oldest = recent[-1].started_at if recent else self._snapshot.at
        begins = max(since, known, oldest)
        last = minute_of(self._snapshot.at if self._latest.retired_at is None else self._latest.retired_at, self._zone)
        started = {minute_of(run.started_at, self._zone) for run in recent}
        found = []
        minute = Minute(minute_of(Instant(begins), self._zone) - 1)
        try:
            while (minute := next_due(self._expression, minute, self._zone)) < last:
                if minute not in started:
                    found.append(minute)
        except CronCalculationError:
            pass  # the calendar ends in 9999
        return found

    def _durations(self) -> dict[str, Any]:
        which = RunSelection(self._name, outcomes=("success", "failure"))
        runs = [run_report(run) for run in self._view.runs(which, limit=DURATIONS_SHOWN)][::-1]
        took = [(run.outcome, run.duration_ms) for run in runs if run.duration_ms is not None]
        ordered = sorted(each for _, each in took)
        if not ordered:
            return {"durations": None, "measured": runs}
        return {
            "durations": durations(took, median(ordered)),
            "measured": runs,
            "median_ms": median(ordered),
            "most_ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))],
            "longest_ms": ordered[-1],
        }

    def _last_failure(self) -> RunReport | None:
        failures = self._view.runs(RunSelection(self._name, outcomes=("failure",)), limit=1, tracebacks=True)
        return next(map(run_report, failures), None)

    def _late_start(self, recent: Sequence[RunRecord]) -> datetime | None:
        """The due minute of the latest start that was late: what people will ask about."""
        late = (run for run in recent if run.cause == "cron" and run.started_at - run.scheduled_time > _LATE * 1000)
        found = next(late, None)
        return None if found is None else as_datetime(found.scheduled_time, self._zone)

    def _runs(self, before: tuple[Instant, int] | None) -> tuple[list[RunReport], str | None]:
        which = RunSelection(self._name, before=before)
        found = [run_report(run) for run in self._view.runs(which, limit=RUNS_SHOWN + 1)]
        if len(found) <= RUNS_SHOWN:
            return found, None
        shown = found[:RUNS_SHOWN]
        place = run_place_text(shown[-1].started_at, shown[-1].run_id)
        return shown, self._display.task_link(self._name, self._latest.generation, runs_before=place) + "#runs"

    # --- the future, and why -----------------------------------------------------------------------------------------

    def _coming(self) -> list[ComingLine]:
        """The next starts, with what the zone does to them in between."""
        if self._status is None:
            return []
        found = Calendar(as_datetime(self._snapshot.at, self._zone), COMING_SHOWN).coming(None, self._expression)
        lines = [ComingLine(instant_of(start), None) for start in found.starts]
        lines += [ComingLine(instant_of(leap.at), leap_in_words(leap)) for leap in found.leaps]
        return sorted(lines, key=lambda line: line.at)

    def _asked(self, text: str) -> datetime:
        """The minute that is explained: the one asked about, or the latest that was due."""
        if not text:
            return minute_to_explain(self._declarations, self._snapshot.at, self._zone)
        try:
            asked = parse_moment(text, self._zone, self._snapshot.at)
            instant_of(asked)
        except (ValueError, OverflowError) as fault:
            raise ParameterError(f"at: {plain(fault, longest=200)}") from None
        return asked

    def _commands(self, explanation: Explanation) -> list[str]:
        """What to type for the same answers in a terminal."""
        if not self._name.isprintable() or len(self._name) > 200:
            return []
        name, store = shlex.quote(self._name), shlex.quote(self._frame.source.name)
        return [
            f"duly explain {name} --at {explanation.at:%Y-%m-%dT%H:%M} --store {store}",
            f"duly history {name} --store {store}",
            f"duly next {shlex.quote(self._expression.text)}",
        ]


def _end(run: RunRecord, at: Instant) -> Instant:
    if run.ended_at is not None:
        return run.ended_at
    return at if run.outcome == "running" else run.started_at
