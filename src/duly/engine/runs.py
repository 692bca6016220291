"""A living run, and the context that tells whether code is inside one."""

import asyncio
import contextvars

from duly.core.moments import Instant
from duly.core.registration import RunsOn
from duly.core.task import Grounds, Task

inside: contextvars.ContextVar["Run | None"] = contextvars.ContextVar("duly_run", default=None)
"""The run whose callback the current code belongs to: tasks it spawned and its worker thread included."""


class Run:
    """A run from the moment it is called to its end; to its durable end, if there is more to tell than that it came."""

    __slots__ = ("__dict__", "begun", "cancellable", "ended", "grounds", "number", "owner", "runs_on", "task", "work")

    # What few runs have is a class attribute, the default, and goes to the dictionary of those that have it.
    timed_out = False
    overdue = False  # said once
    duration_ms: float | None = None  # None: nobody listened when it ended
    error: BaseException | None = None
    outer: "Run | None" = None
    """The run, of another scheduler, inside which this one's scheduler was started."""

    def __init__(self, task: Task, number: int, grounds: Grounds, owner: object, begun: float) -> None:
        self.task = task
        self.runs_on = task.runs_on  # a later initialize() may change where the task's next runs go
        self.number = number
        self.grounds = grounds
        self.owner = owner
        self.begun = begun  # elapsed seconds
        self.work: asyncio.Task[None] | None = None
        self.cancellable = task.runs_on is RunsOn.LOOP  # a thread is not, what it hands back to await is
        self.ended = False

    @property
    def started_at(self) -> Instant:
        """When its start was decided."""
        return self.grounds.at


def run_around(owner: object) -> Run | None:
    """The living run of this scheduler inside which the caller is, if any (SPEC 4.3)."""
    run = inside.get()
    while run is not None:
        if run.owner is owner and not run.ended:
            return run
        run = run.outer
    return None
