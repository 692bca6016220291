"""One connection to a shared store: its messages and their limits, values in statements, and what a fault leaves."""

import errno
import json
import select
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import pq

from duly.errors import StoreError
from duly.stores.postgres import connection as module
from duly.stores.postgres.connection import SNAPSHOT, Argument, Connection
from duly.stores.postgres.url import read_url
from tests.postgres_server import PostgresServer, bundled_binaries, server_of


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return server_of(bundled_binaries())


@pytest.fixture
def connection(server: PostgresServer) -> Iterator[Connection]:
    opened = Connection(read_url(server.url()))
    yield opened
    opened.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[psycopg.Connection[Any]]:
    """The connections that psycopg opens meanwhile."""
    found: list[psycopg.Connection[Any]] = []
    connect = psycopg.Connection.connect

    def noted(**parameters: Any) -> psycopg.Connection[Any]:
        made: psycopg.Connection[Any] = connect(**parameters)
        found.append(made)
        return made

    monkeypatch.setattr(psycopg.Connection, "connect", noted)
    return found


def is_idle(connection: Connection) -> bool:
    inner = connection._connection
    return inner is not None and inner.pgconn.transaction_status == pq.TransactionStatus.IDLE


# --- opening ---------------------------------------------------------------------------------------------------------


def parameters_of(
    monkeypatch: pytest.MonkeyPatch, connection: Connection, *, limit_seconds: float = 15
) -> dict[str, Any]:
    """The parameters of libpq with which a connection is opened."""
    found: list[dict[str, Any]] = []

    def refuse(**parameters: Any) -> None:
        found.append(parameters)
        raise psycopg.OperationalError("no")

    monkeypatch.setattr(psycopg.Connection, "connect", refuse)
    with pytest.raises(StoreError, match="cannot be reached: no") as refused:
        connection.send("select 1", limit_seconds=limit_seconds)
    assert refused.value.details["operation"] == "connect"
    (parameters,) = found
    return parameters


@pytest.mark.parametrize(("limit", "timeout"), [(0.1, "2"), (2.9, "2"), (3.9, "3"), (5, "5"), (120, "5")])
def test_connecting_takes_no_longer_than_the_request_and_five_seconds(
    monkeypatch: pytest.MonkeyPatch, limit: float, timeout: str
) -> None:
    """libpq takes one second for two."""
    parameters = parameters_of(monkeypatch, Connection(read_url("postgresql://db/shop")), limit_seconds=limit)
    assert parameters["connect_timeout"] == timeout


@pytest.mark.parametrize(("seconds", "noticed"), [(-1, 1), (0, 1), (1, 1), (10, 10)])
def test_a_peer_that_is_silent_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch, seconds: int, noticed: int) -> None:
    """SPEC 9.20: a cut cable must not hold the connection for minutes."""
    there = Connection(read_url("postgresql://db/shop"), silence_seconds_max=seconds)
    parameters = parameters_of(monkeypatch, there)
    assert parameters["tcp_user_timeout"] == str(1000 * noticed)
    asked = [parameters[f"keepalives_{name}"] for name in ("idle", "interval", "count")]
    assert asked == [str(noticed), "2", "2"]
    assert (parameters["autocommit"], parameters["prepare_threshold"]) == (True, None), "poolers are fine"


def test_the_url_has_the_last_word_but_on_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://db/shop?connect_timeout=9&application_name=billing&client_encoding=LATIN1"
    parameters = parameters_of(monkeypatch, Connection(read_url(url)))
    chosen = [parameters[name] for name in ("connect_timeout", "application_name", "client_encoding", "host")]
    assert chosen == ["9", "billing", "UTF8", "db"]
    monkeypatch.undo()
    assert parameters_of(monkeypatch, Connection(read_url("postgresql://db")))["application_name"] == "duly"


def test_a_connection_opens_when_it_is_needed_and_again_after_it_was_closed(
    connection: Connection, opened: list[psycopg.Connection[Any]]
) -> None:
    name = connection.name
    assert repr(connection) == f"<Connection to {name}, closed>"
    assert (connection.backend_pid, connection.server_version) == (0, 0)
    for _ in range(2):
        assert connection.send("select 1", limit_seconds=15) == [[("1",)]]
    assert repr(connection) == f"<Connection to {name}, open>"
    assert connection.send("select pg_backend_pid()", limit_seconds=15) == [[(str(connection.backend_pid),)]]
    assert connection.server_version >= 130_000
    connection.close()
    connection.close()
    assert [each.closed for each in opened] == [True]
    assert connection.backend_pid == 0
    connection.send("select 1", limit_seconds=15)
    assert [each.closed for each in opened] == [True, False]


