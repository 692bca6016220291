"""`duly status`: what is going on in a store, and whether that is healthy."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from typing import Final

import click
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from duly.cli import signals
from duly.cli.file_watch import pause
from duly.cli.output import Exit, console, fail, first_line, json_option, json_text, show, spooled
from duly.cli.store import reader_of, store_option
from duly.cli.tables import Cell, LongTable, table
from duly.cli.time_text import duration_argument, host_zone
from duly.clock import SystemClock
from duly.core.moments import Instant, as_datetime
from duly.core.zones import is_zone
from duly.insight.cluster import ClusterStatus
from duly.insight.cron_words import shortened
from duly.insight.health import Examination, Health, TaskStatus
from duly.insight.json_form import json_form
from duly.insight.words import ago, between, clock_time, counted, listed, offset, stretch
from duly.stores import View
from duly.stores.place import StorePlace
from duly.text import plain

_ROWS_IN_MEMORY: Final = 1_000
_SPARE = ("cron", "last success", "owed since", "last start", "late")
_HOST_STYLES = {"living": "green", "silent": "bold red"}
_STYLES = {"interrupted": "bold red", "owed": "yellow", "running": "cyan", "retrying": "yellow", "waiting": "green"}


@click.command()
@store_option
@click.option("--watch", is_flag=True, help="Refresh in place until Ctrl-C; needs a terminal.")
@click.option(
    "--interval",
    type=duration_argument,
    metavar="DURATION",
    default="2s",
    show_default=True,
    help="Time between two refreshes of --watch.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    metavar="N",
    help="Show at most N tasks, those that need attention first; 0 shows all.",
)
@json_option
def status(store: StorePlace, watch: bool, interval: timedelta, limit: int, as_json: bool) -> int:
    """Show the tasks of a store, and whether it is healthy.

    Unhealthy (exit code 1) means that a scheduler has crashed and left runs unfinished, that tasks are overdue by more
    than a minute, or that the last poll is too old; on PostgreSQL, that no living host declares the tasks in force,
    that a host has been outdated for more than ten minutes, or that a host cannot write and this does not pass by
    itself. Works even while schedulers run on the store, and does not change it.

    \b
    Example:
      duly status --store state.db
      duly status --store postgresql://app@db/shop
      duly status --store state.db --json | jq .problems
    """
    if watch:
        if as_json or not console().is_terminal:
            fail("--watch needs a terminal, and no --json", "leave it out, and call `duly status` repeatedly")
        if interval <= timedelta(0):
            raise click.BadParameter("must be greater than zero", param_hint="--interval")
        return signals.run(_watch(store, interval, limit))
    if as_json:
        return _code(_print_document(store))
    picture = reader_of(store).read(lambda view: _look(view, limit))
    picture.show()
    return _code(picture.health)


def _code(health: Health) -> Exit:
    return Exit.OK if health.healthy else Exit.NO


async def _watch(store: StorePlace, interval: timedelta, limit: int) -> int:
    clock, reader = SystemClock(), reader_of(store)
    picture: Picture | None = None
    try:
        with Live(console=console(), screen=True, auto_refresh=False) as live:
            while True:
                picture = reader.read(lambda view: _look(view, limit))
                live.update(picture.rendered(verdict_first=True), refresh=True)
                await pause(clock, interval // timedelta(microseconds=1))
    except asyncio.CancelledError:
        # Ctrl-C is the way to end it; the last picture stays readable after the screen is restored.
        if picture is None:
            raise
        console().print(picture.rendered())
        return _code(picture.health)


# --- for people ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picture:
    """The answer: how the store is, and as many tasks as were asked for."""

    health: Health
    zone: tzinfo
    tasks: Sequence[TaskStatus]
    many: LongTable | None
    """All tasks, where they are too many to be kept in `tasks`."""

    def show(self) -> None:
        """Print it."""
        if self.many is None:
            show(self.rendered())
            return
        show(*_head(self.health, self.zone))
        self.many.print()
        show("", *_verdict(self.health))

    def rendered(self, *, verdict_first: bool = False) -> RenderableType:
        """All of it at once, the verdict last or, for a screen that may be too short, first."""
        verdict = _verdict(self.health)
        parts: list[RenderableType] = [*(verdict if verdict_first else ()), *_head(self.health, self.zone)]
        if self.tasks:
            parts.append(_table(self.tasks, self.health.at, self.zone))
        else:
            parts.append(Text("no tasks", "dim"))
        if (left_out := self.health.tasks - len(self.tasks)) > 0:
            parts.append(Text(f"… and {left_out:,} more tasks (--limit 0 shows all)", "dim"))
        return Lines(*parts) if verdict_first else Lines(*parts, "", *verdict)


def _look(view: View, limit: int) -> Picture:
    examination = Examination(view, host_zone(), shown=limit)
    health, zone = examination.health, examination.zone
    if 0 < limit < health.tasks:
        return Picture(health, zone, examination.most_urgent(limit), None)
    if health.tasks <= _ROWS_IN_MEMORY:
        return Picture(health, zone, list(examination.all_tasks()), None)
    many = LongTable(_headings(owed=examination.anything_owed), spare=_SPARE, remark="last failure")
    for status in examination.all_tasks():
        many.add(_row(status, health.at, zone, owed=examination.anything_owed))
    return Picture(health, zone, (), many)


def _head(health: Health, zone: tzinfo) -> list[RenderableType]:
    if health.cluster is None:
        return [_heading(health, zone), ""]
    return [_heading(health, zone), "", *_hosts(health.cluster, health.at, zone)]


def _hosts(cluster: ClusterStatus, at: Instant, zone: tzinfo) -> Iterator[RenderableType]:
    """The hosts on record, and how many went within the last hour."""
    rows = []
    for host in cluster.hosts:
        if host.state in {"living", "silent"}:
            outdated = "" if host.outdated_since is None else f" (outdated for {between(host.outdated_since, at)})"
            cells = [
                (str(host.key), "bold"),
                (plain(host.label or "-"), ""),
                (host.state, _HOST_STYLES[host.state]),
                (f"{host.edition}{outdated}", "yellow" if outdated else ""),
                (ago(host.last_beat_at, at), ""),
                (str(host.runs), ""),
                (clock_time(host.since, zone, at), ""),
            ]
            rows.append([Text(*cell) for cell in cells])
    if rows:
        headings = ("host", "label", "state", "edition", "last beat", "runs", "since")
        yield table(headings, rows, named_by="label", right=("host", "runs"), spare=("since",))
    if gone := Counter(host.state for host in cluster.hosts if host.state in {"left", "buried"}):
        parts = [f"{number:,} {state}" for state, number in sorted(gone.items())]
        yield Text(f"hosts that went within the last hour: {listed(parts)}", "dim")
    yield ""


def _heading(health: Health, zone: tzinfo) -> Text:
    holder, at = health.holder, health.at
    if (cluster := health.cluster) is not None:
        return _heading_of_hosts(health, cluster, zone)
    if holder.alive:
        since = f" since {clock_time(holder.since, zone, at)}" if holder.since is not None else ""
        held = f"held by process {holder.pid or '?'} on {plain(holder.host or '?')}{since}"
    elif holder.pid is not None:
        held = f"held by no scheduler; process {holder.pid} on {plain(holder.host or '?')} ended without stopping"
    else:
        held = "held by no scheduler"
    poll = f", last poll {ago(holder.last_poll_at, at)}" if holder.last_poll_at is not None else ""
    shown = Text.assemble((plain(health.store), "bold"), f"\n{held}{poll}\n{_here(health, zone)}")
    if (blockage := holder.blockage) is not None:
        span, when = stretch(blockage.blocked_ms / 1000), clock_time(blockage.at, zone, at)
        shown.append(f"\nthe event loop was blocked for {span} by {plain(blockage.task)}, until {when}", "yellow")
    return shown


def _heading_of_hosts(health: Health, cluster: ClusterStatus, zone: tzinfo) -> Text:
    living = sum(host.state == "living" for host in cluster.hosts)
    hosts = counted(living, "living host") if living else "no living host"
    in_force = f"edition {cluster.edition} in force since {clock_time(cluster.in_force_since, zone, health.at)}"
    line = f"{hosts}, {in_force if cluster.edition else 'no edition in force yet'}"
    return Text.assemble((plain(health.store), "bold"), f"\n{line}\n{_here(health, zone)}")


def _here(health: Health, zone: tzinfo) -> str:
    here = f"zone {health.zone} ({offset(health.at, zone)}), now {as_datetime(health.at, zone):%Y-%m-%d %H:%M:%S}"
    if not is_zone(zone, health.host_zone, health.at):
        here += f"; this host's zone is {health.host_zone}"
    return here


def _verdict(health: Health) -> list[Text]:
    warnings = [Text.assemble(("warning: ", "bold yellow"), warning.text) for warning in health.warnings]
    if health.healthy:
        return [*warnings, Text("healthy", "bold green")]
    return [*warnings, *(Text.assemble(("unhealthy: ", "bold red"), problem.text) for problem in health.problems)]


def _table(tasks: Sequence[TaskStatus], at: Instant, zone: tzinfo) -> RenderableType:
    owed = any(status.owed_since is not None for status in tasks)
    rows = [[Text(*cell) for cell in _row(status, at, zone, owed=owed)] for status in tasks]
    return table(_headings(owed=owed), rows, spare=_SPARE, remark="last failure")


def _headings(*, owed: bool) -> Sequence[str]:
    headings = ("task", "state", "cron", "last start", "last success", "next")
    return (*headings, "owed since", "late") if owed else headings


def _row(status: TaskStatus, at: Instant, zone: tzinfo, *, owed: bool) -> Sequence[Cell]:
    def shown(instant: Instant | None) -> str:
        return "-" if instant is None else clock_time(instant, zone, at)

    label, following = status.state, shown(status.next_at)
    if status.state == "running":
        label = f"running {between(status.last_attempt_at or at, at)}"
        following = "when it ends" if status.next_at is None else following
    if status.next_is in {"retry", "interrupted"}:
        following += " retry" if status.next_is == "retry" else " again"
    if status.next_at is not None and status.next_at <= at:
        following = "now"
    failure = shown(status.last_failure_at) + (f" {first_line(status.last_error, 160)}" if status.last_error else "")
    cells = [
        (plain(status.task), "bold"),
        (label, _STYLES[status.state]),
        (shortened(status.expression.text), ""),
        (shown(status.last_attempt_at), ""),
        (shown(status.last_success_at), ""),
        (following, ""),
    ]
    if owed:
        cells.append((shown(status.owed_since), ""))
        cells.append((stretch(status.late_ms / 1000) if status.late_ms else "-", "yellow"))
    return [*cells, (failure, "" if status.last_failure_at is None else "red")]


# --- for programs ----------------------------------------------------------------------------------------------------


def _print_document(store: StorePlace) -> Health:
    """Print the documented shape: the health of the store, and every task."""
    with spooled() as file:

        def question(view: View) -> Health:
            examination = Examination(view, host_zone())
            tasks = (json_form(status, examination.zone) for status in examination.all_tasks())
            file.seek(0)
            file.truncate()
            for text in json_text("status", {**json_form(examination.health, examination.zone), "tasks": tasks}):
                file.write(text)
            return examination.health

        return reader_of(store).read(question)
