"""`PostgresStore`: one schema of a PostgreSQL database, shared by any number of hosts."""

from datetime import timedelta
from typing import Final

from duly.stores.postgres.connection import Connection
from duly.stores.postgres.functions import PostgresFunctions
from duly.stores.postgres.install import install
from duly.stores.postgres.url import DEFAULT_SCHEMA, StoreUrl, read_url

LEASE: Final = timedelta(seconds=30)
SHORTEST_LEASE: Final = timedelta(seconds=1)
LONGEST_LEASE: Final = timedelta(hours=1)
LABEL_MAX: Final = 200
"""Characters of a label."""


class PostgresStore:
    """A store for many hosts, for `Scheduler(PostgresStore(url))`.

    Parameters:
        url: a `postgresql://` URL as libpq reads it.
        schema: hosts with the same database and schema are one scheduler.
        lease: a host that has had no answer for this long holds its callbacks; a third of that later another host takes
            over what it ran. Between a second and an hour.
        label: names this host for people, such as a pod or a process.

    Raises:
        TypeError: a parameter has the wrong type.
        ValueError: the lease is too short or too long, or the label is too long.
        StoreError: the URL cannot be read, or psycopg is not installed.
    """

    name: str

    def __init__(
        self, url: str | StoreUrl, *, schema: str = DEFAULT_SCHEMA, lease: timedelta = LEASE, label: str | None = None
    ) -> None:
        if not isinstance(url, str | StoreUrl):
            raise TypeError(f"url must be a str, got {type(url).__name__}")
        if not isinstance(schema, str):
            raise TypeError(f"schema must be a str, got {type(schema).__name__}")
        if not isinstance(lease, timedelta):
            raise TypeError(f"lease must be a timedelta, got {type(lease).__name__}")
        if not SHORTEST_LEASE <= lease <= LONGEST_LEASE:
            raise ValueError(f"lease must be between a second and an hour, got {lease}")
        if not isinstance(label, str | None):
            raise TypeError(f"label must be a str, got {type(label).__name__}")
        if label is not None and len(label) > LABEL_MAX:
            raise ValueError(f"label has at most {LABEL_MAX} characters, got {len(label)}")
        self._url = url if isinstance(url, StoreUrl) else read_url(url, schema)
        self.name = self._url.name
        self.lease = lease
        self.label = label

    def __repr__(self) -> str:
        return f"PostgresStore({self.name})"

    def connect(self) -> PostgresFunctions:
        """A connection for writes and for loading; nothing is sent yet."""
        return PostgresFunctions(Connection(self._url, silence_seconds_max=self._silence_seconds_max()))

    def connect_for_beats(self) -> PostgresFunctions:
        """A connection for beats, whose requests have a limit of a sixth of the lease."""
        connection = Connection(self._url, silence_seconds_max=self._silence_seconds_max())
        return PostgresFunctions(connection, limit_seconds=self.lease.total_seconds() / 6)

    def install(self) -> None:
        """Create the schema, or raise it to this version, if the role may (SPEC 9.22).

        Raises:
            StoreSchemaError: the role may not.
            StoreError: the server cannot be reached, or is too old.
        """
        connection = Connection(self._url)
        try:
            install(connection, self._url)
        finally:
            connection.close()

    def _silence_seconds_max(self) -> int:
        return max(1, int(self.lease.total_seconds() / 3))
