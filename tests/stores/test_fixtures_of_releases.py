"""Every version reads, and goes on with, the work of each release before it: stores, a trace, a deployment.

`tests/fixtures/make.py` made the files with the release that their folder names, and `expected.json` (of version 0.1.0)
and its siblings have what that release says about each of them. These tests use public names and commands only, so that
they hold whatever the modules are called.
"""

import json
import re
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from duly import formal
from duly.stores.sqlite import schema
from tests.fixtures import make
from tests.fixtures.make import Service
from tests.fixtures.reading import duly, facts, first_starts, verdicts

FIXTURES = Path(__file__).parent.parent / "fixtures"
EXPECTED: dict[str, Any] = {
    "v0.1.0": json.loads((FIXTURES / "expected.json").read_text()),
    "v0.2.0": json.loads((FIXTURES / "expected-0.2.0.json").read_text()),
}
"""Answers of each release about its fixtures, by the name of their folder."""
SCHEMAS = {"v0.1.0": 2, "v0.2.0": 3}
STORES: dict[str, dict[str, Any]] = {
    f"{release}/{name}": expected for release, all_of in EXPECTED.items() for name, expected in all_of["stores"].items()
}
PATHS_OF_A_MACHINE = (b"/root/", b"/home/", b"/Users/", b"/tmp/tmp", b"/work/", b"/lib/python")
TRACED = [name for name, expected in STORES.items() if expected["properties"]]
each_release = pytest.mark.parametrize("release", EXPECTED)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the fixture that the test is about, with its WAL if it has one."""
    fixture: Path = FIXTURES / request.param
    for name in (fixture.name, f"{fixture.name}-wal"):
        if (fixture.parent / name).exists():
            shutil.copyfile(fixture.parent / name, tmp_path / name)
    return tmp_path / fixture.name


@pytest.fixture
def deployment(release: str, tmp_path: Path) -> Path:
    """A copy of the deployment's folder; the orders that it reads have arrived."""
    shutil.copytree(FIXTURES / release / "deployment", tmp_path, dirs_exist_ok=True)
    (tmp_path / "orders.csv").write_text("1,apples\n")
    return tmp_path


def one_per_store(names: Any = STORES) -> pytest.MarkDecorator:
    """Run the test with a copy of each store, and what is expected of it."""
    return pytest.mark.parametrize(
        ("store", "expected"), [(name, STORES[name]) for name in names], indirect=["store"], ids=list(names)
    )


def contains(actual: Any, expected: Any) -> bool:
    """Whether everything expected is there; a later version may add fields to it."""
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(
            name in actual and contains(actual[name], value) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(actual, list)
            and len(actual) == len(expected)
            and all(contains(*pair) for pair in zip(actual, expected, strict=True))
        )
    return bool(actual == expected)


