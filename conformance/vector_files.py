"""Vector files: their groups, their form, and reading them with every vector checked against its schema."""

import json
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final

from conformance import schema

FORMAT_VERSION: Final = 1
"""Changes when a reader of the old form would misread the new one; new groups and optional fields do not change it."""

LICENCE: Final = "CC0-1.0"
FOLDER: Final = Path(__file__).parent / "vectors"
SCHEMAS: Final = Path(__file__).parent / "schemas"

Vector = dict[str, Any]


class Group(Enum):
    """A group of vectors: one file, one schema, one kind of question."""

    CRON_PARSE = "cron-parse"
    CALENDAR = "calendar"
    TRANSITIONS = "transitions"
    SCENARIOS = "scenarios"
    TRACES = "traces"
    ERRORS = "errors"


class VectorFileError(Exception):
    """A vector file cannot be used; the text says why."""


@dataclass(frozen=True)
class VectorFile:
    """A file of vectors."""

    group: Group
    about: str
    specification: str
    vectors: list[Vector]
    tz_database: str | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """Further facts in the head of the file, such as a seed."""

    def text(self) -> str:
        """The file: a head, then one vector per line, so that a change shows as the lines it concerns."""
        head = {
            "format": f"duly-conformance/{self.group.value}",
            "version": FORMAT_VERSION,
            "licence": LICENCE,
            "about": self.about,
            "specification": self.specification,
            **({"tzDatabase": self.tz_database} if self.tz_database is not None else {}),
            **self.more,
        }
        lines = [f"{json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
        vectors = ",\n".join(json.dumps(vector, separators=(", ", ": ")) for vector in self.vectors)
        return "{\n" + "\n".join(lines) + '\n"vectors": [\n' + vectors + "\n]\n}\n"


def path_of(group: Group, folder: Path = FOLDER) -> Path:
    """Where the file of a group is."""
    return folder / f"{group.value}.json"


@cache
def load(group: Group, folder: Path = FOLDER) -> VectorFile:
    """Read the file of a group. Raises VectorFileError if it is not one of this form."""
    path = path_of(group, folder)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise VectorFileError(f"{path} cannot be read: {fault}") from fault
    expected = f"duly-conformance/{group.value}"
    if not isinstance(content, dict) or content.get("format") != expected:
        raise VectorFileError(f"{path} is not a vector file of the group {group.value}: its format is not {expected!r}")
    if content.get("version") != FORMAT_VERSION:
        found = content.get("version")
        raise VectorFileError(f"{path} has format version {found!r}, and this runner reads version {FORMAT_VERSION}")
    if faults := schema.faults(content, schema_of(group.value)):
        raise VectorFileError(f"{path} does not follow its schema: {faults[0]}")
    names = {"format", "version", "licence", "about", "specification", "tzDatabase", "vectors"}
    return VectorFile(
        group,
        content["about"],
        content["specification"],
        content["vectors"],
        content.get("tzDatabase"),
        {name: value for name, value in content.items() if name not in names},
    )


@cache
def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a group, or of the protocol."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    return found
