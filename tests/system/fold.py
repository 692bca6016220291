"""A second opinion on a trace: what each task owed at each start, and what the store must hold at its end.

Written from SPEC 3 alone, for hosts in UTC whose clock never goes back, with `interrupted="restart"`; it shares no code
with the scheduler or with `duly.formal`.
"""

import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SECOND = 1_000_000
MINUTE = 60 * SECOND


def occurrences(cron: str, after: int, until: int) -> list[int]:
    """The minutes (in microseconds) that `cron` names, later than `after` and not later than `until`."""
    fields = [None if text == "*" else {int(part) for part in text.split(",")} for text in cron.split()]
    found = []
    for moment in range(after - after % MINUTE + MINUTE, until + 1, MINUTE):
        at = datetime.fromtimestamp(moment // SECOND, UTC)
        parts = (at.minute, at.hour, at.day, at.month, (at.weekday() + 1) % 7)
        assert fields[2] is None or fields[4] is None, "two restricted day fields are not for this oracle"
        if all(wanted is None or part in wanted for wanted, part in zip(fields, parts, strict=True)):
            found.append(moment)
    return found


@dataclass
class Task:
    """One task by the trace so far."""

    name: str
    cron: str
    delay: int  # microseconds
    generation: int
    mark: int
    attempt: int | None = None
    success: int | None = None
    failure: int | None = None
    retry: int | None = None
    failures: int = 0
    interruptions: int = 0
    run: int | None = None  # in the store: a start without a durable end
    cause: str | None = None
    interrupted: bool = False  # that run died with its process

    def owes(self, now: int) -> str | None:
        """Why it must start now: the rule of SPEC 3.1 to 3.7, or None."""
        if self.run is not None and not self.interrupted:
            return None
        if self.interrupted:
            assert self.attempt is not None
            in_a_row = self.interruptions + 1
            if now >= self.attempt + (max(self.delay, MINUTE) if in_a_row >= 2 else 0):
                return "interrupted"
        owed = occurrences(self.cron, self.mark, now)
        retry = None if self.interrupted else self.retry
        if retry is not None and retry <= now and (not owed or retry < owed[0]):
            return "retry"
        return "cron" if owed else None

    def start(self, at: int, run: int, cause: str) -> int:
        """Check that it was owed, and note it; returns how many due minutes it served."""
        assert self.run is None or self.interrupted, f"run {run} of {self.name} overlaps run {self.run}"
        assert self.owes(at) == cause, f"run {run} of {self.name} says {cause}, and {self.owes(at)} is owed"
        served = len(occurrences(self.cron, self.mark, at))
        self.interruptions = self.interruptions + 1 if self.interrupted else 0
        if self.interrupted:
            self.retry = None
        self.mark = max(self.mark, at - at % MINUTE)
        self.attempt, self.run, self.cause, self.interrupted = at, run, cause, False
        return served

    def end(self, at: int, run: int, ok: bool) -> None:
        """Note how its run ended."""
        assert self.run == run, f"run {run} of {self.name} ends, and {self.run} is under way"
        assert not self.interrupted, f"run {run} of {self.name} ends after its process died"
        self.run, self.cause, self.interruptions = None, None, 0
        if ok:
            self.success, self.retry, self.failures = at, None, 0
        else:
            self.failure, self.retry, self.failures = at, at + max(self.delay, SECOND), self.failures + 1

    def row(self) -> dict[str, Any]:
        """Its row in the table `states`, but for what the trace does not tell."""
        return {
            "generation": self.generation,
            "served_through": self.mark // SECOND,
            "last_attempt_at": self.attempt,
            "last_success_at": self.success,
            "last_failure_at": self.failure,
            "pending_retry_until": self.retry,
            "failures": self.failures,
            "interruptions": self.interruptions,
            "run": self.run,
            "run_cause": self.cause,
        }


@dataclass
class Fold:
    """All that a trace says."""

    tasks: dict[str, Task] = field(default_factory=dict)
    starts: dict[int, tuple[str, int]] = field(default_factory=dict)  # run: task, at
    ends: dict[int, tuple[str, bool]] = field(default_factory=dict)
    outcomes: dict[int, str] = field(default_factory=dict)  # what history must say
    boots: int = 0
    crashes: int = 0
    stretches: int = 0  # starts that served more than one due minute
    resumed: int = 0
    alive: bool = False

    def take(self, rows: Iterable[Sequence[Any]]) -> "Fold":
        """Go through more of the trace."""
        for letters, _, at, *rest in rows:
            if letters == "BT":
                self._boot()
            elif letters == "RG":
                self._register(at, *rest)
            elif letters == "RS":
                name, _, run, cause, _ = rest
                served = self.tasks[name].start(at, run, cause)
                assert run not in self.starts, f"run {run} starts twice"
                self.starts[run] = (name, at)
                self.stretches += served > 1
                self.resumed += cause == "interrupted"
            elif letters == "RE":
                name, _, run, ok = rest
                self.tasks[name].end(at, run, ok)
                self.ends[run] = (name, ok)
                self.outcomes[run] = "success" if ok else "failure"
            elif letters == "SE":
                assert not self.running(), "stop returned while something ran"
                self.alive = False
        return self

    def _boot(self) -> None:
        self.boots += 1
        self.crashes += self.alive
        self.alive = True
        for task in self.tasks.values():
            if task.run is not None:
                task.interrupted = True
                self.outcomes[task.run] = "interrupted"

    def _register(self, at: int, name: str, generation: int, change: str, cron: str, delay_ms: int, *_: Any) -> None:
        if change == "new":
            self.tasks[name] = Task(name, cron, delay_ms * 1000, generation, at - at % MINUTE - MINUTE)
        else:
            assert change == "preserved"
            assert self.tasks[name].cron == cron

    def running(self) -> list[str]:
        """Tasks with a run that its process still has."""
        return [name for name, task in self.tasks.items() if task.run is not None and not task.interrupted]

    def owing(self, now: int) -> dict[str, str]:
        """Which tasks must start now, and why."""
        return {name: cause for name, task in self.tasks.items() if (cause := task.owes(now)) is not None}


@dataclass(frozen=True)
class Found:
    """The content of a store, read from outside."""

    trace: list[list[Any]]
    states: dict[str, dict[str, Any]]
    history: dict[int, str]
    integrity: str


def look_into(store: Path, after: int = 0) -> Found:
    """Read everything, in one snapshot, but of the trace what came after an event; history names each run once."""
    if Path(f"{store}-journal").exists():
        # Killed while the file became a database: a reader would have to roll that back, and may not.
        with tempfile.TemporaryDirectory() as folder:
            for file in store.parent.glob(f"{store.name}*"):
                shutil.copy(file, folder)
            with contextlib.closing(sqlite3.connect(Path(folder) / store.name)) as connection:
                assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        return Found([], {}, {}, "ok")
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            return Found([], {}, {}, "ok")  # killed before its first commit
        trace = [
            json.loads(line)
            for (line,) in connection.execute("SELECT line FROM trace WHERE seq > ? ORDER BY seq", (after,))
        ]
        rows = connection.execute("SELECT t.name, s.* FROM tasks t JOIN states s USING (generation)").fetchall()
        runs = connection.execute("SELECT run, outcome FROM runs ORDER BY seq").fetchall()
        history = dict(map(tuple, runs))
        assert len(history) == len(runs), "history names a run twice"
        integrity = str(connection.execute("PRAGMA integrity_check").fetchone()[0])
        return Found(trace, {row["name"]: dict(row) for row in rows}, history, integrity)


def compare(found: Found, before: Fold | None = None) -> Fold:
    """The store must be sound, and exactly what its own trace leads to."""
    assert found.integrity == "ok", found.integrity
    fold = (before or Fold()).take(found.trace)
    assert found.states.keys() == fold.tasks.keys()
    for name, task in fold.tasks.items():
        expected = task.row()
        row = {column: found.states[name][column] for column in expected}
        assert row == expected, f"{name}: the store has {row}, the trace leads to {expected}"
    assert found.history == fold.outcomes
    return fold
