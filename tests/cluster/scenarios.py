"""Five base scenarios of a simulated cluster, and a fault at any moment of them.

A *point* is a moment of a scenario at which a fault can strike: before a request of any host is made (a commit, a beat,
a joining), after it was made and before its answer is used, and after each step of a callback. Points are counted
through all hosts. Until the fault strikes, a scenario is the same as without one, so the points of a calm play are
those of any other.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

from duly.engine.pacing import breathe
from duly.errors import ScheduleTaskError, StopSchedulerError, StoreError
from duly.scheduler import Scheduler
from duly.testing.cluster import ClusterHost, SimulatedCluster
from tests.cluster.histories import QUIET, judge, keep_the_log
from tests.cluster.witness import Callback, Witness

LEASE: Final = timedelta(seconds=30)
RETRY_SECONDS: Final = 5
SETTLE_SECONDS: Final = 150
"""After a fault: a burial (40 s), a joining, and two leases until another edition is in force."""

ROUNDS: Final = 20
SLICE_SECONDS: Final = 1

Task = tuple[str, str, Callback | Callable[[], None], timedelta]


class Point(NamedTuple):
    """A moment of a scenario, by the number that it has there."""

    scenario: str
    number: int
    kind: str
    """`before` or `after` a request, or a `step` of a callback."""


class Fault(NamedTuple):
    """A fault, and for how long it lasts if it ends by itself."""

    name: str
    leases: float = 0


def faults_at(kind: str) -> tuple[str, ...]:
    """The faults that make a difference at a point of a kind: only a request, or its answer, can be lost."""
    lasting = ("die", "freeze", "cut off", "store away")
    return lasting if kind == "step" else (*lasting, "lose")


def drawn(name: str, chance: random.Random) -> Fault:
    """A fault, which lasts 0.3 to 3 leases if it is a freeze, and 0.1 to 3 leases if it is an outage."""
    least = {"freeze": 0.3, "cut off": 0.1, "store away": 0.1}.get(name)
    return Fault(name) if least is None else Fault(name, chance.uniform(least, 3))


@dataclass
class Stage:
    """A cluster on which a scenario is played, with a fault at one of its points."""

    cluster: SimulatedCluster
    strikes_at: int | None = None
    fault: Fault | None = None
    kinds: list[str] = field(default_factory=list)
    """Of the points so far."""

    strikable: set[int] = field(default_factory=set)
    """The numbers of hosts that have had a point."""

    struck: str = ""
    dead: ClusterHost | None = None
    acts: list[tuple[ClusterHost, "asyncio.Task[None]"]] = field(default_factory=list)
    """Calls of initialize() and stop(): time passes for the others meanwhile, whatever becomes of them."""

    def __post_init__(self) -> None:
        self.witness = Witness(self.cluster, on_step=lambda host: self._point(host, "step"))

    # --- what a scenario does ----------------------------------------------------------------------------------------

    async def host(self, tasks: Callable[[ClusterHost], list[Task]]) -> tuple[ClusterHost, Scheduler]:
        """Another host, that begins to declare these tasks."""
        host = await self.cluster.host()
        host.on_request = lambda request, made: self._point(host, "after" if made else "before", request)
        scheduler = host.scheduler(trace=True)
        self.declare(host, scheduler, tasks)
        await self.passes(0.1)
        return host, scheduler

    def declare(self, host: ClusterHost, scheduler: Scheduler, tasks: Callable[[ClusterHost], list[Task]]) -> None:
        """Initialise, again and again until it succeeds, as a supervisor does."""

        async def initialize() -> None:
            while True:
                await host.unfrozen()
                try:
                    await scheduler.initialize(tasks(host))
                except (StoreError, ScheduleTaskError):
                    await host.sleep(RETRY_SECONDS)
                else:
                    return

        self._act(host, initialize())

    def leave(self, host: ClusterHost, scheduler: Scheduler) -> None:
        """Stop; a stop that fails is the end of its host all the same."""

        async def stop() -> None:
            await host.unfrozen()
            try:
                await scheduler.stop()
            except StopSchedulerError:
                await host.crash()

        self._act(host, stop())

    def work(self, host: ClusterHost, name: str, seconds: float, cron: str = "* * * * *") -> Task:
        """A task that takes some seconds, in four steps."""
        return name, cron, self.witness.callback(host, name, seconds=seconds, steps=4), timedelta(seconds=7)

    async def passes(self, seconds: float) -> None:
        """Let time pass."""
        while seconds > 0 and any(not act.done() for _, act in self.acts):
            # A host that is about to initialise or to stop may look quiet: give it a turn, and time in small amounts.
            for _ in range(ROUNDS):
                await breathe()
            await self.cluster.advance(seconds=min(seconds, SLICE_SECONDS))
            seconds -= SLICE_SECONDS
        await self.cluster.advance(seconds=max(0, seconds))

    def _act(self, host: ClusterHost, act: Awaitable[None]) -> None:
        self.acts.append((host, asyncio.ensure_future(act)))

    # --- faults ------------------------------------------------------------------------------------------------------

    def _point(self, host: ClusterHost, kind: str, request: str = "") -> None:
        self.kinds.append(kind)
        self.strikable.add(host.number)
        if len(self.kinds) == self.strikes_at and self.fault is not None:
            self.struck = f"{kind} {request} of host {host.number} at {self.cluster.now:%H:%M:%S}"
            self._strike(host, kind, request, self.fault)

    def _strike(self, host: ClusterHost, kind: str, request: str, fault: Fault) -> None:
        if fault.name == "freeze":
            host.freeze()
        elif fault.name == "cut off":
            host.cut_off = True
        elif fault.name == "store away":
            self.cluster.is_down = True
        elif fault.name == "die":
            self.dead = host
            host.die()
        if fault.leases:
            self._recovery = asyncio.ensure_future(self._recover(host, fault.leases * LEASE.total_seconds()))
        # A process that dies before it has sent its request makes none.
        if fault.name == "lose" or (fault.name == "die" and kind == "before"):
            raise StoreError("lost", store="shared memory", operation=request, code="", permanent=False)

    async def _recover(self, host: ClusterHost, seconds: float) -> None:
        await self.timer.sleep(seconds)
        self.cluster.is_down = host.cut_off = False
        if host.frozen:
            await host.thaw()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def play(self, scenario: Callable[["Stage"], Awaitable[None]]) -> None:
        """Play a scenario, let the cluster rest, and judge as histories are judged."""
        self.timer = await self.cluster.host()  # a clock that no fault stops
        await scenario(self)
        points, self.strikes_at = list(self.kinds), None
        if self.fault is not None:
            await self.passes(self.fault.leases * LEASE.total_seconds())
        await self.passes(SETTLE_SECONDS)
        await self.passes(QUIET / 1_000_000)
        self.kinds = points
        where = f"{self.fault} {self.struck}"
        for host, act in self.acts:
            if host is self.dead:
                act.cancel()
            else:
                assert act.done(), f"an initialize() or stop() of host {host.number} never ends; {where}"
                act.result()
        judge(self.cluster, self.witness, where)


async def played(scenario: str, strikes_at: int | None = None, fault: Fault | None = None) -> Stage:
    """A scenario, with a fault at one of its points or without one."""
    async with SimulatedCluster("2024-05-01T12:00:35", "UTC", lease=LEASE, callbacks_only_sleep=True) as cluster:
        keep_the_log(cluster.memory)
        stage = Stage(cluster, strikes_at, fault)
        await stage.play(SCENARIOS[scenario])
        return stage


# --- the scenarios ---------------------------------------------------------------------------------------------------


async def a_shared_minute(stage: Stage) -> None:
    """Three hosts divide short and long callbacks; one of them is longer than a minute."""
    for _ in range(3):
        await stage.host(lambda host: [stage.work(host, name, seconds) for name, seconds in SHARED])
    await stage.passes(60)


SHARED: Final = (("quick", 0), ("short", 10), ("long", 40), ("longer than a minute", 70))


async def a_retry(stage: Stage) -> None:
    """A callback fails twice and is repeated, by whichever host comes first; another one blocks."""
    calls = 0

    def tasks(host: ClusterHost) -> list[Task]:
        work = stage.witness.callback(host, "failing", seconds=2, steps=2)

        async def failing() -> None:
            nonlocal calls
            await work()
            calls += 1
            if calls % 3:
                raise ValueError("this time")

        return [
            ("failing", "* * * * *", failing, timedelta(seconds=RETRY_SECONDS)),
            ("blocking", "* * * * *", lambda: stage.witness.note(host, "blocking"), timedelta(seconds=RETRY_SECONDS)),
        ]

    for _ in range(2):
        await stage.host(tasks)
    await stage.passes(70)


EVEN: Final = ",".join(map(str, range(0, 60, 2))) + " * * * *"


async def a_rolling_deploy(stage: Stage) -> None:
    """A new edition comes while a run of a task that it changes, and of one that it withdraws, goes on."""

    def old(host: ClusterHost) -> list[Task]:
        return [stage.work(host, "kept", 5), stage.work(host, "changed", 50), stage.work(host, "withdrawn", 40)]

    def new(host: ClusterHost) -> list[Task]:
        changed = stage.work(host, "changed", 10, EVEN)
        return [stage.work(host, "kept", 5), changed, stage.work(host, "added", 3)]

    old_pods = [await stage.host(old) for _ in range(2)]
    await stage.passes(5)
    for pod in old_pods:
        await stage.host(new)
        await stage.passes(10)
        stage.leave(*pod)
        await stage.passes(15)
    await stage.passes(20)


async def a_host_that_leaves(stage: Stage) -> None:
    """One of three hosts stops while runs of it go on, and the others have its share."""

    def tasks(host: ClusterHost) -> list[Task]:
        return [stage.work(host, "quick", 0), stage.work(host, "short", 8), stage.work(host, "long", 45)]

    pods = [await stage.host(tasks) for _ in range(3)]
    await stage.passes(30)
    stage.leave(*pods[0])
    await stage.passes(40)


async def a_burial_and_a_rejoin(stage: Stage) -> None:
    """A host freezes with runs under way, is buried, wakes up, and joins again."""

    def tasks(host: ClusterHost) -> list[Task]:
        return [stage.work(host, "quick", 0), stage.work(host, "long", 50), stage.work(host, "other", 30)]

    (frozen, _), *_ = [await stage.host(tasks) for _ in range(3)]
    await stage.passes(5)
    frozen.freeze()
    await stage.passes(55)
    await frozen.thaw()
    await stage.passes(25)


SCENARIOS: Final[dict[str, Callable[[Stage], Any]]] = {
    scenario.__name__.replace("_", " "): scenario
    for scenario in (a_shared_minute, a_retry, a_rolling_deploy, a_host_that_leaves, a_burial_and_a_rejoin)
}
