"""`python -m tests.mutation`: how many wrong versions of core/, formal/, engine/ and stores/ the tests notice.

Verdicts are kept in build/mutation: a run that was ended goes on where it stopped, and judges again what was edited.
The record of each module is in tests/mutation/records, with its survivors and the reasons for which nothing can notice
them. The score is the share of killed ones among all that have no such reason. Exits with 1 if the score is below 95 %
for core/ and formal/, or below 90 % for engine/ and stores/.
"""

import argparse
import hashlib
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutation import records
from tests.mutation.covering import ROOT, Coverage, Judges, python_files
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.records import SURVIVING, RecordedJudges, explained, module_of, record_of
from tests.mutation.running import judged, prepare_servers, warm_up
from tests.mutation.survivors import Survivor, identity, repaired
from tests.mutation.trials import Outcome, Verdict
from tests.mutation.verdicts import FILE, KeptVerdicts
from tests.system.record import record

SAMPLE_KILLED_MIN: Final = 0.70
"""With --recorded only the tests judge that the records name, or those about the module, which is a part of all.

It is an alarm for tests that no longer notice anything; what all tests notice stands in the records."""


class Round(NamedTuple):
    """A set of tests that judges; mutants that survive it go on to the next."""

    judges: tuple[str, ...]
    seconds_max: float
    """As many of the tests that run a line judge it as fit into this: some lines are run by a thousand."""


class Group(NamedTuple):
    """Modules that are judged by the same tests, round after round."""

    packages: tuple[str, ...]
    rounds: tuple["Round", ...]
    killed_min: float
    """The share of those without a reason that must be killed."""

    def holds(self, mutant: Mutant) -> bool:
        """Whether a mutant is of these packages."""
        return mutant.path.startswith(self.packages)


FROM_OUTSIDE: Final = (
    *("tests/engine", "tests/stores", "tests/testing", "tests/regressions", "tests/spec"),
    *("tests/cluster", "tests/insight", "tests/system"),
)
GROUPS: Final = (
    Group(
        ("src/duly/core/", "src/duly/formal/", "tests/formal/reference/"),
        (
            Round(("tests/core", "tests/formal"), 60.0),
            Round(("tests/spec", "tests/testing", "tests/engine"), 60.0),  # the same rules, seen from outside
        ),
        0.95,
    ),
    Group(
        ("src/duly/engine/", "src/duly/stores/"),
        (Round(FROM_OUTSIDE, 12.0), Round(FROM_OUTSIDE, 60.0)),  # what has passed the first is not asked again
        0.90,
    ),
)


