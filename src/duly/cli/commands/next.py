"""`duly next`: the coming starts of an expression or of a target's tasks, and what the zone's leaps do to them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import Any, Final, NoReturn

import click

from duly.cli.caret import pointed_at
from duly.cli.completion import complete_target, complete_zone
from duly.cli.output import Exit, fail, json_option, print_json, say, styled
from duly.cli.quoting import refuse_unquoted
from duly.cli.target import TARGET_HELP, load_now, looks_like_target
from duly.cli.time_text import existing, host_zone, now, zone_named
from duly.core.cron import CronExpression
from duly.core.moments import Instant, instant_of, zone_name
from duly.insight.coming import Calendar, Coming
from duly.insight.cron_check import CronCheck, examine
from duly.insight.json_form import json_form
from duly.insight.moment_text import parse_moment
from duly.insight.words import ago, counted
from duly.insight.zone_changes import leap_in_words
from duly.text import plain

_EXPRESSIONS_KEPT: Final = 2_000
_STARTS_KEPT: Final = 20_000
"""Expressions and starts whose text is remembered: many tasks have the same ones."""

Tasks = Sequence[tuple[str | None, CronExpression]]


# --- the command -----------------------------------------------------------------------------------------------------


@click.command(name="next", epilog=f"TARGET is {TARGET_HELP}.")
@click.argument("arguments", metavar="EXPR|TARGET", nargs=-1, required=True, shell_complete=complete_target)
@click.option(
    "-n", "count", type=click.IntRange(1, 10_000), default=10, show_default=True, metavar="N", help="Show N starts."
)
@click.option(
    "--from", "since", metavar="TIME", default="now", help="Show starts from this time on; the default is now."
)
@click.option(
    "--tz",
    metavar="ZONE",
    shell_complete=complete_zone,
    help="Compute in this zone, such as Europe/Berlin; the default is the host's.",
)
@click.option("--merged", is_flag=True, help="For a TARGET, show one list of all tasks instead of one for each.")
@json_option
def next_(arguments: tuple[str, ...], count: int, since: str, tz: str | None, merged: bool, as_json: bool) -> int:
    """Show the coming starts of an expression, or of a TARGET.

    \b
    Example:
      duly next '30 2 * * 1-5' -n 3 --from 2024-03-29 --tz Europe/Berlin
      duly next tasks.py --merged
    """
    refuse_unquoted("next", arguments)
    if len(arguments) > 1:
        files = all(map(looks_like_target, arguments))
        hint = "ask for one after the other" if files else "quote an expression"
        fail(f"got {len(arguments)} arguments, and takes one EXPR or TARGET", hint)
    (expression_or_target,) = arguments
    zone = host_zone() if tz is None else zone_named(tz)
    at = now()
    try:
        begin = existing(parse_moment(since, zone, at))
    except (ValueError, OverflowError) as fault:
        fail(f"--from: {fault}")
    tasks: Tasks
    if looks_like_target(expression_or_target):
        tasks = [(each.name, each.expression) for each in load_now(expression_or_target).registrations]
    else:
        tasks = [(None, _expression(expression_or_target))]
    calendar = Calendar(begin, count)
    if as_json:
        print_json("next", _document(tasks, calendar, begin, zone, count if merged else None))
    elif not tasks:
        say("no tasks")
    else:
        text = _Text(at, count, ", ".join([plain(zone_name(zone)), f"from {begin:%Y-%m-%d %H:%M}"]))
        sys.stdout.writelines(text.merged(tasks, calendar) if merged else text.by_task(tasks, calendar))
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


class _Text:
    """The answer for people, line by line; text that tasks share is written once and repeated."""

    def __init__(self, at: Instant, count: int, circumstances: str) -> None:
        self._at = at
        self._count = count
        self._circumstances = circumstances
        self._start = lru_cache(_STARTS_KEPT)(self._line_of)
        self._day = lru_cache(_STARTS_KEPT)(lambda day: f"{day:%a %Y-%m-%d}")
        self._expressions: dict[CronExpression, str] = {}

    def by_task(self, tasks: Tasks, calendar: Calendar) -> Iterator[str]:
        """Each task with its starts."""
        for task, expression in tasks:
            name = "" if task is None else styled(f"{plain(task)}  ", "bold")
            if expression not in self._expressions:
                if len(self._expressions) >= _EXPRESSIONS_KEPT:
                    self._expressions.clear()
                self._expressions[expression] = self._below(calendar.coming(None, expression))
            yield name + self._expressions[expression]

    def _below(self, coming: Coming) -> str:
        lines = [f"{styled(plain(coming.expression.text), 'bold cyan')}  {coming.words}"]
        lines.append(styled(f"  {self._circumstances}", "dim"))
        starts = [self._start(start) for start in coming.starts]
        if coming.leaps:
            leaps = [(instant_of(leap.at), styled(f"  {leap_in_words(leap)}", "yellow")) for leap in coming.leaps]
            events = [*leaps, *zip(map(instant_of, coming.starts), starts, strict=True)]
            starts = [line for _, line in sorted(events, key=lambda event: event[0])]
        lines += [*starts, *self._end_of_calendar(coming.starts)]
        return "".join(f"{line}\n" for line in lines)

    def merged(self, tasks: Tasks, calendar: Calendar) -> Iterator[str]:
        """One list of the starts of all tasks."""
        yield styled(f"{counted(len(tasks), 'task')}, {self._circumstances}", "dim") + "\n"
        starts = calendar.merged(((task or "", expression) for task, expression in tasks), self._count)
        shown = [self._start(each.at) for each in starts]
        width = max(map(len, shown), default=0)
        lines = [
            (instant_of(each.at), 1, f"{start:<{width}}  {plain(each.task)}")
            for each, start in zip(starts, shown, strict=True)
        ]
        last = lines[-1][0] if lines else Instant(0)
        lines += [
            (instant_of(leap.at), 0, f"{styled(leap_in_words(leap), 'yellow')} ({plain(task)})")
            for task, expression in tasks
            for leap in calendar.coming(task, expression).leaps
            if instant_of(leap.at) <= last
        ]
        for _, _, line in sorted(lines, key=lambda line: line[:2]):
            yield f"{line}\n"
        for line in self._end_of_calendar(starts):
            yield f"{line}\n"

    def _end_of_calendar(self, starts: Sequence[object]) -> Iterator[str]:
        if len(starts) < self._count:
            yield styled(
                f"  no {'further ' if starts else ''}start before the calendar ends, with the year 9999", "yellow"
            )

    def _line_of(self, start: datetime) -> str:
        instant = instant_of(start)
        distance = f"  {ago(instant, self._at)}" if instant > self._at else ""
        # The day is written once: Python takes longer for it than for all the rest.
        text = start.isoformat()
        return f"  {self._day(start.date())} {text[11:16]} {styled(f'{text[19:]}{distance}', 'dim')}"


# --- for programs ----------------------------------------------------------------------------------------------------


def _document(tasks: Tasks, calendar: Calendar, since: datetime, zone: tzinfo, merged: int | None) -> Mapping[str, Any]:
    form = lru_cache(_EXPRESSIONS_KEPT)(lambda expression: json_form(calendar.coming(None, expression), zone))
    document: dict[str, Any] = {
        "zone": zone_name(zone),
        "from": since.isoformat(),
        "tasks": ({**form(expression), "task": task} for task, expression in tasks),
    }
    if merged is not None:
        starts = calendar.merged(((task or "", expression) for task, expression in tasks), merged)
        document["merged"] = [json_form(start, zone) for start in starts]
    return document
