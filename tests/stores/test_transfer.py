"""Stores that move from a file to PostgreSQL and back: both readers say the same, and a scheduler goes on."""

import contextlib
import random
import sqlite3
from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest

from duly.core.moments import Instant, Minute
from duly.core.news import RUNS_OF_A_HOST
from duly.core.task import Cause
from duly.errors import StoreError
from duly.insight import Examination
from duly.stores import PostgresReader, Reader, SqliteReader, View
from duly.stores.port import KnownTask, RunRecord, RunSelection
from duly.stores.postgres import transfer as schemas
from duly.stores.sqlite import transfer as files
from duly.testing import SimulatedHost
from tests.postgres_server import bundled_binaries, server_of
from tests.stores.helpers import change, everything, files_in, older_layout
from tests.stores.made import Row, Run, make_store, random_rows
from tests.stores.shared_hosts import HOUR, MINUTE, NOON, TaskSet, TestHost, generations
from tests.stores.shared_stores import PostgresStoreUnderTest

SECOND = 1_000_000
TASKS: TaskSet = {"backup": ("0 3 * * *", 1_000), "report": ("* * * * *", 0)}


@pytest.fixture(scope="module")
def made() -> Iterator[PostgresStoreUnderTest]:
    store = PostgresStoreUnderTest(server_of(bundled_binaries()))
    yield store
    store.connection.close()


@pytest.fixture
def schema(made: PostgresStoreUnderTest) -> PostgresStoreUnderTest:
    """An empty schema."""
    made.empty()
    return made


def nothing(*_: object) -> None:
    """Neither progress nor an objection."""


def to_server(path: Path, schema: PostgresStoreUnderTest) -> None:
    with files.leaving(path) as content:
        schemas.arrive(schema.url, content, nothing, nothing)


def to_file(schema: PostgresStoreUnderTest, path: Path, at: int) -> None:
    with schemas.leaving(schema.url) as content:
        files.arrive(path, content, nothing, nothing, at=Instant(at))


def said(reader: Reader) -> list[Any]:
    """The answers of a reader that do not depend on the kind of the store."""

    def question(view: View) -> list[Any]:
        examination = Examination(view, UTC, shown=20)
        return [
            list(view.tasks()),
            list(view.runs(RunSelection(), oldest_first=True, tracebacks=True)),
            view.marks(),
            view.snapshot().zone,
            view.extent(),
            view.history_begins(),
            [view.declarations(name) for name in view.names(limit=1_000)],
            sorted(view.cohorts(view.snapshot().at), key=str),
            examination.counts,
            [each.task for each in examination.most_urgent(20)],
        ]

    return reader.read(question)


async def lived(path: Path) -> int:
    """A store with successes, failures, a pending retry, an orphaned task and an interrupted run; its last moment."""
    async with SimulatedHost("2024-03-30T22:00", "Europe/Berlin", store=path) as host:

        async def good() -> None:
            await host.sleep(3)

        async def bad() -> None:
            raise OSError("no space left on device")

        async def endless() -> None:
            await host.sleep(10**9)

        tasks = [
            ("good", "0,10,20,30,40,50 * * * *", good, timedelta(minutes=1)),
            ("bad", "0,20,40 * * * *", bad, timedelta(minutes=7)),
            ("orphaned", "* * * * *", good, timedelta(0)),
        ]
        scheduler = host.scheduler()
        await scheduler.initialize(tasks)
        await host.advance(hours=2)
        await scheduler.initialize([*tasks[:2], ("endless", "0 * * * *", endless, timedelta(minutes=1))])
        await host.advance(hours=1, minutes=23)
        await host.crash()
        return round(host.now.timestamp() * SECOND)


async def test_a_store_means_the_same_on_a_server_and_back_in_a_file(
    tmp_path: Path, schema: PostgresStoreUnderTest
) -> None:
    """Tasks, states, declarations, history, marks, and what follows from them; the file it came from is as it was."""
    origin, back = tmp_path / "state.db", tmp_path / "back.db"
    at = await lived(origin) + 5 * SECOND
    before = everything(origin)
    to_server(origin, schema)
    assert everything(origin) == before
    in_the_file = said(SqliteReader(origin, lambda: at))
    on_the_server = said(PostgresReader(schema.url, now=lambda: at))
    for one, other in zip(in_the_file, on_the_server, strict=True):
        assert one == other
    to_file(schema, back, at)
    for one, other in zip(in_the_file, said(SqliteReader(back, lambda: at)), strict=True):
        assert one == other


