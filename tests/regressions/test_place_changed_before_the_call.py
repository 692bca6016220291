"""A durable start that waited for a thread was called on the wrong side if an initialize() changed its callback."""

import asyncio
import threading
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.core.changes import Batch
from duly.core.task import Start
from duly.events import Event, TaskRunCompleted, TaskRunFailed
from duly.stores import SqliteStore
from duly.stores.port import Outcome, TraceRow
from duly.threads import default_threads
from tests.engine.helpers import engine_of

TASKS = 40


class PatientStore(SqliteStore):
    """A real store whose first starts become durable only when the test allows it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        if any(isinstance(change, Start) for change in batch.singles()):
            self.asked.set()
            await self.let.wait()
        return await super().write(batch, number, trace)


@pytest.mark.parametrize("begins", ["loop", "thread"])
async def test_a_start_that_waits_is_called_where_its_newest_callback_belongs(tmp_path: Path, begins: str) -> None:
    """SPEC 1.3: blocking code never runs on the event loop, even if the start was decided for a coroutine.

    The newest callback is called (SPEC 4.2). More tasks are due than there are threads, so that some wait.
    """
    ends: list[Event] = []
    all_over = asyncio.Event()
    called_in: list[threading.Thread] = []

    def hear(event: Event) -> None:
        if isinstance(event, TaskRunCompleted | TaskRunFailed):
            ends.append(event)
        if len(ends) == TASKS:
            all_over.set()

    def blocking() -> None:
        called_in.append(threading.current_thread())

    async def waiting() -> None:
        called_in.append(threading.current_thread())

    def declared(callback: Any) -> list[tuple[Any, ...]]:
        return [(f"t{n}", "* * * * *", callback, timedelta(minutes=5)) for n in range(TASKS)]

    store = PatientStore(tmp_path / "store.db")
    scheduler = duly.Scheduler(store, on_event=hear, max_concurrency=None if begins == "loop" else TASKS)
    first, second = (waiting, blocking) if begins == "loop" else (blocking, waiting)
    await scheduler.initialize(declared(first))
    await store.asked.wait()
    moving = asyncio.create_task(scheduler.initialize(declared(second)))
    for _ in range(100):
        await asyncio.sleep(0)
    assert engine_of(scheduler).loop.lock._waiters  # it waits for the decision that is being written
    store.let.set()
    await moving
    await all_over.wait()
    await scheduler.stop()
    assert {type(end) for end in ends} == {TaskRunCompleted}
    assert len(called_in) == TASKS
    on_the_loop = [thread is threading.current_thread() for thread in called_in]
    assert all(on_the_loop) if begins == "thread" else not any(on_the_loop)
    assert len(set(called_in)) <= (default_threads() if begins == "loop" else 1)
