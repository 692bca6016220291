"""The monitor of a host of a shared store: it reads the trace of all hosts while it grows, and judges it.

The log is the trace (docs/decisions/0022), so the monitor reads entries as `duly verify` does, from the newest base on,
and announces what it finds in those that were written since its scheduler joined. It has a thread and a connection of
its own: a base of a million tasks takes seconds, and no write waits for that. Beats tell that there is something new.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import tee
from typing import TYPE_CHECKING, Any, Final

from duly.core.news import LogEntry, Position
from duly.engine import announce
from duly.engine.gate import Gate
from duly.engine.membership import BEATS_OF_A_LEASE
from duly.engine.pacing import give_way
from duly.engine.setup import Setup
from duly.errors import StoreError
from duly.events import StoreRecovered
from duly.stores.shared import SharedFunctions, SharedStore
from duly.stores.shared_trace import Expansion, TracePart, TraceStart, registers_of

if TYPE_CHECKING:  # the checker is as large as the scheduler, and is loaded by hosts that have a monitor
    from duly.formal.monitor import Monitor
    from duly.formal.verdicts import Violation

ENTRIES_TOGETHER: Final = 200
"""Entries that are read and judged at once; one of a burst stands for thousands of starts."""

ROWS_BETWEEN_SLEEPS: Final = 250
"""Events after which the thread of the monitor lets the event loop have the interpreter's lock: about a millisecond."""

ANNOUNCED_MAX: Final = 100
"""Violations that are announced, as with an embedded store: after the first ones they tell little that is new."""

LAST_LOOK_SECONDS_MAX: Final = 10.0
"""How long a stop() lets the monitor judge what is left."""


class SharedMonitor:
    """The monitor of one scheduler, whichever host it is: the part on the event loop."""

    def __init__(self, setup: Setup, shared: SharedStore) -> None:
        self._setup = setup
        self._shared = shared
        self._judge: Judge | None = None
        """Used in the thread of the worker; what it has found is announced on the event loop."""
        self._worker = setup.host.new_worker()
        self._retry_ms = int(1000 * shared.lease.total_seconds() / BEATS_OF_A_LEASE)
        self._heard = 0
        self._looked_at = -1
        """The end of the log, as far as it was known, when the monitor last looked; -1: it has to look again."""
        self._news: asyncio.Event | None = None
        self._failures = 0

    def hear_of(self, seq: int) -> None:
        """A beat was answered: the log goes as far as this."""
        self._heard = seq
        if seq != self._looked_at and self._news is not None:
            self._news.set()

    async def run(self, joined: int, gate: Gate) -> None:
        """Judge the trace while a host runs; `joined` is the entry of its joining."""
        news = self._news = asyncio.Event()  # one for each host: it belongs to the event loop that runs now
        news.set()
        try:
            judge = self._judge = self._judge or Judge(self._shared.connect())
            await self._worker.run(partial(judge.joined, joined))
            while True:
                await news.wait()
                news.clear()
                await self._catch_up(judge)
        finally:
            # After a burial the next host goes on with it, and a stop() lets it finish.
            if gate.abandoned:
                self.close()

    async def finish(self) -> None:
        """Judge what was written up to now, the leaving of this host included; a store that is away is left alone."""
        if self._judge is not None and not self._failures:
            await self._catch_up(self._judge, self._setup.clock.elapsed() + LAST_LOOK_SECONDS_MAX)

    def close(self) -> None:
        """Release thread and connection, after a look that is under way; a later host begins with others."""
        judge, self._judge = self._judge, None
        if judge is not None:
            self._worker.close(judge.close, wait=False)

    async def _catch_up(self, judge: "Judge", deadline: float | None = None) -> None:
        clock, self._looked_at = self._setup.clock, self._heard
        more = True
        while more and (deadline is None or clock.elapsed() < deadline):
            try:
                more = await self._worker.run(judge.look)
            except StoreError as fault:
                if not self._failures:
                    self._tell_fault(fault)
                self._failures += 1
                self._looked_at = -1  # the next beat that is answered has it look again
                return
            finally:
                self._tell(judge)
            if self._failures:
                self._setup.outbox.emit(StoreRecovered("trace", self._failures + 1))
                self._failures = 0

    def _tell(self, judge: "Judge") -> None:
        """Announce what was found, also by a look whose answer nobody waited for."""
        found, unreadable = judge.found, judge.unreadable
        while unreadable:
            self._tell_fault(unreadable.popleft())
        while found:
            announce.violation(self._setup.outbox, found.popleft(), self._setup.clock.zone())

    def _tell_fault(self, fault: Exception) -> None:
        text = str(fault) if isinstance(fault, StoreError) else f"{fault}; nothing is judged until the trace is cut"
        announce.store_fault(self._setup.outbox, "trace", fault, self._retry_ms, text)


