"""Two layouts for the states of tasks, side by side: `python -m benchmarks.layouts` prints microseconds per run.

**Rows** is what the store has: one row per task, and a start or an end is an UPDATE of some of its columns. Neighbours
are found with BETWEEN, scattered tasks by their numbers in a JSON array.

**Spans** is the alternative: a run-length coded map from tasks to complete states, one row for a stretch of neighbours
in the same state, and one verb, `assign(parts)`, which cuts the old spans where the new ones begin and end. It is
set-based: eight statements for a transaction, however many parts it has.

Both write the start and the end of every task in transactions of 5,000, on one thread, to a file with
`synchronous=FULL`. History is left out: it is one row per run in both. docs/decisions/0012-states-stay-rows.md draws
the conclusion.
"""

import argparse
import contextlib
import json
import os
import random
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, Protocol

from benchmarks.child import scratch_folder

TOGETHER: Final = 5_000
"""Tasks per transaction, as in a burst of the scheduler."""

ENDS_A_MILLISECOND: Final = 300
"""Neighbours that end in one millisecond when callbacks return at once; ends are recorded by millisecond."""

OFFSET_BITS: Final = 20
BEGIN: Final = 1_750_000_000_000_000
MINUTE: Final = 60_000_000
SEED: Final = 13

# A state as in the store. `run` of a span is that of its first task; the others follow.
COLUMNS: Final = (
    "served_through", "last_attempt_at", "last_success_at", "last_failure_at", "pending_retry_until", "failures",
    "interruptions", "run", "run_cause", "run_scheduled", "written_by", "first_started_at", "first_scheduled",
    "attempt",
)  # fmt: skip


class Part(NamedTuple):
    """Neighbours that start or end alike."""

    first: int
    last: int
    started_at: int  # of the run that starts or ends
    last_success_at: int | None  # before the start, or at the end
    run: int | None  # of the first of them; None when they end


State = tuple[int, int, int | None, int | None]
"""Task, last attempt, last success and run."""


class Layout(Protocol):
    """States in a file."""

    def __init__(self, connection: sqlite3.Connection) -> None: ...

    def fill(self, parts: Sequence[Part]) -> None:
        """Write the states that there are before anything starts."""
        ...

    def start(self, parts: Sequence[Part]) -> None:
        """Write starts, inside the caller's transaction."""
        ...

    def end(self, parts: Sequence[Part]) -> None:
        """Write successful ends, inside the caller's transaction."""
        ...

    def contents(self) -> Iterator[State]:
        """All states, one by one, so that the layouts can be compared."""
        ...


