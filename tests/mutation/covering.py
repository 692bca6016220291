"""Which tests judge a mutant: those that run its line, how long they take, and how long they may take."""

import contextlib
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import coverage
import pytest

from tests.mutation.mutants import Mutant

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "build/mutation"
MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where tests keep their files while they judge: in memory, if possible. No test here cuts the power."""

FAST: Final = "not (slow or real_time or system or chaos or soak)"  # as `make test` has it
_HOSTS: Final = ("cluster/test_hosts", "cluster/test_editions", "cluster/test_everywhere", "cluster/test_events")
ABOUT: Final[dict[str, tuple[str, ...]]] = {
    "core/request": ("cluster/test_editions", "cluster/test_hosts"),
    "core/share": ("core/test_share", "cluster/test_hosts"),
    "core/due": ("core/test_due", "core/test_agenda_order", "core/test_agenda"),
    "core/groups": ("core/test_agenda_members", "core/test_agenda"),
    "formal/__init__": ("formal/test_checking", "formal/test_versions"),
    "formal/judgement": ("formal/test_checking", "formal/test_versions"),
    "formal/machine": (
        "formal/test_properties",
        "formal/test_monitor",
        "formal/test_alarms",
        "formal/test_shared_monitor",
    ),
    "formal/promptness": ("formal/test_bounds", "formal/test_deadlines", "formal/test_shared_monitor"),
    "formal/reader": ("formal/test_shared_trace",),
    "formal/registers": (
        "formal/test_snapshots",
        "formal/test_monitor",
        "formal/test_declarations",
        "formal/test_shared_monitor",
    ),
    "formal/verdicts": ("formal/test_alarms", "formal/test_checking"),
    "formal/witnesses": ("formal/test_witness",),
    "tests/formal/reference/formulas": ("formal/test_formulas", "formal/test_monitor_against_formulas"),
    "tests/formal/reference/shared": ("formal/test_shared_against_formulas", "formal/test_shared_monitor"),
    "tests/formal/reference/unfold": ("formal/test_unfold",),
    "engine/announce": ("engine/test_events", "engine/test_logging"),
    "engine/calls": ("engine/test_calls", "spec/test_section_1_surface", "spec/test_section_4_lifecycle"),
    "engine/cluster": _HOSTS,
    "engine/colleagues": _HOSTS,
    "engine/declare": ("spec/test_section_5_persistence", "spec/test_section_4_lifecycle"),
    "engine/engine": ("engine/test_watchdog", "engine/test_lifecycle", "spec/test_section_4_lifecycle"),
    "engine/gate": ("spec/test_section_4_lifecycle", "spec/test_section_3_starts"),
    "engine/host": ("engine/test_watchdog", "engine/test_options"),
    "engine/journal": ("engine/test_journal", "engine/test_bursts", "spec/test_section_3_starts"),
    "engine/lifecycle": ("spec/test_section_4_lifecycle", "engine/test_events", "testing/test_simulated_host"),
    "engine/loop": ("spec/test_section_3_starts", "spec/test_section_2_time", "engine/test_bursts"),
    "engine/membership": _HOSTS,
    "engine/outbox": ("engine/test_logging", "engine/test_events"),
    "engine/runner": ("engine/test_runner", "engine/test_threads", "spec/test_section_3_starts"),
    "engine/settle": ("spec/test_section_3_starts", "spec/test_section_5_persistence", "engine/test_bursts"),
    "engine/setup": ("engine/test_threads", "engine/test_options"),
    "engine/shared_clock": _HOSTS,
    "engine/shared_lifecycle": _HOSTS,
    "engine/shutdown": ("spec/test_section_4_lifecycle", "engine/test_lifecycle", "spec/test_section_3_starts"),
    "engine/trace": ("engine/test_trace", "stores/test_sqlite_trace"),
    "engine/traffic": ("engine/test_bursts", "engine/test_journal"),
    "stores/port": ("stores/test_contract", "stores/test_sqlite_reader_queries"),
    "stores/sqlite/faults": ("stores/test_sqlite",),
    "stores/sqlite/file": ("stores/test_sqlite", "stores/test_sqlite_reader"),
    "stores/sqlite/lock": ("stores/test_sqlite", "regressions/test_prepared_files", "stores/test_sqlite_reader"),
    "stores/sqlite/schema": ("stores/test_sqlite", "engine/test_trace"),
    "stores/sqlite/damage": ("regressions/test_damage_read_over",),
    "stores/sqlite/store": (
        *("stores/test_sqlite", "stores/test_contract", "spec/test_section_5_persistence"),
        *("regressions/test_files_removed_under_the_scheduler", "regressions/test_lost_lock_unanswered"),
        *("regressions/test_power_lost_at_the_first_start", "regressions/test_denied_first_initialize"),
    ),
    "stores/sqlite/write": ("stores/test_contract", "stores/test_contract_history"),
}
"""The tests that are about a module, where their names do not tell; below `tests/`."""


class Judges(Protocol):
    """The tests that judge mutants."""

    seconds_max: float
    """How long they may take for one mutant, by the clock; then it has survived them."""

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests of a mutant, in the order in which they are run until one fails."""
        ...

    def is_run_at_import(self, mutant: Mutant) -> bool:
        """Whether the statement of a mutant is also run outside of tests, when something is imported."""
        ...

    def seconds(self, test: str) -> float:
        """How long a test takes on the source as it is; for one that is not known, the longest that it may take."""
        ...


