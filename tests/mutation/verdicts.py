"""Verdicts that are kept: a run that was interrupted goes on where it stopped, and what did not change stays judged.

A verdict is kept for the source of the function that the mutant is in, and for the tests that judged it: for a killed
one the source of the test that killed it, for a survivor the source of each test that let it pass. When the test that
killed a mutant is edited, the mutant is judged again, by that test first. A survivor is judged again by tests that
are new or edited, and only by these. An edit elsewhere, which that function or a test merely uses, changes no verdict
here; `--fresh` judges everything again.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutation.covering import KEPT, ROOT
from tests.mutation.mutants import Mutant
from tests.mutation.trials import Outcome, Verdict

FILE: Final = KEPT / "verdicts.jsonl"


class _Kept(NamedTuple):
    outcome: Outcome
    digest: str
    """Of the test that killed it."""

    passed: frozenset[str]
    """The digests of all tests that let it pass."""


class KeptVerdicts:
    """The verdicts of earlier runs on this machine, one line each.

    Of one mutant the last one counts; one that survived only if the test that killed it before was asked again.
    """

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._kept: dict[str, _Kept] = {}
        self._digests: dict[str, str] = {}
        self._functions: dict[str, dict[str, str]] = {}
        for line in file.read_text().splitlines() if file.exists() else ():
            row = json.loads(line)
            found = _Kept(Outcome(Verdict(row["verdict"]), row["test"]), row["digest"], frozenset(row["passed"]))
            before = self._kept.get(row["mutant"])
            is_killed = before is not None and self._is_killed(before) and before.digest not in found.passed
            if before is not None and is_killed and found.outcome.test is None:
                found = before  # by a test that the later run did not ask
            self._kept[row["mutant"]] = found

    def of(self, mutant: Mutant, tests: Sequence[str] | None = None) -> Outcome | None:
        """The verdict on a mutant that still holds; `tests` would judge it now, None if that is not known."""
        kept = self._kept.get(mutant.fingerprint)
        if kept is None:
            return None
        if kept.outcome.test is not None:
            return kept.outcome if self._is_killed(kept) else None
        return kept.outcome if not tests or not self.left(mutant, tests) else None

    def _is_killed(self, kept: _Kept) -> bool:
        """Whether a test killed it, and has not been edited since."""
        return kept.outcome.test is not None and kept.digest == self._digest(kept.outcome.test)

    def left(self, mutant: Mutant, tests: Sequence[str]) -> list[str]:
        """Of some tests those that have not let a mutant pass yet, the one that killed it the last time first."""
        kept = self._kept.get(mutant.fingerprint)
        if kept is None:
            return list(tests)
        open_tests = [test for test in tests if self._digest(test) not in kept.passed]
        return sorted(open_tests, key=lambda test: test != kept.outcome.test)

    def keep(self, mutant: Mutant, tests: Sequence[str], outcome: Outcome) -> None:
        """Keep a verdict, at once: the run may be ended at any moment."""
        before = self._kept.get(mutant.fingerprint)
        passed = frozenset[str]() if before is None else before.passed
        digest = ""
        if outcome.test is not None:
            digest = self._digest(outcome.test)
            passed -= {digest}
        elif outcome.verdict is Verdict.SURVIVED:
            passed |= {self._digest(test) for test in tests}
        self._kept[mutant.fingerprint] = _Kept(outcome, digest, passed)
        row = {"mutant": mutant.fingerprint, "verdict": outcome.verdict.value, "test": outcome.test}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps({**row, "digest": digest, "passed": sorted(passed)}) + "\n")

    def forget(self, mutants: Iterable[Mutant]) -> None:
        """Judge some mutants as if they had not been judged before."""
        for mutant in mutants:
            self._kept.pop(mutant.fingerprint, None)

    def _digest(self, test: str) -> str:
        """A digest of the name of a test and of its source."""
        if test not in self._digests:
            file, _, name = test.partition("::")
            if file not in self._functions:
                self._functions[file] = _functions(ROOT / file)
            source = self._functions[file].get(name.partition("[")[0].rpartition("::")[2], "")
            self._digests[test] = hashlib.sha256(f"{test} {source}".encode()).hexdigest()[:12]
        return self._digests[test]


def _functions(file: Path) -> dict[str, str]:
    """The sources of the functions in a file of tests, by their names."""
    source = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = source.splitlines()
    return {
        node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
