"""`duly simulate`: the real scheduler through days or years of simulated time, with stand-in callbacks."""

import fnmatch
import gc
import itertools
import logging
import os
import shlex
from collections.abc import Callable, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from duly.cli import signals
from duly.cli.completion import complete_target, complete_zone
from duly.cli.html_file import check_html, html_option, say_written, write_html
from duly.cli.output import Exit, fail, json_option, print_json, reason_of, say, show
from duly.cli.output_file import check_apart, check_output_file, replacing
from duly.cli.progress import progress
from duly.cli.tables import table
from duly.cli.target import TARGET_HELP, files_named, load_now
from duly.cli.time_text import existing, host_zone, now, zone_named
from duly.core.moments import Instant, as_datetime, instant_of
from duly.insight.json_form import json_form
from duly.insight.moment_text import parse_duration, parse_moment
from duly.insight.words import counted, stretch
from duly.simulation.plot import FORMATS, draw
from duly.simulation.result import SimulatedStart, Simulation, TaskSummary
from duly.simulation.scenario import Downtime, Scenario
from duly.simulation.simulate import run_scenario
from duly.text import meant, plain

_SHOWN_STARTS: Final = 40
_SPARE: Final = ("latest start", "repeated", "skipped", "interrupted", "retries", "longest lateness", "missed")
_STYLES: Final = {"failure": "red", "interrupted": "magenta", "running": "dim"}


