"""Group commit without a timer: what arrives while one batch is being written forms the next.

Latency stays one commit, size follows load. A batch that fails is kept and written again, under its own number, until
it is durable: a fault of the store is reported, delays what waits for it, and loses nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from duly.clock import Clock, breathe
from duly.core.changes import Batch, Block, Ends, Starts
from duly.core.moments import MICROSECONDS, Instant
from duly.core.task import Correction, End, Grounds, Task
from duly.engine.sink import Sink
from duly.engine.trace import Observer
from duly.events import StoreFault, StoreRecovered
from duly.stores.port import Store, TraceRow

FIRST_BACKOFF_SECONDS: Final = 0.1
LONGEST_BACKOFF_SECONDS: Final = 30.0
LONGEST_IMPATIENT_SECONDS: Final = 1.0
BATCH_CHANGES_MAX: Final = 20_000
BURST_ENDS_MIN: Final = 32
"""So many ends at once are a burst, of which more will come."""

GATHERED_ENDS_MAX: Final = 5_000
GATHERING_SECONDS_MAX: Final = 0.05
"""A crash repeats what has ended and is not durable: that may not be waited with for long."""

QUIET_ROUNDS_MAX: Final = 2
"""Rounds of the event loop without an end after which no more are waited for."""

Granted = Starts | None
"""The starts that are durable; None when the batch was withdrawn before its commit began."""


class Journal:
    """The way of every change to the store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        sink: Sink,
        *,
        first_number: int,
        starts_allowed: Callable[[], bool],
        ended: Callable[[Ends], Awaitable[None]],
        more_ends: Callable[[], bool] = lambda: False,
        starts_follow: Callable[[], bool] = lambda: False,
        observer: Observer | None = None,
        traced: bool = False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sink = sink
        self._number = first_number
        self._starts_allowed = starts_allowed
        self._ended = ended
        self._more_ends = more_ends
        self._starts_follow = starts_follow
        self._observer = observer
        self._traced = traced
        self._notes: list[TraceRow] = []
        self._noting = False
        self._ends = Ends()
        self._asked: list[tuple[Starts | Correction, asyncio.Future[Granted]]] = []
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._writing = self.at_the_store = False
        self.drained = asyncio.Event()
        """Set when nothing is left to write; who waits for it clears it first."""
        self.impatient = False
        """Somebody waits for the last write: try often."""
        self.trouble = asyncio.Event()
        """Set while the batch at hand cannot be written."""
        self._attempted = asyncio.Event()
        self.fault: Exception | None = None
        """Why the batch at hand is not durable yet; None when the last write succeeded."""

    def next_number(self) -> int:
        """A number for a call to the store, one higher than any before."""
        number, self._number = self._number, self._number + 1
        return number

    def record(self, end: End) -> None:
        """Have an end written with the next batch."""
        self._work.set()
        self._ends.add(end)

    def succeeded(self, task: Task, run: int, grounds: Grounds, at: Instant) -> None:
        """The same for the end of a callback that returned, of which there are many."""
        if not self._ends.blocks:
            self._work.set()
        self._ends.succeeded(task, run, grounds, at)

    def note(self, *row: Any) -> None:
        """Have something observable written to the trace that changes no state; nothing is kept unless it is wanted."""
        if self._observer is not None:
            self._notes.append(row)
            self._work.set()

    async def commit(self, changes: Starts | Correction) -> Granted:
        """Have starts, or a correction, written; returns when they are durable."""
        return await self.submit(changes)

    def submit(self, changes: Starts | Correction) -> "asyncio.Future[Granted]":
        """The same, for a caller that does something else meanwhile."""
        answer: asyncio.Future[Granted] = asyncio.get_running_loop().create_future()
        self._asked.append((changes, answer))
        self._work.set()
        return answer

    @property
    def busy(self) -> bool:
        """Whether anything is being written or waits for that."""
        return self._writing or bool(self._ends.count) or bool(self._asked) or bool(self._notes)

    async def run(self) -> None:
        """Write batch after batch, until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._ends.count or self._asked or self._notes:
                await self._gather()
                try:
                    await self._write_next()
                except Exception as fault:  # a defect of ours must not end the journal
                    self._writing = False
                    self._sink.unexpected(fault)
            self.drained.set()

    def hurry(self) -> None:
        """Do not wait out the present backoff, and none after it for long."""
        self.impatient = True
        self._hurry.set()

    async def acquire(self, lock: asyncio.Lock) -> None:
        """Acquire a lock that may be held by someone who waits for this journal.

        If that cannot write, it tries once more at once; if it still cannot, its fault is raised.
        """
        event_loop = asyncio.get_running_loop()
        acquiring = event_loop.create_task(lock.acquire())
        try:
            while not acquiring.done():
                await _either(acquiring, self.trouble)
                if not acquiring.done():
                    self._attempted.clear()
                    self._hurry.set()
                    await _either(acquiring, self._attempted)
                    if not acquiring.done() and self.fault is not None:
                        raise self.fault
        except BaseException:
            if acquiring.done():
                lock.release()
            acquiring.cancel()
            raise

    async def flush_notes(self) -> None:
        """Return when all that was noted so far is on record; raises the store's fault if that cannot be now."""
        while self._notes or self._noting:
            if self.fault is not None:
                self._attempted.clear()
                self._hurry.set()
                await self._attempted.wait()
                if self.fault is not None:
                    raise self.fault
                continue
            self.drained.clear()
            self._work.set()
            waiting = asyncio.get_running_loop().create_task(self.drained.wait())
            try:
                await _either(waiting, self.trouble)
            finally:
                waiting.cancel()

    async def _gather(self) -> None:
        """In a burst, while callbacks end with nearly each round of the event loop, let their ends come together.

        Nobody who asks for something waits for them: what is asked is written at once, and they with it. If that is
        about to be asked, because the next starts are being decided, they wait for it.
        """
        quiet, until = 0, self._clock.elapsed() + GATHERING_SECONDS_MAX
        while not self._asked and not self.impatient and self._ends.count >= BURST_ENDS_MIN:
            known = self._ends.count
            comes_more = known < GATHERED_ENDS_MAX and quiet < QUIET_ROUNDS_MAX and self._more_ends()
            if not (comes_more or self._starts_follow()) or self._clock.elapsed() >= until:
                break
            await breathe()
            quiet = 0 if self._ends.count > known else quiet + 1

    async def _write_next(self) -> None:
        ends, self._ends = self._ends.split(BATCH_CHANGES_MAX)
        asked, self._asked = self._asked, []
        blocks: list[Block] = list(ends.blocks)
        granted: list[tuple[Starts | Correction, asyncio.Future[Granted]]] = []
        for changes, answer in asked:
            if isinstance(changes, Correction):
                blocks.append(changes)
                granted.append((changes, answer))
            elif self._starts_allowed():
                blocks += changes.blocks
                granted.append((changes, answer))
            elif not answer.done():
                answer.set_result(None)  # a stop overtook it before its commit began (SPEC 4.3)
        batch = Batch(blocks)
        notes, self._notes = self._notes, []
        self._noting = bool(notes)
        rows: Iterable[TraceRow] = () if self._observer is None else self._observer.rows_of(batch, notes)
        trace = rows if self._traced else ()
        self._writing = True
        refused = await self._write(batch, trace) if blocks or (notes and self._traced) else set()
        if self._observer is not None:
            self._observer.durable(rows)
        self._noting = False
        for changes, answer in granted:
            if not answer.done():
                answer.set_result(_granted(changes, refused))
        if ends.count:
            await self._ended(ends)
        # Only now: who waits for the journal to drain waits for all of this.
        self._writing = False

    async def _write(self, batch: Batch, trace: Iterable[TraceRow]) -> set[int]:
        number = self.next_number()
        attempts = 0
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            attempts += 1
            try:
                self.at_the_store = True
                refusals = await self._store.write(batch, number, trace)
            except Exception as fault:
                self.fault = fault
                self.trouble.set()
                self._attempted.set()
                if attempts == 1:
                    self._sink.emit(StoreFault("write", type(fault).__name__, str(fault), int(backoff * 1000)))
            else:
                if self.fault is not None:
                    self.fault = None
                    self.trouble.clear()
                    self._attempted.set()
                    self._sink.emit(StoreRecovered("write", attempts))
                return {refusal.start.run for refusal in refusals}
            finally:
                self.at_the_store = False
            self._hurry.clear()
            await self._clock.sleep_until(self._clock.now() + int(backoff * MICROSECONDS), self._hurry)
            backoff = min(2 * backoff, LONGEST_IMPATIENT_SECONDS if self.impatient else LONGEST_BACKOFF_SECONDS)


def _granted(changes: Starts | Correction, refused: set[int]) -> Starts:
    if isinstance(changes, Correction):
        return Starts()
    if not refused:
        return changes  # as always, unless a store knows better
    return Starts(each for each in changes.singles() if each.run not in refused)


async def _either(work: "asyncio.Task[Any]", event: asyncio.Event) -> None:
    """Wait for a task or an event, whichever comes first."""
    waiting = asyncio.get_running_loop().create_task(event.wait())
    try:
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
