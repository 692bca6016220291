"""The verdicts of the tests on mutants.

A mutant is judged by tests that run its line, in a forked process that has the wrong version. Killed means that a test
failed, or that it did not end in time; the source tree is never written to.

Where it can, the wrong version is put into modules that are loaded, with tests that are collected (`court`). Else an
import hook gives it, and all that is needed is imported anew.
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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.mutation import court
from tests.mutation.covering import FAST, KEPT, ROOT, Judges
from tests.mutation.mutants import Mutant
from tests.mutation.trials import (
    QUIETLY,
    Announce,
    Outcome,
    Trial,
    Verdict,
    by_name,
    limit_computing,
    selected,
    tried,
    without_shrinking,
)

TOGETHER: Final = 250
"""Mutants that are taken up together; when time runs out, what was judged is still a sample of all, but for these."""


def judged(
    cases: Mapping[Mutant, Sequence[str]], sources: Mapping[str, str], judges: Judges, *, jobs: int, until: float
) -> Iterator[tuple[Mutant, Outcome]]:
    """Run the tests of each mutant on it until one fails; begin none after `until`."""
    mutants = list(cases)
    for begin in range(0, len(mutants), TOGETHER):
        if time.monotonic() > until:
            return
        some = mutants[begin : begin + TOGETHER]
        yield from ((mutant, Outcome(Verdict.UNCOVERED)) for mutant in some if not cases[mutant])
        left = {mutant: cases[mutant] for mutant in some if cases[mutant]}
        quick = {
            mutant: tests
            for mutant, tests in left.items()
            # What runs while modules are imported has left its traces in them, as right code.
            if not judges.is_run_at_import(mutant) and court.is_of_functions(mutant, sources[mutant.path])
        }
        for mutant, outcome in court.held(quick, sources, judges, jobs=jobs, until=until):
            del left[mutant]
            yield mutant, outcome
        trials = (
            Trial(mutant, tests, partial(_imported, mutant, sources, tests, judges), judges)
            for mutant, tests in left.items()
            if time.monotonic() < until
        )
        yield from tried(trials, jobs=jobs)


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


def prepare_servers() -> None:
    """Make the data of a PostgreSQL server once, so that those on trial only copy it: a tenth of the computing."""
    data = KEPT / "postgres"
    if not data.exists():
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # a server is another user
            program = "import tests.postgres_server as s; s.PostgresServer(s.bundled_binaries()).stop()"
            environment = {**os.environ, "TMPDIR": folder}
            subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True)
            (made,) = Path(folder).glob("duly-pg-*/data")
            KEPT.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", str(made), str(data)], check=True)
    os.environ["DULY_POSTGRES_DATA"] = str(data)


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


class _Selection:
    """A plugin that keeps some tests of those collected, in an order of its own, and gives each of them its time."""

    def __init__(self, tests: Sequence[str], wrong: _WrongVersion, judges: Judges, announce: Announce) -> None:
        self._tests = tests
        self._wrong = wrong
        self._judges = judges
        self._announce = announce

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        """Put the wrong version before the finder of pytest, which rewrites what comes with a plugin: all of duly."""
        sys.meta_path.insert(0, self._wrong)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = selected(by_name(items), self._tests)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        names = (item.nodeid, item.nodeid.partition("::")[0])
        self._announce(next(number for number, test in enumerate(self._tests) if test in names))
        limit_computing(self._judges.seconds(item.nodeid))


def _imported(
    mutant: Mutant, sources: Mapping[str, str], tests: Sequence[str], judges: Judges, announce: Announce
) -> int:
    """In the forked process: import the wrong version, and run the tests, file after file, until one fails."""
    wrong = _WrongVersion(mutant.module, ROOT / mutant.path, mutant.applied_to(sources[mutant.path]))
    code = int(pytest.ExitCode.NO_TESTS_COLLECTED)
    for file in dict.fromkeys(test.partition("::")[0] for test in tests):
        signal.setitimer(signal.ITIMER_PROF, 60)  # to import it, and what it is tested with
        plugin = _Selection(tests, wrong, judges, announce)
        of_file = pytest.main(["-x", *QUIETLY, *without_shrinking(), "-m", FAST, file], plugins=[plugin])
        if of_file not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return int(of_file)
        code = min(code, int(of_file))
    return code
