"""The embedded store: one SQLite file, one writer, one lock, any number of readers.

store       opens, loads, replaces, writes and closes; what the engine calls
reader      answers questions without changing anything; what the command line asks
load        rows to values
write       changes to statements
trace       the trace inside the store
schema      tables and migrations
file, lock  the files on disk, and which process holds them
faults      SQLite's errors in duly's words
"""

from duly.stores.sqlite.reader import SqliteReader
from duly.stores.sqlite.store import SqliteStore

__all__ = ["SqliteReader", "SqliteStore"]
