"""An obvious account of what a cluster must have served, written without the scheduler: obligations in, starts out.

It walks along the merged trace and takes from it what nobody can predict: when sets were declared, when callbacks
ended, which host was buried, and, under faults, the instant at which some host came to a task. What a start at that
instant is for it says itself, with the calendar of `tests/simulation/reference.py`: which due minute, which failure or
which interrupted run, and which attempt. The multiset of these must be what the log has, no more and no less.

Which host starts a task is nobody's to predict, and neither is when, while hosts freeze, die or cannot reach the store.
After a stretch of rest it is: what is owed starts within the courtesy that hosts have for each other.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, Final, NamedTuple

from duly.core.news import Written
from duly.testing.shared import SharedMemory
from tests.simulation.reference import SECOND, Names, Record, due_minutes, minute_of, next_due

COURTESY: Final = 6 * SECOND
"""Hosts wait up to five seconds for each other, and a poll follows."""


class Served(NamedTuple):
    """One start, and what it is for."""

    task: str
    generation: int
    cause: str
    scheduled: int
    first_started: int
    attempt: int


def served(memory: SharedMemory) -> Counter[Served]:
    """Every start that the log says was granted."""
    found: Counter[Served] = Counter()
    for entry in memory.log.values():
        if isinstance(entry.content, Written):
            for block in entry.content.starts:
                of = block.obligation
                for generation in block.generations:
                    if generation not in entry.content.refused:
                        name = memory.tasks[generation].name
                        start = (block.cause.value, block.scheduled, of.first_started_at, of.attempt)
                        found[Served(name, generation, *start)] += 1
    return found


@dataclass
class HostsReference:
    """An account of what hosts owe, task by task."""

    zone: tzinfo
    quiet_since: int
    """From here on nothing disturbs the cluster."""

    restart: bool = True
    now: int = 0
    records: dict[str, Record] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    running: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Host and declaration of the run that goes on, by name."""
    resume_at: dict[str, int] = field(default_factory=dict)
    obligations: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The obligation of the last start, by name: the first start for it, and the attempt."""
    ended: dict[str, int] = field(default_factory=dict)
    expected: Counter[Served] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def walk(self, events: Iterable[list[Any]]) -> "HostsReference":
        """Go along the events of a trace."""
        for letters, seq, at, host, *fields in events:
            self.now = max(self.now, at)
            self._take(letters, at, host, [letters, seq, at, *fields])
        return self

    def _take(self, letters: str, at: int, host: int, row: list[Any]) -> None:
        match letters:
            case "RG":
                name = row[3]
                record = self.names.registered(self.records.pop(name, None), row, self.zone)
                if row[5] != "preserved":
                    self.resume_at.pop(name, None)
                    self.obligations.pop(name, None)
                if record is not None:
                    self.records[name] = record
            case "IE" if row[-1] is False:
                self.restart = row[6] == "restart"
                self.names.forget(at, self.records)
            case "RS":
                self._start(row[3], row[4], at, host)
            case "RE":
                self._end(row[3], row[4], at, ok=row[6])
            case "BY":
                self._bury(row[3], at)
            case _:
                pass

    def _start(self, name: str, generation: int, at: int, host: int) -> None:
        record = self.records.get(name)
        if record is None or record.generation != generation or name in self.running:
            self.complaints.append(f"{name} starts at {at}, which is not declared like that, or runs")
            return
        owed = self.owed(name, at)
        if owed is None:
            self.complaints.append(f"{name} starts at {at}, and owes nothing")
            return
        since, cause, scheduled = owed
        self._judge_promptness(name, since, at)
        first, attempt = self.obligations.get(name, (at, 0)) if cause != "cron" else (at, 0)
        self.obligations[name] = first, attempt + 1
        self.expected[Served(name, generation, cause, scheduled, first, attempt + 1)] += 1
        record.start(at, minute_of(at, self.zone), 0, cause, restart=self.restart)
        self.resume_at.pop(name, None)
        self.running[name] = host, generation

    def _end(self, name: str, generation: int, at: int, *, ok: bool) -> None:
        self.running.pop(name, None)
        self.ended[name] = at
        record = self.records.get(name)
        if record is not None and record.generation == generation:
            record.end(at, ok=ok)

    def _bury(self, who: int, at: int) -> None:
        for name, (host, generation) in list(self.running.items()):
            if host == who:
                del self.running[name]
                self.ended[name] = at
                record = self.records.get(name)
                if record is not None and record.generation == generation:
                    self.resume_at[name] = min(record.last_start or 0, at) + record.rest

    def owed(self, name: str, at: int) -> tuple[int, str, int] | None:
        """Since when, why, and for which moment a task must start; None: it need not."""
        record = self.records[name]
        due = next_due(record.cron, self.zone, record.mark)
        resume_at, retry_at = self.resume_at.get(name), record.retry_at
        if resume_at is not None and self.restart:
            if resume_at <= at:
                return min(resume_at, due), "interrupted", record.last_start or 0
            retry_at = None
        if retry_at is not None and retry_at <= at and retry_at < due:
            return retry_at, "retry", retry_at
        if due <= at:
            return due, "cron", due_minutes(record.cron, self.zone, record.mark, at)[-1]
        return None

    def _judge_promptness(self, name: str, since: int, at: int) -> None:
        possible = max(since, self.ended.get(name, 0), self.quiet_since)
        if at - possible > COURTESY:
            self.complaints.append(f"{name} starts {(at - possible) // SECOND} s after it could, and all is quiet")

    def rest(self, now: int) -> Iterator[str]:
        """Tasks that are owed at the end, and should have been started."""
        for name in self.records:
            if name not in self.running and (owed := self.owed(name, now)) is not None:
                possible = max(owed[0], self.ended.get(name, 0), self.quiet_since)
                if now - possible > COURTESY:
                    yield f"{name} is owed ({owed[1]}) and not started"


def objections(
    memory: SharedMemory, events: Iterable[list[Any]], zone: tzinfo, *, quiet_since: int, now: int
) -> list[str]:
    """Where the log of a cluster differs from what it must have served."""
    reference = HostsReference(zone, quiet_since).walk(events)
    found = [*reference.complaints, *reference.rest(now)]
    real = served(memory)
    found += [f"served, and not owed: {each}" for each in real - reference.expected]
    found += [f"owed, and not served: {each}" for each in reference.expected - real]
    return found
