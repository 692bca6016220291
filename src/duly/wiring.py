"""The inside of a scheduler, put together: an engine on a host, with its store and its listener."""

import sys
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, TypeGuard

from duly.engine.host import Host
from duly.engine.lifecycle import Lifecycle
from duly.engine.options import Options
from duly.engine.outbox import Outbox
from duly.engine.setup import Setup
from duly.errors import UnsupportedPlatformError
from duly.events import Event
from duly.stores.port import Store
from duly.stores.postgres.url import is_url, read_url
from duly.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from duly.stores.shared import SharedStore


def lifecycle_on(
    host: Host,
    store: "str | PathLike[str] | Store | SharedStore",
    options: Options,
    *,
    ignored: frozenset[type[Event]] = frozenset(),
) -> Lifecycle:
    """The inside of a scheduler on any host; `ignored` are events that `on_event` ignores."""
    if sys.platform == "win32":
        raise UnsupportedPlatformError("Windows")
    outbox = Outbox(host.clock, options.on_event, ignored=ignored)
    where = _store_of(store, options.history, host)
    if isinstance(where, Store):
        return Lifecycle(Setup(options, host, where, outbox))
    return _shared_lifecycle(host, where, options, outbox)


def _shared_lifecycle(host: Host, store: "SharedStore", options: Options, outbox: Outbox) -> Lifecycle:
    from duly.engine.shared_clock import SharedClock  # what hosts are made of, which an embedded store does without
    from duly.engine.shared_lifecycle import SharedLifecycle

    if options.monitor:
        options = replace(options, trace=True)  # it judges what all hosts write, which is the trace
    host = replace(host, clock=SharedClock(host.clock))
    return SharedLifecycle(Setup(options, host, store, outbox))


def _store_of(store: "str | PathLike[str] | Store | SharedStore", history: int, host: Host) -> "Store | SharedStore":
    if isinstance(store, str) and is_url(store):
        return _postgres_store(store)
    if isinstance(store, str | PathLike):
        return SqliteStore(store, history=history, worker=host.new_worker())
    if isinstance(store, SqliteStore):
        store.history = history
        return store
    if isinstance(store, type):
        raise TypeError(f"store must be an object, got the class {store.__name__}: call it")
    if isinstance(store, Store) or _is_shared(store):
        return store
    raise TypeError(f"store must be a path, a URL or a Store, got {type(store).__name__}")


def _is_shared(store: object) -> "TypeGuard[SharedStore]":
    from duly.stores.shared import SharedStore

    return isinstance(store, SharedStore)


def _postgres_store(url: str) -> "SharedStore":
    # Before the import: it says what is wrong with the URL, or that psycopg is missing, which is an extra.
    place = read_url(url)
    from duly.stores.postgres.store import PostgresStore

    return PostgresStore(place)
