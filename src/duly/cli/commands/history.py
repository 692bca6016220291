"""`duly history`: what has run, how late, how long, and how it ended."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Final, NamedTuple

import click
from rich.text import Text

from duly.cli.completion import complete_task
from duly.cli.output import Exit, Failure, first_line, json_option, json_text, note, say, show, spooled
from duly.cli.store import reader_of, store_option, unknown_task
from duly.cli.tables import Cell, LongTable, table
from duly.cli.time_text import host_zone, moment_argument
from duly.core.moments import MICROSECONDS, Instant
from duly.insight.cluster import host_text
from duly.insight.history import Comparison, History, compare, history_of, runs_of
from duly.insight.json_form import json_form
from duly.insight.run import RunReport
from duly.insight.words import between, clock_time, counted, names, stretch
from duly.insight.zone import zone_in_use
from duly.stores import View
from duly.stores.place import StorePlace
from duly.stores.port import RunSelection, TaskRuns
from duly.text import plain

OUTCOMES: Final = ("success", "failure", "interrupted", "running")
_STYLES: Final = {"success": "green", "failure": "bold red", "interrupted": "yellow", "running": "cyan"}
_SPARE: Final = ("due", "why", "run", "late", "took", "host")
_RIGHT: Final = ("run", "late", "took")
_BARS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_BARS: Final = "_.-:=+*#"
_ROWS_IN_MEMORY: Final = 1_000


@click.command()
@click.argument("tasks", nargs=-1, metavar="[TASK]...", shell_complete=complete_task)
@store_option
@click.option(
    "--since",
    type=moment_argument,
    metavar="TIME",
    help="Show runs from this time on: 2024-03-31T01:50, 01:50, 2h (ago).",
)
@click.option("--until", type=moment_argument, metavar="TIME", help="Show runs up to this time.")
@click.option(
    "--outcome",
    "outcomes",
    type=click.Choice(OUTCOMES),
    multiple=True,
    help="Show runs that ended like this; repeatable.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    metavar="N",
    help="Show the latest N runs; 0 shows all.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Show each run with its idempotency key, its whole error and its traceback."
)
@json_option
def history(
    tasks: tuple[str, ...],
    store: StorePlace,
    since: Instant | None,
    until: Instant | None,
    outcomes: tuple[str, ...],
    limit: int,
    verbose: bool,
    as_json: bool,
) -> int:
    """Show the runs of some tasks, or of all, the latest last.

    TASK is a name, or a quoted pattern such as 'backup-*'; several are joined. Tasks that are no longer declared are
    found as well, as long as the history reaches back. Times without an offset are in the host's zone.

    \b
    Example:
      duly history backup --store state.db --since 2d
      duly history 'sync-*' report --store state.db
      duly history --store state.db --outcome failure --limit 0
    """
    asked = _Asked(tasks, RunSelection(None, since, until, outcomes))
    if as_json:
        _print_document(store, asked, limit or None, tracebacks=verbose)
    elif verbose:
        _show_each(store, asked, limit or None)
    else:
        _show(store, asked, limit or None)
    return Exit.OK


@dataclass(frozen=True, slots=True)
class _Asked:
    """The question: names or patterns of tasks, and which of their runs."""

    tasks: tuple[str, ...]
    which: RunSelection

    @property
    def is_filtered(self) -> bool:
        """Whether runs are asked for by their start or by how they ended."""
        return self.which.since is not None or self.which.until is not None or bool(self.which.outcomes)

    def in_view(self, view: View) -> RunSelection:
        """The filter for a store; raises if a name or pattern fits none of its tasks."""
        exact, patterns = list[str](), list[str]()
        for task in dict.fromkeys(self.tasks):
            # A name may contain what looks like a pattern.
            is_name = bool(view.declarations(task))
            if not is_name and not any(letter in task for letter in "*?["):
                raise unknown_task(view, task)
            if not is_name and not view.has_name_like(task):
                raise Failure(f"no task matches {plain(task)!r}", "* stands for any letters, ? for one", Exit.USAGE)
            (exact if is_name else patterns).append(task)
        if len(exact) == 1 and not patterns:
            return replace(self.which, task=exact[0])
        return replace(self.which, names=tuple(exact), patterns=tuple(patterns))


def _zone_of(view: View) -> tzinfo:
    return zone_in_use(view.snapshot().zone, host_zone())


# --- for people ------------------------------------------------------------------------------------------------------


def _show(store: StorePlace, asked: _Asked, limit: int | None) -> None:
    columns, zone, history, runs, comparison = reader_of(store).read(
        lambda view: _look(view, asked.in_view(view), limit)
    )
    if not history.matching:
        note(_why_nothing(history, asked, zone))
        return
    if isinstance(runs, LongTable):
        runs.print()
    else:
        rows = [[Text(*cell) for cell in _row(run, history.at, zone, columns)] for run in runs]
        show(table(_headings(columns), rows, right=_RIGHT, spare=_SPARE, remark="error"))
    _show_sparklines(comparison)
    if limit is not None and (left_out := history.matching - limit) > 0:
        note(_left_out(left_out))


def _left_out(runs: int) -> str:
    are = "is" if runs == 1 else "are"
    return f"{counted(runs, 'earlier run')} {are} not shown (--limit 0 shows all)"


def _look(
    view: View, which: RunSelection, limit: int | None
) -> tuple["_Columns", tzinfo, History, Sequence[RunReport] | LongTable, Comparison]:
    zone = _zone_of(view)
    columns = _Columns(task=which.task is None, host=view.snapshot().cluster is not None)
    history = history_of(view, which)
    runs = runs_of(view, which, limit)
    if min(history.matching, limit or history.matching) <= _ROWS_IN_MEMORY:
        return columns, zone, history, list(runs), compare(view, which)
    many = LongTable(_headings(columns), right=_RIGHT, spare=_SPARE, remark="error")
    for run in runs:
        many.add(_row(run, history.at, zone, columns))
    return columns, zone, history, many, compare(view, which)


def _why_nothing(history: History, asked: _Asked, zone: tzinfo) -> str:
    if history.history_begins is None:
        return "nothing has run yet, or no history is kept (--history 0)"
    begins = clock_time(history.history_begins, zone, history.at)
    which = f"runs of {names(asked.tasks)}" if asked.tasks else "runs"
    if asked.is_filtered or not asked.tasks:  # others may be on record
        which = f"such {which}"
    return f"no {which} on record; the history begins {begins}"


class _Columns(NamedTuple):
    """Which columns a table of runs has beside those that it always has."""

    task: bool = True
    host: bool = False


def _headings(columns: _Columns) -> Sequence[str]:
    host = ("host",) if columns.host else ()
    return ("run", *(("task",) if columns.task else ()), "due", "start", "late", "took", *host, "outcome", "why")


def _row(run: RunReport, at: Instant, zone: tzinfo, columns: _Columns) -> Sequence[Cell]:
    late = "-" if run.lateness_ms is None else between(run.scheduled_time, max(run.scheduled_time, run.started_at))
    return [
        (str(run.run_id), ""),
        *([(plain(run.task), "bold")] if columns.task else []),
        ("-" if run.cause == "interrupted" else clock_time(run.scheduled_time, zone, at), ""),
        (clock_time(run.started_at, zone, at), ""),
        (late, ""),
        (_took(run, at), ""),
        *([("-" if run.host is None else plain(run.host.label or run.host.key), "")] if columns.host else []),
        (run.outcome, _STYLES.get(run.outcome, "")),
        (why(run), ""),
        (first_line(run.error or "", 100), ""),
    ]


def _took(run: RunReport, at: Instant) -> str:
    """From the call of the callback to its return; of a run under way, the time since its start."""
    if run.outcome == "running":
        return between(run.started_at, max(at, run.started_at))  # a store has the call only together with the end
    return "-" if run.duration_ms is None else stretch(run.duration_ms / 1000)


def why(run: RunReport) -> str:
    """The cause of a run, and the number of the attempt if it is not the first."""
    return run.cause if (run.attempt or 1) == 1 else f"{run.cause} #{run.attempt}"


# --- run by run ------------------------------------------------------------------------------------------------------


def _show_each(store: StorePlace, asked: _Asked, limit: int | None) -> None:
    with spooled() as file:

        def question(view: View) -> tuple[History, tzinfo]:
            which, zone = asked.in_view(view), _zone_of(view)
            history = history_of(view, which)
            file.seek(0)
            file.truncate()
            for run in runs_of(view, which, limit, tracebacks=True):
                file.write(_showable("\n".join(_details(run, history.at, zone)) + "\n\n"))
            return history, zone

        history, zone = reader_of(store).read(question)
    if not history.matching:
        note(_why_nothing(history, asked, zone))
    elif limit is not None and (left_out := history.matching - limit) > 0:
        note(_left_out(left_out))


def _details(run: RunReport, at: Instant, zone: tzinfo) -> Iterator[str]:
    number, task, due, start, late, took, outcome, cause, _ = (text for text, _ in _row(run, at, zone, _Columns()))
    yield f"run {number} of {task}: {outcome}"
    yield f"  start      {start}, {late} late, took {took}" if late != "-" else f"  start      {start}, took {took}"
    yield f"  why        {cause}" + ("" if due == "-" else f", due {due}")
    if run.host is not None:
        yield f"  host       {host_text(run.host)}"
    if run.key is not None:
        yield f"  key        {plain(run.key)}"
    if run.error is not None:
        yield f"  error      {plain(run.error, lines=True)}"
    if run.traceback is not None:
        yield from (f"    {line}" for line in plain(run.traceback, lines=True).splitlines())


def _showable(text: str) -> str:
    """Text with escapes for what standard output cannot encode."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


