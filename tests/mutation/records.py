"""The committed record of mutation testing: a file for each module, with counts, judges and survivors.

`[judged]` tells how many mutants of which source were judged, and what became of them. `judges` are tests that killed
them, the one that killed most first: with these alone, and without coverage, CI judges a sample. Each `[[survivor]]` is
a mutant that no test noticed; its reason says that nothing duly promises tells it from the original. One without a
reason is not argued yet. Reasons are written by hand, all the rest by `python -m tests.mutation --record`.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.mutation.covering import ROOT, digest_of_files, distance, python_files
from tests.mutation.mutants import Mutant
from tests.mutation.survivors import PACKAGE, Identity, Survivor, identity
from tests.mutation.trials import Outcome, Verdict

FOLDER: Final = Path(__file__).with_name("records")
JUDGES_MAX: Final = 60
SURVIVING: Final = (Verdict.SURVIVED, Verdict.UNCOVERED)


@dataclass(frozen=True)
class Judged:
    """The verdicts on the mutants of one source."""

    source: str
    """A digest of the module that was judged: if the module has another one now, the counts are those of its past."""

    mutants: int
    judged: int
    killed: int
    timed_out: int = 0
    """Of the killed ones: no test failed, one did not end."""


@dataclass(frozen=True)
class Record:
    """The record of one module."""

    module: str
    """From `src/duly`, or from the top folder if it is elsewhere."""

    judged: Judged | None = None
    judges: tuple[str, ...] = ()
    survivors: tuple[Survivor, ...] = field(default=())

    @property
    def path(self) -> str:
        """The module's file, from the top folder."""
        return self.module if self.module.startswith("tests/") else PACKAGE + self.module

    @property
    def file(self) -> Path:
        """Where the record is."""
        return FOLDER / f"{self.module.removesuffix('.py')}.toml"

    @property
    def is_current(self) -> bool:
        """Whether the module is still the one that was judged."""
        return self.judged is not None and self.judged.source == source_digest(self.path)

    @property
    def reasons(self) -> int:
        """How many survivors have a reason, judged or not."""
        return sum(each.reason is not None for each in self.survivors)

    @property
    def unargued(self) -> int:
        """How many survivors have none."""
        return len(self.survivors) - self.reasons

    def text(self) -> str:
        """As its file has it."""
        parts = [f"# Mutants of {self.module}; tests/mutation/records.py says what is what."]
        if self.judged is not None:
            counts = vars(self.judged)
            rows = [f"{name} = {json.dumps(value)}" for name, value in counts.items()]
            judges = [f"    {json.dumps(test, ensure_ascii=False)}," for test in self.judges]
            parts.append("\n".join(["[judged]", *rows, "judges = [", *judges, "]"]))
        ordered = sorted(self.survivors, key=lambda each: each.mutant)
        return "\n\n".join([*parts, *(each.text().rstrip("\n") for each in ordered)]) + "\n"

    def write(self) -> None:
        """Write its file; none for a module of which nothing is to be said."""
        if self.judged is None and not self.survivors:
            self.file.unlink(missing_ok=True)
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(self.text(), encoding="utf-8")


def source_digest(path: str) -> str:
    """The digest of a module as it is now."""
    return digest_of_files([path])


def parsed(module: str, text: str) -> Record:
    """The record that such a text is."""
    value: dict[str, Any] = tomllib.loads(text)
    survivors = tuple(
        Survivor(Identity(module, row["line"], row["before"], row["after"], row.get("copy", 0)), row.get("reason"))
        for row in value.get("survivor", [])
    )
    counts = dict(value.get("judged", {}))
    judges = tuple(counts.pop("judges", ()))
    return Record(module, Judged(**counts) if counts else None, judges, survivors)


def record_of(module: str) -> Record:
    """The record of a module of this checkout; an empty one if it has none."""
    empty = Record(module)
    return parsed(module, empty.file.read_text(encoding="utf-8")) if empty.file.exists() else empty


def every() -> list[Record]:
    """All records of this checkout."""
    return [record_of(f"{file.relative_to(FOLDER).with_suffix('')}.py") for file in sorted(FOLDER.rglob("*.toml"))]


def module_of(path: str) -> str:
    """How records call the module in a file."""
    return path.removeprefix(PACKAGE)


def explained() -> dict[Identity, str]:
    """The reasons of this checkout."""
    return {each.mutant: each.reason for record in every() for each in record.survivors if each.reason is not None}


def updated(record: Record, mutants: Iterable[Mutant], outcomes: Mapping[Mutant, Outcome]) -> Record:
    """The record after some or all mutants of its module have been judged; the reason of a killed one is dropped."""
    mutants = list(mutants)
    reasons = {each.mutant: each for each in record.survivors if each.reason is not None}
    judged = {identity(mutant): outcome for mutant, outcome in outcomes.items()}
    unjudged = {identity(mutant) for mutant in mutants} - judged.keys()
    surviving = {
        each
        for each, (verdict, _) in judged.items()
        # A reason outlives a test that did not end: that may have been the machine.
        if verdict in SURVIVING or (verdict is Verdict.TIMED_OUT and each in reasons)
    }
    killed = {each: outcome for each, outcome in judged.items() if each not in surviving}
    killers = Counter(test for _, test in killed.values() if test is not None)
    kept = reasons.keys() & unjudged
    return replace(
        record,
        judged=Judged(
            source_digest(record.path),
            mutants=len(mutants),
            judged=len(judged),
            killed=len(killed),
            timed_out=sum(verdict is Verdict.TIMED_OUT for verdict, _ in killed.values()),
        ),
        judges=tuple(test for test, _ in killers.most_common(JUDGES_MAX)),
        survivors=tuple(reasons.get(each, Survivor(each)) for each in (*kept, *surviving)),
    )


class RecordedJudges:
    """Judges by the records alone, without coverage: quick to have, for a sample.

    What is run when modules are imported is not known here, so a mutant there may pass for a survivor.
    """

    SECONDS: Final = 3.0
    seconds_max = 45.0

    def __init__(self) -> None:
        self._tests: dict[str, list[str]] = {}

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The judges that the module's record names, as far as their files are there, and then all tests about it."""
        if mutant.path not in self._tests:
            named = [*record_of(module_of(mutant.path)).judges, *_files_about(mutant)]
            self._tests[mutant.path] = [test for test in named if (ROOT / test.partition("::")[0]).is_file()]
        return self._tests[mutant.path]

    def is_run_at_import(self, mutant: Mutant) -> bool:
        """Not known."""
        return False

    def seconds(self, test: str) -> float:
        """Not known either: more than any of them takes."""
        return self.SECONDS


def _files_about(mutant: Mutant) -> list[str]:
    """For a module that was not judged yet: the files of tests about it, in its own folder first."""
    package = Path(module_of(mutant.path)).parts[0]
    files = [file for file in python_files("tests") if Path(file).name.startswith("test_")]
    about = [file for file in files if distance(file, mutant) < 2]
    return sorted(about, key=lambda file: (Path(file).parts[1] != package, distance(file, mutant), file))
