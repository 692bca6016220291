"""Where state is kept: the protocols of a store and of its readers, and the embedded store on SQLite.

port        what a scheduler asks of a store, and what everybody who only looks asks of a reader
sqlite/     one file, one writer, any number of readers
"""

from duly.stores.port import Persisted, Reader, Refusal, Replacement, Store, View
from duly.stores.sqlite import SqliteReader, SqliteStore

__all__ = ["Persisted", "Reader", "Refusal", "Replacement", "SqliteReader", "SqliteStore", "Store", "View"]
