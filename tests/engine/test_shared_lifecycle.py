"""A scheduler whose host was buried joins again by itself; initialize() and stop() work as if it had not been."""

import asyncio
import contextlib
import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

import duly
from duly.clock import SystemClock
from duly.core.moments import Instant
from duly.core.record import EqualRows
from duly.errors import (
    ForeignSetError,
    HostGoneError,
    ScheduleTaskError,
    StopSchedulerError,
    StoreError,
    StoreRewoundError,
)
from duly.events import (
    EditionReinstated,
    Event,
    LeaseLost,
    RejoinFailed,
    SchedulerInitializationStarted,
    SchedulerReinitializationStarted,
    TaskRunFenced,
)
from duly.stores.shared import HostIdentity
from duly.testing import SimulatedCluster
from duly.testing.cluster import ClusterHost, MemoryStore, WiredFunctions
from duly.testing.shared import SharedMemory
from duly.threads import JOIN_SECONDS, DaemonThreads, Threads
from tests.cluster.witness import Witness, minutely
from tests.engine.helpers import engine_of, load_slowly
from tests.spec.helpers import microseconds

LEASE = timedelta(seconds=30)
PATIENCE_SECONDS = 60.0
BEAT = LEASE / 6
PAUSE = BEAT / 2
"""Before it joins again, by the chance of a simulated host without a seed."""


class Connections(MemoryStore):
    """A way to the store that knows which of its connections are open."""

    def __init__(self, memory: SharedMemory, host: ClusterHost) -> None:
        super().__init__(memory, lease=LEASE, wire=host)
        self.open: Counter[str] = Counter()
        self._ways = (memory, host)

    def connect(self) -> WiredFunctions:
        return Connection(*self._ways, "writes", self.open)

    def connect_for_beats(self) -> WiredFunctions:
        return Connection(*self._ways, "beats", self.open)


class Connection(WiredFunctions):
    """One of them."""

    def __init__(self, memory: SharedMemory, host: ClusterHost, kind: str, opened: Counter[str]) -> None:
        super().__init__(memory, host)
        self._kind, self._opened = kind, opened
        opened[kind] += 1

    def close(self) -> None:
        self._opened[self._kind] -= 1


class Life:
    """A scheduler on the one host of a cluster, half a second after a beat."""

    def __init__(self, cluster: SimulatedCluster, host: ClusterHost) -> None:
        self.cluster = cluster
        self.host = host
        self.witness = Witness(cluster)
        self.store = Connections(cluster.memory, host)
        self.scheduler = host.scheduler(self.store)
        self.before = asyncio.all_tasks()

    async def begin(self, *names: str) -> None:
        """Declare tasks that are due every minute."""
        await self.scheduler.initialize(minutely(self.witness, self.host, *names))
        await self.cluster.advance(seconds=0.5)

    def bury(self) -> None:
        """Bury this host, as another host does that saw no beat for too long; it hears of that with its next beat."""
        (host,) = self.cluster.memory.living()
        self.cluster.memory.bury(HostIdentity(host.key, host.identifier), host.key, None)

    async def left(self) -> "tuple[set[asyncio.Task[Any]], Counter[str]]":
        """The remains of the scheduler: tasks of the event loop, and open connections."""
        for _ in range(5):
            await asyncio.sleep(0)
        return asyncio.all_tasks() - self.before - {asyncio.current_task()}, +self.store.open

    async def cancel_all(self) -> None:
        """Cancel all tasks of the scheduler, as an event loop does that goes away."""
        tasks = asyncio.all_tasks() - self.before - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.sleep(0)

    async def supersede(self, *names: str) -> None:
        """Put another set in force by a host that comes and leaves, of which this one hears; it is not back yet."""
        other = await self.cluster.host()
        scheduler = other.scheduler()
        await scheduler.initialize(minutely(self.witness, other, *names))
        await self.cluster.advance(seconds=6)
        await scheduler.stop()
        await self.cluster.advance(seconds=6)

    def load_slowly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on this host needs seven seconds to load; its beats go on."""
        load_slowly(self.host, monkeypatch, seconds=7)

    async def call(self, *names: str) -> "asyncio.Task[None]":
        """Call initialize() with other tasks; it goes as far as it comes without time passing."""
        call = asyncio.create_task(self.scheduler.initialize(minutely(self.witness, self.host, *names)))
        for _ in range(20):
            await asyncio.sleep(0)
        return call

    def listen(self) -> list[str]:
        """The names of the requests of this host, from now on."""
        asked: list[str] = []

        def note(request: str, made: bool) -> None:
            if not made:
                asked.append(request)

        self.host.on_request = note
        return asked

    def reinstated(self) -> list[int]:
        """The editions that this host has put in force again."""
        return [event.edition for event in self.host.events if isinstance(event, EditionReinstated)]


NOTHING: "tuple[set[object], Counter[str]]" = (set(), Counter())


@pytest.fixture
async def life() -> AsyncIterator[Life]:
    """It is noon and ten seconds."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        yield Life(cluster, await cluster.host())


