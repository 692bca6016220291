"""Creating the schema of a shared store: what is looked at first, what another host may have done, what is refused."""

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg import pq

from duly.errors import StoreError, StoreSchemaError
from duly.stores.postgres import install as module
from duly.stores.postgres.connection import Connection, Row
from duly.stores.postgres.install import WAIT_SECONDS_MAX, command, install, schema_version
from duly.stores.postgres.script import lock, quoted, script
from duly.stores.postgres.url import StoreUrl, read_url
from tests.postgres_server import PostgresServer, bundled_binaries, server_of

_schemas = count(1)


@pytest.fixture
def server() -> PostgresServer:
    return server_of(bundled_binaries())


@pytest.fixture
def url(server: PostgresServer) -> StoreUrl:
    """A schema of its own, which nobody has created."""
    return read_url(server.url(), f"installed {next(_schemas)}")


@pytest.fixture
def connection(url: StoreUrl) -> Iterator[Connection]:
    opened = Connection(url)
    yield opened
    opened.close()


def is_idle(connection: Connection) -> bool:
    inner = connection._connection
    return inner is not None and inner.pgconn.transaction_status == pq.TransactionStatus.IDLE


def test_the_version_is_that_of_the_schema_or_0(connection: Connection, url: StoreUrl) -> None:
    assert schema_version(connection, url) == 0
    assert install(connection, url)
    assert schema_version(connection, url) == 1
    assert is_idle(connection)


def test_where_nothing_is_to_be_done_no_lock_is_waited_for(
    server: PostgresServer, connection: Connection, url: StoreUrl
) -> None:
    """A host that starts while another one installs the same schema in another way waits for nobody."""
    install(connection, url)
    with psycopg.connect(server.url()) as other:
        other.execute(lock(url.schema).encode())
        assert install(connection, url) is False


def test_a_host_that_comes_second_finds_the_schema_and_leaves_no_transaction(
    server: PostgresServer, connection: Connection, url: StoreUrl
) -> None:
    """SPEC 9.22: it has waited for the first one, and looks again."""
    connection.send("select 1", limit_seconds=15)
    found: list[bool] = []
    with psycopg.connect(server.url(), autocommit=False) as first:
        first.execute(lock(url.schema).encode())
        second = threading.Thread(target=lambda: found.append(install(connection, url)))
        second.start()
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted and pid = "
        while server.execute(f"{waiting}{connection.backend_pid}") == [(0,)]:
            assert second.is_alive()
        first.execute(script(url.schema).removeprefix("begin;").removesuffix("commit;\n").encode())
    second.join(60)
    assert found == [False]
    assert is_idle(connection)


def test_a_host_waits_for_as_long_as_the_server_lets_it_wait(
    connection: Connection, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the server that gives up, with a fault that says why."""
    limits: list[float] = []
    send = Connection.send

    def noted(self: Connection, message: str, *, limit_seconds: float, **named: Any) -> list[list[Row]]:
        if f"lock_timeout = '{WAIT_SECONDS_MAX}s'" in message:
            limits.append(limit_seconds)
        return send(self, message, limit_seconds=limit_seconds, **named)

    monkeypatch.setattr(Connection, "send", noted)
    install(connection, url)
    (limit,) = limits
    assert limit > WAIT_SECONDS_MAX


def test_an_installation_that_fails_drops_its_connection(
    connection: Connection, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of all installations is not left behind."""
    monkeypatch.setattr(module, "installation", lambda _: "select 1/0;")
    with pytest.raises(StoreError, match="division by zero") as fault:
        install(connection, url)
    assert not isinstance(fault.value, StoreSchemaError)
    assert fault.value.details["operation"] == "install"
    assert connection.backend_pid == 0


def test_a_server_that_is_not_there_is_told_as_it_is() -> None:
    gone = read_url("postgresql://app@127.0.0.1:1/shop")
    with pytest.raises(StoreError, match="cannot be reached") as fault:
        install(Connection(gone), gone)
    assert fault.value.details["permanent"] is False


def test_tables_of_another_program_are_a_fault_that_stays(connection: Connection, url: StoreUrl) -> None:
    here = quoted(url.schema)
    connection.send(f"create schema {here}; create table {here}.cluster (name text)", limit_seconds=15)
    with pytest.raises(StoreError, match="schema of something else: give duly a schema of its own") as fault:
        schema_version(connection, url)
    assert fault.value.details["permanent"] is True


def test_every_step_from_an_older_version_is_taken_in_its_order(
    connection: Connection, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(connection, url)
    monkeypatch.setattr(module, "VERSION", 3)
    steps = {
        1: "create table steps (number int); insert into steps values (1); "
        "create table waits as select current_setting('lock_timeout') as longest;",
        2: "insert into steps select max(number) + 1 from steps;",
    }
    monkeypatch.setattr(module, "MIGRATIONS", {0: "select 1/0;", **steps, 3: "select 1/0;"})
    assert install(connection, url)
    rows = connection.read("select number from steps order by 1", within_schema=True, limit_seconds=15)[0]
    assert rows == [("1",), ("2",)]
    assert schema_version(connection, url) == 3
    # An ALTER TABLE that waits for a long reader stops every host that comes after it.
    assert connection.read("select longest from waits", within_schema=True, limit_seconds=15)[0] == [("2s",)]


def test_the_command_that_installs_a_store_names_its_schema_if_it_is_not_the_usual_one() -> None:
    """SPEC 9.22: without a password, and quoted for a shell."""
    url = "postgresql://app:s3cret@db/shop"
    assert command(read_url(url)) == "duly store install postgresql://app@db/shop"
    assert command(read_url(url, "a b")) == "duly store install --schema 'a b' postgresql://app@db/shop"
