"""The smallest sub-trace that shows a violation.

What another task did cannot matter, so only lifecycle events and those of the task are kept. Events are then removed as
long as the monitor still finds this property violated at the last event, for the same reason, and finds nothing wrong
earlier that the whole trace does not have. What remains shows the violation, and no part of it does.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import combinations
from typing import Final

from duly.core.moments import as_datetime
from duly.formal.machine import SLOTS
from duly.formal.monitor import Monitor
from duly.formal.properties import BY_ID, PropertyKind
from duly.formal.registers import RegisterSnapshot
from duly.formal.trace import IE, RE, RG, RS, WK, AnyEvent, Event, HostEvent
from duly.formal.verdicts import Violation
from duly.text import plain

WINDOW: Final = 2_000
"""How many events of one task are kept at most; earlier ones are kept as registers."""

EXHAUSTIVE_MAX: Final = 12
"""Up to this many events, all sub-traces are tried."""

ANOTHER_TASKS: Final = -1
"""`mono` of a WK that stands in a sub-trace for an event of another task."""

_Kind = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Witness:
    """A sub-trace, and the registers with which it begins, unless it begins with the trace."""

    violation: Violation
    events: tuple[AnyEvent, ...]
    start: RegisterSnapshot | None = None

    def __str__(self) -> str:
        return "\n".join(
            ([] if self.start is None else ["  (what came before is kept as registers)"]) + [*_lines(self)]
        )


def witness(events: Iterable[AnyEvent], violation: Violation, start: RegisterSnapshot | None = None) -> Witness:
    """The smallest sub-trace of a trace that shows a violation which a monitor found in it.

    Parameters:
        events: the trace.
        violation: the violation.
        start: the snapshot that the trace began with, if it did not begin empty.

    Raises:
        ValueError: the trace does not show the violation.
    """
    (found,) = witnesses(events, [violation], start)
    if found is None:
        raise ValueError(f"the trace does not show that {violation}")
    return found


def witnesses(
    events: Iterable[AnyEvent], violations: Sequence[Violation], start: RegisterSnapshot | None = None
) -> list[Witness | None]:
    """The witnesses of several violations, in one pass over the trace; None where the trace does not show one."""
    relevant = [_Relevant(violation, start) for violation in violations]
    last = max((violation.seq for violation in violations), default=0)
    for event in events:
        if event.seq > last:
            break
        for each in relevant:
            each.take(event)
    return [each.witness() for each in relevant]


class _Relevant:
    """The events that can matter to a violation, and the registers before the first of them."""

    def __init__(self, violation: Violation, start: RegisterSnapshot | None) -> None:
        self._violation = violation
        self._bounded = BY_ID[violation.property].kind is PropertyKind.BOUNDED
        self._counts_slots = violation.property == "EW" and SLOTS in violation.sentence
        self._start = self._base = start
        self._shared = False
        self._kept: list[AnyEvent] = []

    def take(self, event: AnyEvent) -> None:
        if event.seq > self._violation.seq:
            return
        if isinstance(event, HostEvent):
            self._shared = True
            kept = self._relevant(event.event)
            if kept is not None:
                self._keep(event._replace(event=kept))
        elif (kept := self._relevant(event)) is not None:
            self._keep(kept)

    def _relevant(self, event: Event) -> Event | None:
        """The part of an event that can matter; None if nothing can."""
        violation = self._violation
        if isinstance(event, RG | RS | RE):
            if violation.task is not None and event.task != violation.task:
                # At most it shows that the process had compute.
                return WK(event.seq, event.at, ANOTHER_TASKS) if self._bounded else None
            if isinstance(event, RS) and not self._counts_slots:
                return event._replace(slots=-1)  # not stated: runs that are left out do not count, see `_counted`
        elif isinstance(event, WK) and not self._bounded:
            return None
        elif isinstance(event, IE) and violation.task is not None:
            return event._replace(digest="", declared=-1)  # as one task sees it
        return event

    def _keep(self, event: AnyEvent) -> None:
        self._kept.append(event)
        if len(self._kept) > 2 * WINDOW:
            monitor = Monitor(self._base, shared=self._shared)
            for each in self._kept[:WINDOW]:
                monitor.step(each)
            self._base = monitor.snapshot()
            del self._kept[:WINDOW]

    def witness(self) -> Witness | None:
        if not self._kept or self._kept[-1].seq != self._violation.seq:
            return None
        before, beside = self._all_found()
        for begin in (self._start, self._base):
            search = _Search(_kind(self._violation), begin, self._shared, before, beside, self._bounded)
            if search.shows(self._kept):
                smallest = search.smallest(self._kept)
                return Witness(self._violation, tuple(_counted(smallest, begin, shared=self._shared)), begin)
        return None

    def _all_found(self) -> tuple[frozenset[_Kind], frozenset[str]]:
        """The violations before this one, and the properties that its event violates."""
        monitor = Monitor(self._base, bounded=self._bounded, shared=self._shared)
        before = frozenset(_kind(found) for event in self._kept[:-1] for found in monitor.step(event))
        return before, frozenset(found.property for found in monitor.step(self._kept[-1]))


@dataclass(frozen=True, slots=True)
class _Search:
    kind: _Kind
    start: RegisterSnapshot | None
    shared: bool
    before: frozenset[_Kind]  # violations that may precede it
    beside: frozenset[str]  # the properties that its event violates
    bounded: bool  # whether lateness counts: only for a violation of a bound, since removed starts make tasks late

    def shows(self, events: Sequence[AnyEvent]) -> bool:
        """Whether the last event violates the property for the same reason, and nothing else is wrong before it."""
        monitor = Monitor(self.start, bounded=self.bounded, shared=self.shared)
        for event in events[:-1]:
            found = monitor.step(event)
            if found and not self.before.issuperset(map(_kind, found)):
                return False
        found = monitor.step(events[-1])
        return self.kind in map(_kind, found) and {each.property for each in found} == self.beside

    def smallest(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """A sub-trace that shows the violation; if it is short enough to try all its parts, none of them does."""
        *others, last = events
        others = self._reduced(others, last)
        if len(others) < EXHAUSTIVE_MAX:
            for count in range(len(others)):
                for chosen in combinations(others, count):
                    if self.shows([*chosen, last]):
                        return [*chosen, last]
        return [*others, last]

    def _reduced(self, others: list[AnyEvent], last: AnyEvent) -> list[AnyEvent]:
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


def _counted(events: Sequence[AnyEvent], start: RegisterSnapshot | None, *, shared: bool) -> Iterator[AnyEvent]:
    """The events, with `slots` that count the runs of this sub-trace where they are not stated."""
    monitor = Monitor(start, bounded=False, shared=shared)
    for event in events:
        if isinstance(event, HostEvent):
            if isinstance(event.event, RS) and event.event.slots < 0:
                running = monitor.registers.host(event.host).running
                event = event._replace(event=event.event._replace(slots=running))
        elif isinstance(event, RS) and event.slots < 0:
            event = event._replace(slots=monitor.registers.running)
        monitor.step(event)
        yield event


def _kind(violation: Violation) -> _Kind:
    """The kind of a violation: property, task, sentence without numbers, and the state of the scheduler."""
    registers = (violation.registers.get(name) for name in ("Active", "Quiet", "Registered", "Running"))
    return violation.property, violation.task, re.sub(r"[0-9]+", "", violation.sentence), *registers


def _lines(found: Witness) -> Iterator[str]:
    for each in found.events:
        event = each.event if isinstance(each, HostEvent) else each
        fields = event._asdict()
        del fields["seq"], fields["at"]
        if isinstance(event, WK) and event.mono == ANOTHER_TASKS:
            fields = {"of": "another task"}
        if isinstance(event, IE) and event.declared < 0:
            del fields["declared"], fields["digest"]
        if isinstance(each, HostEvent):
            fields = {"host": each.host, **fields}
        at = as_datetime(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = " ".join(f"{name}={plain(value)}" for name, value in fields.items() if value is not None)
        yield f"  {event.seq:>6}  {at}  {type(event).__name__}  {text}".rstrip()
