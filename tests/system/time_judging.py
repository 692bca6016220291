"""A process on a fast clock, compared with an independent calendar, its trace, and its witness file."""

import io
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from duly.formal.checking import Report, check
from duly.formal.reader import events
from duly.formal.trace import RE, RS
from duly.stores.sqlite.trace import export
from tests.compute import PATIENCE_IS_OVER
from tests.system.time_program import Process, no_overlap

MINUTE = 60_000_000
HOUR = 60 * MINUTE

T = TypeVar("T")


def at(text: str) -> int:
    """Microseconds of a moment in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@dataclass(frozen=True)
class Daily:
    """Minutes and hours at which a task is due every day: its cron text, and, found in another way, its instants."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...] = tuple(range(24))

    @property
    def cron(self) -> str:
        """As duly reads it."""
        hours = "*" if len(self.hours) == 24 else ",".join(map(str, self.hours))
        return f"{','.join(map(str, self.minutes))} {hours} * * *"

    def occurrences(self, zone: str, begins: int, ends: int) -> list[int]:
        """Walk through the world's minutes; skipped ones do not come up, repeated ones count once (SPEC 2.2, 2.3)."""
        found = []
        local = datetime.fromtimestamp(begins // MINUTE * 60, UTC)
        while (instant := int(local.timestamp()) * 1_000_000) <= ends:
            there = local.astimezone(ZoneInfo(zone))
            if there.minute in self.minutes and there.hour in self.hours and there.fold == 0:
                found.append(instant)
            local += timedelta(minutes=1)
        return found


@dataclass(frozen=True)
class Judgement:
    """A trace that was found right, and what it tells."""

    report: Report
    starts: dict[str, list[RS]]
    ends: dict[str, list[RE]]
    testimony: list[Any]


def judge(store: str | Path, process: Process, *, boots: int = 1) -> Judgement:
    """The verdicts of the checker, and trace and witness against each other; for processes that stopped cleanly.

    The bounded properties are left out: at this speed they would measure the machine.
    """
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)) as connection:
        trace = b"".join(export(connection, clean=True))
        integrity = connection.execute("PRAGMA integrity_check").fetchone()[0]
    assert integrity == "ok"
    report = check(io.BytesIO(trace), bounded=False)
    assert not report.violated, report.violations
    assert report.ended
    assert report.crashes == 0
    starts, ends = defaultdict(list), defaultdict(list)
    for event in events(io.BytesIO(trace)):
        if isinstance(event, RS):
            starts[event.task].append(event)
        elif isinstance(event, RE):
            ends[event.task].append(event)
    testimony = process.testimony()
    begun = Counter(name for word, name, *_ in testimony if word == "begin")
    assert begun == {name: len(found) for name, found in starts.items()}, "the witness saw other runs than the trace"
    under_way = no_overlap(testimony)
    assert not under_way, f"{sorted(under_way)} never ended, and yet the scheduler stopped"
    assert not [fact for fact in testimony if fact[:2] in (["event", "StoreFault"], ["event", "PropertyViolated"])]
    return Judgement(report, dict(starts), dict(ends), testimony)


def served_once(starts: Sequence[RS], occurrences: Sequence[int]) -> dict[int, int]:
    """Each start served what no start before it had, and together they served everything: occurrence to start's index.

    For runs that succeed at once, on a clock that is not stepped (SPEC 3.1, 3.2).
    """
    served: dict[int, int] = {}
    mark = 0
    for index, start in enumerate(starts):
        newly = [due for due in occurrences if mark < due <= start.at]
        assert newly, f"{start} served nothing: the mark was {mark}"
        served.update(dict.fromkeys(newly, index))
        mark = start.at // MINUTE * MINUTE
    left = [due for due in occurrences if due not in served]
    assert not left, f"never served: {[datetime.fromtimestamp(due / 1e6, UTC).isoformat() for due in left]}"
    return served


def side_by_side(scenarios: Sequence[Callable[[], T]]) -> list[T]:
    """Scenarios that mostly wait, each with a process of its own, at the same time.

    If several fail, a wrong fact is raised before a mere lateness.
    """
    with ThreadPoolExecutor(len(scenarios)) as threads:
        futures = [threads.submit(scenario) for scenario in scenarios]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, PATIENCE_IS_OVER)):
        raise error
    return [future.result() for future in futures]
