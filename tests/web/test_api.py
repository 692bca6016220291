"""The JSON API has the documents of `--json`, and the OpenAPI document has the API."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from fastapi import FastAPI
from starlette.types import ASGIApp

from duly.cli.app import duly
from duly.core.cron import CronExpression
from duly.core.moments import MICROSECONDS, Instant
from duly.insight.health import Examination
from duly.insight.json_form import json_form
from duly.insight.load import load_of
from duly.insight.words import iso
from duly.stores.port import Holder
from duly.web import openapi
from duly.web.api import ENDPOINTS
from duly.web.forms import Form
from tests.conftest import require
from tests.stores.made import Row, make_store
from tests.web.conftest import Stage, client
from tests.web.hostile import NAMES
from tests.web.stage import FixedClock

FAILING = "partners/sync-acme-mirror"


async def asked(app: ASGIApp, place: str, status: int = 200) -> dict[str, Any]:
    async with client(app) as opened:
        answer = await opened.get(place)
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    document: dict[str, Any] = answer.json()
    return document


def printed(*arguments: str) -> dict[str, Any]:
    """The output of a command with --json."""
    result = CliRunner().invoke(duly, [*arguments, "--json"], standalone_mode=False)
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


async def test_status_is_the_document_of_the_command(stage: Stage) -> None:
    """SPEC 10.4: one JSON form each, wherever it is shown; the command and the page look at different moments."""
    from duly.web import dashboard

    answer = await asked(dashboard(stage.path), "/api/v1/status")
    command = printed("status", "--store", str(stage.path))
    assert set(answer) == {*command, "after"}
    assert answer["after"] is None
    moving = {"lateMs", "nextAt"}
    assert [without(task, *moving) for task in answer["tasks"]] == [without(task, *moving) for task in command["tasks"]]
    assert [problem["code"] for problem in answer["problems"]] == [problem["code"] for problem in command["problems"]]


async def test_the_health_of_the_page_and_of_the_library_are_one(stage: Stage) -> None:
    answer = await asked(stage.dashboard(), "/api/v1/health", 503)
    health = stage.reader.read(lambda view: Examination(view, stage.clock.zone()).health)
    assert without(answer, "command", "format") == json_form(health, stage.clock.zone())
    assert answer["healthy"] is False


async def test_runs_are_the_document_of_the_command(stage: Stage) -> None:
    from duly.web import dashboard

    answer = await asked(dashboard(stage.path), f"/api/v1/runs?task={quote(FAILING)}&outcome=failure&limit=5")
    command = printed("history", FAILING, "--store", str(stage.path), "--outcome", "failure", "--limit", "5")
    assert without(answer, "at", "before") == without(command, "at")


async def test_runs_go_on_page_after_page(stage: Stage) -> None:
    app = stage.dashboard()
    first = await asked(app, "/api/v1/runs?limit=7")
    second = await asked(app, f"/api/v1/runs?limit=7&before={first['before']}")
    both = await asked(app, "/api/v1/runs?limit=14")
    assert second["runs"] + first["runs"] == both["runs"]


async def test_explain_is_the_document_of_the_command(stage: Stage) -> None:
    from duly.web import dashboard

    at = "2026-10-25T18:16"
    answer = await asked(dashboard(stage.path), f"/api/v1/explain?task={quote(FAILING)}&at={at}")
    assert answer == printed("explain", FAILING, "--at", at, "--store", str(stage.path))


async def test_next_is_the_document_of_the_command(stage: Stage) -> None:
    place = f"/api/v1/next?cron={quote('30 2 * * *')}&tz=Europe/Berlin&from=2027-03-26&n=4"
    command = printed("next", "30 2 * * *", "-n", "4", "--tz", "Europe/Berlin", "--from", "2027-03-26")
    assert await asked(stage.dashboard(), place) == command


async def test_tasks_go_on_page_after_page(stage: Stage) -> None:
    app = stage.dashboard()
    found, place = list[str](), "/api/v1/tasks?limit=3"
    while place:
        answer = await asked(app, place)
        found += [task["task"] for task in answer["tasks"]]
        place = f"/api/v1/tasks?limit=3&after={quote(answer['after'])}" if answer["after"] else ""
    assert found == sorted(found)
    assert len(found) == 14
    (one,) = (await asked(app, f"/api/v1/tasks?q={quote(FAILING)}"))["tasks"]
    assert one == without(await asked(app, f"/api/v1/task?name={quote(FAILING)}"), "command", "format")


async def test_owed_tasks_go_on_page_after_page(tmp_path: Path, stage: Stage) -> None:
    """By name; with the moment of the count that says which expressions owe something."""
    at = stage.clock.now()
    served = Row("served", served_through=at // MICROSECONDS, last_attempt_at=at - 9, last_success_at=at - 8)
    running = Row("running", last_attempt_at=at - 9, run=1, run_cause="cron", run_scheduled=1)
    rows = [*(Row(f"t{number:03}") for number in range(250)), served, running]
    app = Stage(make_store(tmp_path / "s.db", rows), stage.clock).dashboard()
    found, place = list[str](), "/api/v1/tasks?state=owed"
    while place:
        answer = await asked(app, place)
        assert {task["state"] for task in answer["tasks"]} == {"owed"}
        assert (answer["countedAt"], answer["tasksLeftOut"]) == (iso(Instant(at), UTC), 0)
        found += [task["task"] for task in answer["tasks"]]
        place = f"/api/v1/tasks?state=owed&after={quote(answer['after'])}" if answer["after"] else ""
    assert found == [f"t{number:03}" for number in range(250)]
    (one,) = (await asked(app, "/api/v1/tasks?state=owed&q=T249"))["tasks"]
    assert one["task"] == "t249"
    everything = await asked(app, "/api/v1/tasks")
    assert (everything["countedAt"], everything["tasksLeftOut"]) == (None, 0)


async def test_owed_tasks_that_are_not_counted_yet_are_no_empty_list(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown is not none."""
    monkeypatch.setattr("duly.web.sampler.Sampler._take", lambda self: None)
    monkeypatch.setattr("duly.web.source.FIRST_SAMPLE_SECONDS", 0.01)
    answer = await asked(stage.dashboard(), "/api/v1/tasks?state=owed", 503)
    assert answer["error"] == "the tasks are still being counted"


