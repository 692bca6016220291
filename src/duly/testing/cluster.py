"""Several hosts of one shared store in one test: the store is in memory, and time passes on request.

Each host has a clock and an event loop's worth of schedulers of its own, can be frozen, cut off or killed; the store
can be down. Everything runs in one event loop, and with a seed in one of the orders that real machines could produce.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

from duly.core.moments import MICROSECONDS, Instant, as_datetime
from duly.core.news import Changes, Note, Position
from duly.engine.pacing import breathe
from duly.errors import StoreError
from duly.scheduler import Scheduler
from duly.stores.port import Store
from duly.stores.shared import (
    NEWS_MAX,
    Arrival,
    BeatAnswer,
    EditionAnswer,
    EditionRequest,
    HostIdentity,
    News,
    SharedContent,
    SharedStore,
    WriteAnswer,
)
from duly.stores.shared_trace import TracePart, TraceStart
from duly.testing.host import SimulatedHost, microseconds_of, pool_of, worker_of
from duly.testing.shared import SharedMemory
from duly.threads import JOIN_SECONDS, Threads

T = TypeVar("T")

LEASE: Final = timedelta(seconds=30)
_IDENTIFIERS_OF_A_HOST: Final = 1_000_000
_IDLE_ROUNDS: Final = 10
_FORSAKEN_ROUNDS: Final = 5 * _IDLE_ROUNDS
_REAL_SECONDS: Final = 0.01
_ROUNDS_MAX: Final = 1_000_000


class Wire(Protocol):
    """The way of requests from one host to the store."""

    def carry(self, request: str, call: Callable[[], T]) -> T:
        """Make a request and return its answer; a wire that is cut raises a `StoreError`, before or after it."""
        ...


class Direct:
    """Every request arrives, and every answer too."""

    def carry(self, request: str, call: Callable[[], T]) -> T:
        """Make the request."""
        return call()


class MemoryStore:
    """A `SharedStore` in memory: one host's way to a `SharedMemory`."""

    def __init__(
        self, memory: SharedMemory, *, lease: timedelta = LEASE, label: str | None = None, wire: Wire | None = None
    ) -> None:
        self.name = memory.name
        self.lease = lease
        self.label = label
        self._functions = WiredFunctions(memory, wire or Direct())

    def __repr__(self) -> str:
        return f"MemoryStore({self.name})"

    def connect(self) -> "WiredFunctions":
        """The functions of the memory, over the wire."""
        return self._functions

    def connect_for_beats(self) -> "WiredFunctions":
        """The functions of the memory, over the wire."""
        return self._functions

    def install(self) -> None:
        """There is nothing to create."""
        self._functions.wire.carry("install", lambda: None)


class WiredFunctions:
    """`SharedFunctions` of a memory, each request over a wire that may be cut."""

    def __init__(self, memory: SharedMemory, wire: Wire) -> None:
        self.wire = wire
        self._memory = memory

    def write(self, me: HostIdentity, number: int, seen: Position, changes: Changes) -> WriteAnswer:
        """Record ends, and grant or refuse starts."""
        return self.wire.carry("write", lambda: self._memory.write(me, number, seen, changes))

    def beat(self, me: HostIdentity, seen: Position, held: int = 0, fault: str | None = None) -> BeatAnswer:
        """Renew the lease."""
        return self.wire.carry("beat", lambda: self._memory.beat(me, seen, held, fault))

    def bury(self, me: HostIdentity, who: int, beat: int | None) -> int | None:
        """Declare a host dead."""
        return self.wire.carry("bury", lambda: self._memory.bury(me, who, beat))

    def arrive(self, identifier: str, arrivals: Sequence[Arrival]) -> None:
        """Send the new declarations of the next `replace`."""
        self.wire.carry("arrive", lambda: self._memory.arrive(identifier, arrivals))

    def replace(self, request: EditionRequest) -> EditionAnswer:
        """Join, or declare another set."""
        return self.wire.carry("replace", lambda: self._memory.replace(request))

    def leave(self, me: HostIdentity, notes: Sequence[Note] = ()) -> int | None:
        """Leave after a stop."""
        return self.wire.carry("leave", lambda: self._memory.leave(me, notes))

    def news(self, seen: Position, limit: int = NEWS_MAX) -> News:
        """The entries after a position."""
        return self.wire.carry("news", lambda: self._memory.news(seen, limit))

    def load(self) -> SharedContent:
        """All that a host needs to begin."""
        return self.wire.carry("load", self._memory.load)

    def trace_start(self) -> TraceStart | None:
        """The newest base of the trace."""
        return self.wire.carry("trace_start", self._memory.trace_start)

    def trace_after(self, seen: Position, generation: int, limit: int) -> TracePart | None:
        """The entries of the trace after a position."""
        return self.wire.carry("trace_after", lambda: self._memory.trace_after(seen, generation, limit))

    def close(self) -> None:
        """There is no connection."""


