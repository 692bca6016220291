"""One connection to a shared store: each message is one transaction, and each has a limit of its own.

A transaction of several messages could be left open by a frozen process with the lock of all writers in its hands. So a
message holds `begin`, one call and `commit`, and goes out by the simple protocol, which commits without waiting for
anything further; it also needs no prepared statement, so poolers are fine.

A request that takes too long is never cancelled: a cancel during the wait for a synchronous standby is answered with
success. The connection is dropped instead, and the caller repeats its call, under its number, on a new one.
"""

import contextlib
import json
import select
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import pq

from duly.errors import StoreError
from duly.stores.postgres.faults import broken, fault_of
from duly.stores.postgres.script import quoted
from duly.stores.postgres.url import StoreUrl

CONNECT_SECONDS_MAX: Final = 5
OLDEST_SERVER: Final = 130_000
READ_COMMITTED: Final = "begin isolation level read committed"
SNAPSHOT: Final = "begin isolation level repeatable read read only"

_OK: Final = {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY}

Row = tuple[str | None, ...]
Argument = str | int | bool | None | Mapping[str, Any] | Sequence[Any]


class Connection:
    """A connection that opens when it is needed and again when it broke; for one thread at a time.

    `silence_seconds_max` bounds how long a peer may leave data unacknowledged: without it, a cut cable holds the
    connection for minutes.
    """

    def __init__(self, url: StoreUrl, *, silence_seconds_max: int = 10) -> None:
        self._url = url
        self._silence_seconds_max = max(1, silence_seconds_max)
        self._connection: psycopg.Connection[Any] | None = None

    def __repr__(self) -> str:
        return f"<Connection to {self._url.name}, {'closed' if self._connection is None else 'open'}>"

    def call(self, function: str, *arguments: Argument, limit_seconds: float) -> Any:
        """Call one of the store's functions in a transaction of its own; its JSON answer."""
        given = ", ".join(map(self.literal, arguments))
        ((answer,),) = self.read(
            f"select {self.schema}.{function}({given})",
            limit_seconds=limit_seconds,
            operation=function.rpartition("_")[0],
        )[0]
        return json.loads(answer) if answer is not None else None

    def read(
        self,
        *statements: str,
        limit_seconds: float,
        begin: str = READ_COMMITTED,
        within_schema: bool = False,
        operation: str = "read",
    ) -> list[list[Row]]:
        """Carry out statements in one transaction that is one message; the rows of each."""
        settings = [
            "set local statement_timeout = 0",  # a limit of the role would leave a request without an answer
            "set local jit = off",  # compiling a statement takes longer than carrying it out
        ]
        if within_schema:
            settings.append(f"set local search_path = {self.schema}, pg_temp")
        before = 1 + len(settings)
        message = "; ".join([begin, *settings, *statements, "commit"])
        return self.send(message, limit_seconds=limit_seconds, operation=operation)[before:-1]

    def send(self, message: str, *, limit_seconds: float, operation: str = "read") -> list[list[Row]]:
        """Send one message by the simple protocol; the rows of each of its statements.

        Raises a `StoreError`; after one no transaction is open.
        """
        connection = self._opened(limit_seconds)
        # From here: a connection that took as long as a request may take would be dropped unused, again and again.
        deadline = time.monotonic() + limit_seconds
        try:
            connection.pgconn.send_query(message.encode())
            return [_rows(result, connection.pgconn) for result in self._results(connection.pgconn, deadline)]
        except _TooLateError:
            self.close()
            raise StoreError(
                f"Store {self._url.name} did not answer within {limit_seconds:g} s",
                store=self._url.name,
                hint="the server, its disk or its standby hangs; duly tries again",
                operation=operation,
                code="",
                permanent=False,
            ) from None
        except psycopg.Error as cause:
            self._leave_no_transaction(deadline)
            raise fault_of(cause, self._url.name, operation) from cause
        except OSError as cause:
            self.close()
            raise broken(cause, self._url.name, operation) from cause
        except BaseException:
            self.close()  # an answer that nothing has read must not be taken for that of the next request
            raise

    def close(self) -> None:
        """Drop the connection, whatever the server does at this moment; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    @property
    def name(self) -> str:
        """The store, for people."""
        return self._url.name

    @property
    def schema(self) -> str:
        """The name of the schema, quoted."""
        return quoted(self._url.schema)

    @property
    def backend_pid(self) -> int:
        """The process that the server named when it was connected to; a pooler names another."""
        return 0 if self._connection is None else self._connection.pgconn.backend_pid

    @property
    def server_version(self) -> int:
        """As PostgreSQL numbers it: 160004 is 16.4."""
        return 0 if self._connection is None else self._connection.pgconn.server_version

    def literal(self, value: Argument) -> str:
        """A value as it stands in a statement; lists and mappings as JSON."""
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        # Without a type: the function says which it is, and no search path can.
        if "\\" in text:
            return " E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
        return "'" + text.replace("'", "''") + "'"

    def _opened(self, limit_seconds: float) -> psycopg.Connection[Any]:
        if self._connection is not None and self._connection.pgconn.status == pq.ConnStatus.OK:
            return self._connection
        self.close()
        parameters = {
            "connect_timeout": str(max(2, min(CONNECT_SECONDS_MAX, int(limit_seconds)))),
            "keepalives_idle": str(self._silence_seconds_max),
            "keepalives_interval": "2",
            "keepalives_count": "2",
            "tcp_user_timeout": str(1000 * self._silence_seconds_max),
            "application_name": "duly",
            **self._url.parameters,
            "client_encoding": "UTF8",
        }
        try:
            opened: psycopg.Connection[Any] = psycopg.Connection.connect(
                **parameters,  # type: ignore[arg-type]  # all of them are texts, which libpq reads
                autocommit=True,
                prepare_threshold=None,
            )
        except psycopg.Error as cause:
            raise fault_of(cause, self._url.name, "connect") from cause
        except OSError as cause:  # psycopg waits with a descriptor of its own
            raise broken(cause, self._url.name, "connect") from cause
        self._check_server(opened)
        self._connection = opened
        return opened

    def _check_server(self, opened: psycopg.Connection[Any]) -> None:
        encoding = (opened.pgconn.parameter_status(b"server_encoding") or b"").decode()
        problem = None
        if opened.info.server_version < OLDEST_SERVER:
            problem = f"runs on PostgreSQL {opened.info.server_version // 10_000}", "duly needs at least PostgreSQL 13"
        elif encoding not in ("UTF8", ""):
            problem = f"keeps text as {encoding}", "create the database with encoding UTF8"
        if problem is not None:
            opened.close()
            text, hint = problem
            raise StoreError(f"Store {self._url.name} {text}", store=self._url.name, hint=hint, code="", permanent=True)

    @staticmethod
    def _results(pgconn: pq.abc.PGconn, deadline: float) -> Sequence[pq.abc.PGresult]:
        results: list[pq.abc.PGresult] = []
        while True:
            unsent = pgconn.flush()
            if not unsent and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    return results
                results.append(result)
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                raise _TooLateError
            poll = select.poll()  # not select(), which knows no descriptor above 1023
            poll.register(pgconn.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
            if poll.poll(left * 1000):
                pgconn.consume_input()

    def _leave_no_transaction(self, deadline: float) -> None:
        """After an error the explicit transaction is still there; a connection that cannot end it is dropped."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                connection.pgconn.send_query(b"rollback")
                self._results(connection.pgconn, deadline)
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                self.close()
        except (psycopg.Error, _TooLateError):
            self.close()


class _TooLateError(Exception):
    """The limit of a request is over."""


def _rows(result: pq.abc.PGresult, pgconn: pq.abc.PGconn) -> list[Row]:
    if result.status not in _OK:
        raise psycopg.errors.error_from_result(result, encoding="utf-8")
    columns = range(result.nfields)
    return [tuple(_text(result.get_value(row, column)) for column in columns) for row in range(result.ntuples)]


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()
