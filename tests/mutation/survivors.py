"""The reasons in `survivors.toml`: which mutant each belongs to, and which have lost theirs.

A reason names its mutant by what a reader sees: the module, the line of the source, and the change to it. When that
line is edited, the reason has no mutant any more. `python -m tests.mutation --repair` then looks for the one it meant,
among those with the same change on a line that reads much the same, and writes the file anew.
"""

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.mutation.mutants import Mutant

FILE: Final = Path(__file__).with_name("survivors.toml")
PACKAGE: Final = "src/duly/"
LIKENESS_MIN: Final = 0.6
"""How much of two lines must read the same, for one to be taken for the other after an edit."""

HEAD: Final = """\
# Mutants that no test notices, and why. A reason says that the mutant cannot be told from the original by anything duly
# promises; one that could be told gets a test. `python -m tests.mutation` prints survivors in this form, and with
# `--repair` it finds the mutants of reasons whose line has been edited.
"""


class Identity(NamedTuple):
    """What a mutant is known by: lines that are added elsewhere do not change it."""

    module: str
    line: str
    before: str
    after: str
    copy: int


def identity(mutant: Mutant) -> Identity:
    """The identity of a mutant."""
    module = mutant.path.removeprefix(PACKAGE)
    return Identity(module, mutant.context, mutant.before, mutant.after, mutant.copy)


@dataclass(frozen=True)
class Survivor:
    """A mutant that was looked at, and why no test can notice it."""

    mutant: Identity
    reason: str

    def text(self) -> str:
        """As the file has it."""
        named = {"module": self.mutant.module, "line": self.mutant.line}
        named |= {"before": self.mutant.before, "after": self.mutant.after}
        rows = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in named.items()]
        rows += [f"copy = {self.mutant.copy}"] if self.mutant.copy else []
        return "\n".join(["[[survivor]]", *rows, f"reason = {json.dumps(self.reason, ensure_ascii=False)}", ""])


def read(text: str) -> list[Survivor]:
    """The survivors in the text of such a file."""
    rows: list[dict[str, Any]] = tomllib.loads(text).get("survivor", [])
    return [
        Survivor(Identity(row["module"], row["line"], row["before"], row["after"], row.get("copy", 0)), row["reason"])
        for row in rows
    ]


def written(survivors: Iterable[Survivor]) -> str:
    """The text of such a file, module by module."""
    ordered = sorted(survivors, key=lambda each: each.mutant)
    return "\n".join([HEAD, *(each.text() for each in ordered)])


def explained() -> dict[Identity, str]:
    """The reasons of this checkout."""
    return {each.mutant: each.reason for each in read(FILE.read_text(encoding="utf-8"))}


def repaired(survivors: Iterable[Survivor], mutants: Iterable[Mutant]) -> tuple[list[Survivor], list[Survivor]]:
    """The survivors with the mutants that they mean now, and those of which none was found."""
    left = {identity(mutant) for mutant in mutants}
    found: list[Survivor] = []
    lost: list[Survivor] = []
    for survivor in survivors:
        (found if survivor.mutant in left else lost).append(survivor)
        left.discard(survivor.mutant)
    still_lost = []
    for survivor in lost:
        best = max(left, key=partial(_closeness, survivor.mutant), default=None)
        if best is None or _likeness(survivor.mutant, best) < LIKENESS_MIN:
            still_lost.append(survivor)
        else:
            left.discard(best)
            found.append(replace(survivor, mutant=best))
    return found, still_lost


def _closeness(one: Identity, other: Identity) -> tuple[float, int, Identity]:
    """How near another mutant is; of two on one line, the one at the same place."""
    return _likeness(one, other), -abs(one.copy - other.copy), other


def _likeness(one: Identity, other: Identity) -> float:
    """From 0 to 1: the same kind of change, where the source reads alike; less if in another module."""
    if not _is_same_change(one, other):
        return 0.0
    # What is replaced may be a whole statement, which a formatter has put on several lines.
    pairs = [(one.line, other.line)] + [(one.before, other.before)] * (_kind(one) != "")
    alike = max(_ratio(" ".join(first.split()), " ".join(second.split())) for first, second in pairs)
    return alike if one.module == other.module else 0.9 * alike


def _ratio(one: str, other: str) -> float:
    """How much of two texts is the same; 0 where a quick look shows that it is too little."""
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    if matcher.real_quick_ratio() < LIKENESS_MIN or matcher.quick_ratio() < LIKENESS_MIN:
        return 0.0
    return matcher.ratio()


def _is_same_change(one: Identity, other: Identity) -> bool:
    """Operators and words are replaced by the same; of whole expressions only the kind of change can be compared."""
    if (one.before, one.after) == (other.before, other.after):
        return True
    return _kind(one) == _kind(other) != ""


def _kind(mutant: Identity) -> str:
    if mutant.after == f"not ({mutant.before})":
        return "negated"
    if mutant.before.startswith("not ") and mutant.after == f"({mutant.before.removeprefix('not ').strip()})":
        return "not negated"
    return mutant.after if mutant.after in {"pass", "return None"} else ""
