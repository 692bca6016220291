"""A run was written off in the store while it went on: its host started the task a second time beside it.

Somebody frees a task with `update states set run = null`. When the host loaded anew, it took the task for one that
waits, and started it in the same process; of the two runs one was never recorded, and the task was stuck.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise

import pytest

from duly.events import StoreFault, StoreRecovered, TaskRunFenced
from duly.testing import SimulatedCluster
from tests.cluster.witness import Witness, minutely


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=timedelta(seconds=30)) as cluster:
        yield cluster


def write_off(cluster: SimulatedCluster, generation: int) -> None:
    """`update states set run = null, run_cause = null, run_scheduled = null` for one task."""
    state = cluster.memory.states[generation]
    state.run = state.run_cause = state.run_scheduled = None


async def test_a_host_does_not_start_a_task_whose_run_goes_on_in_its_process(cluster: SimulatedCluster) -> None:
    witness, host = Witness(cluster), await cluster.host()
    tasks = [
        *minutely(witness, host, "long", seconds=150, steps=150),
        *minutely(witness, host, "short", seconds=20, steps=20),
    ]
    await host.scheduler().initialize(tasks)
    await cluster.advance(seconds=5)
    for generation in list(cluster.memory.states):
        write_off(cluster, generation)
    await cluster.advance(minutes=10, seconds=25)
    assert witness.overlaps() == []
    assert [event.task_name for event in host.events if isinstance(event, TaskRunFenced)] == ["short", "long"]
    assert {run.outcome for run in witness.of("short")} == {"returned"}
    assert [began[3:5] for began in witness.began("long")] == ["00", "02", "05", "07", "10"]
    assert [row.outcome for row in cluster.memory.runs if row.generation == 1] == ["success"] * 3


async def test_another_host_may_start_it_and_this_one_goes_on_when_its_run_has_ended(cluster: SimulatedCluster) -> None:
    """Freeing a task by hand is the word of whoever did it; what goes on here stays fenced off."""
    witness, first, second = Witness(cluster), await cluster.host(), await cluster.host()
    for host in (first, second):
        await host.scheduler().initialize(minutely(witness, host, "long", seconds=100, steps=100))
    await cluster.advance(seconds=5)
    assert [run.host for run in witness.of("long")] == [1]
    write_off(cluster, 1)
    third = await cluster.host()  # it loads what the store says
    await third.scheduler().initialize(minutely(witness, third, "long", seconds=100, steps=100))
    await cluster.advance(minutes=10)
    assert [event.run_id for event in first.events if isinstance(event, TaskRunFenced)] == [1_000_000_000_001]
    assert witness.of("long")[1].host == 3
    own = [run for run in witness.of("long") if run.host == 1]
    assert all(later.began >= earlier.last_step for earlier, later in pairwise(own))
    assert all(run.outcome == "returned" for run in witness.of("long")[:-1])


async def test_a_run_written_off_ends_after_the_burial_of_its_host(cluster: SimulatedCluster) -> None:
    """Both at once: the task starts again in this process as soon as its run has ended there, and not before."""
    witness, first, second = Witness(cluster), await cluster.host(), await cluster.host()
    await first.scheduler().initialize(
        [*minutely(witness, first, "long", seconds=400, steps=400), *minutely(witness, first, "short", seconds=20)]
    )
    await cluster.advance(seconds=5)
    for generation in list(cluster.memory.states):
        write_off(cluster, generation)
    await cluster.advance(seconds=40)  # the end of the short one was fenced, and the host has loaded
    await second.scheduler().initialize(
        [*minutely(witness, second, "long", seconds=400, steps=400), *minutely(witness, second, "short", seconds=20)]
    )
    await cluster.advance(seconds=10)
    first.freeze()
    await cluster.advance(seconds=90)
    await first.thaw()
    await second.crash()
    await cluster.advance(minutes=20)
    own = [run for run in witness.of("long") if run.host == 1]
    assert [run.outcome for run in own][:2] == ["cancelled", "returned"]
    assert all(later.began >= earlier.last_step for earlier, later in pairwise(own))


async def test_a_row_that_contradicts_itself_is_named_and_nothing_starts_until_it_is_right(
    cluster: SimulatedCluster,
) -> None:
    """A run was taken out of its row, and its cause was left there: SPEC 5.5 holds while hosts run, too."""
    witness, host = Witness(cluster), await cluster.host()
    tasks = [
        *minutely(witness, host, "torn", seconds=20, steps=20),
        *minutely(witness, host, "whole", seconds=1, steps=1),
    ]
    await host.scheduler().initialize(tasks)
    await cluster.advance(seconds=5)
    torn = cluster.memory.states[1]
    torn.run = None
    await cluster.advance(minutes=3)
    (fault,) = [event for event in host.events if isinstance(event, StoreFault)]
    assert fault.error.endswith("in the record of 'torn'")
    assert [began[3:5] for began in witness.began("whole")] == ["00"]
    torn.run_cause = torn.run_scheduled = None
    await cluster.advance(minutes=2)
    assert [event.operation for event in host.events if isinstance(event, StoreRecovered)] == [fault.operation]
    assert [began[3:5] for began in witness.began("whole")] == ["00", "03", "04", "05"]
