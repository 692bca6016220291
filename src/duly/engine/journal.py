"""Group commit without a timer: what arrives while one batch is being written forms the next.

Latency stays one commit, size follows load. A batch that fails is kept and written again, under its own number, until
it is durable: a fault of the store is reported, delays what waits for it, and loses nothing.

Starts and corrections are given with `commit`, which answers when they are durable. Ends are given with `succeeded` and
`failed`; once they are durable, the journal hands them to be settled. Notes change no state and stand in the trace.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

from duly.core.changes import Batch, Block, Ends, Starts, SuccessBlock
from duly.core.moments import MICROSECONDS
from duly.core.task import Correction, End
from duly.engine import announce
from duly.engine.gate import Gate
from duly.engine.lease import ALWAYS, Lease
from duly.engine.pacing import breathe
from duly.engine.setup import Setup
from duly.engine.trace import NotesOfAHost, Trace
from duly.engine.traffic import Traffic
from duly.errors import StoreError
from duly.events import StoreRecovered
from duly.formal.trace import Event
from duly.stores.port import COMPLETE, Outcome, StoreWriter, TraceRow

FIRST_BACKOFF_SECONDS: Final = 0.1
LONGEST_BACKOFF_SECONDS: Final = 30.0
LONGEST_IMPATIENT_SECONDS: Final = 1.0
BATCH_CHANGES_MAX: Final = 20_000
SHARED_FAILURES_MAX: Final = 500
"""Failures of one batch on a shared store: each may carry 12 KiB of text, and other hosts wait while it is written."""

BURST_ENDS_MIN: Final = 32
"""From this many waiting ends on it is a burst, and waiting for more pays off."""

GATHERED_ENDS_MAX: Final = 5_000
GATHERING_SECONDS_MAX: Final = 0.05
"""A crash repeats runs whose ends still wait here, so they wait 50 ms at most."""

QUIET_ROUNDS_MAX: Final = 2
"""Stop waiting after this many rounds of the event loop without a new end."""

Granted = Starts | None
"""The starts that are durable; None when they were withdrawn before their commit began."""

Asked = tuple[Starts | Correction, "asyncio.Future[Granted]"]


class Journal:
    """The way of every change to the store."""

    def __init__(
        self,
        setup: Setup,
        recorder: StoreWriter,
        gate: Gate,
        traffic: Traffic,
        trace: Trace | NotesOfAHost | None = None,
        *,
        first_number: int,
        lease: Lease = ALWAYS,
    ) -> None:
        self.still = asyncio.Lock()
        """Held from the taking of a batch until its ends are settled; nothing is written while another holds it."""
        self._recorder = recorder
        self._lease = lease
        self._clock = setup.clock
        self._outbox = setup.outbox
        self._gate = gate
        self._traffic = traffic
        self._trace = trace
        self._number = first_number
        self._ends = Ends()
        self._asked: list[Asked] = []
        self._notes: list[Event] = []
        self._bell = asyncio.Event()
        """Wakes the writer: new work does while it is idle, `hurry` while it waits to repeat a failed write."""
        self._tried = asyncio.Event()
        """Set when an attempt failed, when one succeeded after that, and when nothing is left; a waiter clears it."""
        self._notes_at_hand: list[Event] | None = None
        """The notes of the batch at hand, until they are on record; None when no batch is being written or settled."""
        self._impatient = False
        self.fault: Exception | None = None
        """Why the batch at hand is not durable yet; None when the last write succeeded."""

    # --- what is to be written ---------------------------------------------------------------------------------------

    def commit(self, changes: Starts | Correction) -> "asyncio.Future[Granted]":
        """Write starts, or a correction, with the next batch; the future is done when they are durable."""
        answer: asyncio.Future[Granted] = asyncio.get_running_loop().create_future()
        self._asked.append((changes, answer))
        self._ring()
        return answer

    def succeeded(self, returned: SuccessBlock) -> None:
        """Write the ends of callbacks that returned."""
        self._ends.add(returned)
        self._ring()

    def failed(self, end: End) -> None:
        """Write the end of a callback that raised."""
        self._ends.add(end)
        self._ring()

    def note(self, event: Event) -> None:
        """Write an event to the trace that changes no state; dropped if there is no trace."""
        if self._trace is not None:
            self._notes.append(event)
            self._ring()

    def next_number(self) -> int:
        """A number for a call to the store, one higher than any before."""
        number, self._number = self._number, self._number + 1
        return number

    def _ring(self) -> None:
        # While the store fails the writer is awake, and a new change does not shorten its backoff.
        if self.fault is None:
            self._bell.set()

    # --- how far it is -----------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether anything waits to be written, is being written, or is being settled."""
        return self._notes_at_hand is not None or self._has_work()

    def hurry(self) -> None:
        """Repeat a failed write at once, and from now on within a second."""
        self._impatient = True
        self._bell.set()

    async def progress(self, deadline: float) -> bool:
        """Wait until nothing is left to write, or an attempt fails; False if the deadline passed before.

        The deadline is in elapsed seconds.
        """
        left = deadline - self._clock.elapsed()
        if left <= 0:
            return False
        self._tried.clear()
        # One microsecond more: where time is simulated, a wait for less than one would never end.
        await self._clock.sleep_until(self._clock.now() + int(left * MICROSECONDS) + 1, self._tried)
        return True

    async def failing(self) -> Exception:
        """Wait until a write fails that was repeated at once; returns its fault."""
        while True:
            while self.fault is None:
                await self._next_attempt()
            self._bell.set()
            await self._next_attempt()
            if self.fault is not None:
                return self.fault

    @contextlib.asynccontextmanager
    async def holding(self, lock: asyncio.Lock) -> AsyncIterator[None]:
        """Hold a lock that another may hold until a write succeeds; raises the store's fault if it fails now."""
        event_loop = asyncio.get_running_loop()
        acquiring = event_loop.create_task(lock.acquire())
        failing = event_loop.create_task(self.failing())
        try:
            await asyncio.wait({acquiring, failing}, return_when=asyncio.FIRST_COMPLETED)
            if not acquiring.done():
                raise failing.result()
        except BaseException:
            if acquiring.done():
                lock.release()
            acquiring.cancel()
            raise
        finally:
            failing.cancel()
        try:
            yield
        finally:
            lock.release()

    async def flush_notes(self) -> None:
        """Return when all that was noted so far is on record; raises the store's fault if it fails now."""
        while self._notes or self._notes_at_hand:
            was_failing = self.fault is not None
            self._bell.set()
            await self._next_attempt()
            if was_failing and self.fault is not None:
                raise self.fault

    async def _next_attempt(self) -> None:
        self._tried.clear()
        await self._tried.wait()

    # --- the writer --------------------------------------------------------------------------------------------------

    async def run(self, settle: Callable[[Ends], Awaitable[None]], fence: Callable[[Ends], None]) -> None:
        """Write batch after batch, and have durable ends settled, and lost ones fenced off, until cancelled."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            while self._has_work():
                await self._gather()
                try:
                    async with self.still:
                        await self._write_next(settle, fence)
                except Exception as fault:  # a defect of ours must not end the journal
                    self._outbox.unexpected(fault)
                self._notes_at_hand = None
            self._tried.set()

    def _has_work(self) -> bool:
        return bool(self._ends.count or self._asked or self._notes)

    async def _gather(self) -> None:
        """In a burst, while callbacks end in nearly every round of the event loop, let ends come together.

        What was committed is written at once, with the ends that are there. If more starts are about to be committed,
        the ends wait for them.
        """
        quiet, until = 0, self._clock.elapsed() + GATHERING_SECONDS_MAX
        while not self._asked and not self._impatient and self._ends.count >= BURST_ENDS_MIN:
            known = self._ends.count
            comes_more = known < GATHERED_ENDS_MAX and quiet < QUIET_ROUNDS_MAX and self._traffic.under_way
            if not (comes_more or self._traffic.starts_follow) or self._clock.elapsed() >= until:
                break
            await breathe()
            quiet = 0 if self._ends.count > known else quiet + 1

    async def _write_next(self, settle: Callable[[Ends], Awaitable[None]], fence: Callable[[Ends], None]) -> None:
        ends, self._ends = self._ends, Ends()
        fitting = ends.count if self._lease is ALWAYS else ends.count_up_to(SHARED_FAILURES_MAX)
        if ends.count > (most := min(fitting, BATCH_CHANGES_MAX)):
            ends, self._ends = ends.split(most)
        notes, self._notes = self._notes, []
        self._notes_at_hand = notes
        blocks, granted = self._take_asked(ends)
        batch = Batch(blocks)
        rows: Iterable[TraceRow] = () if self._trace is None else self._trace.rows_of(batch, notes)
        kept = rows if self._trace is not None and self._trace.kept else ()
        outcome = await self._write(batch, kept) if blocks or (notes and kept) else COMPLETE
        if self._trace is not None and outcome is not None:
            self._trace.became_durable(rows, outcome.refused)
        self._notes_at_hand = []
        for changes, answer in granted:
            if not answer.done():
                answer.set_result(None if outcome is None else _without(outcome, changes))
        if outcome is None:
            fence(ends)
            return
        if outcome.fenced:
            lost, ends = ends.divide(outcome.fenced)
            fence(lost)
        if ends.count:
            await settle(ends)

    def _take_asked(self, ends: Ends) -> tuple[list[Block], list[Asked]]:
        """The blocks of the next batch: ends, then what was asked for and still may be granted."""
        asked, self._asked = self._asked, []
        blocks: list[Block] = list(ends.blocks)
        granted: list[Asked] = []
        for changes, answer in asked:
            if isinstance(changes, Correction):
                blocks.append(changes)
                granted.append((changes, answer))
            elif self._gate.open:
                blocks += changes.blocks
                granted.append((changes, answer))
            elif not answer.done():
                answer.set_result(None)  # a stop overtook it before its commit began (SPEC 4.3)
        return blocks, granted

    async def _write(self, batch: Batch, trace: Iterable[TraceRow]) -> Outcome | None:
        """Write a batch, again and again if need be; None: the lease is lost, and nothing is recorded any more."""
        number = self.next_number()
        attempts = 0
        backoff = FIRST_BACKOFF_SECONDS
        while not self._lease.lost:
            attempts += 1
            try:
                self._traffic.at_the_store = True
                outcome = await self._recorder.write(batch, number, trace)
            except Exception as fault:
                if self._lease.lost:
                    break
                self.fault = fault
                self._tried.set()
                if attempts == 1:
                    announce.store_fault(self._outbox, "write", fault, int(backoff * 1000))
            else:
                if self.fault is not None:
                    self.fault = None
                    self._tried.set()
                    self._outbox.emit(StoreRecovered("write", attempts))
                return outcome
            finally:
                self._traffic.at_the_store = False
            self._bell.clear()
            await self._clock.sleep_until(self._clock.now() + int(backoff * MICROSECONDS), self._bell)
            backoff = min(2 * backoff, self._longest_backoff())
        self.fault = None
        self._tried.set()
        return None

    def _longest_backoff(self) -> float:
        """A server that restarts is back at any moment; a disk that is full, or a right that is missing, is not."""
        restarts = self._lease is not ALWAYS and not (
            isinstance(self.fault, StoreError) and self.fault.details.get("permanent")
        )
        return LONGEST_IMPATIENT_SECONDS if self._impatient or restarts else LONGEST_BACKOFF_SECONDS


def _without(outcome: Outcome, changes: Starts | Correction) -> Starts:
    """The starts that the store did not refuse, with the fence that it gave them."""
    if isinstance(changes, Correction):
        return Starts()
    if outcome.refused:
        changes = Starts(each for each in changes.singles() if each.run not in outcome.refused)
    changes.fence = outcome.fence
    return changes
