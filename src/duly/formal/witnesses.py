"""The smallest sub-trace that shows a violation.

What another task did cannot matter, so only lifecycle events and those of the task are kept. From these, events are
taken away for as long as the monitor still finds the same violated at the last event, for the same reason, and nothing
wrong earlier (if the trace itself has nothing wrong earlier). What remains shows the violation, and nothing smaller
within it does.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import combinations
from typing import Final

from duly.core.moments import as_datetime
from duly.formal.monitor import Monitor
from duly.formal.properties import BY_ID, Kind
from duly.formal.registers import Snapshot
from duly.formal.trace import IE, RE, RG, RS, WK, Event
from duly.formal.verdicts import Violation

WINDOW: Final = 2_000
"""Events of one task that are kept at most; what came before them is kept as registers."""

EXHAUSTIVE_MAX: Final = 12

ANOTHER_TASKS: Final = -1
"""`mono` of a WK that stands in a sub-trace for an event of another task."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A sub-trace; if it does not begin with the trace itself, the registers it begins with."""

    violation: Violation
    events: tuple[Event, ...]
    start: Snapshot | None = None

    def __str__(self) -> str:
        return "\n".join(
            ([] if self.start is None else ["  (what came before is kept as registers)"]) + [*_lines(self)]
        )


def witness(events: Iterable[Event], violation: Violation, start: Snapshot | None = None) -> Witness:
    """The smallest sub-trace of a trace, up to a violation that a monitor found in it. Raises ValueError.

    `start` is the snapshot that the trace began with, if it did not begin empty.
    """
    (found,) = witnesses(events, [violation], start)
    if found is None:
        raise ValueError(f"the trace does not show that {violation}")
    return found


def witnesses(
    events: Iterable[Event], violations: Sequence[Violation], start: Snapshot | None = None
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

    def __init__(self, violation: Violation, start: Snapshot | None) -> None:
        self._violation = violation
        self._bounded = BY_ID[violation.property].kind is Kind.BOUNDED
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
        for begin, clean in ((self._start, True), (self._base, True), (self._start, False), (self._base, False)):
            beside = _beside(self._kept, self._base, bounded=self._bounded)
            search = _Search(self._violation, begin, clean, beside, self._bounded)
            if search.shows(self._kept):
                return Witness(self._violation, tuple(search.smallest(self._kept)), begin)
        return None


@dataclass(frozen=True, slots=True)
class _Search:
    violation: Violation
    start: Snapshot | None
    clean: bool  # nothing may be wrong before the violation
    beside: frozenset[str]  # what else its event violates
    bounded: bool  # whether lateness counts: not if the violation is another, for what is left out makes tasks late

    def shows(self, events: Sequence[Event]) -> bool:
        """Whether the last event violates what the violation says, for the same reason, and none before it does."""
        if not events or events[-1].seq != self.violation.seq:
            return False
        monitor = Monitor(self.start, bounded=self.bounded)
        for event in events[:-1]:
            found = monitor.step(event)
            if found and (self.clean or any(map(self._is_it, found))):
                return False
        found = monitor.step(events[-1])
        properties = {each.property for each in found}
        return any(map(self._is_it, found)) and (not self.clean or properties == self.beside)

    def _is_it(self, found: Violation) -> bool:
        same = found.property == self.violation.property and found.task == self.violation.task
        return same and _reason(found) == _reason(self.violation)

    def smallest(self, events: Sequence[Event]) -> Sequence[Event]:
        """A sub-trace of which no sub-trace shows it, and the shorter one of those that two ways lead to."""
        events = min(self._reduced(events, late_first=False), self._reduced(events, late_first=True), key=len)
        if len(events) <= EXHAUSTIVE_MAX:
            for count in range(1, len(events)):
                for chosen in combinations(events, count):
                    if self.shows(chosen):
                        return chosen
        return events

    def _reduced(self, events: Sequence[Event], *, late_first: bool) -> Sequence[Event]:
        kept = list(events)
        size = 1 << (len(kept).bit_length() - 1)
        while size:  # long stretches first, then pairs, for a start and its end go only together; single events last
            step = max(1, size // 2)
            begin = max(0, len(kept) - 1 - size) if late_first else 0
            smaller = False
            while 0 <= begin < len(kept) - 1:
                without = [*kept[:begin], *kept[begin + size : -1], kept[-1]]
                if self.shows(without):
                    kept = without
                    smaller = True
                    begin = min(begin, len(kept) - 2)
                else:
                    begin = begin - step if late_first else begin + step
            if not smaller:
                size //= 2
        return kept


def _beside(events: Sequence[Event], start: Snapshot | None, *, bounded: bool) -> frozenset[str]:
    monitor = Monitor(start, bounded=bounded)
    found: Sequence[Violation] = ()
    for event in events:
        found = monitor.step(event)
    return frozenset(each.property for each in found)


def _reason(violation: Violation) -> tuple[object, ...]:
    """What a violation rests on: its sentence, without numbers, and the registers that say where the scheduler was."""
    registers = (violation.registers.get(name) for name in ("Active", "Quiet", "Registered", "Running"))
    return re.sub(r"[0-9]+", "", violation.sentence), *registers


def _lines(found: Witness) -> Iterator[str]:
    for event in found.events:
        fields = event._asdict()
        del fields["seq"], fields["at"]
        if isinstance(event, WK) and event.mono == ANOTHER_TASKS:
            fields = {"of": "another task"}
        if isinstance(event, IE) and event.declared < 0:
            del fields["declared"], fields["digest"]
        at = as_datetime(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = " ".join(f"{name}={_plain(value)}" for name, value in fields.items() if value is not None)
        yield f"  {event.seq:>6}  {at}  {type(event).__name__}  {told}".rstrip()


def _plain(value: object) -> str:
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape", "backslashreplace").decode("ascii")
