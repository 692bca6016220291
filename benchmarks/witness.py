"""The callback of every task: it counts, and notes when it was first and last called.

It stands in a module of its own because schedulers that store their jobs need a callback they can import.
"""

import asyncio
import threading
import time

first: float | None = None
last = 0.0
count = 0

_expected = 0
_loop: asyncio.AbstractEventLoop | None = None
_complete: asyncio.Event | None = None
_lock = threading.Lock()


def expect(calls: int) -> asyncio.Event:
    """Forget what was noted; the event is set by the last of `calls`."""
    global first, last, count, _expected, _complete, _loop
    first, last, count, _expected = None, 0.0, 0, calls
    _loop, _complete = asyncio.get_running_loop(), asyncio.Event()
    return _complete


async def callback() -> None:
    """A trivial coroutine function."""
    global first, last, count
    last = time.perf_counter()
    if first is None:
        first = last
    count += 1
    if count == _expected and _complete is not None:
        _complete.set()


def blocking_callback() -> None:
    """A trivial blocking function, for worker threads."""
    global first, last, count
    with _lock:
        last = time.perf_counter()
        if first is None:
            first = last
        count += 1
        complete = count == _expected
    if complete and _complete is not None and _loop is not None:
        _loop.call_soon_threadsafe(_complete.set)


def check(calls: int) -> None:
    """A measurement in which tasks did not run, or ran twice, measures nothing."""
    if count != calls:
        raise RuntimeError(f"{calls} starts were due, {count} were seen")
