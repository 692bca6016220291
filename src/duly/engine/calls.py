"""The calls of initialize() and stop(): their numbers, and what the trace says of them."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from duly.clock import Clock
from duly.core.moments import Instant
from duly.formal.trace import IF, IS, SE, SF, SS, Event


class Notebook(Protocol):
    """Where calls are noted: a journal, or the last message of a host that leaves."""

    def note(self, event: Event) -> None:
        """Write an event to the trace that changes no state."""
        ...


class _Noted(Enum):
    NOWHERE = "no engine has run since the call was made"
    ONCE = "the trace of an engine knows the number, and does not wait for an end"
    OPEN = "the trace of the running engine has the call, and not yet its end"


@dataclass(slots=True)
class _Call:
    kind: type[IS] | type[SS]
    noted: _Noted = _Noted.NOWHERE


class Calls:
    """Calls that have not returned, in call order.

    A call is noted in the trace of the engine that runs when it is made. One that is made while no engine runs, or that
    outlives one, is noted when the next engine begins. `journal` is that of the running engine, None if there is none.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_number = 1
        self._open: dict[int, _Call] = {}
        self._trace_is_closed = False
        self.open_stops = 0
        """Calls of stop() among them."""

    def initialize(self, journal: Notebook | None) -> int:
        """An initialize() was called; returns the number of the call."""
        return self._made(IS, journal)

    def stop(self, journal: Notebook | None) -> int:
        """A stop() was called: nothing starts from here on. Returns the number of the call."""
        self.open_stops += 1
        return self._made(SS, journal)

    def stop_refused(self, journal: Notebook | None, error: str) -> None:
        """A stop() was called where it would wait for itself, and had no effect."""
        if journal is not None:
            journal.note(SF(0, self._now(), self.new_number(), error))

    def is_noted(self, number: int) -> bool:
        """Whether the trace of the running engine has the call."""
        call = self._open.get(number)
        return call is not None and call.noted is _Noted.OPEN

    def goes_first(self, number: int) -> int:
        """An initialize() begins a new engine, and notes itself in its trace; returns the number it does that under.

        An earlier engine's trace that knew the call has closed it: the number is used up.
        """
        call = self._open.pop(number)
        return number if call.noted is _Noted.NOWHERE else self.new_number()

    def engine_begins(self, journal: Notebook) -> None:
        """A new engine runs: note the calls that wait, in the order in which they were made."""
        self._trace_is_closed = False
        for number, call in self._open.items():
            self._note(number, call, journal)

    def took_effect(self, number: int) -> None:
        """An initialize() is on record as an IE."""
        self._open[number].noted = _Noted.ONCE

    def failed(self, number: int, journal: Notebook | None, error: str) -> None:
        """An initialize() had no effect; noted once, and only in a trace that has the call."""
        call = self._open.get(number)
        if journal is not None and call is not None and call.noted is _Noted.OPEN:
            call.noted = _Noted.ONCE
            journal.note(IF(0, self._now(), number, error))

    def returned(self, number: int) -> None:
        """A call has returned, or raised."""
        call = self._open.pop(number, None)
        if call is not None and call.kind is SS:
            self.open_stops -= 1

    def forget(self) -> None:
        """The event loop on which calls were made is gone, and they with it."""
        self._open.clear()
        self.open_stops = 0

    def close(self, journal: Notebook) -> None:
        """A stop() has completed: so has every other that was called by now, and an initialize() begins anew."""
        self._trace_is_closed = True
        open_calls = {number: call for number, call in self._open.items() if call.noted is _Noted.OPEN}
        for number, call in open_calls.items():
            if call.kind is IS:
                self.failed(number, journal, "SchedulerStopped")
        for number, call in open_calls.items():
            if call.kind is SS:
                call.noted = _Noted.ONCE
                journal.note(SE(0, self._now(), number))

    def _made(self, kind: type[IS] | type[SS], journal: Notebook | None) -> int:
        number, call = self.new_number(), _Call(kind)
        self._open[number] = call
        if journal is not None:
            self._note(number, call, journal)
        return number

    def _note(self, number: int, call: _Call, journal: Notebook) -> None:
        call.noted = _Noted.ONCE if self._trace_is_closed else _Noted.OPEN
        if call.noted is _Noted.OPEN:
            journal.note(call.kind(0, self._now(), number))

    def new_number(self) -> int:
        """A number for a call, or for what is told like one: a host that was buried joins again without a call."""
        number, self._next_number = self._next_number, self._next_number + 1
        return number

    def _now(self) -> Instant:
        return Instant(self._clock.now())
