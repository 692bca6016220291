"""The tables of the embedded store, their version, and how an older one becomes this one."""

import os
import sqlite3
from typing import Final

from duly.errors import StoreError, StoreVersionError
from duly.stores.sqlite.file import is_being_created

APPLICATION_ID: Final = 0x64756C79  # "duly"
VERSION: Final = 3
OLDEST_LIBRARY: Final = (3, 33, 0)  # UPDATE ... FROM

# `tasks` holds every declaration that is in force or that history still names, `states` what changes while those in
# force run: narrow rows, so that a tick of many tasks writes few pages. `runs` is history; scheduling never reads it.
# `marks` holds what earlier declarations of a name have served, for a day (SPEC 5.1).
#
# The obligation that a run repeats (SPEC 10.1) stands in `first_started_at`, `first_scheduled` and `attempt`: the first
# start for it, the due minute which that start served, and the number of the latest attempt. All are NULL for a run
# that begins its obligation, as the runs of a burst do: then they are `last_attempt_at`, `run_scheduled` and 1.
# A start is written before its callback is called, so `started_at` is earlier than `called_at`, from which a run counts
# as long as it takes; older versions have not kept the latter. New columns stand last, where a migration adds them.
TABLES: Final = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value
) WITHOUT ROWID;

CREATE TABLE schedulers (
    key INTEGER PRIMARY KEY,
    identifier TEXT NOT NULL UNIQUE,
    since INTEGER NOT NULL
);

CREATE TABLE tasks (
    generation INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    cron TEXT NOT NULL,
    delay_ms INTEGER NOT NULL,
    known_since INTEGER NOT NULL,
    retired_at INTEGER
);

CREATE TABLE states (
    generation INTEGER PRIMARY KEY,
    served_through INTEGER NOT NULL,
    last_attempt_at INTEGER,
    last_success_at INTEGER,
    last_failure_at INTEGER,
    pending_retry_until INTEGER,
    failures INTEGER NOT NULL,
    interruptions INTEGER NOT NULL,
    run INTEGER,
    run_cause TEXT,
    run_scheduled INTEGER,
    written_by INTEGER NOT NULL,
    first_started_at INTEGER,
    first_scheduled INTEGER,
    attempt INTEGER
);

CREATE TABLE runs (
    seq INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    cause TEXT NOT NULL,
    scheduled INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    outcome TEXT NOT NULL,
    error TEXT,
    traceback TEXT,
    first_started_at INTEGER,
    attempt INTEGER,
    called_at INTEGER
);
"""

MARK_TABLE: Final = """
CREATE TABLE marks (
    name TEXT PRIMARY KEY,
    served_through INTEGER NOT NULL,
    retired_at INTEGER NOT NULL
) WITHOUT ROWID;
"""

IN_FORCE_INDEX: Final = "CREATE UNIQUE INDEX tasks_in_force ON tasks (name) WHERE retired_at IS NULL"
RETIRED_INDEX: Final = "CREATE INDEX tasks_retired ON tasks (name) WHERE retired_at IS NOT NULL"
INDICES: Final = (IN_FORCE_INDEX, RETIRED_INDEX)
"""Made after the first tasks are there: sorting a million names is far faster than inserting each in its place."""

# The trace, and the segments it is kept in; both are empty unless a scheduler is asked to leave one. With them, `meta`
# holds `traced` (1: it reaches up to now) and `trace_end` (how the open segment ends, see `tracing`). A store of this
# version without the latter is read as before, and has it from its next segment on: no version of its own is needed.
TRACE_TABLES: Final = """
CREATE TABLE trace (
    seq INTEGER PRIMARY KEY,
    line TEXT NOT NULL
);