def test_a_connection_that_broke_is_opened_again(
    server: PostgresServer, connection: Connection, opened: list[psycopg.Connection[Any]]
) -> None:
    connection.send("select 1", limit_seconds=15)
    server.execute(f"select pg_terminate_backend({connection.backend_pid})")
    ended = f"select 1 from pg_stat_activity where pid = {connection.backend_pid}"
    while server.execute(ended):
        pass
    with pytest.raises(StoreError) as fault:
        connection.send("select 1", limit_seconds=15)
    assert fault.value.details["permanent"] is False
    assert connection.send("select 2", limit_seconds=15) == [[("2",)]]
    assert opened[0].closed


def test_a_connection_that_is_slow_to_open_leaves_a_request_its_time(
    monkeypatch: pytest.MonkeyPatch, connection: Connection
) -> None:
    """SPEC 9.4: otherwise each beat would drop it unused, and the next one would begin with nothing again."""
    connect, slept = psycopg.Connection.connect, 0.0

    def slow(**parameters: Any) -> psycopg.Connection[Any]:
        nonlocal slept
        slept += 100
        return connect(**parameters)

    monkeypatch.setattr(psycopg.Connection, "connect", slow)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + slept))
    assert connection.send("select 1", limit_seconds=15) == [[("1",)]]


