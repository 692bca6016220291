"""The answers of a monitor: violations, what is still open, and a verdict on each property."""

from dataclasses import dataclass, field
from typing import Any, Final

from duly.core.moments import Instant
from duly.formal.properties import PROPERTIES, Value

KEPT_VIOLATIONS_MAX: Final = 100
"""Violations that are kept whole; all are counted."""

OPEN_SHOWN_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Violation:
    """A property that does not hold at a position: which, where, for which task, and the registers just before."""

    property: str  #: its number, such as `S1`
    seq: int  #: the position of the event that violates it
    at: Instant  #: the instant of that event
    event: str  #: the letters of that event
    task: str | None  #: the task, if the property is about one
    sentence: str  #: what is wrong there
    registers: dict[str, Any] = field(default_factory=dict)  #: the registers before the event, by name

    def __str__(self) -> str:
        of_task = f", task {self.task!r}" if self.task is not None else ""
        return f"{self.property} violated at {self.seq} ({self.event}){of_task}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Open:
    """Something that is still to happen: a task that is owed, or a call that has not returned."""

    what: str  #: what is still to happen
    since: Instant  #: since when


@dataclass(frozen=True, slots=True)
class Verdict:
    """The value of one property, and its reasons."""

    property: str  #: its number, such as `S1`
    value: Value  #: what the trace says about it
    violations: int  #: how often it is violated
    first: Violation | None  #: the first violation
    open: tuple[Open, ...]  #: what is still to happen; at most `OPEN_SHOWN_MAX` of it
    open_count: int  #: how much of that there is


class Findings:
    """The violations of a trace so far: each is counted, the first of each property and the first hundred are kept."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.counts: dict[str, int] = {each.id: 0 for each in PROPERTIES}
        self.first: dict[str, Violation] = {}
        self.recent: list[Violation] = []  # since `forget_recent`

    def add(self, violation: Violation) -> None:
        """Note one more."""
        self.counts[violation.property] += 1
        self.first.setdefault(violation.property, violation)
        if len(self.violations) < KEPT_VIOLATIONS_MAX:
            self.violations.append(violation)
        self.recent.append(violation)

    def forget_recent(self) -> list[Violation]:
        """Begin a new list of recent ones; returns it, for a caller that wants to know what one step adds."""
        self.recent = []
        return self.recent


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
