"""Where a store's blocking calls run: in one thread of its own, or inline on a simulated host."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Worker(Protocol):
    """Where the store's blocking calls run."""

    async def call(self, work: Callable[[], T]) -> T:
        """Run one call after all earlier ones."""
        ...

    def finish(self, work: Callable[[], None]) -> None:
        """Run a last call after all earlier ones, without waiting for the event loop."""
        ...


class WriterThread:
    """A daemon thread that runs the store's calls one after the other."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, work: Callable[[], T]) -> T:
        """Run one call in the thread, and its answer on the loop."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="duly-store", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def perform() -> None:
            try:
                result = work()
            except BaseException as error:
                _tell(loop, answer, error=error)
            else:
                _tell(loop, answer, result=result)

        self._calls.put(perform)
        return await answer

    def finish(self, work: Callable[[], None]) -> None:
        """Run the last call, and end the thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            work()
            return
        self._calls.put(work)
        self._calls.put(None)
        thread.join(timeout=10)

    def _run(self) -> None:
        while (perform := self._calls.get()) is not None:
            perform()


def _tell(loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[T]", **outcome: Any) -> None:
    def settle() -> None:
        if answer.done():
            return
        if "error" in outcome:
            answer.set_exception(outcome["error"])
        else:
            answer.set_result(outcome["result"])

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(settle)


class Inline:
    """No thread at all: the simulated host's way, where every call happens at its own instant."""

    async def call(self, work: Callable[[], T]) -> T:
        """Run the call here and now."""
        return work()

    def finish(self, work: Callable[[], None]) -> None:
        """Run the last call here and now."""
        work()
