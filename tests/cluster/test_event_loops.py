"""An event loop that is blocked, stopped, or kept by the interpreter's lock, and what that does to its host (SPEC 9.4).

Leases are short and real; a host beats from a thread of its own.
"""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

import duly
from duly.events import Event, HostLost, LeaseLost, LeaseSuspended
from duly.stores import PostgresStore
from tests.compute import NotInTimeError
from tests.postgres_server import PostgresServer, bundled_binaries, server_of
from tests.programs import environment

pytestmark = pytest.mark.real_time

LEASE = 3.0
PATIENCE_SECONDS = 60.0
_schemas = count(1)


@pytest.fixture
def server() -> PostgresServer:
    return server_of(bundled_binaries())


@pytest.fixture
def schema() -> str:
    return f"event loops {next(_schemas)}"


class Watcher:
    """Another host, which buries those that do not beat."""

    def __init__(self, server: PostgresServer, schema: str) -> None:
        self.ran = asyncio.Event()
        self.buried = asyncio.Event()
        store = PostgresStore(server.url(), schema=schema, lease=timedelta(seconds=LEASE), label="watcher")
        self.scheduler = duly.Scheduler(store, on_event=self._hear)

    async def _work(self) -> None:
        self.ran.set()

    def _hear(self, event: Event) -> None:
        if isinstance(event, HostLost):
            self.buried.set()

    async def join(self) -> None:
        await self.scheduler.initialize([("report", "* * * * *", self._work, timedelta(seconds=30))])


@pytest.fixture
async def watcher(server: PostgresServer, schema: str) -> AsyncIterator[Watcher]:
    watcher = Watcher(server, schema)
    yield watcher
    await watcher.scheduler.stop()


def rows(server: PostgresServer, schema: str, statement: str) -> list[tuple[object, ...]]:
    return server.execute(f'set search_path = "{schema}"', statement)


def hosts(server: PostgresServer, schema: str, label: str) -> list[tuple[object, ...]]:
    """Key, beat and fate of the hosts with a label."""
    return rows(server, schema, f"select key, beat, gone from hosts where label = '{label}' order by key")


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() >= deadline:
            raise NotInTimeError(what)
        await asyncio.sleep(0.05)


class Apart:
    """A host on an event loop in a thread of its own, which a test may stop."""

    def __init__(self, server: PostgresServer, schema: str, work: Callable[[], object]) -> None:
        self.events: list[Event] = []
        self._go_on = threading.Event()
        self.stands_still = threading.Event()
        self._over = threading.Event()
        store = PostgresStore(server.url(), schema=schema, lease=timedelta(seconds=LEASE), label="apart")
        self.loop = asyncio.new_event_loop()
        self._scheduler = duly.Scheduler(store, on_event=self.events.append)
        self._work = work
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def _live(self) -> None:
        async def work() -> None:
            self._work()

        begin = self._scheduler.initialize([("report", "* * * * *", work, timedelta(seconds=30))])
        self.loop.run_until_complete(begin)
        self.loop.run_forever()
        while not self._over.is_set():
            self.stands_still.set()
            self._go_on.wait(PATIENCE_SECONDS)
            self._go_on.clear()
            self.loop.run_forever()
        self.loop.run_until_complete(self._scheduler.stop())
        self.loop.close()

    def stop_the_loop(self) -> None:
        """Let the event loop stand still, as after `run_until_complete`."""
        self.stands_still.clear()
        self.loop.call_soon_threadsafe(self.loop.stop)
        assert self.stands_still.wait(PATIENCE_SECONDS)

    def run_the_loop(self) -> None:
        self._go_on.set()

    def end(self) -> None:
        self._over.set()
        self._go_on.set()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE_SECONDS)


async def test_a_callback_that_blocks_the_event_loop_costs_no_lease(server: PostgresServer, schema: str) -> None:
    """SPEC 9.7: the beats go on for two leases."""
    began, ended = threading.Event(), threading.Event()

    def block() -> None:
        began.set()
        time.sleep(2 * LEASE)
        ended.set()

    host = Apart(server, schema, block)
    try:
        await asyncio.to_thread(began.wait, PATIENCE_SECONDS)
        ((key, before, _),) = hosts(server, schema, "apart")
        await asyncio.to_thread(ended.wait, PATIENCE_SECONDS)
        ((same, after, gone),) = hosts(server, schema, "apart")
        assert (same, gone) == (key, None)
        if any(isinstance(event, LeaseSuspended) for event in host.events):
            raise NotInTimeError("a beat came late")
        assert int(str(after)) - int(str(before)) >= 6
    finally:
        host.end()
    assert set(rows(server, schema, "select outcome from runs")) == {("success",)}


async def test_a_host_whose_event_loop_does_not_run_is_buried_and_joins_again_when_it_does(
    server: PostgresServer, schema: str, watcher: Watcher
) -> None:
    """SPEC 9.4: its callbacks could not go on, and nobody else may wait for them."""
    await watcher.join()
    host = Apart(server, schema, lambda: None)
    try:
        await until(lambda: len(hosts(server, schema, "apart")) == 1, "the host does not join")
        await asyncio.to_thread(host.stop_the_loop)
        await asyncio.wait_for(watcher.buried.wait(), PATIENCE_SECONDS)
        host.run_the_loop()
        await until(
            lambda: [gone for *_, gone in hosts(server, schema, "apart")] == ["b", None], "it does not come back"
        )
        assert any(isinstance(event, LeaseLost) for event in host.events)
    finally:
        host.end()


async def test_a_callback_that_keeps_the_interpreters_lock_takes_no_step_after_its_host_was_buried(
    server: PostgresServer, schema: str, watcher: Watcher, tmp_path: Path
) -> None:
    """SPEC 9.7: the step under way cannot be held, and no other one follows it."""
    notes = tmp_path / "notes"
    notes.touch()
    program = subprocess.Popen(  # noqa: ASYNC220  # it takes no time
        [sys.executable, "-m", "tests.cluster.gil_program", server.url(), schema, str(LEASE), str(notes)],
        env=environment(),
    )
    try:
        await until(lambda: "began" in notes.read_text(), "the callback does not begin")
        await watcher.join()
        await asyncio.wait_for(watcher.ran.wait(), PATIENCE_SECONDS)
        await until(lambda: program.poll() is not None, "the host does not end")
    finally:
        program.kill()
        program.wait()
    heard = notes.read_text().split("\n")
    assert "another step" not in heard
    assert {"the rest of the step", "LeaseLost", "LeaseLostError", "stopped"} <= set(heard)
    assert [gone for *_, gone in hosts(server, schema, "keeps the lock")] == ["b", "l"]
    outcomes = rows(server, schema, "select outcome from runs where started_at = (select min(started_at) from runs)")
    assert outcomes == [("interrupted",)]
