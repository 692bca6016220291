"""Which tests run a line, and what they say of a mutant.

The tests are run once with coverage, which tells for each line which tests run it. A mutant is then judged by those
alone, in a forked process where an import hook gives the wrong version of one module. Killed means that a test failed,
or that it did not end in time; the source tree is never written to.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Final

import coverage
import pytest

from tests.mutation.mutants import Mutant

ROOT: Final = Path(__file__).parents[2]
JUDGES: Final = ("tests/core", "tests/formal")
SECOND_JUDGES: Final = ("tests/conformance", "tests/testing", "tests/shell")
"""What the first judges let pass goes before these: the same rules, seen from the scheduler's outside."""

QUIETLY: Final = ("-q", "-p", "no:sugar", "-p", "no:cacheprovider", "--no-header")
FAST: Final = "not slow and not soak"
CPU_SECONDS_MIN: Final = 4.0
PATIENCE: Final = 5
"""A test is taken to loop for ever when it computes so many times longer than it took, and these seconds more."""

WAITING_SECONDS_MAX: Final = 600.0
"""For mutants that wait for ever instead."""


class Verdict(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    UNCOVERED = "not run by any test"


class Coverage:
    """For each line, the tests that run it; quick ones first."""

    def __init__(self, judges: Sequence[str], folder: Path | None = None) -> None:
        folder = Path(tempfile.mkdtemp(prefix="duly-mutation-")) if folder is None else folder
        data, durations = folder / "coverage", folder / "durations"
        if not data.exists():
            self._collect(judges, data, durations)
        self._seconds = _durations(durations.read_text())
        self._data = coverage.CoverageData(str(data))
        self._data.read()
        self._of_file: dict[str, dict[int, list[str]]] = {}

    def _collect(self, judges: Sequence[str], data: Path, durations: Path) -> None:
        data.parent.mkdir(parents=True, exist_ok=True)
        run = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:sugar", "-p", "no:cacheprovider", *judges),
                *("-m", FAST, "--cov=duly", "--cov-context=test", "--cov-report=", "--durations=0"),
            ],
            cwd=ROOT,
            env={**os.environ, "COVERAGE_FILE": str(data)},
            stdout=durations.open("w"),
            stderr=subprocess.STDOUT,
            check=False,
        )
        if run.returncode:
            raise SystemExit("The tests fail as they are:\n" + durations.read_text()[-3000:])

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that run the statement of a mutant; what is only run when the module is imported has them all."""
        if mutant.path not in self._of_file:
            self._of_file[mutant.path] = self._data.contexts_by_lineno(str(ROOT / mutant.path))
        lines = self._of_file[mutant.path]
        contexts = {context for line in mutant.lines for context in lines.get(line, ())}
        tests = {context.partition("|")[0] for context in contexts if context}
        if "" in contexts and not tests:  # at import: whoever runs anything of this module may notice
            everywhere = {context.partition("|")[0] for found in lines.values() for context in found if context}
            tests = everywhere
        return sorted(tests, key=lambda test: (self._seconds.get(test, 0.0), test))

    def cpu_seconds_max(self, test: str) -> float:
        """How long a test may compute."""
        return CPU_SECONDS_MIN + PATIENCE * self._seconds.get(test, 0.0)


def _durations(report: str) -> dict[str, float]:
    """What pytest says each test took; those under a few milliseconds are not listed."""
    seconds: dict[str, float] = {}
    for line in report.splitlines():
        parts = line.split(None, 2)
        if len(parts) == 3 and parts[0].endswith("s") and parts[1] in ("call", "setup", "teardown"):
            with contextlib.suppress(ValueError):
                seconds[parts[2]] = seconds.get(parts[2], 0.0) + float(parts[0][:-1])
    return seconds


class _WrongVersion(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module another source than its file has."""

    def __init__(self, module: str, file: Path, source: str) -> None:
        self._module = module
        self._file = file
        self._source = source

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._file, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._file), "exec", dont_inherit=True), module.__dict__)


def warm_up() -> None:
    """Import what every judge needs, and nothing of duly: forked processes then have it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "test_nothing.py")
        file.write_text("import hypothesis.strategies, hypothesis.stateful, zoneinfo, sqlite3\n")
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main(
                ["--collect-only", *QUIETLY, "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), str(file)]
            )
    assert not [name for name in sys.modules if name.partition(".")[0] == "duly"]


class _Selection:
    """A plugin that keeps some tests of those collected, in an order of its own, and gives each of them its time.

    The time is that of the processor, so a busy machine changes no verdict; when it is over, SIGPROF ends the process.
    """

    def __init__(self, tests: Sequence[str], coverage: Coverage) -> None:
        self._rank = {test: rank for rank, test in enumerate(tests)}
        self._coverage = coverage

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._rank), key=lambda item: self._rank[item.nodeid]
        )

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        signal.setitimer(signal.ITIMER_PROF, self._coverage.cpu_seconds_max(item.nodeid))


def judge(mutant: Mutant, source: str, coverage: Coverage) -> Verdict:
    """Run the tests of a mutant's lines on it, the quick ones first, until one fails."""
    selected = coverage.tests_of(mutant)
    if not selected:
        return Verdict.UNCOVERED
    child = os.fork()
    if not child:
        _judge_here(mutant, source, selected, coverage)
    until = time.monotonic() + WAITING_SECONDS_MAX
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGPROF:
                return Verdict.TIMED_OUT
            return Verdict.KILLED if code else Verdict.SURVIVED
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return Verdict.TIMED_OUT


def _judge_here(mutant: Mutant, source: str, tests: list[str], coverage: Coverage) -> None:
    """In the forked process: never returns."""
    code = 99
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        os.chdir(ROOT)
        file = ROOT / mutant.path
        module = mutant.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        sys.meta_path.insert(0, _WrongVersion(module, file, mutant.applied_to(source)))
        signal.setitimer(signal.ITIMER_PROF, 60)  # to import it, and what it is tested with
        files = sorted({test.partition("::")[0] for test in tests})
        code = int(pytest.main(["-x", *QUIETLY, "-m", FAST, *files], plugins=[_Selection(tests, coverage)]))
    except BaseException:
        code = 98
    finally:
        os._exit(code)
