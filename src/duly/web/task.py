"""One task: its fourteen days, durations, coming starts, an explanation, its runs; also of tasks that are gone."""

import shlex
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache
from itertools import islice
from statistics import median
from typing import Any, Final
from urllib.parse import quote

from duly.core.cron import CronExpression, parse_cron
from duly.core.due import due_between
from duly.core.moments import MICROSECONDS, Instant, Minute, as_datetime, begin, instant_of, minute_of
from duly.errors import InvalidCronExpressionError
from duly.insight.cluster import host_text
from duly.insight.coming import Calendar
from duly.insight.cron_words import in_words
from duly.insight.explanation import Answer, Explanation, explain, minute_to_explain
from duly.insight.health import Situations, TaskStatus
from duly.insight.moment_text import parse_moment
from duly.insight.run import RunReport, run_report
from duly.insight.words import between, counted, iso, stretch
from duly.insight.zone_changes import leap_in_words, zone_changes
from duly.stores.port import Declaration, HistoryExtent, HostName, RunMarks, RunSelection, Snapshot, View
from duly.text import plain
from duly.web.display import Display, is_long, shown_name
from duly.web.forms import Form, ParameterError, run_place_text
from duly.web.frame import Frame, NotThereError
from duly.web.missing import name_of_declaration, unknown_task
from duly.web.pictures import Days, Span, TimelineLink, durations
from duly.web.sampler import ARRIVALS_MAX, HOUR, Sample

RUNS_SHOWN: Final = 25
COMING_SHOWN: Final = 8
DURATIONS_SHOWN: Final = 80
HOSTS_SHOWN: Final = 10
_RUNS_DRAWN_MAX: Final = 25_000
"""A task of every minute has 20,160 runs in fourteen days."""

_TARGETS_MAX: Final = 300
"""Marks of the timeline that are links of their own: each is some forty bytes of the page on the wire."""

_DOWN_MIN: Final = 120_000_000
"""Microseconds without a scheduler that are drawn: a restart of a few seconds is no outage."""

_LATE: Final = 60 * MICROSECONDS
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
    sample = frame.source.sample_if_any(0)

    def question(view: View) -> tuple[Display, dict[str, Any]]:
        snapshot = view.snapshot()
        situations = Situations(snapshot, host_zone)
        display = frame.display(situations.zone, snapshot.at)
        wanted = _name(view, name, generation)
        declarations = view.declarations(wanted)
        if not declarations:
            raise unknown_task(view, wanted, display)
        try:
            about = _About(frame, view, situations, display, declarations, sample)
            return display, about.values(asked_text, runs_before)
        except InvalidCronExpressionError as fault:
            raise NotThereError(f"The store holds a declaration of this task that cannot be read: {fault}") from fault

    display, values = frame.source.read(question)
    values["slow"] = sample is not None and sample.has_long_history
    return frame.rendered("task.html", display, "Tasks", shown_name(values["name"]), **values)


def _name(view: View, name: str, generation: int | None) -> str:
    if generation is not None:
        return name_of_declaration(view, generation)
    if not name:
        raise ParameterError("name is missing: the address names a task as ?name=")
    return name


