"""A store that fails on demand: a wrapper round any store, and every kind of fault there is (FORMAL D2).

Operations are counted across all schedulers of a history, so a fault is a number and a kind, and a history that
meets the same operations meets the same faults.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from duly.core.changes import Batch
from duly.core.moments import MICROSECONDS, Instant
from duly.errors import StoreError
from duly.stores.port import Outcome, Persisted, Replacement, Store, TraceRow
from duly.testing import SimulatedHost

T = TypeVar("T")


class Kind(Enum):
    """Faults of an operation of a store, and to the process that asked for it."""

    CRASH_BEFORE = "the process dies, and nothing of the operation is durable"
    CRASH_AFTER = "the process dies when the operation is durable, before anybody hears of it"
    REFUSED = "the operation fails, and has not been applied"
    UNACKNOWLEDGED = "the operation has been applied, and is reported as failed"
    SLOW = "the operation takes its time, and then succeeds"
    HUNG = "the operation hangs for long; what it asked for happens at the end"
    HUNG_AFTER = "the operation is durable, and its answer hangs for long"
    FROZEN = "the whole process stands still for a while, in the middle of the operation"
    STEPPED = "the wall clock is set while the operation is under way"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; `seconds` is how long it lasts, or how far the clock is set."""

    kind: Kind
    seconds: int = 0

    def __repr__(self) -> str:
        return f"Fault({self.kind}, {self.seconds})"


@dataclass
class Faults:
    """The plan of a history: which operation, counted from 0, meets which fault; and what came of it."""

    host: SimulatedHost
    planned: Mapping[int, Fault]
    died: Callable[[], None]
    looks: Callable[[], None] = lambda: None
    """Called before every operation."""
    operations: int = 0
    met: Counter[Kind] = field(default_factory=Counter)
    calm: bool = False
    """From here on nothing fails."""

    def next(self) -> Fault | None:
        """Count an operation, and say what happens to it."""
        self.looks()
        fault = None if self.calm else self.planned.get(self.operations)
        self.operations += 1
        if fault is not None:
            self.met[fault.kind] += 1
        return fault


class FaultyStore:
    """The wrapper. A process that has died gets no answer, and changes nothing any more."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults
        self._dead = False

    async def open(self, identifier: str, at: Instant) -> Persisted:
        """The store's own, or a fault; after one, nothing is owned."""
        return await self._suffer(lambda: self._store.open(identifier, at), undo=self._store.close)

    async def replace(self, replacement: Replacement, number: int) -> None:
        """The store's own, or a fault."""
        await self._suffer(lambda: self._store.replace(replacement, number))

    async def has_replaced(self, number: int) -> bool:
        """The store's own read: where writing fails, reading often still works."""
        return await self._alive(lambda: self._store.has_replaced(number))

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        """The store's own, or a fault."""
        return await self._suffer(lambda: self._store.write(batch, number, trace))

    def touch(self) -> None:
        """The store's own: it never fails."""
        self._store.touch()

    async def close(self) -> None:
        """The store's own: it never fails."""
        if not self._dead:
            await self._store.close()

    def abandon(self) -> None:
        """Release everything; what hangs is never applied."""
        self._dead = True
        self._store.abandon()

    async def _suffer(
        self, operate: Callable[[], Awaitable[T]], undo: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        self._dead = False if undo is not None else self._dead  # a store that is opened again is alive
        fault = self._faults.next()
        kind = fault.kind if fault is not None else None
        if fault is None or kind is None:
            return await self._alive(operate)
        if kind is Kind.CRASH_BEFORE:
            await self._die()
        elif kind is Kind.REFUSED:
            raise StoreError("refused on demand", store="simulated", operation="simulated")
        elif kind in (Kind.SLOW, Kind.HUNG):
            await self._wait(fault.seconds)
        elif kind is Kind.FROZEN:
            self._faults.host._clock.pass_by(fault.seconds * MICROSECONDS)
        elif kind is Kind.STEPPED:
            self._step(fault.seconds)
        answer = await self._alive(operate)
        try:
            if kind is Kind.CRASH_AFTER:
                await self._die()
            elif kind is Kind.HUNG_AFTER:
                await self._wait(fault.seconds)
            elif kind is Kind.UNACKNOWLEDGED:
                raise StoreError("applied, and reported as failed on demand", store="simulated", operation="simulated")
        except BaseException:
            if undo is not None and not self._dead:
                await undo()
            raise
        return answer

    async def _alive(self, operate: Callable[[], Awaitable[T]]) -> T:
        if self._dead:
            raise StoreError("this store was abandoned", store="simulated", operation="simulated")
        return await operate()

    async def _wait(self, seconds: int) -> None:
        await self._faults.host._clock.sleep(seconds * MICROSECONDS, asyncio.Event())

    def _step(self, seconds: int) -> None:
        clock = self._faults.host._clock
        clock.wall = Instant(clock.wall + seconds * MICROSECONDS)

    async def _die(self) -> None:
        """The process dies at this very step: whatever is in memory takes not one step more."""
        self._faults.died()
        await asyncio.get_running_loop().create_future()
