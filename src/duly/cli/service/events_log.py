"""The log of `duly run`: events as lines for people, or one JSON object per line for programs.

A JSON line has `time`, `level`, `event`, and the event's own fields. Beside the scheduler's events (`duly.events`)
there are those of the program itself; docs/reference/events.md lists both.
"""

import contextlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TextIO

from rich.text import Text

from duly import events
from duly.cli import streams
from duly.cli.output import Failure, console
from duly.cli.service.event_lines import ExpressionOf, Line, event_line
from duly.cli.target import shortened_traceback
from duly.clock import SystemClock
from duly.core.moments import as_datetime
from duly.engine.failure import traceback_text
from duly.events import Event
from duly.insight.words import counted
from duly.run_context import CurrentRun
from duly.text import plain

_LEVELS: Final = {events.DEBUG: "debug", events.INFO: "info", events.WARNING: "warning", events.ERROR: "error"}
_STYLES: Final = {events.DEBUG: "dim", events.INFO: "", events.WARNING: "yellow", events.ERROR: "bold red"}

_REDUNDANT: Final = frozenset(
    {events.TaskRetryStarted, events.SchedulerStopRequested, events.SchedulerStopped,
     events.SchedulerInitializationFailed, events.SchedulerReinitializationFailed, events.StandbyFailed}
)  # fmt: skip
"""Events that people learn from another line: the next event, or one of the program."""

_CHANGES: Final[Mapping[type[Event], tuple[str, str]]] = {
    events.TaskAdded: ("new", "green"),
    events.TaskOverridden: ("changed", "yellow"),
    events.TaskOrphaned: ("orphaned", "yellow"),
}
"""Changes that `initialize` may make to thousands of tasks at once: label and style of the line that counts them."""

_ENDS: Final = (events.TaskRunCompleted, events.TaskRunFailed, events.TaskRunFenced)
"""Events after which a run prints nothing more."""

_CHANGES_LISTED_MAX: Final = 20
"""Changes of one kind in a row that have a line each; more are counted, in one line."""


