"""The embedded store: one SQLite file, one writer, one lock.

store       opens, loads, replaces, writes and closes; what the engine calls
load        rows to values
write       changes to statements
trace       the trace inside the store
schema      tables and migrations
file, lock  the place on disk, and who holds it
faults      SQLite's errors in duly's words
"""

from duly.stores.sqlite.store import DEFAULT_HISTORY, SqliteStore

__all__ = ["DEFAULT_HISTORY", "SqliteStore"]