class Rows:
    """One row per task."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute(f"CREATE TABLE states (generation INTEGER PRIMARY KEY, {', '.join(COLUMNS)})")

    def fill(self, parts: Sequence[Part]) -> None:
        self._connection.executemany(
            "INSERT INTO states VALUES (?, ?, ?, ?, NULL, NULL, 0, 0, NULL, NULL, NULL, 1, NULL, NULL, NULL)",
            (
                (generation, part.started_at // 1_000_000, part.started_at, part.last_success_at)
                for part in parts
                for generation in range(part.first, part.last + 1)
            ),
        )

    def start(self, parts: Sequence[Part]) -> None:
        """By range where they are neighbours, otherwise all at once by a JSON array."""
        # All parts of a transaction start at one instant, with consecutive runs.
        at, run = parts[0].started_at, parts[0].run
        changes = (
            "served_through = :minute, last_attempt_at = :at, pending_retry_until = NULL, interruptions = 0, "
            "run_cause = 'cron', run_scheduled = :minute, written_by = 1, first_started_at = NULL, "
            "first_scheduled = NULL, attempt = NULL"
        )
        facts = {"minute": at // 1_000_000, "at": at, "run": run}
        if len(parts) == 1:
            self._connection.execute(
                f"UPDATE states SET {changes}, run = :run + generation - :first "
                "WHERE generation BETWEEN :first AND :last",
                {**facts, "first": parts[0].first, "last": parts[0].last},
            )
        else:
            self._connection.execute(
                f"UPDATE states SET {changes}, run = :run + j.key FROM json_each(:generations) AS j "
                "WHERE states.generation = j.value",
                {**facts, "generations": _array([part.first for part in parts])},
            )

    def end(self, parts: Sequence[Part]) -> None:
        """By range where they are neighbours, otherwise packed as number and millisecond."""
        changes = (
            "pending_retry_until = NULL, failures = 0, interruptions = 0, run = NULL, run_cause = NULL, "
            "run_scheduled = NULL, written_by = 1, first_started_at = NULL, first_scheduled = NULL, attempt = NULL"
        )
        if len(parts) < TOGETHER // 8:
            self._connection.executemany(
                f"UPDATE states SET last_success_at = ?, {changes} WHERE generation BETWEEN ? AND ?",
                ((part.last_success_at, part.first, part.last) for part in parts),
            )
            return
        base = min(part.last_success_at or 0 for part in parts)
        packed = [part.first << OFFSET_BITS | ((part.last_success_at or 0) - base) // 1000 for part in parts]
        self._connection.execute(
            f"UPDATE states SET last_success_at = ended.at, {changes} "
            f"FROM (SELECT value >> {OFFSET_BITS} AS generation, "
            f":base + 1000 * (value & {(1 << OFFSET_BITS) - 1}) AS at FROM json_each(:ends)) AS ended "
            "WHERE states.generation = ended.generation",
            {"base": base, "ends": _array(packed)},
        )

    def contents(self) -> Iterator[State]:
        return self._connection.execute(
            "SELECT generation, last_attempt_at, last_success_at, run FROM states ORDER BY generation"
        )


class Spans:
    """One row for neighbours in the same state."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        for name in ("spans", "temp.parts", "temp.remains"):
            connection.execute(f"CREATE TABLE {name} (first INTEGER PRIMARY KEY, last, {', '.join(COLUMNS)})")

    def fill(self, parts: Sequence[Part]) -> None:
        self._gather(parts)
        self._connection.execute("INSERT INTO spans SELECT * FROM parts")

    def start(self, parts: Sequence[Part]) -> None:
        self.assign(parts)

    def end(self, parts: Sequence[Part]) -> None:
        self.assign(parts)

    def assign(self, parts: Sequence[Part]) -> None:
        """Give each part its state; what is left of the spans they cut keeps its own."""
        self._gather(parts)
        others = ", ".join(f"s.{column}" for column in COLUMNS if column != "run")
        columns = ", ".join(column for column in COLUMNS if column != "run")
        # The rest of a span behind a part: up to the next part, or to the span's end.
        self._connection.execute(
            f"INSERT INTO remains (first, last, run, {columns}) "
            f"SELECT p.last + 1, min(s.last, ifnull(p.next - 1, s.last)), s.run + p.last + 1 - s.first, {others} "
            "FROM (SELECT last, lead(first) OVER (ORDER BY first) AS next FROM parts) AS p "
            "CROSS JOIN spans AS s ON s.first = (SELECT max(first) FROM spans WHERE first <= p.last) "
            "WHERE s.last > p.last AND (p.next IS NULL OR p.next > p.last + 1)"
        )
        # A span that begins before the first part in it ends there.
        self._connection.execute(
            "UPDATE spans SET last = p.first - 1 "
            "FROM (SELECT first, lag(last) OVER (ORDER BY first) AS before FROM parts) AS p "
            "WHERE spans.first = (SELECT max(first) FROM spans WHERE first < p.first) AND spans.last >= p.first "
            "AND (p.before IS NULL OR p.before < spans.first)"
        )
        self._connection.execute(
            "DELETE FROM spans WHERE first IN (SELECT s.first FROM parts AS p "
            "CROSS JOIN spans AS s ON s.first BETWEEN p.first AND p.last)"
        )
        self._connection.execute("INSERT INTO spans SELECT * FROM remains")
        self._connection.execute("INSERT INTO spans SELECT * FROM parts")

    def _gather(self, parts: Sequence[Part]) -> None:
        self._connection.execute("DELETE FROM parts")
        self._connection.execute("DELETE FROM remains")
        self._connection.execute(
            "INSERT INTO parts "
            "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, NULL, NULL, 0, 0, "
            "value ->> 5, iif(value ->> 5 IS NULL, NULL, 'cron'), iif(value ->> 5 IS NULL, NULL, value ->> 2), 1, "
            "NULL, NULL, NULL FROM json_each(?)",
            (json.dumps([
                (part.first, part.last, part.started_at // 1_000_000, part.started_at, part.last_success_at, part.run)
                for part in parts
            ]),),
        )  # fmt: skip

    def contents(self) -> Iterator[State]:
        for first, last, attempt, success, run in self._connection.execute(
            "SELECT first, last, last_attempt_at, last_success_at, run FROM spans ORDER BY first"
        ):
            for generation in range(first, last + 1):
                yield generation, attempt, success, None if run is None else run + generation - first


def _array(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


# --- workloads -------------------------------------------------------------------------------------------------------


class Workload(NamedTuple):
    """States before, then starts and ends, one list of parts for each transaction."""

    states: list[Part]
    starts: list[list[Part]]
    ends: list[list[Part]]


def neighbours(tasks: int) -> Workload:
    """All tasks are in the same state, start together, and end in the order of their numbers."""
    starts, ends = [], []
    for first in range(1, tasks + 1, TOGETHER):
        last = min(first + TOGETHER - 1, tasks)
        starts.append([Part(first, last, BEGIN + MINUTE, BEGIN, first)])
        ends.append([
            Part(begin, min(begin + ENDS_A_MILLISECOND - 1, last), BEGIN + MINUTE, _ended(begin), None)
            for begin in range(first, last + 1, ENDS_A_MILLISECOND)
        ])  # fmt: skip
    return Workload([Part(1, tasks, BEGIN, BEGIN, None)], starts, ends)


def random_ends(tasks: int) -> Workload:
    """All tasks are in the same state and start together, but end in any order, each in its own millisecond."""
    together = neighbours(tasks)
    return together._replace(ends=_one_by_one(tasks, random.Random(SEED)))


def scattered(tasks: int) -> Workload:
    """Every task is in a state of its own; they start and end in any order."""
    order = random.Random(SEED)
    states = [Part(number, number, BEGIN, BEGIN - 1000 * number, None) for number in range(1, tasks + 1)]
    shuffled = order.sample(range(1, tasks + 1), tasks)
    starts = [
        [
            Part(number, number, BEGIN + MINUTE, BEGIN - 1000 * number, first + 1 + place)
            for place, number in enumerate(shuffled[first : first + TOGETHER])
        ]
        for first in range(0, tasks, TOGETHER)
    ]
    return Workload(states, starts, _one_by_one(tasks, order))


def _one_by_one(tasks: int, order: random.Random) -> list[list[Part]]:
    ended = [
        Part(number, number, BEGIN + MINUTE, BEGIN + MINUTE + 1000 * place, None)
        for place, number in enumerate(order.sample(range(1, tasks + 1), tasks), 1)
    ]
    return [ended[first : first + TOGETHER] for first in range(0, tasks, TOGETHER)]


def _ended(number: int) -> int:
    return BEGIN + MINUTE + 1000 * (1 + number // ENDS_A_MILLISECOND)


WORKLOADS: Final = {"neighbours": neighbours, "random ends": random_ends, "scattered": scattered}
LAYOUTS: Final[dict[str, type[Layout]]] = {"rows": Rows, "spans": Spans}


# --- measuring -------------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """Of one layout and one workload."""

    start_us: float  # processor time per run
    end_us: float
    file_mb: float
    contents: list[list[State]]  # after the starts, and after the ends


def write(path: Path, layout: type[Layout], workload: Workload, tasks: int) -> Cost:
    """Write all starts, then all ends."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA temp_store = MEMORY")
        states = layout(connection)
        connection.execute("BEGIN")
        states.fill(workload.states)
        connection.execute("COMMIT")
        took, contents = [], []
        for transactions, verb in ((workload.starts, states.start), (workload.ends, states.end)):
            begun = time.thread_time()
            for parts in transactions:
                connection.execute("BEGIN IMMEDIATE")
                verb(parts)
                connection.execute("COMMIT")
            took.append(1e6 * (time.thread_time() - begun) / tasks)
            contents.append(list(states.contents()))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Cost(took[0], took[1], os.path.getsize(path) / 1e6, contents)


def measure(folder: Path, tasks: int = 200_000) -> dict[str, float]:
    """Both layouts with every workload; that they hold the same states afterwards is checked."""
    figures: dict[str, float] = {"tasks": float(tasks)}
    for name, make in WORKLOADS.items():
        workload = make(tasks)
        costs = {kind: write(folder / f"{name}-{kind}.db", layout, workload, tasks) for kind, layout in LAYOUTS.items()}
        if costs["rows"].contents != costs["spans"].contents:
            raise RuntimeError(f"the layouts hold different states after {name}")
        for kind, cost in costs.items():
            figures |= {
                f"{name}, {kind}: start_us": cost.start_us,
                f"{name}, {kind}: end_us": cost.end_us,
                f"{name}, {kind}: run_us": cost.start_us + cost.end_us,
                f"{name}, {kind}: file_mb": cost.file_mb,
            }
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; nothing is judged."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.layouts", description="Compare states as rows with states as spans."
    )
    parser.add_argument("--tasks", type=int, default=200_000, help="how many (default 200,000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are shown (default 3)")
    options = parser.parse_args(arguments)
    rounds = []
    for _ in range(options.rounds):
        with scratch_folder() as folder:
            rounds.append(measure(folder, options.tasks))
    print("| workload | layout | start | end | a run | file |\n|---|---|---|---|---|---|")
    for name in WORKLOADS:
        for kind in LAYOUTS:
            start, end, run, size = (
                median(figures[f"{name}, {kind}: {figure}"] for figures in rounds)
                for figure in ("start_us", "end_us", "run_us", "file_mb")
            )
            print(f"| {name} | {kind} | {start:.2f} µs | {end:.2f} µs | {run:.2f} µs | {size:.1f} MB |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