CREATE TABLE segments (
    segment INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    header TEXT NOT NULL,
    hash TEXT
);
"""

COUNTERS: Final = ("replaced", "written", "generation", "run")
"""In `meta`: the number of the last replacement and of the last batch applied, the highest generation and run used."""

# A retry that is pending, and a run that is not the first for its obligation: version 2 has not kept which start was
# the first. No idempotency key was given out then, so the latest attempt can take its place.
OBLIGATIONS: Final = f"""
ALTER TABLE states ADD COLUMN first_started_at INTEGER;
ALTER TABLE states ADD COLUMN first_scheduled INTEGER;
ALTER TABLE states ADD COLUMN attempt INTEGER;
UPDATE states SET first_started_at = last_attempt_at, first_scheduled = ifnull(run_scheduled, last_attempt_at),
    attempt = failures + interruptions + (run IS NOT NULL)
    WHERE iif(run IS NULL, pending_retry_until IS NOT NULL, run_cause != 'cron');
ALTER TABLE runs ADD COLUMN traceback TEXT;
ALTER TABLE runs ADD COLUMN first_started_at INTEGER;
ALTER TABLE runs ADD COLUMN attempt INTEGER;
ALTER TABLE runs ADD COLUMN called_at INTEGER;
{MARK_TABLE}
{RETIRED_INDEX};
"""

MIGRATIONS: Final[dict[int, str]] = {1: TRACE_TABLES, 2: OBLIGATIONS}
"""Statements that lead from a version to the next one; run in the transaction of the first initialize()."""


def create(connection: sqlite3.Connection) -> None:
    """Lay out an empty database, inside the caller's transaction, but for what `complete` adds."""
    for statement in (TABLES + MARK_TABLE + TRACE_TABLES).split(";"):
        if statement.strip():
            connection.execute(statement)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", [("zone", None), *((name, 0) for name in COUNTERS)])
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def complete(connection: sqlite3.Connection) -> None:
    """Add the indices to a database that was created in the same transaction, and filled meanwhile."""
    for index in INDICES:
        connection.execute(index)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring an older layout up to this version, inside the caller's transaction."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    for version in range(found, VERSION):
        for statement in MIGRATIONS[version].split(";"):
            if statement.strip():
                connection.execute(statement)
    if found < VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")


def recognise(connection: sqlite3.Connection, path: str) -> int:
    """Return the schema version of a store, 0 for a database without a single table.

    Raises a StoreError for a database of another program, and for one of a newer duly.
    """
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id == version == 0 and _is_empty(connection, path):
        return 0
    if application_id != APPLICATION_ID:
        raise StoreError(
            f"{path} is a database of something else",
            store=path,
            hint="name a store of duly, or a file that does not exist yet",
            applicationId=application_id,
        )
    check_harmless(connection, path)
    if not 1 <= version <= VERSION:
        raise StoreVersionError(path, version, VERSION)
    return int(version)


def _is_empty(connection: sqlite3.Connection, path: str) -> bool:
    """Whether a database has no table: a first initialize() was killed before its commit."""
    if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        # Rolled back to nothing at all, or to the one byte that SQLite takes for nothing. Any other few bytes that
        # count as no page belong to another program.
        size = os.path.getsize(connection.execute("PRAGMA database_list").fetchone()[2])
        return size == 0 or (size == 1 and is_being_created(path))
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def migrated_copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Copy an older layout into memory and bring it up to this version; the file stays as it is."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.backup(copy)
        copy.execute("BEGIN")
        migrate(copy)
        copy.execute("COMMIT")
    except BaseException:
        copy.close()
        raise
    return copy


def check_harmless(connection: sqlite3.Connection, path: str) -> None:
    """Raise a StoreError if the file brings code of its own: duly's has tables and indices, and nothing that acts.

    A view in place of a table, or a trigger, would run with the rights of the process that reads or writes the store.
    """
    found = connection.execute(
        "SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL %'"
    ).fetchone()
    if found is not None:
        kind = found[0] if found[0] != "table" else "virtual table"
        raise StoreError(
            f"{path} holds a {kind} that duly did not make",
            store=path,
            hint="another program changed the file: restore a backup, or remove what was added",
            found=str(found[1]),
        )
