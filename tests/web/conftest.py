"""Dashboards over stores with a past, and a client for them."""

import asyncio
import json
import logging
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from duly.core.moments import instant_of
from duly.stores import SqliteReader
from duly.testing import SimulatedHost
from duly.web.app import over
from duly.web.frame import Settings
from tests.postgres_server import PostgresServer, bundled_binaries, server_of
from tests.web.hostile import NAMES
from tests.web.shared_stage import SharedPast
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
        return over(self.path, self.reader, self.clock, settings or Settings())


def made_stage(folder: Path, entries: list[Entry] | None = None, days: float = 3) -> Stage:
    logger = logging.getLogger("duly")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # a past has many failures
    try:
        path = folder / "state.db"
        clock = asyncio.run(past(path, days=days) if entries is None else past(path, entries, days=days))
    finally:
        logger.setLevel(level)
    return Stage(path, clock)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that wait for the first counts, however busy this machine is."""
    monkeypatch.setattr("duly.web.source.FIRST_SAMPLE_SECONDS", 30.0)


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Three days of fourteen tasks, the clock change of October 2026 and an outage among them; only to be read."""
    return made_stage(tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="session")
def hostile_stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Tasks whose names are hostile; most of them have failed, with hostile errors."""
    entries: list[Entry] = [(name, "0,30 * * * *", 1, 4.0, 0.6) for name in NAMES]
    return made_stage(tmp_path_factory.mktemp("hostile"), entries, 0.2)


async def traced_past(path: Path) -> FixedClock:
    """An hour of two traced tasks, one of which fails; a crash in the middle of it, and a stop at its end."""
    async with SimulatedHost("2026-10-26T12:00:30", "Europe/Berlin", store=path) as host:

        async def work() -> None:
            await host.sleep(5)

        async def fail() -> None:
            raise ConnectionError("no answer")

        declared = [
            ("export", "0,10,20,30,40,50 * * * *", work, timedelta(minutes=1)),
            ("import", "5,35 * * * *", fail, timedelta(minutes=7)),
        ]
        await host.scheduler(trace=True).initialize(declared)
        await host.advance(minutes=20)
        await host.crash()
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize(declared)
        await host.advance(minutes=40)
        await scheduler.stop()
        zone = host.now.tzinfo
        assert zone is not None
        return FixedClock(instant_of(host.now), zone)


@pytest.fixture(scope="session")
def traced_stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A store with a trace; only to be read."""
    path = tmp_path_factory.mktemp("traced") / "state.db"
    return Stage(path, asyncio.run(traced_past(path)))


@asynccontextmanager
async def client(app: ASGIApp, base: str = "http://testserver") -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=base) as opened:
        yield opened


@pytest.fixture
def asking() -> Asking:
    """Opens a client of an application."""
    return client


@pytest.fixture(scope="session")
def server() -> PostgresServer:
    """The PostgreSQL of this test process."""
    return server_of(bundled_binaries())


@pytest.fixture(scope="session")
def shared(server: PostgresServer, stage: Stage) -> SharedPast:
    """The past of `stage`, shared by three hosts; only to be read."""
    return SharedPast(server, "web past", stage.path, stage.clock)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that child processes were asked."""
    questions: list[str] = []
    run = subprocess.run

    def noted(*arguments: Any, **options: Any) -> "subprocess.CompletedProcess[bytes]":
        questions.append(json.loads(options["input"])["question"])
        return run(*arguments, **options)

    monkeypatch.setattr("duly.web.child.subprocess.run", noted)
    return questions
