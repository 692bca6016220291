"""Stores made row by row: situations that a scheduler would need long to come into, in any number."""

import contextlib
import random
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from duly.core.moments import MICROSECONDS, Instant
from duly.core.record import FIELDS
from duly.stores.sqlite import schema


@dataclass(frozen=True)
class Row:
    """A task in force and its state; the fields are those of a record."""

    name: str
    cron: str = "* * * * *"
    delay_ms: int = 60_000
    known_since: int = 0
    served_through: int = 0
    last_attempt_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    pending_retry_until: int | None = None
    failures: int = 0
    interruptions: int = 0
    run: int | None = None
    run_cause: str | None = None
    run_scheduled: int | None = None
    written_by: int = 1
    retired_at: int | None = None
    """Set: the declaration is no longer in force, and has no state."""

    @property
    def repeats(self) -> bool:
        """Whether a retry is pending, or under way: the obligation that it repeats began with the latest attempt."""
        return self.pending_retry_until is not None if self.run is None else self.run_cause != "cron"

    @property
    def first_started_at(self) -> int | None:
        return self.last_attempt_at if self.repeats else None

    @property
    def first_scheduled(self) -> int | None:
        return self.first_started_at

    @property
    def attempt(self) -> int | None:
        return max(1, self.failures) if self.repeats else None


Run = tuple[int, int, str, int, int, int | None, str, str | None]
"""Number, generation, cause, scheduled, started, ended, outcome, error."""


def make_store(
    path: Path, rows: Sequence[Row], runs: Iterable[Run] = (), *, schedulers: Sequence[int] = (0,), zone: str = "UTC"
) -> Path:
    """A store with these tasks, their generations counted from 1, and these runs in its history."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        schema.create(connection)
        tasks, states = [], []
        for generation, row in enumerate(rows, 1):
            tasks.append((generation, row.name, row.cron, row.delay_ms, row.known_since, row.retired_at))
            if row.retired_at is None:
                states.append((generation, *(getattr(row, name) for name in FIELDS[5:])))
        connection.executemany("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?)", tasks)
        columns = ("generation", *FIELDS[5:])
        connection.executemany(
            f"INSERT INTO states ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", states
        )
        connection.executemany(
            "INSERT INTO runs (run, generation, cause, scheduled, started_at, ended_at, outcome, error) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            runs,
        )
        connection.executemany(
            "INSERT INTO schedulers VALUES (?, ?, ?)",
            [(key, f"scheduler {key}", since) for key, since in enumerate(schedulers, 1)],
        )
        schema.complete(connection)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'zone'", (zone,))
        connection.execute("COMMIT")
    return path


CRONS = ("* * * * *", "0,10,20,30,40,50 * * * *", "0 * * * *", "30 2 * * *", "0 0 1 1 *")


def random_rows(chance: random.Random, at: Instant, count: int) -> list[Row]:
    """Tasks in all kinds of situations, as they may be found at an instant."""
    minute = at // MICROSECONDS // 60 * 60

    def ago(longest_s: int) -> int:
        return at - chance.randrange(longest_s * MICROSECONDS)

    rows = []
    success: int | None
    failure: int | None
    for number in range(count):
        cron, delay = chance.choice(CRONS), chance.choice((0, 30_000, 600_000))
        mark = minute - 60 * chance.choice((0, 0, 1, 1, 2, 3, 10, 100, 1000))
        name = f"task-{chance.randrange(1000):03}-{number}"
        match chance.choice(("new", "waiting", "waiting", "retrying", "running", "running")):
            case "new":
                rows.append(Row(name, cron, delay, ago(9000), mark))
            case "waiting":
                attempt = ago(9000)
                success = attempt + chance.randrange(60 * MICROSECONDS)
                failure = chance.choice((None, attempt - 5_000_000, success + 9_000_000))
                rows.append(Row(name, cron, delay, 0, mark, attempt, success, failure))
            case "retrying":
                attempt = ago(9000)
                failed_at = failure = attempt + chance.randrange(60 * MICROSECONDS)
                success = chance.choice((None, attempt - 5_000_000))
                retry = failed_at + 1000 * max(1000, delay)
                rows.append(Row(name, cron, delay, 0, mark, attempt, success, failure, retry, chance.randrange(1, 4)))
            case "running":
                attempt, writer = ago(300), chance.choice((1, 2))
                success = chance.choice((None, attempt - chance.randrange(900) * MICROSECONDS))
                rows.append(
                    Row(
                        name, cron, delay, 0, mark, attempt, success, interruptions=chance.choice((0, 0, 1, 2)),
                        run=1000 + number, run_cause="cron", run_scheduled=mark * MICROSECONDS, written_by=writer,
                    )
                )  # fmt: skip
    return rows
