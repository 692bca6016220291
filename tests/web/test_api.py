"""The JSON API has the documents of `--json`, and the OpenAPI document has the API."""

import json
import re
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from starlette.types import ASGIApp

from duly.cli.app import duly
from duly.core.moments import MICROSECONDS, Instant
from duly.insight.health import Examination
from duly.insight.json_form import json_form
from duly.stores.port import Holder
from duly.web import openapi
from duly.web.api import ENDPOINTS
from tests.conftest import require
from tests.stores.made import Row, make_store
from tests.web.conftest import Stage, client
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


async def test_the_load_counts_every_due_minute_once(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = make_store(tmp_path_factory.mktemp("load") / "s.db", [Row("a"), Row("b"), Row("c", "0 * * * *")])
    answer = await asked(Stage(path, stage.clock).dashboard(), "/api/v1/load?hours=2")
    assert answer["starts"] == 2 * 120 + 2
    assert answer["busiest"][0]["tasks"] == 3
    assert answer["tasksLeftOut"] == 0


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
    query = "&".join(
        f"{each.name}={quote(required[each.name])}" for each in ENDPOINTS[path].parameters if each.required
    )
    responses = openapi.document()["paths"][path]["get"]["responses"]
    async with client(stage.dashboard()) as opened:
        answer = await opened.get(f"{path}?{query}")
    schema = responses[str(answer.status_code)]["content"]["application/json"]["schema"]
    assert fits(answer.json(), resolved(schema)), answer.text
    assert not fits({"surprise": 1}, resolved(schema))


async def test_every_parameter_of_the_document_is_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other one: what a handler asks its form for is what the table says."""
    from duly.web.forms import Form

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
        page = (await opened.get("/")).text
        assert "Unhealthy" in page
        assert "process 7, which held the store, is gone, and left 1 task marked running" in page
