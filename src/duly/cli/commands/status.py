"""`duly status`: what is going on in a store, and whether that is healthy."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from duly.cli import signals
from duly.cli.file_watch import pause
from duly.cli.health import Health, Situation, examine
from duly.cli.output import Exit, console, fail, first_line, json_option, print_json, show
from duly.cli.reading import Snapshot, read_store, store_option
from duly.cli.tables import table
from duly.cli.time_text import duration_argument
from duly.clock import SystemClock
from duly.core.moments import MICROSECONDS, as_datetime, zone_name
from duly.core.task import Running
from duly.insight.words import ago, between, clock_time, iso, offset, stretch
from duly.text import plain

_URGENCY = {"interrupted": 0, "owed": 1, "running": 2, "retrying": 3, "waiting": 4}
_SPARE = ("cron", "last success", "owed since", "last start", "late")
_STYLES = {"interrupted": "bold red", "owed": "yellow", "running": "cyan", "retrying": "yellow", "waiting": "green"}


@click.command()
@store_option
@click.option("--watch", is_flag=True, help="Refresh in place until Ctrl-C; needs a terminal.")
@click.option("--interval", type=duration_argument, default="2s", show_default=True, help="How often --watch looks.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    metavar="N",
    help="Tasks shown; if there are more, those that need attention come first. 0 shows all.",
)
@json_option
def status(store: Path, watch: bool, interval: timedelta, limit: int, as_json: bool) -> int:
    """Show what is going on in a store; the exit code tells whether it is healthy.

    Unhealthy (exit code 1) means: the holder is gone and left runs marked running, tasks are overdue beyond a minute,
    or the last poll is too old. Works while a scheduler runs on the store, and changes nothing.

    \b
    Example:
      duly status --store state.db
      duly status --store state.db --json | jq .problems
    """
    if watch:
        if as_json or not console().is_terminal:
            fail("--watch needs a terminal, and text", "leave it out, and call `duly status` as often as you like")
        if interval <= timedelta(0):
            raise click.BadParameter("must be longer than nothing", param_hint="--interval")
        return signals.run(_watch(store, interval, limit))
    snapshot = read_store(store, runs=False)
    health = examine(snapshot)
    if as_json:
        print_json("status", document(snapshot, health))
    else:
        show(render(snapshot, health, limit))
    return _code(health)


def _code(health: Health) -> Exit:
    return Exit.NO if health.problems else Exit.OK


async def _watch(store: Path, interval: timedelta, limit: int) -> int:
    clock = SystemClock()
    health: Health | None = None
    picture: RenderableType = ""
    try:
        with Live(console=console(), screen=True, auto_refresh=False) as live:
            while True:
                snapshot = read_store(store, runs=False)
                health = examine(snapshot)
                picture = render(snapshot, health, limit)
                live.update(picture, refresh=True)
                await pause(clock, interval // timedelta(microseconds=1))
    except asyncio.CancelledError:
        # Ctrl-C is the way to end it; the last picture stays readable after the screen is restored.
        if health is None:
            raise
        console().print(picture)
        return _code(health)


# --- for people ------------------------------------------------------------------------------------------------------


def render(snapshot: Snapshot, health: Health, limit: int) -> RenderableType:
    """The whole picture."""
    parts: list[RenderableType] = [_heading(snapshot)]
    if health.situations:
        parts += ["", _table(snapshot, health, limit)]
        left_out = len(health.situations) - limit
        if limit and left_out > 0:
            parts.append(Text(f"… and {left_out:,} more tasks (--limit 0 shows all)", "dim"))
    else:
        parts += ["", Text("no tasks", "dim")]
    parts.append("")
    if health.problems:
        parts += [Text.assemble(("unhealthy: ", "bold red"), problem.text) for problem in health.problems]
    else:
        parts.append(Text("healthy", "bold green"))
    return Lines(*parts)


def _heading(snapshot: Snapshot) -> Text:
    holder, at, zone = snapshot.holder, snapshot.at, snapshot.zone
    if holder.alive:
        since = f" since {clock_time(holder.since, zone, at)}" if holder.since is not None else ""
        who = f"held by process {holder.pid or '?'} on {plain(holder.host or '?')}{since}"
    elif holder.pid is not None:
        who = f"held by nobody; process {holder.pid} on {plain(holder.host or '?')} ended without stopping"
    else:
        who = "held by nobody"
    poll = f", last poll {ago(holder.last_poll, at)}" if holder.last_poll is not None else ""
    here = f"zone {zone_name(zone)} ({offset(at, zone)}), now {as_datetime(at, zone):%Y-%m-%d %H:%M:%S}"
    if zone_name(zone) != zone_name(snapshot.host_zone):
        here += f"; this host's zone is {zone_name(snapshot.host_zone)}"
    return Text.assemble((plain(snapshot.path), "bold"), f"\n{who}{poll}\n{here}")


def _table(snapshot: Snapshot, health: Health, limit: int) -> RenderableType:
    situations = health.situations
    if limit and len(situations) > limit:
        situations = sorted(situations, key=lambda each: (_URGENCY[each.state], -each.late, each.task.name))[:limit]
    owed = any(each.owed_since is not None for each in situations)
    headings = ["task", "state", "cron", "last start", "last success", "next"]
    headings += ["owed since", "late"] if owed else []
    rows = [_row(each, snapshot, owed=owed) for each in situations]
    return table(headings, rows, spare=_SPARE, remark="last failure")


def _row(situation: Situation, snapshot: Snapshot, *, owed: bool) -> list[Text]:
    task, at, zone = situation.task, snapshot.at, snapshot.zone
    state = task.stored.state

    def shown(instant: Any) -> str:
        return "-" if instant is None else clock_time(instant, zone, at)

    running = situation.state == "running" and isinstance(state, Running)
    label = (
        f"running {between(state.last_attempt_at, at)}" if isinstance(state, Running) and running else situation.state
    )
    following = "when it ends" if running and situation.next_at is None else shown(situation.next_at)
    if situation.next_is in {"retry", "interrupted"}:
        following += " retry" if situation.next_is == "retry" else " again"
    if situation.next_at is not None and situation.next_at <= at:
        following = "now"
    failed_at = getattr(state, "last_failure_at", None)
    error = snapshot.last_errors.get(task.stored.generation, "")
    failure = shown(failed_at) + (f" {first_line(error, 80)}" if failed_at is not None and error else "")
    cells = [
        Text(plain(task.name), "bold"),
        Text(label, _STYLES[situation.state]),
        Text(task.stored.expression.text),
        Text(shown(getattr(state, "last_attempt_at", None))),
        Text(shown(getattr(state, "last_success_at", None))),
        Text(following),
    ]
    if owed:
        cells.append(Text(shown(situation.owed_since)))
        cells.append(Text(stretch(situation.late / MICROSECONDS) if situation.late else "-", "yellow"))
    cells.append(Text(failure, "" if failed_at is None else "red"))
    return cells


# --- for programs ----------------------------------------------------------------------------------------------------


def document(snapshot: Snapshot, health: Health) -> dict[str, Any]:
    """The documented shape."""
    zone, holder = snapshot.zone, snapshot.holder
    return {
        "store": str(snapshot.path),
        "at": iso(snapshot.at, zone),
        "healthy": not health.problems,
        "problems": [{"code": problem.code, "text": problem.text} for problem in health.problems],
        "zone": zone_name(zone),
        "hostZone": zone_name(snapshot.host_zone),
        "holder": {
            "alive": holder.alive,
            "pid": holder.pid,
            "host": holder.host,
            "since": iso(holder.since, zone),
            "lastPollAt": iso(holder.last_poll, zone),
        },
        "tasks": [_task(each, snapshot) for each in health.situations],
    }


def _task(situation: Situation, snapshot: Snapshot) -> dict[str, Any]:
    task, zone = situation.task, snapshot.zone
    stored, state = task.stored, task.stored.state

    def at(name: str) -> str | None:
        return iso(getattr(state, name, None), zone)

    return {
        "task": stored.name,
        "expression": stored.expression.text,
        "retryDelayMs": stored.delay,
        "state": situation.state,
        "knownSince": iso(task.known_since, zone),
        "lastAttemptAt": at("last_attempt_at"),
        "lastSuccessAt": at("last_success_at"),
        "lastFailureAt": at("last_failure_at"),
        "lastError": snapshot.last_errors.get(stored.generation) if at("last_failure_at") else None,
        "failures": getattr(state, "failures", 0),
        "pendingRetryUntil": at("pending_retry_until"),
        "nextAt": iso(situation.next_at, zone),
        "nextIs": situation.next_is,
        "owedSince": iso(situation.owed_since, zone),
        "lateMs": situation.late // 1000,
        "runId": stored.run,
    }
