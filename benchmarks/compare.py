"""`python -m benchmarks.compare OLD_SRC NEW_SRC`: is the new code as fast as the old, in bursts on a file?

Bursts of 60,000 and of 300,000 tasks that are due at once; old and new alternate, each burst in a process of its own,
and their processor time is compared, which other programs on the machine change little. Exits with 1 if the
median of the new code is more than 3 % above that of the old one, or more than `--at-most` allows.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.child import scratch_folder
from benchmarks.children import ROOT

RATIO_MAX = 1.03
SIZES = (60_000, 300_000)
ROUNDS = 7
PATIENCE_SECONDS = 600


def cpu_seconds(src: Path, tasks: int) -> float:
    """The processor time of one burst with this version of duly."""
    with scratch_folder() as folder:
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks.burst", str(tasks), str(folder)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(src.resolve()), str(ROOT)])},
            stdout=subprocess.PIPE,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
    return float(told.stdout)


def compared(old: Path, new: Path, tasks: int, rounds: int) -> float:
    """Print the times of each round, and return the ratio of the medians; the range is that of the rounds' ratios."""
    used: dict[Path, list[float]] = {old: [], new: []}
    for number in range(rounds):
        for src in (old, new) if number % 2 == 0 else (new, old):
            used[src].append(cpu_seconds(src, tasks))
        print(f"{tasks:,} due, round {number + 1}: old {used[old][-1]:.3f} s, new {used[new][-1]:.3f} s", flush=True)
    ratio = median(used[new]) / median(used[old])
    ratios = sorted(after / before for before, after in zip(used[old], used[new], strict=True))
    print(
        f"{tasks:,} due, {rounds} rounds: old {median(used[old]):.3f} s, new {median(used[new]):.3f} s, "
        f"ratio {ratio:.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f}, median of the rounds {median(ratios):.3f})",
        flush=True,
    )
    return ratio


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and say whether the new code is slower than it may be."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description="Compare the processor time of bursts of two versions of duly."
    )
    parser.add_argument("old", type=_sources, metavar="OLD_SRC", help="the folder in which the old duly is")
    parser.add_argument("new", type=_sources, metavar="NEW_SRC", help="the folder in which the new duly is")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"bursts of each version (default {ROUNDS})")
    parser.add_argument("--tasks", type=int, nargs="+", default=SIZES, help="how many are due at once")
    parser.add_argument("--at-most", type=float, default=RATIO_MAX, help=f"the ratio (default {RATIO_MAX})")
    options = parser.parse_args(arguments)
    if options.old.samefile(options.new):
        parser.error("OLD_SRC and NEW_SRC are the same folder")
    ratios = [compared(options.old, options.new, tasks, options.rounds) for tasks in options.tasks]
    met = max(ratios) <= options.at_most
    print(f"at most {options.at_most} is allowed: {'met' if met else 'NOT met'}")
    return 0 if met else 1


def _sources(text: str) -> Path:
    if not (Path(text) / "duly" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text} holds no duly; name a folder such as src")
    return Path(text)


if __name__ == "__main__":
    sys.exit(main())
