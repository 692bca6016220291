"""`duly plan`: what initialize() would do with a store, without doing it."""

import heapq
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta, tzinfo
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

import click
from rich.text import Text

from duly.cli.completion import complete_target
from duly.cli.output import Exit, json_option, note, print_json, say
from duly.cli.reading import Snapshot, UnusedStore, read_store, store_option
from duly.cli.target import Loaded, load_now
from duly.cli.time_text import host_zone, now
from duly.core.cron import CronExpression
from duly.core.moments import Instant, Minute, as_datetime, begin, minute_of, zone_name
from duly.core.occurrences import next_after
from duly.core.registration import Registration, Registrations, RunsOn
from duly.core.resolution import Orphan, Override, Resolution, resolve
from duly.core.steps import finish
from duly.core.task import Interrupted, Running, Task, corrected, interrupt
from duly.errors import CronCalculationError
from duly.insight.words import clock_time, iso, stretch
from duly.text import plain

NEXT_STARTS: Final = 5
BUSIEST_MINUTES: Final = 5
_NAMES_MAX: Final = 6
_LISTED_MAX: Final = 100

T = TypeVar("T")
_DAY_SECONDS: Final = 86_400


@click.command()
@click.argument("target", shell_complete=complete_target)
@store_option
@click.option("--check", is_flag=True, help="Exit with 2 if anything would be orphaned or dropped: for CI.")
@click.option(
    "--interrupted",
    type=click.Choice(["restart", "wait"]),
    default="restart",
    show_default=True,
    help="What `duly run` will be told to do with interrupted runs.",
)
@json_option
def plan(target: str, store: Path, check: bool, interrupted: Literal["restart", "wait"], as_json: bool) -> int:
    """Show what starting or reloading TARGET on a store would change, without changing anything.

    Shows what is new, overridden (field by field, and what that drops), orphaned and interrupted, the next starts of
    what is new or changed, and the busiest minutes of the coming day. Works while a scheduler runs on the store.

    \b
    Example:
      duly plan tasks.py --store state.db
      duly plan tasks.py --store state.db --check || echo "something would be lost"
    """
    loaded = load_now(target)
    snapshot = _read(store)
    at, zone = (snapshot.at, snapshot.host_zone) if snapshot is not None else (now(), host_zone())
    resolution = resolution_of(loaded.registrations, snapshot, at, zone, restart=interrupted == "restart")
    busiest = busiest_minutes(loaded.registrations, at, zone)
    if as_json:
        print_json("plan", _document(loaded, store, snapshot, resolution, busiest, zone))
    else:
        _show(loaded, store, snapshot, resolution, busiest, zone)
    losses = losses_of(resolution)
    if check and losses:
        if not as_json:
            note(f"{len(losses)} of the changes above lose something", "check", "bold red")
        return Exit.USAGE
    return Exit.OK


def _read(store: Path) -> Snapshot | None:
    """The store; None where the first start-up would create it."""
    try:
        return read_store(store, runs=False)
    except UnusedStore:
        return None


# --- what would happen -----------------------------------------------------------------------------------------------


def resolution_of(
    declared: Sequence[Registration], snapshot: Snapshot | None, at: Instant, zone: tzinfo, *, restart: bool
) -> Resolution:
    """The resolution that initialize() would come to now."""
    stored = {} if snapshot is None else {task.name: task for task in stored_tasks(snapshot, at, zone, restart=restart)}
    numbers = count(1)
    return finish(resolve(Registrations(declared), stored, now=at, zone=zone, new_generations=lambda: next(numbers)))


def stored_tasks(snapshot: Snapshot, at: Instant, zone: tzinfo, *, restart: bool) -> Iterable[Task]:
    """The tasks of a store as a scheduler sees them: what nobody runs any more is interrupted."""
    minute = minute_of(at, zone)
    for known in snapshot.tasks:
        record, state = known.stored, known.stored.state
        if known.interrupted and isinstance(state, Running):
            state = interrupt(state, at, record.delay, restart=restart)
        state = corrected(state, at, minute, record.delay)
        yield Task(record.generation, record.name, record.expression, record.delay, state, _nothing, RunsOn.LOOP)


def _nothing() -> None:
    """What a stored task would call; nobody does."""


def losses_of(resolution: Resolution) -> list[str]:
    """The names of tasks that would be orphaned, or would lose what they are owed."""
    lost = [each.task.name for each in resolution.orphaned]
    return lost + [each.new.name for each in resolution.overridden if each.dropped]


@cache  # many tasks share few expressions
def next_starts(expression: CronExpression, mark: Minute, zone: tzinfo) -> Sequence[Instant]:
    """The first minutes after a mark at which an expression is due."""
    starts: list[Instant] = []
    try:
        while len(starts) < NEXT_STARTS:
            mark = next_after(expression, mark, zone)
            starts.append(begin(mark))
    except CronCalculationError:
        pass  # the calendar ends in 9999
    return starts


