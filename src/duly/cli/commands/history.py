"""`duly history`: what has run, how late, how long, and how it ended."""

import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.text import Text

from duly.cli.completion import complete_task
from duly.cli.output import Exit, first_line, json_option, note, print_json, say, show
from duly.cli.reading import Snapshot, read_store, store_option, unknown_task
from duly.cli.tables import table
from duly.cli.time_text import moment_argument
from duly.core.moments import MICROSECONDS, Instant
from duly.insight.words import between, clock_time, iso, stretch
from duly.stores.port import RunRecord
from duly.text import plain

OUTCOMES: Final = ("success", "failure", "interrupted", "running")
_STYLES: Final = {"success": "green", "failure": "bold red", "interrupted": "yellow", "running": "cyan"}
_SPARE: Final = ("due", "why", "run", "late", "took")
_BARS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_BARS: Final = "_.-:=+*#"
_SPARKLINE_RUNS_MAX: Final = 60
_SPARKLINES_MAX: Final = 10


@click.command()
@click.argument("task", required=False, shell_complete=complete_task)
@store_option
@click.option("--since", type=moment_argument, metavar="TIME", help="Started at or after: 2024-03-31T01:50, 01:50, 2h.")
@click.option("--until", type=moment_argument, metavar="TIME", help="Started before.")
@click.option("--outcome", "outcomes", type=click.Choice(OUTCOMES), multiple=True, help="May be given more than once.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    metavar="N",
    help="The latest N; 0 shows all.",
)
@json_option
def history(
    task: str | None,
    store: Path,
    since: Instant | None,
    until: Instant | None,
    outcomes: tuple[str, ...],
    limit: int,
    as_json: bool,
) -> int:
    """Show the runs of TASK, or of all tasks, the latest last.

    Orphaned tasks are found, too, as long as the history reaches back. Times without an offset are the host's.

    \b
    Example:
      duly history backup --store state.db --since 2d
      duly history --store state.db --outcome failure --limit 0
    """
    snapshot = read_store(store)
    known = {each.task for each in snapshot.declarations}
    if task is not None and task not in known:
        raise unknown_task(task, sorted(known))
    found = [
        run
        for run in snapshot.runs
        if (task is None or run.task == task)
        and (since is None or run.started_at >= since)
        and (until is None or run.started_at < until)
        and (not outcomes or run.outcome in outcomes)
    ]
    shown = found[-limit:] if limit else found
    if as_json:
        print_json("history", _document(snapshot, shown, found))
        return Exit.OK
    if not shown:
        note(_why_nothing(snapshot, task))
        return Exit.OK
    show(_table(snapshot, shown, with_name=task is None))
    _show_sparklines(found)
    if len(shown) < len(found):
        note(f"{len(found) - len(shown):,} earlier runs are not shown (--limit 0 shows all)")
    return Exit.OK


def _why_nothing(snapshot: Snapshot, task: str | None) -> str:
    if snapshot.history_begins is None:
        return "nothing has run yet, or no history is kept (--history 0)"
    begins = clock_time(snapshot.history_begins, snapshot.zone, snapshot.at)
    which = f"run of {plain(task)}" if task is not None else "run"
    return f"no such {which}; the history begins {begins}"


def _table(snapshot: Snapshot, runs: Sequence[RunRecord], *, with_name: bool) -> RenderableType:
    zone, at = snapshot.zone, snapshot.at
    headings = ("run", *(("task",) if with_name else ()), "due", "start", "late", "took", "outcome", "why")
    rows = []
    for run in runs:
        late = lateness(run)
        end = run.ended_at if run.outcome != "running" else at
        rows.append(
            [
                Text(str(run.run_id)),
                *((Text(plain(run.task), "bold"),) if with_name else ()),
                Text("-" if run.cause == "interrupted" else clock_time(run.scheduled_time, zone, at)),
                Text(clock_time(run.started_at, zone, at)),
                Text("-" if late is None else stretch(late / MICROSECONDS)),
                Text("-" if end is None else between(run.started_at, max(end, run.started_at))),
                Text(run.outcome, _STYLES.get(run.outcome, "")),
                Text(run.cause),
                Text(first_line(run.error or "", 100)),
            ]
        )
    return table(headings, rows, right={"run", "late", "took"}, spare=_SPARE, remark="error")


def lateness(run: RunRecord) -> int | None:
    """Microseconds from due to start; a run that repeats an interrupted one was not due at a minute of its own."""
    return None if run.cause == "interrupted" else max(0, run.started_at - run.scheduled_time)


def duration(run: RunRecord) -> int | None:
    """Microseconds from start to end; None for what has no end."""
    return None if run.ended_at is None else max(0, run.ended_at - run.started_at)


# --- durations -------------------------------------------------------------------------------------------------------


def _show_sparklines(runs: Sequence[RunRecord]) -> None:
    by_task: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_task.setdefault(run.task, []).append(run)
    say()
    bars = _BARS if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" else _PLAIN_BARS
    width = max(len(plain(name)) for name in list(by_task)[:_SPARKLINES_MAX])
    for name, its in list(by_task.items())[:_SPARKLINES_MAX]:
        say(Text.assemble((f"{plain(name):<{width}}  ", "bold"), (sparkline(its, bars), "cyan"), f"  {_summary(its)}"))
    if len(by_task) > _SPARKLINES_MAX:
        say(f"… and {len(by_task) - _SPARKLINES_MAX:,} more tasks", style="dim")


def sparkline(runs: Sequence[RunRecord], bars: str = _BARS) -> str:
    """The durations of the latest runs, one character each, the longest highest."""
    durations = [took for run in runs if (took := duration(run)) is not None][-_SPARKLINE_RUNS_MAX:]
    longest = max(durations, default=0) or 1
    return "".join(bars[min(len(bars) - 1, took * len(bars) // longest)] for took in durations)


def _summary(runs: Sequence[RunRecord]) -> str:
    durations = [took / MICROSECONDS for run in runs if (took := duration(run)) is not None]
    parts = [f"{len(runs):,} run" + ("s" if len(runs) != 1 else "")]
    if durations:
        parts.append(f"median {stretch(statistics.median(durations))}, longest {stretch(max(durations))}")
    numbers = Counter(run.outcome for run in runs)
    words = {"failure": "failed", "interrupted": "interrupted"}
    parts += [f"{numbers[outcome]:,} {word}" for outcome, word in words.items() if numbers[outcome]]
    return ", ".join(parts)


def _document(snapshot: Snapshot, shown: Sequence[RunRecord], found: Sequence[RunRecord]) -> dict[str, Any]:
    zone = snapshot.zone
    return {
        "store": str(snapshot.path),
        "at": iso(snapshot.at, zone),
        "historyBegins": iso(snapshot.history_begins, zone),
        "matching": len(found),
        "runs": [
            {
                "runId": run.run_id,
                "task": run.task,
                "expression": run.expression,
                "cause": run.cause,
                "scheduledTime": iso(run.scheduled_time, zone),
                "startedAt": iso(run.started_at, zone),
                "endedAt": iso(run.ended_at, zone),
                "latenessMs": None if (late := lateness(run)) is None else late // 1000,
                "durationMs": None if (took := duration(run)) is None else took / 1000,
                "outcome": run.outcome,
                "error": run.error,
            }
            for run in shown
        ],
    }
