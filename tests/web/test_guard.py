"""The security rules of the dashboard: host names, token, methods, headers, long queries."""

import base64
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from duly.errors import StoreError
from duly.web import dashboard, guard
from duly.web.api import without_errors
from duly.web.guard import HEADERS, bare_host
from tests.web.conftest import Asking, Stage

TOKEN = "correct horse"
EVERYWHERE = (
    "/",
    "/tasks",
    "/task",
    "/runs",
    "/verify",
    "/whatif",
    "/metrics",
    "/nowhere",
    "/tasks/",
    "/live",
    "/api/v1/health",
    "/api/openapi.json",
    "/static/x/y",
)


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Notes how long refused clients would wait, and does not wait."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("duly.web.guard.asyncio.sleep", sleep)
    return waited


@pytest.mark.parametrize(
    ("header", "bare"),
    [
        ("cron.example.net", "cron.example.net"),
        ("Cron.Example.NET:8347", "cron.example.net"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:8347", "::1"),
        ("::1", "::1"),
        ("example.net.", "example.net"),
        ("", ""),
    ],
)
def test_a_host_header_is_a_name_and_perhaps_a_port(header: str, bare: str) -> None:
    assert bare_host(header) == bare


async def test_a_name_that_was_not_allowed_is_misdirected(asking: Asking, stage: Stage) -> None:
    """DNS rebinding: a foreign page that resolves to this address names its own host."""
    app = dashboard(stage.path, allowed_hosts=["cron.example.net"])
    async with asking(app) as client:
        for path in EVERYWHERE:
            assert (await client.get(path, headers={"Host": "evil.example"})).status_code == 421
        for host in ("cron.example.net", "CRON.example.net:9000"):
            assert (await client.get("/", headers={"Host": host})).status_code == 200
        assert (await client.get("/", headers={"Host": "cron.example.net.evil.example"})).status_code == 421
        assert (await client.get("/", headers={"Host": ""})).status_code == 421


async def test_mounted_without_names_every_host_is_the_applications_affair(asking: Asking, stage: Stage) -> None:
    async with asking(Starlette(routes=[Mount("/duly", dashboard(stage.path))])) as client:
        assert (await client.get("/duly/", headers={"Host": "anything.example"})).status_code == 200


def basic(password: str, user: str = "anybody") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize("shown", [f"Bearer {TOKEN}", f"bearer  {TOKEN}", basic(TOKEN), basic(TOKEN, "")])
async def test_a_token_is_shown_as_bearer_or_as_the_password_of_any_user(
    asking: Asking, stage: Stage, shown: str
) -> None:
    async with asking(dashboard(stage.path, token=TOKEN)) as client:
        assert (await client.get("/tasks", headers={"Authorization": shown})).status_code == 200


@pytest.mark.parametrize(
    "shown", ["", "Bearer", "Bearer wrong", basic("wrong"), basic(""), "Basic !", "Basic é", f"Digest {TOKEN}", TOKEN]
)
async def test_without_the_token_nothing_is_shown_and_the_answer_takes_a_second(
    asking: Asking, stage: Stage, shown: str, no_delay: list[float]
) -> None:
    async with asking(dashboard(stage.path, token=TOKEN)) as client:
        for path in EVERYWHERE:
            answer = await client.get(path, headers=[(b"Authorization", shown.encode())])
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == 'Basic realm="duly", charset="UTF-8"'
            assert "set-cookie" not in answer.headers
    assert no_delay == [1.0] * len(EVERYWHERE)


async def test_a_token_may_have_any_letters(asking: Asking, stage: Stage) -> None:
    """Headers are bytes: as a bearer token and as a password, the token is its UTF-8."""
    token = "tökén ✓"
    async with asking(dashboard(stage.path, token=token)) as client:
        for shown in (f"Bearer {token}".encode(), basic(token).encode()):
            assert (await client.get("/tasks", headers=[(b"Authorization", shown)])).status_code == 200


async def test_refusals_of_the_api_are_json(asking: Asking, stage: Stage) -> None:
    """A program that reads JSON is told what is wrong as it is told everything else."""
    app = dashboard(stage.path, token=TOKEN, allowed_hosts=["testserver"])
    right = {"Authorization": f"Bearer {TOKEN}"}
    async with asking(Starlette(routes=[Mount("/duly", app)])) as client:
        path = "/duly/api/v1/status"
        answers = [
            await client.get(path, headers={"Host": "evil.example"}),
            await client.get(path),
            await client.post(path, headers=right),
            await client.get(f"{path}?after={'x' * 5000}", headers=right),
        ]
        page = await client.get("/duly/tasks")
    assert [answer.status_code for answer in answers] == [421, 401, 405, 414]
    for answer in answers:
        told = answer.json()
        assert (told["format"], told["hint"]) == (1, None)
        assert told["error"]
    assert page.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
async def test_methods_that_could_change_something_are_refused(asking: Asking, stage: Stage, method: str) -> None:
    """Read-only for good: there is nothing to change."""
    async with asking(dashboard(stage.path)) as client:
        for path in EVERYWHERE:
            answer = await client.request(method, path)
            assert answer.status_code == 405
            assert answer.headers["Allow"] == "GET, HEAD"


async def test_head_has_no_body(asking: Asking, stage: Stage) -> None:
    async with asking(dashboard(stage.path)) as client:
        for path in ("/", "/tasks", "/runs", "/api/v1/status", "/live"):
            answer = await client.head(path)
            assert (answer.status_code, answer.content) == (200, b"")


async def test_every_response_carries_the_headers(asking: Asking, stage: Stage) -> None:
    """Pages, documents, assets and refusals; nothing but an asset may be stored."""
    app = dashboard(stage.path, allowed_hosts=["testserver"])
    async with asking(app) as client:
        refused = [await client.post("/"), await client.get("/", headers={"Host": "evil.example"})]
        refused.append(await client.get("/?q=" + "a" * 5000))
        for answer in [*refused, *[await client.get(path) for path in EVERYWHERE if path != "/live"]]:
            for name, value in HEADERS.items():
                assert answer.headers[name] == value
            assert answer.headers["Cache-Control"] == "no-store"
        page = (await client.get("/")).text
        for kind in ("css", "js"):
            (asset,) = [part.split('"')[0] for part in page.split('"/')[1:] if part.split('"')[0].endswith(kind)]
            found = await client.get(f"/{asset}")
            assert found.status_code == 200
            assert "immutable" in found.headers["Cache-Control"]
            assert found.headers["X-Content-Type-Options"] == "nosniff"


def test_the_policy_allows_no_inline_style_or_script_and_nothing_from_elsewhere() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "http" not in policy
    assert policy.startswith("default-src 'none'")


def test_the_templates_have_no_inline_style_or_script_and_mark_nothing_as_safe() -> None:
    """`|safe` would let a name through; pictures are markup that is made in one module."""
    templates = list((Path(guard.__file__).parent / "templates").glob("*.html"))
    assert len(templates) > 4
    for template in templates:
        # The page that stands alone in a file has its style inside, and a policy that names its hash.
        text = template.read_text().replace("<style>{{ style }}</style>", "", template.name == "report.html")
        for forbidden in ("style=", "<style", "onclick", "javascript:", "|safe", "| safe", "http://", "https://"):
            assert forbidden not in text, f"{template.name} has {forbidden}"


async def test_a_query_longer_than_four_kibibytes_is_refused(asking: Asking, stage: Stage) -> None:
    async with asking(dashboard(stage.path)) as client:
        assert (await client.get("/tasks?q=" + "a" * 4090)).status_code == 200
        assert (await client.get("/tasks?q=" + "a" * 4096)).status_code == 414


async def test_a_web_socket_is_closed(stage: Stage) -> None:
    sent = []

    async def send(message: object) -> None:
        sent.append(message)

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    await dashboard(stage.path)({"type": "websocket"}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]  # type: ignore[index]


@pytest.mark.parametrize("store", [":memory:", "postgresql+psycopg://user:secret@db.example.net/duly"])
def test_a_store_that_cannot_be_shown_is_refused_without_its_password(store: str) -> None:
    with pytest.raises(StoreError) as refused:
        dashboard(store)
    assert "secret" not in str(refused.value)
    assert "secret" not in str(refused.value.details)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"token": ""}, ValueError),
        ({"allowed_hosts": "cron.example.net"}, TypeError),
        ({"refresh": 0}, ValueError),
        ({"refresh": float("nan")}, ValueError),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        dashboard("state.db", **options)  # type: ignore[arg-type]


