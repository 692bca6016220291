"""Rows of a shared store inside an open transaction: as JSON, which keeps types, and long answers through a cursor."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from duly.stores.postgres.connection import SNAPSHOT, Connection
from duly.stores.postgres.script import quoted

READ_SECONDS_MAX: Final = 120.0
"""The limit of a statement, after which the connection is dropped."""

ROWS_TOGETHER: Final = 1_000
"""Rows that one message fetches."""


def snapshot_of(schema: str, statement_seconds_max: float | None = None) -> str:
    """The statements that begin a transaction in which all that follows sees one moment of a schema.

    The server ends a statement that takes longer than `statement_seconds_max`; by default it ends none.
    """
    limit_ms = 0 if statement_seconds_max is None else max(1, round(1000 * statement_seconds_max))
    return (
        f"{SNAPSHOT}; set local statement_timeout = {limit_ms}; set local jit = off; "
        "set local cursor_tuple_fraction = 1; "
        f"set local search_path = {quoted(schema)}, pg_temp"
    )


class JsonRows:
    """Asks on one connection, in the transaction that is open there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursors = count(1)

    def few(self, columns: str, source: str = "") -> list[list[Any]]:
        """The rows of a statement whose answer is small."""
        statement = f"select json_build_array({columns}) {source}"
        rows = self._connection.send(statement, limit_seconds=READ_SECONDS_MAX)[-1]
        return [json.loads(row[0] or "") for row in rows]

    def many(self, columns: str, source: str) -> Iterator[list[Any]]:
        """The rows of a statement whose answer may be long."""
        for chunk in self.chunks(columns, source):
            yield from chunk

    def chunks(self, columns: str, source: str) -> Iterator[list[list[Any]]]:
        """The rows of a statement whose answer may be long, as they are fetched."""
        cursor = f"answer_{next(self._cursors)}"
        fetch = f"fetch {ROWS_TOGETHER} from {cursor}"
        declare = f"declare {cursor} no scroll cursor for select json_build_array({columns}) {source}"
        rows = self._connection.send(f"{declare}; {fetch}", limit_seconds=READ_SECONDS_MAX)[-1]
        while rows:
            yield [json.loads(row[0] or "") for row in rows]
            if len(rows) < ROWS_TOGETHER:
                return
            rows = self._connection.send(fetch, limit_seconds=READ_SECONDS_MAX)[-1]
