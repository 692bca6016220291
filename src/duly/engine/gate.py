"""Whether anything may start and whether the engine ends, in one object that every part asks."""

import asyncio


class Gate:
    """The gate of one engine; each field has one writer."""

    __slots__ = ("abandoned", "closing", "loop_task", "open", "stopping", "wake")

    def __init__(self, open_stops: int) -> None:
        self.open = not open_stops
        """Whether anything may start; written by the gate itself."""
        self.stopping = open_stops > 0
        """Whether a stop() was called and has not returned; written by `count_stops`."""
        self.closing = False
        """Whether the engine ends with its last callback; written by `close`."""
        self.abandoned = False
        """Whether everything has been released, and nothing more is recorded; written by the shutdown."""
        self.loop_task: asyncio.Task[None] | None = None
        """The task in which the loop polls; written by the lifecycle when initialize() has returned."""
        self.wake = asyncio.Event()
        """Set by a part that has something for the loop before its next minute; cleared by the loop."""

    def count_stops(self, open_stops: int) -> None:
        """A stop() was called, or has returned; `open_stops` have not."""
        self.stopping = open_stops > 0
        self.open = not self.stopping and not self.closing

    def close(self) -> None:
        """The shutdown begins: nothing starts any more, and the loop ends when nothing runs."""
        self.closing = True
        self.open = False

    @property
    def tearing_down(self) -> bool:
        """Whether the event loop is going away without a stop() (SPEC 3.11)."""
        task = self.loop_task
        return task is not None and (task.cancelling() > 0 or task.cancelled())
