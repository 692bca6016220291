"""A server, for integrations on a store that hosts share."""

from collections.abc import Iterator
from itertools import count

import pytest

from duly.stores.postgres.script import quoted
from tests.postgres_server import PostgresServer, bundled_binaries, server_of

_schemas = count(1)


@pytest.fixture
def server() -> PostgresServer:
    """The PostgreSQL of this test process."""
    return server_of(bundled_binaries())


@pytest.fixture
def schema(server: PostgresServer) -> Iterator[str]:
    """A schema of the test's own."""
    name = f"integration {next(_schemas)}"
    yield name
    server.execute(f"drop schema if exists {quoted(name)} cascade")
