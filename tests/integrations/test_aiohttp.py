"""docs/integrations/aiohttp.md: what the page shows is an application of aiohttp, and is served by it."""

import asyncio
import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from duly.clock import SystemClock
from duly.stores import SqliteReader
from duly.stores.port import RunSelection
from tests.conftest import require
from tests.docs.pages import DOCS, fences


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the program of the page defines, in a folder of its own."""
    require("aiohttp", "pip install -r requirements/dev.txt")
    monkeypatch.chdir(tmp_path)
    (program,) = [each.text for each in fences(DOCS / "integrations" / "aiohttp.md") if each.kind == "python"]
    (tmp_path / "app.py").write_text(program)
    return runpy.run_path("app.py")


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application, which aiohttp starts before and cleans up after."""
    from aiohttp import web

    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}") as client:
            yield client
    finally:
        await runner.cleanup()


async def test_the_program_of_the_page_runs_tasks_while_it_serves(page: dict[str, Any]) -> None:
    """From its start-up to its clean-up; a handler says so."""
    standby = page["STANDBY"]
    async with served(page["app"]) as client:
        await page["app"][standby].held()
        assert (await client.get("/health")).json() == {"runs_the_tasks": True}
    assert not page["app"][standby].holding


async def test_clean_up_waits_for_the_callbacks_that_run_and_records_their_ends(
    page: dict[str, Any], tmp_path: Path
) -> None:
    """The task of the page, as one of every minute."""
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        await may_end.wait()
        ended.set()

    ((name, _, _, delay),) = page["registrations"]
    page["registrations"][:] = [(name, "* * * * *", slow, delay)]

    async def end_later(_: Any) -> None:
        asyncio.get_running_loop().call_later(0.1, may_end.set)

    page["app"].on_shutdown.append(end_later)  # comes before the clean-up
    async with served(page["app"]):
        await begun.wait()
        assert not ended.is_set()
    assert ended.is_set()
    reader = SqliteReader(tmp_path / "state.db", SystemClock().now)
    runs = reader.read(lambda view: list(view.runs(RunSelection())))
    assert {run.outcome for run in runs} == {"success"}
