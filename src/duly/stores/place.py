"""Where a store is: the path of a file, or a schema of a database that a URL names.

A URL may hold a password. It is read once, and from then on messages and documents have the name of the store, and
metrics its label; neither holds one (SPEC 9.22).
"""

import os
from collections.abc import Callable
from pathlib import Path

from duly.stores.port import Reader
from duly.stores.postgres.url import DEFAULT_SCHEMA, StoreUrl, check_path, is_url, read_url
from duly.stores.sqlite.reader import SqliteReader

StorePlace = Path | StoreUrl
"""Where a store is: a file, or a schema of a database."""


def place_of(store: str | os.PathLike[str] | StoreUrl, schema: str = DEFAULT_SCHEMA) -> StorePlace:
    """The place that a path or a URL names. An error about a URL does not quote it."""
    if isinstance(store, StoreUrl):
        return store
    if isinstance(store, str) and is_url(store):
        return read_url(store, schema)
    path = Path(store)
    check_path(path)
    return path


def name_of(place: StorePlace) -> str:
    """A store as messages and documents name it: a path as it was given, a URL without its password."""
    return place.name if isinstance(place, StoreUrl) else os.fspath(place)


def options_of(place: StorePlace) -> list[str]:
    """The options of a command that name a store; the password of a URL is left out."""
    if not isinstance(place, StoreUrl):
        return ["--store", os.path.abspath(place)]  # for any folder that a shell may be in
    schema = [] if place.schema == DEFAULT_SCHEMA else ["--schema", place.schema]
    return ["--store", place.address, *schema]


def label_of(store: str | os.PathLike[str] | StoreUrl, *, schema: str = DEFAULT_SCHEMA) -> str:
    """The label of a store in metrics: the name of its file, or `database.schema`.

    Parameters:
        store: the path of the store, or its `postgresql://` URL.
        schema: that of a store on PostgreSQL.

    Raises:
        StoreError: the URL cannot be read, or psycopg is not installed.
    """
    place = place_of(store, schema)
    if not isinstance(place, StoreUrl):
        return place.name
    database = place.parameters.get("dbname", place.parameters.get("service"))
    return place.schema if database is None else f"{database}.{place.schema}"


def reader_of(
    store: str | os.PathLike[str] | StoreUrl,
    now: Callable[[], int],
    *,
    schema: str = DEFAULT_SCHEMA,
    connections_kept: int = 0,
    statement_seconds_max: float | None = None,
) -> Reader:
    """The reader of the store at a path or URL.

    Parameters:
        store: the path of the store, or its `postgresql://` URL.
        now: stamps answers about a file, in microseconds since the epoch; answers about a shared store carry the time
            of its database.
        schema: that of a store on PostgreSQL.
        connections_kept: as for `PostgresReader`.
        statement_seconds_max: as for `PostgresReader`.

    Raises:
        StoreError: the URL cannot be read, or psycopg is not installed.
    """
    place = place_of(store, schema)
    if isinstance(place, Path):
        return SqliteReader(place, now)
    from duly.stores.postgres.reader import PostgresReader  # now: psycopg need not be installed where stores are files

    return PostgresReader(place, connections_kept=connections_kept, statement_seconds_max=statement_seconds_max)
