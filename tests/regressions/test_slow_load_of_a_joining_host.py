"""A host that joined began to beat after its load: if that was slow, it was buried before its first beat."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from duly.core.moments import MICROSECONDS
from duly.events import HostLost, LeaseLost, LeaseSuspended
from duly.testing import SimulatedCluster
from duly.testing.cluster import HostThreads
from tests.engine.pods import Pod, joined, yearly

LOADING_SECONDS = 60


async def test_a_host_that_takes_two_leases_to_load_joins_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 9.4: beats begin when the store has answered that the host is on record."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC") as cluster:
        first = await joined(cluster, yearly("a"))
        second = Pod(cluster, await cluster.host())
        clock, quickly = second.host._clock, HostThreads.run

        async def slowly(self: HostThreads, call: Callable[[], Any]) -> Any:
            answer = await quickly(self, call)
            if getattr(call, "__name__", "") == "load" and len(cluster.memory.hosts) == 2:
                await clock.sleep_until(clock.now() + LOADING_SECONDS * MICROSECONDS, asyncio.Event())
            return answer

        monkeypatch.setattr(HostThreads, "run", slowly)
        declaring = asyncio.ensure_future(second.declare(yearly("a", "b")))
        await cluster.advance(seconds=LOADING_SECONDS + 1)
        assert declaring.done()
        assert cluster.memory.hosts[2].beat >= LOADING_SECONDS // 5
        await cluster.advance(seconds=10)
        assert first.told(HostLost) == []
        assert [second.told(kind) for kind in (LeaseLost, LeaseSuspended)] == [[], []]
        assert second.names() == {"a", "b"}
