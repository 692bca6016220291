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
    """The smallest sub-trace of a trace, up to a violation that a monitor found in it.

    `start` is the snapshot that the trace began with, if it did not begin empty.
    """
    kept, base = _relevant(events, violation, start)
    for begin, clean in ((start, True), (base, True), (start, False), (base, False)):
        search = _Search(violation, begin, clean, _beside(kept, base))
        if search.shows(kept):
            return Witness(violation, tuple(search.smallest(kept)), begin)
    raise ValueError(f"the trace does not show that {violation}")


def _relevant(
    events: Iterable[Event], violation: Violation, start: Snapshot | None
) -> tuple[list[Event], Snapshot | None]:
    """What can matter, and the registers at its beginning."""
    bounded = BY_ID[violation.property].kind is Kind.BOUNDED
    kept: list[Event] = []
    base = start
    for event in events:
        if event.seq > violation.seq:
            break
        if isinstance(event, RG | RS | RE):
            if violation.task is not None and event.task != violation.task:
                if not bounded:
                    continue
                event = WK(event.seq, event.at, 0)  # to this task, evidence that the process had compute
        elif isinstance(event, WK) and not bounded and event.seq != violation.seq:
            continue
        elif isinstance(event, IE) and violation.task is not None:
            event = event._replace(digest="", declared=-1)  # as one task sees it
        kept.append(event)
        if len(kept) > 2 * WINDOW:
            monitor = Monitor(base)
            for each in kept[:WINDOW]:
                monitor.step(each)
            base = monitor.snapshot()
            del kept[:WINDOW]
    return kept, base


@dataclass(frozen=True, slots=True)
class _Search:
    violation: Violation
    start: Snapshot | None
    clean: bool  # nothing may be wrong before the violation
    beside: frozenset[str]  # what else its event violates

    def shows(self, events: Sequence[Event]) -> bool:
        """Whether the last event violates what the violation says, for the same reason, and none before it does."""
        if not events or events[-1].seq != self.violation.seq:
            return False
        monitor = Monitor(self.start)
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
        size = len(events) // 2
        while size:  # whole stretches first, single events last
            begins = range(0, len(events) - 1, size)
            for begin in reversed(begins) if late_first else begins:
                without = [*events[:begin], *events[begin + size : -1], events[-1]]
                if self.shows(without):
                    events = without
                    break
            else:
                size //= 2
        return events


def _beside(events: Sequence[Event], start: Snapshot | None) -> frozenset[str]:
    monitor = Monitor(start)
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
        if isinstance(event, IE) and event.declared < 0:
            del fields["declared"], fields["digest"]
        at = as_datetime(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
        yield f"  {event.seq:>6}  {at}  {type(event).__name__}  {told}".rstrip()
