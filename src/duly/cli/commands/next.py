"""duly next: the coming starts of an expression or of a target's tasks, and what the zone's leaps do to them."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any, NoReturn

import click
from rich.text import Text

from duly.cli.caret import pointed_at
from duly.cli.completion import complete_target, complete_zone
from duly.cli.output import Exit, fail, json_option, print_json, say
from duly.cli.target import TARGET_HELP, load_now, looks_like_target
from duly.cli.time_text import host_zone, now, parse_moment, zone_named
from duly.core.cron import CronExpression
from duly.core.moments import Instant, instant_of, zone_name
from duly.errors import CronCalculationError
from duly.insight.cron_check import CronCheck, examine
from duly.insight.cron_words import in_words
from duly.insight.json_form import json_form
from duly.insight.words import ago, listed
from duly.insight.zone_changes import Leap, leaps
from duly.text import plain

_MINUTES_TOLD_MAX = 4


@dataclass(frozen=True, slots=True)
class Coming:
    """What comes for one expression: its starts, and the leaps among them."""

    task: str | None
    expression: CronExpression
    starts: tuple[datetime, ...]
    leaps: tuple[Leap, ...]


def coming(task: str | None, expression: CronExpression, since: datetime, count: int) -> Coming:
    """The first starts from a moment on, and the leaps that touch the expression up to the last of them."""
    zone = since.tzinfo
    assert zone is not None
    # In UTC, because a step back on the wall clock may lead into another hour than it should.
    before = (since.astimezone(UTC) - timedelta(microseconds=1)).astimezone(zone)
    starts = tuple(islice(_starts(expression, before), count))
    touched = leaps(expression, zone, before, starts[-1]) if starts else ()
    return Coming(task, expression, starts, tuple(touched))


def _starts(expression: CronExpression, since: datetime) -> Iterator[datetime]:
    when = since
    while True:
        try:
            when = expression.next_after(when)
        except CronCalculationError:
            return  # the calendar ends in 9999
        yield when


# --- the command -----------------------------------------------------------------------------------------------------


@click.command(name="next", epilog=f"TARGET is {TARGET_HELP}.")
@click.argument("expression_or_target", metavar="EXPR_OR_TARGET", shell_complete=complete_target)
@click.option("-n", "count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many starts.")
@click.option("--from", "since", metavar="TIME", default="now", help="From this moment on; the default is now.")
@click.option(
    "--tz",
    metavar="ZONE",
    shell_complete=complete_zone,
    help="In this zone, such as Europe/Berlin; the default is the host's.",
)
@click.option("--merged", is_flag=True, help="For a TARGET: one list of all tasks instead of one for each.")
@json_option
def next_(expression_or_target: str, count: int, since: str, tz: str | None, merged: bool, as_json: bool) -> int:
    """Show the coming starts of a cron expression, or of the tasks of a TARGET.

    \b
    Example:
      duly next '30 2 * * 1-5' -n 3 --from 2024-03-29 --tz Europe/Berlin
      duly next tasks.py --merged
    """
    zone = host_zone() if tz is None else zone_named(tz)
    at = now()
    try:
        begin = parse_moment(since, zone, at)
    except (ValueError, OverflowError) as fault:
        fail(f"--from: {fault}")
    if looks_like_target(expression_or_target):
        registrations = load_now(expression_or_target).registrations
        found = [coming(each.name, each.expression, begin, count) for each in registrations]
    else:
        found = [coming(None, _expression(expression_or_target), begin, count)]
    if as_json:
        print_json("next", _document(found, begin, zone, count if merged else None))
        return Exit.OK
    told = listed([plain(zone_name(zone)), f"from {begin:%Y-%m-%d %H:%M}"]).replace(" and ", ", ")
    if merged:
        _show_merged(found, count, at, told)
    else:
        for each in found:
            _show(each, at, told)
    if not found:
        say("no tasks")
    return Exit.OK


def _expression(text: str) -> CronExpression:
    check = examine(text)
    return _refuse(check) if check.parsed is None else check.parsed


def _refuse(check: CronCheck) -> NoReturn:
    text, error = check.expression, check.error
    assert error is not None
    hint = check.advice
    if not any(blank in text for blank in " \t") and not text.startswith("@"):
        hint = f"EXPR is one argument with five fields, quoted; TARGET is {TARGET_HELP}"
    about = "expression" if error.field == "expression" else f"{error.field} field"
    excerpt = "\n".join(pointed_at(text, error.begin, error.end, "  "))
    fail(f"not a POSIX cron expression: {about} {error.reason}", hint, Exit.USAGE, excerpt)


def _show(found: Coming, at: Instant, told: str) -> None:
    name = "" if found.task is None else f"{plain(found.task)}  "
    say(Text.assemble((name, "bold"), (plain(found.expression.text), "bold cyan"), f"  {in_words(found.expression)}"))
    say(f"  {told}", style="dim")
    for line in _lines(found, at):
        say(line)


def _lines(found: Coming, at: Instant) -> Iterator[Text]:
    events: list[tuple[Instant, Text]] = [(instant_of(leap.at), told_leap(leap)) for leap in found.leaps]
    events += [(instant_of(start), _told_start(start, at)) for start in found.starts]
    events.sort(key=lambda event: event[0])
    for _, line in events:
        yield line


def _told_start(start: datetime, at: Instant) -> Text:
    distance = f"  {ago(instant_of(start), at)}" if instant_of(start) > at else ""
    return Text.assemble(f"  {start:%a %Y-%m-%d %H:%M} ", (f"{_offset(start)}{distance}", "dim"))


def _offset(when: datetime) -> str:
    text = when.isoformat()
    return text[19:]


def told_leap(leap: Leap) -> Text:
    """A leap as a line for people."""
    minutes, before, after = leap.minutes, leap.clock_before, leap.clock_after
    shown = [f"{minute:%H:%M}" for minute in minutes]
    if len(shown) > _MINUTES_TOLD_MAX:
        shown = [f"{shown[0]} to {shown[-1]} ({len(shown)} minutes)"]
    what = listed(shown)
    one = len(minutes) == 1
    form = "%H:%M" if before.date() == after.date() else "%Y-%m-%d %H:%M"
    clocks = f"from {before:{form}} to {after:{form}}"
    if leap.kind == "skipped":
        text = f"{what} {'does' if one else 'do'} not exist: clocks go forward {clocks}, "
        text += f"nothing runs for {'it' if one else 'them'}"
    else:
        text = f"{what} {'occurs' if one else 'occur'} twice: clocks go back {clocks}, due the first time only"
    return Text(f"  {minutes[0]:%a %Y-%m-%d} {text}", style="yellow")


def _merge(found: list[Coming], count: int) -> list[tuple[datetime, str]]:
    streams = [[(start, each.task or "") for start in each.starts] for each in found]
    return list(islice(heapq.merge(*streams, key=lambda pair: instant_of(pair[0])), count))


def _show_merged(found: list[Coming], count: int, at: Instant, told: str) -> None:
    say(f"{len(found)} tasks, {told}", style="dim")
    merged = _merge(found, count)
    lines = [
        (instant_of(start), 1, Text.assemble(_told_start(start, at), f"  {plain(name)}")) for start, name in merged
    ]
    last = lines[-1][0] if lines else Instant(0)
    lines += [
        (instant_of(leap.at), 0, Text.assemble(told_leap(leap), f" ({plain(each.task)})"))
        for each in found
        for leap in each.leaps
        if instant_of(leap.at) <= last
    ]
    for _, _, line in sorted(lines, key=lambda line: line[:2]):
        say(line)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _document(found: list[Coming], since: datetime, zone: tzinfo, merged: int | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "zone": zone_name(zone),
        "from": since.isoformat(),
        "tasks": [
            {
                "task": each.task,
                "expression": each.expression.text,
                "words": in_words(each.expression),
                "starts": [start.isoformat() for start in each.starts],
                "leaps": [json_form(leap, zone) for leap in each.leaps],
            }
            for each in found
        ],
    }
    if merged is not None:
        document["merged"] = [{"at": start.isoformat(), "task": name} for start, name in _merge(found, merged)]
    return document
