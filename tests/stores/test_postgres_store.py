"""`PostgresStore`: its options, its name, and the limits of its connections."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg
import pytest

from duly.errors import StoreError
from duly.stores import PostgresStore
from duly.stores.postgres.functions import PostgresFunctions
from duly.stores.postgres.script import quoted
from duly.stores.postgres.url import read_url
from duly.stores.shared import EditionVerdict
from tests.postgres_server import PostgresServer, bundled_binaries, server_of
from tests.stores.shared_hosts import TestHost

URL = "postgresql://app:s3cret@db/shop"
_schemas = count(1)


@pytest.fixture
def server() -> PostgresServer:
    return server_of(bundled_binaries())


@pytest.fixture
def schema() -> str:
    return f"of a store {next(_schemas)}"


@pytest.fixture
def functions(server: PostgresServer, schema: str) -> Iterator[PostgresFunctions]:
    store = PostgresStore(server.url(), schema=schema)
    store.install()
    made = store.connect()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"url": None}, TypeError, "url must be a str, got NoneType"),
        ({"schema": 3}, TypeError, "schema must be a str, got int"),
        ({"lease": 30}, TypeError, "lease must be a timedelta, got int"),
        ({"lease": timedelta(seconds=0.999999)}, ValueError, "between a second and an hour, got 0:00:00.999999"),
        ({"lease": timedelta(hours=1, microseconds=1)}, ValueError, "between a second and an hour"),
        ({"label": b"a"}, TypeError, "label must be a str, got bytes"),
        ({"label": "x" * 201}, ValueError, "label has at most 200 characters, got 201"),
    ],
)
def test_a_wrong_option_is_refused_and_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PostgresStore(**{"url": URL, **options})


def test_the_shortest_and_the_longest_lease_and_label_are_taken() -> None:
    shortest = PostgresStore(URL, lease=timedelta(seconds=1), label="")
    longest = PostgresStore(URL, lease=timedelta(hours=1), label="x" * 200)
    assert [(each.lease, each.label) for each in (shortest, longest)] == [
        (timedelta(seconds=1), ""),
        (timedelta(hours=1), "x" * 200),
    ]


def test_a_store_is_named_without_its_password() -> None:
    """SPEC 9.22; a lease of 30 seconds and no label are the defaults."""
    store = PostgresStore(URL, schema="jobs")
    assert store.name == "postgresql://app@db/shop (schema jobs)"
    assert repr(store) == f"PostgresStore({store.name})"
    assert (store.lease, store.label) == (timedelta(seconds=30), None)
    assert PostgresStore(read_url(URL, "jobs"), schema="another").name == store.name


@pytest.mark.parametrize(("lease", "silence"), [(1, 1), (5, 1), (6, 2), (30, 10)])
def test_a_silent_server_is_given_up_within_a_third_of_the_lease(
    monkeypatch: pytest.MonkeyPatch, lease: int, silence: int
) -> None:
    """SPEC 9.20: both connections; a third of the shortest leases is less than TCP can count."""
    asked: list[str] = []

    def refuse(**parameters: Any) -> None:
        asked.append(parameters["tcp_user_timeout"])
        raise psycopg.OperationalError("no")

    monkeypatch.setattr(psycopg.Connection, "connect", refuse)
    store = PostgresStore(URL, lease=timedelta(seconds=lease))
    for functions in (store.connect(), store.connect_for_beats()):
        with pytest.raises(StoreError, match="cannot be reached"):
            functions.load()
    assert asked == [str(1000 * silence)] * 2


def test_a_beat_waits_for_a_sixth_of_the_lease_and_a_write_for_longer(
    server: PostgresServer, schema: str, functions: PostgresFunctions
) -> None:
    """SPEC 9.4: the next beat must come before the lease is over."""
    host = TestHost(functions, "a" * 32)  # type: ignore[arg-type]
    assert host.join({"report": ("* * * * *", 0)}).verdict is EditionVerdict.APPLIED
    store = PostgresStore(server.url(), schema=schema, lease=timedelta(seconds=1.5))
    beats = store.connect_for_beats()
    with psycopg.connect(server.url()) as by_hand:
        by_hand.execute(f"lock table {quoted(schema)}.hosts".encode())
        with pytest.raises(StoreError, match=r"did not answer within 0\.25 s"):
            beats.beat(host.me, host.seen)
    assert beats.beat(host.me, host.seen).living[0].key == host.key
    assert beats.beat(host.me, host.seen).living[0].beat >= 2
    beats.close()


def test_a_schema_is_installed_once(server: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[psycopg.Connection[Any]] = []
    connect = psycopg.Connection.connect

    def noted(**parameters: Any) -> psycopg.Connection[Any]:
        opened.append(connect(**parameters))
        return opened[-1]

    monkeypatch.setattr(psycopg.Connection, "connect", noted)
    store = PostgresStore(server.url(), schema=schema)
    store.install()
    store.install()
    assert [each.closed for each in opened] == [True, True]
    functions = store.connect()
    assert functions.load().in_force == (0, 0)
    assert repr(functions) == f"<PostgresFunctions on <Connection to {store.name}, open>>"
    functions.close()
    assert opened[-1].closed
