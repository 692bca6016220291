"""Dashboards over stores with a past, and a client for them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp

from duly.stores import SqliteReader
from duly.web.app import over
from duly.web.frame import Settings
from tests.web.hostile import NAMES
from tests.web.stage import Entry, FixedClock, past

Asking = Callable[[ASGIApp], AbstractAsyncContextManager[httpx.AsyncClient]]


class Stage:
    """A store, and the moment at which it is looked at."""

    def __init__(self, path: Path, clock: FixedClock) -> None:
        self.path = path
        self.clock = clock

    @property
    def reader(self) -> SqliteReader:
        return SqliteReader(self.path, self.clock.now)

    def dashboard(self, settings: Settings | None = None) -> ASGIApp:
        return over(self.reader, str(self.path), self.clock, settings or Settings())


def _made(folder: Path, entries: list[Entry] | None = None, days: float = 3) -> Stage:
    logger = logging.getLogger("duly")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # a past has many failures
    try:
        path = folder / "state.db"
        clock = asyncio.run(past(path, days=days) if entries is None else past(path, entries, days=days))
    finally:
        logger.setLevel(level)
    return Stage(path, clock)


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Three days of fourteen tasks, the clock change of October 2026 and an outage among them; only to be read."""
    return _made(tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="session")
def hostile_stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Tasks whose names are hostile; most of them have failed, with hostile errors."""
    entries: list[Entry] = [(name, "0,30 * * * *", 1, 4.0, 0.6) for name in NAMES]
    return _made(tmp_path_factory.mktemp("hostile"), entries, 0.2)


@asynccontextmanager
async def client(app: ASGIApp, base: str = "http://testserver") -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=base) as opened:
        yield opened


@pytest.fixture
def asking() -> Asking:
    """Opens a client of an application."""
    return client
