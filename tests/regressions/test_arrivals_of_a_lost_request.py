"""A host sent new declarations, and the request that was to put them in force got lost: a later one never ended.

The store compares what has arrived with what a request speaks of. The later request had nothing new, so the host
sent nothing, the store found the old declarations, said that the host should compare again, and so on.
"""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from duly.core.moments import Delay
from duly.stores.shared import Arrival
from duly.testing import SimulatedCluster
from tests.cluster.witness import Witness, minutely


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=timedelta(seconds=30)) as cluster:
        yield cluster


async def test_a_declaration_without_anything_new_takes_effect_after_one_that_got_lost(
    cluster: SimulatedCluster,
) -> None:
    """SPEC 9.15."""
    witness, host = Witness(cluster), await cluster.host()
    scheduler = host.scheduler()
    await scheduler.initialize(minutely(witness, host, "kept", "old"))
    (row,) = cluster.memory.living()
    cluster.memory.arrive(row.identifier, [Arrival("never in force", "* * * * *", Delay(0))])
    await scheduler.initialize(minutely(witness, host, "kept"))
    assert [task.name for task in cluster.memory.tasks.values() if task.retired_at is None] == ["kept"]
    assert cluster.memory.arriving == {}
