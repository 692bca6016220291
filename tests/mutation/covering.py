"""Which tests judge a mutant: those that run its line, how long they take, and how long they may take."""

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import coverage

from tests.mutation.mutants import Mutant

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "build/mutation"
FAST: Final = "not (slow or real_time or system or chaos or soak)"  # as `make test` has it
CPU_SECONDS_MIN: Final = 4.0
PATIENCE: Final = 5
"""A test is taken to loop for ever when it computes this many times longer than it took, and CPU_SECONDS_MIN more."""

ABOUT: Final[dict[str, tuple[str, ...]]] = {
    "core/due": ("core/test_agenda_order", "core/test_agenda"),
    "core/groups": ("core/test_agenda_members", "core/test_agenda"),
    "formal/__init__": ("formal/test_checking", "formal/test_versions"),
    "formal/judgement": ("formal/test_checking", "formal/test_versions"),
    "formal/machine": ("formal/test_properties", "formal/test_monitor", "formal/test_alarms"),
    "formal/promptness": ("formal/test_bounds", "formal/test_deadlines"),
    "formal/registers": ("formal/test_snapshots", "formal/test_monitor", "formal/test_declarations"),
    "formal/verdicts": ("formal/test_alarms", "formal/test_checking"),
    "formal/witnesses": ("formal/test_witness",),
    "tests/formal/reference/formulas": ("formal/test_formulas", "formal/test_monitor_against_formulas"),
    "tests/formal/reference/unfold": ("formal/test_unfold",),
    "engine/announce": ("engine/test_events", "engine/test_logging"),
    "engine/calls": ("engine/test_calls", "spec/test_section_1_surface", "spec/test_section_4_lifecycle"),
    "engine/declare": ("spec/test_section_5_persistence", "spec/test_section_4_lifecycle"),
    "engine/engine": ("spec/test_section_4_lifecycle", "spec/test_section_3_starts"),
    "engine/gate": ("spec/test_section_4_lifecycle", "spec/test_section_3_starts"),
    "engine/journal": ("engine/test_journal", "engine/test_bursts", "spec/test_section_3_starts"),
    "engine/lifecycle": ("spec/test_section_4_lifecycle", "spec/test_section_3_starts"),
    "engine/loop": ("spec/test_section_3_starts", "spec/test_section_2_time", "engine/test_bursts"),
    "engine/outbox": ("engine/test_logging", "engine/test_events"),
    "engine/runner": ("engine/test_runner", "engine/test_threads", "spec/test_section_3_starts"),
    "engine/settle": ("spec/test_section_3_starts", "spec/test_section_5_persistence", "engine/test_bursts"),
    "engine/setup": ("engine/test_threads", "engine/test_options"),
    "engine/shutdown": ("spec/test_section_4_lifecycle", "spec/test_section_3_starts"),
    "engine/trace": ("engine/test_trace", "stores/test_sqlite_trace"),
    "engine/traffic": ("engine/test_bursts", "engine/test_journal"),
    "stores/port": ("stores/test_contract", "stores/test_sqlite_reader_queries"),
    "stores/sqlite/faults": ("stores/test_sqlite",),
    "stores/sqlite/lock": ("stores/test_sqlite", "spec/test_section_5_persistence", "stores/test_sqlite_reader"),
    "stores/sqlite/schema": ("stores/test_sqlite", "engine/test_trace"),
    "stores/sqlite/store": ("stores/test_sqlite", "stores/test_contract", "spec/test_section_5_persistence"),
    "stores/sqlite/write": ("stores/test_contract", "stores/test_contract_history"),
}
"""The tests that are about a module, where their names do not tell; below `tests/`."""