# --- durations -------------------------------------------------------------------------------------------------------


def _show_sparklines(comparison: Comparison) -> None:
    say()
    bars = _BARS if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" else _PLAIN_BARS
    width = max(len(plain(each.task)) for each in comparison.compared)
    for each in comparison.compared:
        line = sparkline(each.latest, bars)
        show(Text.assemble((f"{plain(each.task):<{width}}  ", "bold"), (line, "cyan"), f"  {_summary(each)}"))
    if (left_out := comparison.tasks - len(comparison.compared)) > 0:
        say(f"… and {left_out:,} more tasks", style="dim")


def sparkline(durations: Sequence[int], bars: str = _BARS) -> str:
    """Durations, one character each, the longest highest."""
    longest = max(durations, default=0) or 1
    return "".join(bars[min(len(bars) - 1, took * len(bars) // longest)] for took in durations)


def _summary(its: TaskRuns) -> str:
    parts = [f"{its.runs:,} run" + ("s" if its.runs != 1 else "")]
    if its.median is not None and its.longest is not None:
        median, longest = stretch(its.median / MICROSECONDS), stretch(its.longest / MICROSECONDS)
        parts.append(f"median {median}, longest {longest}")
    parts += [f"{its.failures:,} failed"] if its.failures else []
    parts += [f"{its.interruptions:,} interrupted"] if its.interruptions else []
    return ", ".join(parts)


# --- for programs ----------------------------------------------------------------------------------------------------


def _print_document(store: StorePlace, asked: _Asked, limit: int | None, *, tracebacks: bool) -> None:
    """Print the documented shape."""
    with spooled() as file:

        def question(view: View) -> None:
            which, zone = asked.in_view(view), _zone_of(view)
            runs = (json_form(run, zone) for run in runs_of(view, which, limit, tracebacks=tracebacks))
            file.seek(0)
            file.truncate()
            for text in json_text("history", {**json_form(history_of(view, which), zone), "runs": runs}):
                file.write(text)

        reader_of(store).read(question)