class Coverage:
    """For each line, the tests that run it.

    It is kept for each file of tests apart: after an edit to a test, only the tests of its file are run for it.
    """

    seconds_max = math.inf

    def __init__(
        self, judges: Sequence[str], seconds_max: float, folder: Path = KEPT / "coverage", *, jobs: int = 1
    ) -> None:
        files = [file for file in python_files(*judges) if Path(file).name.startswith("test_")]
        shared = [*python_files("src"), *(file for file in python_files("tests") if file not in files)]
        shared = [file for file in shared if not Path(file).name.startswith("test_")]
        of_shared = digest_of_files([file for file in shared if not file.startswith("tests/mutation/")])
        kept = {file: folder / of_shared / f"{digest_of_files([file])}.json" for file in files}
        missing = [file for file, place in kept.items() if not place.exists()]
        collected = _collect(missing, kept, jobs if len(missing) > 5 else 0) if missing else {}
        self._seconds_max = seconds_max
        self._seconds: dict[str, float] = {}
        self._contexts: dict[str, dict[int, set[str]]] = {}
        self._forking: set[str] = set()
        for file, place in kept.items():
            found = collected[file] if file in collected else json.loads(place.read_text())
            failed = set(found.get("failed", ()))
            self._seconds |= found["seconds"]
            self._forking |= set(found["forking"])
            for path, lines in found["lines"].items():
                of_file = self._contexts.setdefault(path, {})
                for line, numbers in lines.items():
                    of_file.setdefault(int(line), set()).update({found["tests"][number] for number in numbers} - failed)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that run the statement of a mutant, as many as fit into the seconds.

        What is only run when the module is imported has all tests that run something of the module or are named after
        it; if there are none, those that the table names. A test about the module that forks is always among them: what
        it runs in the other process is not seen.
        """
        lines = self._contexts.get(mutant.path, {})
        contexts = {context for line in mutant.lines for context in lines.get(line, ())}
        tests = contexts - {""}
        if contexts == {""}:
            tests = {context for found in lines.values() for context in found if context}
            tests |= {test for test in self._seconds if distance(test, mutant) == 0}
            tests = tests or {test for test in self._seconds if distance(test, mutant) == 1}
        tests |= {test for test in self._forking if distance(test, mutant) < 2}
        chosen: list[str] = []
        left = self._seconds_max
        for test in self._ordered(tests, mutant):
            left -= self.seconds(test)
            if left < 0 and chosen:
                break
            chosen.append(test)
        return chosen

    def _ordered(self, tests: Iterable[str], mutant: Mutant) -> list[str]:
        """First those of the module's own file; then one case of each test, and then the rest. Quick ones first."""
        seen: set[str] = set()
        ranks: dict[str, tuple[bool, bool, int]] = {}
        for test in sorted(tests, key=self._quickness):
            far, function = distance(test, mutant), test.partition("[")[0]
            ranks[test] = (far > 0, far > 0 and function in seen, far)
            seen.add(function)
        return sorted(ranks, key=lambda test: (*ranks[test], *self._quickness(test)))

    def _quickness(self, test: str) -> tuple[float, str]:
        return self.seconds(test), test

    def is_run_at_import(self, mutant: Mutant) -> bool:
        """Whether the statement of a mutant is also run outside of tests, when something is imported."""
        lines = self._contexts.get(mutant.path, {})
        return any("" in lines.get(line, ()) for line in mutant.lines)

    def seconds(self, test: str) -> float:
        """How long a test took when it was seen to pass."""
        return self._seconds.get(test, 0.0)


