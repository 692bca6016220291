"""`duly copy` on real files and a real server: what it moves, what it refuses, and what becomes of the trace."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from duly.core.moments import Instant
from duly.stores import PostgresReader
from duly.stores.port import RunSelection
from duly.testing import SimulatedHost
from tests.cli.program import Outcome, Service, duly, nothing, write_target
from tests.cli.shop import SharedStage
from tests.postgres_server import bundled_binaries, server_of
from tests.stores.helpers import contents_of, files_in
from tests.stores.shared_hosts import MINUTE, TestHost, generations


@pytest.fixture(scope="module")
def made() -> Iterator[SharedStage]:
    stage = SharedStage(server_of(bundled_binaries()))
    yield stage
    stage.close()


@pytest.fixture
def stage(made: SharedStage) -> SharedStage:
    """An empty schema."""
    made.store.empty()
    return made


def copy(stage: SharedStage, folder: Path, *arguments: str) -> Outcome:
    return duly("copy", *arguments, "--schema", stage.schema, folder=folder)


def live(path: Path, *, trace: bool = False) -> None:
    async def run() -> None:
        async with SimulatedHost("2024-05-01T12:00", "UTC", store=path) as host:
            scheduler = host.scheduler(trace=trace)
            await scheduler.initialize([("task", "* * * * *", nothing, timedelta(hours=1))])
            await host.advance(minutes=3)
            await scheduler.stop()

    asyncio.run(run())


def test_a_file_moves_to_a_server_with_its_history(stage: SharedStage, tmp_path: Path) -> None:
    """SPEC 9.1: nothing but the address changes."""
    live(tmp_path / "state.db")
    done = copy(stage, tmp_path, "state.db", stage.url)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("(schema " + stage.schema + "): 1 task, 4 runs of history, from state.db\n")
    runs = PostgresReader(stage.store.url).read(lambda view: list(view.runs(RunSelection(), oldest_first=True)))
    assert runs == contents_of(tmp_path / "state.db").runs
    again = copy(stage, tmp_path, "state.db", stage.url)
    assert again.code == 4
    assert "is not empty" in again.err
    back = copy(stage, tmp_path, stage.url, "back.db", "--json")
    assert back.json["tasks"] == 1
    assert (back.json["runs"], back.json["traceFile"], back.json["to"]) == (4, None, "back.db")
    assert contents_of(tmp_path / "back.db").runs == runs


def test_a_real_scheduler_runs_on_a_copy_of_what_hosts_did(stage: SharedStage, tmp_path: Path) -> None:
    """Back from a server to a file: the interrupted run starts again, and what was served does not."""
    stage.fill()
    refused = copy(stage, tmp_path, stage.url, "state.db")
    assert refused.code == 5
    assert "is in use by host 1 (web-1)" in refused.err
    assert files_in(tmp_path) == set()
    stage.store.connection.read(  # it dies alone, in the middle of a run
        "update hosts set renewed_at = now() - interval '3 hours' where key = 1", within_schema=True, limit_seconds=15
    )
    assert copy(stage, tmp_path, stage.url, "state.db").code == 0
    write_target(
        tmp_path,
        '[("backup", "0 3 1 1 *", quick, timedelta(seconds=1)), ("report", "0 4 1 1 *", quick, timedelta(0))]',
    )
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        started = service.expect("TaskRunStarted")
        assert (started["taskName"], started["cause"]) == ("backup", "interrupted")
        service.expect("TaskRunCompleted", taskName="backup")
    runs = contents_of(tmp_path / "state.db").runs
    assert [(run.task, run.outcome) for run in runs] == [
        ("report", "success"),
        ("backup", "interrupted"),
        ("backup", "interrupted"),
        ("backup", "success"),
    ]
    assert [run.run_id for run in runs] == [1, 2, 3, 4]


def test_a_file_that_a_scheduler_holds_is_not_copied(stage: SharedStage, tmp_path: Path) -> None:
    """Both stores would go on by themselves."""
    write_target(tmp_path, '[("a", "0 0 1 1 *", quick, timedelta(0))]')
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("ProgramReady")
        done = copy(stage, tmp_path, "state.db", stage.url)
    assert (done.code, done.out) == (5, "")
    assert f"state.db is in use by process {service.pid}" in done.err
    assert stage.store.tables()["tasks"] == []


def test_a_trace_is_sealed_beside_the_file_and_not_copied(stage: SharedStage, tmp_path: Path) -> None:
    """Its events name no host, and those of a shared store do: in another's trace they would lie."""
    live(tmp_path / "state.db", trace=True)
    (tmp_path / "state.db.trace.jsonl").write_text("mine")
    refused = copy(stage, tmp_path, "state.db", stage.url)
    assert (refused.code, "exists already" in refused.err) == (4, True)
    assert (tmp_path / "state.db.trace.jsonl").read_text() == "mine"
    assert stage.store.tables()["tasks"] == []
    done = copy(stage, tmp_path, "state.db", stage.url, "--trace-file", "kept.jsonl")
    assert done.code == 0
    assert "kept.jsonl: the trace, " in done.out
    assert "sealed clean" in done.out
    assert duly("verify", "kept.jsonl", folder=tmp_path).code == 0
    assert stage.store.tables()["bases"] == []
    found = PostgresReader(stage.store.url).read(lambda view: view.trace())
    assert found is None