# --- joining again ---------------------------------------------------------------------------------------------------


async def test_a_host_that_was_buried_joins_again_and_goes_on_however_often(life: Life) -> None:
    """SPEC 9.6: callers notice nothing but events."""
    await life.begin("a")
    for number in (1, 2, 3):
        life.bury()
        await life.cluster.advance(minutes=1)
        assert len([event for event in life.host.events if isinstance(event, LeaseLost)]) == number
        assert [host.key for host in life.cluster.memory.living()] == [number + 1]
    assert life.witness.began("a") == ["12:00:10", "12:01:00", "12:02:00", "12:03:00"]
    await life.scheduler.initialize(minutely(life.witness, life.host, "b"))
    await life.cluster.advance(minutes=1)
    assert life.witness.began("b")[-1] == "12:04:00"
    began = life.cluster.now
    await life.scheduler.stop()
    assert life.cluster.now == began
    assert life.cluster.memory.living() == []
    assert await life.left() == NOTHING


async def test_it_joins_again_after_a_sixth_of_a_lease_at_most_by_chance(life: Life) -> None:
    """SPEC 9.6: hosts that were lost at one moment do not come back at one moment."""
    began = life.cluster.now
    await life.begin("a")
    life.bury()
    await life.cluster.advance(seconds=20)
    assert life.cluster.memory.hosts[2].since == microseconds(began + BEAT + PAUSE)


async def test_a_host_that_cannot_join_again_tries_after_longer_and_longer_pauses(life: Life) -> None:
    """SPEC 9.6: up to a lease."""
    attempts: list[datetime] = []

    def refuse(request: str, made: bool) -> None:
        if request == "load" and not made:
            attempts.append(life.cluster.now)
            raise StoreError("not now", store="shared memory")

    began = life.cluster.now
    await life.begin("a")
    life.bury()
    life.host.on_request = refuse
    await life.cluster.advance(seconds=90)
    pauses = [1, 2, 4, 8, 16, 30, 30]
    failed = [event for event in life.host.events if isinstance(event, RejoinFailed)]
    assert [event.retry_in_ms for event in failed] == [1_000 * seconds for seconds in pauses]
    assert {(event.error_type, event.error) for event in failed} == {("StoreError", "not now")}
    waited = [timedelta(seconds=sum(pauses[:number])) for number in range(7)]
    assert attempts == [began + BEAT + PAUSE + seconds for seconds in waited]
    life.host.on_request = None
    await life.cluster.advance(minutes=1)
    assert [host.key for host in life.cluster.memory.living()] == [2]


async def test_a_run_of_a_buried_host_is_waited_for_before_its_task_starts_in_this_process_again(life: Life) -> None:
    """SPEC 9.7: however often that happens; and then it starts at once."""
    steps: list[tuple[str, datetime]] = []

    async def stubborn_in_its_first_attempt() -> None:
        run = duly.current_run()
        assert run is not None
        steps.append(("begins", life.cluster.now))
        try:
            await life.host.sleep(3_600 if run.attempt == 1 else 1)
        except asyncio.CancelledError:
            await life.host.sleep(9)
            steps.append(("has cleaned up", life.cluster.now))
            raise

    await life.scheduler.initialize([("a", "* * * * *", stubborn_in_its_first_attempt, timedelta(seconds=1))])
    for _ in range(3):
        await life.cluster.advance(seconds=1)
        life.bury()
        await life.cluster.advance(seconds=49 if len(steps) == 1 else 59)
    assert [what for what, _ in steps] == ["begins", "has cleaned up", "begins"] * 3 + ["begins"]
    for over, again in zip(steps[1::3], steps[2::3], strict=True):
        assert again[1] - over[1] <= timedelta(seconds=1)


def cleaning_up(life: Life, seconds: float) -> Callable[[], Awaitable[None]]:
    """A callback whose first attempt cleans up for some seconds when it is cancelled."""

    async def work() -> None:
        run = duly.current_run()
        assert run is not None
        life.witness.note(life.host, run.task)
        if run.attempt == 1:
            try:
                await life.host.sleep(3_600)
            except asyncio.CancelledError:
                await life.host.sleep(seconds)
                raise

    return work


