"""`python -m benchmarks.import_cost`: what `import duly` costs beside `import asyncio`, in processor time.

Both beyond an empty interpreter, as medians of many processes that alternate. Exits with 1 if `import duly` takes more
than 2.4 times the processor time of `import asyncio`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.children import ROOT

RATIO_MAX = 2.4
ROUNDS = 60
PROGRAMS = {"empty": "pass", "asyncio": "import asyncio", "duly": "import duly"}


def cpu_seconds(program: str, src: Path) -> float:
    """The processor time of an interpreter that runs this and ends."""
    environment = {**os.environ, "PYTHONPATH": str(src.resolve())}
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", program], environment)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"{program!r} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def measured(src: Path, rounds: int) -> dict[str, float]:
    """The median of each program."""
    for program in PROGRAMS.values():
        cpu_seconds(program, src)  # writes what is compiled
    used: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds):
        for name, program in PROGRAMS.items():
            used[name].append(cpu_seconds(program, src))
    return {name: median(seconds) for name, seconds in used.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and say whether the bound is met."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.import_cost", description="Measure what `import duly` costs beside `import asyncio`."
    )
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="the folder in which duly is")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"processes of each kind (default {ROUNDS})")
    options = parser.parse_args(arguments)
    seconds = measured(options.src, options.rounds)
    empty, beside, ours = seconds["empty"], seconds["asyncio"] - seconds["empty"], seconds["duly"] - seconds["empty"]
    ratio = ours / beside
    print(
        f"empty interpreter {1000 * empty:.1f} ms; beyond it: import asyncio {1000 * beside:.1f} ms, "
        f"import duly {1000 * ours:.1f} ms; ratio {ratio:.2f}, at most {RATIO_MAX} is allowed"
    )
    return 0 if ratio <= RATIO_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
