"""The objections of a host to a shared store, before one is started (SPEC 9.22)."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from duly.errors import StoreSchemaError
from duly.stores.postgres.connection import SNAPSHOT, Connection
from duly.stores.postgres.install import command, schema_version
from duly.stores.postgres.script import VERSION
from duly.stores.postgres.url import StoreUrl

OLD_SNAPSHOT_SECONDS: Final = 3_600
"""A snapshot that is older keeps old versions of rows that every beat updates."""

_SETTINGS: Final = """
select pg_is_in_recovery(), current_setting('default_transaction_read_only'),
  current_setting('default_transaction_isolation'), current_setting('synchronous_commit'), pg_backend_pid(),
  current_user, has_database_privilege(current_database(), 'create'),
  (select count(*) from pg_namespace where nspname = {schema}),
  (select count(*) from pg_stat_activity
    where datname = current_database() and xact_start < clock_timestamp() - interval '{old} seconds'),
  pg_has_role('pg_read_all_stats', 'usage')
"""

_RIGHTS: Final = """
select has_schema_privilege(n.oid, 'usage'),
  (select count(*) from pg_class c where c.relnamespace = n.oid and c.relkind = 'r'
    and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
      and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))),
  (select count(*) from pg_proc p where p.pronamespace = n.oid and not has_function_privilege(p.oid, 'execute')),
  has_schema_privilege(n.oid, 'create')
from pg_namespace n where n.nspname = {schema}
"""


class Weight(Enum):
    """How much a finding matters to a host."""

    FINE = "fine"
    NOTE = "note"
    OBJECTION = "objection"
    """A host would not run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    weight: Weight
    text: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """The findings about a shared store."""

    store: str
    server_version: int
    """As PostgreSQL numbers it: 160004 is 16.4."""

    schema_version: int
    """0: it is not installed."""

    findings: tuple[Finding, ...]

    @property
    def usable(self) -> bool:
        """Whether a host would run."""
        return all(each.weight is not Weight.OBJECTION for each in self.findings)


def examine(connection: Connection, url: StoreUrl) -> StoreCheck:
    """Look at a store, and change nothing; raises a `StoreError` if it cannot be reached."""
    schema = connection.literal(url.schema)
    (settings,), rights = connection.read(
        _SETTINGS.format(schema=schema, old=OLD_SNAPSHOT_SECONDS),
        _RIGHTS.format(schema=schema),
        begin=SNAPSHOT,
        limit_seconds=15.0,
    )
    standby, read_only, isolation, synchronous, pid, user, may_create, installed, old, sees_all = settings
    findings = list(_about_the_server(standby, read_only, isolation, synchronous))
    findings += _about_transactions(user or "", int(old or 0), sees_all == "t")
    if int(pid or 0) != connection.backend_pid:
        text = "the connection goes through a pooler"
        findings.append(
            Finding(
                "pooler", Weight.NOTE, text, "PgBouncer: pool_mode=transaction, and server_login_retry below lease/3"
            )
        )
    try:
        version = schema_version(connection, url)
    except StoreSchemaError as error:
        findings.append(
            Finding("rights", Weight.OBJECTION, f"role {user} may not use the schema", error.details["hint"])
        )
        return StoreCheck(url.name, connection.server_version, 0, tuple(findings))
    if version == VERSION:
        findings.append(Finding("schema", Weight.FINE, f"version {version}"))
        findings += _about_rights(user or "", rights[0])
    else:
        may = may_create == "t" if installed == "0" else rights[0][3] == "t"
        text = "is not installed yet" if not version else f"has version {version}, and hosts raise it to {VERSION}"
        who = "the first host creates it" if may else f"role {user} may not create it"
        weight = Weight.NOTE if may else Weight.OBJECTION
        findings.append(Finding("schema", weight, f"{text}; {who}", None if may else command(url)))
    return StoreCheck(url.name, connection.server_version, version, tuple(findings))


def _about_the_server(
    standby: str | None, read_only: str | None, isolation: str | None, synchronous: str | None
) -> Iterator[Finding]:
    if standby == "t":
        yield Finding("server", Weight.OBJECTION, "is a standby", "connect to the primary")
    elif read_only == "on":
        hint = "unset default_transaction_read_only for the role and the database"
        yield Finding("server", Weight.OBJECTION, "makes every transaction read-only", hint)
    else:
        yield Finding("server", Weight.FINE, "takes writes")
    chosen = "" if isolation == "read committed" else f" (the default here is {isolation})"
    yield Finding("isolation level", Weight.FINE, f"hosts ask for read committed{chosen}")
    yield Finding("encoding", Weight.FINE, "UTF8")
    if synchronous in ("off", "local"):
        yield Finding(
            "durability", Weight.NOTE, f"synchronous_commit is {synchronous}; hosts raise it for their commits"
        )


def _about_transactions(user: str, old: int, sees_all: bool) -> Iterator[Finding]:
    if old:
        text = f"{old} open for more than an hour"
        yield Finding("transactions", Weight.NOTE, text, "end them: they keep old versions of rows that beats update")
    if not sees_all:
        text = "transactions of other roles cannot be seen, and may have been open for long"
        yield Finding("sessions", Weight.NOTE, text, f"to see them: grant pg_read_all_stats to {user}")


def _about_rights(user: str, rights: tuple[str | None, ...]) -> Iterator[Finding]:
    usage, tables, functions, _ = rights
    if usage == "t" and tables == functions == "0":
        yield Finding("rights", Weight.FINE, f"role {user} has those of a host")
        return
    text = f"role {user} lacks rights on {tables} tables and {functions} functions"
    yield Finding("rights", Weight.OBJECTION, text, f"run what `duly store sql --grant {user}` prints at its end")
