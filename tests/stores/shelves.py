"""Where tests of readers put stores: a file, or a schema of a real PostgreSQL, made row by row."""

import json
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from duly.core.moments import Instant, as_datetime, instant_of
from duly.core.news import RUNS_OF_A_HOST
from duly.core.record import FIELDS
from duly.stores import PostgresReader, Reader, SqliteReader
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.url import StoreUrl
from duly.stores.sqlite.lock import LockFile
from tests.postgres_server import PostgresServer
from tests.stores.helpers import change
from tests.stores.made import Row, Run, make_store, random_rows
from tests.stores.shared_stores import PostgresStoreUnderTest

AT = instant_of(datetime(2024, 5, 1, 12, 30, 20, tzinfo=UTC))
"""The moment at which these stores are read."""


class Shelf(Protocol):
    """A place for one store."""

    def put(
        self,
        rows: Sequence[Row],
        runs: Iterable[Run] = (),
        *,
        schedulers: Sequence[int] = (0,),
        held: bool = False,
        zone: str = "UTC",
    ) -> Reader:
        """Make a store with these tasks and runs; `held`: the last of the schedulers is running."""
        ...

    def change(self, statement: str) -> None:
        """Change what is there, as nothing but a careless hand would."""
        ...


class SqliteShelf:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "state.db"
        self._lock: LockFile | None = None

    def put(
        self,
        rows: Sequence[Row],
        runs: Iterable[Run] = (),
        *,
        schedulers: Sequence[int] = (0,),
        held: bool = False,
        zone: str = "UTC",
    ) -> Reader:
        make_store(self.path, rows, runs, schedulers=schedulers, zone=zone)
        if held:
            self._lock = LockFile(str(self.path))
            self._lock.acquire(as_datetime(Instant(schedulers[-1]), UTC))
        return SqliteReader(self.path, lambda: AT)

    def change(self, statement: str) -> None:
        change(self.path, statement)

    def clear(self) -> None:
        if self._lock is not None:
            self._lock.release()


class PostgresShelf:
    """A schema of a server, which is emptied after each test."""

    def __init__(self, server: PostgresServer) -> None:
        self._store = PostgresStoreUnderTest(server)
        self.url: StoreUrl = self._store.url
        self._reader = PostgresReader(self.url, now=lambda: AT, connections_kept=1)

    def put(
        self,
        rows: Sequence[Row],
        runs: Iterable[Run] = (),
        *,
        schedulers: Sequence[int] = (0,),
        held: bool = False,
        zone: str = "UTC",
    ) -> Reader:
        tasks: list[Sequence[Any]] = []
        states: list[Sequence[Any]] = []
        for generation, row in enumerate(rows, 1):
            tasks.append((generation, row.name, row.cron, row.delay_ms, row.known_since, row.retired_at))
            if row.retired_at is None:
                state = {name: getattr(row, name) for name in FIELDS[5:]}
                if held and row.run is not None:  # of a host; otherwise of an embedded store that was copied
                    state["run"] = row.written_by * RUNS_OF_A_HOST + row.run
                states.append((generation, *state.values(), 0))
        history = [(seq, *run[:2], 0, *run[2:]) for seq, run in enumerate(runs, 1)]
        hosts = [
            (
                key,
                f"{key:032x}",
                f"label {key}",
                since,
                1,
                *((AT, None) if held and key == len(schedulers) else (since, "l")),
            )
            for key, since in enumerate(schedulers, 1)
        ]
        self._insert("tasks (generation, name, cron, delay_ms, known_since, retired_at)", "bttbbb", tasks)
        columns = ", ".join(("generation", *FIELDS[5:], "changed"))
        kinds = "".join("t" if name == "run_cause" else "b" for name in ("generation", *FIELDS[5:], "changed"))
        self._insert(f"states ({columns})", kinds, states)
        self._insert(
            "runs (seq, run, generation, host, cause, scheduled, started_at, ended_at, outcome, error)",
            "bbbbtbbbtt",
            history,
        )
        self._insert(
            "hosts (key, identifier, label, since, edition, renewed_at, gone, lease, beat, seen)",
            "butbbmc",
            hosts,
            ", interval '30 s', 0, 0",
        )
        self.change("insert into editions values (1, 'x', timestamptz 'epoch')")
        self.change(f"update cluster set generation = {len(rows)}, edition = 1, zone = '{zone}'")
        self.change("analyze")
        return self._reader

    def _insert(self, table: str, kinds: str, rows: Sequence[Sequence[Any]], more: str = "") -> None:
        conversions = {
            "t": "each ->> {}",
            "b": "(each ->> {})::bigint",
            "u": "(each ->> {})::uuid",
            "c": '(each ->> {})::"char"',
            "m": "timestamptz 'epoch' + (each ->> {})::bigint * interval '1 microsecond'",
        }
        values = ", ".join(conversions[kind].format(place) for place, kind in enumerate(kinds))
        given = self.connection.literal(json.loads(json.dumps(rows)))
        self.change(f"insert into {table} select {values}{more} from jsonb_array_elements({given}) as a(each)")

    @property
    def connection(self) -> Connection:
        return self._store.connection

    def change(self, statement: str) -> None:
        here = f"set search_path = {self.connection.schema}"
        self.connection.send(f"{here}; {statement}; reset search_path", limit_seconds=60)

    def clear(self) -> None:
        self._store.empty()

    def close(self) -> None:
        self._reader.close()
        self.connection.close()


def put_mixed(shelf: Shelf, seed: int = 7, *, held: bool = True) -> Reader:
    """A store with tasks in every phase; of two schedulers, the second one may be running."""
    rows = random_rows(random.Random(seed), AT, 300)
    return shelf.put(rows, schedulers=(0, 1), held=held)
