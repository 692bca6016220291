"""`python -m benchmarks`: measure, show progress, write the results.

Exit code 0 says that everything was measured, whatever the figures are; 2 that a measurement broke, or that the results
could not be written; 130 that it was interrupted.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import machine, plots, report
from benchmarks.child import SCRATCH
from benchmarks.children import Outcomes, interpreter_for, run_all
from benchmarks.figures import Figures
from benchmarks.judging import FEWEST_ROUNDS, Verdict
from benchmarks.plan import FULL, OTHER_PYTHONS, QUICK, SIZES, TINY, Measurement, Size, groups, measurements
from benchmarks.source import source
from benchmarks.targets import verdicts


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and report."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    try:
        return _run(options, console)
    except OSError as error:
        console.print(f"cannot go on: {error}", style="red", markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("interrupted; what was measured has been written")
        return 130


def _judge_again(folder: Path) -> None:
    """Write the verdicts on the samples of a run as the targets and reasons are now."""
    about, outcomes = report.read(folder / "results.json")
    size, figures = SIZES[about["size"]], Figures(outcomes)
    sections = _keys_by_section(measurements(size))
    report.write(folder, about, verdicts(figures, size), figures, outcomes, plots.drawn(folder), sections)


def _run(options: argparse.Namespace, console: Console) -> int:
    if options.publish:
        _judge_again(options.results)  # a reason may have been written after the run
        for page in report.publish(options.results):
            console.print(f"{page} quotes the last run")
        return 0
    size = _size(options)
    everything = measurements(size)
    planned = [each for each in everything if not options.only or each.group in options.only]
    options.results.mkdir(parents=True, exist_ok=True)  # before an hour of work, not after it
    SCRATCH.mkdir(exist_ok=True)
    rounds = options.rounds or size.rounds
    planned_keys = {each.key for each in everything}
    about, outcomes = report.merged(
        options.results / "results.json", _about(options, size, rounds), planned_keys, options.only
    )
    sections = _keys_by_section(everything)

    def write(*, complete: bool) -> list[Verdict]:
        figures = Figures(outcomes)
        rows = verdicts(figures, size)
        if not about.get("repeated"):
            about.update(rounds=outcomes.rounds or rounds, seconds=outcomes.seconds, complete=complete)
        drawn = plots.drawn(options.results)
        if complete:
            try:
                drawn = plots.draw(figures, size, options.results)
            except Exception as error:  # an hour of measurements is worth more than its curves
                console.print(f"no curves: {type(error).__name__}: {error}", style="red", markup=False)
        report.write(options.results, about, rows, figures, outcomes, drawn, sections)
        return rows

    try:
        _measure(planned, size, rounds, console, outcomes, lambda: write(complete=False))
    except KeyboardInterrupt:
        write(complete=False)
        raise
    rows = write(complete=True)
    console.print(Markdown(f"{report.header(about)}\n{report.verdict_table(rows, when=True)}"))
    console.print(Markdown(report.section_table(_keys_by_section(planned), outcomes)))
    console.print(f"Written to {options.results}")
    broken = {each.key for each in planned} & outcomes.broken.keys()
    for key in sorted(broken):
        for text in outcomes.broken[key]:
            console.print(f"broken: {key}, {text}", style="red", markup=False)
    return 2 if broken or not any(each.key in outcomes.samples for each in planned) else 0


def _size(options: argparse.Namespace) -> Size:
    size: Size = TINY if options.tiny else QUICK if options.quick else FULL
    if options.rounds:
        size = replace(size, budget_s=float("inf"))  # rounds that were asked for are all measured
    if options.minutes:
        size = replace(size, real_minutes=options.minutes)
    return size


def _about(options: argparse.Namespace, size: Size, rounds: int) -> dict[str, Any]:
    """The head of the tables of a run that begins now."""
    others = {version: found for version in OTHER_PYTHONS if (found := interpreter_for(version, ""))}
    return {
        "date": date.today().isoformat(),
        **source()._asdict(),
        "command": _command(options),
        "size": size.name,
        "rounds": rounds,
        "judged": size.is_full and rounds >= FEWEST_ROUNDS,
        "seconds": 0.0,
        "machine": machine.facts(SCRATCH, {version: machine.version_of(path) for version, path in others.items()}),
        "complete": False,
    }


def _keys_by_section(planned: list[Measurement]) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for measurement in planned:
        keys = sections.setdefault(measurement.group, [])
        if measurement.key not in keys:
            keys.append(measurement.key)
    return sections


def _measure(
    planned: list[Measurement],
    size: Size,
    rounds: int,
    console: Console,
    outcomes: Outcomes,
    save: Callable[[], object],
) -> None:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=rounds * len(planned))

        def tell(number: int, position: int, measurement: Measurement) -> None:
            description = f"round {number + 1} of {rounds}: {measurement.key}"
            progress.update(bar, completed=number * len(planned) + position, description=description)
            if not console.is_terminal:
                console.print(description, markup=False, highlight=False)

        run_all(planned, size, rounds, tell, outcomes, save)
        progress.update(bar, description="done", completed=rounds * len(planned))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure duly beside its peers; write benchmarks/results."
    )
    parser.add_argument("--quick", action="store_true", help="fewer tasks, two minutes; nothing is judged")
    parser.add_argument("--tiny", action="store_true", help="hardly any tasks: whether everything runs at all")
    sections = groups(FULL)
    parser.add_argument("--only", nargs="+", metavar="SECTION", choices=sections,
                        help=f"measure only these, and keep what others have: {', '.join(sections)}")  # fmt: skip
    parser.add_argument(
        "--rounds",
        type=_at_least_one,
        help=f"how many, however long they take; rows with fewer than {FEWEST_ROUNDS} are not judged",
    )
    parser.add_argument(
        "--minutes", type=_at_least_one, help=f"how many real minutes are watched (default {FULL.real_minutes})"
    )
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="the folder to write to")
    parser.add_argument("--publish", action="store_true",
                        help="measure nothing; let README and docs/performance.md quote the results")  # fmt: skip
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def _command(options: argparse.Namespace) -> str:
    """The command that repeats this run."""
    more = [word for word in ("--tiny",) if options.tiny]
    more += ["--only", *options.only] if options.only else []
    more += ["--rounds", str(options.rounds)] if options.rounds else []
    more += ["--minutes", str(options.minutes)] if options.minutes else []
    target = "make bench-quick" if options.quick else "make bench"
    return f"{target} ARGS={shlex.quote(shlex.join(more))}" if more else target


if __name__ == "__main__":
    sys.exit(main())