def test_a_host_of_a_url_that_accepts_and_says_nothing_is_passed_over(server: PostgresServer) -> None:
    """SPEC 9.22: the machine of a primary has lost its power; the connection takes all of a request's time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        places = f"host=127.0.0.1,{server.folder}&port={silent.getsockname()[1]},5432"
        there = Connection(read_url(f"postgresql://duly@/postgres?{places}"))
        try:
            assert there.send("select 1", limit_seconds=2) == [[("1",)]]
        finally:
            there.close()


@pytest.mark.parametrize("beside", [0, 1])
def test_an_old_server_is_refused(
    monkeypatch: pytest.MonkeyPatch, connection: Connection, opened: list[psycopg.Connection[Any]], beside: int
) -> None:
    """SPEC 9.22: the oldest one that will do is the first that is not refused."""
    connection.send("select 1", limit_seconds=15)
    version = connection.server_version
    connection.close()
    monkeypatch.setattr(module, "OLDEST_SERVER", version + beside)
    if not beside:
        connection.send("select 1", limit_seconds=15)
        return
    with pytest.raises(StoreError, match=f"runs on PostgreSQL {version // 10_000}: duly needs") as refused:
        connection.send("select 1", limit_seconds=15)
    assert refused.value.details["permanent"] is True
    assert connection.backend_pid == 0
    assert opened[-1].closed


class Answering:
    """A server by what it says of itself when it is connected to."""

    def __init__(self, version: int, encoding: bytes | None = b"UTF8") -> None:
        self.info = type("Info", (), {"server_version": version})
        self.pgconn = type("Inner", (), {"parameter_status": staticmethod(lambda name: encoding)})
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("answering", "problem"),
    [
        (Answering(130_000), None),
        (Answering(180_001, None), None),  # a pooler need not say it
        (Answering(129_999), "runs on PostgreSQL 12: duly needs at least PostgreSQL 13"),
        (Answering(160_000, b"LATIN1"), "keeps text as LATIN1: create the database with encoding UTF8"),
    ],
)
def test_postgresql_13_will_do_if_it_keeps_text_as_utf8(
    connection: Connection, answering: Any, problem: str | None
) -> None:
    """SPEC 9.22."""
    if problem is None:
        connection._check_server(answering)
    else:
        with pytest.raises(StoreError, match=problem):
            connection._check_server(answering)
    assert answering.closed == (problem is not None)


# --- messages --------------------------------------------------------------------------------------------------------


def test_the_rows_of_each_statement_come_back_as_texts(connection: Connection) -> None:
    asked = "select 1, null, 'ü'; ; select 2 where false; select n from generate_series(1, 3) n"
    assert connection.send(asked, limit_seconds=15) == [[("1", None, "ü")], [], [("1",), ("2",), ("3",)]]
    assert connection.send("", limit_seconds=15) == [[]]


def test_what_is_read_is_one_transaction_without_a_limit_of_the_role(connection: Connection) -> None:
    connection.send("set statement_timeout = '1s'; set search_path = nowhere", limit_seconds=15)
    shown = ("show statement_timeout", "show search_path", "show transaction_isolation", "show transaction_read_only")
    plain = connection.read(*shown, limit_seconds=15)
    assert plain == [[("0",)], [("nowhere",)], [("read committed",)], [("off",)]]
    inside = connection.read(*shown, begin=SNAPSHOT, within_schema=True, limit_seconds=15)
    assert inside == [[("0",)], [("duly, pg_temp",)], [("repeatable read",)], [("on",)]]
    assert connection.read("show jit", limit_seconds=15) == [[("off",)]]
    moments = connection.read("select now()", "select now()", limit_seconds=15)
    assert moments[0] == moments[1]
    assert is_idle(connection)


def test_a_function_answers_in_json_or_with_nothing(server: PostgresServer) -> None:
    there = Connection(read_url(server.url(), "called here"))
    here = there.schema
    there.send(
        f"drop schema if exists {here} cascade; create schema {here}; "
        f"create function {here}.echo_1(json) returns json language sql as 'select $1'; "
        f"create function {here}.fail_1(int) returns json language sql as 'select to_json(1 / $1)'",
        limit_seconds=15,
    )
    assert there.call("echo_1", {"a": [1, None, "it's"]}, limit_seconds=15) == {"a": [1, None, "it's"]}
    assert there.call("echo_1", None, limit_seconds=15) is None
    with pytest.raises(StoreError, match="division by zero") as fault:
        there.call("fail_1", 0, limit_seconds=15)
    assert fault.value.details["operation"] == "fail"
    there.close()


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, None), (True, "true"), (False, "false"), (7, "7"), (-(10**15), "-1000000000000000")]
    + [(text, text) for text in ("", "it's", "a \\ b", "\\'", "€ 😀")],
)
def test_a_plain_value_arrives_as_it_is(connection: Connection, value: Argument, shown: str | None) -> None:
    asked = f"select ({connection.literal(value)})::text"
    assert connection.send(asked, limit_seconds=15) == [[(shown,)]]


@pytest.mark.parametrize("value", [{"a": 'x "y" \\'}, [1, [None, "ü"]], {}, []])
def test_lists_and_mappings_arrive_as_json(connection: Connection, value: Argument) -> None:
    ((found,),) = connection.send(f"select {connection.literal(value)}::json", limit_seconds=15)[0]
    assert json.loads(found or "") == value


def test_values_are_as_short_as_they_can_be(connection: Connection) -> None:
    """A batch of ten thousand tasks is one of them."""
    assert connection.literal({"a": [1, "ü"]}) == """'{"a":[1,"ü"]}'"""
    assert connection.literal("plain") == "'plain'"


def test_a_message_may_be_longer_than_what_the_socket_takes_at_once(connection: Connection) -> None:
    text = "x" * 20_000_000
    assert connection.send(f"select length('{text}')", limit_seconds=60) == [[("20000000",)]]
    assert connection.send("select repeat('y', 20000000)", limit_seconds=60) == [[("y" * 20_000_000,)]]


# --- faults ----------------------------------------------------------------------------------------------------------


def test_after_a_fault_no_transaction_is_open(connection: Connection) -> None:
    connection.send("select 1", limit_seconds=15)
    backend = connection.backend_pid
    with pytest.raises(StoreError, match="division by zero"):
        connection.read("select 1/0", limit_seconds=15)
    assert is_idle(connection)
    assert connection.send("select pg_backend_pid()", limit_seconds=15) == [[(str(backend),)]], "it is kept"
    with pytest.raises(StoreError, match="division by zero"):
        connection.send("select 1/0", limit_seconds=15)
    assert is_idle(connection)
    assert connection.backend_pid == backend


def test_a_request_that_takes_too_long_is_dropped_with_its_connection(
    connection: Connection, opened: list[psycopg.Connection[Any]]
) -> None:
    """SPEC 9.20: it is never cancelled."""
    connection.send("select 1", limit_seconds=15)
    with pytest.raises(StoreError, match=r"did not answer within 0\.05 s") as fault:
        connection.send("select pg_sleep(60)", limit_seconds=0.05, operation="write")
    found = {name: fault.value.details[name] for name in ("operation", "code", "permanent")}
    assert found == {"operation": "write", "code": "", "permanent": False}
    assert [each.closed for each in opened] == [True]
    assert connection.send("select 2", limit_seconds=15) == [[("2",)]]


def test_a_request_that_was_broken_off_leaves_no_answer_for_the_next_one(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.send("select 1", limit_seconds=15)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "_results", staticmethod(interrupted))
        with pytest.raises(KeyboardInterrupt):
            connection.send("select 'of the first'", limit_seconds=15)
    assert connection.backend_pid == 0
    assert connection.send("select 'of the second'", limit_seconds=15) == [[("of the second",)]]


def test_a_fault_of_this_machine_drops_the_connection(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer must not be taken for that of the next request."""
    connection.send("select 1", limit_seconds=15)

    def without_descriptors(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "_results", staticmethod(without_descriptors))
        with pytest.raises(StoreError, match="cannot be reached: Too many open files") as fault:
            connection.send("select 'of the first'", limit_seconds=15, operation="write")
    assert (fault.value.details["operation"], fault.value.details["permanent"]) == ("write", False)
    assert connection.backend_pid == 0
    assert connection.send("select 'of the second'", limit_seconds=15) == [[("of the second",)]]
    connection.close()
    monkeypatch.setattr(psycopg.Connection, "connect", lambda **_: without_descriptors())
    with pytest.raises(StoreError, match="cannot be reached: Too many open files") as fault:
        connection.send("select 1", limit_seconds=15)
    assert fault.value.details["operation"] == "connect"


