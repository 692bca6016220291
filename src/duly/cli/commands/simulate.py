"""duly simulate: the real scheduler through days or years of simulated time, with stand-in callbacks."""

import contextlib
import difflib
import fnmatch
import gc
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, Final

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from duly.cli import signals
from duly.cli.completion import complete_target, complete_zone
from duly.cli.output import Exit, error_console, fail, json_option, print_json, say, show
from duly.cli.plotting import check_plotting, draw
from duly.cli.simulation import Outcome, Scenario, SimulatedRun, Tally, let_pass
from duly.cli.tables import table
from duly.cli.target import TARGET_HELP, load_now
from duly.cli.time_text import host_zone, now, parse_duration, parse_moment, zone_named
from duly.core.moments import zone_name
from duly.insight.words import stretch
from duly.text import plain

_SHOWN_STARTS: Final = 40
_SPARE: Final = ("latest start", "repeated", "skipped", "interrupted", "retries", "longest lateness", "missed")
_STYLES: Final = {"failure": "red", "interrupted": "magenta", "running": "dim"}


@click.command(epilog=f"TARGET is {TARGET_HELP}. TASK may be a pattern such as 'mail-*' or '*'.")
@click.argument("target", shell_complete=complete_target)
@click.option("--from", "begin", metavar="TIME", required=True, help="Where the stretch begins: 2024-03-30T12:00")
@click.option("--to", "end", metavar="TIME", required=True, help="Where it ends; that minute is not part of it.")
@click.option(
    "--tz",
    metavar="ZONE",
    shell_complete=complete_zone,
    help="In this zone, such as Europe/Berlin; the default is the host's.",
)
@click.option("--down", metavar="FROM..TO", multiple=True, help="The scheduler is stopped, gracefully; repeatable.")
@click.option("--crash-at", metavar="TIME", multiple=True, help="kill -9, and a new process at once; repeatable.")
@click.option("--fail", "failing", metavar="TASK=RATE", multiple=True, help="Runs fail at this rate, 0 to 1 or 30%.")
@click.option("--duration", metavar="TASK=SECONDS", multiple=True, help="Runs take this long: 90, 90s, 5m. Default 0.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, other failures.")
@click.option(
    "--limit", type=click.IntRange(0), default=_SHOWN_STARTS, show_default=True, help="Starts shown; 0 shows all."
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw a picture: FILE.svg or FILE.png.")
@json_option
def simulate(
    target: str,
    begin: str,
    end: str,
    tz: str | None,
    down: tuple[str, ...],
    crash_at: tuple[str, ...],
    failing: tuple[str, ...],
    duration: tuple[str, ...],
    seed: int,
    limit: int,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Run the tasks of a TARGET through simulated time; their callbacks are not called.

    The scheduler is the real one, on a simulated clock, with a store of its own. Each callback is replaced by a
    stand-in that takes the time and fails at the rate given here.

    \b
    Example:
      duly simulate tasks.py --from 2024-03-30 --to 2024-04-02 --tz Europe/Berlin \\
          --down 2024-04-01T01:00..2024-04-01T06:00 --fail backup=30%
    """
    zone = host_zone() if tz is None else zone_named(tz)
    first, last = _moment("--from", begin, zone), _moment("--to", end, zone)
    if first >= last:
        fail(f"--from {begin} is not before --to {end}")
    if plot is not None:
        check_plotting(plot)
    registrations = load_now(target).registrations
    names = [each.name for each in registrations]
    scenario = Scenario(
        registrations,
        first,
        last,
        zone,
        seed,
        _stretches(down, zone, first, last),
        tuple(_inside("--crash-at", text, _moment("--crash-at", text, zone), first, last) for text in crash_at),
        _by_task("--fail", failing, names, _rate),
        _by_task("--duration", duration, names, _seconds),
    )
    outcome = _run(scenario)
    if plot is not None:
        draw(outcome, plot)
    if as_json:
        print_json("simulate", _document(outcome))
    else:
        _show(outcome, limit)
        if plot is not None:
            say(f"drawn: {plot}")
    return Exit.OK


def _run(scenario: Scenario) -> Outcome:
    logging.getLogger("duly").disabled = True  # failures of stand-ins are results here, not news
    gc.set_threshold(100_000, 50, 100)  # a year makes many objects and few cycles: a quarter of the time otherwise
    with _progress() as tell:
        return signals.run(let_pass(scenario, tell))


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[float], object]]:
    terminal = error_console()
    if not terminal.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("simulating"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal, transient=True) as bar:
        task = bar.add_task("simulating", total=1.0)
        yield lambda share: bar.update(task, completed=share)


# --- reading the options ---------------------------------------------------------------------------------------------


def _moment(option: str, text: str, zone: tzinfo) -> datetime:
    try:
        return parse_moment(text, zone, now()).astimezone(UTC)
    except (ValueError, OverflowError) as fault:
        fail(f"{option}: {fault}")


def _inside(option: str, text: str, when: datetime, first: datetime, last: datetime) -> datetime:
    if not first <= when <= last:
        fail(f"{option} {text} is not between --from and --to")
    return when


def _stretches(
    texts: Sequence[str], zone: tzinfo, first: datetime, last: datetime
) -> tuple[tuple[datetime, datetime], ...]:
    found = []
    for text in texts:
        head, dots, tail = text.partition("..")
        if not dots:
            fail(f"--down: {text!r} is not FROM..TO", "for example --down 2024-04-01T01:00..2024-04-01T06:00")
        begin, end = (_inside("--down", each, _moment("--down", each, zone), first, last) for each in (head, tail))
        if begin >= end:
            fail(f"--down: {head} is not before {tail}")
        found.append((begin, end))
    found.sort()
    for (_, end), (begin, _) in itertools.pairwise(found):
        if begin <= end:
            fail("--down: two stretches overlap", "join them into one")
    return tuple(found)


def _by_task(option: str, texts: Sequence[str], names: Sequence[str], read: Callable[[str], float]) -> dict[str, float]:
    values: dict[str, float] = {}
    for text in texts:
        pattern, equals, value = text.rpartition("=")
        if not equals or not pattern:
            fail(f"{option}: {text!r} is not TASK=VALUE", f"for example {option} backup=0.3")
        meant = [pattern] if pattern in names else fnmatch.filter(names, pattern)
        if not meant:
            close = difflib.get_close_matches(pattern, names, n=1)
            fail(
                f"{option}: no task is called {plain(pattern)!r}", f"did you mean {plain(close[0])}?" if close else None
            )
        try:
            number = read(value)
        except ValueError as fault:
            fail(f"{option} {plain(text)}: {fault}")
        values.update(dict.fromkeys(meant, number))
    return values


def _rate(text: str) -> float:
    try:
        rate = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"{text!r} is no rate; use a number from 0 to 1, or 30%") from None
    if not 0 <= rate <= 1:
        raise ValueError(f"{text} is no rate; use a number from 0 to 1, or 30%")
    return rate


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = parse_duration(text).total_seconds()
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{text} is no duration; use seconds, or 90s, 5m, 1h30m")
    return seconds


# --- for people ------------------------------------------------------------------------------------------------------


def _show(outcome: Outcome, limit: int) -> None:
    scenario = outcome.scenario
    first, last = scenario.begin.astimezone(scenario.zone), scenario.end.astimezone(scenario.zone)
    say(
        f"{len(scenario.registrations)} tasks, {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}, "
        f"{zone_name(scenario.zone)}: {len(outcome.runs)} starts",
        style="bold",
    )
    for note in outcome.notes:
        say(f"note: {note}", style="yellow")
    if outcome.runs:
        say()
        _show_timeline(outcome, limit)
    say()
    _show_summary(outcome.tallies)


def _show_timeline(outcome: Outcome, limit: int) -> None:
    scenario = outcome.scenario
    shown = outcome.runs if limit == 0 else outcome.runs[:limit]
    width = max(len(plain(run.task)) for run in shown)
    marks: list[tuple[datetime, Text]] = []
    for begin, end in scenario.down:
        marks.append((begin, Text("stopped", style="yellow")))
        marks.append((end, Text("started again", style="yellow")))
    marks += [(crash, Text("crash, started again", style="magenta")) for crash in scenario.crashes]
    complete = len(shown) == len(outcome.runs)
    lines = [(run.at, 1, _told(run, width)) for run in shown]
    lines += [(when, 0, text) for when, text in marks if complete or when <= shown[-1].at]
    for when, _, text in sorted(lines, key=lambda line: (line[0].astimezone(UTC), line[1])):
        local = when.astimezone(scenario.zone)
        text.rstrip()
        say(Text.assemble((f"{local:%a %Y-%m-%d %H:%M:%S}  ", "dim"), text))
    if not complete:
        say(f"… and {len(outcome.runs) - len(shown)} more; --limit 0 shows all", style="dim")


def _told(run: SimulatedRun, width: int) -> Text:
    facts = []
    if run.cause != "cron":
        facts.append({"retry": "retry", "interrupted": "restart of an interrupted run"}[run.cause])
    if run.lateness >= 1:
        facts.append(f"late by {stretch(run.lateness)}")
    if run.serves > 1:
        facts.append(f"serves {run.serves} occurrences")
    if run.duration:
        facts.append(f"took {stretch(run.duration)}")
    return Text.assemble(
        f"{plain(run.task):{width}}  ", (f"{run.outcome:11}", _STYLES.get(run.outcome, "")), f"  {', '.join(facts)}"
    )


def _show_summary(tallies: Sequence[Tally]) -> None:
    counted = ("starts", "failures", "retries", "interrupted", "missed", "skipped", "repeated")
    rows = [
        [
            Text(plain(each.task)),
            Text(str(each.starts)),
            *(Text(str(number) if number else "-") for number in _counts(each)),
            Text(f"{each.latest:%Y-%m-%d %H:%M}" if each.latest is not None else "-"),
            Text(stretch(each.longest_lateness) if each.longest_lateness >= 1 else "-"),
        ]
        for each in tallies
    ]
    headings = ("task", *counted, "latest start", "longest lateness")
    show(table(headings, rows, right={*counted, "longest lateness"}, spare=_SPARE, header_style="bold"))
    say(
        "missed: served later, all at once; skipped: minutes that do not exist; repeated: due the first time only",
        "dim",
    )
    owed = [f"{plain(each.task)} ({each.still_owed})" for each in tallies if each.still_owed]
    if owed:
        say(f"still owed at the end: {', '.join(owed)}", style="yellow")


def _counts(tally: Tally) -> tuple[int, ...]:
    return tally.failures, tally.retries, tally.interrupted, tally.missed, tally.skipped, tally.repeated


# --- JSON ------------------------------------------------------------------------------------------------------------


def _document(outcome: Outcome) -> dict[str, Any]:
    scenario = outcome.scenario

    def local(when: datetime | None) -> str | None:
        return None if when is None else when.astimezone(scenario.zone).isoformat()

    return {
        "zone": zone_name(scenario.zone),
        "from": local(scenario.begin),
        "to": local(scenario.end),
        "seed": scenario.seed,
        "down": [{"from": local(begin), "to": local(end)} for begin, end in scenario.down],
        "crashes": [local(crash) for crash in scenario.crashes],
        "notes": outcome.notes,
        "tasks": [
            {
                "task": each.task,
                "expression": each.cron,
                "starts": each.starts,
                "failures": each.failures,
                "retries": each.retries,
                "interrupted": each.interrupted,
                "restarts": each.restarts,
                "missed": each.missed,
                "skipped": each.skipped,
                "repeated": each.repeated,
                "latest": local(each.latest),
                "longestLatenessMs": round(each.longest_lateness * 1000),
                "stillOwed": each.still_owed,
            }
            for each in outcome.tallies
        ],
        "starts": [
            {
                "task": run.task,
                "at": local(run.at),
                "cause": run.cause,
                "outcome": run.outcome,
                "owedSince": local(run.owed_since),
                "latenessMs": round(run.lateness * 1000),
                "serves": run.serves,
                "durationMs": None if run.duration is None else round(run.duration * 1000),
            }
            for run in outcome.runs
        ],
    }
