"""`duly plan`: what initialize() would do with a store, without doing it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import click
from rich.text import Text

from duly.cli.completion import complete_target, complete_zone
from duly.cli.html_file import check_html, html_option, say_written, write_html
from duly.cli.output import Exit, first_line, json_option, note, print_json, say
from duly.cli.output_file import check_apart
from duly.cli.store import reader_of, store_option
from duly.cli.target import files_named, load_now
from duly.cli.time_text import host_zone, now, set_host_zone
from duly.core.moments import Instant, zone_name
from duly.core.record import StoredTask
from duly.core.registration import Registration
from duly.core.resolution import NO_MARKS, Mark
from duly.core.zones import is_zone
from duly.errors import StoreUnusedError
from duly.insight.cluster import EditionPlan, edition_plan, host_text
from duly.insight.cron_words import shortened, shortened_pair
from duly.insight.json_form import json_form
from duly.insight.plan import InterruptedTask, OrphanedTask, OverriddenTask, Plan, plan_of, stored_tasks
from duly.insight.words import clock_time, counted, listed, stretch
from duly.insight.zone import zone_in_use
from duly.stores import View
from duly.stores.place import StorePlace, name_of
from duly.stores.port import Snapshot
from duly.text import plain

_NAMES_MAX: Final = 6
_NAME_LETTERS_MAX: Final = 60
_LISTED_MAX: Final = 100
_ROWS_MAX: Final = 1_000
"""Rows of each table of a page."""

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
@html_option
@json_option
def plan(
    target: str,
    store: StorePlace,
    check: bool,
    tz: str | None,
    interrupted: Literal["restart", "wait"],
    html: Path | None,
    as_json: bool,
) -> int:
    """Show what a start or a reload of TARGET would change.

    Shows which tasks are new, overridden (with what differs and what is dropped), orphaned and interrupted, when new
    and changed tasks start next, and the busiest minutes of the coming day; on PostgreSQL also which hosts become
    outdated. Works even while a scheduler runs on the store, and changes nothing.

    \b
    Example:
      duly plan tasks.py --store state.db
      duly plan tasks.py --store state.db --check || echo "something would be lost"
      duly plan tasks.py --store state.db --html plan.html
    """
    check_html(html)
    if tz is not None:
        set_host_zone(tz)
    check_apart({"--html": html}, files_named(target))
    loaded = load_now(target)
    snapshot, stored, marks = _read(store)
    at, zone = now() if snapshot is None else snapshot.at, host_zone()
    restart = interrupted == "restart"
    planned = plan_of(loaded.registrations, stored, now=at, zone=zone, restart=restart, marks=marks)
    used = None if snapshot is None else zone_name(zone_in_use(snapshot.zone, zone))
    edition = planned_edition(loaded.registrations, stored, snapshot, interrupted)
    around = surroundings(loaded.target.text, name_of(store), snapshot, used, edition)
    document = {**around, **json_form(planned, zone)}
    zone_moved = used is not None and not is_zone(zone, used, at)
    if html is not None:
        shown = _shown(planned, document, _holder(snapshot, zone), zone_moved=zone_moved)
        write_html(html, "plan.html", "Plan", zone, at, shown)
    if as_json:
        print_json("plan", document)
    else:
        heading = f" for {plain(loaded.target.text)} on {plain(name_of(store))}, {_holder(snapshot, zone)}"
        say(Text.assemble(("Plan", "bold"), heading))
        say()
        if zone_moved:
            moved = f"{used}  →  {planned.zone}: the same expressions mean other instants"
            _show_task("!", "bold yellow", "the host's zone", "", moved)
        _show(planned, zone)
        if edition is not None:
            _show_edition(edition)
        say_written(html)
    if check and planned.losses:
        if not as_json:
            lost = len(planned.losses)
            note(f"{lost} of the changes above {'loses' if lost == 1 else 'lose'} something", "check", "bold red")
        return Exit.USAGE
    return Exit.OK


def _read(store: StorePlace) -> tuple[Snapshot | None, Sequence[tuple[StoredTask, bool]], Mapping[str, Mark]]:
    """The store, its tasks, and what removed names have served; None where the first start-up would create it."""

    def question(view: View) -> tuple[Snapshot, Sequence[tuple[StoredTask, bool]], Mapping[str, Mark]]:
        return view.snapshot(), stored_tasks(view), view.marks()

    try:
        return reader_of(store).read(question)
    except StoreUnusedError:
        return None, [], NO_MARKS


def planned_edition(
    declared: Sequence[Registration],
    stored: Sequence[tuple[StoredTask, bool]],
    snapshot: Snapshot | None,
    interrupted: Literal["restart", "wait"],
) -> EditionPlan | None:
    """The fate of the declared set on a shared store; None on an embedded one, or on one that is not used yet."""
    if snapshot is None or snapshot.cluster is None:
        return None
    in_force = [task.name for task, _ in stored]
    return edition_plan(declared, in_force, snapshot.cluster, snapshot.at, interrupted=interrupted)


def surroundings(
    target: str, store: str, snapshot: Snapshot | None, used: str | None, edition: EditionPlan | None
) -> dict[str, Any]:
    """The first fields of the JSON form of a plan."""
    return {
        "target": target,
        "store": store,
        "storeExists": snapshot is not None,
        "held": snapshot is not None and snapshot.holder.alive,
        "usedZone": used,
        "edition": None if edition is None else json_form(edition, UTC),
    }


def _holder(snapshot: Snapshot | None, zone: tzinfo) -> str:
    if snapshot is None:
        return "which does not exist yet"
    holder = snapshot.holder
    if (cluster := snapshot.cluster) is not None:
        living = sum(each.is_living(snapshot.at) for each in cluster.hosts)
        return f"with {counted(living, 'living host')}" if living else "with no living host"
    if not holder.alive:
        return "which no scheduler holds"
    since = f" since {clock_time(holder.since, zone, snapshot.at)}" if holder.since is not None else ""
    return f"held by process {holder.pid or '?'} on {plain(holder.host or '?')}{since}"


def _shown(planned: Plan, document: Mapping[str, Any], holder: str, *, zone_moved: bool) -> dict[str, Any]:
    """The content of the page."""
    tones = {"new": "running", "overridden": "owed", "orphaned": "failure", "interrupted": "interrupted"}
    return {
        "plan": document,
        "holder": holder,
        "headline": _totals(planned),
        "totals": [(number, kind, tones.get(kind, "waiting")) for kind, number in _numbers(planned).items()],
        "zone_moved": zone_moved,
        "most": _ROWS_MAX,
    }


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


def _show_edition(edition: EditionPlan) -> None:
    """Say what the plan means to the hosts of a shared store."""
    say()
    match edition.verdict:
        case "joined":
            say(f"A host that joins declares edition {edition.edition}, which is in force: nothing changes")
        case "applied":
            say(f"A host that joins puts edition {edition.edition} in force, instead of {edition.in_force}")
        case "outdated":
            say(
                f"A host that joins is outdated: it declares edition {edition.edition}, and {edition.in_force} stays "
                "in force while a host declares it; nothing above happens before",
                style="yellow",
            )
        case "foreign":
            text = "A host that joins is refused: no task has the name of one in force; give each application a schema"
            say(text, style="bold red")
    if edition.outdated_hosts and edition.verdict != "outdated":
        hosts = listed([host_text(each) for each in edition.outdated_hosts])
        becomes = "is then" if len(edition.outdated_hosts) == 1 else "are then"
        say(f"{hosts} {becomes} outdated: unchanged tasks go on there, others are left alone", style="yellow")


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


def _numbers(planned: Plan) -> dict[str, int]:
    return {
        "new": len(planned.new),
        "overridden": len(planned.overridden),
        "orphaned": len(planned.orphaned),
        "preserved": len(planned.preserved),
        "interrupted": len(planned.interrupted),
    }


def _totals(planned: Plan) -> str:
    numbers = _numbers(planned)
    if not (planned.new or planned.overridden or planned.orphaned):
        kept = f"{numbers['preserved']:,} preserved" if planned.preserved else "there are no tasks"
        interrupted = f", {numbers['interrupted']:,} of them interrupted" if planned.interrupted else ""
        return f"Nothing changes: {kept}{interrupted}"
    return ", ".join(f"{number:,} {kind}" for kind, number in numbers.items() if number)


def _ms(milliseconds: int) -> str:
    return stretch(milliseconds / 1000)
