"""A store may refuse a start: it was never made, nothing of it runs, and the task is asked again what it owes."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from duly.core.changes import Batch
from duly.core.task import Start
from duly.events import Event, PropertyViolated, TaskRunStarted
from duly.stores import Outcome, SqliteStore
from duly.stores.port import TraceRow
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.stores.helpers import query

DELAY = timedelta(minutes=1)


class ReluctantStore(SqliteStore):
    """The embedded store; it refuses the first starts of some tasks, as a record that others have changed would."""

    def __init__(self, path: Path, refusals: dict[str, int]) -> None:
        super().__init__(path, worker=Inline(), synchronous="OFF")
        self.refusals = refusals
        self.asked: list[str] = []
        """Every start that it was asked for, in order."""

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        refused = set()
        granted = []
        for change in batch.singles():
            if isinstance(change, Start):
                self.asked.append(change.task.name)
                if self.refusals.get(change.task.name, 0) > 0:
                    self.refusals[change.task.name] -= 1
                    refused.add(change.run)
                    continue
            granted.append(change)
        kept = [row for row in trace if not (row[0] == "RS" and row[4] in refused)]
        await super().write(Batch.of(granted), number, kept)
        return Outcome(frozenset(refused))


class Watched:
    """Callbacks that note when they are called, and the scheduler that calls them."""

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host
        self.calls: list[tuple[str, float]] = []
        self.events: list[Event] = []
        self._began = host.now

    def registrations(self, names: Sequence[str], cron: str = "0 12 * * *") -> list[Any]:
        """Daily tasks, due at noon."""

        def callback(name: str) -> Any:
            async def job() -> None:
                self.calls.append((name, (self.host.now - self._began).total_seconds()))

            return job

        return [(name, cron, callback(name), DELAY) for name in names]


async def test_a_daily_start_that_was_refused_is_asked_for_again_within_seconds(tmp_path: Path) -> None:
    """SPEC 3.1, 9.9: it is still owed; nothing else would ask the task before the next day."""
    async with SimulatedHost("2024-01-01T11:59:00", "UTC") as host:
        store = ReluctantStore(tmp_path / "store.db", {"late": 2})
        watched = Watched(host)
        await host.scheduler(store, on_event=watched.events.append).initialize(
            watched.registrations(["late", "prompt"])
        )
        await host.advance(minutes=3)
    assert [name for name, _ in watched.calls] == ["prompt", "late"]
    (prompt,) = [when for name, when in watched.calls if name == "prompt"]
    (late,) = [when for name, when in watched.calls if name == "late"]
    assert prompt == 60
    assert late == 62
    started = [event.task_name for event in watched.events if isinstance(event, TaskRunStarted)]
    assert started == ["prompt", "late"], "a refused start is no event"
    runs = query(tmp_path / "store.db", "SELECT name FROM runs JOIN tasks USING (generation) ORDER BY seq")
    assert runs == [("prompt",), ("late",)]


async def test_a_store_that_goes_on_refusing_does_not_keep_the_loop_busy(tmp_path: Path) -> None:
    """A task is asked again about once a second."""
    async with SimulatedHost("2024-01-01T11:59:30", "UTC") as host:
        store = ReluctantStore(tmp_path / "store.db", {"never": 1_000_000})
        watched = Watched(host)
        await host.scheduler(store).initialize(watched.registrations(["never"]))
        await host.advance(minutes=2)
        asked = len(store.asked)
    assert watched.calls == []
    assert 30 <= asked <= 100


async def test_refused_retries_and_interrupted_runs_are_asked_for_again(tmp_path: Path) -> None:
    """SPEC 3.4: whatever the cause of the start."""
    async with SimulatedHost("2024-01-01T11:59:00", "UTC") as host:
        store = ReluctantStore(tmp_path / "store.db", {})
        outcomes = iter([False, True])
        attempts: list[float] = []

        async def job() -> None:
            attempts.append(host.now.timestamp())
            if not next(outcomes):
                raise ValueError("once")

        scheduler = host.scheduler(store)
        await scheduler.initialize([("retried", "0 12 * * *", job, timedelta(seconds=10))])
        await host.advance(seconds=65)
        store.refusals["retried"] = 3
        await host.advance(seconds=30)
    assert len(attempts) == 2
    assert 13 <= attempts[1] - attempts[0] <= 16


async def test_of_a_burst_with_refusals_each_granted_start_runs_and_each_refused_one_later(tmp_path: Path) -> None:
    """SPEC 9.9: and the trace, the monitor and the slots know nothing of the refused ones."""
    names = [f"task {number}" for number in range(2_000)]
    async with SimulatedHost("2024-01-01T11:59:30", "UTC") as host:
        store = ReluctantStore(tmp_path / "store.db", dict.fromkeys(names[::3], 1))
        watched = Watched(host)
        scheduler = host.scheduler(
            store, on_event=watched.events.append, trace=True, monitor=True, max_concurrency=1_500
        )
        await scheduler.initialize(watched.registrations(names))
        await host.advance(minutes=1)
        await scheduler.stop()
    assert sorted(name for name, _ in watched.calls) == sorted(names)
    assert not [event for event in watched.events if isinstance(event, PropertyViolated)]
    prompt = {name for name, when in watched.calls if when == 30}
    assert prompt == set(names) - set(names[::3])


async def test_a_stop_does_not_wait_for_starts_that_were_refused(tmp_path: Path) -> None:
    """SPEC 4.3: nothing starts after it was called."""
    async with SimulatedHost("2024-01-01T11:59:30", "UTC") as host:
        store = ReluctantStore(tmp_path / "store.db", {"late": 1})
        watched = Watched(host)
        scheduler = host.scheduler(store)
        await scheduler.initialize(watched.registrations(["late"]))
        await host.advance(seconds=30)
        await scheduler.stop()
        await host.advance(seconds=30)
    assert watched.calls == []
