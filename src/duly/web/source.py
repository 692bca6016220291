"""The store behind a dashboard: questions to it in few threads, and the latest sample.

Each question opens the store, reads in one transaction and closes it again. So a reader never keeps the write-ahead log
from being reset, and a store that was replaced is noticed with the next question.
"""

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread

from duly.clock import Clock
from duly.stores.port import Reader, View
from duly.web.sampler import Sample, Sampler

T = TypeVar("T")

THREADS: Final = 2
"""Pages that are made at once: more would only take the processor from the scheduler beside them."""

FIRST_SAMPLE_SECONDS: Final = 0.25
"""For so long the first page waits for the counts of a small store; those of a large one follow."""


class StoreSource:
    """A store that is only read."""

    def __init__(self, name: str, reader: Reader, clock: Clock, refresh_seconds: float) -> None:
        self.name = name
        """The store as it was named to the dashboard."""
        self.clock = clock
        self.refresh_seconds = refresh_seconds
        self._reader = reader
        self._sampler = Sampler(reader, clock, refresh_seconds)
        self._limiter: CapacityLimiter | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Do blocking work in one of the threads."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(THREADS)
        return await to_thread.run_sync(work, limiter=self._limiter)

    def read(self, question: Callable[[View], T]) -> T:
        """Ask the store; in one of the threads. Raises what `Reader.read` does."""
        return self._reader.read(question)

    def sample(self, wait_seconds: float = FIRST_SAMPLE_SECONDS) -> Sample | None:
        """The latest sample; None if the first one is still being taken after that time."""
        return self._sampler.latest(wait_seconds)

    def version(self) -> Hashable:
        """Another value after the store has changed, or a new sample has been taken; keeps the sampler awake."""
        self._sampler.keep_awake()
        return self._reader.version(), self._sampler.number