class EventsLog:
    """Writes to standard output; if that is closed, scheduling goes on without a log."""

    def __init__(self, form: str, *, verbose: bool) -> None:
        self.json = form == "json"
        self._level = events.DEBUG if verbose else events.INFO
        self._clock = SystemClock()
        self._terminal = sys.stdout.isatty()
        self._zone = self._clock.zone()
        self._output: TextIO | None = None
        """Standard output, while it is kept for the log."""
        self._prints: streams.PrintedLines | None = None
        """The lines that others print meanwhile."""
        self._changes: tuple[type[Event], int] | None = None
        """The kind of the changes to tasks since the last line about anything else, and how many there were."""

    @contextlib.contextmanager
    def keeping_output(self) -> Iterator[None]:
        """Keep standard output for the log if that is JSON: what callbacks print becomes records of it."""
        if not self.json:
            yield
            return
        try:
            with streams.output_kept(self._printed) as (self._output, self._prints):
                yield
        finally:
            self._output = self._prints = None

    def _printed(self, line: str, run: CurrentRun | None) -> None:
        record = logging.LogRecord("stdout", logging.INFO, "", 0, line, (), None)
        if run is not None:
            record.duly_task, record.duly_run_id = run.task, run.run_id
        self.record(record)

    # --- the scheduler's events --------------------------------------------------------------------------------------

    def event(self, event: Event, expression_of: ExpressionOf) -> None:
        """Log an event of the scheduler; `expression_of` gives the expression of a declared task."""
        if self._prints is not None and isinstance(event, _ENDS):
            self._prints.end_run(event.task_name, event.run_id)
        if event.level < self._level:
            return
        exception = event.exception if isinstance(event, events.TaskRunFailed) else None
        if self.json:
            fields = event.fields
            if exception is not None:
                fields["traceback"] = traceback_text(exception)
            self._write_json(event.level, event.name, fields)
        elif type(event) in _CHANGES and self._level > events.DEBUG:
            if self._one_more(type(event)) <= _CHANGES_LISTED_MAX:
                self._print_line(event.level, event_line(event, self._now(), expression_of))
        elif self._level == events.DEBUG or type(event) not in _REDUNDANT:
            line = event_line(event, self._now(), expression_of)
            self._write_line(event.level, line, shortened_traceback(exception) if exception else "")

    # --- the program's own -------------------------------------------------------------------------------------------

    def say(self, name: str, text: str, *, level: int = events.INFO, **fields: Any) -> None:
        """Log what the program itself does: `text` for people, `name` and `fields` for programs."""
        if self.json:
            self._write_json(level, name, fields)
        else:
            self._write_line(level, Line("duly", "bold", "", text))

    def failure(self, failure: Failure) -> None:
        """Log an error after which the program goes on."""
        if not self.json:
            text = plain(failure.message, lines=True) + (f" ({plain(failure.hint)})" if failure.hint else "")
            self._write_line(events.ERROR, Line("error", "bold red", "", text), failure.excerpt)
            return
        fields = {"error": failure.message, "hint": failure.hint, "excerpt": failure.excerpt}
        self._write_json(events.ERROR, "ProgramFailed", {key: value for key, value in fields.items() if value})

    def say_from_signal_handler(self, name: str, text: str, **fields: Any) -> None:
        """Log what the program does without touching buffers, which may be in use when a signal arrives."""
        line = self._json_line(events.WARNING, name, fields) if self.json else f"{self._time()}  {'duly':<11}{text}"
        with contextlib.suppress(OSError):
            os.write(self._out.fileno(), line.encode() + b"\n")

    def record(self, record: logging.LogRecord) -> None:
        """Log what the application logs; a record that a `RunFilter` has seen names its run."""
        task, run_id = getattr(record, "duly_task", None), getattr(record, "duly_run_id", None)
        shown = traceback.format_exception(record.exc_info[1]) if record.exc_info and record.exc_info[1] else []
        if self.json:
            fields: dict[str, Any] = {"logger": record.name, "message": record.getMessage()}
            if task is not None:
                fields |= {"taskName": task, "runId": run_id}
            if shown:
                fields["traceback"] = "".join(shown)
            self._write_json(record.levelno, "LogRecord", fields)
            return
        label, style = record.levelname.lower(), _STYLES.get(record.levelno, "")
        source = plain(record.name) if task is None else f"run {run_id}, {plain(record.name)}"
        text = f"{source}: {plain(record.getMessage(), lines=True)}"
        self._write_line(record.levelno, Line(label, style, task or "", text), "".join(shown).rstrip())

    # --- writing -----------------------------------------------------------------------------------------------------

    def _now(self) -> datetime:
        return as_datetime(self._clock.now(), self._zone)

    def _time(self) -> str:
        """The time at the beginning of a line for people; without the date on a terminal, where it is known."""
        return f"{self._now():%H:%M:%S}" if self._terminal else f"{self._now():%Y-%m-%d %H:%M:%S}"

    def _json_line(self, level: int, name: str, fields: Mapping[str, Any]) -> str:
        head = {"time": self._now().isoformat(), "level": _LEVELS.get(level, "info"), "event": name}
        # A duration in milliseconds has more digits than any clock.
        rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in fields.items()}
        return json.dumps({**head, **rounded}, default=str)

    @property
    def _out(self) -> TextIO:
        return self._output or sys.stdout

    @contextlib.contextmanager
    def _while_open(self) -> Iterator[None]:
        """Write while standard output is open, from then on to nowhere: a full buffer would raise again at exit."""
        try:
            yield
            self._out.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())

    def _write_json(self, level: int, name: str, fields: Mapping[str, Any]) -> None:
        with self._while_open():
            self._out.write(self._json_line(level, name, fields) + "\n")

    def _write_line(self, level: int, line: Line, below: str = "") -> None:
        self._count_the_rest()
        self._print_line(level, line, below)

    def _one_more(self, kind: type[Event]) -> int:
        """How many changes of a kind there have been in a row, with this one."""
        if self._changes is None or self._changes[0] is not kind:
            self._count_the_rest()
            self._changes = kind, 0
        self._changes = kind, self._changes[1] + 1
        return self._changes[1]

    def _count_the_rest(self) -> None:
        """Write how many changes had no line of their own, if there were any."""
        if self._changes is None:
            return
        (kind, number), self._changes = self._changes, None
        if (more := number - _CHANGES_LISTED_MAX) > 0:
            label, style = _CHANGES[kind]
            self._print_line(kind.level, Line(label, style, "", f"… and {counted(more, 'more task')} (-v lists all)"))

    def _print_line(self, level: int, line: Line, below: str = "") -> None:
        shown = Text.assemble(
            (self._time(), "dim"),
            "  ",
            (f"{line.label:<10} ", line.style),
            (f"{plain(line.task)}  ", "bold") if line.task else "",
            (line.text, _STYLES.get(level, "") if level != events.INFO else ""),
        )
        with self._while_open():
            console().print(shown, soft_wrap=True)
            if below:
                console().print(Text(plain(below, lines=True), "dim"), soft_wrap=True)


class ApplicationLog(logging.Handler):
    """Puts the log records of the application into the log; the scheduler's own come as events."""

    def __init__(self, log: EventsLog) -> None:
        super().__init__()
        self._log = log
        self.addFilter(events.RunFilter())

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record, unless it repeats an event."""
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
