"""The rows of a shared store as they leave it for an embedded one, or arrive from there."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from duly.core.moments import Instant
from duly.errors import StoreError
from duly.stores.postgres.connection import READ_COMMITTED, Connection
from duly.stores.postgres.install import install
from duly.stores.postgres.rows import READ_SECONDS_MAX, JsonRows, snapshot_of
from duly.stores.postgres.script import quoted
from duly.stores.postgres.url import StoreUrl
from duly.stores.transfer import DECLARATION, MARK, RUN, STATE, Content, Extent, Row

_ROWS_TOGETHER: Final = 2_000
"""Rows that one message brings."""

_TEXTS: Final = frozenset({"name", "cron", "run_cause", "cause", "outcome", "error", "traceback"})
_TABLES: Final = (("tasks", DECLARATION), ("states", STATE), ("marks", MARK), ("runs", RUN))
_INSTANT: Final = "(extract(epoch from {}) * 1000000)::bigint"

# Each host numbers its own runs; an embedded store numbers all of them one after the other, in the order of their
# starts. What history has dropped keeps its numbers, so that it shows as missing. A run that was cut short stands in
# history and in the state that still names it.
_NUMBERED: Final = """
(select run, generation, dropped.runs + row_number() over (order by started_at, run) as number
 from (select run, generation, started_at from runs
       union select run, generation, last_attempt_at from states where run is not null) each,
      (select coalesce(max(seq), 0) - count(*) as runs from runs) dropped) n