class _About:
    """Everything about one task that its page shows."""

    def __init__(
        self,
        frame: Frame,
        view: View,
        situations: Situations,
        display: Display,
        declarations: Sequence[Declaration],
        sample: Sample | None,
    ) -> None:
        self._frame = frame
        # How far history reaches takes scans of it; where there is a sample, they have been made.
        self._sample = sample
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
        """The values for the template."""
        days = Days(self._snapshot.at, self._zone)
        recent = self._view.run_marks(RunSelection(self._name, since=days.begin), _RUNS_DRAWN_MAX)
        runs, earlier = self._runs(runs_before, recent)
        asked = self._asked(asked_text)
        return {
            "name": self._name,
            "generation": self._latest.generation,
            "named": not is_long(self._name),
            "declaration": self._latest,
            "status": self._status,
            "label": self._label(),
            "words": in_words(self._expression),
            "delay": stretch(self._latest.retry_delay_ms / 1000),
            **self._timeline(days, recent),
            "shared": self._snapshot.cluster is not None,
            **self._hosts(recent),
            "coming": self._coming(),
            "explanation": (explanation := explain(self._view, self._name, asked, extent=self._extent)),
            "tone": _tone(explanation),
            "asked": f"{asked:%Y-%m-%dT%H:%M}",
            "asked_now": bool(asked_text),
            "late": self._late_start(recent),
            "failure": self._last_failure(recent),
            "runs": runs,
            "earlier": earlier,
            "newest": runs_before is not None,
            "commands": self._commands(explanation),
            **self._durations(recent),
        }

    @property
    def _extent(self) -> HistoryExtent | None:
        return None if self._sample is None else self._sample.extent

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

    def _timeline(self, days: Days, recent: RunMarks) -> dict[str, Any]:
        at = self._snapshot.at
        ends = [
            _end(outcome, started_at, ended_at, at) if ended_at is None else ended_at
            for outcome, started_at, ended_at in zip(recent.outcomes, recent.started_at, recent.ended_at, strict=True)
        ]
        runs = zip(reversed(recent.outcomes), reversed(recent.started_at), reversed(ends), strict=True)
        first = self._first_span(days, recent)
        spans = [*first, *days.merged(runs)]
        known_from = self._known_from(days, recent)
        if known_from > days.begin:
            spans.append(Span("unknown", days.begin, known_from))
        changes = zone_changes(self._zone, as_datetime(days.begin, UTC), as_datetime(at, UTC))
        unserved = self._unserved(days, recent, known_from)
        spans += self._absences(days.begin, unserved, recent)
        cut = len(recent) if len(recent) == _RUNS_DRAWN_MAX else None
        counts = Counter(recent.outcomes) + Counter(span.kind for span in first)
        picture = days.picture(counts, spans, unserved, changes, cut)
        each_linked = len(recent) <= _TARGETS_MAX
        links = [*(self._targets(days) if each_linked else self._hours(days, recent))]
        hours = set() if each_linked else {_hour(days, started_at) for started_at in recent.started_at}
        links += self._questions(days, [each for each in unserved if _hour(days, begin(each)) not in hours], len(links))
        return {"timeline": days.labelled(picture + days.targets(links)), "each_linked": each_linked, "cut": cut}

    def _first_span(self, days: Days, recent: RunMarks) -> list[Span]:
        """The run that was under way when the first day began, if there was one: the latest before it."""
        if recent and recent.started_at[-1] - days.begin < _DOWN_MIN:
            return []  # it ended before that: hardly to be seen, and for a task of every minute dear to find
        before = self._view.runs(RunSelection(self._name, until=days.begin), limit=1)
        ends = [(run.outcome, _end(run.outcome, run.started_at, run.ended_at, self._snapshot.at)) for run in before]
        return [Span(outcome, days.begin, end) for outcome, end in ends if end > days.begin]

    def _known_from(self, days: Days, recent: RunMarks) -> Instant:
        """The instant from which on every run of these days is known, and drawn."""
        begins = self._view.history_begins() if self._sample is None else self._sample.history_begins
        known_from = max(days.begin, self._snapshot.at if begins is None else begins)
        return max(known_from, recent.started_at[-1]) if len(recent) == _RUNS_DRAWN_MAX else known_from

    def _hosts(self, recent: RunMarks) -> dict[str, Any]:
        """How many of the runs in the timeline each host has started, most first; nothing in an embedded store."""
        if self._snapshot.cluster is None:
            return {"hosts": (), "hosts_more": 0}
        found = Counter(recent.hosts).most_common()
        return {"hosts": found[:HOSTS_SHOWN], "hosts_more": len(found[HOSTS_SHOWN:])}

    def _targets(self, days: Days) -> Iterator[TimelineLink]:
        """Each mark of a run leads to it."""
        for run in self._view.runs(RunSelection(self._name, since=days.begin), limit=_TARGETS_MAX):
            place = run_place_text(run.started_at, run.run_id + 1)  # the page of runs that begins with this one
            address = self._link(runs_before=place) + f"#run-{run.run_id}"
            report = run_report(run)
            took = "" if report.duration_ms is None else f", {stretch(report.duration_ms / 1000)}"
            where = "" if run.host is None else f", {host_text(run.host)}"
            title = f"{self._display.clock(run.started_at)} {run.outcome}{took}{where}"
            end = _end(run.outcome, run.started_at, run.ended_at, self._snapshot.at)
            yield TimelineLink(run.started_at, end, address, title)

    def _questions(self, days: Days, unserved: Sequence[Minute], links: int) -> Iterator[TimelineLink]:
        """Each minute in which nothing started leads to its explanation; if these are too many, each hour of them."""
        hours: dict[int, list[Instant]] = {}
        for minute in unserved:
            due = begin(minute)
            hours.setdefault(_hour(days, due) if links + len(unserved) > _TARGETS_MAX else minute, []).append(due)
        for first, *others in hours.values():
            address = self._link(at=f"{as_datetime(first, self._zone):%Y-%m-%dT%H:%M}") + "#why"
            more = f" and {counted(len(others), 'minute')} after it were" if others else ""
            title = f"{self._display.clock(first)}{more} due, and nothing started then: why?"
            yield TimelineLink(first, others[-1] if others else first, address, title)

    def _hours(self, days: Days, recent: RunMarks) -> Iterator[TimelineLink]:
        """Each hour leads to its runs, because there are very many."""
        numbers = [_hour(days, started_at) for started_at in recent.started_at]
        counts = Counter(numbers)
        hosts: dict[int, Counter[HostName]] = {}
        for number, host in zip(numbers, recent.hosts, strict=False):
            if host is not None:
                hosts.setdefault(number, Counter())[host] += 1
        address = self._all_runs()
        # Each hour ends where another begins: two conversions and texts for each of up to 336.
        bound = cache(lambda number: Instant(days.begin + number * HOUR))
        shown = cache(lambda number: self._display.clock(bound(number)))
        in_query = cache(lambda number: quote(iso(bound(number), self._zone), safe=""))
        for number, runs in sorted(counts.items()):
            title = f"{shown(number)} to {shown(number + 1)}: {counted(runs, 'run')}"
            most = hosts.get(number, Counter()).most_common(HOSTS_SHOWN)
            title += f" ({', '.join(f'{host_text(host)} {on:,}' for host, on in most)})" if most else ""
            place = f"{address}&since={in_query(number)}&until={in_query(number + 1)}"
            yield TimelineLink(bound(number), Instant(bound(number + 1) - MICROSECONDS), place, title)

    def _all_runs(self) -> str:
        """The address of the list of its runs."""
        return self._display.runs_link(self._name, self._latest.generation)

    def _link(self, **parameters: object) -> str:
        return self._display.task_link(self._name, self._latest.generation, **parameters)

    def _absences(self, since: Instant, unserved: Sequence[Minute], recent: RunMarks) -> list[Span]:
        """Times without a scheduler, from a sign of life to the next arrival, or up to now.

        A scheduler that has nothing to start gives no sign of life, and its end leaves none. Only a time in which a
        minute was due, and nothing started, or in which a run of this task was cut short, is known to have had none.
        """
        spans = []
        known = {} if self._sample is None else self._sample.signs_of_life
        troubles = [begin(minute) for minute in unserved]
        marks = zip(recent.started_at, recent.outcomes, strict=True)
        troubles += [started_at for started_at, outcome in marks if outcome == "interrupted"]
        troubles.sort()
        for arrival in [each for each in self._snapshot.arrivals if each > since][-ARRIVALS_MAX:]:
            seen = known[arrival] if arrival in known else self._view.last_sign_of_life(arrival)
            if seen is None or arrival - seen <= _DOWN_MIN:
                continue
            if bisect_left(troubles, seen) < bisect_right(troubles, arrival):
                spans.append(Span("down", seen, arrival))
        holder = self._snapshot.holder
        if not holder.alive and holder.last_poll_at is not None and self._snapshot.at - holder.last_poll_at > _DOWN_MIN:
            spans.append(Span("down", holder.last_poll_at, self._snapshot.at))
        return spans

    def _unserved(self, days: Days, recent: RunMarks, known_from: Instant) -> list[Minute]:
        """Due minutes of the declaration in force in which nothing started, since history has runs."""
        begins = max(known_from, self._latest.known_since)
        last = minute_of(self._snapshot.at if self._latest.retired_at is None else self._latest.retired_at, self._zone)
        started = days.clock.minutes(recent.started_at)
        before_first = Minute(minute_of(Instant(begins), self._zone) - 1)
        due = due_between(self._expression, before_first, last, self._zone)
        return [minute for minute in due if minute not in started]

    def _latest_runs(self, recent: RunMarks, count: int, outcomes: tuple[str, ...] = ()) -> RunSelection:
        """A selection of the latest runs: of `count` of them if so many are known, else of all.

        A task of every minute has so many runs that sorting them by their starts would take longer than all else.
        """
        marks = zip(recent.started_at, recent.outcomes, strict=True)
        starts = (started_at for started_at, outcome in marks if not outcomes or outcome in outcomes)
        return RunSelection(self._name, since=next(islice(starts, count - 1, None), None), outcomes=outcomes)

    def _durations(self, recent: RunMarks) -> dict[str, Any]:
        which = self._latest_runs(recent, DURATIONS_SHOWN, ("success", "failure"))
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

    def _last_failure(self, recent: RunMarks) -> RunReport | None:
        failures = self._view.runs(self._latest_runs(recent, 1, ("failure",)), limit=1, tracebacks=True)
        return next(map(run_report, failures), None)

    def _late_start(self, recent: RunMarks) -> datetime | None:
        """The due minute of the latest start that was late: what people will ask about."""
        for started_at, lateness in zip(recent.started_at, recent.lateness, strict=True):
            if lateness is not None and lateness > _LATE:
                return as_datetime(started_at - lateness, self._zone)
        return None

    def _runs(self, before: tuple[Instant, int] | None, recent: RunMarks) -> tuple[list[RunReport], str | None]:
        which = RunSelection(self._name, before=before)
        if before is None:
            which = self._latest_runs(recent, RUNS_SHOWN + 1)
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
        """The commands that give these answers in a terminal."""
        if not self._name.isprintable() or len(self._name) > 200:
            return []
        name, store = shlex.quote(self._name), shlex.join(self._frame.source.options)
        return [
            f"duly explain {name} --at {explanation.at:%Y-%m-%dT%H:%M} {store}",
            f"duly history {name} {store}",
            f"duly next {shlex.quote(self._expression.text)}",
        ]


def _tone(explanation: Explanation) -> str:
    """The colour of an answer: that of a failure if the run failed, even if it began on time."""
    run = explanation.run
    if explanation.verdict is Answer.RAN and run is not None and run.outcome in {"failure", "interrupted"}:
        return "failure"
    return _TONES.get(explanation.verdict, "waiting")


def _hour(days: Days, at: Instant) -> int:
    """The number of the hour since these days began."""
    return (at - days.begin) // HOUR


def _end(outcome: str, started_at: Instant, ended_at: Instant | None, at: Instant) -> Instant:
    if ended_at is not None:
        return ended_at
    return at if outcome == "running" else started_at
