"""`duly store`: installs and checks a shared store on PostgreSQL."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from duly.cli.output import Exit, json_option, print_json, say
from duly.cli.store import schema_option
from duly.stores.postgres.script import VERSION, script
from duly.stores.postgres.url import check_schema, read_url
from duly.text import plain

if TYPE_CHECKING:
    from duly.stores.postgres.connection import Connection
    from duly.stores.postgres.url import StoreUrl

_STYLES = {"fine": "green", "note": "yellow", "objection": "bold red"}


@click.group(name="store", no_args_is_help=False)
def store() -> None:
    """Install and check a store on PostgreSQL that hosts share.

    \b
    Example:
      duly store sql --grant app | psql
      duly store install postgresql://admin@db/shop
      duly store check postgresql://app@db/shop
    """


@store.command()
@schema_option
@click.option("--grant", "role", metavar="ROLE", help="Also give ROLE the rights of a host.")
@json_option
def sql(schema: str, role: str | None, as_json: bool) -> int:
    """Print the statements that install a store.

    They are one transaction, for psql and for migration tools. Nothing is connected to.

    \b
    Example:
      duly store sql --grant app | psql postgresql://admin@db/shop
    """
    check_schema(schema)
    text = script(schema, role)
    if as_json:
        print_json("store sql", {"schema": schema, "version": VERSION, "role": role, "sql": text})
    else:
        click.echo(text, nl=False)
    return Exit.OK


@store.command()
@click.argument("url")
@schema_option
@json_option
def install(url: str, schema: str, as_json: bool) -> int:
    """Create the schema of a store, or raise its version.

    One transaction; a store that is up to date does not change. Hosts do it by themselves if their role may. URL is
    libpq's, such as postgresql://admin@db/shop; leave the password to ~/.pgpass, PGPASSWORD or service=NAME.

    \b
    Example:
      duly store install postgresql://admin@db/shop
    """
    with _connected(url, schema) as (connection, there):
        from duly.stores.postgres.install import install as install_schema

        installed = install_schema(connection, there)
    if as_json:
        print_json("store install", {"store": there.name, "version": VERSION, "installed": installed})
    else:
        say(plain(f"{there.name}: version {VERSION} {'installed' if installed else 'was there already'}"))
    return Exit.OK


@store.command(epilog="Exit code 0 if a host would run, 1 if it would object, 4 if the store cannot be reached.")
@click.argument("url")
@schema_option
@json_option
def check(url: str, schema: str, as_json: bool) -> int:
    """Say what a host would object to, and change nothing.

    Looks at the version of the schema, at the rights of the role, at settings of the server, for a standby, a pooler,
    and transactions that have been open for more than an hour.

    \b
    Example:
      duly store check postgresql://app@db/shop
    """
    with _connected(url, schema) as (connection, there):
        from duly.stores.postgres.check import examine

        found = examine(connection, there)
    if as_json:
        print_json("store check", _json(found))
    else:
        major = found.server_version // 10_000
        say(plain(f"{found.store}, PostgreSQL {major}.{found.server_version % 10_000}"))
        for each in found.findings:
            style = _STYLES[each.weight.value]
            say(Text.assemble("  ", (f"{each.weight.value:10}", style), f"{each.subject}: {plain(each.text)}"))
            if each.hint is not None:
                say(Text.assemble(" " * 12, (plain(each.hint), "dim")))
    return Exit.OK if found.usable else Exit.NO


def _json(found: Any) -> dict[str, Any]:
    return {
        "store": found.store,
        "serverVersion": found.server_version,
        "schemaVersion": found.schema_version,
        "usable": found.usable,
        "findings": [
            {"subject": each.subject, "weight": each.weight.value, "text": each.text, "hint": each.hint}
            for each in found.findings
        ],
    }


@contextlib.contextmanager
def _connected(url: str, schema: str) -> Iterator[tuple["Connection", "StoreUrl"]]:
    """A connection to the store that a URL names; the URL may hold a password, so no message quotes it."""
    there = read_url(url, schema)
    from duly.stores.postgres.connection import Connection

    connection = Connection(there)
    try:
        yield connection, there
    finally:
        connection.close()
