"""The store behind a dashboard: questions to it in few threads, the latest sample, and the latest judgement.

Each question reads in one transaction, which ends with it; a file is opened for it and closed again. So a reader never
keeps the write-ahead log of a file, or old rows of a database, for longer than it reads, and a store that was replaced
is noticed with the next question.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, to_thread

from duly.clock import Clock
from duly.core.moments import Instant
from duly.errors import DulyError
from duly.insight.health import Health, with_holder_of
from duly.stores.place import StorePlace, label_of, name_of, options_of
from duly.stores.port import Reader, StoredTrace, View
from duly.web.child import Children, no_trace
from duly.web.sampler import Sample, Sampler

T = TypeVar("T")

THREADS: Final = 2
"""Pages that are made at once: more would only take the processor from the scheduler beside them."""

WAITING_THREADS: Final = 4
"""Threads that wait for a child process, or find that another one does: beside those that make pages."""

FIRST_SAMPLE_SECONDS: Final = 0.15
"""For so long the first page waits for the counts of a small store; those of a large one follow."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A trace, and what it says about every property."""

    trace: StoredTrace
    document: Mapping[str, Any]


class StoreSource:
    """A store that is only read: by `reader` for pages, by `sampling_reader` for all tasks at once.

    `name` is how pages name it, if not by its place.
    """

    def __init__(
        self,
        place: StorePlace,
        reader: Reader,
        clock: Clock,
        refresh_seconds: float,
        *,
        sampling_reader: Reader | None = None,
        name: str | None = None,
    ) -> None:
        self.name = name_of(place) if name is None else name
        self.label = label_of(place)
        """The store as metrics name it."""
        self.options = options_of(place) if name is None else ["--store", name]
        """The options of a command that name the store."""
        self.clock = clock
        self.children = Children(place)
        self.refresh_seconds = refresh_seconds
        self._reader = reader
        self._sampler = Sampler(sampling_reader or reader, clock, refresh_seconds)
        self._judged: _Judged | None = None
        self._limiters: tuple[CapacityLimiter, CapacityLimiter] | None = None

    async def run(self, work: Callable[[], T], *, waits: bool = False) -> T:
        """Do blocking work in one of the threads; if it waits, for a child process or a sample, in one that may."""
        if self._limiters is None:
            self._limiters = CapacityLimiter(THREADS), CapacityLimiter(WAITING_THREADS)
        return await to_thread.run_sync(work, limiter=self._limiters[waits])

    def read(self, question: Callable[[View], T]) -> T:
        """Ask the store; in one of the threads. Raises what `Reader.read` does."""
        return self._reader.read(question)

    def sample(self, wait_seconds: float | None = None) -> Sample | None:
        """The latest sample; None if the first one is still being taken after that time, or a usual one."""
        return self._sampler.latest(FIRST_SAMPLE_SECONDS if wait_seconds is None else wait_seconds)

    def sample_if_any(self, wait_seconds: float | None = None) -> Sample | None:
        """The latest sample, for a page that can do without, and that says by itself why a store is not readable."""
        try:
            return self.sample(wait_seconds)
        except DulyError:
            return None

    def health(self, sample: Sample) -> Health:
        """The health in a sample with the holder of this moment: a scheduler that dies writes nothing."""
        return self.read(lambda view: with_holder_of(view, sample.health))

    def now(self) -> Instant:
        """The present moment by the clock of the store, which may be another one than ours: that of a database."""
        return Instant(self.clock.now() + self._sampler.ahead)

    def version(self) -> Hashable:
        """Another value after the store has changed, or a new sample has been taken; keeps the sampler awake."""
        self._sampler.keep_awake()
        return self._reader.version(), self._sampler.number

    def judgement(self) -> Mapping[str, Any]:
        """The document of `duly verify --json`; computed again only if the trace is another one. May wait for a child.

        Raises a NotAnsweredError if there is no trace, or no verdict on it.
        """
        trace = self.read(lambda view: view.trace())
        if trace is None:
            raise no_trace()
        judged = self._judged
        if judged is None or judged.trace != trace:
            answer = self.children.ask("verify", {"name": self.name, "now": self.clock.now()})
            judged = self._judged = _Judged(StoredTrace(**answer["read"]), answer["document"])
        return judged.document
