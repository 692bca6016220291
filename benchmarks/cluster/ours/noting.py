"""A PostgreSQL store that notes when ends were durable, how many starts were refused, and the shortest write."""

import time
from collections.abc import Sequence
from datetime import timedelta

from duly.core.news import Changes, Note, Position
from duly.stores import PostgresStore
from duly.stores.postgres.functions import PostgresFunctions
from duly.stores.shared import (
    Arrival,
    BeatAnswer,
    EditionAnswer,
    EditionRequest,
    HostIdentity,
    News,
    SharedContent,
    SharedFunctions,
    WriteAnswer,
)
from duly.stores.shared_trace import TracePart, TraceStart


class Notes:
    """The notes of a host."""

    def __init__(self) -> None:
        self.writes = 0
        self.starts = 0  # granted
        self.refused = 0
        self.ends = 0
        self.durable_at = 0.0  # time() when the last write with an end had been answered
        self.shortest_s = float("inf")  # that a write took, from the request to the answer

    def take(self, changes: Changes, answer: WriteAnswer, took: float) -> None:
        """Note a write that was answered."""
        asked = sum(len(block.generations) for block in changes.starts)
        ends = sum(len(block.runs) for block in changes.ends)
        self.writes += 1
        self.starts += asked - len(answer.refused)
        self.refused += len(answer.refused)
        self.ends += ends
        self.shortest_s = min(self.shortest_s, took)
        if ends:
            self.durable_at = time.time()


class NotingStore:
    """The PostgreSQL store as it is, with these notes."""

    def __init__(self, url: str, *, schema: str, lease: timedelta, label: str | None = None) -> None:
        self._store = PostgresStore(url, schema=schema, lease=lease, label=label)
        self.name, self.lease, self.label = self._store.name, lease, label
        self.notes = Notes()

    def connect(self) -> SharedFunctions:
        """A connection whose writes are noted."""
        return _Noting(self._store.connect(), self.notes)

    def connect_for_beats(self) -> SharedFunctions:
        """A connection for beats."""
        return self._store.connect_for_beats()

    def install(self) -> None:
        """Create the tables."""
        self._store.install()


class _Noting:
    def __init__(self, functions: PostgresFunctions, notes: Notes) -> None:
        self._functions = functions
        self._notes = notes

    def write(self, me: HostIdentity, number: int, seen: Position, changes: Changes) -> WriteAnswer:
        begun = time.perf_counter()
        answer = self._functions.write(me, number, seen, changes)
        self._notes.take(changes, answer, time.perf_counter() - begun)
        return answer

    def beat(self, me: HostIdentity, seen: Position, held: int = 0, fault: str | None = None) -> BeatAnswer:
        return self._functions.beat(me, seen, held, fault)

    def bury(self, me: HostIdentity, who: int, beat: int | None) -> int | None:
        return self._functions.bury(me, who, beat)

    def arrive(self, identifier: str, arrivals: Sequence[Arrival]) -> None:
        self._functions.arrive(identifier, arrivals)

    def replace(self, request: EditionRequest) -> EditionAnswer:
        return self._functions.replace(request)

    def leave(self, me: HostIdentity, notes: Sequence[Note] = ()) -> int | None:
        return self._functions.leave(me, notes)

    def news(self, seen: Position, limit: int = 1_000) -> News:
        return self._functions.news(seen, limit)

    def load(self) -> SharedContent:
        return self._functions.load()

    def trace_start(self) -> TraceStart | None:
        return self._functions.trace_start()

    def trace_after(self, seen: Position, generation: int, limit: int) -> TracePart | None:
        return self._functions.trace_after(seen, generation, limit)

    def close(self) -> None:
        self._functions.close()
