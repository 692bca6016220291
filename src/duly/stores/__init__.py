"""Where state is kept: the Store port, and its embedded implementation on SQLite.

port        what the scheduler asks of a store
sqlite      one file, one writer
schema      tables, version, migrations
statements  what is written, set by set
worker      the thread in which that happens
lockfile    one living holder, known by name
faults      what the library complains about, in our words
"""

from duly.stores.port import Persisted, Refusal, Replacement, Store
from duly.stores.sqlite import SqliteStore

__all__ = ["Persisted", "Refusal", "Replacement", "SqliteStore", "Store"]