"""


class PostgresContent:
    """The rows of a schema, in one read transaction."""

    def __init__(self, connection: Connection) -> None:
        self._rows = JsonRows(connection)
        ((self.zone, self.highest_generation, last_sign, highest),) = self._rows.few(
            f"c.zone, c.generation, (select {_INSTANT.format('max(renewed_at)')} from hosts), "
            f"(select max(number) from {_NUMBERED})",
            "from cluster c",
        )
        self.highest_run: int = highest or 0
        self.last_sign: Instant | None = last_sign
        counts = ", ".join(f"(select count(*) from {table})" for table, _ in _TABLES)
        self.extent = Extent(*self._rows.few(counts)[0])
        ((self.interrupted,),) = self._rows.few(
            "count(*)",
            "from states s where s.run is not null "
            "and not exists (select from runs r where r.generation = s.generation and r.run = s.run)",
        )

    def schedulers(self) -> Iterator[Row]:
        """Key, identifier and arrival of each host."""
        return self._rows.many("key, replace(identifier::text, '-', ''), since", "from hosts order by key")

    def declarations(self) -> Iterator[Row]:
        """All declarations, in force or in history."""
        return self._rows.many(", ".join(DECLARATION), "from tasks order by generation")

    def states(self) -> Iterator[Row]:
        """The states of those in force."""
        columns = ", ".join("n.number" if column == "run" else f"s.{column}" for column in STATE)
        return self._rows.many(
            columns,
            f"from states s left join {_NUMBERED} on n.run = s.run and n.generation = s.generation "
            "order by s.generation",
        )

    def marks(self) -> Iterator[Row]:
        """The marks of withdrawn declarations."""
        return self._rows.many(", ".join(MARK), "from marks order by name")

    def runs(self) -> Iterator[Row]:
        """The history."""
        columns = ", ".join("n.number" if column == "run" else f"r.{column}" for column in RUN)
        return self._rows.many(
            columns, f"from runs r join {_NUMBERED} on n.run = r.run and n.generation = r.generation order by r.seq"
        )


@contextlib.contextmanager
def leaving(url: StoreUrl) -> Iterator[Content]:
    """The content of a schema on which no host lives."""
    with contextlib.closing(Connection(url)) as connection:
        connection.send(snapshot_of(url.schema), limit_seconds=READ_SECONDS_MAX)
        yield PostgresContent(connection)
        connection.send("rollback", limit_seconds=15.0)


def arrive(url: StoreUrl, content: Content, done: Callable[[int], object], check: Callable[[], None]) -> None:
    """Fill an empty schema with this content, in one transaction; `done` is called with the number of rows so far.

    `check` is called before the commit, and may raise. The schema is created before if it is not there. The lock of all
    writers is held meanwhile, so that no host joins half a store. The tasks get an edition from the first host that
    declares them.
    """
    with contextlib.closing(Connection(url)) as connection:
        install(connection, url)
        # Several messages, unlike those of a host: there is no host yet that the lock could hold up.
        connection.send(
            f"{READ_COMMITTED}; set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0; "
            f"set local search_path = {quoted(url.schema)}, pg_temp; set local lock_timeout = '5s'; "
            "select pg_advisory_xact_lock('cluster'::regclass::oid::int, 0)",
            limit_seconds=READ_SECONDS_MAX,
        )
        _check_empty(connection, url)
        writer = _Writer(connection, done)
        writer.insert_hosts(list(content.schedulers()), content.last_sign)
        for (table, columns), rows in zip(
            _TABLES, (content.declarations(), content.states(), content.marks(), _renumbered(content)), strict=True
        ):
            writer.insert(table, columns, rows)
        writer.finish(content)
        check()
        connection.send("commit", limit_seconds=READ_SECONDS_MAX, operation="copy")


def check_free(url: StoreUrl) -> None:
    """Raise a StoreError unless the schema is empty or not there, or if the role may not create it."""
    with contextlib.closing(Connection(url)) as connection:
        install(connection, url)
        connection.send(snapshot_of(url.schema), limit_seconds=READ_SECONDS_MAX)
        _check_empty(connection, url)


def _check_empty(connection: Connection, url: StoreUrl) -> None:
    used = " or ".join(
        f"exists (select from {table})" for table in ("hosts", "tasks", "states", "runs", "log", "bases")
    )
    ((found,),) = JsonRows(connection).few(f"c.edition > 0 or c.generation > 0 or {used}", "from cluster c")
    if found:
        raise StoreError(
            f"Store {url.name} is not empty",
            store=url.name,
            hint="name another schema with --schema: nothing is overwritten",
            permanent=True,
        )


def _renumbered(content: Content) -> Iterator[Row]:
    """The history, its records numbered so that what was dropped from it shows as missing."""
    for seq, (_, *rest) in enumerate(content.runs(), _dropped(content) + 1):
        yield seq, *rest


def _dropped(content: Content) -> int:
    return max(0, content.highest_run - content.extent.runs - content.interrupted)


class _Writer:
    """Inserts rows in the transaction that is open on a connection."""

    def __init__(self, connection: Connection, done: Callable[[int], object]) -> None:
        self._connection = connection
        self._done = done
        self.number = 0
        """Rows that were inserted."""

    def insert(self, table: str, columns: Sequence[str], rows: Iterator[Row]) -> None:
        """Insert rows, some thousand in a message."""
        # States have columns of their own: no entry of the log has changed them yet.
        extra, values = {"states": (", changed", ", 0"), "runs": (", host", ", 0")}.get(table, ("", ""))
        values = (
            ", ".join(
                f"each ->> {place}" if column in _TEXTS else f"(each ->> {place})::bigint"
                for place, column in enumerate(columns)
            )
            + values
        )
        while chunk := list(islice(rows, _ROWS_TOGETHER)):
            literal = self._connection.literal([[_kept(value) for value in row] for row in chunk])
            self._send(
                f"insert into {table} ({', '.join(columns)}{extra}) "
                f"select {values} from jsonb_array_elements({literal}) as a(each)"
            )
            self.number += len(chunk)
            self._done(self.number)

    def insert_hosts(self, schedulers: Sequence[Row], last_sign: Instant | None) -> None:
        """Insert the schedulers of an embedded store as hosts that have left, so that rows can name them."""
        last = len(schedulers) - 1
        rows = [
            [key, _kept(identifier), since, max(since, last_sign or 0) if place == last else since]
            for place, (key, identifier, since) in enumerate(schedulers)
        ]
        identifier = "case when each ->> 1 ~ '^[0-9a-f]{32}$' then (each ->> 1)::uuid else md5(each ->> 1)::uuid end"
        moment = "timestamptz 'epoch' + (each ->> 3)::bigint * interval '1 microsecond'"
        self._send(
            "insert into hosts (key, identifier, since, lease, edition, beat, renewed_at, seen, gone) "
            f"select (each ->> 0)::int, {identifier}, (each ->> 2)::bigint, interval '30 s', 0, 0, {moment}, 0, 'l' "
            f"from jsonb_array_elements({self._connection.literal(rows)}) as a(each)"
        )

    def finish(self, content: Content) -> None:
        """Record runs that a crash cut short as history, as a burial does, and set the counters."""
        self._send(
            "insert into runs (seq, run, generation, host, cause, scheduled, started_at, outcome, first_started_at, "
            f"attempt) select (select coalesce(max(seq), {_dropped(content)}) from runs) "
            "+ row_number() over (order by s.run), s.run, "
            "s.generation, 0, s.run_cause, s.run_scheduled, s.last_attempt_at, 'interrupted', s.first_started_at, "
            "s.attempt from states s where s.run is not null "
            "and not exists (select from runs r where r.generation = s.generation and r.run = s.run)"
        )
        zone = self._connection.literal(content.zone)
        self._send(
            f"update cluster set generation = {content.highest_generation}, zone = {zone}, "
            "history = greatest(history, (select count(*) from runs))"
        )

    def _send(self, statement: str) -> None:
        self._connection.send(statement, limit_seconds=READ_SECONDS_MAX, operation="copy")


def _kept(value: Any) -> Any:
    """A value as PostgreSQL can keep it: in texts, NUL and lone surrogates are written out."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
