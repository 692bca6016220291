"""The slow way from a trace to positions with Due, RetryDue, Resume and Crash: what the formulas are evaluated on.

Pulses of a task stand on its own time line, directly before the first of its events that is not earlier than they are;
those that have come since its last event stand at the end. A RetryDue comes after its failure, even with delay zero. A
Crash stands directly before the boot that follows it. The wall clock may step back: then what had come has not come.

Nothing here is shared with the monitor but the calendar: tests compare the two.
"""

import re
from collections.abc import Iterator, Sequence

from duly.core.moments import LAST_INSTANT, Instant
from duly.formal.calendar import MINUTE, Schedule, zone_of
from duly.formal.properties import PROPERTIES, Value
from duly.formal.trace import (
    BT,
    BY,
    CK,
    IE,
    IF,
    IS,
    LR,
    ORPHANED,
    PRESERVED,
    RE,
    RG,
    RN,
    RS,
    SE,
    SF,
    SS,
    WAIT,
    WK,
    Event,
)
from tests.formal.reference.formulas import WEAK, Evaluation, judge, read


class Position(frozenset[str]):
    """The letters of one position, of one task; `seq` is that of the event it stands for, or that follows."""

    seq: int


def unfold(events: Sequence[Event], name: str) -> list[Position]:
    """The positions of a trace as one task sees them."""
    positions: list[Position] = []
    waits = any(isinstance(event, IE) and event.interrupted == WAIT for event in events)
    for seq, letters in Unfolding(name, waits).positions(events):
        position = Position({*letters, "Wait"} if waits else letters)
        position.seq = seq
        positions.append(position)
    return positions


def violated(events: Sequence[Event]) -> dict[str, int]:
    """The properties that the formulas call violated, and the seq at which each becomes so."""
    found: dict[str, int] = {}
    names = sorted({event.task for event in events if isinstance(event, RG | RS | RE)})
    for name in names or [""]:
        trace = unfold(events, name)
        whole = Evaluation(trace)
        for each in PROPERTIES:
            for text in instances(each.formula, events, name) if each.is_formula else ():
                formula = read(text)
                if whole.at(formula, WEAK)[0]:
                    continue
                low, high = 0, len(trace)
                while low < high:  # a prefix that violates stays one, whatever follows: bisect
                    middle = (low + high) // 2
                    bad = judge(formula, trace[:middle]) is Value.VIOLATED
                    low, high = (low, middle) if bad else (middle + 1, high)
                seq = trace[low - 1].seq
                found[each.id] = min(seq, found.get(each.id, seq))
    return found


def instances(formula: str, events: Sequence[Event], name: str) -> Iterator[str]:
    """A formula for one task, for each of the runs and calls that it speaks of."""
    if "_r" in formula:
        runs = {run_letters(event) for event in events if isinstance(event, RS | RE) and event.task == name}
        yield from (re.sub(r"_r\b", f"_{run}", formula) for run in sorted(runs))
    elif "_c" in formula:
        calls = {event.call for event in events if isinstance(event, IS | IE | IF | SS | SE | SF)}
        yield from (re.sub(r"_c\b", f"_{call}", formula) for call in sorted(calls))
    else:
        yield formula


def run_letters(event: RS | RE) -> str:
    """The name of a run in letters: its number, and its declaration."""
    return f"{event.run}g{event.generation}"


