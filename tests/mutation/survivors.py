"""Survivors: mutants that no test notices, which mutant each reason belongs to, and which reasons have lost theirs.

A reason names its mutant by what a reader sees: the module, the line of the source, and the change to it. When that
line is edited, the reason has no mutant any more. `python -m tests.mutation --repair` then looks for the one it meant,
among those with the same change on a line that reads much the same, and writes the record anew.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from typing import Final, NamedTuple

from tests.mutation.mutants import Mutant

PACKAGE: Final = "src/duly/"
LIKENESS_MIN: Final = 0.6
"""How much of two lines must read the same, for one to be taken for the other after an edit."""


class Identity(NamedTuple):
    """The identity of a mutant: lines that are added elsewhere do not change it."""

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
    """A mutant that no test noticed, and why none can: nothing that duly promises tells it from the original."""

    mutant: Identity
    reason: str | None = None
    """None for one that is not argued yet: a test is missing, or the argument."""

    def text(self) -> str:
        """As a record has it."""
        named = {"line": self.mutant.line, "before": self.mutant.before, "after": self.mutant.after}
        rows = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in named.items()]
        rows += [f"copy = {self.mutant.copy}"] if self.mutant.copy else []
        rows += [] if self.reason is None else [f"reason = {json.dumps(self.reason, ensure_ascii=False)}"]
        return "\n".join(["[[survivor]]", *rows, ""])


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
