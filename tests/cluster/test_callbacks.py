"""Callbacks of every shape when the lease of their host is lost or not trusted (SPEC 9.6, 9.7)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

import duly
from duly.engine.runner import Runner
from duly.errors import LeaseLostError, StopSchedulerError
from duly.events import Event, LeaseLost, LeaseResumed, LeaseSuspended, TaskRunFenced, TaskRunStarted
from duly.testing import SimulatedCluster
from duly.testing.cluster import ClusterHost
from tests.cluster.guards import THREAD_GATE, take_out_of_a_host
from tests.cluster.witness import Witness, minutely

LEASE = timedelta(seconds=30)


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    """It is noon."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        yield cluster


@pytest.fixture
def witness(cluster: SimulatedCluster) -> Witness:
    """Nothing has run."""
    return Witness(cluster)


@dataclass
class Diary:
    """The deeds of a callback's parts, with their moments."""

    cluster: SimulatedCluster
    lines: list[tuple[datetime, str]] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.lines.append((self.cluster.now, what))

    def since(self, moment: datetime) -> list[str]:
        return [what for at, what in self.lines if at >= moment]

    async def part(self, host: ClusterHost, name: str) -> None:
        """Take a step each second for ten minutes; say if that was cut short."""
        try:
            for _ in range(600):
                await host.sleep(1)
                self.note(f"{name} steps")
        except asyncio.CancelledError:
            self.note(f"{name} is cancelled")
            raise


Shape = Callable[[ClusterHost, Diary], Awaitable[object]]


async def plain(host: ClusterHost, diary: Diary) -> None:
    await diary.part(host, "one")


async def gathered(host: ClusterHost, diary: Diary) -> None:
    await asyncio.gather(diary.part(host, "one"), diary.part(host, "two"))


async def grouped(host: ClusterHost, diary: Diary) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(diary.part(host, "one"))
        group.create_task(diary.part(host, "two"))


async def grouped_and_busy_itself(host: ClusterHost, diary: Diary) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(diary.part(host, "one"))
        await diary.part(host, "two")


async def waited_for(host: ClusterHost, diary: Diary) -> None:
    await asyncio.wait_for(diary.part(host, "one"), 3600)


async def limited(host: ClusterHost, diary: Diary) -> None:
    async with asyncio.timeout(3600):
        await diary.part(host, "one")


async def shielded(host: ClusterHost, diary: Diary) -> None:
    part = asyncio.ensure_future(diary.part(host, "one"))
    try:
        await asyncio.shield(part)
    finally:
        part.cancel()


SHAPES: dict[Shape, set[str]] = {
    plain: {"one"},
    gathered: {"one", "two"},
    grouped: {"one", "two"},
    grouped_and_busy_itself: {"one", "two"},
    waited_for: {"one"},
    limited: {"one"},
    shielded: {"one"},
}
"""Callbacks, with the names of their parts."""


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
async def test_every_part_of_a_callback_ends_when_the_lease_is_lost(
    cluster: SimulatedCluster, witness: Witness, shape: Shape
) -> None:
    """Tasks that it spawned may take the step that was due; then each is cancelled, by asyncio's own rules."""
    first, second, diary = await cluster.host(), await cluster.host(), Diary(cluster)

    async def work() -> None:
        await shape(first, diary)

    await first.scheduler().initialize([("long", "* * * * *", work, timedelta(seconds=30))])
    await second.scheduler().initialize(minutely(witness, second, "long", seconds=30, steps=30))
    await cluster.advance(seconds=20)
    first.freeze()
    await cluster.advance(seconds=90)
    await first.thaw()
    woken = cluster.now
    await cluster.advance(seconds=10)
    done = diary.since(woken)
    parts = SHAPES[shape]
    assert {line for line in done if line.endswith("cancelled")} == {f"{name} is cancelled" for name in parts}
    assert len([line for line in done if line.endswith("steps")]) <= (0 if shape in (plain, limited) else len(parts))
    assert [type(event) for event in first.events if isinstance(event, LeaseLost | TaskRunFenced)] == [
        LeaseLost,
        TaskRunFenced,
    ]
    await cluster.advance(minutes=3)
    assert {host.key for host in cluster.memory.living()} == {2, 3}
    assert {record.outcome for record in cluster.memory.runs} == {"interrupted", "success"}


