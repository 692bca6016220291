"""What a monitor answers: violations, what is still open, and a verdict per property."""

from dataclasses import dataclass, field
from typing import Any

from duly.core.moments import Instant
from duly.formal.properties import Value


@dataclass(frozen=True, slots=True)
class Violation:
    """A property does not hold at a position: which, where, for whom, and what was known just before."""

    property: str
    seq: int
    at: Instant
    event: str  # its letters
    task: str | None
    sentence: str
    registers: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        whose = f", task {self.task!r}" if self.task is not None else ""
        return f"{self.property} violated at {self.seq} ({self.event}){whose}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Open:
    """Something that is still to happen: a task that is owed, or a call that has not returned."""

    what: str
    since: Instant


@dataclass(frozen=True, slots=True)
class Verdict:
    """The value of one property, and what makes it so."""

    property: str
    value: Value
    violations: int
    first: Violation | None
    open: tuple[Open, ...]  # at most `OPEN_SHOWN_MAX` of them
    open_count: int


OPEN_SHOWN_MAX = 10


def verdict(property_id: str, count: int, first: Violation | None, open_: list[Open], *, sealed: bool) -> Verdict:
    """The four values (FORMAL A2): a clean end makes what was pending violated, and what was holding satisfied."""
    shown = tuple(open_[:OPEN_SHOWN_MAX])
    if count or (open_ and sealed):
        value = Value.VIOLATED
    elif open_:
        value = Value.PENDING
    else:
        value = Value.SATISFIED if sealed else Value.HOLDING
    return Verdict(property_id, value, count, first, shown, len(open_))
