"""An ASGI application whose workers stand by: one of them runs the task, the others take over when it is gone.

What its workers do stands in the file WITNESS, a line each: process id, word. The task waits for the file RELEASE.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import duly

Message = MutableMapping[str, Any]

WITNESS = Path(os.environ["WITNESS"])
RELEASE = Path(os.environ["RELEASE"])
LOOK_EVERY = timedelta(milliseconds=200)


def note(word: str) -> None:
    """Append a line in one write, so that lines of several processes do not mix."""
    with open(WITNESS, "ab", buffering=0) as file:
        file.write(f"{os.getpid()} {word}\n".encode())


class Witness(logging.Handler):
    """Notes the events of duly with their levels."""

    def emit(self, record: logging.LogRecord) -> None:
        note(f"{record.levelname} {record.getMessage()}")


def job() -> None:
    """In a thread: waits for a file."""
    note("begins")
    while not RELEASE.exists():
        time.sleep(0.02)
    note("ends")


@contextlib.asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    logger = logging.getLogger("duly")
    logger.setLevel(logging.INFO)
    logger.addHandler(Witness())
    scheduler = duly.Scheduler(os.environ["STORE"])
    declared = [("job", "* * * * *", job, timedelta(minutes=5))]
    async with duly.standby(scheduler, declared, look_every=LOOK_EVERY) as standby:
        holds = asyncio.create_task(standby.held())
        holds.add_done_callback(lambda done: None if done.cancelled() or done.exception() else note("holds"))
        note("up")
        yield
        note("leaves")


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """The lifespan protocol of ASGI, by hand; requests are not the point."""
    if scope["type"] != "lifespan":
        return
    await receive()
    async with lifespan():
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})
