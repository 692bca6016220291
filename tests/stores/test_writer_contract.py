"""A batch means the same to every store: SQLite, the memory that hosts of a simulation share, and PostgreSQL.

Declaring and opening differ from port to port (decision 21); what a running scheduler writes does not. So each store
gets the same tasks in its own way, the same batches of the core, and is read back.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from duly.core.changes import Batch
from duly.core.moments import Instant
from duly.core.news import RUNS_OF_A_HOST
from duly.core.record import StoredTask
from duly.core.request import changes_of
from duly.core.task import Change, Running, Start, Task
from duly.stores import SqliteStore
from duly.stores.port import Outcome
from duly.stores.shared import outcome_of
from tests.core.helpers import stored_tasks
from tests.postgres_server import bundled_binaries, debian_binaries, server_of
from tests.stores.contract import AT_NOON, DELAY, NOON, Life, Place, at, ended, start, task
from tests.stores.shared_hosts import SharedStore, TestHost
from tests.stores.shared_stores import MemoryStoreUnderTest, PostgresStoreUnderTest
from tests.stores.test_contract import STATES

EVERY_MINUTE = "* * * * *"


class Writer(Protocol):
    """A store as a running scheduler writes to it."""

    first_run: int
    next_number: int

    async def declare(self, names: Sequence[str]) -> None: ...

    async def write(self, batch: Batch, number: int, now: Instant) -> Outcome: ...

    async def load(self) -> list[StoredTask]: ...

    def history(self) -> list[tuple[object, ...]]:
        """Run, generation, cause, scheduled, started, ended, outcome, error; the earliest end first."""
        ...


class EmbeddedWriter:
    """A store that belongs to one scheduler."""

    first_run = 1

    def __init__(self, store: SqliteStore, life: Life, place: Place) -> None:
        self._store, self._life, self._place = store, life, place
        self.next_number = 2

    async def declare(self, names: Sequence[str]) -> None:
        await self._life.declare(added=[task(number, name) for number, name in enumerate(names, 1)])

    async def write(self, batch: Batch, number: int, now: Instant) -> Outcome:
        return await self._store.write(batch, number)

    async def load(self) -> list[StoredTask]:
        await self._store.close()
        return stored_tasks((await self._store.open("reader", AT_NOON)).records)

    def history(self) -> list[tuple[object, ...]]:
        return self._place.runs()


class SharedWriter:
    """A host of a shared store; what `Membership.write` does, without beats."""

    first_run = RUNS_OF_A_HOST + 1

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._host = TestHost(store, "a" * 32)
        self.next_number = 2

    async def declare(self, names: Sequence[str]) -> None:
        self._host.join(dict.fromkeys(names, (EVERY_MINUTE, DELAY)))
        self._host.read()

    async def write(self, batch: Batch, number: int, now: Instant) -> Outcome:
        self._store.now = now
        changes = changes_of(batch)
        answer = self._store.write(self._host.me, number, self._host.seen, changes)
        self._host.read()
        return outcome_of(changes, answer)

    async def load(self) -> list[StoredTask]:
        return stored_tasks(self._store.load().records)

    def history(self) -> list[tuple[object, ...]]:
        columns = ("run", "generation", "cause", "scheduled", "started_at", "ended_at", "outcome", "error")
        rows = sorted(self._store.tables()["runs"], key=lambda row: int(row["seq"]))
        return [tuple(row[column] for column in columns) for row in rows]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresStoreUnderTest]:
    store = PostgresStoreUnderTest(server_of(bundled_binaries()))
    yield store
    store.connection.close()


@pytest.fixture(scope="module")
def debian() -> Iterator[PostgresStoreUnderTest]:
    store = PostgresStoreUnderTest(server_of(debian_binaries()))
    yield store
    store.connection.close()


@pytest.fixture(params=["sqlite", "memory", "postgres", pytest.param("debian", marks=pytest.mark.slow)])
async def writer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Writer]:
    """Each store in turn, empty."""
    if request.param == "sqlite":
        place = Place(tmp_path / "state.db")
        store = place.store()
        yield EmbeddedWriter(store, Life(store, await store.open("first", AT_NOON), AT_NOON), place)
        await store.close()
    elif request.param == "memory":
        yield SharedWriter(MemoryStoreUnderTest())
    else:
        on_a_server: PostgresStoreUnderTest = request.getfixturevalue(request.param)
        on_a_server.empty()
        on_a_server.now = AT_NOON
        yield SharedWriter(on_a_server)


class Scheduler:
    """A scheduler without a loop: its tasks in memory, and what it writes."""

    def __init__(self, writer: Writer, tasks: dict[str, Task]) -> None:
        self.tasks = tasks
        self._writer = writer
        self._number = writer.next_number
        self._run = writer.first_run

    def start(self, name: str, now: Instant) -> Start:
        """The start that a task owes."""
        begun = start(self.tasks[name], self._run, now)
        self._run += 1
        return begun

    async def write(self, now: Instant, *changes: Change, times: int = 1) -> None:
        """Write a batch, and repeat it as a scheduler does that got no answer."""
        answers = {await self._writer.write(Batch.of(changes), self._number, now) for _ in range(times)}
        assert len(answers) == 1
        (answer,) = answers
        assert (answer.refused, answer.fenced) == (frozenset(), frozenset())
        self._number += 1


async def declared(writer: Writer, *names: str) -> Scheduler:
    """A scheduler whose tasks stand as the store says."""
    await writer.declare(names)
    tasks: dict[str, Task] = {}
    for found in await writer.load():
        tasks[found.name] = task(found.generation, found.name)
        tasks[found.name].state = found.state
    assert sorted(tasks) == sorted(names)
    return Scheduler(writer, tasks)


async def test_each_state_is_found_again_as_the_core_made_it(writer: Writer) -> None:
    """SPEC 3, 3.9: every way a task can stand, written change by change, comes back equal."""
    scheduler = await declared(writer, *STATES)
    for name, steps in STATES.items():
        now, begun = at(NOON, 61), None
        for step in steps:
            now = Instant(now + 400_000_000)
            if step == "start":
                begun = scheduler.start(name, now)
                await scheduler.write(now, begun)
            else:
                assert begun is not None
                await scheduler.write(now, ended(begun, now, None if step == "succeed" else f"it {step}s"))
    records = {each.name: each for each in await writer.load()}
    for name, each in scheduler.tasks.items():
        assert records[name].state == each.state, name
        assert (records[name].run is not None) == isinstance(each.state, Running), name


async def test_a_batch_that_was_written_does_nothing_under_the_same_number(writer: Writer) -> None:
    """0003: a commit can succeed and still report a fault; the repetition is answered as the first time."""
    scheduler = await declared(writer, "backup")
    now = at(NOON, 61)
    begun = scheduler.start("backup", now)
    await scheduler.write(now, begun, times=2)
    await scheduler.write(now, ended(begun, now, "once"), times=3)
    assert [row[6:] for row in writer.history()] == [("failure", "once")]
    (found,) = await writer.load()
    assert found.state == scheduler.tasks["backup"].state


async def test_ends_and_starts_of_one_batch_are_both_recorded(writer: Writer) -> None:
    """SPEC 3.9: runs that ended meanwhile travel with the next starts."""
    scheduler = await declared(writer, "backup", "report", "mail")
    now, later = at(NOON, 61), at(NOON, 75.25)
    first, second = scheduler.start("backup", now), scheduler.start("report", now)
    await scheduler.write(now, first, second)
    third = scheduler.start("mail", later)
    await scheduler.write(later, ended(first, later), ended(second, later, "it failed"), third)
    records = {each.name: each for each in await writer.load()}
    assert {name: each.state for name, each in records.items()} == {
        name: each.state for name, each in scheduler.tasks.items()
    }
    assert records["mail"].run == third.run


async def test_history_tells_what_a_run_was_and_how_it_ended(writer: Writer) -> None:
    """Cause, due minute, start, end and error of each run, in the order of their ends."""
    scheduler = await declared(writer, "backup", "report")
    now, failed_at, ended_at = at(NOON, 61), at(NOON, 62.5), at(NOON, 63.000001)
    backup, report = scheduler.start("backup", now), scheduler.start("report", now)
    await scheduler.write(now, backup, report)
    await scheduler.write(failed_at, ended(report, failed_at, "it failed"))
    await scheduler.write(ended_at, ended(backup, ended_at))
    minute = at(NOON + 60)
    assert writer.history() == [
        (report.run, report.task.generation, "cron", minute, now, failed_at, "failure", "it failed"),
        (backup.run, backup.task.generation, "cron", minute, now, ended_at, "success", None),
    ]