@click.command(epilog=f"TARGET is {TARGET_HELP}. TASK may be a pattern such as 'mail-*' or '*'.")
@click.argument("target", shell_complete=complete_target)
@click.option(
    "--from", "begin", metavar="TIME", required=True, help="Simulate from this time on, such as 2024-03-30T12:00."
)
@click.option(
    "--to", "end", metavar="TIME", required=True, help="Simulate up to this time; its minute is not included."
)
@click.option(
    "--tz",
    metavar="ZONE",
    shell_complete=complete_zone,
    help="Simulate in this zone, such as Europe/Berlin; the default is the host's.",
)
@click.option(
    "--down", metavar="FROM..TO", multiple=True, help="Stop the scheduler gracefully, and start it again; repeatable."
)
@click.option(
    "--crash-at",
    metavar="TIME",
    multiple=True,
    help="Kill the process (kill -9), and start another at once; repeatable.",
)
@click.option(
    "--fail", "failing", metavar="TASK=RATE", multiple=True, help="Let runs fail at this rate: 0 to 1, or 30%."
)
@click.option(
    "--duration", metavar="TASK=SECONDS", multiple=True, help="Let runs take this long: 90, 90s, 5m; the default is 0."
)
@click.option("--seed", type=int, metavar="N", default=0, show_default=True, help="Choose which runs fail.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=_SHOWN_STARTS,
    show_default=True,
    metavar="N",
    help="Show the first N starts; 0 shows all.",
)
@click.option(
    "--plot",
    type=click.Path(readable=False, path_type=Path),
    metavar="FILE",
    help="Draw a picture, FILE.svg or FILE.png.",
)
@html_option
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
    html: Path | None,
    as_json: bool,
) -> int:
    """Simulate TARGET over days or years, with stand-in callbacks.

    The scheduler is the real one, on a simulated clock and a store of its own. The callbacks of TARGET are not called:
    stand-ins take their place, which last as long and fail as often as the options say.

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
        check_plot(plot)
    check_html(html)
    check_apart({"--plot": plot, "--html": html}, files_named(target))
    registrations = load_now(target).registrations
    names = [each.name for each in registrations]
    scenario = Scenario(
        registrations,
        first,
        last,
        zone,
        seed,
        _downtimes(down, zone, first, last),
        [_inside("--crash-at", text, _moment("--crash-at", text, zone), first, last) for text in crash_at],
        _by_task("--fail", failing, names, _rate),
        _by_task("--duration", duration, names, _seconds),
    )
    simulation = _run(scenario)
    if plot is not None:
        _draw(simulation, zone, plot)
    document = json_form(simulation, zone)
    if html is not None:
        from duly.web import whatif  # it needs the extra `web`

        values = {**whatif.shown(document, zone), "target": target}
        write_html(html, "simulate.html", "Simulation", zone, now(), values)
    if as_json:
        print_json("simulate", document)
    else:
        _show(simulation, zone, limit)
        if plot is not None:
            say(f"drawn: {plot}")
        say_written(html)
    return Exit.OK


def _run(scenario: Scenario) -> Simulation:
    logging.getLogger("duly").disabled = True  # failures of stand-ins are results here, not news
    gc.set_threshold(100_000, 50, 100)  # a year makes many objects and few cycles: a quarter of the time otherwise
    with progress("simulating") as report:
        return signals.run(run_scenario(scenario, report))


# --- the picture -----------------------------------------------------------------------------------------------------


def check_plot(file: Path) -> None:
    """Fail before an hour of simulation if the picture could not be drawn, or not be written."""
    if file.suffix.lower() not in FORMATS:
        fail(f"--plot: {file} ends neither in .svg nor in .png", "the ending chooses the format")
    check_output_file(Path(os.path.realpath(file)))
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        fail("--plot needs the package matplotlib", 'pip install "duly[plot]"')


def _draw(simulation: Simulation, zone: tzinfo, file: Path) -> None:
    try:
        with replacing(Path(os.path.realpath(file))) as output:
            draw(simulation, zone, output, file.suffix.lower())
    except OSError as fault:
        fail(f"--plot: {file} cannot be written: {reason_of(fault)}", None, Exit.STORE)


# --- the options -----------------------------------------------------------------------------------------------------


def _moment(option: str, text: str, zone: tzinfo) -> Instant:
    try:
        return instant_of(existing(parse_moment(text, zone, now())))
    except (ValueError, OverflowError) as fault:
        fail(f"{option}: {fault}")


def _inside(option: str, text: str, when: Instant, first: Instant, last: Instant) -> Instant:
    if not first <= when <= last:
        fail(f"{option} {text} is not between --from and --to")
    return when


def _downtimes(texts: Sequence[str], zone: tzinfo, first: Instant, last: Instant) -> list[Downtime]:
    found = []
    for text in texts:
        head, dots, tail = text.partition("..")
        if not dots:
            fail(f"--down: {text!r} is not FROM..TO", "for example --down 2024-04-01T01:00..2024-04-01T06:00")
        begin, end = (_inside("--down", each, _moment("--down", each, zone), first, last) for each in (head, tail))
        if begin >= end:
            fail(f"--down: {head} is not before {tail}")
        found.append(Downtime(begin, end))
    found.sort(key=lambda downtime: downtime.from_)
    for earlier, later in itertools.pairwise(found):
        if later.from_ <= earlier.to:
            fail("--down: two downtimes overlap", "join them into one")
    return found


def _by_task(option: str, texts: Sequence[str], names: Sequence[str], read: Callable[[str], float]) -> dict[str, float]:
    values: dict[str, float] = {}
    for text in texts:
        pattern, equals, value = text.rpartition("=")
        if not equals or not pattern:
            fail(f"{option}: {text!r} is not TASK=VALUE", f"for example {option} backup=0.3")
        chosen = [pattern] if pattern in names else fnmatch.filter(names, pattern)
        if not chosen:
            close = meant(pattern, names)
            hint = f"did you mean {shlex.quote(plain(close))}?" if close else None
            fail(f"{option}: no task is called {plain(pattern)!r}", hint)
        try:
            number = read(value)
        except ValueError as fault:
            fail(f"{option} {plain(text)}: {fault}")
        values.update(dict.fromkeys(chosen, number))
    return values


def _rate(text: str) -> float:
    try:
        rate = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"{text!r} is not a rate; use a number from 0 to 1, or 30%") from None
    if not 0 <= rate <= 1:
        raise ValueError(f"{text} is not a rate; use a number from 0 to 1, or 30%")
    return rate


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = parse_duration(text).total_seconds()
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{text} is not a duration; use seconds, or 90s, 5m, 1h30m")
    return seconds


# --- for people ------------------------------------------------------------------------------------------------------


def _show(simulation: Simulation, zone: tzinfo, limit: int) -> None:
    first, last = as_datetime(simulation.from_, zone), as_datetime(simulation.to, zone)
    say(
        f"{counted(len(simulation.tasks), 'task')}, {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}, "
        f"{simulation.zone}: {counted(len(simulation.starts), 'start')}",
        style="bold",
    )
    for note in simulation.notes:
        say(f"note: {note}", style="yellow")
    if simulation.starts:
        say()
        _show_timeline(simulation, zone, limit)
    say()
    _show_summary(simulation.tasks, zone)


def _show_timeline(simulation: Simulation, zone: tzinfo, limit: int) -> None:
    shown = simulation.starts if limit == 0 else simulation.starts[:limit]
    width = max(len(plain(start.task)) for start in shown)
    marks: list[tuple[Instant, Text]] = []
    for downtime in simulation.down:
        marks.append((downtime.from_, Text("stopped", style="yellow")))
        marks.append((downtime.to, Text("started again", style="yellow")))
    marks += [(crash, Text("crash, started again", style="magenta")) for crash in simulation.crashes]
    left_out = len(simulation.starts) - len(shown)
    lines = [(start.at, 1, _start_line(start, width)) for start in shown]
    lines += [(when, 0, text) for when, text in marks if not left_out or when <= shown[-1].at]
    for when, _, text in sorted(lines, key=lambda line: line[:2]):
        text.rstrip()
        say(Text.assemble((f"{as_datetime(when, zone):%a %Y-%m-%d %H:%M:%S}  ", "dim"), text))
    if left_out:
        say(f"… and {left_out} more; --limit 0 shows all", style="dim")


def _start_line(start: SimulatedStart, width: int) -> Text:
    facts = []
    if start.cause != "cron":
        facts.append({"retry": "retry", "interrupted": "restart of an interrupted run"}[start.cause])
    if start.lateness_ms >= 1000:
        facts.append(f"late by {stretch(start.lateness_ms / 1000)}")
    if start.serves > 1:
        facts.append(f"serves {start.serves} occurrences")
    if start.duration_ms:
        facts.append(f"took {stretch(start.duration_ms / 1000)}")
    outcome = (f"{start.outcome:11}", _STYLES.get(start.outcome, ""))
    return Text.assemble(f"{plain(start.task):{width}}  ", outcome, f"  {', '.join(facts)}")


def _show_summary(tasks: Sequence[TaskSummary], zone: tzinfo) -> None:
    rows = [
        [
            Text(plain(each.task)),
            Text(str(each.starts)),
            *(Text(str(number) if number else "-") for number in _counts(each)),
            Text("-" if each.latest is None else f"{as_datetime(each.latest, zone):%Y-%m-%d %H:%M}"),
            Text(stretch(each.longest_lateness_ms / 1000) if each.longest_lateness_ms >= 1000 else "-"),
        ]
        for each in tasks
    ]
    numbers = ("starts", "failures", "retries", "interrupted", "missed", "skipped", "repeated")
    headings = ("task", *numbers, "latest start", "longest lateness")
    show(table(headings, rows, right={*numbers, "longest lateness"}, spare=_SPARE, header_style="bold"))
    say(
        "missed: served later, all at once; skipped: minutes that do not exist; repeated: due the first time only",
        "dim",
    )
    owed = [f"{plain(each.task)} ({each.still_owed})" for each in tasks if each.still_owed]
    if owed:
        say(f"still owed at the end: {', '.join(owed)}", style="yellow")


def _counts(task: TaskSummary) -> tuple[int, ...]:
    return task.failures, task.retries, task.interrupted, task.missed, task.skipped, task.repeated
