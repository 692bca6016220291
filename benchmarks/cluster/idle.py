"""Hosts that have nothing to do: transactions of their database in a minute, and what they cost it."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.children import Sample
from benchmarks.cluster import processor
from benchmarks.cluster.faults import rolling
from benchmarks.cluster.plan import SCHEDULERS, Size
from benchmarks.cluster.server import Server
from benchmarks.cluster.trio import Trio
from benchmarks.cluster.work import DORMANT, Tasks

NOBODY = "idle_nobody"
"""A database without hosts: the server's own housekeeping is not theirs."""

TASKS = 10


class Idle:
    """The trios of all schedulers at rest, side by side."""

    def __init__(self, server: Server, size: Size, folder: Path, tell: Callable[[str], None]) -> None:
        self._server = server
        self._size = size
        self._folder = folder
        self._tell = tell
        self.found: dict[str, Sample] = {}
        self.broken: dict[str, str] = {}
        self.interrupted = threading.Event()
        """Set by another thread: nothing is counted any more."""

    def run(self, names: list[str]) -> None:
        """Start them, let them come to rest, and count."""
        trios = {name: self._trio(SCHEDULERS[name][0]) for name in names}
        try:
            for name, trio in list(trios.items()):
                try:
                    trio.prepare()
                except RuntimeError as error:
                    self.broken[name] = str(error)
                    del trios[name]
            self._server.create(NOBODY)
            rolling(list(trios.values()), self._size.rolling_s)
            until = time.time() + self._size.start_s
            for name, trio in trios.items():
                if not trio.wait_until_ready(until):
                    self.broken[name] = "not all hosts became ready: " + trio.last_words(trio.hosts[0])
            self._tell(f"idle: {len(trios)} schedulers for {self._size.settle_s + self._size.idle_s:.0f} s")
            self.interrupted.wait(self._size.settle_s)
            self._count([name for name in trios if name not in self.broken])
        finally:
            for trio in trios.values():
                trio.kill()

    def _trio(self, adapter: str) -> Trio:
        url = self._server.create(_database(adapter))
        return Trio(adapter, url, self._folder / _database(adapter), [Tasks("rest", DORMANT, number=TASKS)])

    def _count(self, names: list[str]) -> None:
        beats = self._beats() if "duly" in names else 0
        transactions, used, begun = self._transactions(), self._used(names), time.monotonic()
        if self.interrupted.wait(self._size.idle_s):
            return
        transactions_after, used_after, minutes = self._transactions(), self._used(names), (
            time.monotonic() - begun) / 60  # fmt: skip
        counted = {name: transactions_after[name] - transactions[name] for name in transactions}
        for name in names:
            database = _database(SCHEDULERS[name][0])
            sample = {"transactions_a_minute": (counted[database] - counted[NOBODY]) / minutes}
            before, after = used[name], used_after[name]
            if before is not None and after is not None:
                sample["database_ms_a_minute"] = 1000 * (after - before) / minutes
                if name == "duly" and (more := self._beats() - beats) > 0:
                    sample["beats_a_minute"] = more / minutes
                    sample["database_ms_a_beat"] = 1000 * (after - before) / more
            self.found[f"idle {name}"] = sample

    def _transactions(self) -> Mapping[str, int]:
        return dict(self._server.rows("select datname, xact_commit + xact_rollback from pg_stat_database"))

    def _used(self, names: list[str]) -> dict[str, float | None]:
        """Processor time of the sessions of each scheduler."""
        sessions = self._server.rows("select datname, pid from pg_stat_activity where backend_type = 'client backend'")
        return {
            name: processor.of_processes(
                pid for database, pid in sessions if database == _database(SCHEDULERS[name][0])
            )
            for name in names
        }

    def _beats(self) -> int:
        """How often duly's hosts have beaten."""
        return int(self._server.rows("select sum(beat) from duly.hosts", _database("duly"))[0][0])


def _database(adapter: str) -> str:
    return f"idle_{adapter}"