class Busy(NamedTuple):
    """A minute in which many tasks fall due."""

    minute: Instant
    names: list[str]
    alike: int
    """How many more minutes of the coming day have as many, and are not listed."""


def busiest_minutes(declared: Sequence[Registration], at: Instant, zone: tzinfo) -> list[Busy]:
    """The minutes of the coming day in which most tasks fall due, and no more than a few of them."""
    names: dict[CronExpression, list[str]] = {}
    for registration in declared:
        names.setdefault(registration.expression, []).append(registration.name)
    first = minute_of(at, zone)
    load: Counter[Minute] = Counter()
    for expression, its in names.items():
        for due in _within_a_day(expression, first, zone):
            load[due] += len(its)
    busiest = heapq.nsmallest(BUSIEST_MINUTES, load.items(), key=lambda item: (-item[1], item[0]))
    alike = Counter(load.values())
    alike.subtract(number for _, number in busiest)
    return [
        Busy(
            begin(minute),
            [name for expression, its in names.items() if _is_due(expression, minute, zone) for name in its],
            alike[number],
        )
        for minute, number in busiest
    ]


def _within_a_day(expression: CronExpression, first: Minute, zone: tzinfo) -> Iterable[Minute]:
    minute = first
    try:
        while (minute := next_after(expression, minute, zone)) <= first + _DAY_SECONDS:
            yield minute
    except CronCalculationError:
        return


def _is_due(expression: CronExpression, minute: Minute, zone: tzinfo) -> bool:
    return expression.matches(as_datetime(begin(minute), zone))


# --- for people ------------------------------------------------------------------------------------------------------


def _show(
    loaded: Loaded,
    store: Path,
    snapshot: Snapshot | None,
    resolution: Resolution,
    busiest: Sequence[Busy],
    zone: tzinfo,
) -> None:
    at = resolution.now
    say(
        Text.assemble(
            ("Plan", "bold"), f" for {plain(loaded.target.text)} on {plain(store)}, {_holder(snapshot, zone)}"
        )
    )
    say()
    if snapshot is not None and zone_name(snapshot.zone) != zone_name(zone):
        said = f"{zone_name(snapshot.zone)}  →  {zone_name(zone)}: the same expressions mean other instants"
        _show_task("!", "bold yellow", "the host's zone", "", said)
    for task in _first(resolution.added, "new"):
        said = f"{task.expression.text}, retry after {_ms(task.delay)}"
        _show_task("+", "green", task.name, "new", said)
        _show_starts(task, zone, at)
    for change in _first(resolution.overridden, "overridden"):
        _show_override(change, zone, at)
    for orphan in _first(resolution.orphaned, "orphaned"):
        _show_orphan(orphan, zone, at)
    for task in _first(resolution.interrupted, "interrupted"):
        _show_interrupted(task, zone, at)
    if resolution.preserved.count:
        _show_task("=", "dim", f"{resolution.preserved.count:,} preserved", "", "")
    say()
    say(Text(_totals(resolution), "bold"))
    if busiest:
        say()
        say("Busiest minutes of the coming day", style="bold")
        for minute, names, _ in busiest:
            shown = ", ".join(map(plain, names[:_NAMES_MAX])) + (", …" if len(names) > _NAMES_MAX else "")
            say(f"  {clock_time(minute, zone, at):<10} {len(names):>5,} task{'s' if len(names) != 1 else ' '}  {shown}")
        if alike := busiest[-1].alike:
            say(f"  and {alike:,} more minutes with {len(busiest[-1].names):,}", style="dim")


def _first(changes: Sequence[T], kind: str) -> Iterator[T]:
    """As many as somebody will read; the rest is counted."""
    yield from changes[:_LISTED_MAX]
    if (more := len(changes) - _LISTED_MAX) > 0:
        say(f"  … and {more:,} more {kind} (--json has all)", style="dim")


def _holder(snapshot: Snapshot | None, zone: tzinfo) -> str:
    if snapshot is None:
        return "which does not exist yet"
    holder = snapshot.holder
    if not holder.alive:
        return "which nobody holds"
    since = f" since {clock_time(holder.since, zone, snapshot.at)}" if holder.since is not None else ""
    return f"held by process {holder.pid or '?'} on {plain(holder.host or '?')}{since}"


def _show_task(sign: str, style: str, name: str, kind: str, said: str) -> None:
    say(Text.assemble((f"  {sign} {plain(name)}", style), f"  {kind}" if kind else "", f"  {said}" if said else ""))


def _show_field(name: str, value: str, style: str = "") -> None:
    say(Text.assemble((f"      {name:<12} ", "dim"), (value, style)))