class Unfolding:
    """The pulses of one task, and the crashes of all."""

    def __init__(self, name: str, waits: bool) -> None:
        self.name = name
        self.waits = waits
        self.generation: int | None = None
        self.schedule: Schedule | None = None
        self.delay = 0
        self.mark: Instant  # of a declaration: no minute up to this one is still owed
        self.served: Instant | None = None  # the latest minute that a start of any declaration has served
        self.zone = zone_of("UTC")
        self.pulsed: Instant | None = None  # the due minute that has had its pulse
        self.retry_at: Instant | None = None
        self.retry_pulsed = False
        self.resume_at: Instant | None = None
        self.resume_pulsed = False
        self.started = Instant(0)
        self.unstarted = True
        self.running = False  # a run of the declaration in force
        self.cut_short = False  # by a crash, and not started since
        self.interruptions = 0
        self.clock = self.latest = Instant(0)
        self.booted = self.closed = False
        self.alive: set[tuple[str, str]] = set()  # runs of all tasks
        self.open_stops: dict[int, int] = {}  # call, and where it was made
        self.called: dict[int, int] = {}

    def positions(self, events: Sequence[Event]) -> Iterator[tuple[int, set[str]]]:
        for event in events:
            mine = isinstance(event, RG | RS | RE) and event.task == self.name
            if mine:
                yield from ((event.seq, {pulse}) for pulse in self.pulses(event.at))
            if isinstance(event, BT) and self.booted and not self.closed:
                yield event.seq, {"Crash"}
                self.crash()
            letters = self.letters(event, mine=mine)
            if isinstance(event, BT | CK):
                self.latest = max(self.latest, self.clock)
                if event.at < self.latest:
                    letters.add("Back")
                    self.set_back(event.at)
                if isinstance(event, BT):
                    self.boot(event.at)
                self.clock = event.at
            self.clock = max(self.clock, event.at)
            yield event.seq, letters
        if events:
            yield from ((events[-1].seq, {pulse}) for pulse in self.pulses(self.clock))

    def pulses(self, until: Instant) -> Iterator[str]:
        """The derived letters since the last event of the task."""
        if self.schedule is not None:
            latest = self.schedule.latest(until)
            if latest is not None and latest > self.mark and latest != self.pulsed:
                self.pulsed = latest
                yield "Due"
        if self.retry_at is not None and self.retry_at <= until and not self.retry_pulsed:
            self.retry_pulsed = True
            yield "RetryDue"
        if self.resume_at is not None and self.resume_at <= until and not self.resume_pulsed:
            self.resume_pulsed = True
            yield "Resume"

    def letters(self, event: Event, *, mine: bool) -> set[str]:
        kind = type(event).__name__
        if isinstance(event, BT | CK | WK | BY | LR | RN):
            self.booted |= isinstance(event, BT)
            return {kind}
        if isinstance(event, RG | RS | RE):
            return self.counted(event) | (self.letters_of_mine(event) if mine else set())
        letters = {kind, f"{kind}_{event.call}"}
        if isinstance(event, IE | SE):
            self.closed = isinstance(event, SE)
        if isinstance(event, SS):
            self.open_stops[event.call] = event.seq
        elif isinstance(event, IS):
            self.called[event.call] = event.seq
        elif isinstance(event, IE):
            self.forget(event.at)
            if any(seq < self.called.get(event.call, 0) for seq in self.open_stops.values()):
                letters.add("Overtaking")
        elif isinstance(event, SF) and event.call not in self.open_stops:
            return set()  # refused: it never took effect
        elif isinstance(event, SE | SF):
            self.open_stops.pop(event.call, None)
            if not self.open_stops:
                letters.add("Settled")
        return letters

    def counted(self, event: RG | RS | RE) -> set[str]:
        if isinstance(event, RG):
            return set()
        before, run = len(self.alive), (event.task, run_letters(event))
        if isinstance(event, RE):
            self.alive.discard(run)
            return set()
        self.alive.add(run)
        return {"Miscounted"} if event.slots != before and event.task == self.name else set()

    def forget(self, at: Instant) -> None:
        """The mark of an earlier declaration is kept for a day: then it cannot silence anything any more."""
        if self.served is not None and (self.schedule is None or self.unstarted) and self.served < at - 1440 * MINUTE:
            self.served = None

    def letters_of_mine(self, event: RG | RS | RE) -> set[str]:
        if isinstance(event, RG):
            return self.register(event)
        in_force = event.generation == self.generation
        if isinstance(event, RS):
            minute = self.zone.minute(event.at)
            if self.schedule is not None:
                self.mark = max(self.mark, minute)
            self.served = minute if self.served is None else max(self.served, minute)
            self.running, self.started, self.unstarted = in_force, event.at, False
            self.resume_at, self.cut_short = None, False
            return {"RS", f"RS_{run_letters(event)}", *(() if in_force else ("Stale",))}
        letters = {"RE", f"RE_{run_letters(event)}"}
        self.running = False
        if in_force:
            self.interruptions = 0
            self.retry_at = None if event.ok else Instant(min(event.at + self.delay, LAST_INSTANT))
            self.retry_pulsed = False
            letters.add("REs" if event.ok else "REf")
        return letters

    def register(self, event: RG) -> set[str]:
        if event.change == PRESERVED:
            return set()
        self.retry_at = self.resume_at = None
        self.running = self.cut_short = False
        self.interruptions = 0
        if event.change == ORPHANED:
            self.generation = self.schedule = None
            return {"Gone"}
        self.zone = zone_of(event.zone)
        before = Instant(self.zone.minute(event.known_since) - MINUTE)
        self.mark = before if self.served is None else max(before, self.served)
        self.schedule = Schedule(event.cron, self.zone)
        self.unstarted = True
        self.pulsed = None
        self.generation, self.delay = event.generation, 1_000 * max(event.delay_ms, 1_000)
        return {"First"}

    def crash(self) -> None:
        self.open_stops.clear()
        self.alive.clear()
        if self.running:
            self.running, self.cut_short = False, True
            self.interruptions += 1
            self.retry_pulsed = False
            if not self.waits:
                self.retry_at = None

    def boot(self, at: Instant) -> None:
        if self.cut_short and not self.waits:
            self.resume_at, self.resume_pulsed = Instant(min(self.started, at) + self.rest()), False

    def rest(self) -> int:
        return max(self.delay, MINUTE) if self.interruptions >= 2 else 0

    def set_back(self, now: Instant) -> None:
        self.pulsed = None
        self.retry_pulsed = False
        minute = self.zone.minute(now)
        too_far = minute + 180 * MINUTE
        lowered = self.served is not None and self.served > too_far
        if lowered:  # and when it became known with it
            self.served = minute
        if self.schedule is not None:
            if lowered:
                self.mark = minute
            elif self.unstarted and self.mark + MINUTE > too_far:
                known = Instant(minute - MINUTE)
                self.mark = known if self.served is None else max(known, self.served)
        if self.retry_at is not None:
            self.retry_at = Instant(min(self.retry_at, now + self.delay))
        self.resume_pulsed = False
        if self.resume_at is not None:
            self.resume_at = Instant(min(self.resume_at, now + self.rest()))
