"""What `duly run` says while it runs: events as lines for people, or as JSON lines for programs.

A JSON line has `time`, `level`, `event`, and the event's own fields. Beside the scheduler's events (`duly.events`)
there are those of the program itself:

| event           | fields                                                |
|-----------------|-------------------------------------------------------|
| ProgramReady    | target, store, totalTasks, zone, pid                  |
| ProgramReloading| target, reason                                        |
| ProgramReloaded | target, totalTasks, changedTasks                      |
| ProgramFailed   | error, [hint], [excerpt]                              |
| ProgramStopping | reason, waitingFor                                    |
| ProgramStopped  |                                                       |
| ProgramAbandoned| waitingFor                                            |
| LogRecord       | logger, message, [traceback]: the application's own   |
"""

import contextlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from duly import events
from duly.cli.output import Failure, console, first_line, show_failure
from duly.cli.target import shortened_traceback
from duly.clock import SystemClock
from duly.core.moments import as_datetime
from duly.events import Event
from duly.insight.words import stretch
from duly.text import plain

_LEVELS: Final = {events.DEBUG: "debug", events.INFO: "info", events.WARNING: "warning", events.ERROR: "error"}
_STYLES: Final = {events.DEBUG: "dim", events.INFO: "", events.WARNING: "yellow", events.ERROR: "bold red"}

_SAID_ANYWAY: Final = frozenset(
    {events.TaskRetryStarted, events.SchedulerStopRequested, events.SchedulerStopped,
     events.SchedulerInitializationFailed, events.SchedulerReinitializationFailed}
)  # fmt: skip
"""Events that the next line, or the program itself, tells people as well."""

Line = tuple[str, str, str, str]
"""A label, its style, a task's name or nothing, and what is said about it."""


class EventsLog:
    """Writes to standard output; when that is gone, scheduling goes on without it."""

    def __init__(self, form: str, *, verbose: bool) -> None:
        self.json = form == "json"
        self._level = events.DEBUG if verbose else events.INFO
        self._clock = SystemClock()
        self._terminal = sys.stdout.isatty()
        self._zone = self._clock.zone()

    # --- the scheduler's events --------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Say what the scheduler tells."""
        if event.level < self._level:
            return
        exception = event.exception if isinstance(event, events.TaskRunFailed) else None
        if self.json:
            fields = event.fields
            if exception is not None:
                fields["traceback"] = "".join(traceback.format_exception(exception))
            self._write_json(event.level, event.name, fields)
        elif self._level == events.DEBUG or type(event) not in _SAID_ANYWAY:
            self._write_line(event.level, line_of(event), shortened_traceback(exception) if exception else "")

    # --- the program's own -------------------------------------------------------------------------------------------

    def say(self, name: str, text: str, *, level: int = events.INFO, **fields: Any) -> None:
        """Say what the program itself does: `text` for people, `name` and `fields` for programs."""
        if self.json:
            self._write_json(level, name, fields)
        else:
            self._write_line(level, ("duly", "bold", "", text))

    def failure(self, failure: Failure) -> None:
        """Show an error after which the program goes on."""
        if not self.json:
            with contextlib.suppress(OSError, ValueError):
                show_failure(failure)
            return
        fields = {"error": failure.message, "hint": failure.hint, "excerpt": failure.excerpt}
        self._write_json(events.ERROR, "ProgramFailed", {key: value for key, value in fields.items() if value})

    def last_words(self, text: str, name: str, **fields: Any) -> None:
        """Say something from a signal handler, past buffers that may be in use at this moment."""
        line = self._json_line(events.WARNING, name, fields) if self.json else f"{self._now():%H:%M:%S}  duly  {text}"
        with contextlib.suppress(OSError):
            os.write(1, line.encode() + b"\n")

    def record(self, record: logging.LogRecord) -> None:
        """Pass on what the application logs."""
        shown = traceback.format_exception(record.exc_info[1]) if record.exc_info and record.exc_info[1] else []
        if self.json:
            fields = {"logger": record.name, "message": record.getMessage()}
            if shown:
                fields["traceback"] = "".join(shown)
            self._write_json(record.levelno, "LogRecord", fields)
            return
        label, style = record.levelname.lower(), _STYLES.get(record.levelno, "")
        text = f"{plain(record.name)}: {plain(record.getMessage(), lines=True)}"
        self._write_line(record.levelno, (label, style, "", text), "".join(shown).rstrip())

    # --- writing -----------------------------------------------------------------------------------------------------

    def _now(self) -> datetime:
        return as_datetime(self._clock.now(), self._zone)

    def _json_line(self, level: int, name: str, fields: Mapping[str, Any]) -> str:
        head = {"time": self._now().isoformat(), "level": _LEVELS.get(level, "info"), "event": name}
        return json.dumps({**head, **fields}, default=str)

    @contextlib.contextmanager
    def _while_heard(self) -> Iterator[None]:
        """Write while somebody reads; from then on to nowhere, so that nothing of it is left to fail at the end."""
        try:
            yield
            sys.stdout.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def _write_json(self, level: int, name: str, fields: Mapping[str, Any]) -> None:
        with self._while_heard():
            sys.stdout.write(self._json_line(level, name, fields) + "\n")

    def _write_line(self, level: int, line: Line, below: str = "") -> None:
        label, style, name, text = line
        now = self._now()
        shown = Text.assemble(
            (f"{now:%H:%M:%S}" if self._terminal else f"{now:%Y-%m-%d %H:%M:%S}", "dim"),
            "  ",
            (f"{label:<11}", style),
            (f"{plain(name)}  ", "bold") if name else "",
            (text, _STYLES.get(level, "") if level != events.INFO else ""),
        )
        with self._while_heard():
            console().print(shown, soft_wrap=True)
            if below:
                console().print(Text(plain(below, lines=True), "dim"), soft_wrap=True)


