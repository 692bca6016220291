"""Creates the schema of a shared store, once, whichever of many hosts comes first (SPEC 9.22)."""

import shlex
from typing import Final

from duly.errors import StoreError, StoreSchemaError, StoreVersionError
from duly.stores.postgres.connection import READ_COMMITTED, SNAPSHOT, Connection, Row
from duly.stores.postgres.faults import emptied
from duly.stores.postgres.script import MIGRATIONS, VERSION, installation, lock, quoted
from duly.stores.postgres.url import DEFAULT_SCHEMA, StoreUrl

WAIT_SECONDS_MAX: Final = 60
"""How long an installation waits for another one."""

FORBIDDEN: Final = "42501"


def install(connection: Connection, url: StoreUrl) -> bool:
    """Create the schema, or raise it to this version; False if nothing had to be done.

    Raises a `StoreSchemaError` if the role may not, and a `StoreVersionError` if the schema is newer.
    """
    if schema_version(connection, url) == VERSION:
        return False
    limit = WAIT_SECONDS_MAX + 30.0
    # Two hosts that start at once would both create it, and one would fail.
    connection.send(
        f"{READ_COMMITTED}; set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0; "
        f"set local lock_timeout = '{WAIT_SECONDS_MAX}s'; {lock(url.schema)}",
        limit_seconds=limit,
    )
    try:
        found = schema_version(connection, url, begin=None)
        if found == VERSION:
            connection.send("rollback", limit_seconds=limit)
            return False
        # A long reader ahead of an ALTER TABLE would stop every host that comes after it.
        connection.send("set local lock_timeout = '2s'", limit_seconds=limit)
        connection.send(f"{_steps(connection, url, found)}; commit", limit_seconds=limit, operation="install")
    except StoreError as error:
        connection.close()
        if error.details.get("code") == FORBIDDEN:
            raise StoreSchemaError(
                url.name, "lacks tables of this version, and the role may not create them", command(url), cause=error
            ) from error
        raise
    return True


def command(url: StoreUrl) -> str:
    """The command that installs a store, without its password."""
    return f"duly store install{_schema_option(url)} {shlex.quote(url.address)}"


def _steps(connection: Connection, url: StoreUrl, found: int) -> str:
    if found:
        here = quoted(url.schema)
        steps = "".join(MIGRATIONS[version] for version in range(found, VERSION))
        return f"set local search_path = {here}, pg_temp; {steps} update cluster set version = {VERSION}"
    # Asking for a schema that is there needs the right to create one all the same.
    there = connection.send(
        f"select 1 from pg_catalog.pg_namespace where nspname = {connection.literal(url.schema)}", limit_seconds=15.0
    )
    create = "" if there[0] else f"create schema {quoted(url.schema)}; "
    return create + installation(url.schema)


def schema_version(connection: Connection, url: StoreUrl, begin: str | None = SNAPSHOT) -> int:
    """The version of the schema, 0 if it is not there; refuses a newer one, and tables of another program."""
    # Not to_regclass(), which may answer from before the wait for the lock: its cache is not a table with snapshots.
    asked = (
        "select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
        f"where n.nspname = {connection.literal(url.schema)} and c.relname = 'cluster'"
    )
    version = f"select version from {quoted(url.schema)}.cluster"
    try:
        if not _rows(connection, asked, begin):
            return 0
        rows = _rows(connection, version, begin)
    except StoreError as error:
        if error.details.get("code") == FORBIDDEN:
            raise StoreSchemaError(
                url.name, "may not be used by the role", f"duly store sql --grant ROLE{_schema_option(url)}"
            ) from error
        if error.details.get("code") in ("42703", "42P01"):
            raise StoreError(
                f"Store {url.name} is a schema of something else",
                store=url.name,
                hint="give duly a schema of its own",
                permanent=True,
            ) from error
        raise
    if not rows:
        raise emptied(url.name, "cluster")
    number = int(rows[0][0] or 0)
    if number > VERSION:
        raise StoreVersionError(url.name, number, VERSION)
    return number


def _schema_option(url: StoreUrl) -> str:
    return "" if url.schema == DEFAULT_SCHEMA else f" --schema {shlex.quote(url.schema)}"


def _rows(connection: Connection, statement: str, begin: str | None) -> list[Row]:
    if begin is None:  # inside the transaction of an installation
        return connection.send(statement, limit_seconds=15.0)[0]
    return connection.read(statement, begin=begin, limit_seconds=15.0)[0]
