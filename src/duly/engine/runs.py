"""A living run, the context that tells whether code is inside one, and the threads for blocking callbacks."""

import asyncio
import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from duly.core.moments import Instant
from duly.core.registration import Kind
from duly.core.task import Grounds, Task

inside: contextvars.ContextVar["Run | None"] = contextvars.ContextVar("duly_run", default=None)
"""The run whose callback the current code belongs to: tasks it spawned and its worker thread included."""


class Run:
    """A run from the moment it is called to its end; to its durable end, if there is more to tell than that it came."""

    __slots__ = ("__dict__", "begun", "cancellable", "ended", "grounds", "kind", "number", "owner", "task", "work")

    # What few runs have is a class attribute, the default, and goes to the dictionary of those that have it.
    timed_out = False
    overdue = False  # said once
    duration_ms: float | None = None  # None: nobody listened when it ended
    error: BaseException | None = None
    outer: "Run | None" = None
    """The run, of another scheduler, inside which this one's scheduler was started."""

    def __init__(self, task: Task, number: int, grounds: Grounds, owner: object, begun: float) -> None:
        self.task = task
        self.kind = task.kind  # a later initialize() may change where the task's next runs go
        self.number = number
        self.grounds = grounds
        self.owner = owner
        self.begun = begun  # elapsed seconds
        self.work: asyncio.Task[None] | None = None
        self.cancellable = task.kind is Kind.LOOP  # a thread is not, what it hands back to await is
        self.ended = False

    @property
    def started_at(self) -> Instant:
        """When its start was decided."""
        return self.grounds.at


def run_around(owner: object) -> Run | None:
    """The living run of this scheduler inside which the caller is, if any (SPEC 4.3)."""
    run = inside.get()
    while run is not None:
        if run.owner is owner and not run.ended:
            return run
        run = run.outer
    return None


class Pool(Protocol):
    """Where blocking callbacks run."""

    size: int

    async def run(self, callback: Callable[[], Any]) -> Any:
        """Call it, in the caller's context, away from the event loop."""
        ...

    def close(self, *, wait: bool) -> None:
        """End the threads; they are idle unless the event loop is going away."""
        ...


def default_pool_size() -> int:
    """How many threads there are unless `max_concurrency` says otherwise (SPEC 3.10)."""
    return min(32, (os.cpu_count() or 1) + 4)


class ThreadPool:
    """Daemon threads, started as they are needed.

    Not `ThreadPoolExecutor`: the interpreter joins its threads at exit, so a blocking callback that never returns
    would keep the process from ending.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0

    async def run(self, callback: Callable[[], Any]) -> Any:
        """Call it in a thread; the loop never has more of them under way than there are threads."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def perform() -> None:
            try:
                outcome, error = context.run(callback), None
            except BaseException as raised:  # SystemExit and KeyboardInterrupt too: they end a run, not a thread
                outcome, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, answer, outcome, error)

        self._idle -= 1
        if self._idle < 0 and len(self._threads) < self.size:
            thread = threading.Thread(target=self._serve, name=f"duly-run-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            self._idle += 1
            thread.start()
        self._calls.put(perform)
        try:
            return await answer
        finally:
            self._idle += 1

    def close(self, *, wait: bool) -> None:
        """Tell every thread to end, and wait for those that are idle."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._calls.put(None)
        if wait:
            for thread in threads:
                thread.join(timeout=5)

    def _serve(self) -> None:
        while (perform := self._calls.get()) is not None:
            perform()


def _settle(answer: "asyncio.Future[Any]", outcome: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if isinstance(error, StopIteration):
        # A future cannot carry it: awaiting code would take it for its own end.
        wrapped = RuntimeError("callback raised StopIteration")
        wrapped.__cause__ = error
        error = wrapped
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(outcome)
