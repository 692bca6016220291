"""A call of initialize() that was cancelled closed the connections with which the first one was just joining.

The first one succeeded, but what it had declared was forgotten: after a burial the host joined again without any task,
and withdrew those of the store.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from duly.engine.shared_lifecycle import SharedLifecycle
from duly.errors import StopSchedulerError
from duly.testing import SimulatedCluster
from duly.testing.cluster import ClusterHost
from tests.cluster.witness import Witness, minutely
from tests.engine.helpers import load_slowly


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=timedelta(seconds=30)) as cluster:
        yield cluster


@pytest.fixture
async def host(cluster: SimulatedCluster) -> ClusterHost:
    return await cluster.host()


@pytest.fixture
def slow_load(host: ClusterHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host needs ten seconds to load."""
    load_slowly(host, monkeypatch, seconds=10)


@pytest.mark.usefixtures("slow_load")
async def test_a_host_that_was_buried_declares_again_what_the_first_call_declared(
    cluster: SimulatedCluster, host: ClusterHost
) -> None:
    """SPEC 4.2, 9.6: a call that is cancelled before its turn changes nothing."""
    witness, scheduler = Witness(cluster), host.scheduler()
    first = asyncio.ensure_future(scheduler.initialize(minutely(witness, host, "report", "backup")))
    await cluster.advance(seconds=1)
    assert not first.done()
    second = asyncio.ensure_future(scheduler.initialize(minutely(witness, host, "report")))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await cluster.advance(seconds=40)
    await first
    other = await cluster.host()
    joining = asyncio.ensure_future(other.scheduler().initialize(minutely(witness, other, "report", "backup")))
    await cluster.advance(seconds=40)
    await joining
    host.freeze()
    await cluster.advance(seconds=90)
    await host.thaw()
    other.die()
    await cluster.advance(minutes=5)
    assert {cluster.memory.tasks[generation].name for generation in cluster.memory.states} == {"report", "backup"}
    await scheduler.stop()


async def test_a_stop_that_raises_waits_for_runs_of_a_buried_host_and_then_lets_go(
    cluster: SimulatedCluster, host: ClusterHost
) -> None:
    """SPEC 9.19: as one that returns does; a connection stayed open, and nobody waited for the run."""
    other = await cluster.host()
    scheduler = host.scheduler()

    async def reluctant() -> None:
        try:
            await host.sleep(timedelta(hours=1).total_seconds())
        finally:
            await host.sleep(60)  # cleans up

    async def at_once() -> None: ...

    await scheduler.initialize([("reluctant", "* * * * *", reluctant, timedelta(0))])
    await cluster.advance(minutes=1)
    await other.scheduler().initialize([("reluctant", "* * * * *", at_once, timedelta(0))])
    host.freeze()
    await cluster.advance(seconds=90)
    await host.thaw()
    await cluster.advance(seconds=20)
    lifecycle = scheduler._lifecycle
    assert isinstance(lifecycle, SharedLifecycle)
    assert len(lifecycle._fading) == 1
    cluster.is_down = True
    with pytest.raises(StopSchedulerError):
        await scheduler.stop()
    assert not lifecycle._fading
    assert lifecycle._cluster is None
