"""The lives of schedulers with a store, without any scheduler: changes by the pure core, written, and read back."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duly import parse_cron
from duly.core.changes import Batch
from duly.core.moments import Delay, Instant, Minute, begin
from duly.core.record import FIELDS
from duly.core.registration import RunsOn
from duly.core.resolution import NO_MARKS, Mark, Orphan, Override, Resolution
from duly.core.task import (
    Change,
    Correction,
    End,
    Owed,
    Running,
    Start,
    Task,
    fail,
    grounds_for,
    newly_declared,
    succeed,
)
from duly.stores import Persisted, Replacement, SqliteStore, Store
from duly.stores.port import COMPLETE
from tests.core.helpers import stored_tasks
from tests.stores.helpers import query

NOON = Minute(1_704_110_400)  # 2024-01-01T12:00Z
AT_NOON = begin(NOON)
HOUR = 3600
DELAY = Delay(300_000)


def at(minute: int, seconds: float = 0) -> Instant:
    """An instant within a minute."""
    return Instant(minute * 1_000_000 + int(seconds * 1_000_000))


class Place:
    """Where a store under test keeps its state, and how to look at what the port does not show."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self._shared = SqliteStore(":memory:") if path == ":memory:" else None

    def store(self, *, history: int = 100_000) -> SqliteStore:
        """A store on this place; what is in memory lives in one object."""
        if self._shared is not None:
            self._shared.history = history
            return self._shared
        return SqliteStore(self.path, history=history)

    def runs(self) -> list[tuple[Any, ...]]:
        """The run records, oldest first."""
        statement = (
            "SELECT run, generation, cause, scheduled, started_at, ended_at, outcome, error FROM runs ORDER BY seq"
        )
        if self._shared is None:
            return query(self.path, statement)
        assert self._shared._connection is not None
        return self._shared._connection.execute(statement).fetchall()


@dataclass
class Life:
    """One scheduler's time with a store: numbers its calls, applies to tasks in memory what it has written."""

    store: Store
    persisted: Persisted
    now: Instant
    number: int = field(init=False)

    def __post_init__(self) -> None:
        self.number = self.persisted.next_number

    async def declare(
        self,
        *,
        added: Sequence[Task] = (),
        overridden: Sequence[tuple[Task, Task]] = (),
        orphaned: Sequence[Task] = (),
        marks: Mapping[str, Mark] = NO_MARKS,
        correction: Correction | None = None,
        zone: str = "UTC",
    ) -> None:
        """The replacement of an initialize() in the store."""
        resolution = Resolution(
            self.now,
            added=list(added),
            overridden=[Override(old, old.state, new, ()) for old, new in overridden],
            orphaned=[Orphan(task, None, ()) for task in orphaned],
            marks=dict(marks),
        )
        await self.store.replace(Replacement(resolution, correction, zone, self.now), self.take_number())

    async def write(self, *changes: Change) -> None:
        """One batch."""
        assert await self.store.write(Batch.of(changes), self.take_number()) == COMPLETE

    def take_number(self) -> int:
        """The number of the next call."""
        number, self.number = self.number, self.number + 1
        return number


@contextlib.asynccontextmanager
async def living(store: Store, identifier: str = "first", now: Instant = AT_NOON) -> AsyncIterator[Life]:
    """Own a store for a while."""
    life = Life(store, await store.open(identifier, now), now)
    try:
        yield life
    finally:
        await store.close()


async def found(place: Place) -> dict[str, Any]:
    """The tasks that the next scheduler would find: name to record, checked and converted."""
    async with living(place.store(), "visitor") as life:
        return {record.name: record for record in stored_tasks(life.persisted.records)}


async def rows_of(place: Place) -> list[dict[str, Any]]:
    """The content that the next scheduler would find, field by field."""
    async with living(place.store(), "visitor") as life:
        rows = [dict(zip(FIELDS, row, strict=True)) for block in life.persisted.records for row in block.rows()]
        return sorted(rows, key=lambda row: int(row["generation"]))


async def nothing() -> None:
    """A callback that is never called here."""


def task(
    generation: int, name: str | None = None, *, cron: str = "* * * * *", delay: Delay = DELAY, mark: Minute = NOON
) -> Task:
    """A task as resolve() makes them."""
    return Task(
        generation, name or f"task {generation}", parse_cron(cron), delay, newly_declared(mark), nothing, RunsOn.LOOP
    )


def start(each: Task, run: int, now: Instant, *, earliest: Minute | None = None) -> Start:
    """The start that a task owes now, applied in memory as the loop does once it is durable."""
    minute = Minute(now // 1_000_000 - now // 1_000_000 % 60)
    owed = None
    if minute > each.state.served_through:
        owed = Owed(earliest or minute, minute)
    grounds = grounds_for(each.state, owed, now, minute)
    assert grounds is not None
    each.state = grounds.after
    return Start(each, run, grounds)


def ended(begun: Start, now: Instant, error: str | None = None) -> End:
    """The end of a run, applied in memory."""
    state = begun.task.state
    assert isinstance(state, Running)
    if error is None:
        begun.task.state = succeed(state, now)
        return End(begun.task, begun.run, begun.grounds, now)
    after = begun.task.state = fail(state, now, begun.task.delay)
    return End(begun.task, begun.run, begun.grounds, now, error, after.pending_retry_until, after.failures)
