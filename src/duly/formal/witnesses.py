"""The smallest sub-trace that shows a violation.

What another task did cannot matter, so only lifecycle events and those of the task are kept. From these, events are
taken away for as long as the monitor still finds the same violated at the last event, for the same reason, and nothing
wrong earlier that is not wrong earlier in the trace. What remains shows the violation, and nothing smaller within it
does.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import combinations
from typing import Final

from duly.core.moments import as_datetime
from duly.formal.monitor import Monitor
from duly.formal.properties import BY_ID, PropertyKind
from duly.formal.registers import RegisterSnapshot
from duly.formal.trace import IE, RE, RG, RS, WK, Event
from duly.formal.verdicts import Violation
from duly.text import plain

WINDOW: Final = 2_000
"""Events of one task that are kept at most; what came before them is kept as registers."""

EXHAUSTIVE_MAX: Final = 12

ANOTHER_TASKS: Final = -1
"""`mono` of a WK that stands in a sub-trace for an event of another task."""

_Kind = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Witness:
    """A sub-trace; if it does not begin with the trace itself, the registers it begins with."""

    violation: Violation
    events: tuple[Event, ...]
    start: RegisterSnapshot | None = None

    def __str__(self) -> str:
        return "\n".join(
            ([] if self.start is None else ["  (what came before is kept as registers)"]) + [*_lines(self)]
        )


def witness(events: Iterable[Event], violation: Violation, start: RegisterSnapshot | None = None) -> Witness:
    """The smallest sub-trace of a trace, up to a violation that a monitor found in it. Raises ValueError.

    `start` is the snapshot that the trace began with, if it did not begin empty.
    """
    (found,) = witnesses(events, [violation], start)
    if found is None:
        raise ValueError(f"the trace does not show that {violation}")
    return found


def witnesses(
    events: Iterable[Event], violations: Sequence[Violation], start: RegisterSnapshot | None = None
) -> list[Witness | None]:
    """The same for several violations, in one pass over the trace; None for one that the trace does not show."""
    relevant = [_Relevant(violation, start) for violation in violations]
    last = max((violation.seq for violation in violations), default=0)
    for event in events:
        if event.seq > last:
            break
        for each in relevant:
            each.take(event)
    return [each.witness() for each in relevant]


class _Relevant:
    """What can matter to a violation, and the registers at its beginning."""

    def __init__(self, violation: Violation, start: RegisterSnapshot | None) -> None:
        self._violation = violation
        self._bounded = BY_ID[violation.property].kind is PropertyKind.BOUNDED
        self._start = self._base = start
        self._kept: list[Event] = []

    def take(self, event: Event) -> None:
        violation = self._violation
        if event.seq > violation.seq:
            return
        if isinstance(event, RG | RS | RE):
            if violation.task is not None and event.task != violation.task:
                if not self._bounded:
                    return
                event = WK(event.seq, event.at, ANOTHER_TASKS)  # to this task, evidence that the process had compute
        elif isinstance(event, WK) and not self._bounded:
            return
        elif isinstance(event, IE) and violation.task is not None:
            event = event._replace(digest="", declared=-1)  # as one task sees it
        self._kept.append(event)
        if len(self._kept) > 2 * WINDOW:
            monitor = Monitor(self._base)
            for each in self._kept[:WINDOW]:
                monitor.step(each)
            self._base = monitor.snapshot()
            del self._kept[:WINDOW]

    def witness(self) -> Witness | None:
        if not self._kept or self._kept[-1].seq != self._violation.seq:
            return None
        before, beside = self._all_found()
        for begin in (self._start, self._base):
            search = _Search(_kind(self._violation), begin, before, beside, self._bounded)
            if search.shows(self._kept):
                return Witness(self._violation, tuple(search.smallest(self._kept)), begin)
        return None

    def _all_found(self) -> tuple[frozenset[_Kind], frozenset[str]]:
        """What is wrong before the violation, and which properties its event violates."""
        monitor = Monitor(self._base, bounded=self._bounded)
        before = frozenset(_kind(found) for event in self._kept[:-1] for found in monitor.step(event))
        return before, frozenset(found.property for found in monitor.step(self._kept[-1]))


@dataclass(frozen=True, slots=True)
class _Search:
    kind: _Kind
    start: RegisterSnapshot | None
    before: frozenset[_Kind]  # what may be wrong before it
    beside: frozenset[str]  # what its event violates
    bounded: bool  # whether lateness counts: not if the violation is another, for what is left out makes tasks late

    def shows(self, events: Sequence[Event]) -> bool:
        """Whether the last event violates the same for the same reason, and nothing new is wrong before it."""
        monitor = Monitor(self.start, bounded=self.bounded)
        for event in events[:-1]:
            found = monitor.step(event)
            if found and not self.before.issuperset(map(_kind, found)):
                return False
        found = monitor.step(events[-1])
        return self.kind in map(_kind, found) and {each.property for each in found} == self.beside

    def smallest(self, events: Sequence[Event]) -> Sequence[Event]:
        """A sub-trace that shows it although nothing smaller within it does, if it is short enough to try them all."""
        *others, last = events
        others = self._reduced(others, last)
        if len(others) < EXHAUSTIVE_MAX:
            for count in range(len(others)):
                for chosen in combinations(others, count):
                    if self.shows([*chosen, last]):
                        return [*chosen, last]
        return [*others, last]

    def _reduced(self, others: list[Event], last: Event) -> list[Event]:
        size = 1 << len(others).bit_length()
        while size:  # long stretches first, then pairs, for a start and its end go only together; single events last
            before = len(others)
            for begin in reversed(range(before)[:: (size + 1) // 2]):
                fewer = others[:begin] + others[begin + size :]
                if self.shows([*fewer, last]):
                    others = fewer
            if len(others) == before:
                size //= 2
        return others


def _kind(violation: Violation) -> _Kind:
    """What, whose and why: its sentence, without numbers, and the registers that say where the scheduler was."""
    registers = (violation.registers.get(name) for name in ("Active", "Quiet", "Registered", "Running"))
    return violation.property, violation.task, re.sub(r"[0-9]+", "", violation.sentence), *registers


def _lines(found: Witness) -> Iterator[str]:
    for event in found.events:
        fields = event._asdict()
        del fields["seq"], fields["at"]
        if isinstance(event, WK) and event.mono == ANOTHER_TASKS:
            fields = {"of": "another task"}
        if isinstance(event, IE) and event.declared < 0:
            del fields["declared"], fields["digest"]
        at = as_datetime(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = " ".join(f"{name}={plain(value)}" for name, value in fields.items() if value is not None)
        yield f"  {event.seq:>6}  {at}  {type(event).__name__}  {told}".rstrip()
