"""The statements that create a shared store, as text; nothing here needs a server."""

from importlib import resources
from typing import Final

VERSION: Final = 1
"""The version of the schema that this duly writes."""

MIGRATIONS: Final[dict[int, str]] = {}
"""Statements, each with its semicolon, that lead from a version to the next one.

They only add columns with defaults, tables and functions: hosts of the version before go on meanwhile."""


def installation(schema: str) -> str:
    """The statements that create the tables and functions, in a transaction and in a schema that are there."""
    text = resources.files("duly.stores.postgres").joinpath("schema.sql").read_text(encoding="utf-8")
    return text.replace(':"schema"', quoted(schema))


def script(schema: str, role: str | None = None) -> str:
    """All of the installation as one transaction, for migration tools; `role` is given a host's rights."""
    rights = "" if role is None else "\n" + grants(schema, role)
    return (
        f"begin;\n{lock(schema)};\ncreate schema if not exists {quoted(schema)};\n\n"
        f"{installation(schema)}{rights}\ncommit;\n"
    )


def grants(schema: str, role: str) -> str:
    """The rights of a host: to use the schema, call its functions, and read and write its tables."""
    here, to = quoted(schema), quoted(role)
    return (
        f"grant usage on schema {here} to {to};\n"
        f"grant execute on all functions in schema {here} to {to};\n"
        f"grant select, insert, update, delete on all tables in schema {here} to {to};\n"
    )


def lock(schema: str) -> str:
    """The statement after which no other installation of the schema goes on."""
    name = schema.replace("\\", "\\\\").replace("'", "''")
    return f"select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(E'duly:{name}', 0))"


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'