def test_the_trace_of_hosts_is_sealed_beside_the_file_and_not_copied(stage: SharedStage, tmp_path: Path) -> None:
    """Back from a server: the log stays there, and the file begins without a trace."""
    host = TestHost(stage.store, "a" * 32)
    host.join({"task": ("* * * * *", 0)}, traced=True)
    host.start(1)
    host.end(1, 1_000_000_000_001)
    host.leave()
    done = copy(stage, tmp_path, stage.url, "back.db", "--json")
    assert (done.code, done.json["traceFile"]) == (0, "back.db.trace.jsonl")
    judged = duly("verify", "back.db.trace.jsonl", "--json", folder=tmp_path).json
    assert (judged["ended"], judged["events"], judged["verdict"]) == (True, done.json["traceEvents"], "satisfied")
    assert "holds no trace" in duly("verify", "back.db", folder=tmp_path).err


def test_a_damaged_trace_can_be_left_out(stage: SharedStage, tmp_path: Path) -> None:
    """Everything else is whole."""
    live(tmp_path / "state.db", trace=True)
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute("DELETE FROM trace WHERE seq = 3")
    connection.commit()
    connection.close()
    done = copy(stage, tmp_path, "state.db", stage.url)
    assert (done.code, done.out) == (7, "")
    assert "--no-trace" in done.err
    assert "state.db.trace.jsonl" not in files_in(tmp_path)
    assert copy(stage, tmp_path, "state.db", stage.url, "--no-trace").code == 0


@pytest.mark.parametrize(
    ("origin", "target", "code", "message"),
    [
        ("state.db", "other.db", 2, "FROM and TO are both files"),
        ("URL", "URL", 2, "FROM and TO are both on PostgreSQL"),
        ("nothing.db", "URL", 4, "no such store"),
        ("URL", "state.db", 4, "no host has used this store yet"),
        ("state.db", "postgresql://127.0.0.1:1/shop", 4, "cannot be reached"),
    ],
)
def test_what_cannot_be_copied_is_named(
    stage: SharedStage, tmp_path: Path, origin: str, target: str, code: int, message: str
) -> None:
    live(tmp_path / "state.db")
    before = files_in(tmp_path)
    done = copy(stage, tmp_path, *(stage.url if each == "URL" else each for each in (origin, target)))
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert files_in(tmp_path) == before


def test_hosts_go_on_with_a_copied_store(stage: SharedStage, tmp_path: Path) -> None:
    """A host that declares the same tasks preserves them: their states, and what they have served."""
    live(tmp_path / "state.db")
    assert copy(stage, tmp_path, "state.db", stage.url).code == 0
    store = stage.store
    store.now = Instant(stage.began + MINUTE)
    before = generations(store)
    host = TestHost(store, "c" * 32)
    answer = host.join({"task": ("* * * * *", 3_600_000)})
    assert (answer.verdict.value, answer.edition) == ("applied", 1)
    assert generations(store) == before
    host.read()
    assert host.start(before["task"]).refused == ()
    shown = duly("status", "--store", stage.url, "--schema", stage.schema, "--json", folder=tmp_path)
    assert json.loads(shown.out)["tasks"][0]["state"] == "running"
