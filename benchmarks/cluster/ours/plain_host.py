"""A host without a scheduler: it calls the functions of a shared store itself, so the store's part is seen alone."""

import time
from collections.abc import Sequence
from uuid import uuid4

from benchmarks.cluster import processor
from duly.core.moments import Delay, Instant, Minute
from duly.core.news import RUNS_OF_A_HOST, Changes, Ended, Started, Statement
from duly.core.task import Cause, Obligation
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.functions import PostgresFunctions
from duly.stores.postgres.install import install
from duly.stores.postgres.url import read_url
from duly.stores.shared import (
    Act,
    Arrival,
    EditionRequest,
    HostIdentity,
    WriteAnswer,
    arrivals_digest,
    set_digest,
)

MINUTE = 60_000_000
LEASE = 30_000_000
DELAY = Delay(300_000)
SAFE = 20_000
"""Microseconds by which a start is dated back: it must not lie ahead of the clock of the database."""


class PlainHost:
    """A host that has joined, and knows the log as far as it wrote it or was told."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = read_url(url, schema)
        self._connection = Connection(self._url)
        self.functions = PostgresFunctions(self._connection)
        self._number = 1
        self._runs = 0

    def install(self) -> None:
        """Create the tables."""
        install(self._connection, self._url)

    def join(self, tasks: Sequence[Arrival]) -> int:
        """Join, and declare tasks if none are in force; the generation of the first of them."""
        loaded = self.functions.load()
        new = [] if loaded.records else tasks
        digest = set_digest(tasks, interrupted="restart")
        identifier = uuid4().hex
        self.functions.arrive(identifier, new)
        answer = self.functions.replace(
            EditionRequest(
                identifier=identifier,
                key=None,
                number=self._number,
                seen=loaded.position,
                act=Act.JOIN,
                digest=digest,
                compared_with=loaded.in_force,
                shares_names=bool(loaded.records),
                removed=(),
                arrivals=len(new),
                arrivals_digest=arrivals_digest(new),
                zone=loaded.zone or "UTC",
                zone_seen=loaded.zone,
                lease=LEASE,
                said=Statement(0, len(tasks), "", "restart", None, None, 0),
            )
        )
        assert answer.key is not None
        self.me = HostIdentity(answer.key, identifier)
        self.seen = self.functions.news(loaded.position).entries[-1].position
        return loaded.records[0].generations[0] if loaded.records else (answer.first_generation or 1)

    def start(self, generations: Sequence[int]) -> tuple[WriteAnswer, int]:
        """Start tasks; the answer, and the number of the first run."""
        now = Instant(time.time_ns() // 1000 - SAFE)
        first = self.me.key * RUNS_OF_A_HOST + self._runs + 1
        self._runs += len(generations)
        block = Started(
            generations=tuple(generations),
            first_run=first,
            cause=Cause.CRON,
            at=now,
            scheduled=Instant(now // MINUTE * MINUTE),
            served_through=Minute(now // MINUTE * 60),
            pending_retry_until=None,
            interruptions=0,
            obligation=Obligation(now, Instant(now // MINUTE * MINUTE), 1),
        )
        return self._write(Changes(starts=(block,))), first

    def end(self, generations: Sequence[int], first_run: int) -> WriteAnswer:
        """Record that runs have ended well."""
        now = Instant(time.time_ns() // 1000 - SAFE)
        scheduled = Instant(now // MINUTE * MINUTE)
        runs = tuple(range(first_run, first_run + len(generations)))
        block = Ended(tuple(generations), runs, now, Cause.CRON, scheduled, now, now, Obligation(now, scheduled, 1))
        return self._write(Changes(ends=(block,)))

    def database_seconds(self) -> float | None:
        """Processor time of this host's session."""
        return processor.of_process(self._connection.backend_pid)

    def _write(self, changes: Changes) -> WriteAnswer:
        self._number += 1
        answer = self.functions.write(self.me, self._number, self.seen, changes)
        self.seen = answer.position
        return answer


def arrivals(tasks: int, expressions: Sequence[str]) -> list[Arrival]:
    """Declarations that take their expressions in turn."""
    kinds = len(expressions)
    return [Arrival(f"task-{index}", expressions[index % kinds], DELAY) for index in range(tasks)]
