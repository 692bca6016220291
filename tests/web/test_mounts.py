"""The dashboard inside other applications: its links, assets and addresses stay below the path of its mount."""

import html
import json
import re
from collections.abc import Callable
from typing import Any, cast
from urllib.request import urlopen

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from duly.web import dashboard
from duly.web.mount import named
from tests.conftest import require
from tests.web.browser import served
from tests.web.conftest import Asking, Stage

Mounting = Callable[[str, ASGIApp], ASGIApp]
PLACES = ("/", "/tasks", "/task?name=users/sync-crm", "/runs", "/calendar", "/next?cron=30+2+*+*+*", "/about")


def in_fastapi(path: str, app: ASGIApp) -> ASGIApp:
    host = FastAPI()
    host.mount(path, app)
    return host


def in_starlette(path: str, app: ASGIApp) -> ASGIApp:
    return Starlette(routes=[Mount(path, app)])


def in_litestar(path: str, app: ASGIApp, *, copy_scope: bool = True) -> ASGIApp:
    require("litestar", "pip install -r requirements/dev.txt")
    from litestar import Litestar, asgi

    host: Any = Litestar(
        [asgi(path, is_mount=True, copy_scope=copy_scope)(app)], openapi_config=None, logging_config=None
    )
    return cast("ASGIApp", host)


def in_litestar_without_a_copy(path: str, app: ASGIApp) -> ASGIApp:
    return in_litestar(path, app, copy_scope=False)


def in_litestar_in_starlette(path: str, app: ASGIApp) -> ASGIApp:
    first, second = re.fullmatch("(/[^/]*)(/.*)", path).groups()  # type: ignore[union-attr]
    return in_starlette(first, in_litestar(second, app))


@pytest.fixture(params=[in_fastapi, in_starlette, in_litestar, in_litestar_without_a_copy, in_litestar_in_starlette])
def mounted(request: pytest.FixtureRequest) -> Mounting:
    """Mounts a dashboard in an application."""
    mounting: Mounting = request.param
    return mounting


def addresses(page: str) -> list[str]:
    """Where the links, forms and assets of a page lead."""
    found = [html.unescape(each) for each in re.findall(r'(?:href|src|action)="([^"]*)"', page)]
    return [each for each in found if not each.startswith(("#", "data:"))]


async def test_every_link_of_every_page_leads_to_a_page_below_the_mount(
    mounted: Mounting, asking: Asking, stage: Stage
) -> None:
    """`/tasks/...` is a mount whose name is that of a page."""
    for path in ("/ops/duly", "/tasks/task"):
        async with asking(mounted(path, stage.dashboard())) as client:
            links: set[str] = set()
            for place in PLACES:
                answer = await client.get(f"{path}{place}")
                assert answer.status_code == 200, place
                links.update(addresses(answer.text))
            assert len(links) > 50
            assert [each for each in links if not each.startswith(f"{path}/")] == []
            some = {each.partition("?")[0]: each for each in sorted(links)}
            del some[f"{path}/task#why"]  # where a form leads to, with a name
            for link in some.values():
                assert (await client.get(link)).status_code == 200, link


async def test_what_is_no_page_is_none_below_a_mount_either(mounted: Mounting, asking: Asking, stage: Stage) -> None:
    """A failure is a page with links, or JSON below `/api/`."""
    async with asking(mounted("/ops/duly", stage.dashboard())) as client:
        page = await client.get("/ops/duly/nowhere")
        document = await client.get("/ops/duly/api/v1/nowhere")
        refused = await client.post("/ops/duly/api/v1/status")
    assert page.status_code == 404
    assert {each.startswith("/ops/duly/") for each in addresses(page.text)} == {True}
    assert (document.status_code, document.json()["hint"]) == (404, "/api/openapi.json lists them")
    assert (refused.status_code, refused.json()["format"]) == (405, 1)