async def test_hidden_errors_are_on_no_page_and_in_no_document(asking: Asking, stage: Stage) -> None:
    """`show_errors=False`: texts of errors and tracebacks may name hosts, people and passwords."""
    failed = "users/sync-crm"
    places = ["/", "/tasks", "/runs?outcome=failure", f"/task?name={failed}", "/api/v1/status", "/api/v1/runs"]
    places += [f"/api/v1/task?name={failed}", f"/api/v1/explain?task={failed}"]

    async def with_errors(show: bool) -> list[str]:
        async with asking(dashboard(stage.path, show_errors=show)) as client:
            answers = [await client.get(place) for place in places]
            runs = await client.get("/runs?outcome=failure")
            at = runs.text.split('<time datetime="')[1][:16]
            answers.append(await client.get(f"/task?name={failed}&at={at}"))
        assert [answer.status_code for answer in answers if answer.status_code not in {200, 503}] == []
        return [answer.text for answer in answers]

    assert any("ConnectionError" in text for text in await with_errors(True))
    assert not any("ConnectionError" in text or "Traceback" in text for text in await with_errors(False))


def test_hidden_errors_are_in_no_event_of_a_trace() -> None:
    """A failed initialize() or stop() has its error as the last field."""
    events = [["IF", 3, 1, 7, "OSError: secret"], ["SF", 4, 1, 8, "OSError: secret"], ["SS", 5, 1, 8]]
    hidden = without_errors({"properties": [{"first": {"subTrace": {"events": events}}}]})
    (judged,) = hidden["properties"]
    assert judged["first"]["subTrace"]["events"] == [["IF", 3, 1, 7, None], ["SF", 4, 1, 8, None], ["SS", 5, 1, 8]]


async def test_a_page_that_cannot_be_made_shows_no_traceback(
    asking: Asking, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect is a page that says so; the log has the rest."""
    monkeypatch.setattr("duly.web.source.StoreSource.read", lambda *_: 1 / 0)
    app = stage.dashboard()
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
        answer = await client.get("/tasks")
    assert answer.status_code == 500
    assert "ZeroDivisionError" not in answer.text
    assert "defect of duly" in answer.text
