"""A host joined and then could not load: its journal went on waiting for work, as a task of the event loop."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from duly.events import LeaseLost, RejoinFailed
from duly.stores.shared import SharedContent
from duly.testing import SimulatedCluster
from tests.cluster.witness import Witness, minutely


class UnreadableError(Exception):
    """Something that nobody expects."""


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=timedelta(seconds=30)) as cluster:
        yield cluster


def fail_at_load(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, *, number: int) -> None:
    """Let the load of this number fail; they count from now."""
    load, loads = cluster.memory.load, 0

    def counted() -> SharedContent:
        nonlocal loads
        loads += 1
        if loads == number:
            raise UnreadableError("the store says nonsense")
        return load()

    monkeypatch.setattr(cluster.memory, "load", counted)


def tasks_of_duly() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("duly-")]


async def test_nothing_is_left_of_a_host_that_could_not_load(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, witness = await cluster.host(), Witness(cluster)
    scheduler = host.scheduler()
    fail_at_load(cluster, monkeypatch, number=2)  # the first one is before it joins
    with pytest.raises(UnreadableError):
        await scheduler.initialize(minutely(witness, host, "report"))
    await cluster.settle()
    assert tasks_of_duly() == []
    await scheduler.initialize(minutely(witness, host, "report"))
    await cluster.advance(minutes=2)
    assert len(witness.of("report")) == 3


async def test_a_host_that_was_buried_tries_to_join_again_whatever_went_wrong(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 9.6: an error that nobody expects does not end its attempts."""
    first, second = await cluster.host(), await cluster.host()
    witness = Witness(cluster)
    for host in (first, second):
        await host.scheduler().initialize(minutely(witness, host, "report"))
    await cluster.advance(minutes=1)
    first.freeze()
    await cluster.advance(seconds=90)
    fail_at_load(cluster, monkeypatch, number=1)
    await first.thaw()
    await cluster.advance(seconds=30)
    assert [type(event) for event in first.events if isinstance(event, LeaseLost | RejoinFailed)] == [
        LeaseLost,
        RejoinFailed,
    ]
    assert {host.key for host in cluster.memory.living()} == {2, 3}
