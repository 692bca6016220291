"""Daemon threads that run blocking calls for the event loop: callbacks in a few, a store's writes in one."""

import asyncio
import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

JOIN_SECONDS: Final = 10.0

_Queue = queue.SimpleQueue[Callable[[], object] | None]
"""Calls for the threads; a None ends the thread that takes it."""


class Threads(Protocol):
    """Where blocking calls run: in threads of their own, or, on a simulated host, on the event loop."""

    size: int
    """How many calls can run at once."""

    def run(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run a call in the caller's context, away from the event loop; calls begin in the order in which they come."""
        ...

    def close(
        self, last: Callable[[], object] | None = None, *, wait: bool = True, seconds: float = JOIN_SECONDS
    ) -> None:
        """End the threads once they have run what was given to them, and `last` after all of that.

        `last` is for a single thread, and needs no event loop. Without `wait` this returns before the threads end; with
        it, after `seconds` at most.
        """
        ...


class DaemonThreads:
    """Up to `size` daemon threads, each started when it is needed.

    Not `ThreadPoolExecutor`: the interpreter joins its threads at exit, so a blocking callback that never returns
    would keep the process from ending.
    """

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self._name = name
        self._calls: _Queue = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way = 0

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a call in one of the threads; its result, or what it raised, comes back to the event loop."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def perform() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = context.run(call)
            except BaseException as raised:  # SystemExit and KeyboardInterrupt too: they end a call, not a thread
                error = raised
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nothing waits for the answer
                loop.call_soon_threadsafe(self._settle, answer, result, error)

        self._under_way += 1
        if len(self._threads) < min(self._under_way, self.size):
            self._start_one()
        self._calls.put(perform)
        return answer

    def close(
        self, last: Callable[[], object] | None = None, *, wait: bool = True, seconds: float = JOIN_SECONDS
    ) -> None:
        """End every thread; if none was ever started, run `last` here. Later calls start new threads."""
        threads, self._threads = self._threads, []
        calls, self._calls = self._calls, queue.SimpleQueue()
        if last is not None:
            if not threads:
                last()
            calls.put(last)
        for _ in threads:
            calls.put(None)
        for thread in threads if wait else ():
            thread.join(timeout=seconds)

    def _settle(self, answer: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
        self._under_way -= 1
        if answer.done():
            return  # its caller was cancelled
        if isinstance(error, StopIteration):
            # A future cannot carry it: awaiting code would take it for its own end.
            wrapped = RuntimeError("callback raised StopIteration")
            wrapped.__cause__ = error
            error = wrapped
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    def _start_one(self) -> None:
        name = self._name if self.size == 1 else f"{self._name}-{len(self._threads)}"
        # A thread keeps the queue it was started with: one that is slow to end takes nothing from its successors.
        thread = threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


class Inline:
    """No threads at all: every call runs where it is made, at its own instant; for simulated hosts and tests."""

    def __init__(self, size: int = 1) -> None:
        self.size = size

    async def run(self, call: Callable[[], T]) -> T:
        """Run the call here and now."""
        return call()

    def close(
        self, last: Callable[[], object] | None = None, *, wait: bool = True, seconds: float = JOIN_SECONDS
    ) -> None:
        """Run `last` here and now; there is nothing to end."""
        if last is not None:
            last()


def default_threads() -> int:
    """How many threads run blocking callbacks unless `max_concurrency` says otherwise (SPEC 3.10)."""
    return min(32, (os.cpu_count() or 1) + 4)


def _serve(calls: _Queue) -> None:
    while (perform := calls.get()) is not None:
        perform()


class Ticker(Protocol):
    """Calls a function again and again, however busy the event loop is; on a simulated host, on the event loop."""

    def start(self, call: Callable[[], float | None], seconds: float, last: Callable[[], object]) -> None:
        """Call it from now on, and again this long after each call has returned; at the end call `last`.

        A call that returns a number of seconds wants to be called again that soon.
        """
        ...

    def hurry(self) -> None:
        """Call it at once, unless it is being called; from any thread."""
        ...

    def stop(self) -> None:
        """Call it no more; a call that is under way is not waited for."""
        ...


class TickerThread:
    """A daemon thread that calls a function again and again until it is stopped or the event loop is closed.

    While the event loop does not run, it does not call: the program has put the scheduler aside. A loop that a callback
    blocks does run.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._over = False
        self._bell = threading.Event()

    def start(self, call: Callable[[], float | None], seconds: float, last: Callable[[], object]) -> None:
        """Call it from now on, and again this long after each call has returned; at the end call `last`.

        A call that returns a number of seconds wants to be called again that soon.
        """
        loop = asyncio.get_running_loop()

        def tick() -> None:
            while not self._over and not loop.is_closed():
                sooner = call() if loop.is_running() else None
                self._bell.wait(seconds if sooner is None else sooner)
                self._bell.clear()
            last()

        threading.Thread(target=tick, name=self._name, daemon=True).start()

    def hurry(self) -> None:
        """Call it at once, unless it is being called; from any thread."""
        self._bell.set()

    def stop(self) -> None:
        """Call it no more; a call that is under way is not waited for."""
        self._over = True
        self._bell.set()