class Judge:
    """The part in the thread of the monitor: it reads entries, and feeds them to a `Monitor`."""

    def __init__(self, functions: SharedFunctions) -> None:
        self.found: deque[Violation] = deque()
        """Violations that are to be announced."""
        self.unreadable: deque[Exception] = deque()
        """Why a trace cannot be read on."""
        self._functions = functions
        self._reading: _Reading | None = None
        self._judged: int | None = None
        """The last entry that was judged, or before which nothing is announced."""
        self._announced = 0

    def joined(self, seq: int) -> None:
        """Announce what follows from the entry of a joining on; in a store that was set back, numbers come again."""
        self._judged = seq - 1 if self._judged is None else min(self._judged, seq - 1)

    def look(self) -> bool:
        """Judge the next entries; whether there may be more."""
        if self._reading is None:
            start = self._functions.trace_start()
            if start is None:
                return False
            self._reading = _Reading(start)
        reading = self._reading
        try:
            return self._read_on(reading)
        except StoreError:
            raise
        except Exception as fault:  # an entry that this version of duly did not write: what follows it means nothing
            reading.is_spoilt = True
            self.unreadable.append(fault)
            return True  # a newer base may be there already

    def close(self) -> None:
        """Release the connection."""
        self._functions.close()

    def _read_on(self, reading: "_Reading") -> bool:
        limit = 0 if reading.is_spoilt else ENTRIES_TOGETHER
        part = self._functions.trace_after(reading.position, reading.generation, limit)
        if part is None or (reading.is_spoilt and part.segment != reading.segment):
            self._reading = None  # begin anew, from the newest base
            return True
        reading.learn(part)
        for entry in part.entries:
            found = reading.judge(entry)
            if self._judged is not None and entry.seq > self._judged:
                self._judged = entry.seq
                room = ANNOUNCED_MAX - self._announced
                self.found.extend(found[:room])
                self._announced += len(found[:room])
        return bool(limit) and len(part.entries) == limit


class _Reading:
    """A trace from one base on, as far as it was read."""

    def __init__(self, start: TraceStart) -> None:
        self.segment = start.base.segment
        self.position = start.position
        self.generation = start.generation
        self.is_spoilt = False
        """Whether an entry could not be read: what follows it cannot be judged."""
        self._start: TraceStart | None = start
        self._expansion: Expansion | None = None
        self._monitor: Monitor | None = None

    def learn(self, part: TracePart) -> None:
        """Take in what the entries of a part name."""
        if self._start is not None:
            from duly.formal.monitor import Monitor

            base, self._start = self._start.base, None
            self._expansion = Expansion(base)
            self._monitor = Monitor(registers_of(base), shared=True)
        if self._expansion is not None:
            self._expansion.learn(part.identifiers, part.declarations)
        self.generation = max([self.generation, *part.declarations])

    def judge(self, entry: LogEntry) -> "list[Violation]":
        """Find what an entry violates; the position of that is the number of the entry, which all hosts agree on."""
        expansion, monitor = self._expansion, self._monitor
        assert expansion is not None and monitor is not None
        if entry.seq != self.position.seq + 1:
            raise LookupError(f"the log was cut: entry {self.position.seq + 1} is missing")
        one, other = tee(expansion.rows(entry))
        hosts, rows = (host for host, _ in one), (row for _, row in other)
        monitor.feed(_numbered(rows, monitor.seq + 1), hosts)
        self.position = Position(entry.seq, entry.nonce)
        return [replace(each, seq=entry.seq) for each in monitor.recent]


def _numbered(rows: Iterator[tuple[Any, ...]], first: int) -> Iterator[tuple[Any, ...]]:
    for number, row in enumerate(rows, first):
        yield (row[0], number, *row[1:])
        if number % ROWS_BETWEEN_SLEEPS == 0:
            give_way()