class ClusterHost(SimulatedHost):
    """One host of a simulated cluster; its time passes with the cluster's, unless it is frozen."""

    def __init__(
        self,
        cluster: "SimulatedCluster",
        at: datetime,
        tz: str | tzinfo,
        number: int,
        *,
        seed: int,
        callbacks_only_sleep: bool,
    ) -> None:
        super().__init__(at, tz, seed=seed, callbacks_only_sleep=callbacks_only_sleep)
        self._identifiers = count(number * _IDENTIFIERS_OF_A_HOST)
        self.number = number
        self.frozen = False
        self.cut_off = False
        """Whether no request of this host reaches the store."""
        self.lose_answers = 0
        """How many of the next requests are made, and their answers lost."""
        self._cluster = cluster
        self._lag = 0
        self._thawed = asyncio.Event()
        self.on_request: Callable[[str, bool], None] | None = None
        """Called with the name of each request, before it is made and after it; for faults in that very moment."""

    # --- what a test does --------------------------------------------------------------------------------------------

    def store(self, *, lease: timedelta | None = None, label: str | None = None) -> MemoryStore:
        """This host's way to the store of the cluster."""
        name = label or f"host {self.number}"
        return MemoryStore(self._cluster.memory, lease=lease or self._cluster.lease, label=name, wire=self)

    def scheduler(self, store: str | Path | Store | SharedStore | None = None, **options: Any) -> Scheduler:
        """A `Scheduler` on this host and on the store of the cluster."""
        options.setdefault("monitor", False)
        return super().scheduler(self.store() if store is None else store, **options)

    def freeze(self) -> None:
        """Nothing of this host goes on, as after SIGSTOP: no callback takes a step, no beat is sent."""
        self.frozen = True

    def die(self) -> None:
        """The process dies at this very step; `crash()` also waits until it is gone."""
        self._kill()

    async def thaw(self) -> None:
        """Go on; all the time that has passed meanwhile passes in one leap."""
        self.frozen = False
        lag, self._lag = self._lag, 0
        self._thawed.set()
        self._thawed = asyncio.Event()
        self._clock.pass_by(lag)
        await self._cluster.settle()

    async def advance(self, **duration: float) -> None:
        """Let time pass in the whole cluster."""
        await self._cluster.advance(**duration)

    # --- for the cluster ---------------------------------------------------------------------------------------------

    def carry(self, request: str, call: Callable[[], T]) -> T:
        """The wire of this host."""
        if self.on_request is not None:
            self.on_request(request, False)
        if self.cut_off or self._cluster.is_down:
            raise _unreachable(request)
        answer = call()
        if self.on_request is not None:
            self.on_request(request, True)
        if self.lose_answers:
            self.lose_answers -= 1
            raise _unreachable(request)
        return answer

    def pass_by(self, microseconds: int) -> None:
        """Time passes."""
        if self.frozen:
            self._lag += microseconds
        else:
            self._clock.pass_by(microseconds)

    def next_alarm(self) -> int | None:
        """When anything on this host wants to go on, in microseconds from now; None: nothing does, or it is frozen."""
        alarm = None if self.frozen else self._clock.next_alarm()
        return None if alarm is None else max(0, alarm - self._clock.passed)

    @property
    def signs_of_life(self) -> int:
        """Grows while anything happens on this host."""
        return self._clock.signs_of_life

    @property
    def is_quiet(self) -> bool:
        """Whether surely nothing happens until time passes."""
        return self.frozen or (not self._clock.waking and self._is_settled())

    async def unfrozen(self) -> None:
        """Return when the host is not frozen."""
        while self.frozen:
            await self._thawed.wait()

    async def _until_stopped(self, stop: "asyncio.Task[None]") -> None:
        """Let time pass in the cluster while a stop() waits for it and the test does not."""
        await self._cluster.pass_until(stop)

    def _new_worker(self) -> Threads:
        return HostThreads(worker_of(self._dice, self._clock), self.unfrozen)

    def _new_pool(self, size: int) -> Threads:
        return HostThreads(pool_of(size, self._dice), self.unfrozen)


