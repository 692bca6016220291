"""PostgreSQL's errors as `StoreError`s: which pass, which stay, and which are answers of duly's own functions."""

from typing import Final

import psycopg

from duly.errors import ClusterZoneError, ForeignSetError, HostGoneError, StoreError, StoreRewoundError
from duly.text import plain

TRANSIENT_CLASSES: Final = frozenset({"08", "40", "53", "55", "57", "58"})
"""Classes of SQLSTATE that pass by themselves: connection, rollback, resources, objects in use, operators, system."""

SAID_MAX: Final = 200
"""Characters of PostgreSQL's own message that are shown."""

DEMOTED: Final = "25006"
"""A write to a server that became a standby: the next connection finds the new primary."""

_TEXTS: Final[dict[str, tuple[str, str]]] = {
    "25006": ("is read-only", "connect to the primary, and unset default_transaction_read_only; duly tries again"),
    "28": ("refuses the role or its password", "check user, password and pg_hba.conf"),
    "3D": ("does not exist", "create the database, or correct its name in the URL"),
    "42501": ("refuses the role a right that it needs", "grant what `duly store sql --grant ROLE` prints"),
    "53100": ("cannot grow: the disk of the server is full", "make room; nothing that was recorded is lost"),
    "53": ("lacks a resource", "look at the server's limits: connections, memory, disk"),
    "55P03": ("is locked by hand or by another program", "end LOCK, VACUUM FULL or an open transaction in its schema"),
    "57": ("was interrupted by its server", "the server restarts or was told to end the connection; duly tries again"),
}


def fault_of(cause: psycopg.Error, store: str, operation: str) -> StoreError:
    """The error that takes the place of psycopg's; `permanent` in its details says that trying again does not help."""
    code = cause.diag.sqlstate or ""
    detail = cause.diag.message_detail or ""
    if code == "DU001":
        return _gone(store, detail)
    if code == "DU004":
        return StoreRewoundError(store, f"entry {detail} of the log")
    if code == "DU006":
        return ForeignSetError(store)
    if code == "DU007":
        return ClusterZoneError(store, "another", detail)
    known = next((_TEXTS[prefix] for prefix in (code, code[:2]) if prefix in _TEXTS), None)
    if known is None:
        # libpq names hosts, ports and users here, and never a password: `read_url` has checked that none stands there.
        lines = (cause.diag.message_primary or str(cause)).strip().splitlines()
        said = plain(lines[0] if lines else type(cause).__name__, longest=SAID_MAX)
        if code:
            known = f"failed: {said}", ""
        else:
            known = f"cannot be reached: {said}", "is the server running, and the URL right?"
    text, hint = known
    return StoreError(
        f"Store {store} {text}",
        store=store,
        hint=hint or None,
        operation=operation,
        code=code,
        permanent=not is_transient(code),
        cause=cause,
    )


def broken(cause: OSError, store: str, operation: str) -> StoreError:
    """The error for a fault of this machine, such as too many open files: it may pass."""
    return StoreError(
        f"Store {store} cannot be reached: {plain(cause.strerror or str(cause), longest=SAID_MAX)}",
        store=store,
        hint="look at the limits of this process, such as its open files",
        operation=operation,
        code="",
        permanent=False,
        cause=cause,
    )


def emptied(store: str, table: str) -> StoreError:
    """The error for a table that cannot be empty, and is: somebody has changed the store by hand."""
    return StoreError(
        f"Store {store} is damaged: its table {table} is empty",
        store=store,
        hint="restore it from a backup, or drop the schema, and the hosts begin anew",
        permanent=True,
    )


def is_transient(code: str) -> bool:
    """Whether a fault passes by itself (SPEC 9.20); no code at all: the connection broke."""
    return not code or code == DEMOTED or code[:2] in TRANSIENT_CLASSES


def _gone(store: str, detail: str) -> StoreError:
    how, _, host = detail.partition(" ")
    if how == "missing":
        return StoreRewoundError(store, f"host {host}")
    return HostGoneError(store, int(host), "was buried" if how == "buried" else "has left")
