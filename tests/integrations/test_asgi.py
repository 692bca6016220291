"""The lifespan of ASGI applications: in their test clients, and in the workers of uvicorn and gunicorn."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import duly
from duly.errors import CronExpressionInvalidError
from duly.events import Event, StandbyFailed
from duly.integrations.asgi import lifespan
from duly.stores import PostgresStore
from tests.compute import NotInTimeError
from tests.conftest import require
from tests.postgres_server import PostgresServer
from tests.programs import environment
from tests.system.children import PATIENCE_SECONDS
from tests.system.test_standby import Server, assert_nobody_complains

APP = "tests.integrations.asgi_app:app"
NEVER = "0 0 1 1 *"


class Application:
    """The part of an application that a lifespan needs, in all frameworks: a place for its state."""

    def __init__(self) -> None:
        self.state = type("State", (), {})()


async def test_tasks_run_while_the_application_does(store: Path) -> None:
    """From the start-up to the shut-down; each start of the application makes a scheduler of its own."""
    ran: list[int] = []
    events: list[Event] = []
    tasks = lifespan(store, [("job", "* * * * *", lambda: ran.append(1), timedelta(minutes=1))], on_event=events.append)
    for _ in range(2):
        app = Application()
        async with tasks(app):
            await app.state.duly.held()
            assert app.state.duly.holding
        assert not app.state.duly.holding
    names = [event.name for event in events]
    assert names.count("SchedulerInitializationCompleted") == names.count("SchedulerStopped") == 2


async def test_registrations_may_be_made_when_the_application_starts(store: Path) -> None:
    """A function is called at each start-up, not when the lifespan is made."""
    calls: list[int] = []

    def declared() -> list[Any]:
        calls.append(1)
        return [("job", NEVER, print, timedelta(minutes=1))]

    tasks = lifespan(store, declared)
    assert calls == []
    async with tasks(object()):  # an application without a place for state
        pass
    assert calls == [1]


async def test_the_application_serves_although_the_tasks_are_wrong_and_hears_of_it_at_the_end(store: Path) -> None:
    """SPEC 10.2: the error ends the standby, is an event at once, and is raised on leaving."""
    events: list[Event] = []
    app = Application()
    tasks = lifespan(store, [("job", "every day", print, timedelta(minutes=1))], on_event=events.append)
    serving = tasks(app)
    await serving.__aenter__()
    with pytest.raises(CronExpressionInvalidError):
        await app.state.duly.held()
    assert not app.state.duly.holding
    with pytest.raises(CronExpressionInvalidError):
        await serving.__aexit__(None, None, None)
    assert any(isinstance(event, StandbyFailed) for event in events)


@pytest.mark.parametrize("wrong", ["tasks.py", None, 7, b"tasks"])
def test_registrations_of_a_wrong_type_are_refused_when_the_application_is_made(wrong: Any) -> None:
    """Not in each worker at its start."""
    with pytest.raises(TypeError, match="registrations must be a list of registrations or a function that returns one"):
        lifespan("state.db", wrong)


async def test_a_lifespan_of_ones_own_goes_around_it(store: Path) -> None:
    """docs/integrations/asgi.md: what the callbacks need is opened before and closed after them."""
    steps: list[str] = []
    tasks = lifespan(store, [("job", NEVER, print, timedelta(minutes=1))])

    @asynccontextmanager
    async def own(app: Application) -> Any:
        steps.append("open")
        async with tasks(app):
            yield
        assert not app.state.duly.holding
        steps.append("close")

    async with own(Application()):
        steps.append("serves")
    assert steps == ["open", "serves", "close"]


async def test_on_a_store_that_hosts_share_every_worker_runs_tasks(server: PostgresServer, schema: str) -> None:
    """Each application is a host: both hold at once, and a minute is served in one of them."""
    ran: list[int] = []
    begun = asyncio.Event()

    async def job() -> None:
        run = duly.current_run()
        assert run is not None
        ran.append(run.run_id)
        begun.set()

    tasks = lifespan(PostgresStore(server.url(), schema=schema), [("job", "* * * * *", job, timedelta(minutes=1))])
    also = lifespan(PostgresStore(server.url(), schema=schema), [("job", "* * * * *", job, timedelta(minutes=1))])
    one, other = Application(), Application()
    async with tasks(one), also(other):
        await one.state.duly.held()
        await other.state.duly.held()
        assert (one.state.duly.holding, other.state.duly.holding) == (True, True)
        await begun.wait()
    history = server.execute(f'set search_path = "{schema}"', "select run from runs order by seq")
    assert [run for (run,) in history] == ran
    assert server.execute(f'set search_path = "{schema}"', "select count(*) from hosts") == [(2,)]


# --- real servers ----------------------------------------------------------------------------------------------------


@contextmanager
def serving(folder: Path, framework: str, monkeypatch: pytest.MonkeyPatch, *command: str) -> Iterator[Server]:
    monkeypatch.setenv("FRAMEWORK", framework)
    server = Server(folder, *command)
    try:
        yield server
    finally:
        server.kill()


def uvicorn(folder: Path) -> list[str]:
    return ["uvicorn", APP, "--workers=3", f"--uds={folder / 'socket'}", "--lifespan=on"]


def gunicorn(folder: Path) -> list[str]:
    return [
        "gunicorn", APP, "--workers=3", "--worker-class=uvicorn_worker.UvicornWorker",
        f"--bind=unix:{folder / 'socket'}", "--timeout=60",
        "--graceful-timeout=60", f"--worker-tmp-dir={folder}", "--no-control-socket",
    ]  # fmt: skip


def answers(folder: Path, holder: int) -> dict[int, bool]:
    """Ask until the worker that runs the tasks and one that does not have answered; which one holds the store."""
    found: dict[int, bool] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while holder not in found or len(found) < 2:
        if time.monotonic() > deadline:
            raise NotInTimeError(f"not all workers have answered: {found}")
        # A new connection each time, so that another worker may accept it.
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(folder / "socket"))) as client:
            answer = client.get("http://app/").raise_for_status().json()
        found[answer["process"]] = answer["holding"]
    return found


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("command", "framework"),
    [(uvicorn, "starlette"), (uvicorn, "fastapi"), (uvicorn, "litestar"), (gunicorn, "fastapi")],
    ids=["uvicorn-starlette", "uvicorn-fastapi", "uvicorn-litestar", "gunicorn-fastapi"],
)
def test_of_three_workers_one_runs_the_tasks_all_serve_and_another_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any, framework: str
) -> None:
    """SPEC 10.2: the worker that runs the task is killed; each answers requests all the while."""
    require(framework, "pip install -r requirements/dev.txt")
    with serving(tmp_path, framework, monkeypatch, *command(tmp_path)) as running:
        running.wait_for("up", 3)
        (holder,) = running.wait_for("begins")
        running.wait_for("INFO StandbyStarted", 2)
        found = answers(tmp_path, holder)
        assert [process for process, holding in found.items() if holding] == [holder]
        os.kill(holder, signal.SIGKILL)
        successor = running.wait_for("holds", 2)[-1]
        assert successor != holder
        running.wait_for("begins", 2)
        assert answers(tmp_path, successor)[successor]
        running.release()
        running.stop()
        assert_nobody_complains(running)


@pytest.mark.real_time
def test_three_workers_on_a_store_that_hosts_share_are_three_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: PostgresServer
) -> None:
    """Real workers of uvicorn: all of them hold, one of them runs the task, and none of them stands by."""
    require("starlette", "pip install -r requirements/dev.txt")
    server.execute("drop schema if exists duly cascade")
    monkeypatch.setenv("STORE_URL", server.url())
    with serving(tmp_path, "starlette", monkeypatch, *uvicorn(tmp_path)) as running:
        running.wait_for("up", 3)
        running.wait_for("holds", 3)
        (runs,) = running.wait_for("begins")
        assert all(answers(tmp_path, runs).values())
        assert server.execute("select count(*) from duly.hosts where gone is null") == [(3,)]
        running.release()
        running.stop()
        assert_nobody_complains(running)
    assert server.execute("select count(*) from duly.hosts where gone is null") == [(0,)]
    server.execute("drop schema duly cascade")


def test_the_module_needs_no_framework() -> None:
    """Importing it imports none of the three."""
    code = "import duly.integrations.asgi, sys; print({'fastapi', 'starlette', 'litestar'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
