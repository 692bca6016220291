"""`python -m benchmarks`: measure, show progress, write the results.

Exit code 0 says that everything was measured, whatever the figures are; 2 that a measurement broke, or that the results
could not be written; 130 that it was interrupted.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import machine, plots, report
from benchmarks.child import SCRATCH
from benchmarks.children import Outcomes, interpreter_for, run_all
from benchmarks.figures import Figures
from benchmarks.plan import FULL, OTHER_PYTHONS, QUICK, TINY, Measurement, Size, groups, measurements
from benchmarks.targets import FEWEST_ROUNDS, is_judged, verdicts


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
        console.print("interrupted; nothing was written")
        return 130


def _run(options: argparse.Namespace, console: Console) -> int:
    if options.publish:
        for page in report.publish(options.results):
            console.print(f"{page} quotes the last run")
        return 0
    size: Size = TINY if options.tiny else QUICK if options.quick else FULL
    if options.rounds:
        size = replace(size, budget_s=float("inf"))  # rounds that were asked for are all measured
    planned = [each for each in measurements(size) if not options.only or each.group in options.only]
    options.results.mkdir(parents=True, exist_ok=True)  # before an hour of work, not after it
    SCRATCH.mkdir(exist_ok=True)
    others = {version: found for version in OTHER_PYTHONS if (found := interpreter_for(version, ""))}
    facts = machine.facts(SCRATCH, {version: machine.version_of(found) for version, found in others.items()})
    outcomes = _measure(planned, size, options.rounds or size.rounds, console)
    figures = Figures(outcomes)
    about = {
        "date": date.today().isoformat(),
        "command": _command(options),
        "size": size.name,
        "rounds": outcomes.rounds,
        "judged": is_judged(size, outcomes.rounds),
        "seconds": outcomes.seconds,
        "machine": facts,
    }
    rows = verdicts(figures, size, outcomes.rounds)
    drawn = plots.draw(figures, size, options.results)
    report.write(options.results, about, rows, figures, outcomes, drawn)
    console.print(Markdown(f"{report.header(about)}\n{report.verdict_table(rows)}"))
    console.print(f"Written to {options.results}")
    for text in outcomes.broken:
        console.print(f"broken: {text}", style="red", markup=False)
    return 2 if outcomes.broken or not outcomes.samples else 0


def _measure(planned: list[Measurement], size: Size, rounds: int, console: Console) -> Outcomes:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=rounds * len(planned))

        def tell(number: int, position: int, measurement: Measurement) -> None:
            description = f"round {number + 1} of {rounds}: {measurement.key}"
            progress.update(bar, completed=number * len(planned) + position, description=description)
            if not console.is_terminal:
                console.print(description, markup=False, highlight=False)

        outcomes = run_all(planned, size, rounds, tell)
        progress.update(bar, description="done", completed=rounds * len(planned))
    return outcomes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure duly beside its peers; write benchmarks/results."
    )
    parser.add_argument("--quick", action="store_true", help="fewer tasks, two minutes; nothing is judged")
    parser.add_argument("--tiny", action="store_true", help="hardly any tasks: whether everything runs at all")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=groups(FULL),
                        help=f"only these: {', '.join(groups(FULL))}")  # fmt: skip
    parser.add_argument(
        "--rounds",
        type=_rounds,
        help=f"how many, however long they take; with fewer than {FEWEST_ROUNDS} nothing is judged",
    )
    parser.add_argument("--results", type=Path, default=report.RESULTS, help="the folder to write to")
    parser.add_argument("--publish", action="store_true",
                        help="measure nothing; let README and docs/performance.md quote the results")  # fmt: skip
    return parser


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number of rounds is at least 1, got {text!r}")
    return int(text)


def _command(options: argparse.Namespace) -> str:
    """The command that repeats this run."""
    more = [word for word in ("--tiny",) if options.tiny]
    more += ["--only", *options.only] if options.only else []
    more += ["--rounds", str(options.rounds)] if options.rounds else []
    target = "make bench-quick" if options.quick else "make bench"
    return f"{target} ARGS={shlex.quote(shlex.join(more))}" if more else target


if __name__ == "__main__":
    sys.exit(main())
