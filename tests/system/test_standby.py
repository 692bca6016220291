"""Standby in real processes: workers of uvicorn and gunicorn, killed and reloaded."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly.events import StandbyEnded, StandbyStarted, TaskInterrupted, TaskRunStarted
from duly.testing import SimulatedHost
from tests.compute import NotInTimeError
from tests.conftest import require
from tests.programs import ROOT, environment
from tests.system.children import PATIENCE_SECONDS, Child

APP = "tests.system.standby_app:app"


class Server:
    """A web server with three workers that stand by, and what they noted."""

    def __init__(self, folder: Path, *command: str) -> None:
        self._witness, self._release = folder / "witness", folder / "release"
        self._witness.touch()
        self.store = folder / "state.db"
        variables = {"WITNESS": str(self._witness), "RELEASE": str(self._release), "STORE": str(self.store)}
        with open(folder / "server.log", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, env=environment(**variables), stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.pid = self._process.pid

    def lines(self) -> list[tuple[int, str]]:
        """The notes of the workers so far."""
        split = (line.split(" ", 1) for line in self._witness.read_text().splitlines())
        return [(int(pid), word) for pid, word in split]

    def who(self, word: str) -> list[int]:
        """The processes that have noted a word, in order."""
        return [pid for pid, noted in self.lines() if noted == word or noted.startswith(f"{word} ")]

    def wait_for(self, word: str, times: int = 1) -> list[int]:
        """Wait until a word was noted so often; returns by which processes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found := self.who(word)) < times:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise NotInTimeError(f"{word!r} was not noted {times} times: {self.lines()}")
            time.sleep(0.05)
        return found

    def release(self) -> None:
        """Let the callbacks end."""
        self._release.touch()

    def stop(self) -> None:
        """Stop gracefully, and wait for the end."""
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        """Leave no process behind: all of them are in the session of the server."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def uvicorn(folder: Path) -> Iterator[Server]:
    require("uvicorn", "pip install -r requirements/dev.txt")
    server = Server(folder, "uvicorn", APP, "--workers=3", f"--uds={folder / 'socket'}", "--lifespan=on")
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def gunicorn(folder: Path) -> Iterator[Server]:
    require("gunicorn", "pip install -r requirements/dev.txt")
    require("uvicorn_worker", "pip install -r requirements/dev.txt")
    server = Server(
        folder, "gunicorn", APP, "--workers=3", "--worker-class=uvicorn_worker.UvicornWorker",
        f"--bind=unix:{folder / 'socket'}", "--timeout=60", "--graceful-timeout=60",
        f"--worker-tmp-dir={folder}", "--no-control-socket",
    )  # fmt: skip
    try:
        yield server
    finally:
        server.kill()


def assert_nobody_complains(server: Server) -> None:
    """A worker that merely waits is no fault.

    A run that a kill cut short is one, and so is a real minute that begins while the callback is kept waiting.
    """
    expected = ("WARNING TaskInterrupted ", "WARNING TaskRunOverdue ")
    loud = [word for _, word in server.lines() if word.startswith(("WARNING", "ERROR", "CRITICAL"))]
    assert all(word.startswith(expected) for word in loud), loud


@pytest.mark.real_time
def test_of_three_workers_one_runs_the_task_and_another_takes_over_when_it_is_killed(tmp_path: Path) -> None:
    """SPEC 10.2, 3.7: with uvicorn, twice in a row; the run that was cut short starts again in the next holder.

    In the second one it waits first, because it was interrupted twice in a row.
    """
    with uvicorn(tmp_path) as server:
        server.wait_for("up", 3)
        server.wait_for("begins")
        server.wait_for("INFO StandbyStarted", 2)
        for killed in (1, 2):
            (*_, holder) = server.wait_for("holds", killed)
            os.kill(holder, signal.SIGKILL)
            server.wait_for("holds", killed + 1)
            server.wait_for("begins", 2)
        assert len(set(server.who("holds"))) == 3
        assert server.who("begins")[:2] == server.who("holds")[:2]
        server.release()
        server.stop()
        assert_nobody_complains(server)


@pytest.mark.real_time
def test_a_reload_of_the_workers_while_the_task_runs_leaves_one_of_the_new_ones_as_holder(tmp_path: Path) -> None:
    """SPEC 10.2: gunicorn starts new workers before the old ones end, and the old holder waits for its callback."""
    with gunicorn(tmp_path) as server:
        old = set(server.wait_for("up", 3))
        (holder,) = server.wait_for("begins")
        os.kill(server.pid, signal.SIGHUP)
        new = set(server.wait_for("up", 6)) - old
        assert holder in server.wait_for("leaves", 3)
        server.wait_for("INFO StandbyStarted", 5)
        assert server.who("holds") == [holder]  # its callback still runs
        server.release()
        assert server.wait_for("holds", 2)[-1] in new
        assert server.who("ends")[0] == holder
        server.stop()
        assert_nobody_complains(server)


async def test_a_dead_holder_is_followed_at_the_second_look_at_the_latest(tmp_path: Path) -> None:
    """SPEC 10.2, 5.7: the holder is a real process that is killed; the looks are those of a simulated clock."""
    store = tmp_path / "state.db"
    started: list[float] = []
    with Child("hold", store) as holder:
        pid = holder.hear("holding")
        async with SimulatedHost("2026-11-16T12:00:30", "UTC", store) as host:

            async def job() -> None:
                started.append(host.now.timestamp())

            declared = [("job", "* * * * *", job, timedelta(minutes=1))]
            async with duly.standby(host.scheduler(), declared) as standby:
                await host.advance(minutes=10)
                assert not standby.holding
                assert started == []
                (event,) = host.events
                assert isinstance(event, StandbyStarted)
                assert event.holder["pid"] == pid
                holder.kill()
                await host.advance(seconds=2)
                assert standby.holding
                await standby.held()
                assert StandbyEnded(holding=True) in host.events
                assert [event.task_name for event in host.events if isinstance(event, TaskRunStarted)] == ["job"]
                assert not [event for event in host.events if isinstance(event, TaskInterrupted)]