async def test_a_run_of_a_buried_host_keeps_its_slot_until_it_has_ended(life: Life) -> None:
    """SPEC 9.6: its host joins again after 7 seconds, and a run of 9 more seconds has the only slot."""
    scheduler = life.host.scheduler(life.store, max_concurrency=1)
    registrations = [
        ("a", "0 12 * * *", cleaning_up(life, 9), timedelta(seconds=1)),
        *minutely(life.witness, life.host, "b"),
    ]
    await scheduler.initialize(registrations)
    await life.cluster.advance(seconds=1)
    assert (life.witness.began("a"), life.witness.began("b")) == (["12:00:10"], [])
    life.bury()
    await life.cluster.advance(seconds=30)
    assert [host.key for host in life.cluster.memory.living()] == [2]
    assert life.witness.began("b") == ["12:00:24"]


async def test_a_task_starts_again_although_another_run_of_its_buried_host_goes_on(life: Life) -> None:
    """SPEC 9.7: each task waits for its own run in this process, and for no other."""
    registrations = [
        ("quick", "0 12 * * *", cleaning_up(life, 1), timedelta(seconds=1)),
        ("slow", "0 12 * * *", cleaning_up(life, 9), timedelta(seconds=1)),
    ]
    await life.scheduler.initialize(registrations)
    await life.cluster.advance(seconds=1)
    life.bury()
    await life.cluster.advance(seconds=30)
    assert life.witness.began("quick") == ["12:00:10", "12:00:17"]
    assert life.witness.began("slow") == ["12:00:10", "12:00:24"]


async def test_a_run_that_ends_before_its_host_has_joined_again_is_no_defect(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    """SPEC 9.6: at once, when it is cancelled."""
    await life.scheduler.initialize(minutely(life.witness, life.host, "a", seconds=3_600))
    await life.cluster.advance(seconds=1)
    caplog.clear()
    with caplog.at_level(logging.ERROR, "duly"):
        life.bury()
        await life.cluster.advance(minutes=1)
    assert {record.event for record in caplog.records} == {"LeaseLost", "TaskRunFenced"}  # type: ignore[attr-defined]
    assert life.witness.began("a") == ["12:00:10", "12:00:17", "12:01:00"][:2]


async def test_an_end_that_was_recorded_just_before_the_burial_keeps_its_task_from_nothing(life: Life) -> None:
    """SPEC 9.7: its answer arrives when the host knows already that it was buried."""
    await life.scheduler.initialize(minutely(life.witness, life.host, "a", seconds=2))
    await life.cluster.advance(seconds=1)
    member = engine_of(life.scheduler).member
    assert member is not None

    def bury(request: str, made: bool) -> None:
        if request == "write" and made:
            life.host.on_request = None
            life.bury()
            member.membership.beat()
            life.host.freeze()

    life.host.on_request = bury
    await life.cluster.advance(seconds=2)
    await life.host.thaw()
    await life.cluster.advance(minutes=1)
    assert [row.outcome for row in life.cluster.memory.runs][:1] == ["success"]
    assert not [event for event in life.host.events if isinstance(event, TaskRunFenced)]
    assert life.witness.began("a") == ["12:00:10", "12:01:00"]


class Records(Sequence[EqualRows]):
    """Records of a store, during whose reading something happens."""

    def __init__(self, records: Sequence[EqualRows], happens: Callable[[], None]) -> None:
        self._records = records
        self._happens = happens

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, place: Any) -> Any:
        return self._records[place]

    def __iter__(self) -> Iterator[EqualRows]:
        yield from self._records
        self._happens()


async def test_a_run_of_a_buried_host_that_ends_while_the_next_one_loads_keeps_its_task_from_nothing(
    life: Life,
) -> None:
    """SPEC 9.7: of a million tasks loading takes a while, in which callbacks take their steps."""
    await life.begin("a")
    engine = engine_of(life.scheduler)
    colleagues, member = engine.colleagues, engine.member
    assert colleagues is not None
    assert member is not None
    member.held_here["a"] = 1

    def end() -> None:
        member.held_here["a"] = 0
        colleagues.released()

    content = life.cluster.memory.load()
    async with engine.loop.lock, engine.journal.still:
        await colleagues.load(replace(content, records=Records(content.records, end)))
    await life.cluster.advance(minutes=2)
    assert life.witness.began("a") == ["12:00:10", "12:01:00", "12:02:00"]


