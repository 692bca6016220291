"""The deeds of callbacks in a simulated cluster, in the time of the cluster: written by the callbacks themselves."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

import duly
from duly.testing.cluster import ClusterHost, SimulatedCluster

Callback = Callable[[], Awaitable[None]]


@dataclass
class Run:
    """One run: on which host, when its first step was taken, and when its last one."""

    task: str
    host: int
    began: datetime
    last_step: datetime
    fence: int
    outcome: str = "running"


@dataclass
class Witness:
    """Makes callbacks that note every step they take."""

    cluster: SimulatedCluster
    runs: list[Run] = field(default_factory=list)
    on_step: Callable[[ClusterHost], None] | None = None
    """Called at the end of each step of a callback; for faults in that very moment."""

    def callback(self, host: ClusterHost, task: str, *, seconds: float = 0, steps: int = 1) -> Callback:
        """Work that takes some seconds in some steps."""

        async def work() -> None:
            run = self._begin(host, task)
            try:
                self._stepped(host)
                for _ in range(steps if seconds else 0):
                    await host.sleep(seconds / steps)
                    run.last_step = self.cluster.now
                    self._stepped(host)
            except asyncio.CancelledError:
                run.outcome = "cancelled"
                raise
            run.outcome = "returned"

        return work

    def note(self, host: ClusterHost, task: str) -> None:
        """A blocking callback was called; here it takes no time."""
        self._begin(host, task).outcome = "returned"
        self._stepped(host)

    def _begin(self, host: ClusterHost, task: str) -> Run:
        current = duly.current_run()
        assert current is not None
        assert current.fence is not None
        run = Run(task, host.number, self.cluster.now, self.cluster.now, current.fence)
        self.runs.append(run)
        return run

    def _stepped(self, host: ClusterHost) -> None:
        if self.on_step is not None:
            self.on_step(host)

    def of(self, task: str) -> list[Run]:
        """The runs of a task, in the order in which they began."""
        return sorted((run for run in self.runs if run.task == task), key=lambda run: run.began)

    def began(self, task: str) -> list[str]:
        """When runs of a task began, as minutes and seconds."""
        return [run.began.strftime("%H:%M:%S") for run in self.of(task)]

    def overlaps(self) -> list[tuple[Run, Run]]:
        """Runs of one task of which the later one began before the last step of the earlier one, or was granted first.

        A callback that takes no time overlaps with nothing; that it began after its host was buried shows in the order
        of the grants alone.
        """
        tasks = {run.task for run in self.runs}
        return [
            (earlier, later)
            for task in tasks
            for earlier, later in pairwise(self.of(task))
            if later.began < earlier.last_step or later.fence < earlier.fence
        ]


def minutely(
    witness: Witness, host: ClusterHost, *names: str, seconds: float = 0, steps: int = 1
) -> list[tuple[str, str, Callback, timedelta]]:
    """Tasks that are due every minute, on one host."""
    return [
        (name, "* * * * *", witness.callback(host, name, seconds=seconds, steps=steps), timedelta(seconds=30))
        for name in names
    ]
