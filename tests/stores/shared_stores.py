"""The shared stores that tests compare: the pure object, and PostgreSQL with a clock that the test moves."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from duly.core.moments import Instant
from duly.stores.port import View
from duly.stores.postgres.connection import SNAPSHOT, Connection
from duly.stores.postgres.entries import entry_of
from duly.stores.postgres.functions import PostgresFunctions
from duly.stores.postgres.install import install
from duly.stores.postgres.reader import PostgresReader
from duly.stores.postgres.url import read_url
from duly.testing.shared import SharedMemory
from tests.postgres_server import PostgresServer
from tests.stores.shared_hosts import NOON

_schemas = count(1)

ORDERS = {
    "editions": "edition",
    "hosts": "key",
    "holds": "host, since",
    "tasks": "generation",
    "states": "generation",
    "strays": 'name collate "C"',
    "marks": 'name collate "C"',
    "runs": "seq",
    "log": "seq",
    "bases": "segment",
    "base_tasks": "segment, generation",
    "base_hosts": "segment, key",
    "base_strays": "segment, name",
    "base_marks": "segment, name",
    "arriving": "host, place",
}
MOMENTS = {"since", "renewed_at", "edition_alone_since", "at"}
TEST_CLOCK = "select coalesce(nullif(current_setting('duly.now', true), ''), '0')::bigint"


def lines_of_view(view: View) -> list[bytes]:
    """The trace that a store holds."""
    stored = view.trace()
    return [] if stored is None else list(view.trace_lines(stored))


class MemoryStoreUnderTest(SharedMemory):
    """The pure object, with a clock that the test moves and nonces that it may choose."""

    def __init__(self) -> None:
        self.now = NOON
        self.next_nonce: str | None = None
        self._nonces: Iterator[int] = count(1)
        super().__init__(lambda: self.now, self._nonce)

    def _nonce(self) -> str:
        return self.next_nonce or f"{next(self._nonces):032x}"


class PostgresStoreUnderTest(PostgresFunctions):
    """A schema of its own on a server, whose functions read a clock that the test moves."""

    def __init__(self, server: PostgresServer, schema: str | None = None) -> None:
        self.url = read_url(server.url(), schema or f"duly {next(_schemas)}")
        self.connection = Connection(self.url)
        super().__init__(self.connection)
        install(self.connection, self.url)
        here = self.connection.schema
        self.connection.send(
            f"create or replace function {here}.clock_1() returns bigint language sql volatile as $$ {TEST_CLOCK} $$",
            limit_seconds=15,
        )
        parts = ", ".join(
            f"'{table}', (select coalesce(json_agg({self._row(table)} order by {order}), '[]') from {table})"
            for table, order in ORDERS.items()
        )
        dump = f"select json_build_object('cluster', (select json_agg({self._row('cluster')}) from cluster), {parts})"
        self.connection.send(  # a function is planned once, and asked thousands of times
            f"create or replace function {here}.all_tables() returns json language plpgsql as "
            f"$$ begin return ({dump}); end $$",
            limit_seconds=15,
        )
        self.now = NOON

    @property
    def now(self) -> Instant:
        return self._now

    @now.setter
    def now(self, instant: Instant) -> None:
        self._now = instant
        self.connection.send(f"set duly.now = {instant}", limit_seconds=15)

    def _row(self, table: str) -> str:
        columns = self.connection.send(
            "select attname, atttypid::regtype from pg_attribute "
            f"where attrelid = '{self.connection.schema}.{table}'::regclass and attnum > 0 order by attnum",
            limit_seconds=15,
        )[0]
        kinds = {
            "timestamp with time zone": "(extract(epoch from {}) * 1000000)::bigint",
            "interval": "(extract(epoch from {}) * 1000000)::bigint",
            "uuid": "replace({}::text, '-', '')",
            "bytea": "encode({}, 'hex')",
            "bigint[]": "{}::text",
        }
        return (
            "json_build_object(" + ", ".join(f"'{n}', {kinds.get(k or '', '{}').format(n)}" for n, k in columns) + ")"
        )

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        asked = self.connection.read("select all_tables()", begin=SNAPSHOT, within_schema=True, limit_seconds=15)
        ((text,),) = asked[0]
        tables: dict[str, list[dict[str, Any]]] = json.loads(text or "")
        for each in tables["cluster"]:
            for name in ("one", "version"):
                del each[name]
        tables["log"] = [
            {name: getattr(entry, name) for name in ("seq", "host", "number", "nonce", "at", "content")}
            for entry in map(entry_of, tables["log"])
        ]
        return tables

    def prune(self, entries_kept: int, kept_for: int, rows_max: int, *, sweeps: bool = True) -> int:
        ((pruned,),) = self.connection.read(
            f"select prune_1({entries_kept}, {kept_for}, {rows_max}, {sweeps})", within_schema=True, limit_seconds=15
        )[0]
        return int(pruned or 0)

    def rotate_trace(self, events_min: int) -> None:
        self.connection.read(f"select rotate_trace_1({events_min})", within_schema=True, limit_seconds=15)

    def trace_lines(self) -> Iterator[bytes]:
        yield from PostgresReader(self.url).read(lines_of_view)

    def empty(self) -> None:
        """As it was after its installation."""
        deletes = [f"delete from {table}" for table in ORDERS]
        fresh = (
            "update cluster set generation = 0, edition = 0, edition_alone_since = null, interrupted = null, "
            "zone = null, pruned = 0, history = 100000, traced = false, trace_last = null"
        )
        self.connection.read(*deletes, fresh, within_schema=True, limit_seconds=15)
        self.now = NOON