def _collect(files: Sequence[str], kept: Mapping[str, Path], jobs: int) -> dict[str, dict[str, Any]]:
    """Run files of tests; for each of them which lines its tests run and how long they take, which is kept as well."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        os.chmod(folder, 0o755)  # some tests are another user for a moment
        settings, data, report, forks = (Path(folder, name) for name in ("settings", "data", "report", "forks"))
        forks.touch()
        # Not those of the project: what runs in another process has no test, and would pass for run at import.
        settings.write_text("[run]\nsource =\n    duly\n    tests/formal/reference\n")
        run = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:sugar", "-p", "no:cacheprovider"),
                *("-p", "no:duly", *files),
                *("-p", "tests.mutation.loading", "-m", FAST, "--durations=0", "--durations-min=0", "-vv"),
                *("--cov", "--cov-context=test", "--cov-report=", f"--cov-config={settings}", "-n", f"{jobs}"),
            ],
            cwd=ROOT,
            env={**os.environ, "COVERAGE_FILE": str(data), "TMPDIR": folder, "DULY_MUTATION_FORKS": str(forks)},
            stdout=report.open("w"),
            stderr=subprocess.STDOUT,
            check=False,
        )
        found = coverage.CoverageData(str(data))
        found.read()
        lines = {str(Path(path).relative_to(ROOT)): found.contexts_by_lineno(path) for path in found.measured_files()}
        text = report.read_text()
        forking = set(forks.read_text().splitlines())
    told = [line.partition(" ") for line in text.splitlines()]
    failed = {rest.partition(" - ")[0] for word, _, rest in told if word in ("FAILED", "ERROR")}
    if run.returncode not in (0, pytest.ExitCode.NO_TESTS_COLLECTED) and not failed:
        raise SystemExit("The tests cannot be run:\n" + text[-3000:])
    found_of = _by_files(files, lines, _durations(text))
    for file, of_file in found_of.items():
        of_file["forking"] = sorted(test for test in forking if test.partition("::")[0] == file)
        if bad := sorted(test for test in failed if test.partition("::")[0] == file):
            print("not asked, because they fail as things are:", *bad, flush=True)
            of_file["failed"] = bad
            continue  # it is run again the next time
        kept[file].parent.mkdir(parents=True, exist_ok=True)
        begun = kept[file].with_suffix(".new")
        begun.write_text(json.dumps(of_file))
        begun.rename(kept[file])  # one that was interrupted is collected again
    return found_of


def _by_files(
    files: Iterable[str], lines: Mapping[str, Mapping[int, Sequence[str]]], seconds: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """The coverage by the tests of each file; "" is the name for what runs at import."""
    numbers: dict[str, dict[str, int]] = {file: {"": 0} for file in files}
    found: dict[str, dict[str, dict[int, list[int]]]] = {file: {} for file in files}
    for path, of_path in lines.items():
        for line, contexts in of_path.items():
            for test in {context.partition("|")[0] for context in contexts}:
                for file in [test.partition("::")[0]] if test else found:
                    if file in found:
                        number = numbers[file].setdefault(test, len(numbers[file]))
                        found[file].setdefault(path, {}).setdefault(line, []).append(number)
    taken: dict[str, dict[str, float]] = {file: {} for file in files}
    for test, each in seconds.items():
        taken.get(test.partition("::")[0], {})[test] = each
    return {
        file: {"tests": list(numbers[file]), "seconds": taken[file], "lines": of_file}
        for file, of_file in found.items()
    }


def distance(test: str, mutant: Mutant) -> int:
    """0 for a test, or a file of tests, that is named after the module of a mutant, 1 for one of the table, else 2."""
    module = mutant.path.removeprefix("src/duly/").removesuffix(".py")
    file = test.partition("::")[0].removeprefix("tests/").removesuffix(".py")
    if f"_{Path(module).name}_" in f"{Path(file).name}_":
        return 0
    return 1 if file in ABOUT.get(module, ()) else 2


def _durations(report: str) -> dict[str, float]:
    """The duration of each test by pytest; the ones under a few milliseconds are not listed."""
    seconds: dict[str, float] = {}
    for line in report.splitlines():
        parts = line.split(None, 2)
        if len(parts) == 3 and parts[0].endswith("s") and parts[1] in ("call", "setup", "teardown"):
            with contextlib.suppress(ValueError):
                seconds[parts[2]] = seconds.get(parts[2], 0.0) + float(parts[0][:-1])
    return seconds


def python_files(*places: str) -> list[str]:
    """The modules in some folders, and files that are named themselves; from the top folder."""
    found: set[Path] = set()
    for place in places:
        path = ROOT / place
        found |= set(path.rglob("*.py")) if path.is_dir() else {path}
    return sorted(str(file.relative_to(ROOT)) for file in found)


def digest_of_files(files: Sequence[str]) -> str:
    """A digest of the names and contents of files."""
    digest = hashlib.sha256()
    for file in sorted(files):
        path = ROOT / file
        content = path.read_bytes() if path.is_file() else b"missing"
        digest.update(f"{file} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16]
