"""Seeded histories of a simulated cluster: hosts come, go, freeze and are cut off, the store is away, sets change."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any

from duly.core.news import Written
from duly.events import PropertyViolated
from duly.scheduler import Scheduler
from duly.testing.cluster import ClusterHost, SimulatedCluster
from duly.testing.shared import SharedMemory
from tests.cluster.judged_trace import judge_lines
from tests.cluster.reference import objections
from tests.cluster.witness import Witness

LEASES = tuple(timedelta(seconds=seconds) for seconds in (5, 15, 30))
"""Of hosts, each by chance one of them: a watcher has to judge another by the lease of that one (SPEC 9.5)."""

HOSTS_MAX = 5
EVENTS = 24
QUIET = 180_000_000
"""Microseconds at the end of a history in which what is owed must start at once."""


@dataclass(frozen=True)
class Job:
    """A task of a history."""

    name: str
    cron: str = "* * * * *"
    seconds: float = 0
    fails: bool = False
    blocks: bool = False


SETS = (
    (
        Job("quick"),
        Job("long", seconds=45),
        Job("longer than a minute", seconds=80),
        Job("even", ",".join(map(str, range(0, 60, 2))) + " * * * *", seconds=5),
        Job("failing", fails=True),
        Job("blocking", blocks=True),
        Job("old"),
    ),
    (
        Job("quick"),
        Job("long", seconds=45),
        Job("longer than a minute", "0,5,10,15,20,25,30,35,40,45,50,55 * * * *", seconds=80),
        Job("failing", fails=True),
        Job("new", seconds=20),
    ),
    (
        Job("quick"),
        Job("long", ",".join(map(str, range(0, 60, 3))) + " * * * *", seconds=45),
        Job("failing", fails=True),
        Job("blocking", blocks=True),
        Job("new", seconds=20),
        Job("old"),
    ),
)


def granted_starts(memory: SharedMemory) -> list[tuple[int, int, str]]:
    """Generation, scheduled instant and cause of every start that was granted, by the log."""
    return [
        (generation, block.scheduled, block.cause.value)
        for entry in memory.log.values()
        if isinstance(entry.content, Written)
        for block in entry.content.starts
        for generation in block.generations
        if generation not in entry.content.refused
    ]


def keep_the_log(memory: SharedMemory) -> None:
    """Prune nothing, so that the log tells everything."""
    memory.prune = lambda *_, **__: 0  # type: ignore[method-assign]


def judge(cluster: SimulatedCluster, witness: Witness, where: str) -> None:
    """Assert what must hold after any history that ends with some minutes of rest, in which a host lived."""
    memory = cluster.memory
    assert witness.overlaps() == [], where
    lines = list(memory.trace_lines())
    report = judge_lines(lines)
    assert not report.violated, ([str(each) for each in report.violations[:5]], where)
    told = [event for host in cluster.hosts for event in host.events if isinstance(event, PropertyViolated)]
    assert told == [], (told[:5], where)
    ends_at = int(cluster.now.timestamp() * 1_000_000)
    events = map(json.loads, lines[1:-1])
    found = objections(memory, events, UTC, quiet_since=ends_at - QUIET, now=ends_at)
    assert found == [], (found, where)
    # No minute is served twice, and what began was granted; refused starts were never made.
    granted = granted_starts(memory)
    cron = Counter((generation, scheduled) for generation, scheduled, cause in granted if cause == "cron")
    assert max(cron.values()) == 1, where
    assert len(witness.runs) <= len(granted), where
    # Nothing is owed after the rest: every task in force has served its last due minute, or runs.
    for task in memory.tasks.values():
        if task.retired_at is None:
            state = memory.states[task.generation]
            late = (cluster.now.timestamp() - state.served_through) / 60
            assert state.run is not None or task.cron != "* * * * *" or late < 2.2, (task, state, where)


@dataclass
class Member:
    """A host of a history, and its scheduler."""

    host: ClusterHost
    scheduler: Scheduler
    version: int
    stopping: "asyncio.Task[None] | None" = None


@dataclass
class History:
    """The events, by the dice of a seed."""

    seed: int
    monitor: bool = False
    """Whether every host has a monitor, which must find nothing."""

    log: list[str] = field(default_factory=list)

    async def play(self) -> "History":
        """Let it happen, then let the cluster rest, and judge."""
        async with SimulatedCluster("2024-05-01T12:00:05", "UTC", seed=self.seed, callbacks_only_sleep=True) as cluster:
            self.cluster = cluster
            keep_the_log(cluster.memory)
            self.witness = Witness(cluster)
            self.chance = random.Random(self.seed)
            self.members: list[Member] = []
            self.background: set[asyncio.Task[Any]] = set()
            await self._add_host()
            for _ in range(EVENTS):
                await cluster.advance(seconds=self.chance.choice((0.2, 1, 4, 11, 29, 45, 70)))
                await self._happen()
            await self._calm()
            # A request that was sent before the calm may wait for minutes; then a host joins, buries and reinstates.
            await cluster.advance(seconds=8 * max(LEASES).total_seconds())
            if not self._running():
                await self._add_host()
            await cluster.advance(minutes=4)
            judge(cluster, self.witness, f"seed {self.seed}:\n" + "\n".join(self.log))
        return self

    def _running(self) -> list[Member]:
        return [each for each in self.members if each.stopping is None]

    async def _happen(self) -> None:
        events: list[Callable[[], Any]] = [
            self._add_host, self._add_host, self._die, self._freeze, self._freeze, self._thaw, self._cut,
            self._reconnect, self._outage, self._recover, self._lose_answers, self._stop, self._redeclare,
        ]  # fmt: skip
        event = self.chance.choice(events)
        self.log.append(f"{self.cluster.now:%H:%M:%S} {event.__name__}")
        await event()

    async def _add_host(self) -> None:
        if len(self._running()) >= HOSTS_MAX or self.cluster.is_down:
            return
        host = await self.cluster.host(ahead=self.chance.choice((0, 0, 0.5, -3, 3600)))
        store = host.store(lease=self.chance.choice(LEASES))
        interrupted = self.chance.choice(("restart", "restart", "wait"))
        scheduler = host.scheduler(store, trace=True, monitor=self.monitor, interrupted=interrupted)
        member = Member(host, scheduler, self.chance.choice((0, 0, 1, 2)))
        self.members.append(member)
        await member.scheduler.initialize(self._registrations(member))

    def _registrations(self, member: Member) -> list[tuple[Any, ...]]:
        return [
            (job.name, job.cron, self._callback(member.host, job), timedelta(seconds=7)) for job in SETS[member.version]
        ]

    def _callback(self, host: ClusterHost, job: Job) -> Callable[[], Any]:
        work = self.witness.callback(host, job.name, seconds=job.seconds, steps=max(1, int(job.seconds)))

        async def fails() -> None:
            await work()
            if self.chance.random() < 0.5:
                raise ValueError("by chance")

        def blocks() -> None:
            self.witness.note(host, job.name)

        return blocks if job.blocks else fails if job.fails else work

    def _pick(self) -> Member | None:
        return self.chance.choice(self._running()) if self._running() else None

    async def _die(self) -> None:
        if (member := self._pick()) is not None and len(self._running()) > 1:
            self.members.remove(member)
            member.host.frozen = False
            await member.host.crash()

    async def _freeze(self) -> None:
        awake = [each for each in self._running() if not each.host.frozen]
        if len(awake) > 1:
            self.chance.choice(awake).host.freeze()

    async def _thaw(self) -> None:
        for member in self.members:
            if member.host.frozen:
                await member.host.thaw()

    async def _cut(self) -> None:
        if (member := self._pick()) is not None:
            member.host.cut_off = True

    async def _reconnect(self) -> None:
        for member in self.members:
            member.host.cut_off = False

    async def _outage(self) -> None:
        self.cluster.is_down = True

    async def _recover(self) -> None:
        self.cluster.is_down = False

    async def _lose_answers(self) -> None:
        if (member := self._pick()) is not None:
            member.host.lose_answers = self.chance.randint(1, 4)

    async def _stop(self) -> None:
        if (member := self._pick()) is not None and len(self._running()) > 1 and not member.host.frozen:
            member.stopping = asyncio.create_task(member.scheduler.stop())
            member.stopping.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def _redeclare(self) -> None:
        member = self._pick()
        if member is None or member.host.frozen or member.host.cut_off or self.cluster.is_down:
            return
        member.version = self.chance.choice([each for each in range(len(SETS)) if each != member.version])
        again = asyncio.create_task(member.scheduler.initialize(self._registrations(member)))
        again.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self.background.add(again)

    async def _calm(self) -> None:
        await self._recover()
        await self._reconnect()
        await self._thaw()