class Judges(Protocol):
    """The tests that judge mutants."""

    seconds_max: float
    """How long they may take for one mutant, by the clock."""

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests of a mutant, in the order in which they are run until one fails."""
        ...

    def is_run_at_import(self, mutant: Mutant) -> bool:
        """Whether the statement of a mutant is also run outside of tests, when something is imported."""
        ...

    def cpu_seconds_max(self, test: str) -> float:
        """How long a test may compute."""
        ...


class Coverage:
    """For each line, the tests that run it; quick ones first."""

    seconds_max = 600.0

    def __init__(self, judges: Sequence[str], seconds_max: float, folder: Path | None = None) -> None:
        folder = folder or KEPT / "coverage" / digest_of_files([*python_files("src"), *python_files(*judges)])
        data, durations = folder / "coverage", folder / "durations"
        if not data.exists():
            self._collect(judges, data, durations)
        self._seconds_max = seconds_max
        self._seconds = _durations(durations.read_text())
        self._data = coverage.CoverageData(str(data))
        self._data.read()
        self._files: dict[str, bool] = {}
        self._of_file: dict[str, dict[int, list[str]]] = {}

    def _collect(self, judges: Sequence[str], data: Path, durations: Path) -> None:
        data.parent.mkdir(parents=True, exist_ok=True)
        collected = data.with_name("collecting")
        run = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:sugar", "-p", "no:cacheprovider", *judges),
                *("-m", FAST, "--durations=0", "--cov-context=test", "--cov-report="),
                *("--cov=duly", "--cov=tests/formal/reference"),
            ],
            cwd=ROOT,
            env={**os.environ, "COVERAGE_FILE": str(collected)},
            stdout=durations.open("w"),
            stderr=subprocess.STDOUT,
            check=False,
        )
        if run.returncode:
            raise SystemExit("The tests fail as they are:\n" + durations.read_text()[-3000:])
        collected.rename(data)  # one that was interrupted is collected again

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that run the statement of a mutant, first those about its module, quick ones first.

        What is only run when the module is imported has all tests that run something of the module.
        """
        lines = self._lines(mutant)
        contexts = {context for line in mutant.lines for context in lines.get(line, ())}
        tests = {context.partition("|")[0] for context in contexts if context}
        if "" in contexts and not tests:  # at import: any test that runs something of this module may notice
            everywhere = {context.partition("|")[0] for found in lines.values() for context in found if context}
            tests = everywhere
        tests = {test for test in tests if self._exists(test.partition("::")[0])}
        chosen: list[str] = []
        left = self._seconds_max
        for test in sorted(tests, key=lambda test: (distance(test, mutant), self._seconds.get(test, 0.0), test)):
            left -= self._seconds.get(test, 0.0)
            if left < 0 and chosen:
                break
            chosen.append(test)
        return chosen

    def is_run_at_import(self, mutant: Mutant) -> bool:
        """Whether the statement of a mutant is also run outside of tests, when something is imported."""
        lines = self._lines(mutant)
        return any("" in lines.get(line, ()) for line in mutant.lines)

    def _lines(self, mutant: Mutant) -> dict[int, list[str]]:
        if mutant.path not in self._of_file:
            self._of_file[mutant.path] = self._data.contexts_by_lineno(str(ROOT / mutant.path))
        return self._of_file[mutant.path]

    def _exists(self, file: str) -> bool:
        """Coverage that was kept may know files that have gone: pytest would refuse to run, and judge nothing."""
        if file not in self._files:
            self._files[file] = (ROOT / file).exists()
        return self._files[file]

    def cpu_seconds_max(self, test: str) -> float:
        """How long a test may compute."""
        return CPU_SECONDS_MIN + PATIENCE * self._seconds.get(test, 0.0)


def distance(test: str, mutant: Mutant) -> int:
    """0 for a test, or a file of tests, that is named after the module of a mutant, 1 for one of the table, else 2."""
    module = mutant.path.removeprefix("src/duly/").removesuffix(".py")
    file = test.partition("::")[0].removeprefix("tests/").removesuffix(".py")
    if f"_{Path(module).name}_" in f"{Path(file).name}_":
        return 0
    return 1 if file in ABOUT.get(module, ()) else 2


def _durations(report: str) -> dict[str, float]:
    """What pytest says each test took; those under a few milliseconds are not listed."""
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
