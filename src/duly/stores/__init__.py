"""Where state is kept: the protocols of a store and of its readers, the embedded store, and the shared one.

port        what a scheduler asks of a store, and what everybody who only looks asks of a reader
shared      what hosts ask of a store that they share, and what it answers
sqlite/     one file, one writer, any number of readers
postgres/   one schema of a database, any number of hosts
"""

from typing import TYPE_CHECKING

from duly import lazy

if TYPE_CHECKING:
    from duly.stores.port import COMPLETE, Outcome, Persisted, Reader, Replacement, RunSelection, Store, View
    from duly.stores.sqlite import SqliteReader, SqliteStore

__all__ = [
    "COMPLETE",
    "Outcome",
    "Persisted",
    "Reader",
    "Replacement",
    "RunSelection",
    "SqliteReader",
    "SqliteStore",
    "Store",
    "View",
]

# An application with a store of its own does not load SQLite.
__getattr__, __dir__ = lazy.attributes(
    __name__,
    {
        "port": ("COMPLETE", "Outcome", "Persisted", "Reader", "Replacement", "RunSelection", "Store", "View"),
        "sqlite": ("SqliteReader", "SqliteStore"),
    },
)
