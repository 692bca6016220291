"""A run that waited for long heard of the burial of its host only when its wait was over, and gave up its slot early.

The loss of the lease reached a coroutine at its next step. One that slept for an hour was not cancelled for an hour,
and its task could not start in that process meanwhile. And the host that took the place of the buried one counted its
own runs alone, so that `max_concurrency` was exceeded while runs of the old one cleaned up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from duly.events import TaskRunFenced
from duly.testing import SimulatedCluster
from duly.testing.cluster import ClusterHost
from tests.cluster.witness import Witness, minutely

LEASE = timedelta(seconds=60)
CLEAN_UP_SECONDS = 18


async def buried_and_back(cluster: SimulatedCluster, host: ClusterHost, other: ClusterHost) -> None:
    """Freeze a host until the other one has buried it, let that one die, and let the first one go on."""
    await cluster.advance(seconds=2)
    host.freeze()
    await cluster.advance(seconds=110)
    await other.crash()
    await host.thaw()


async def test_a_run_that_waits_for_long_is_cancelled_as_soon_as_its_host_knows_of_its_burial() -> None:
    """SPEC 9.6: at once, and not when its next step comes."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        witness, host, other = Witness(cluster), await cluster.host(), await cluster.host()
        await host.scheduler().initialize(minutely(witness, host, "long", seconds=3_600))
        await cluster.advance(seconds=1)
        await other.scheduler().initialize(minutely(witness, other, "long", seconds=3_600))
        await buried_and_back(cluster, host, other)
        assert witness.of("long")[0].outcome == "cancelled"
        assert [event.task_name for event in host.events if isinstance(event, TaskRunFenced)] == ["long"]


async def test_a_run_that_cleans_up_after_the_burial_of_its_host_keeps_its_slot() -> None:
    """SPEC 9.6, 3.10: `max_concurrency` counts it together with the runs of the host that came after it."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        under_way: set[str] = set()
        together: list[set[str]] = []

        def callback(host: ClusterHost, name: str) -> Callable[[], Awaitable[None]]:
            async def work() -> None:
                if host.number == 1:
                    under_way.add(name)
                    together.append(set(under_way))
                try:
                    await host.sleep(3_600 if name == "long" else 1)
                except asyncio.CancelledError:
                    await host.sleep(CLEAN_UP_SECONDS)
                    raise
                finally:
                    under_way.discard(name)

            return work

        host, other = await cluster.host(), await cluster.host()
        for each in (host, other):
            await each.scheduler(max_concurrency=1).initialize(
                [
                    ("long", "0 12 * * *", callback(each, "long"), timedelta(seconds=1)),
                    ("short", "* * * * *", callback(each, "short"), timedelta(seconds=1)),
                ]
            )
            await cluster.advance(seconds=1)
        await buried_and_back(cluster, host, other)
        await cluster.advance(seconds=CLEAN_UP_SECONDS - 1)
        assert together == [{"long"}]
        await cluster.advance(seconds=3)
        assert together == [{"long"}, {"short"}]


async def test_a_task_whose_old_run_has_ended_starts_again_while_others_of_its_host_clean_up() -> None:
    """SPEC 9.7: a host that came back waits for the old run of each task, and for no other."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        began: list[tuple[int, str]] = []

        def callback(host: ClusterHost, name: str) -> Callable[[], Awaitable[None]]:
            async def work() -> None:
                began.append((host.number, name))
                try:
                    await host.sleep(3_600 if host.number == 1 else 1)
                except asyncio.CancelledError:
                    await host.sleep(CLEAN_UP_SECONDS if name == "slow" else 1)
                    raise

            return work

        host, other = await cluster.host(), await cluster.host()
        schedulers = [each.scheduler() for each in (host, other)]
        for each, scheduler in zip((host, other), schedulers, strict=True):
            await scheduler.initialize(
                [(name, "* * * * *", callback(each, name), timedelta(seconds=1)) for name in ("slow", "quick")]
            )
            await cluster.advance(seconds=1)
        assert began == [(1, "slow"), (1, "quick")]
        host.freeze()
        await cluster.advance(seconds=103)
        assert sorted(set(began)) == [(1, "quick"), (1, "slow"), (2, "quick"), (2, "slow")]
        began.clear()
        await schedulers[1].stop()
        await host.thaw()
        await cluster.advance(seconds=CLEAN_UP_SECONDS - 1)  # it is 12:02:12
        assert began == [(1, "quick")]
        await cluster.advance(seconds=3)
        assert began == [(1, "quick"), (1, "slow")]