@each_release
def test_the_fixtures_cover_each_situation_of_a_task(release: str) -> None:
    """Otherwise the tests below could pass without a retry or an interrupted run to serve."""
    stores = EXPECTED[release]["stores"]
    states = {name: {task["state"] for task in expected["tasks"].values()} for name, expected in stores.items()}
    assert states["idle.db"] == states["deployment/state.db"] == {"waiting"}
    assert "retrying" in states["retrying.db"]
    assert "running" in states["running.db"] & states["killed/state.db"] & states["interrupted.db"]
    made = FIXTURES / release
    assert (made / "killed" / "state.db-wal").stat().st_size > 0
    with _unchanged(made / "retrying.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMAS[release],)
    with _unchanged(made / "interrupted.db") as connection:
        assert connection.execute("SELECT max(interruptions) FROM states").fetchone() == (1,)


def test_the_fixtures_have_a_store_from_before_the_first_release() -> None:
    """Its schema is version 1; a retry is pending in it."""
    assert "retrying" in {task["state"] for task in STORES["v0.1.0/schema1.db"]["tasks"].values()}
    with _unchanged(FIXTURES / "v0.1.0" / "schema1.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_each_release_of_the_changelog_has_its_fixtures() -> None:
    """A release without them could be forgotten by every version after it."""
    changelog = (FIXTURES.parent.parent / "CHANGELOG.md").read_text()
    assert {f"v{version}" for version in re.findall(r"^## \[(\d[\d.]*)\]", changelog, re.MULTILINE)} == set(EXPECTED)


def test_no_fixture_has_a_path_of_the_machine_that_made_it() -> None:
    """Fixtures are published, and a traceback in a store or in its WAL names the files that it went through."""
    made = [path for name in EXPECTED for path in (FIXTURES / name).rglob("*")]
    found = [
        (str(path.relative_to(FIXTURES)), each)
        for path in [*made, *FIXTURES.glob("expected*.json")]
        if path.is_file() and path.suffix != ".pyc"
        for each in PATHS_OF_A_MACHINE
        if each in path.read_bytes()
    ]
    assert found == []


@pytest.mark.parametrize("release", [name for name, number in SCHEMAS.items() if number >= 3])
@pytest.mark.parametrize("name", ["running.db", "killed/state.db-wal", "deployment/state.db"])
def test_tracebacks_in_the_stores_of_a_deployment_name_the_neutral_folder(release: str, name: str) -> None:
    """Since schema 3 a run record has a traceback; without one, the test above would have nothing to find."""
    assert f'File "{make.NEUTRAL}/tasks.py"'.encode() in (FIXTURES / release / name).read_bytes()


def test_fixtures_are_not_made_in_a_folder_that_exists_or_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is removed at the end, so it must not be somebody else's."""
    monkeypatch.setattr(make, "NEUTRAL", tmp_path)
    with pytest.raises(SystemExit, match="exists"), make.neutral_folder():
        pass
    assert tmp_path.exists()
    monkeypatch.setattr(make, "NEUTRAL", tmp_path / "missing" / "duly")
    with pytest.raises(SystemExit, match="cannot be made: No such file or directory"), make.neutral_folder():
        pass
    monkeypatch.setattr(make, "NEUTRAL", tmp_path / "duly")
    with make.neutral_folder() as folder:
        (folder / "state.db").touch()
    assert not folder.exists()


@one_per_store()
def test_tasks_history_and_verdicts_are_read_as_their_release_read_them(store: Path, expected: dict[str, Any]) -> None:
    """The commands report the tasks with their states, every run, and the verdict on the trace."""
    actual = facts(store)
    assert actual["tasks"].keys() == expected["tasks"].keys()
    assert len(actual["history"]) == len(expected["history"])
    for part in ("zone", "tasks", "history", "verify", "properties"):
        assert contains(actual[part], expected[part]), (part, actual[part], expected[part])


@one_per_store()
async def test_a_scheduler_goes_on_where_the_release_ended(
    store: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    """An interrupted run is owed and started, a pending retry is served at its time, and no history is lost."""
    starts = await first_starts(store, expected, trace=True)
    assert starts == expected["firstStarts"]
    for name, task in expected["tasks"].items():
        if task["state"] == "running":
            assert starts[name][0] == "interrupted"
        elif task["state"] == "retrying":
            assert starts[name] == ["retry", task["pendingRetryUntil"]]

    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
        assert _layout(connection) == _layout_of_a_new_store(tmp_path)
    after = facts(store)
    assert {task["state"] for task in after["tasks"].values()} == {"waiting"}
    kept = {run["runId"]: run for run in after["history"]}
    for run in expected["history"]:
        assert contains(kept[run["runId"]], run)
    assert after["verify"] == 0
    assert set(after["properties"].values()) == {"satisfied"}


@one_per_store(TRACED)
async def test_a_trace_goes_on_in_a_store_that_has_one(store: Path, expected: dict[str, Any]) -> None:
    """The trace that the release began stays a part of the whole that is judged."""

    def length() -> tuple[int, int]:
        report = json.loads(duly("verify", store, "--json", folder=store.parent).out)
        return report["firstSegment"], report["events"]

    first, events = length()
    await first_starts(store, expected, trace=True)
    assert length()[0] == first == 1
    assert length()[1] > events


@each_release
def test_an_exported_trace_is_judged_as_before(release: str) -> None:
    """Both ways to a verdict: the command, and `duly.formal.check`."""
    path = FIXTURES / release / "trace.jsonl"
    expected = EXPECTED[release]["traces"]["trace.jsonl"]
    assert contains(verdicts(path), expected)
    with path.open("rb") as trace:
        report = formal.check(trace)
    assert (report.events, report.crashes, report.tasks, report.ended, report.sealed) == (125, 1, 2, True, True)
    values = {name: verdict.value.value for name, verdict in report.verdicts.items()}
    assert contains(values, expected["properties"])


@each_release
def test_a_deployment_finds_its_tasks_again_and_goes_on(release: str, deployment: Path) -> None:
    """Its `tasks.py` loads, nothing in the store differs from it, and `duly run` catches up and stops."""
    plan = json.loads(duly("plan", "tasks.py", "--store", "state.db", "--json", folder=deployment).out)
    assert (plan["new"], plan["overridden"], plan["orphaned"], plan["interrupted"]) == ([], [], [], [])
    assert set(plan["preserved"]) == set(STORES[f"{release}/deployment/state.db"]["tasks"])

    service = Service(deployment)
    service.read_until(
        *(
            {"event": "TaskRunCompleted", "taskName": name, "success": True}
            for name in ("heartbeat", "import-orders", "sync-stock")
        )
    )
    service.end(signal.SIGTERM)
    assert verdicts(deployment / "state.db")["verify"] == 0


@each_release
@pytest.mark.parametrize("command", ["status", "history", "verify"])
def test_a_json_form_keeps_the_fields_that_it_had(deployment: Path, command: str) -> None:
    """A program that reads the output of a release reads the present one; a change of meaning changes `format`."""
    printed = json.loads((deployment / f"{command}.json").read_text())
    place = ["state.db"] if command == "verify" else ["--store", "state.db"]
    present = json.loads(duly(command, *place, "--json", folder=deployment).out)
    assert present["format"] == printed["format"] == 1
    assert _fields(printed) <= _fields(present)


def _fields(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict):
        return {path}.union(*(_fields(each, f"{path}.{name}") for name, each in value.items()))
    if isinstance(value, list):
        return {path}.union(*(_fields(each, f"{path}[]") for each in value))
    return {path}


def _unchanged(fixture: Path) -> "closing[sqlite3.Connection]":
    """Open a fixture without leaving anything beside it."""
    return closing(sqlite3.connect(f"file:{fixture}?mode=ro&immutable=1", uri=True))


def _layout(connection: sqlite3.Connection) -> dict[str, Any]:
    """The columns of each table, and what indexes it."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
    indices = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
    return {
        **{name: connection.execute(f"PRAGMA table_info({name})").fetchall() for name in names},
        "indices": sorted(indices),
    }


def _layout_of_a_new_store(folder: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(folder / "new.db", isolation_level=None)) as connection:
        schema.create(connection)
        schema.complete(connection)
        return _layout(connection)
