"""The judgement of a trace on all properties, as one value for programs and people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, BinaryIO, Final

from duly.core.moments import Instant, as_datetime
from duly.formal.checking import Report
from duly.formal.properties import PROPERTIES, PropertyKind, Value
from duly.formal.reader import Rows, TraceReader
from duly.formal.registers import RegisterSnapshot
from duly.formal.trace import AnyEvent, line_of
from duly.formal.verdicts import Open, Violation
from duly.formal.witnesses import Witness, witnesses

INSTANTS: Final = frozenset({"mark", "nextDue", "retryAt", "resumeAt"})
"""The registers that hold an instant."""

_GRAVEST_FIRST: Final = (Value.VIOLATED, Value.PENDING, Value.HOLDING, Value.SATISFIED)


@dataclass(frozen=True, slots=True)
class SubTrace:
    """The smallest part of a trace that shows a violation."""

    after_registers: bool
    """Whether it follows the state in the header of a segment, and not an empty one."""

    events: Sequence[Sequence[Any]]
    """Each is a list of its letters and its fields, as in the lines of a trace."""


@dataclass(frozen=True, slots=True)
class FirstViolation:
    """The first position at which a property does not hold."""

    seq: int
    at: Instant
    event: str
    task: str | None
    sentence: str
    registers: Mapping[str, Any]
    sub_trace: SubTrace | None


@dataclass(frozen=True, slots=True)
class JudgedProperty:
    """One property, and what the trace says about it."""

    property: str
    kind: PropertyKind
    sentence: str
    value: Value
    violations: int
    first: FirstViolation | None
    open: Sequence[Open]
    open_count: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """A trace, and what it says about every property."""

    sources: Sequence[str]
    verdict: Value
    """The gravest of all properties."""

    scheduler: str
    events: int
    segments: int
    first_segment: int
    tasks: int
    crashes: int
    until: Instant | None
    """The instant of the last event; None if there is none."""

    ended: bool
    sealed: bool
    current: bool
    """False if a scheduler that kept no trace has used a store since."""

    properties: Sequence[JudgedProperty]


def judgement_of(report: Report, shown: Mapping[str, Witness], sources: Sequence[str], *, current: bool) -> Judgement:
    """The judgement of a report; `shown` has the witness of the first violation of a property, by its name."""
    values = {verdict.value for verdict in report.verdicts.values()}
    return Judgement(
        sources,
        next(value for value in _GRAVEST_FIRST if value in values),
        report.scheduler,
        report.events,
        report.segments,
        report.first_segment,
        report.tasks,
        report.crashes,
        report.until if report.events else None,
        report.ended,
        report.sealed,
        current,
        [
            JudgedProperty(
                each.id,
                each.kind,
                each.sentence,
                found.value,
                found.violations,
                None if found.first is None else _first(found.first, shown.get(each.id)),
                found.open,
                found.open_count,
            )
            for each in PROPERTIES
            if (found := report.verdicts.get(each.id)) is not None
        ],
    )


def first_witnesses(files: Sequence[BinaryIO], report: Report, start: RegisterSnapshot | None) -> dict[str, Witness]:
    """The smallest sub-trace of the first violation of each property, found in a second reading of the files."""
    first = [each.first for each in report.verdicts.values() if each.first is not None]
    if not first:
        return {}
    found = witnesses(_events(files), first, start)
    return {each.violation.property: each for each in found if each is not None}


def _events(files: Sequence[BinaryIO]) -> Iterator[AnyEvent]:
    reader = TraceReader()
    for file in files:
        file.seek(0)
        for part in reader.read(file):
            if isinstance(part, Rows):
                yield from part.events()


def _first(violation: Violation, shown: Witness | None) -> FirstViolation:
    return FirstViolation(
        violation.seq,
        violation.at,
        violation.event,
        violation.task,
        violation.sentence,
        {
            name: as_datetime(value, UTC) if name in INSTANTS and value is not None else value
            for name, value in violation.registers.items()
        },
        None if shown is None else _sub_trace(shown),
    )


def _sub_trace(shown: Witness) -> SubTrace:
    return SubTrace(shown.start is not None, [line_of(event) for event in shown.events])
