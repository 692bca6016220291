"""The embedded store: one SQLite file, one writer, one lock, any number of readers.

store       opens, loads, replaces, writes and closes; what the engine calls
reader      answers questions without changing anything; what the command line asks
load        rows to values
write       changes to statements
trace       the trace inside the store
transfer    rows that leave for a shared store, or arrive from one
schema      tables and migrations
file, lock  the files on disk, and which process holds them
damage      what SQLite reads over: a file that lost its end, an index that disagrees with its table
faults      SQLite's errors in duly's words
"""

from typing import TYPE_CHECKING

from duly import lazy

if TYPE_CHECKING:
    from duly.stores.sqlite.reader import SqliteReader
    from duly.stores.sqlite.store import SqliteStore

__all__ = ["SqliteReader", "SqliteStore"]

# A scheduler does not load the reader, and a command that only reads does not load the store.
__getattr__, __dir__ = lazy.attributes(__name__, {"reader": ("SqliteReader",), "store": ("SqliteStore",)})
