"""One process of a scheduler: `python -m benchmarks.cluster.host ADAPTER URL FOLDER NAME WORK`.

With `prepare` instead of NAME and WORK it creates what the scheduler needs in a new database, and ends.
"""

import asyncio
import importlib
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.cluster.witness import READY, Witness
from benchmarks.cluster.work import Work, from_text


@dataclass(frozen=True)
class Place:
    """The orders of an adapter."""

    url: str
    host: str
    """h0, h1 or h2."""

    work: Work
    witness: Witness
    ready: Callable[[], None]
    """To be called when the scheduler waits for due minutes."""

    @property
    def is_first(self) -> bool:
        """Whether this host adds the tasks, for schedulers whose tasks stand in the database alone."""
        return self.host == "h0"


class Adapter(Protocol):
    """A module of `benchmarks.cluster.adapters`."""

    SETUP_US: int
    """Microseconds that a trio needs to set a task up, generously."""

    async def prepare(self, url: str) -> None:
        """Create the tables in an empty database."""
        ...

    async def serve(self, place: Place) -> None:
        """Be a host; returns only if the scheduler does."""
        ...


def adapter(name: str) -> Adapter:
    """The adapter of a scheduler."""
    module: Adapter = importlib.import_module(f"benchmarks.cluster.adapters.{name}")
    return module


def main(name: str, url: str, folder: str, host: str, work: str = "[]") -> None:
    """Prepare a database, or be a host."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if host == "prepare":
        asyncio.run(adapter(name).prepare(url))
        return
    witness = Witness(Path(folder), host)
    place = Place(url, host, from_text(work), witness, lambda: witness.note(READY, run=str(os.getpid())))
    asyncio.run(adapter(name).serve(place))


if __name__ == "__main__":
    main(*sys.argv[1:])
