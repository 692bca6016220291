"""Facts that docs/how-to/dashboard-behind-a-proxy.md relies on: names, prefixes, the token, the stream."""

import re

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from duly.web import dashboard
from tests.web.conftest import Asking, Stage

NAME = {"host": "cron.example.net"}


def addresses(text: str) -> list[str]:
    """Where the links, forms and assets of a page lead within the server."""
    return [each for each in re.findall(r'(?:href|src|action)="([^"#]+)', text) if not each.startswith("data:")]


@pytest.mark.parametrize("header", ["x-forwarded-prefix", "x-script-name", "x-forwarded-path"])
async def test_a_header_moves_no_link(header: str, asking: Asking, stage: Stage) -> None:
    """A client could send it as well as a proxy, so links follow the mount alone."""
    async with asking(dashboard(stage.path)) as client:
        page = await client.get("/", headers={header: "/elsewhere"})
        assert page.status_code == 200
        assert "/elsewhere" not in page.text


async def test_links_of_a_mounted_dashboard_hold_behind_a_proxy_that_keeps_the_path(
    asking: Asking, stage: Stage
) -> None:
    """The program of the page: a mount at the prefix that browsers see, and the name that the proxy passes on."""
    mounted = dashboard(stage.path, token="secret", allowed_hosts=["cron.example.net"])
    async with asking(Starlette(routes=[Mount("/ops/duly", mounted)])) as client:
        page = await client.get("/ops/duly/", headers={**NAME, "authorization": "Bearer secret"})
        assert page.status_code == 200
        local = [each for each in addresses(page.text) if "://" not in each]
        assert local
        assert [each for each in local if each.startswith("/") and not each.startswith("/ops/duly/")] == []


async def test_a_proxy_that_sends_its_own_address_as_the_name_is_refused(asking: Asking, stage: Stage) -> None:
    """As nginx does without `proxy_set_header Host`."""
    async with asking(dashboard(stage.path, allowed_hosts=["cron.example.net"])) as client:
        assert (await client.get("/", headers={"host": "10.0.0.7:8347"})).status_code == 421
        assert (await client.get("/", headers=NAME)).status_code == 200


async def test_the_stream_asks_not_to_be_buffered(asking: Asking, stage: Stage) -> None:
    """nginx heeds the header, Caddy the media type."""
    async with asking(dashboard(stage.path)) as client:
        stream = await client.request("HEAD", "/live")
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["content-type"].startswith("text/event-stream")
