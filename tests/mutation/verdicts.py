"""Verdicts that are kept: a run that was interrupted goes on where it stopped, and what did not change stays judged.

A verdict is kept for the source of the function that the mutant is in, and for the tests that judged it: for a killed
one the source of the test that killed it, for a survivor the files of all tests that let it pass. When one of them is
edited, the mutant is judged again, first by the test that killed it the last time. An edit elsewhere, which that
function or that test merely uses, changes no verdict here; `--fresh` judges everything again.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutation.covering import KEPT, ROOT, digest_of_files
from tests.mutation.mutants import Mutant
from tests.mutation.trials import Outcome, Verdict

FILE: Final = KEPT / "verdicts.jsonl"


class _Kept(NamedTuple):
    outcome: Outcome
    files: tuple[str, ...]
    digest: str


class KeptVerdicts:
    """The verdicts of earlier runs on this machine: one line each, and of one mutant the last one counts.

    `round` tells the judges apart: who survives the first ones goes before the second.
    """

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._kept: dict[str, _Kept] = {}
        self._digests: dict[tuple[str, ...], str] = {}
        self._functions: dict[str, dict[str, str]] = {}
        for line in file.read_text().splitlines() if file.exists() else ():
            row = json.loads(line)
            outcome = Outcome(Verdict(row["verdict"]), row["test"])
            self._kept[row["mutant"]] = _Kept(outcome, tuple(row["files"]), row["digest"])

    def of(self, mutant: Mutant, tests: Sequence[str] | None = None, *, round: int = 1) -> Outcome | None:
        """The verdict on a mutant that still holds; `tests` would judge it now, None if that is not known."""
        kept = self._kept.get(_key(mutant, round))
        if kept is None or kept.digest != self._digest(kept.outcome, kept.files):
            return None
        if kept.outcome.test is None and tests is not None and not set(_files(tests)) <= set(kept.files):
            return None  # it survived when there were fewer tests
        return kept.outcome

    def last(self, mutant: Mutant) -> Outcome | None:
        """The verdict that still holds, of whichever judges spoke last."""
        return self.of(mutant, round=2) or self.of(mutant)

    def killer(self, mutant: Mutant) -> str | None:
        """The test that killed it the last time, whether that still holds or not."""
        kept = self._kept.get(_key(mutant, 1))
        return None if kept is None else kept.outcome.test

    def keep(self, mutant: Mutant, tests: Sequence[str], outcome: Outcome, *, round: int = 1) -> None:
        """Keep a verdict, at once: the run may be ended at any moment."""
        files = _files(tests if outcome.test is None else [outcome.test])
        kept = self._kept[_key(mutant, round)] = _Kept(outcome, files, self._digest(outcome, files))
        row = {"mutant": _key(mutant, round), "verdict": outcome.verdict.value, "test": outcome.test}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps({**row, "files": kept.files, "digest": kept.digest}) + "\n")

    def _digest(self, outcome: Outcome, files: tuple[str, ...]) -> str:
        """A digest of the test that killed a mutant, or of all files whose tests let it pass."""
        if outcome.test is not None:
            file, _, name = outcome.test.partition("::")
            if file not in self._functions:
                self._functions[file] = _functions(ROOT / file)
            source = self._functions[file].get(name.partition("[")[0].rpartition("::")[2], "")
            return hashlib.sha256(source.encode()).hexdigest()[:16]
        if files not in self._digests:
            self._digests[files] = digest_of_files(files)
        return self._digests[files]


def _functions(file: Path) -> dict[str, str]:
    """The sources of the functions in a file of tests, by their names."""
    source = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = source.splitlines()
    return {
        node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _key(mutant: Mutant, round: int) -> str:
    return mutant.fingerprint + f"/{round}" * (round > 1)


def _files(tests: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({test.partition("::")[0] for test in tests}))