async def test_a_defect_in_a_beat_does_not_end_the_beats(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    """SPEC 9.4: nothing else renews the lease, and a host without one is silent."""
    await life.begin("a")

    def stumble(request: str, made: bool) -> None:
        if request == "beat" and made:
            raise ZeroDivisionError

    life.host.on_request = stumble
    with caplog.at_level(logging.ERROR, "duly"):
        await life.cluster.advance(seconds=40)
    assert "unexpected fault" in caplog.text
    life.host.on_request = None
    await life.cluster.advance(minutes=2)
    assert life.witness.began("a") == ["12:00:10", "12:01:00", "12:02:00"]


class Pools:
    """The threads for callbacks of each host, and whether their ends were waited for."""

    def __init__(self) -> None:
        self.waited: list[bool] = []

    def new(self, size: int) -> Threads:
        """Threads for another host."""
        return Pool(size, self.waited)


class Pool(DaemonThreads):
    """One of them."""

    def __init__(self, size: int, waited: list[bool]) -> None:
        super().__init__(size, "duly-run")
        self._waited = waited

    def close(
        self, last: Callable[[], object] | None = None, *, wait: bool = True, seconds: float = JOIN_SECONDS
    ) -> None:
        self._waited.append(wait)
        super().close(last, wait=wait, seconds=seconds)


async def test_the_threads_of_a_buried_host_end_without_being_waited_for(life: Life) -> None:
    """SPEC 9.6: the event loop goes on."""
    pools = Pools()
    life.host._host = replace(life.host._host, new_pool=pools.new)
    scheduler = life.host.scheduler(life.store)
    await scheduler.initialize(minutely(life.witness, life.host, "a"))
    await life.cluster.advance(seconds=1)
    life.bury()
    await life.cluster.advance(seconds=20)
    assert pools.waited == [False]
    await scheduler.stop()
    assert pools.waited == [False, True]


async def test_a_host_that_is_buried_while_it_loads_joins_again_and_leaves_nothing_behind(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 9.6: it hears of its burial before its loop has begun."""
    life.load_slowly(monkeypatch)
    call = await life.call("a")
    await life.cluster.advance(seconds=8)
    life.bury()
    await life.cluster.advance(minutes=1)
    await call
    assert len([event for event in life.host.events if isinstance(event, LeaseLost)]) == 1
    assert [host.key for host in life.cluster.memory.living()] == [2]
    assert life.witness.began("a")[-1] == "12:01:00"
    await life.scheduler.stop()
    assert await life.left() == NOTHING


# --- initialize() meanwhile ------------------------------------------------------------------------------------------


async def test_an_initialize_waits_until_the_host_has_joined_again(life: Life) -> None:
    """SPEC 9.6, 4.2: and takes effect then, once."""
    await life.begin("a")
    life.bury()
    await life.cluster.advance(seconds=5)
    call = asyncio.create_task(life.scheduler.initialize(minutely(life.witness, life.host, "b")))
    await life.cluster.settle()
    assert not call.done()
    await life.cluster.advance(seconds=10)
    await call
    await life.cluster.advance(minutes=1)
    assert set(life.witness.began("b")) == {"12:00:17", "12:01:00"}
    assert life.witness.began("a") == ["12:00:10"]
    assert [host.key for host in life.cluster.memory.living()] == [2]
    assert +life.store.open == {"writes": 1, "beats": 1}


@pytest.mark.parametrize("rewound", [False, True])
async def test_an_initialize_that_finds_its_host_buried_takes_effect_on_another(life: Life, rewound: bool) -> None:
    """SPEC 9.6, 9.21: no beat has told yet; callers notice nothing but events."""
    await life.begin("a")
    if rewound:
        life.cluster.memory.hosts.clear()
    else:
        life.bury()
    await life.scheduler.initialize(minutely(life.witness, life.host, "b"))
    assert len([event for event in life.host.events if isinstance(event, LeaseLost)]) == 1
    await life.cluster.advance(minutes=2)
    assert life.witness.began("b") == ["12:00:10", "12:01:00", "12:02:00"]
    assert life.witness.began("a") == ["12:00:10"]
    assert [host.key for host in life.cluster.memory.living()] == [2]
    assert +life.store.open == {"writes": 1, "beats": 1}
    await life.scheduler.stop()
    assert await life.left() == NOTHING


async def test_an_initialize_that_was_called_before_its_host_heard_of_its_burial_leaves_one_host(life: Life) -> None:
    """SPEC 4.2: it goes first, and joins; nobody joins after it, and a stop() ends all of it."""
    await life.begin("a")
    life.bury()
    member = engine_of(life.scheduler).member
    assert member is not None
    call = asyncio.create_task(life.scheduler.initialize(minutely(life.witness, life.host, "b")))
    member.membership.beat()
    await life.cluster.settle()
    await call
    await life.cluster.advance(seconds=20)
    assert [host.key for host in life.cluster.memory.living()] == [2]
    await life.scheduler.stop()
    assert life.cluster.memory.living() == []
    assert await life.left() == NOTHING


async def test_an_initialize_that_loads_slowly_when_its_host_hears_of_its_burial_leaves_one_host(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 4.2, 9.6: joining again waits for the calls before it, however long they take."""
    await life.begin("a")
    life.load_slowly(monkeypatch)
    life.bury()
    call = await life.call("b")
    await life.cluster.advance(minutes=1)
    await call
    assert sorted(life.cluster.memory.hosts) == [1, 2]
    await life.scheduler.stop()
    assert await life.left() == NOTHING


async def test_a_buried_host_beats_no_more_when_an_initialize_has_taken_effect_on_another(life: Life) -> None:
    """SPEC 9.6: its connection is released at once, and not when its next beat is refused."""
    await life.begin("a")
    life.bury()
    await life.scheduler.initialize(minutely(life.witness, life.host, "b"))
    await life.cluster.settle()
    assert +life.store.open == {"writes": 1, "beats": 1}


async def test_an_initialize_that_finds_its_host_buried_before_a_stop_asks_for_nothing_more(life: Life) -> None:
    """SPEC 9.19: a host that is buried while it stops does not join again."""
    await life.begin("a")
    life.bury()
    asked = life.listen()
    calls = (life.scheduler.initialize(minutely(life.witness, life.host, "b")), life.scheduler.stop())
    refused, stopped = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(refused, HostGoneError)
    assert isinstance(stopped, StopSchedulerError)
    assert asked.count("replace") == 1
    assert await life.left() == NOTHING


async def test_a_store_that_is_set_back_under_a_first_initialize_is_its_error(life: Life) -> None:
    """SPEC 9.21, 4.1: there is no host yet that could join anew; nothing is left of the call."""
    other = await life.cluster.host()
    await other.scheduler().initialize(minutely(life.witness, other, "a"))
    await life.cluster.advance(seconds=1)
    life.before = asyncio.all_tasks()

    def set_back(request: str, made: bool) -> None:
        if request == "replace" and not made:
            life.cluster.memory.log.clear()

    life.host.on_request = set_back
    with pytest.raises(StoreRewoundError):
        await life.begin("a")
    assert await life.left() == NOTHING


async def test_a_later_initialize_is_an_explicit_act_although_its_host_was_buried(life: Life) -> None:
    """SPEC 9.15: an old set is put in force again, and not taken for that of a host that comes late."""
    await life.begin("a", "b")
    other = await life.cluster.host()
    await life.scheduler.initialize(minutely(life.witness, life.host, "a", "c"))
    await other.scheduler().initialize(minutely(life.witness, other, "a", "c"))
    await life.cluster.advance(seconds=1)
    mine = life.cluster.memory.hosts[1]
    life.cluster.memory.bury(HostIdentity(1, mine.identifier), 1, None)
    await life.scheduler.initialize(minutely(life.witness, life.host, "a", "b"))
    assert life.cluster.memory.edition == 3
    assert {task.name for task in life.cluster.memory.tasks.values() if task.retired_at is None} == {"a", "b"}


async def test_an_initialize_that_is_refused_meanwhile_changes_nothing(life: Life) -> None:
    """SPEC 4.1: the host joins again over the connection that it has."""
    await life.begin("a")
    life.bury()
    await life.cluster.advance(seconds=5)
    with pytest.raises(duly.RegistrationShapeError):
        await life.scheduler.initialize([()])
    assert life.store.open["writes"] == 1
    await life.cluster.advance(minutes=1)
    assert life.witness.began("a") == ["12:00:10", "12:01:00"]
    assert +life.store.open == {"writes": 1, "beats": 1}


async def test_a_first_initialize_that_is_refused_keeps_no_connection(life: Life) -> None:
    """SPEC 9.14, 4.1: the sets of two applications do not mix; nothing is left of the second one."""
    other = await life.cluster.host()
    await other.scheduler().initialize(minutely(life.witness, other, "theirs"))
    await life.cluster.advance(seconds=1)
    life.before = asyncio.all_tasks()
    with pytest.raises(ForeignSetError):
        await life.begin("ours")
    assert await life.left() == NOTHING


async def test_a_refused_initialize_after_a_life_with_a_burial_keeps_no_connection(life: Life) -> None:
    """SPEC 4.1: what was buried and stopped is over."""
    await life.begin("a")
    life.bury()
    await life.cluster.advance(seconds=20)
    await life.scheduler.stop()
    assert await life.left() == NOTHING
    other = await life.cluster.host()
    await other.scheduler().initialize(minutely(life.witness, other, "theirs"))
    await life.cluster.advance(seconds=1)
    life.before = asyncio.all_tasks()
    with pytest.raises(ForeignSetError):
        await life.begin("ours")
    assert await life.left() == NOTHING


# --- stop() meanwhile ------------------------------------------------------------------------------------------------


async def test_a_stop_ends_the_attempts_to_join_again_at_once(life: Life) -> None:
    """SPEC 9.19: buried, and stopped before it came back."""
    await life.begin("a")
    life.bury()
    await life.cluster.advance(seconds=5)
    began = life.cluster.now
    await life.scheduler.stop()
    assert life.cluster.now == began
    assert await life.left() == NOTHING
    await life.cluster.advance(minutes=1)
    assert life.cluster.memory.living() == []


@pytest.mark.parametrize("joins", [False, True])
async def test_a_stop_waits_for_the_runs_of_the_buried_host(life: Life, joins: bool) -> None:
    """SPEC 9.19: whether or not another host has taken its place; their ends are fenced off."""
    cleaned_up: list[datetime] = []

    async def stubborn() -> None:
        try:
            await life.host.sleep(3_600)
        except asyncio.CancelledError:
            await life.host.sleep(9)
            cleaned_up.append(life.cluster.now)
            raise

    began = life.cluster.now
    await life.scheduler.initialize([("a", "0 12 * * *", stubborn, timedelta(hours=1))])
    await life.cluster.advance(seconds=1)
    life.bury()
    await life.cluster.advance(seconds=8 if joins else 5)
    assert len(life.cluster.memory.living()) == joins
    await life.scheduler.stop()
    assert cleaned_up == [began + BEAT + timedelta(seconds=9)]
    assert [event.task_name for event in life.host.events if isinstance(event, TaskRunFenced)] == ["a"]
    assert await life.left() == NOTHING


async def test_nothing_starts_after_a_stop_was_called_behind_an_initialize(life: Life) -> None:
    """SPEC 4.3: it waits for its turn, and is in force already."""
    await life.begin("a")
    calls = (life.scheduler.initialize(minutely(life.witness, life.host, "a", "b")), life.scheduler.stop())
    await asyncio.gather(*calls)
    assert life.witness.began("b") == []
    assert await life.left() == NOTHING


async def test_a_stop_that_is_cancelled_with_all_tasks_releases_the_connection(life: Life) -> None:
    """SPEC 3.11, 4.3: the event loop goes away while the stop() ends the attempts to join again."""
    await life.begin("a")
    life.bury()
    await life.cluster.advance(seconds=5)
    stopping = asyncio.create_task(life.scheduler.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    await life.cancel_all()
    assert stopping.cancelled()
    assert await life.left() == NOTHING


# --- what comes too late ---------------------------------------------------------------------------------------------


async def test_a_beat_that_finds_its_host_gone_because_it_leaves_is_no_loss(life: Life) -> None:
    """SPEC 9.19: it arrives after the leaving, and is answered before it."""
    await life.begin("a")
    member = engine_of(life.scheduler).member
    assert member is not None

    def beat(request: str, made: bool) -> None:
        if request == "leave" and made:
            member.membership.beat()
            life.host.freeze()

    life.host.on_request = beat
    stopping = asyncio.create_task(life.scheduler.stop())
    for _ in range(100):
        await asyncio.sleep(0)
    assert life.host.frozen
    await life.host.thaw()
    await stopping
    assert not [event for event in life.host.events if isinstance(event, LeaseLost)]
    assert await life.left() == NOTHING


async def test_a_loss_that_is_heard_of_after_the_stop_is_nobodys(life: Life) -> None:
    """SPEC 9.19: the last beat may have been on its way."""
    await life.begin("a")
    colleagues = engine_of(life.scheduler).colleagues
    assert colleagues is not None
    await life.scheduler.stop()
    colleagues.lost(StoreError("buried", store="shared memory"))
    assert not [event for event in life.host.events if isinstance(event, LeaseLost)]
    assert await life.left() == NOTHING


async def test_a_loss_that_is_heard_of_while_the_event_loop_goes_away_is_nobodys(life: Life) -> None:
    """SPEC 3.11: everything is released already."""
    await life.begin("a")
    engine = engine_of(life.scheduler)
    assert engine.colleagues is not None
    assert engine.gate.loop_task is not None
    engine.gate.loop_task.cancel()
    await asyncio.wait([engine.gate.loop_task])
    await asyncio.sleep(0)
    engine.colleagues.lost(StoreError("buried", store="shared memory"))
    assert not [event for event in life.host.events if isinstance(event, LeaseLost)]


# --- a set that comes back -------------------------------------------------------------------------------------------


async def test_a_set_that_is_slow_to_come_back_is_declared_once(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 9.17: meanwhile beat after beat says that no host declares the one in force."""
    await life.begin("kept", "old")
    await life.supersede("kept", "new")
    life.load_slowly(monkeypatch)
    asked = life.listen()
    await life.cluster.advance(minutes=3)
    assert life.reinstated() == [1]
    assert asked.count("replace") == 1


async def test_a_set_comes_back_as_often_as_it_is_superseded(life: Life) -> None:
    """SPEC 9.17: by a host that has put it in force again before."""
    await life.begin("kept", "old")
    for _ in range(3):
        await life.supersede("kept", "new")
        assert life.cluster.memory.edition == 2
        await life.cluster.advance(minutes=2)
        assert life.cluster.memory.edition == 1
    assert life.reinstated() == [1, 1, 1]


async def test_a_set_that_is_to_come_back_waits_for_the_calls_before_it(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 4.2: the first of them fails, the second one puts another set in force, and so nothing comes back."""
    await life.begin("kept", "old")
    await life.supersede("kept", "new")
    life.load_slowly(monkeypatch)
    colleagues = engine_of(life.scheduler).colleagues
    assert colleagues is not None
    refused: list[str] = []

    def refuse(request: str, made: bool) -> None:
        if request == "replace" and not made and len(refused) < 2:  # each request is made twice
            refused.append(request)
            raise StoreError("not now", store="shared memory")

    life.host.on_request = refuse
    calls = [await life.call("kept", "refused"), await life.call("kept", "newer")]
    colleagues.deserted()
    await life.cluster.advance(seconds=40)
    failed, succeeded = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(failed, ScheduleTaskError)
    assert succeeded is None
    assert life.reinstated() == []
    in_force = {task.name for task in life.cluster.memory.tasks.values() if task.retired_at is None}
    assert (life.cluster.memory.edition, in_force) == (3, {"kept", "newer"})


async def test_no_set_comes_back_by_a_host_that_stops(life: Life) -> None:
    """SPEC 9.17, 4.3: the stop() was called in the moment in which it was about to, and comes first."""
    await life.begin("kept", "old")
    await life.supersede("kept", "new")
    colleagues = engine_of(life.scheduler).colleagues
    assert colleagues is not None
    colleagues.deserted()
    await life.scheduler.stop()
    assert life.reinstated() == []
    assert life.cluster.memory.edition == 2
    assert await life.left() == NOTHING


# --- another event loop ----------------------------------------------------------------------------------------------


def test_a_run_of_a_buried_host_that_ended_with_its_event_loop_keeps_its_task_from_nothing() -> None:
    """SPEC 9.7, 3.11: the scheduler is used again, on another event loop, and its one slot is free."""
    memory = SharedMemory(lambda: Instant(SystemClock().now()), lambda: uuid.uuid4().hex)
    lost: list[asyncio.Event] = []

    def listen(event: Event) -> None:
        if isinstance(event, LeaseLost):
            lost[-1].set()

    store = MemoryStore(memory, lease=timedelta(seconds=1))
    scheduler = duly.Scheduler(store, max_concurrency=1, on_event=listen)

    async def life(*, is_buried: bool) -> None:
        began = asyncio.Event()

        async def stubborn() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if is_buried:
                    await asyncio.Event().wait()  # its clean-up, which the end of the event loop cuts short
                raise

        lost.append(asyncio.Event())
        await scheduler.initialize([("a", "* * * * *", stubborn, timedelta(seconds=1))])
        await asyncio.wait_for(began.wait(), PATIENCE_SECONDS)
        if is_buried:
            (host,) = memory.living()
            memory.bury(HostIdentity(host.key, host.identifier), host.key, None)
            await asyncio.wait_for(lost[-1].wait(), PATIENCE_SECONDS)

    asyncio.run(life(is_buried=True))
    asyncio.run(life(is_buried=False))


class Buried:
    """A scheduler on a real event loop that was closed under it; a run of its buried host does not end."""

    def __init__(self, *, joins: bool) -> None:
        self.told: list[Event] = []
        self._memory = SharedMemory(lambda: Instant(SystemClock().now()), lambda: uuid.uuid4().hex)
        self._lost = asyncio.Event()
        store = MemoryStore(self._memory, lease=timedelta(seconds=1))
        self.scheduler = duly.Scheduler(store, on_event=self._hear)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(self._live(joins=joins))
        self._pending: list[Any] = list(asyncio.all_tasks(loop))
        loop.close()

    def _hear(self, event: Event) -> None:
        self.told.append(event)
        if isinstance(event, LeaseLost):
            self._lost.set()

    async def _live(self, *, joins: bool) -> None:
        began = asyncio.Event()

        async def stubborn() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()

        await self.scheduler.initialize([("a", "* * * * *", stubborn, timedelta(seconds=1))])
        await asyncio.wait_for(began.wait(), PATIENCE_SECONDS)
        (host,) = self._memory.living()
        self._memory.bury(HostIdentity(host.key, host.identifier), host.key, None)
        await asyncio.wait_for(self._lost.wait(), PATIENCE_SECONDS)
        if joins:
            await asyncio.wait_for(self.declare(), PATIENCE_SECONDS)  # which waits until it has joined again

    async def declare(self) -> None:
        """Declare a task that is not due."""
        await self.scheduler.initialize([("b", "0 0 1 1 *", lambda: None, timedelta(seconds=1))])

    async def declare_and_stop(self) -> None:
        """One life on the event loop that runs now."""
        await self.declare()
        await asyncio.wait_for(self.scheduler.stop(), PATIENCE_SECONDS)

    def begun(self) -> list[type[Event]]:
        """The events of the calls that took effect, or tried to."""
        kinds = (SchedulerInitializationStarted, SchedulerReinitializationStarted)
        return [type(event) for event in self.told if isinstance(event, kinds)]

    def forsake(self) -> None:
        """End the tasks of the event loop that was closed; asyncio would complain about them."""
        for task in self._pending:
            task._log_destroy_pending = False
            with contextlib.suppress(RuntimeError):
                task.get_coro().close()


def test_an_initialize_is_a_first_one_after_an_event_loop_was_closed_on_which_a_host_was_to_join_again() -> None:
    """SPEC 3.11: nothing was cancelled, and nobody joins on the next event loop but by a call."""
    buried = Buried(joins=False)
    asyncio.run(buried.declare())
    assert buried.begun() == [SchedulerInitializationStarted] * 2
    buried.forsake()


def test_a_stop_does_not_wait_for_runs_of_a_buried_host_whose_event_loop_was_closed() -> None:
    """SPEC 3.11: nothing was cancelled, and they will never end."""
    buried = Buried(joins=True)
    asyncio.run(buried.declare_and_stop())
    first, later = SchedulerInitializationStarted, SchedulerReinitializationStarted
    assert buried.begun() == [first, later, first]
    buried.forsake()


def test_a_stop_on_another_event_loop_does_not_wake_an_attempt_to_join_that_was_closed_with_its_own() -> None:
    """SPEC 4.3: waking it raised after the stop() was counted, so that no later call had its turn."""
    buried = Buried(joins=False)

    async def two_lives() -> None:
        await buried.declare_and_stop()
        await buried.declare_and_stop()

    asyncio.run(two_lives())
    assert buried.begun() == [SchedulerInitializationStarted] * 3
    buried.forsake()


@pytest.mark.parametrize("joins", [False, True])
async def test_a_scheduler_whose_tasks_were_all_cancelled_after_a_burial_begins_anew(life: Life, joins: bool) -> None:
    """SPEC 3.11: whether or not another host had taken the place of the buried one."""
    await life.begin("a")
    life.bury()
    await life.cluster.advance(seconds=20 if joins else 5)
    assert len(life.cluster.memory.living()) == joins
    await life.cancel_all()
    life.host.events.clear()
    await life.scheduler.initialize(minutely(life.witness, life.host, "a"))
    kinds = (SchedulerInitializationStarted, SchedulerReinitializationStarted)
    begun = [type(event) for event in life.host.events if isinstance(event, kinds)]
    assert begun == [SchedulerInitializationStarted]


# --- connections -----------------------------------------------------------------------------------------------------


async def test_a_connection_for_writes_that_is_not_used_for_five_minutes_is_released_once(life: Life) -> None:
    """A database has a limited number of connections; the next write makes another, and that of the beats stays."""
    hourly = [("report", "30 * * * *", lambda: None, timedelta(minutes=1))]
    await life.scheduler.initialize(hourly)
    begun = life.store.open["writes"]
    await life.cluster.advance(minutes=4)
    assert life.store.open["writes"] == begun
    await life.cluster.advance(minutes=20)
    assert life.store.open["writes"] == begun - 1
    await life.cluster.advance(minutes=20)  # a run at half past, and five minutes without a write after it
    assert life.store.open["writes"] == begun - 2
    assert life.store.open["beats"] == 1
    await life.scheduler.stop()
