"""The run that the current code belongs to: `current_run()`, and the context variable behind it.

The variable is copied into every asyncio task that a callback spawns, and into the thread in which a blocking callback
runs. It holds the run itself, which is described only when somebody asks: a burst of runs that nobody asks about costs
nothing more.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CurrentRun:
    """One run, as its own code sees it (SPEC 10.1); times are in the host's zone.

    An obligation begins when a due minute starts a task. A retry, and the repetition of a run that a crash interrupted,
    are further attempts for the same obligation: `scheduled_time` and `key` stay the same, `attempt` grows.
    """

    task: str
    """The name of the task."""

    run_id: int
    """The number of the run, which history and events show; every attempt has its own."""

    started_at: datetime
    """When this attempt was started."""

    scheduled_time: datetime
    """The due minute that the first attempt served."""

    cause: str
    """`cron`, `retry`, `interrupted`; `manual` for a run that no scheduler started."""

    attempt: int
    """1 for the first start; failures and interruptions before this one both count."""

    key: str
    """An idempotency key: the same text for every attempt, another one for every obligation."""

    fence: int | None = None
    """On a shared store a number that grows with every start of the task, across hosts; None on any other."""

    _check: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    def check(self) -> None:
        """Ask whether this host may still act for the task; from any thread.

        Call it before each effect that must never happen twice. On a store that is not shared it does nothing.

        Raises:
            LeaseLostError: another host may have started the task meanwhile.
        """
        if self._check is not None:
            self._check()


class RunInContext(Protocol):
    """A run as the context variable holds it."""

    ended: bool

    @property
    def outer(self) -> "RunInContext | None":
        """The run inside which the scheduler of this one was started."""
        ...

    def describe(self) -> CurrentRun:
        """The description that its own code gets."""
        ...


inside: ContextVar[RunInContext | None] = ContextVar("duly_run", default=None)
"""The run whose callback the current code belongs to: tasks it spawned and its worker thread included."""


def current_run() -> CurrentRun | None:
    """Describe the run that the calling code belongs to.

    Inside means: in a callback, in asyncio tasks that it spawned, and in its worker thread, until the run has ended.

    Returns:
        The run; None outside of a run.
    """
    run = inside.get()
    while run is not None and run.ended:
        run = run.outer
    return None if run is None else run.describe()


class _GivenRun:
    """A run that no scheduler started."""

    outer: RunInContext | None = None

    def __init__(self, description: CurrentRun) -> None:
        self.ended = False
        self._description = description

    def describe(self) -> CurrentRun:
        return self._description


@contextlib.contextmanager
def entered(description: CurrentRun) -> Iterator[None]:
    """Make a block of code a run that no scheduler started: `current_run()` returns `description` inside of it."""
    run = _GivenRun(description)
    token = inside.set(run)
    try:
        yield
    finally:
        run.ended = True
        inside.reset(token)