def main() -> int:
    """Judge all mutants, or a sample, or as many as fit into some minutes; or write or show the records."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nobody stays on trial when this is ended
    if options.show:
        return _show()
    sources = _sources(options.modules)
    if options.repair:
        return _repair(sources)
    mutants = _ordered([mutant for path, source in sources.items() for mutant in mutants_of(path, source)], options)
    if options.record:
        return _record(mutants)
    until = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
    warm_up()
    if any("/postgres/" in mutant.path for mutant in mutants):
        prepare_servers()
    if options.recorded:
        outcomes = _judged_by_records(mutants, sources, options.jobs, until)
    else:
        outcomes = _judged_by_coverage(mutants, sources, options, until)
    return _report(outcomes, of=len(mutants), killed_min=SAMPLE_KILLED_MIN if options.recorded else None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", help="such as src/duly/core/cron.py (default: all)")
    parser.add_argument("--sample", type=int, metavar="N", help="only N of them, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, metavar="M", help="begin no further mutant after M minutes of judging")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="judge N mutants at once")
    parser.add_argument("--fresh", action="store_true", help="judge again what was judged before")
    parser.add_argument("--rounds", type=int, metavar="N", help="only the first N rounds of judges")
    parser.add_argument(
        "--by", action="append", metavar="FILE", help="judge by the tests of this file alone, such as one just written"
    )
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="judge by the tests that the records name, without finding out first which tests run which lines",
    )
    parser.add_argument("--record", action="store_true", help="judge nothing; write the verdicts kept into the records")
    parser.add_argument("--show", action="store_true", help="judge nothing; show the records in a table")
    parser.add_argument(
        "--repair", action="store_true", help="judge nothing; find the mutants of reasons whose lines were edited"
    )
    options = parser.parse_args()
    if missing := [name for name in (*options.modules, *(options.by or ())) if not (ROOT / name).is_file()]:
        parser.error(f"{missing[0]} is not a file; name files from the top folder, such as src/duly/core/cron.py")
    return options


def _sources(modules: list[str]) -> dict[str, str]:
    """Read once: a file that is edited meanwhile does not confuse the rest of the run."""
    packages = [package for group in GROUPS for package in group.packages]
    files = [str(Path(name)) for name in modules] or python_files(*packages)
    return {file: (ROOT / file).read_text() for file in files}


def _ordered(mutants: list[Mutant], options: argparse.Namespace) -> list[Mutant]:
    """In an order of chance, so that what was judged when time runs out is a sample; an edit hardly changes it."""

    def rank(mutant: Mutant) -> str:
        return hashlib.sha256(f"{options.seed} {mutant.key}".encode()).hexdigest()

    return sorted(mutants, key=rank)[: options.sample]


# --- judging ---------------------------------------------------------------------------------------------------------


def _judged_by_coverage(
    mutants: list[Mutant], sources: dict[str, str], options: argparse.Namespace, until: float
) -> dict[Mutant, Outcome]:
    """Each by the tests that run its line; what verdicts that are kept say is not asked again."""
    kept = KeptVerdicts()
    if options.fresh:
        kept.forget(mutants)
    outcomes: dict[Mutant, Outcome] = {}
    for group in GROUPS:
        left = [mutant for mutant in mutants if group.holds(mutant)]
        rounds = (Round(tuple(options.by), math.inf),) if options.by else group.rounds[: options.rounds]
        for judges, seconds_max in rounds:
            if not left or time.monotonic() > until:
                break
            print(f"{len(left)} mutants before {' '.join(judges)}; first, which tests run which lines", flush=True)
            coverage = Coverage(judges, seconds_max, jobs=options.jobs)
            cases = {mutant: coverage.tests_of(mutant) for mutant in left}
            found = {mutant: kept.of(mutant, tests) for mutant, tests in cases.items()}
            known = {mutant: outcome for mutant, outcome in found.items() if outcome is not None}
            print(f"{len(known)} verdicts are known", flush=True)
            outcomes |= known
            open_cases = {mutant: kept.left(mutant, cases[mutant]) for mutant in left if mutant not in known}
            for mutant, outcome in _told(open_cases, sources, coverage, options.jobs, until):
                kept.keep(mutant, open_cases[mutant], outcome)
                outcomes[mutant] = outcome
            left = [mutant for mutant in left if mutant in outcomes and outcomes[mutant].verdict in SURVIVING]
    return outcomes


def _judged_by_records(
    mutants: list[Mutant], sources: dict[str, str], jobs: int, until: float
) -> dict[Mutant, Outcome]:
    """Each by the judges of its module; argued ones are taken as they are."""
    argued = explained()
    outcomes = {mutant: Outcome(Verdict.SURVIVED) for mutant in mutants if identity(mutant) in argued}
    judges = RecordedJudges()
    cases = {mutant: judges.tests_of(mutant) for mutant in mutants if mutant not in outcomes}
    outcomes |= dict(_told(cases, sources, judges, jobs, until))
    return outcomes


def _told(
    cases: Mapping[Mutant, Sequence[str]], sources: Mapping[str, str], judges: Judges, jobs: int, until: float
) -> Iterable[tuple[Mutant, Outcome]]:
    """Judge mutants, and print who survives and how far it is."""
    begun = time.monotonic()
    for number, (mutant, outcome) in enumerate(judged(cases, sources, judges, jobs=jobs, until=until), 1):
        if outcome.verdict in SURVIVING:
            print(f"{outcome.verdict.value}: {mutant}", flush=True)
        if number % 25 == 0:
            print(f"... {number} of {len(cases)} in {time.monotonic() - begun:.0f} s", flush=True)
        yield mutant, outcome


def _report(outcomes: dict[Mutant, Outcome], *, of: int, killed_min: float | None) -> int:
    """Print what became of the mutants; exits with 1 if too few are killed, in a group or, if that is given, in all."""
    argued = explained()
    total: Counter[str] = Counter()
    enough = True
    for group in GROUPS:
        verdicts = {mutant: outcome.verdict for mutant, outcome in outcomes.items() if group.holds(mutant)}
        if not verdicts:
            continue
        surviving = [mutant for mutant, verdict in verdicts.items() if verdict in SURVIVING]
        without = [mutant for mutant in surviving if identity(mutant) not in argued]
        for mutant in without:
            file = record_of(module_of(mutant.path)).file.relative_to(ROOT)
            print(f"survived: {mutant}\n# {file}\n{Survivor(identity(mutant)).text()}")
        counts = Counter(judged=len(verdicts), killed=len(verdicts) - len(surviving), survived=len(without))
        counts["equivalent"] = len(surviving) - len(without)
        by_time = sum(verdict is Verdict.TIMED_OUT for verdict in verdicts.values())
        score = counts["killed"] / max(1, counts["judged"] - counts["equivalent"])
        print(
            f"{' '.join(group.packages)}: {counts['judged']} mutants judged: {counts['killed']} killed, "
            f"{by_time} of them by time; {counts['equivalent']} equivalent, for a reason; "
            f"{counts['survived']} survived.\n"
            f"Killed of all: {100 * counts['killed'] / counts['judged']:.1f} %; "
            f"of those not equivalent: {100 * score:.1f} %"
            + (f", and {100 * group.killed_min:.0f} % are asked for" if killed_min is None else "")
        )
        total += counts
        enough = enough and score >= group.killed_min
    print(f"{len(outcomes)} of {of} mutants judged")
    if killed_min is not None:
        score = total["killed"] / max(1, total["judged"] - total["equivalent"])
        enough = score >= killed_min
        print(f"Of all those not equivalent {100 * score:.1f} % are killed, and {100 * killed_min:.0f} % are asked for")
    names = ("judged", "killed", "equivalent", "survived")
    record("mutation", mutants=of, **{name: total[name] for name in names})
    return 0 if enough else 1


# --- records ---------------------------------------------------------------------------------------------------------


def _record(mutants: list[Mutant]) -> int:
    """Write what is kept into the records of these modules; a module of which nothing is kept stays as it is."""
    kept = KeptVerdicts()
    by_path: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_path.setdefault(mutant.path, []).append(mutant)
    for path, of_module in sorted(by_path.items()):
        found = {mutant: kept.of(mutant) for mutant in of_module}
        outcomes = {mutant: outcome for mutant, outcome in found.items() if outcome is not None}
        if outcomes:
            records.updated(record_of(module_of(path)), of_module, outcomes).write()
    print(f"written from {FILE.relative_to(ROOT)}")
    return _show()


def _show() -> int:
    """The records as a table."""
    print(f"{'module':34} {'mutants':>7} {'judged':>7} {'killed':>7} {'argued':>7} {'open':>5}  noticed or argued")
    total: Counter[str] = Counter()
    for each in records.every():
        if each.judged is None:
            print(f"{each.module:34} no counts yet; {each.reasons} reasons")
            continue
        still = "" if each.is_current else "  (an earlier source)"
        row = {"mutants": each.judged.mutants, "judged": each.judged.judged, "killed": each.judged.killed}
        row |= {"argued": each.judged.judged - each.judged.killed - each.unargued, "open": each.unargued}
        total.update(row)
        print(_row(each.module, row) + still)
    print(_row("all of these", total))
    return 0


def _row(name: str, row: Mapping[str, int]) -> str:
    share = (row["killed"] + row["argued"]) / max(1, row["judged"])
    numbers = f"{row['mutants']:>7} {row['judged']:>7} {row['killed']:>7} {row['argued']:>7} {row['open']:>5}"
    return f"{name:34} {numbers}  {100 * share:.1f} %"


def _repair(sources: dict[str, str]) -> int:
    """Write the reasons of all records anew; exits with 1 if some have no mutant any more."""
    every = [mutant for path, source in sources.items() for mutant in mutants_of(path, source)]
    known = {each.module: each for each in records.every()}
    argued = [each for one in known.values() for each in one.survivors if each.reason is not None]
    found, lost = repaired(argued, every)
    there = {identity(mutant) for mutant in every}
    for module in {*known, *(each.mutant.module for each in found)}:
        one = known.get(module, records.Record(module))
        survivors = [each for each in (*found, *lost) if each.mutant.module == module]
        survivors += [each for each in one.survivors if each.reason is None and each.mutant in there]
        records.Record(module, one.judged, one.judges, tuple(survivors)).write()
    moved = len({each.mutant for each in found} - {each.mutant for each in argued})
    print(f"{len(argued)} reasons: {moved} belong to a line that was edited, {len(lost)} to none any more")
    for each in lost:
        print(f"\nno mutant, remove it or write it anew:\n# {record_of(each.mutant.module).file}\n{each.text()}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
