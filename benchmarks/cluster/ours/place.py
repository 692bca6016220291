"""A schema of its own for a measurement, whose minutes come when it needs them."""

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime
from uuid import uuid4

import psycopg
import tzlocal

from benchmarks.cluster import processor
from duly.stores.postgres.script import quoted

SERVER_NOW = "extract(epoch from clock_timestamp()) * 1000000"


class Place:
    """A schema on a server, and an observer's connection to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.schema = f"bench_{uuid4().hex}"
        self._observer = psycopg.connect(url, autocommit=True)
        self._ahead = 0.0

    def shift_clock(self, seconds: float) -> datetime:
        """Let the clock of the store run ahead, so that a minute begins in so many seconds; returns that minute.

        No measurement waits for a minute, and no clock is stepped while hosts run. The tables must be there.
        """
        now = time.time()
        minute = (now + seconds) // 60 * 60 + 60
        self._ahead = minute - now - seconds
        self._observer.execute(
            f"create or replace function {quoted(self.schema)}.clock_1() returns bigint language sql volatile as "
            f"$$ select ({SERVER_NOW})::bigint + {round(self._ahead * 1_000_000)} $$".encode()
        )
        return datetime.fromtimestamp(minute, tzlocal.get_localzone())

    def slow_commits(self, seconds: float) -> None:
        """Let each commit of a write or a beat take so much longer, as a synchronous standby does. Needs the tables.

        A deferred trigger sleeps in the commit, while the one lock of all writers is held. `commit_delay` does not do:
        who waits for the disk meanwhile is served by the flush of another and sleeps less.
        """
        self._observer.execute(
            f"set search_path = {quoted(self.schema)};"
            f"create function slow_commit() returns trigger language plpgsql as "
            f"$$ begin perform pg_sleep({seconds}); return null; end $$;"
            "create constraint trigger slow_commit after insert on log deferrable initially deferred "
            "for each row execute function slow_commit();"
            "create constraint trigger slow_commit after update of beat on hosts deferrable initially deferred "
            "for each row execute function slow_commit();"
            "reset search_path".encode()
        )

    def seconds_until(self, due: datetime) -> float:
        """How far ahead a minute lies on the clock of the store; negative: it has begun."""
        return due.timestamp() - self._ahead - time.time()

    def wall_time_of(self, due: datetime) -> float:
        """When a minute of the store's clock begins on the wall clock of the machine."""
        return due.timestamp() - self._ahead

    def number(self, statement: str) -> int:
        """The one number that a query gives, with the schema's tables."""
        with self._observer.transaction():
            self._observer.execute(f"set local search_path = {quoted(self.schema)}".encode())
            row = self._observer.execute(statement.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def server_seconds(self) -> float | None:
        """Processor time of all processes of the server."""
        postmaster = processor.parent_of(self._observer.info.backend_pid)
        return None if postmaster is None else processor.of_server(postmaster)

    def remove(self) -> None:
        """Drop the schema."""
        self._observer.execute(f"drop schema if exists {quoted(self.schema)} cascade".encode())
        self._observer.close()


@contextlib.contextmanager
def place(url: str) -> Iterator[Place]:
    """A place that is gone afterwards."""
    made = Place(url)
    try:
        yield made
    finally:
        made.remove()