async def test_the_load_counts_every_due_minute_once(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = make_store(tmp_path_factory.mktemp("load") / "s.db", [Row("a"), Row("b"), Row("c", "0 * * * *")])
    answer = await asked(Stage(path, stage.clock).dashboard(), "/api/v1/load?hours=2")
    assert answer["starts"] == 2 * 120 + 2
    assert answer["busiest"][0]["tasks"] == 3
    assert answer["tasksLeftOut"] == 0


async def test_the_load_is_counted_once_for_all_that_asks_within_an_hour(
    stage: Stage, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calendar and the API, from any minute of it on, for any number of hours."""
    counted: list[Instant] = []

    def counting(expressions: Sequence[tuple[CronExpression, int]], since: Instant, *rest: Any, **more: Any) -> Any:
        counted.append(since)
        return load_of(expressions, since, *rest, **more)

    monkeypatch.setattr("duly.web.load.load_of", counting)
    path = make_store(tmp_path_factory.mktemp("counted") / "s.db", [Row("a", "0,41 * * * *"), Row("b", "0 3 * * *")])
    app = Stage(path, stage.clock).dashboard()
    starts = [
        (await asked(app, f"/api/v1/load?hours={hours}&from=2027-05-04T10:{minute}"))["starts"]
        for hours, minute in ((1, "00"), (1, "30"), (24, "41"), (192, "42"))
    ]
    assert starts == [2, 2, 49, 392]
    async with client(app) as opened:
        assert (await opened.get("/calendar?from=2027-05-04T10:59")).status_code == 200
    assert len(counted) == 1
    await asked(app, "/api/v1/load?from=2027-05-04T11:00")
    assert len(counted) == 2


@pytest.mark.parametrize(
    ("place", "status", "sentence"),
    [
        ("/api/v1/task?name=nobody", 404, "No task is called nobody"),
        ("/api/v1/task", 400, "name is missing: its name"),
        ("/api/v1/explain", 400, "task is missing: its name"),
        ("/api/v1/task?name=cache/warn", 404, "No task is called cache/warn"),
        ("/api/v1/tasks?limit=0", 400, "limit is '0', and must be a number from 1 to 1,000"),
        ("/api/v1/tasks?state=asleep", 400, "state is 'asleep'"),
        ("/api/v1/next?cron=61+*+*+*+*", 400, "cron: the minute field"),
        ("/api/v1/next?cron=0+0+*+*+*&tz=Mars", 400, "tz is 'Mars'"),
        ("/api/v1/runs?since=soon", 400, "since: 'soon' is not a moment"),
        ("/api/v1/explain?task=nobody", 404, "No task is called nobody"),
    ],
)
async def test_what_cannot_be_answered_is_said_in_a_sentence(
    stage: Stage, place: str, status: int, sentence: str
) -> None:
    answer = await asked(stage.dashboard(), place, status)
    assert sentence in answer["error"]
    assert answer["hint"] == ("did you mean cache/warm?" if "warn" in place else None)


async def test_an_orphaned_task_is_not_denied(stage: Stage, tmp_path: Path) -> None:
    """History names it, and its page shows that; how often it failed in a row is not known, so it has no status."""
    path = make_store(tmp_path / "s.db", [Row("old", retired_at=5), Row("new")])
    app = Stage(path, stage.clock).dashboard()
    for place in ("name=old", "generation=1"):
        answer = await asked(app, f"/api/v1/task?{place}", 404)
        assert answer["error"] == "old is orphaned: no longer declared, and named by history alone."
        assert answer["hint"] == "/api/v1/runs and /api/v1/explain answer about it"
    assert (await asked(app, "/api/v1/explain?task=old"))["task"] == "old"
    assert (await asked(app, "/api/v1/runs?task=old"))["runs"] == []


async def test_a_task_may_be_named_by_its_declaration(hostile_stage: Stage) -> None:
    """For names that are too long for an address."""
    app = hostile_stage.dashboard()
    (longest,) = [name for name in NAMES if len(name) > 2000 and name.isascii()]
    (declaration,) = hostile_stage.reader.read(lambda view: view.declarations(longest))
    number = declaration.generation
    assert (await asked(app, f"/api/v1/task?generation={number}"))["task"] == longest
    assert (await asked(app, f"/api/v1/explain?generation={number}"))["task"] == longest
    runs = (await asked(app, f"/api/v1/runs?generation={number}"))["runs"]
    assert {run["task"] for run in runs} == {longest}
    for endpoint in ("task", "explain", "runs"):
        answer = await asked(app, f"/api/v1/{endpoint}?generation=99999", 404)
        assert answer["error"] == "The store has no declaration 99999."
        await asked(app, f"/api/v1/{endpoint}?generation=0", 400)


@pytest.mark.parametrize("place", ["/api/v1/x", "/api/v2/status", "/api/", "/api"])
async def test_an_unknown_address_of_the_api_is_answered_in_json(stage: Stage, place: str) -> None:
    """Programs read it, wherever the dashboard is mounted."""
    mounted = FastAPI()
    mounted.mount("/duly", stage.dashboard())
    for app, prefix in ((stage.dashboard(), ""), (mounted, "/duly")):
        answer = await asked(app, prefix + place, 404)
        assert answer["error"] == "The API has no address of this name."
        async with client(app) as opened:
            page = await opened.get(f"{prefix}/nowhere")
        assert (page.status_code, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")


async def test_a_defect_is_told_to_programs_in_json(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Form, name: str) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(Form, "text", fail)
    assert "defect of duly" in (await asked(stage.dashboard(), "/api/v1/tasks", 500))["error"]


# --- OpenAPI ---------------------------------------------------------------------------------------------------------


def test_the_checked_in_document_is_the_one_of_the_routes() -> None:
    """`python -m duly.web.openapi` writes it."""
    assert openapi.OPENAPI.read_text() == openapi.text()
    assert set(json.loads(openapi.text())["paths"]) == set(ENDPOINTS)


def test_the_document_is_valid() -> None:
    require("openapi_spec_validator", "pip install openapi-spec-validator")
    from openapi_spec_validator import validate

    validate(json.loads(openapi.text()))


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return openapi.document()["components"]["schemas"]["Failure"] if "$ref" in schema else schema


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value has the shape that a schema of the document says; objects have no member but those."""
    if not schema:
        return True
    if "anyOf" in schema:
        return any(fits(value, each) for each in schema["anyOf"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    types: dict[str, Any] = {
        "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None), "array": list,
        "object": dict,
    }  # fmt: skip
    if not any(isinstance(value, types[kind]) for kind in kinds):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, list):
        return all(fits(each, schema["items"]) for each in value)
    if isinstance(value, dict) and "properties" in schema:
        return set(value) <= set(schema["properties"]) and all(
            fits(each, schema["properties"][name]) for name, each in value.items()
        )
    return True


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_an_answer_has_the_shape_that_the_document_says(stage: Stage, path: str) -> None:
    required = {"name": FAILING, "task": FAILING, "cron": "30 2 * * *"}
    names = {each.name for each in ENDPOINTS[path].parameters} & set(required)
    query = "&".join(f"{name}={quote(required[name])}" for name in names)
    responses = openapi.document()["paths"][path]["get"]["responses"]
    async with client(stage.dashboard()) as opened:
        answer = await opened.get(f"{path}?{query}")
    schema = responses[str(answer.status_code)]["content"]["application/json"]["schema"]
    assert fits(answer.json(), resolved(schema)), answer.text
    assert not fits({"surprise": 1}, resolved(schema))


async def test_every_parameter_of_the_document_is_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other one: what a handler asks its form for is what the table says."""
    asked_for: set[str] = set()
    text = Form.text

    def noted(self: Form, name: str) -> str:
        asked_for.add(name)
        return text(self, name)

    monkeypatch.setattr(Form, "text", noted)
    required = {"name": FAILING, "task": FAILING, "cron": "30 2 * * *"}
    for path, endpoint in ENDPOINTS.items():
        asked_for.clear()
        names = {each.name for each in endpoint.parameters}
        query = "&".join(f"{name}={quote(value)}" for name, value in required.items() if name in names)
        async with client(stage.dashboard()) as opened:
            await opened.get(f"{path}?{query}")
        assert asked_for == names, path


async def test_the_document_is_served(stage: Stage) -> None:
    document = await asked(stage.dashboard(), "/api/openapi.json")
    assert re.fullmatch(r"3\.\d\.\d", document["openapi"])


async def test_a_scheduler_that_dies_is_seen_by_the_next_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its death writes nothing, and the counts of very many tasks are minutes old; the lock is looked at each time."""
    now = 1_790_000_000 * MICROSECONDS
    clock = FixedClock(now + 20 * MICROSECONDS, UTC)
    row = Row("a", served_through=now // MICROSECONDS, last_attempt_at=now, run=1, run_cause="cron", run_scheduled=now)
    stage = Stage(make_store(tmp_path / "s.db", [row]), clock)
    alive = Holder(alive=True, pid=7, host="here", since=Instant(now), last_poll_at=Instant(now))
    monkeypatch.setattr("duly.stores.sqlite.reader.read_holder", lambda path: alive)
    async with client(stage.dashboard()) as opened:
        assert (await opened.get("/api/v1/health")).status_code == 200
        assert "Healthy" in (await opened.get("/")).text
        monkeypatch.setattr("duly.stores.sqlite.reader.read_holder", lambda path: replace(alive, alive=False))
        answer = await opened.get("/api/v1/health")
        assert answer.status_code == 503
        assert [each["code"] for each in answer.json()["problems"]] == ["holder-gone"]
        status = (await opened.get("/api/v1/status")).json()
        assert (status["healthy"], status["holder"]["alive"]) == (False, False)
        assert status["problems"] == answer.json()["problems"]
        page = (await opened.get("/")).text
        assert "Unhealthy" in page
        assert "process 7, which held the store, is gone, and left 1 task marked running" in page
