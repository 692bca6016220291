"""`duly plan`: what initialize() would do with a store, without doing it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import click
from rich.text import Text

from duly.cli.completion import complete_target, complete_zone
from duly.cli.output import Exit, first_line, json_option, note, print_json, say
from duly.cli.store import reader_of, store_option
from duly.cli.target import load_now
from duly.cli.time_text import host_zone, now, set_host_zone
from duly.core.moments import Instant, zone_name
from duly.core.record import StoredTask
from duly.core.resolution import NO_MARKS, Mark
from duly.core.zones import is_zone
from duly.errors import StoreUnusedError
from duly.insight.cron_words import shortened, shortened_pair
from duly.insight.json_form import json_form
from duly.insight.plan import InterruptedTask, OrphanedTask, OverriddenTask, Plan, plan_of, stored_tasks
from duly.insight.words import clock_time, stretch
from duly.insight.zone import zone_in_use
from duly.stores import View
from duly.stores.port import Snapshot
from duly.text import plain

_NAMES_MAX: Final = 6
_NAME_LETTERS_MAX: Final = 60
_LISTED_MAX: Final = 100

T = TypeVar("T")


@click.command()
@click.argument("target", shell_complete=complete_target)
@store_option
@click.option("--check", is_flag=True, help="Exit with 2 if anything would be orphaned or dropped, for CI.")
@click.option(
    "--interrupted",
    type=click.Choice(["restart", "wait"]),
    default="restart",
    show_default=True,
    help="Plan for a `duly run` with this option.",
)
@click.option("--tz", metavar="ZONE", shell_complete=complete_zone, help="Plan for a `duly run` with this option.")
@json_option
def plan(
    target: str, store: Path, check: bool, tz: str | None, interrupted: Literal["restart", "wait"], as_json: bool
) -> int:
    """Show what a start or a reload of TARGET would change.

    Shows which tasks are new, overridden (with what differs and what is dropped), orphaned and interrupted, when new
    and changed tasks start next, and the busiest minutes of the coming day. Works even while a scheduler runs on the
    store, and changes nothing.

    \b
    Example:
      duly plan tasks.py --store state.db
      duly plan tasks.py --store state.db --check || echo "something would be lost"
    """
    if tz is not None:
        set_host_zone(tz)
    loaded = load_now(target)
    snapshot, stored, marks = _read(store)
    at, zone = now() if snapshot is None else snapshot.at, host_zone()
    restart = interrupted == "restart"
    planned = plan_of(loaded.registrations, stored, now=at, zone=zone, restart=restart, marks=marks)
    used = None if snapshot is None else zone_name(zone_in_use(snapshot.zone, zone))
    if as_json:
        print_json("plan", {**_surroundings(loaded.target.text, store, snapshot, used), **json_form(planned, zone)})
    else:
        heading = f" for {plain(loaded.target.text)} on {plain(store)}, {_holder(snapshot, zone)}"
        say(Text.assemble(("Plan", "bold"), heading))
        say()
        if used is not None and not is_zone(zone, used, at):
            moved = f"{used}  →  {planned.zone}: the same expressions mean other instants"
            _show_task("!", "bold yellow", "the host's zone", "", moved)
        _show(planned, zone)
    if check and planned.losses:
        if not as_json:
            note(f"{len(planned.losses)} of the changes above lose something", "check", "bold red")
        return Exit.USAGE
    return Exit.OK


def _read(store: Path) -> tuple[Snapshot | None, Sequence[tuple[StoredTask, bool]], Mapping[str, Mark]]:
    """The store, its tasks, and what removed names have served; None where the first start-up would create it."""

    def question(view: View) -> tuple[Snapshot, Sequence[tuple[StoredTask, bool]], Mapping[str, Mark]]:
        return view.snapshot(), stored_tasks(view), view.marks()

    try:
        return reader_of(store).read(question)
    except StoreUnusedError:
        return None, [], NO_MARKS


def _surroundings(target: str, store: Path, snapshot: Snapshot | None, used: str | None) -> dict[str, Any]:
    return {
        "target": target,
        "store": os.fspath(store),
        "storeExists": snapshot is not None,
        "held": snapshot is not None and snapshot.holder.alive,
        "usedZone": used,
    }


def _holder(snapshot: Snapshot | None, zone: tzinfo) -> str:
    if snapshot is None:
        return "which does not exist yet"
    holder = snapshot.holder
    if not holder.alive:
        return "which no scheduler holds"
    since = f" since {clock_time(holder.since, zone, snapshot.at)}" if holder.since is not None else ""
    return f"held by process {holder.pid or '?'} on {plain(holder.host or '?')}{since}"


# --- for people ------------------------------------------------------------------------------------------------------


def _show(planned: Plan, zone: tzinfo) -> None:
    at = planned.at
    for task in _first(planned.new, "new"):
        configuration = f"{shortened(task.expression.text)}, retry after {_ms(task.retry_delay_ms)}"
        _show_task("+", "green", task.task, "new", configuration)
        _show_starts(task.next_starts, zone, at)
    for change in _first(planned.overridden, "overridden"):
        _show_override(change, zone, at)
    for orphan in _first(planned.orphaned, "orphaned"):
        _show_orphan(orphan, zone, at)
    for interrupted in _first(planned.interrupted, "interrupted"):
        _show_interrupted(interrupted, zone, at)
    if planned.preserved:
        _show_task("=", "dim", f"{len(planned.preserved):,} preserved", "", "")
    if planned.new or planned.overridden or planned.orphaned or planned.preserved:
        say()
    say(Text(_totals(planned), "bold"))
    if any(each.tasks > 1 for each in planned.busiest):
        _show_busiest(planned, zone)


def _first(changes: Sequence[T], kind: str) -> Iterator[T]:
    """The first hundred changes; the rest is counted."""
    yield from changes[:_LISTED_MAX]
    if (more := len(changes) - _LISTED_MAX) > 0:
        say(f"  … and {more:,} more {kind} (--json has all)", style="dim")


def _show_task(sign: str, style: str, name: str, kind: str, text: str) -> None:
    say(Text.assemble((f"  {sign} {plain(name)}", style), f"  {kind}" if kind else "", f"  {text}" if text else ""))


def _show_field(name: str, value: str, style: str = "") -> None:
    say(Text.assemble((f"      {name:<12} ", "dim"), (value, style)))


def _show_starts(starts: Sequence[Instant], zone: tzinfo, at: Instant) -> None:
    _show_field("next", ", ".join("now" if start <= at else clock_time(start, zone, at) for start in starts))


def _show_override(change: OverriddenTask, zone: tzinfo, at: Instant) -> None:
    _show_task("~", "yellow", change.task, "overridden", "")
    stored, declared = change.stored, change.declared
    if stored.expression.text != declared.expression.text:
        _show_field("cron", "  →  ".join(shortened_pair(stored.expression.text, declared.expression.text)))
    if stored.retry_delay_ms != declared.retry_delay_ms:
        _show_field("retry after", f"{_ms(stored.retry_delay_ms)}  →  {_ms(declared.retry_delay_ms)}")
    _show_dropped(change.dropped, running=change.running)
    _show_starts(change.next_starts, zone, at)


def _show_orphan(orphan: OrphanedTask, zone: tzinfo, at: Instant) -> None:
    last = orphan.last_attempt_at
    when = "never ran" if last is None else f"last started {clock_time(last, zone, at)}"
    _show_task("-", "red", orphan.task, "orphaned", f"{shortened(orphan.expression.text)}, {when}; would be removed")
    _show_dropped(orphan.dropped, running=orphan.running)


def _show_interrupted(task: InterruptedTask, zone: tzinfo, at: Instant) -> None:
    if task.resumes_at is None:
        again = "waits for its next due minute"
    elif task.resumes_at <= at:
        again = "starts again at once"
    else:
        again = f"starts again {clock_time(task.resumes_at, zone, at)}"
    text = f"its run of {clock_time(task.started_at, zone, at)} was cut short; {again}"
    _show_task("!", "bold yellow", task.task, "interrupted", text)


def _show_dropped(dropped: Sequence[str], *, running: bool) -> None:
    for each in dropped:
        _show_field("dropped", each, "red")
    if running:
        _show_field("running", "this run goes on; its end belongs to the old declaration")


def _show_busiest(planned: Plan, zone: tzinfo) -> None:
    say()
    say("Busiest minutes of the coming day", style="bold")
    busy = [each for each in planned.busiest if each.tasks > 1]
    for each in busy:
        some = (first_line(name, _NAME_LETTERS_MAX) for name in each.names[:_NAMES_MAX])
        names = ", ".join(some) + (", …" if each.tasks > _NAMES_MAX else "")
        say(f"  {clock_time(each.minute, zone, planned.at):<10} {each.tasks:>5,} tasks  {names}")
    if planned.as_busy and len(busy) == len(planned.busiest):
        say(f"  and {planned.as_busy:,} more minutes with {planned.busiest[-1].tasks:,}", style="dim")


def _totals(planned: Plan) -> str:
    numbers = {
        "new": len(planned.new),
        "overridden": len(planned.overridden),
        "orphaned": len(planned.orphaned),
        "preserved": len(planned.preserved),
        "interrupted": len(planned.interrupted),
    }
    if not (planned.new or planned.overridden or planned.orphaned):
        kept = f"{numbers['preserved']:,} preserved" if planned.preserved else "there are no tasks"
        interrupted = f", {numbers['interrupted']:,} of them interrupted" if planned.interrupted else ""
        return f"Nothing changes: {kept}{interrupted}"
    return ", ".join(f"{number:,} {kind}" for kind, number in numbers.items() if number)


def _ms(milliseconds: int) -> str:
    return stretch(milliseconds / 1000)
