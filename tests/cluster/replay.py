"""The log of a shared store, replayed by rules of its own: what no entry may show, whatever happened to hosts.

The rules are those of SPEC 3 and 9 for one set of tasks that are due every minute and were never declared anew. They
know nothing of how duly decides.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from duly.core.moments import MICROSECONDS
from duly.core.news import Buried, Ended, Joined, Left, LogEntry, Replaced, Started, Written, host_of
from duly.core.task import Cause


@dataclass
class Record:
    """One task by the log."""

    served_through: int
    """The latest minute that no start may serve any more, in seconds."""

    run: int | None = None
    retry_at: int | None = None
    starts: int = 0
    ends: int = 0


@dataclass
class Replay:
    """The log up to some entry, and what was wrong until then."""

    wrongs: list[str] = field(default_factory=list)
    served_twice: list[str] = field(default_factory=list)
    runs: set[int] = field(default_factory=set)
    """Runs whose start was granted."""
    burials: int = 0
    refused: int = 0
    causes: dict[Cause, int] = field(default_factory=lambda: dict.fromkeys(Cause, 0))
    _position: int = 0
    _gone: set[int] = field(default_factory=set)
    _records: dict[int, Record] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[LogEntry]) -> "Replay":
        """Replay a log from its first entry on."""
        replay = cls()
        for entry in entries:
            replay.take(entry)
        return replay

    def take(self, entry: LogEntry) -> None:
        """One more entry."""
        if entry.seq != self._position + 1:
            self._wrong(entry, f"follows entry {self._position}")
        self._position = entry.seq
        if entry.host in self._gone:
            self._wrong(entry, f"is of host {entry.host}, which is gone")
        match entry.content:
            case Written(ends, starts, _, refused, fenced):
                for ended in ends:
                    self._end(entry, ended, set(fenced))
                for started in starts:
                    self._start(entry, started, set(refused))
            case Replaced(known_since=since, first_generation=first, added=added):
                before = since // (60 * MICROSECONDS) * 60 - 60
                self._records |= {generation: Record(before) for generation in range(first, first + added)}
            case Buried(host):
                self.burials += 1
                self._gone.add(host)
            case Left():
                self._gone.add(entry.host)
            case Joined():
                pass
            case other:
                self._wrong(entry, f"is {other}")

    def _start(self, entry: LogEntry, block: Started, refused: set[int]) -> None:
        for run, generation in enumerate(block.generations, block.first_run):
            if generation in refused:
                self.refused += 1
                continue
            record = self._records[generation]
            interrupted = record.run is not None and host_of(record.run) in self._gone
            if record.run is not None and not interrupted:
                self._wrong(entry, f"starts task {generation} during run {record.run}")
            if host_of(run) != entry.host or run in self.runs:
                self._wrong(entry, f"starts run {run}, which is not a new one of its host")
            if block.cause is Cause.CRON and block.scheduled <= record.served_through * MICROSECONDS:
                self.served_twice.append(f"entry {entry.seq} serves a minute of task {generation} again")
            if block.cause is Cause.RETRY and (record.retry_at is None or block.at < record.retry_at):
                self._wrong(entry, f"retries task {generation}, which waits for no retry")
            if block.cause is Cause.INTERRUPTED and not interrupted:
                self._wrong(entry, f"resumes task {generation}, which was not interrupted")
            self.runs.add(run)
            self.causes[block.cause] += 1
            record.run, record.retry_at = run, None
            record.served_through = max(record.served_through, block.served_through)
            record.starts += 1

    def _end(self, entry: LogEntry, block: Ended, fenced: set[int]) -> None:
        for run, generation in zip(block.runs, block.generations, strict=True):
            if run in fenced:
                continue
            record = self._records[generation]
            if record.run != run or host_of(run) != entry.host:
                self._wrong(entry, f"ends run {run} of task {generation}, which is in run {record.run}")
            record.run = None
            record.ends += 1
            record.retry_at = None if block.failure is None else block.failure.pending_retry_until

    def _wrong(self, entry: LogEntry, what: str) -> None:
        self.wrongs.append(f"entry {entry.seq} {what}")