async def test_a_scheduler_goes_on_with_the_copy_where_the_first_one_stopped(
    tmp_path: Path, schema: PostgresStoreUnderTest
) -> None:
    """SPEC 3.1, 3.7: what was served is not served again, what was owed or interrupted starts at once."""
    origin, back = tmp_path / "state.db", tmp_path / "back.db"
    at = await lived(origin)
    to_server(origin, schema)
    to_file(schema, back, at)
    starts: dict[Path, list[tuple[str, str, str]]] = {}
    for path in (origin, back):
        async with SimulatedHost("2024-03-31T01:30", "Europe/Berlin", store=path) as host:

            async def work() -> None: ...

            scheduler = host.scheduler()
            await scheduler.initialize(
                [
                    ("good", "0,10,20,30,40,50 * * * *", work, timedelta(minutes=1)),
                    ("bad", "0,20,40 * * * *", work, timedelta(minutes=7)),
                    ("endless", "0 * * * *", work, timedelta(minutes=1)),
                ]
            )
            await host.advance(hours=1)
            await scheduler.stop()
        runs = SqliteReader(path, lambda: at).read(lambda view: list(view.runs(RunSelection(since=Instant(at)))))
        starts[path] = sorted((run.task, run.cause, str(run.started_at)) for run in runs)
        assert len({run.run_id for run in runs}) == len(runs) > 10
    assert starts[origin] == starts[back]
    assert ("endless", "interrupted") in {(task, cause) for task, cause, _ in starts[back]}


@pytest.mark.parametrize("seed", range(2))
def test_tasks_in_every_situation_move(tmp_path: Path, schema: PostgresStoreUnderTest, seed: int) -> None:
    """Made row by row: never run, retrying, marked running, in hundreds."""
    at = Instant(NOON)
    origin = make_store(tmp_path / "state.db", random_rows(random.Random(seed), at, 3_000), schedulers=(0, 1))
    change(origin, "UPDATE meta SET value = 3000 WHERE key = 'generation'")
    change(origin, "UPDATE meta SET value = (SELECT max(run) FROM states) WHERE key = 'run'")
    to_server(origin, schema)
    one, other = said(SqliteReader(origin, lambda: at)), said(PostgresReader(schema.url, now=lambda: at))
    one[1], other[1] = (sorted(runs) for runs in (one[1], other[1]))
    assert one == other


def test_a_text_that_postgresql_cannot_hold_is_written_out(tmp_path: Path, schema: PostgresStoreUnderTest) -> None:
    """SPEC 9.20: an error that could never be stored must not keep the rest from moving."""
    runs: list[Run] = [(1, 1, "cron", 0, 1, 2, "failure", "disk\0full 'quoted' \\ back")]
    origin = make_store(tmp_path / "state.db", [Row("a", last_attempt_at=1, last_success_at=3)], runs)
    change(origin, "UPDATE meta SET value = 1 WHERE key IN ('generation', 'run')")
    to_server(origin, schema)
    found = PostgresReader(schema.url).read(lambda view: [run.error for run in view.runs(RunSelection())])
    assert found == ["disk\\x00full 'quoted' \\ back"]


@pytest.mark.parametrize("version", [1, 2])
async def test_an_older_layout_moves_as_this_version_has_it(
    tmp_path: Path, schema: PostgresStoreUnderTest, version: int
) -> None:
    origin = tmp_path / "state.db"
    at = await lived(origin)
    older_layout(origin, version)
    to_server(origin, schema)
    assert said(SqliteReader(origin, lambda: at)) == said(PostgresReader(schema.url, now=lambda: at))


# --- from hosts ------------------------------------------------------------------------------------------------------