class ApplicationLog(logging.Handler):
    """Passes the application's own log records on; the scheduler's come as events already."""

    def __init__(self, log: EventsLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless it repeats an event."""
        if not hasattr(record, "event"):
            try:
                self._log.record(record)
            except Exception:
                self.handleError(record)

    def install(self) -> None:
        """Become the handler of everything that is logged, unless the application has chosen its own."""
        root = logging.getLogger()
        if root.handlers:
            return
        root.addHandler(self)
        root.setLevel(logging.INFO)
        logging.getLogger("duly").setLevel(logging.ERROR)  # events need not be built twice


# --- for people ------------------------------------------------------------------------------------------------------


def line_of(event: Event) -> Line:
    """An event as a line for people."""
    tell = _TELL.get(type(event))
    if tell is not None:
        return tell(event)
    # Events that are about the inside, and those that are not known here yet: their name, and their fields.
    fields = dict(event.fields)
    name = str(fields.pop("taskName", ""))
    said = " ".join(f"{key}={first_line(str(value))}" for key, value in fields.items())
    return "·", "dim", name, f"{event.name} {said}".rstrip()


def _started(event: Any) -> Line:
    late = (event.actual_time - event.scheduled_time).total_seconds()
    lateness = f", {stretch(late)} ago" if late >= 1 else ""
    if event.cause == "retry":
        said = f"retry, ripe since {event.scheduled_time:%H:%M:%S}" if lateness else "retry"
    elif event.cause == "interrupted":
        said = f"again: its run of {_day_and_time(event.scheduled_time, event.actual_time)} was interrupted"
    else:
        said = f"due {_day_and_time(event.scheduled_time, event.actual_time)}{lateness}"
    return "start", "cyan", event.task_name, said


def _failed(event: Any) -> Line:
    again = f"; again at {event.next_retry_at:%H:%M:%S}" if event.next_retry_at is not None else ""
    return "failed", "bold red", event.task_name, f"after {_ms(event.duration)}: {first_line(event.error)}{again}"


def _overridden(event: Any) -> Line:
    old, new = event.old_state, event.new_state
    said = []
    if old["cronExpression"] != new["cronExpression"]:
        said.append(f"{old['cronExpression']} → {new['cronExpression']}")
    if old["retryDelayMs"] != new["retryDelayMs"]:
        said.append(f"retry after {_ms(old['retryDelayMs'])} → {_ms(new['retryDelayMs'])}")
    return "changed", "yellow", event.task_name, ", ".join(said) + _dropped(event.dropped)


def _interrupted(event: Any) -> Line:
    said = f"its run of {event.started_at:%Y-%m-%d %H:%M:%S} was cut short"
    if event.interruptions > 1:
        said += f", {event.interruptions} times in a row"
    if event.resumes_at is None:
        said += "; waits for its next due minute"
    return "interrupted", "bold yellow", event.task_name, said


_TELL: Final[dict[type[Event], Callable[[Any], Line]]] = {
    events.TaskRunStarted: _started,
    events.TaskRunCompleted: lambda event: ("ok", "green", event.task_name, f"after {_ms(event.duration)}"),
    events.TaskRunFailed: _failed,
    events.TaskRetryPreempted: lambda event: ("retry", "cyan", event.task_name, event.reason),
    events.TaskInterrupted: _interrupted,
    events.TaskStartDelayed: lambda event: (
        "late", "yellow", event.task_name,
        f"owed since {event.due_time:%H:%M:%S}, started {stretch(event.lateness_ms / 1000)} after it could have been",
    ),
    events.TaskRunOverdue: lambda event: (
        "overdue", "yellow", event.task_name,
        f"is due again since {event.due_time:%H:%M}, and still runs since {event.started_at:%H:%M:%S}",
    ),
    events.TaskAdded: lambda event: (
        "new", "green", event.task_name, f"{event.cron_expression}, retry after {_ms(event.retry_delay_ms)}"
    ),
    events.TaskOverridden: _overridden,
    events.TaskOrphaned: lambda event: (
        "orphaned", "yellow", event.task_name, f"no longer declared, removed{_dropped(event.dropped)}"
    ),
    events.PropertyViolated: lambda event: (
        "violated", "bold red", event.task_name or "", f"{event.property}: {event.sentence}"
    ),
    events.ClockJumped: lambda event: (
        "clock", "yellow", "", f"moved by {stretch(event.jump_ms / 1000)}, to {event.new_time:%Y-%m-%d %H:%M:%S}"
    ),
    events.HostZoneChanged: lambda event: ("zone", "yellow", "", f"{event.old_zone} → {event.new_zone}"),
    events.StoreFault: lambda event: (
        "store", "bold red", "", f"{event.error}; tried again in {_ms(event.retry_in_ms)}"
    ),
    events.StoreRecovered: lambda event: ("store", "green", "", f"takes writes again after {event.attempts} attempts"),
}  # fmt: skip


def _ms(milliseconds: float) -> str:
    return stretch(milliseconds / 1000)


def _day_and_time(when: datetime, seen_from: datetime) -> str:
    return f"{when:%H:%M}" if when.date() == seen_from.date() else f"{when:%Y-%m-%d %H:%M}"


def _dropped(dropped: Sequence[str]) -> str:
    return f"; dropped: {', '.join(dropped)}" if dropped else ""
