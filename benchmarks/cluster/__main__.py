"""`python -m benchmarks.cluster`: measure hosts that share a PostgreSQL, show progress, write the results.

Exit code 0 says that everything was measured, whatever the figures are; 2 that a measurement broke, or that the results
could not be written; 130 that it was interrupted.
"""

import argparse
import importlib.metadata
import importlib.util
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from benchmarks import machine
from benchmarks.child import SCRATCH
from benchmarks.children import Outcomes, Ran, Sample, run_all
from benchmarks.cluster import due, report
from benchmarks.cluster.faults import Faults
from benchmarks.cluster.idle import Idle
from benchmarks.cluster.plan import FULL, QUICK, SCHEDULERS, Size, key_due, measurements, ours, sections
from benchmarks.cluster.server import Server
from benchmarks.judging import FEWEST_ROUNDS
from benchmarks.plan import Measurement
from benchmarks.report import RESULTS, header, merged, verdict_table
from benchmarks.source import source

FOLDER = SCRATCH / "bench-cluster"
"""The hosts' own logs, and the steps of their callbacks, until the next run."""

QUICK_RESULTS = SCRATCH / "bench-cluster-quick"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and report."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no host and no server is left behind
    try:
        if options.publish:
            changed = report.publish(options.results or RESULTS)
            console.print(f"{report.PAGE} {'quotes the last run' if changed else 'quotes it already'}")
            return 0
        return _run(options, console)
    except OSError as error:
        console.print(f"cannot go on: {error}", style="red", markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("interrupted; what was measured has been written")
        return 130


def _run(options: argparse.Namespace, console: Console) -> int:
    size = QUICK if options.quick else FULL
    folder = options.results or (QUICK_RESULTS if options.quick else RESULTS)
    folder.mkdir(parents=True, exist_ok=True)  # before half an hour of work, not after it
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    server = Server()
    try:
        about = _about(options, size, server)
        keys = {each.key for each in measurements(size)}
        about, outcomes = merged(report.path_in(folder), about, keys, options.only)
        bench = Bench(size, server, outcomes, options.only or sections(size), console, options.rounds)

        def save(*, complete: bool = False) -> None:
            if not about.get("repeated"):
                about.update(seconds=time.monotonic() - bench.begun, complete=complete)
            report.write(folder, about, outcomes)

        try:
            bench.run(save)
        except KeyboardInterrupt:
            save()
            raise
        save(complete=True)
    finally:
        server.discard()
    rows = report.write(folder, about, outcomes)
    console.print(Markdown(f"{header(about)}\n{verdict_table(rows, when=True)}"))
    console.print(f"Written to {report.path_in(folder).with_suffix('.md')}")
    broken = bench.keys & outcomes.broken.keys()
    for key in sorted(broken):
        for text in outcomes.broken[key]:
            console.print(f"broken: {key}, {text}", style="red", markup=False)
    return 2 if broken else 0


class Bench:
    """One run of some sections."""

    def __init__(
        self,
        size: Size,
        server: Server,
        outcomes: Outcomes,
        chosen: Sequence[str],
        console: Console,
        rounds: int | None,
    ) -> None:
        self.begun = time.monotonic()
        self.keys = {each.key for each in measurements(size) if each.group in chosen}
        """The thing that it measures."""
        self._size = size
        self._server = server
        self._outcomes = outcomes
        self._chosen = chosen
        self._console = console
        self._rounds = rounds or size.rounds
        self._names = [name for name, (_, package) in SCHEDULERS.items() if importlib.util.find_spec(package)]

    def run(self, save: Callable[[], None]) -> None:
        """Measure, section by section; what waits for minutes side by side, what is fast one at a time."""
        for key in self.keys:
            self._outcomes.forget(key)
            for name, (_, package) in SCHEDULERS.items():
                if name not in self._names and key.endswith(f" {name}"):
                    self._outcomes.absent[key] = f"{package} is not installed"
        self._wait_for_minutes()
        save()
        if "due" in self._chosen:
            for tasks in self._size.due:
                for name in self._names:
                    self._due(tasks, name)
                    save()
        planned = [each for each in ours(self._size, self._server.url()) if each.group in self._chosen]
        run_all(planned, self._size, self._rounds, self._tell_child, self._outcomes, save)

    def _wait_for_minutes(self) -> None:
        """Faults and idle hosts at the same time; PostgreSQL restarts when the idle ones are done."""
        faults = Faults(self._server, self._size, FOLDER / "faults", self._tell)
        idle = Idle(self._server, self._size, FOLDER / "idle", self._tell)
        began = time.time()
        with ThreadPoolExecutor(1) as thread:
            resting = thread.submit(idle.run, self._names) if "idle" in self._chosen else None
            try:
                if "faults" in self._chosen:
                    faults.run(self._names, lambda: None if resting is None else resting.result())
                if resting is not None:
                    resting.result()
            except BaseException:
                idle.interrupted.set()
                raise
        for section, found, broken in (("faults", faults.samples(), faults.broken), ("idle", idle.found, idle.broken)):
            for key, sample in found.items():
                self._note(key, sample, began, together=len(found) + len(broken))
            for name, why in broken.items():
                key = f"{section} {name}" if name in SCHEDULERS else name
                self._note_broken(key, why, began, together=len(found) + len(broken))

    def _due(self, tasks: int, name: str) -> None:
        began, key = time.time(), key_due(tasks, name)
        if (why := self._hopeless(tasks, name)) is not None:
            self._outcomes.absent[key] = why
            return
        try:
            self._note(key, due.run(name, tasks, self._server, self._size, FOLDER / "due", self._tell), began)
        except Exception as error:  # the others go on
            self._note_broken(key, f"{type(error).__name__}: {error}", began)

    def _hopeless(self, tasks: int, name: str) -> str | None:
        """Why more tasks are not tried: fewer have taken so long that minutes would be spent on setting them up."""
        for fewer in self._size.due:
            for sample in self._outcomes.samples.get(key_due(fewer, name), []) if fewer < tasks else []:
                took = sample.get("last_start_s", self._size.due_patience_s)
                if took * tasks / fewer > 2 * self._size.due_patience_s:
                    return f"not tried: {fewer:,} took {took:.0f} s"
        return None

    def _note(self, key: str, sample: Sample, began: float, together: int = 1) -> None:
        self._outcomes.samples[key] = [sample]
        self._outcomes.ran[key] = _ran(began, together)

    def _note_broken(self, key: str, why: str, began: float, together: int = 1) -> None:
        self._outcomes.broken[key] = [why]
        self._outcomes.ran[key] = _ran(began, together)

    def _tell(self, what: str) -> None:
        self._console.print(f"{datetime.now():%H:%M:%S} {what}", markup=False, highlight=False)

    def _tell_child(self, number: int, position: int, measurement: Measurement) -> None:
        self._tell(f"round {number + 1} of {self._rounds}: {measurement.key}")


def _ran(began: float, together: int) -> Ran:
    """When a measurement began, and its share of the time that those took which ran side by side."""
    at = datetime.fromtimestamp(began).strftime("%Y-%m-%d %H:%M")
    return Ran(at, (time.time() - began) / together, *source())


def _about(options: argparse.Namespace, size: Size, server: Server) -> dict[str, Any]:
    """The head of the tables of a run that begins now."""
    rounds = options.rounds or size.rounds
    found = []
    for name, (_, package) in SCHEDULERS.items():
        if name != "duly" and importlib.util.find_spec(package):
            found.append(f"{name.removesuffix(' 4')} {importlib.metadata.version(package)}")
    facts = machine.facts(server.folder, {})
    return {
        "date": date.today().isoformat(),
        **source()._asdict(),
        "command": _command(options),
        "size": size.name,
        "rounds": rounds,
        "judged": size.is_full and rounds >= FEWEST_ROUNDS,
        "seconds": 0.0,
        "machine": {**facts, "PostgreSQL": server.version(), "beside": ", ".join(found)},
        "complete": False,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description="Measure hosts that share a PostgreSQL, beside others; write benchmarks/results/cluster.md.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few tasks and short faults, ten minutes; nothing is judged"
    )
    names = sections(FULL)
    parser.add_argument("--only", nargs="+", metavar="SECTION", choices=names,
                        help=f"measure only these, and keep what others have: {', '.join(names)}")  # fmt: skip
    parser.add_argument(
        "--rounds",
        type=_at_least_one,
        help=f"how many, of what is measured of duly alone; rows with fewer than {FEWEST_ROUNDS} are not judged",
    )
    parser.add_argument("--results", type=Path, help="the folder to write to")
    parser.add_argument("--publish", action="store_true",
                        help="measure nothing; let docs/performance.md quote the results")  # fmt: skip
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def _command(options: argparse.Namespace) -> str:
    """The command that repeats this run."""
    more = ["--quick"] if options.quick else []
    more += ["--only", *options.only] if options.only else []
    more += ["--rounds", str(options.rounds)] if options.rounds else []
    return f"make bench-cluster ARGS={shlex.quote(shlex.join(more))}" if more else "make bench-cluster"


if __name__ == "__main__":
    sys.exit(main())
