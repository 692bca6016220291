"""`python -m tests.mutation`: how many wrong versions of core/, formal/ and the reference evaluator the tests notice.

Survivors that were looked at and found equivalent stand in `survivors.toml`, each with its reason. The score is the
share of killed ones among all others; beside it stands the share among all. Exits with 1 if the score is below 95 %.
"""

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.mutation import survivors
from tests.mutation.covering import ROOT, Coverage
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.running import JUDGES, SECOND_JUDGES, judged, warm_up
from tests.mutation.trials import Verdict
from tests.system.record import record

PACKAGES: Final = ("src/duly/core", "src/duly/formal", "tests/formal/reference")
KILLED_MIN: Final = 0.95
SURVIVING: Final = (Verdict.SURVIVED, Verdict.UNCOVERED)


def main() -> int:
    """Judge all mutants, or a sample, or as many as fit into some minutes; survivors come before the second judges.

    Where time is short, explained survivors do not: the second judges take minutes to collect.
    """
    options = _options()
    sources = _sources(options.modules)
    if options.repair:
        return _repair(sources)
    mutants = _chosen(sources, options)
    print(f"{len(mutants)} mutants; first, which tests run which lines", flush=True)
    warm_up()
    coverage = Coverage(JUDGES, options.coverage)
    until = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
    verdicts = _judged(mutants, sources, coverage, jobs=options.jobs, until=until)
    spared = survivors.explained() if options.minutes else {}
    surviving = [
        mutant
        for mutant, verdict in verdicts.items()
        if verdict in SURVIVING and survivors.identity(mutant) not in spared
    ]
    if surviving and options.second:
        print(f"{len(surviving)} survivors before the second judges", flush=True)
        verdicts |= _judged(surviving, sources, Coverage(SECOND_JUDGES), jobs=options.jobs)
    return _report(verdicts, of=len(mutants), output=options.output)


def _judged(
    mutants: list[Mutant], sources: dict[str, str], coverage: Coverage, *, jobs: int, until: float = math.inf
) -> dict[Mutant, Verdict]:
    verdicts: dict[Mutant, Verdict] = {}
    begun = time.monotonic()
    for mutant, verdict in judged(mutants, sources, coverage, jobs=jobs, until=until):
        verdicts[mutant] = verdict
        if verdict in SURVIVING:
            print(f"{verdict.value}: {mutant}", flush=True)
        if len(verdicts) % 25 == 0:
            print(f"... {len(verdicts)} of {len(mutants)} in {time.monotonic() - begun:.0f} s", flush=True)
    return verdicts


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "modules", nargs="*", help="such as src/duly/core/cron.py (default: core/, formal/ and the reference evaluator)"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="only N of them, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, metavar="M", help="begin no further mutant after M minutes of judging")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="judge N mutants at once")
    parser.add_argument("--no-second", dest="second", action="store_false", help=f"leave out {SECOND_JUDGES}")
    parser.add_argument(
        "--coverage", type=Path, metavar="FOLDER", help="keep there which tests run which lines, or reuse it"
    )
    parser.add_argument("--again", type=Path, metavar="FILE", help="only the survivors of a run whose --output this is")
    parser.add_argument(
        "--repair", action="store_true", help="judge nothing; find the mutants of reasons whose lines were edited"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write every verdict there, as JSON")
    options = parser.parse_args()
    if missing := [name for name in options.modules if not (ROOT / name).is_file()]:
        parser.error(f"{missing[0]} is not a file; name modules from the top folder, such as src/duly/core/cron.py")
    if options.again is not None and not options.again.is_file():
        parser.error(f"--again: {options.again} is not a file; name what an earlier run wrote with --output")
    return options


def _sources(modules: list[str]) -> dict[str, str]:
    """Read once: a file that is edited meanwhile does not confuse the rest of the run."""
    files = [Path(name) for name in modules] or [
        file.relative_to(ROOT) for package in PACKAGES for file in sorted((ROOT / package).glob("*.py"))
    ]
    return {str(file): (ROOT / file).read_text() for file in files}


def _chosen(sources: dict[str, str], options: argparse.Namespace) -> list[Mutant]:
    mutants = [mutant for path, source in sources.items() for mutant in mutants_of(path, source)]
    if options.again is not None:
        surviving = {verdict.value for verdict in SURVIVING}
        keys = {row["key"] for row in json.loads(options.again.read_text()) if row["verdict"] in surviving}
        mutants = [mutant for mutant in mutants if mutant.key in keys]
    # In an order of chance: when time runs out, what was judged is a sample of all.
    order = random.Random(options.seed)
    order.shuffle(mutants)
    return mutants[: options.sample] if options.sample else mutants


def _repair(sources: dict[str, str]) -> int:
    """Write the file of reasons anew; exits with 1 if some have no mutant any more."""
    every = [mutant for path, source in sources.items() for mutant in mutants_of(path, source)]
    known = survivors.read(survivors.FILE.read_text(encoding="utf-8"))
    found, lost = survivors.repaired(known, every)
    survivors.FILE.write_text(survivors.written([*found, *lost]), encoding="utf-8")
    moved = len({each.mutant for each in found} - {each.mutant for each in known})
    print(f"{len(known)} reasons: {moved} belong to a line that was edited, {len(lost)} to none any more")
    for each in lost:
        print(f"\nno mutant, remove it or write it anew:\n{each.text()}")
    return 1 if lost else 0


def _report(verdicts: dict[Mutant, Verdict], *, of: int, output: Path | None) -> int:
    counts = Counter(verdicts.values())
    killed = counts[Verdict.KILLED] + counts[Verdict.TIMED_OUT]
    reasons = survivors.explained()
    surviving = [mutant for mutant, verdict in verdicts.items() if verdict in SURVIVING]
    without = [mutant for mutant in surviving if survivors.identity(mutant) not in reasons]
    equivalent = len(surviving) - len(without)
    score = killed / max(1, len(verdicts) - equivalent)
    print(
        f"{len(verdicts)} of {of} mutants judged: {killed} killed, {counts[Verdict.TIMED_OUT]} of them by time; "
        f"{equivalent} equivalent, for a reason; {len(without)} survived.\n"
        f"Killed of all: {100 * killed / max(1, len(verdicts)):.1f} %; of those not equivalent: {100 * score:.1f} %"
    )
    for mutant in without:
        print(f"survived: {mutant}\n{survivors.Survivor(survivors.identity(mutant), '?').text()}")
    if output is not None:
        rows = [{"key": each.key, "mutant": str(each), "verdict": verdict.value} for each, verdict in verdicts.items()]
        output.write_text(json.dumps(rows, indent=1))
    record("mutation", mutants=of, judged=len(verdicts), killed=killed, equivalent=equivalent, survived=len(without))
    return 0 if score >= KILLED_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