async def test_spawned_tasks_that_ask_before_they_act_do_nothing_while_the_lease_is_not_trusted(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.7: what is not held can ask."""
    first, second, diary = await cluster.host(), await cluster.host(), Diary(cluster)

    async def part() -> None:
        run = duly.current_run()
        assert run is not None
        for _ in range(600):
            await first.sleep(1)
            run.check()
            diary.note("acts")

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(part())

    await first.scheduler().initialize([("long", "* * * * *", work, timedelta(seconds=30))])
    await second.scheduler().initialize(minutely(witness, second, "long", seconds=30, steps=30))
    await cluster.advance(seconds=20)
    first.cut_off = True
    cut = cluster.now
    await cluster.advance(minutes=3)
    acted = [at for at, _ in diary.lines if at > cut]
    assert acted
    assert max(acted) <= cut + LEASE
    assert witness.of("long")[0].began > max(acted)


@pytest.mark.parametrize("swallows", [False, True], ids=["passes it on", "swallows it"])
async def test_clean_up_has_a_third_of_the_lease_and_then_no_step_any_more(
    cluster: SimulatedCluster, witness: Witness, swallows: bool
) -> None:
    """SPEC 9.6: a callback that goes on regardless is cancelled at every step."""
    first, second, diary = await cluster.host(), await cluster.host(), Diary(cluster)

    async def work() -> None:
        try:
            await first.sleep(3600)
        except LeaseLostError:
            for _ in range(100):
                try:
                    await first.sleep(1)
                    diary.note("cleans up")
                except LeaseLostError:
                    diary.note("is told again")
                    if not swallows:
                        raise

    await first.scheduler().initialize([("long", "* * * * *", work, timedelta(seconds=30))])
    await second.scheduler().initialize(minutely(witness, second, "long", seconds=30, steps=30))
    await cluster.advance(seconds=20)
    first.freeze()
    await cluster.advance(seconds=90)
    await first.thaw()
    woken = cluster.now
    await cluster.advance(minutes=3)
    cleaned = [at for at, what in diary.lines if what == "cleans up"]
    assert len(cleaned) in (9, 10)
    assert max(cleaned) <= woken + LEASE / 3
    assert [what for _, what in diary.lines].count("is told again") == (1 if not swallows else 100 - len(cleaned))
    assert [event.task_name for event in first.events if isinstance(event, TaskRunFenced)] == ["long"]


# --- threads ---------------------------------------------------------------------------------------------------------


@dataclass
class Desk:
    """Blocking callbacks of one minutely task on several hosts, and the calls of them."""

    cluster: SimulatedCluster
    calls: list[tuple[int, datetime]] = field(default_factory=list)
    """On which host, and when."""

    async def host(self, **options: Any) -> ClusterHost:
        host = await self.cluster.host()

        def note() -> None:
            self.calls.append((host.number, self.cluster.now))

        await host.scheduler(**options).initialize([("report", "* * * * *", note, timedelta(seconds=30))])
        return host

    def since(self, moment: datetime) -> list[tuple[int, datetime]]:
        return [(number, at) for number, at in self.calls if at >= moment]


async def frozen_before_the_answer(desk: Desk, *hosts: ClusterHost) -> ClusterHost:
    """The host that was granted the start of the next minute, and is frozen before the answer reaches it."""

    def freeze(host: ClusterHost, request: str, made: bool) -> None:
        if request == "write" and made:
            for each in hosts:
                each.on_request = None
            host.freeze()

    for host in hosts:
        host.on_request = partial(freeze, host)
    await desk.cluster.advance(seconds=60 - desk.cluster.now.second)
    (frozen,) = (host for host in hosts if host.frozen)
    assert desk.since(desk.cluster.now) == []
    return frozen


async def an_answer_after_the_burial(cluster: SimulatedCluster) -> None:
    """SPEC 9.6: the start was granted, but its callback never begins; the other host has repeated the run."""
    desk = Desk(cluster)
    hosts = [await desk.host(), await desk.host()]
    await cluster.advance(seconds=20)
    frozen = await frozen_before_the_answer(desk, *hosts)
    (other,) = (host for host in hosts if host is not frozen)
    granted = cluster.now
    await cluster.advance(seconds=50)
    ((number, again),) = desk.since(granted)
    assert number == other.number
    assert again >= granted + LEASE
    await cluster.advance(seconds=5)
    await frozen.thaw()
    await cluster.advance(seconds=1)
    assert desk.since(again) == [(other.number, again)]
    assert [event.task_name for event in frozen.events if isinstance(event, TaskRunFenced)] == ["report"]


async def an_answer_without_trust(cluster: SimulatedCluster) -> None:
    """SPEC 9.6: with nobody to bury its host, the callback begins when a beat is answered again, and once."""
    desk = Desk(cluster)
    host = await desk.host()
    await cluster.advance(seconds=20)
    await frozen_before_the_answer(desk, host)
    granted = cluster.now
    await cluster.advance(seconds=35)
    host.cut_off = True
    await host.thaw()
    await cluster.advance(seconds=12)
    assert desk.since(granted) == []
    host.cut_off = False
    await cluster.advance(seconds=10)
    ((_, began),) = desk.since(granted)
    assert began >= granted + timedelta(seconds=47)
    told = [type(event) for event in host.events if isinstance(event, LeaseSuspended | LeaseResumed | TaskRunFenced)]
    assert told == [LeaseSuspended, LeaseResumed]
    assert [record.outcome for record in cluster.memory.runs] == ["success", "success"]


async def a_thread_that_wakes_without_trust(cluster: SimulatedCluster) -> None:
    """SPEC 9.6: the lease was trusted when the thread was asked to call, and is not when the thread gets to it."""
    desk = Desk(cluster)

    def freeze(event: Event) -> None:  # which is announced when the start is durable, before the call
        (host,) = cluster.hosts
        if isinstance(event, TaskRunStarted) and len(host.starts("report")) == 2:
            host.freeze()

    host = await desk.host(on_event=freeze)
    await cluster.advance(seconds=50)
    frozen = cluster.now
    assert host.frozen
    assert desk.since(frozen) == []
    await cluster.advance(seconds=35)
    host.cut_off = True
    await host.thaw()
    await cluster.advance(seconds=12)
    assert desk.since(frozen) == []
    host.cut_off = False
    await cluster.advance(seconds=10)
    assert len(desk.since(frozen)) == 1


LATE = (an_answer_after_the_burial, an_answer_without_trust, a_thread_that_wakes_without_trust)
"""Blocking callbacks whose turn comes when their host may not begin them."""


@pytest.mark.parametrize("late", LATE, ids=lambda late: late.__name__)
async def test_a_blocking_callback_does_not_begin_without_a_lease(
    cluster: SimulatedCluster, late: Callable[[SimulatedCluster], Awaitable[None]]
) -> None:
    await late(cluster)


@pytest.mark.parametrize("late", LATE, ids=lambda late: late.__name__)
async def test_without_the_thread_gate_it_does(
    cluster: SimulatedCluster,
    late: Callable[[SimulatedCluster], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test before can object."""
    monkeypatch.setattr(Runner, "_call_in_thread", vars(Runner)["_call_in_thread"])  # so that it is put back afterwards
    take_out_of_a_host({THREAD_GATE})
    with pytest.raises(AssertionError):
        await late(cluster)


# --- stopping --------------------------------------------------------------------------------------------------------


async def test_a_stop_while_steps_are_held_waits_for_the_store(cluster: SimulatedCluster, witness: Witness) -> None:
    """SPEC 9.19: the store comes back in time, the run goes on, ends and is recorded."""
    host = await cluster.host()
    scheduler = host.scheduler()
    await scheduler.initialize(minutely(witness, host, "long", seconds=90, steps=90))
    await cluster.advance(seconds=20)
    cluster.is_down = True
    await cluster.advance(seconds=40)
    assert any(isinstance(event, LeaseSuspended) for event in host.events)
    stopping = asyncio.create_task(scheduler.stop())
    await cluster.advance(seconds=20)
    assert not stopping.done()
    cluster.is_down = False
    await cluster.advance(seconds=60)
    await stopping
    assert witness.of("long")[0].outcome == "returned"
    assert any(isinstance(event, LeaseResumed) for event in host.events)
    assert cluster.memory.living() == []


async def test_a_stop_while_steps_are_held_gives_up_after_half_a_minute_without_a_beat(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.19: held runs are torn down, nothing is recorded, and it is said."""
    host = await cluster.host()
    scheduler = host.scheduler()
    await scheduler.initialize(minutely(witness, host, "long", seconds=300, steps=300))
    await cluster.advance(seconds=20)
    cluster.is_down = True
    await cluster.advance(seconds=40)
    stopping = asyncio.create_task(scheduler.stop())
    await cluster.advance(seconds=25)
    assert not stopping.done()
    await cluster.advance(seconds=10)
    with pytest.raises(StopSchedulerError, match="no beat"):
        await stopping
    assert witness.of("long")[0].outcome == "cancelled"
    assert cluster.memory.runs == []


# --- the fence -------------------------------------------------------------------------------------------------------


async def test_the_fence_of_a_run_grows_with_every_start_of_its_task_on_whichever_host(
    cluster: SimulatedCluster,
) -> None:
    """SPEC 9.7: what guards an effect outside of the store; runs that start together have one."""
    fences: list[tuple[int, str, int | None]] = []

    def noting(host: ClusterHost, name: str) -> Callable[[], Awaitable[None]]:
        async def note() -> None:
            run = duly.current_run()
            assert run is not None
            fences.append((host.number, name, run.fence))

        return note

    for _ in range(2):
        host = await cluster.host()
        await host.scheduler().initialize(
            [(name, "* * * * *", noting(host, name), timedelta(0)) for name in ("a", "b", "c", "d")]
        )
    await cluster.advance(minutes=5)
    assert {number for number, _, _ in fences} == {1, 2}
    for name in ("a", "b", "c", "d"):
        of_task = [fence for _, each, fence in fences if each == name]
        assert len(of_task) == 6
        assert None not in of_task
        assert of_task == sorted(set(of_task), key=lambda fence: fence or 0)