async def test_a_mount_keeps_its_token_and_its_names(
    mounted: Mounting, asking: Asking, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.web.guard._DELAY_SECONDS", 0)
    app = dashboard(stage.path, token="secret", allowed_hosts=["testserver"])
    right = {"Authorization": "Bearer secret"}
    async with asking(mounted("/ops/duly", app)) as client:
        assert (await client.get("/ops/duly/tasks", headers=right)).status_code == 200
        assert (await client.get("/ops/duly/tasks")).status_code == 401
        assert (await client.get("/ops/duly/tasks", headers={**right, "Host": "evil.example"})).status_code == 421


async def test_litestar_sends_what_it_takes_for_the_same_path_to_the_same_page(asking: Asking, stage: Stage) -> None:
    """Slashes too many lead nowhere else: a link that begins with two of them would name a host."""
    async with asking(in_litestar("/duly", stage.dashboard())) as client:
        for path in ("/duly", "/duly/", "/duly//", "/duly/tasks/", "//duly//tasks", "/%64uly/t%61sks?q=/duly"):
            answer = await client.send(httpx.Request("GET", f"http://testserver{path}"))
            assert answer.status_code == 200, path
            assert {each[:6] for each in addresses(answer.text)} == {"/duly/"}, path
        assert (await client.get("/dulytasks")).status_code == 404


async def test_litestar_mounts_several_stores(asking: Asking, stage: Stage) -> None:
    """Also at its root, and at two paths at once."""
    require("litestar", "pip install -r requirements/dev.txt")
    from litestar import Litestar, Router, asgi

    first = dashboard(stage.path, title="first")
    second = dashboard(stage.path, title="second")

    async def one(scope: Any, receive: Any, send: Any) -> None:
        await first(scope, receive, send)

    async def other(scope: Any, receive: Any, send: Any) -> None:
        await second(scope, receive, send)

    twice = asgi(["/duly", "/again"], is_mount=True, copy_scope=True)(one)
    below = Router("/shop", route_handlers=[asgi("/duly", is_mount=True, copy_scope=True)(other)])
    host: Any = Litestar([twice, below], openapi_config=None, logging_config=None)
    async with asking(host) as client:
        for path, title in (("/duly", "first"), ("/again", "first"), ("/shop/duly", "second")):
            page = (await client.get(f"{path}/tasks")).text
            assert f"· {title}</title>" in page
            assert [each for each in addresses(page) if not each.startswith(f"{path}/")] == []
    async with asking(in_litestar("/", stage.dashboard())) as client:
        for place in PLACES:
            page = (await client.get(place)).text
            assert "<h1" in page
            assert [each for each in addresses(page) if not re.match("/(?!/)", each)] == []


def test_a_server_tells_litestar_enough(stage: Stage) -> None:
    """A real one: a page, one of its assets, and a document."""
    with served(in_litestar("/duly", stage.dashboard())) as address:
        with urlopen(f"{address}/duly/tasks", timeout=60) as answer:
            links = addresses(answer.read().decode())
        (script,) = [each for each in links if each.endswith(".js")]
        with urlopen(f"{address}{script}", timeout=60) as answer:
            assert "immutable" in answer.headers["Cache-Control"]
        with urlopen(f"{address}/duly/api/v1/tasks?limit=1", timeout=60) as answer:
            assert json.load(answer)["format"] == 1


@pytest.mark.parametrize(
    ("scope", "root", "path"),
    [
        ({"raw_path": b"/duly/tasks", "path": "/tasks/"}, "/duly", "/duly/tasks"),
        ({"raw_path": b"/duly/tasks?q=a", "path": "/tasks/"}, "/duly", "/duly/tasks"),  # from Litestar's test client
        ({"raw_path": b"/duly", "path": "/"}, "/duly", "/duly/"),
        ({"raw_path": b"/ops/duly/tasks", "path": "/tasks/", "root_path": "/ops"}, "/ops/duly", "/ops/duly/tasks"),
        # a server that is told of a path which its proxy has cut off
        ({"raw_path": b"/duly/tasks", "path": "/tasks/", "root_path": "/ops"}, "/ops/duly", "/ops/duly/tasks"),
        ({"raw_path": b"/d%C3%BCly/tasks", "path": "/tasks/"}, "/düly", "/düly/tasks"),
        # not known: the request stays as it is
        ({"raw_path": b"/elsewhere", "path": "/tasks/"}, "", "/tasks/"),
        ({"raw_path": b"/duly/\xff", "path": "/ÿ/"}, "", "/ÿ/"),
        ({"raw_path": None, "path": "/tasks/"}, "", "/tasks/"),
        ({"path": "/tasks/"}, "", "/tasks/"),
    ],
)
def test_the_mount_is_what_litestar_has_cut_off(scope: dict[str, Any], root: str, path: str) -> None:
    litestar = object()
    scope = {"root_path": "", "app": litestar, "litestar_app": litestar, **scope}
    before = dict(scope)
    found = named(scope)
    assert (found["root_path"], found["path"]) == (root, path)
    assert scope == before


def test_a_request_that_litestar_has_not_touched_stays_as_it_is() -> None:
    """Whatever a server says that it received; an application between the two has its own say."""
    for applications in ({}, {"app": object()}, {"app": object(), "litestar_app": object()}):
        scope = {"raw_path": b"/ops/duly/tasks", "path": "/duly/tasks", "root_path": "/duly", **applications}
        assert named(scope) is scope