def shared(store: PostgresStoreUnderTest) -> None:
    """Two hosts that left, and one that died alone in the middle of a run; three runs of history were dropped."""
    store.now = NOON
    hosts = [TestHost(store, letter * 32) for letter in "ab"]
    for host in hosts:
        host.join(TASKS, history=6)
        host.read()
    names = generations(store)
    for number in range(1, 9):
        store.now = Instant(NOON + number * MINUTE)
        host = hosts[number % 2]
        host.start(names["report"])
        error = "OSError: full" if number == 8 else None
        host.end(names["report"], host.me.key * RUNS_OF_A_HOST + host.runs, error)
    store.now = Instant(NOON + 10 * MINUTE)
    hosts[1].read()
    hosts[1].start(names["backup"])
    hosts[0].leave()
    store.now = Instant(NOON + HOUR)
    third = TestHost(store, "c" * 32)
    third.join(TASKS, history=6)
    third.read()
    third.bury(hosts[1])
    third.start(names["report"], cause=Cause.RETRY, served_through=Minute(store.now // SECOND // 60 * 60))


def renumbered(runs: list[RunRecord]) -> list[RunRecord]:
    """Runs without what only a shared store has: numbers of hosts, and hosts."""
    return [run._replace(run_id=0, host=None) for run in runs]


def without_runs(tasks: list[KnownTask]) -> list[Any]:
    return [(task.stored._replace(run=task.stored.run and 0), task.phase, task.last_error) for task in tasks]


def test_what_hosts_did_becomes_the_history_of_one_scheduler(tmp_path: Path, schema: PostgresStoreUnderTest) -> None:
    """Runs are numbered in the order of their starts; what was dropped is missing, a dead host's run is cut short."""
    shared(schema)
    at = Instant(NOON + 2 * HOUR)
    path = tmp_path / "state.db"
    to_file(schema, path, at)
    # Nobody buries a host that died alone. On the server it is on record as running, and in the file nobody runs it.
    schema.connection.read("update hosts set gone = 'b'", within_schema=True, limit_seconds=15)
    on_the_server, in_the_file = said(PostgresReader(schema.url, now=lambda: at)), said(SqliteReader(path, lambda: at))
    assert without_runs(on_the_server[0]) == without_runs(in_the_file[0])
    assert renumbered(on_the_server[1]) == renumbered(in_the_file[1])
    assert on_the_server[2:] == in_the_file[2:]
    numbers = [run.run_id for run in in_the_file[1]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert in_the_file[4].runs_ever == numbers[-1] > in_the_file[4].runs
    with contextlib.closing(sqlite3.connect(path)) as connection:
        ((highest,),) = connection.execute("SELECT value FROM meta WHERE key = 'run'").fetchall()
    assert highest == numbers[-1]


# --- refused ---------------------------------------------------------------------------------------------------------


async def test_a_schema_that_is_not_empty_is_left_alone(tmp_path: Path, schema: PostgresStoreUnderTest) -> None:
    origin = tmp_path / "state.db"
    await lived(origin)
    TestHost(schema, "a" * 32).join(TASKS)
    before = schema.tables()
    with pytest.raises(StoreError, match="is not empty"):
        to_server(origin, schema)
    with pytest.raises(StoreError, match="is not empty"):
        schemas.check_free(schema.url)
    assert schema.tables() == before


def test_a_file_that_is_not_empty_is_left_alone(tmp_path: Path, schema: PostgresStoreUnderTest) -> None:
    shared(schema)
    path = tmp_path / "state.db"
    path.write_text("something")
    with pytest.raises(StoreError, match="is not empty"):
        to_file(schema, path, NOON)
    assert path.read_text() == "something"
    path.write_text("")
    to_file(schema, path, NOON)  # an empty file is no store yet


@pytest.mark.parametrize("to", ["server", "file"])
async def test_a_copy_that_fails_before_its_commit_leaves_nothing(
    tmp_path: Path, schema: PostgresStoreUnderTest, to: str
) -> None:
    """One transaction."""
    origin, back = tmp_path / "state.db", tmp_path / "back.db"
    await lived(origin)

    def object_() -> None:
        raise RuntimeError("it changed")

    if to == "server":
        with files.leaving(origin) as content, pytest.raises(RuntimeError):
            schemas.arrive(schema.url, content, nothing, object_)
        assert all(not rows for table, rows in schema.tables().items() if table != "cluster")
        schemas.check_free(schema.url)
        return
    to_server(origin, schema)
    with schemas.leaving(schema.url) as content, pytest.raises(RuntimeError):
        files.arrive(back, content, nothing, object_, at=Instant(NOON))
    assert {name for name in files_in(tmp_path) if name.startswith("back")} == {"back.db.lock"}


async def test_no_host_joins_half_a_copy(tmp_path: Path, schema: PostgresStoreUnderTest) -> None:
    """The lock of all writers is held until the commit."""
    origin = tmp_path / "state.db"
    await lived(origin)
    refused: list[str] = []

    def join() -> None:
        schema.connection.send("set lock_timeout = '10ms'", limit_seconds=15)
        with contextlib.suppress(StoreError):
            schema.connection.send(
                f"begin; select {schema.connection.schema}.enter_1(); commit", limit_seconds=15, operation="write"
            )
            return
        refused.append("held")

    with files.leaving(origin) as content:
        schemas.arrive(schema.url, content, nothing, join)
    schema.connection.send("reset lock_timeout", limit_seconds=15)
    assert refused == ["held"]