def test_a_rollback_that_is_not_answered_in_time_drops_the_connection(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.send("select 1", limit_seconds=15)
    results, asked = Connection._results, []

    def late(pgconn: pq.abc.PGconn, deadline: float) -> Any:
        asked.append(deadline)
        if len(asked) > 1:
            raise module._TooLateError
        return results(pgconn, deadline)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "_results", staticmethod(late))
        with pytest.raises(StoreError, match="division by zero"):
            connection.read("select 1/0", limit_seconds=15)
    assert len(set(asked)) == 1, "one limit for all of it"
    assert connection.backend_pid == 0
    assert connection.send("select 2", limit_seconds=15) == [[("2",)]]


def test_a_rollback_that_ends_nothing_drops_the_connection(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer has not come: the transaction may still be open."""
    connection.send("select 1", limit_seconds=15)
    results, asked = Connection._results, []

    def unanswered(pgconn: pq.abc.PGconn, deadline: float) -> Any:
        asked.append(deadline)
        return results(pgconn, deadline) if len(asked) == 1 else []

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "_results", staticmethod(unanswered))
        with pytest.raises(StoreError, match="division by zero"):
            connection.read("select 1/0", limit_seconds=15)
    assert len(asked) == 2
    assert connection.backend_pid == 0


@pytest.mark.parametrize(("limit", "answered"), [(0.5, True), (0.0, False)])
def test_a_request_is_too_late_once_its_limit_has_passed_and_not_before(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, limit: float, answered: bool
) -> None:
    """By a clock that stands still, so that no machine is too slow for it."""
    connection.send("select 1", limit_seconds=15)
    clock = type("Clock", (), {"monotonic": staticmethod(lambda: 100.0)})
    monkeypatch.setattr(module, "time", clock)
    asked = "select 2 from pg_sleep(0.05)"
    if answered:
        assert connection.send(asked, limit_seconds=limit) == [[("2",)]]
    else:
        with pytest.raises(StoreError, match="did not answer within 0 s"):
            connection.send(asked, limit_seconds=limit)


def test_a_request_sleeps_until_its_limit_at_the_longest(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.send("select 1", limit_seconds=15)
    waited: list[float] = []

    class Poll:
        def __init__(self) -> None:
            self._poll = select.poll()
            self.register = self._poll.register

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            waited.append(milliseconds)
            return self._poll.poll(milliseconds)

    monkeypatch.setattr(module, "time", type("Clock", (), {"monotonic": staticmethod(lambda: 100.0)}))
    known = {"poll": Poll, "POLLIN": select.POLLIN, "POLLOUT": select.POLLOUT}
    monkeypatch.setattr(module, "select", type("Select", (), known))
    assert connection.send("select 2 from pg_sleep(0.05)", limit_seconds=2.5) == [[("2",)]]
    assert set(waited) == {2_500}