class HostThreads:
    """Threads of a host: while it is frozen no call begins, and an answer that arrives waits there."""

    def __init__(self, inner: Threads, unfrozen: Callable[[], Awaitable[None]]) -> None:
        self.size = inner.size
        self._inner = inner
        self._unfrozen = unfrozen

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call, and hand its answer over when the host is not frozen."""
        await self._unfrozen()
        try:
            return await self._inner.run(call)
        finally:
            await self._unfrozen()

    def close(
        self, last: Callable[[], object] | None = None, *, wait: bool = True, seconds: float = JOIN_SECONDS
    ) -> None:
        """Run what is left, then `last`."""
        self._inner.close(last, wait=wait, seconds=seconds)


class SimulatedCluster:
    """Hosts that share a store, in a test.

    ```python
    async with SimulatedCluster("2024-03-31T01:50", "Europe/Berlin") as cluster:
        first, second = await cluster.host(), await cluster.host()
        for host in (first, second):
            await host.scheduler().initialize([("report", "0 3 * * *", report, timedelta(minutes=5))])
        first.freeze()
        await cluster.advance(minutes=15)
        assert [number for number, at in cluster.starts("report")] == [2]
    ```

    Parameters:
        at: what the clock of the store shows at first, and that of every host unless it is given another.
        tz: the zone of all hosts.
        lease: that of every host.
        seed: as for `SimulatedHost`.
        callbacks_only_sleep: as for `SimulatedHost`.

    Raises:
        TypeError: `at` is neither text nor a `datetime`, or `tz` neither a name nor a `tzinfo`.
        ValueError: `at` is not ISO 8601, or there is no such zone.
    """

    memory: SharedMemory

    def __init__(
        self,
        at: str | datetime,
        tz: str | tzinfo,
        *,
        lease: timedelta = LEASE,
        seed: int = 0,
        callbacks_only_sleep: bool = False,
    ) -> None:
        self.lease = lease
        self.hosts: list[ClusterHost] = []
        self.is_down = False
        """Whether the store answers nobody."""
        self._tz = tz
        self._seed = seed
        self._callbacks_only_sleep = callbacks_only_sleep
        self._started_at = SimulatedHost(at, tz).now
        self._passed = 0
        self._stepped = 0
        self._nonces = count(1)
        self._passing = False
        self._passing_for_a_stop = False
        self.memory = SharedMemory(self._now, lambda: f"{next(self._nonces):032x}")

    async def __aenter__(self) -> "SimulatedCluster":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self.hosts:
            host.frozen = False
            await host.__aexit__(kind, error, trace)

    @property
    def now(self) -> datetime:
        """The clock of the store, in the zone of the cluster."""
        zone = self._started_at.tzinfo
        assert zone is not None
        return as_datetime(self._now(), zone)

    async def host(self, *, ahead: float = 0.0) -> ClusterHost:
        """Another machine.

        Parameters:
            ahead: by how many seconds its own clock is ahead of the store's, or behind it if negative.

        Returns:
            A `SimulatedHost` whose schedulers use the store of the cluster, and whose time passes with it. It can also
            be frozen (`freeze()`, `thaw()`), cut off from the store (`cut_off`), and killed (`crash()`).
        """
        at = self.now + timedelta(seconds=ahead)
        number = len(self.hosts) + 1
        seed = self._seed * 1_000 + number if self._seed else 0
        host = ClusterHost(self, at, self._tz, number, seed=seed, callbacks_only_sleep=self._callbacks_only_sleep)
        await host.__aenter__()
        self.hosts.append(host)
        return host

    def starts(self, task: str) -> list[tuple[int, datetime]]:
        """The starts of a task anywhere: the number of the host, and when; in the order of the hosts.

        Parameters:
            task: the name of the task.
        """
        return [(host.number, at) for host in self.hosts for at in host.starts(task)]

    def set_clock(self, *, seconds: float) -> None:
        """Set the clock of the store.

        Parameters:
            seconds: by how much it is set forward, or back if negative.
        """
        self._stepped += int(seconds * MICROSECONDS)

    async def advance(self, **duration: float) -> None:
        """Let time pass everywhere.

        Parameters:
            **duration: as `timedelta` takes it, such as `minutes=5`.

        Raises:
            TypeError: a keyword that `timedelta` does not have.
            ValueError: a negative duration.
            RuntimeError: time is passing already, or something runs without ever waiting.
        """
        while self._passing_for_a_stop:
            await breathe()
        await self._pass(microseconds_of("advance", duration))

    async def pass_until(self, stop: "asyncio.Task[None]") -> None:
        """Let time pass until a stop() is over, whenever nothing else happens and the test does not move the clock.

        Parameters:
            stop: the stop() that is under way.

        Raises:
            RuntimeError: time is passing already, or something runs without ever waiting.
        """
        idle = 0
        while not stop.done():
            before = self._signs_of_life()
            await breathe()
            idle = 0 if self._passing or self._signs_of_life() != before else idle + 1
            if idle < _FORSAKEN_ROUNDS:
                continue
            idle = 0
            alarms = self._alarms()
            if not alarms:
                await asyncio.wait([stop], timeout=_REAL_SECONDS)  # for something that is not of this cluster
                continue
            self._passing_for_a_stop = True
            try:
                await self._pass(min(alarms))
            finally:
                self._passing_for_a_stop = False

    async def _pass(self, left: int) -> None:
        if self._passing:
            raise RuntimeError("time is passing already: one advance() at a time")
        self._passing = True
        try:
            await self.settle()
            while left:
                step = min([left, *self._alarms()])
                left -= step
                self._passed += step
                for host in self.hosts:
                    host.pass_by(step)
                await self.settle()
        finally:
            self._passing = False

    async def settle(self) -> None:
        """Wait until nothing of any host is ready.

        Raises:
            RuntimeError: something runs without ever waiting.
        """
        idle, signs = 0, self._signs_of_life()
        for _ in range(_ROUNDS_MAX):
            for host in self.hosts:  # not all(): this is asked a million times in a long test
                if not host.is_quiet:
                    break
            else:
                return
            await breathe()
            before, signs = signs, self._signs_of_life()
            idle = idle + 1 if signs == before else 0
            if idle >= _IDLE_ROUNDS:
                return
        raise RuntimeError("the cluster does not settle: something keeps running without waiting for time to pass")

    def _alarms(self) -> list[int]:
        """When hosts want to go on, in microseconds from now."""
        return [alarm for host in self.hosts if (alarm := host.next_alarm()) is not None]

    def _signs_of_life(self) -> int:
        signs = 0
        for host in self.hosts:
            signs += host.signs_of_life
        return signs

    def _now(self) -> Instant:
        begun = int(self._started_at.timestamp() * MICROSECONDS)
        return Instant(begun + self._passed + self._stepped)


def _unreachable(request: str) -> StoreError:
    return StoreError(
        "Store shared memory cannot be reached", store="shared memory", operation=request, code="", permanent=False
    )
