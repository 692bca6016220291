"""A dashboard beside a scheduler: readers keep the write-ahead log from growing no longer than they read.

WEB 9, test 7. The bench has the same at full size, with the lateness of starts (benchmarks/ours/web_beside.py).
"""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from duly.core.moments import instant_of
from duly.stores import SqliteReader, View
from duly.testing import SimulatedHost
from duly.web.app import over
from duly.web.frame import Settings
from tests.cli.program import PATIENCE_SECONDS
from tests.web.conftest import client
from tests.web.stage import FixedClock

TASKS = 1_500
MINUTES = 16
PAGES_A_MINUTE = 4
CHECKPOINT_PAGES = 200
"""Instead of 8,000, so that the log is folded into the file several times."""

PLACES = ("/", "/tasks", "/tasks?state=running", "/runs", "/task?name=task-7", "/calendar", "/tasks?q=99")


class Clients:
    """Ten clients in a thread that ask for pages without pause."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._ended = threading.Event()
        self._answered = threading.Condition()
        self.statuses: Counter[int] = Counter()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._ask()))

    @contextmanager
    def asking(self) -> Iterator[Callable[[], None]]:
        """Gives a function that waits until some more pages have been answered."""
        self._thread.start()
        try:
            yield self._wait_for_more
        finally:
            self._ended.set()
            self._thread.join()

    def _wait_for_more(self) -> None:
        with self._answered:
            wanted = self.statuses.total() + PAGES_A_MINUTE
            assert self._answered.wait_for(lambda: self.statuses.total() >= wanted, PATIENCE_SECONDS)

    async def _ask(self) -> None:
        async with client(self._app) as opened:

            async def one(number: int) -> None:
                while not self._ended.is_set():
                    status = (await opened.get(PLACES[number % len(PLACES)])).status_code
                    number += 1
                    with self._answered:
                        self.statuses[status] += 1
                        self._answered.notify_all()

            await asyncio.gather(*(one(number) for number in range(10)))


def size_of_log(store: Path) -> int:
    return os.path.getsize(f"{store}-wal")


async def logs(path: Path, *, clients: bool = False, held: bool = False) -> list[int]:
    """The size of the log after each minute of many tasks that are all due in it."""

    async def work() -> None: ...

    sizes = []
    async with SimulatedHost("2026-10-26T12:00:30", "UTC", store=path) as host:
        scheduler = host.scheduler()
        await scheduler.initialize(
            [(f"task-{number}", "* * * * *", work, timedelta(minutes=1)) for number in range(TASKS)]
        )
        zone = host.now.tzinfo
        assert zone is not None
        clock = FixedClock(instant_of(host.now), zone)
        reader = SqliteReader(path, clock.now)

        async def pass_minutes(after_each: Callable[[], None] = lambda: None) -> None:
            for _ in range(MINUTES):
                await host.advance(minutes=1)
                clock.at = instant_of(host.now)
                after_each()
                sizes.append(size_of_log(path))

        if clients:
            asking = Clients(over(path, reader, clock, Settings(), refresh=0.05))
            with asking.asking() as wait_for_more:
                await pass_minutes(wait_for_more)
            assert set(asking.statuses) == {200}
        elif held:
            with holding(reader):
                await pass_minutes()
        else:
            await pass_minutes()
        assert (
            len(host.starts("task-7")) == MINUTES + 1
        )  # each minute was served, and so was the one it was declared in
        await scheduler.stop()
    return sizes


@contextmanager
def holding(reader: SqliteReader) -> Iterator[None]:
    """A reader whose one question does not end."""
    begun, ended = threading.Event(), threading.Event()

    def question(view: View) -> None:
        view.count_tasks()
        begun.set()
        ended.wait()

    thread = threading.Thread(target=lambda: reader.read(question))
    thread.start()
    assert begun.wait(PATIENCE_SECONDS)
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_ten_clients_that_ask_without_pause_let_the_log_be_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside them it comes back to the size that it has alone; beside a reader that does not end it only grows."""
    monkeypatch.setattr("duly.stores.sqlite.store.CHECKPOINT_PAGES", CHECKPOINT_PAGES)
    alone = asyncio.run(logs(tmp_path / "alone.db"))
    beside = asyncio.run(logs(tmp_path / "beside.db", clients=True))
    held = asyncio.run(logs(tmp_path / "held.db", held=True))
    assert held == sorted(held)
    assert held[-1] > 4 * max(alone)
    assert sum(size <= 1.2 * max(alone) for size in beside) >= MINUTES // 3, beside
    assert max(beside) < held[-1] / 2, beside
