"""Where state is kept: the protocols of a store and of its readers, the embedded store, and the shared one.

port        what a scheduler asks of a store, and what everybody who only looks asks of a reader
shared      what hosts ask of a store that they share, and what it answers
shared_trace  the trace of a shared store: its log, entry by entry, in the letters of the formal trace
trace_copy  the trace of a store, written into a file
place       a path or a URL, its name for people and for metrics, and its reader
transfer    what moves from one kind of store to the other
sqlite/     one file, one writer, any number of readers
postgres/   one schema of a database, any number of hosts
"""

from typing import TYPE_CHECKING

from duly import lazy

if TYPE_CHECKING:
    from duly.stores.place import label_of, reader_of
    from duly.stores.port import COMPLETE, Outcome, Persisted, Reader, Replacement, RunSelection, Store, View
    from duly.stores.postgres import PostgresReader
    from duly.stores.postgres.store import PostgresStore
    from duly.stores.shared import SharedStore
    from duly.stores.sqlite import SqliteReader, SqliteStore

__all__ = [
    "COMPLETE",
    "Outcome",
    "Persisted",
    "PostgresReader",
    "PostgresStore",
    "Reader",
    "Replacement",
    "RunSelection",
    "SharedStore",
    "SqliteReader",
    "SqliteStore",
    "Store",
    "View",
    "label_of",
    "reader_of",
]

# An application with a store of its own does not load SQLite, and psycopg need not be installed.
__getattr__, __dir__ = lazy.attributes(
    __name__,
    {
        "place": ("label_of", "reader_of"),
        "port": ("COMPLETE", "Outcome", "Persisted", "Reader", "Replacement", "RunSelection", "Store", "View"),
        "postgres": ("PostgresReader",),
        "postgres.store": ("PostgresStore",),
        "shared": ("SharedStore",),
        "sqlite": ("SqliteReader", "SqliteStore"),
    },
)