def _show_starts(task: Task, zone: tzinfo, at: Instant) -> None:
    starts = next_starts(task.expression, task.state.served_through, zone)
    shown = ["now" if start <= at else clock_time(start, zone, at) for start in starts]
    _show_field("next", ", ".join(shown))


def _show_override(change: Override, zone: tzinfo, at: Instant) -> None:
    _show_task("~", "yellow", change.new.name, "overridden", "")
    if change.old.expression.text != change.new.expression.text:
        _show_field("cron", f"{change.old.expression.text}  →  {change.new.expression.text}")
    if change.old.delay != change.new.delay:
        _show_field("retry after", f"{_ms(change.old.delay)}  →  {_ms(change.new.delay)}")
    _show_dropped(change.dropped, running=isinstance(change.old_state, Running))
    _show_starts(change.new, zone, at)


def _show_orphan(orphan: Orphan, zone: tzinfo, at: Instant) -> None:
    last = orphan.last_attempt_at
    when = "never ran" if last is None else f"last started {clock_time(last, zone, at)}"
    _show_task("-", "red", orphan.task.name, "orphaned", f"{orphan.task.expression.text}, {when}; would be removed")
    _show_dropped(orphan.dropped, running=isinstance(orphan.task.state, Running))


def _show_interrupted(task: Task, zone: tzinfo, at: Instant) -> None:
    state = task.state
    assert isinstance(state, Interrupted)
    if state.resume_at is None:
        again = "waits for its next due minute"
    elif state.resume_at <= at:
        again = "starts again at once"
    else:
        again = f"starts again {clock_time(state.resume_at, zone, at)}"
    said = f"its run of {clock_time(state.last_attempt_at, zone, at)} was cut short; {again}"
    _show_task("!", "bold yellow", task.name, "interrupted", said)


def _show_dropped(dropped: Sequence[str], *, running: bool) -> None:
    for each in dropped:
        _show_field("dropped", each, "red")
    if running:
        _show_field("running", "this run goes on; its end belongs to the old declaration")


def _totals(resolution: Resolution) -> str:
    numbers = {
        "new": len(resolution.added),
        "overridden": len(resolution.overridden),
        "orphaned": len(resolution.orphaned),
        "preserved": resolution.preserved.count,
        "interrupted": len(resolution.interrupted),
    }
    if not resolution.changes_tasks:
        return f"Nothing changes: {numbers['preserved']:,} preserved, {numbers['interrupted']:,} of them interrupted"
    return ", ".join(f"{number:,} {kind}" for kind, number in numbers.items() if number)


def _ms(milliseconds: int) -> str:
    return stretch(timedelta(milliseconds=milliseconds).total_seconds())


# --- for programs ----------------------------------------------------------------------------------------------------


def _configuration(task: Task) -> dict[str, Any]:
    return {"expression": task.expression.text, "retryDelayMs": task.delay}


def _document(
    loaded: Loaded,
    store: Path,
    snapshot: Snapshot | None,
    resolution: Resolution,
    busiest: Sequence[Busy],
    zone: tzinfo,
) -> dict[str, Any]:
    def starts(task: Task) -> list[str | None]:
        return [iso(start, zone) for start in next_starts(task.expression, task.state.served_through, zone)]

    return {
        "target": loaded.target.text,
        "store": os.fspath(store),
        "storeExists": snapshot is not None,
        "held": snapshot is not None and snapshot.holder.alive,
        "at": iso(resolution.now, zone),
        "zone": zone_name(zone),
        "usedZone": None if snapshot is None else zone_name(snapshot.zone),
        "new": [{"task": task.name, **_configuration(task), "nextStarts": starts(task)} for task in resolution.added],
        "overridden": [
            {
                "task": each.new.name,
                "stored": _configuration(each.old),
                "declared": _configuration(each.new),
                "dropped": list(each.dropped),
                "running": isinstance(each.old_state, Running),
                "nextStarts": starts(each.new),
            }
            for each in resolution.overridden
        ],
        "orphaned": [
            {
                "task": each.task.name,
                **_configuration(each.task),
                "lastAttemptAt": iso(each.last_attempt_at, zone),
                "dropped": list(each.dropped),
                "running": isinstance(each.task.state, Running),
            }
            for each in resolution.orphaned
        ],
        "interrupted": [
            {
                "task": task.name,
                "startedAt": iso(task.state.last_attempt_at, zone),
                "interruptions": task.state.interruptions,
                "resumesAt": iso(task.state.resume_at, zone),
            }
            for task in resolution.interrupted
            if isinstance(task.state, Interrupted)
        ],
        "preserved": [task.name for task in resolution.preserved.tasks],
        "busiest": [
            {"minute": iso(each.minute, zone), "tasks": len(each.names), "names": each.names} for each in busiest
        ],
        "losses": losses_of(resolution),
    }
