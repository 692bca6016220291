"""The answers of all implementations, in a form that is committed: one sign per vector, and the smallest example each.

docs/conformance.md is written from it, and tests hold a share of fresh answers against it.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conformance.deviations import KINDS
from conformance.runner import Report
from conformance.vector_files import Group

FILE: Final = Path(__file__).parent / "results.json"
THIS_CHECKOUT: Final = "this checkout"

AGREES: Final = "."
NOT_APPLICABLE: Final = "-"
_SIGNS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
SIGNS: Final = dict(zip(KINDS, _SIGNS, strict=False))
"""The sign of each kind of deviation."""

_LINE: Final = 100


@dataclass(frozen=True)
class Example:
    """The smallest deviation of a kind: a vector, and what was answered."""

    vector: str
    answered: str


@dataclass(frozen=True)
class GroupResult:
    """The answers in one group: a sign per vector, in their order."""

    signs: str
    examples: dict[str, Example] = field(default_factory=dict)

    def count(self, kind: str | None) -> int:
        """How many vectors deviate in a way; how many agree, if None is asked for."""
        return self.signs.count(AGREES if kind is None else SIGNS[kind])

    @property
    def not_applicable(self) -> int:
        """How many do not concern the implementation."""
        return self.signs.count(NOT_APPLICABLE)


@dataclass(frozen=True)
class ImplementationResult:
    """The answers of one implementation in all groups."""

    name: str
    version: str
    groups: dict[Group, GroupResult]


def sign_of(kind: str | None, *, applies: bool) -> str:
    """The sign of an outcome."""
    if not applies:
        return NOT_APPLICABLE
    return AGREES if kind is None else SIGNS[kind]


def result_of(report: Report) -> ImplementationResult:
    """The committed form of a report."""
    groups = {}
    for group, result in report.results.items():
        examples = {}
        for kind in sorted(result.kinds):
            vector, outcome = result.smallest(kind)
            examples[kind] = Example(vector["id"], outcome.answered)
        signs = "".join(sign_of(each.kind, applies=each.applies) for each in result.outcomes)
        groups[group] = GroupResult(signs, examples)
    # A release of duly must not change this file.
    version = THIS_CHECKOUT if report.hello.name == "duly" else report.hello.version
    return ImplementationResult(report.hello.name, version, groups)


def text_of(results: list[ImplementationResult], tz_database: str) -> str:
    """The file."""
    return (
        json.dumps({"tzDatabase": tz_database, "signs": _legend(), "implementations": [*map(_json, results)]}, indent=1)
        + "\n"
    )


def _legend() -> dict[str, str]:
    return {AGREES: "agrees", NOT_APPLICABLE: "does not apply", **{sign: kind for kind, sign in SIGNS.items()}}


def _json(result: ImplementationResult) -> dict[str, Any]:
    groups = {
        group.value: {
            "outcomes": [found.signs[begin : begin + _LINE] for begin in range(0, len(found.signs), _LINE)],
            "examples": {kind: [each.vector, each.answered] for kind, each in found.examples.items()},
        }
        for group, found in result.groups.items()
    }
    return {"name": result.name, "version": result.version, "groups": groups}


def load(file: Path = FILE) -> tuple[list[ImplementationResult], str]:
    """The committed results, and the tz database that they were made with."""
    content = json.loads(file.read_text(encoding="utf-8"))
    if content["signs"] != _legend():
        raise ValueError(f"{file} was made with other kinds of deviations; `make conformance` makes it anew")
    results = [
        ImplementationResult(
            each["name"],
            each["version"],
            {
                Group(name): GroupResult(
                    "".join(group["outcomes"]),
                    {kind: Example(*example) for kind, example in group["examples"].items()},
                )
                for name, group in each["groups"].items()
            },
        )
        for each in content["implementations"]
    ]
    return results, content["tzDatabase"]
