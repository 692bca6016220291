"""An event loop that every signal wakes.

Python runs a signal's handler when its bytecode goes on. A signal that comes in the instant before the loop goes to
sleep would wait for whatever wakes the loop next: a minute, or for ever with nothing due.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Do what asyncio.run() does, in a loop that signals wake."""
    with asyncio.Runner(loop_factory=loop_factory) as runner, _woken_by_signals(runner.get_loop()):
        return runner.run(main)


@contextlib.contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    heard, told = socket.socketpair()
    with heard, told:
        for end in (heard, told):
            end.setblocking(False)
        loop.add_reader(heard, heard.recv, 4096)
        before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(heard)
