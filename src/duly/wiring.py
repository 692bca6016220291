"""The inside of a scheduler, put together: an engine on a host, with its store and its listener."""

import sys
from os import PathLike

from duly.engine.host import Host
from duly.engine.lifecycle import Lifecycle
from duly.engine.options import Options
from duly.engine.outbox import Outbox
from duly.engine.setup import Setup
from duly.errors import StoreError, UnsupportedPlatformError
from duly.events import Event
from duly.stores.port import Store
from duly.stores.postgres.url import is_url
from duly.stores.sqlite.store import SqliteStore


def lifecycle_on(
    host: Host,
    store: str | PathLike[str] | Store,
    options: Options,
    *,
    ignored: frozenset[type[Event]] = frozenset(),
) -> Lifecycle:
    """The inside of a scheduler on any host; `ignored` are events that `on_event` ignores."""
    if sys.platform == "win32":
        raise UnsupportedPlatformError("Windows")
    outbox = Outbox(host.clock, options.on_event, ignored=ignored)
    return Lifecycle(Setup(options, host, _store_of(store, options.history, host), outbox))


def _store_of(store: str | PathLike[str] | Store, history: int, host: Host) -> Store:
    if isinstance(store, str) and is_url(store):
        raise StoreError(
            "A scheduler cannot run on PostgreSQL yet",
            store=f"{store.partition(':')[0]}://...",
            hint="this version has the functions of a shared store, and no host that uses them: name a file",
        )
    if isinstance(store, str | PathLike):
        return SqliteStore(store, history=history, worker=host.new_worker())
    if isinstance(store, SqliteStore):
        store.history = history
        return store
    if isinstance(store, type):
        raise TypeError(f"store must be an object, got the class {store.__name__}: call it")
    if isinstance(store, Store):
        return store
    raise TypeError(f"store must be a path or a Store, got {type(store).__name__}")
