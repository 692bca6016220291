"""An event loop that every signal wakes.

Python runs the handler of a signal only between two bytecodes. A signal that arrives in the instant before the loop
goes to sleep would have to wait until something else wakes the loop: a minute, or for ever if nothing is due.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run as asyncio.run() does, in a loop that signals wake."""
    with asyncio.Runner(loop_factory=loop_factory) as runner, _woken_by_signals(runner.get_loop()):
        return runner.run(main)


@contextlib.contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    receiver, sender = socket.socketpair()
    with receiver, sender:
        for end in (receiver, sender):
            end.setblocking(False)
        loop.add_reader(receiver, receiver.recv, 4096)
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(receiver)
