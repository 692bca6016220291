"""`interrupted` belongs to the declared set: that of the edition in force counts for every host (SPEC 9.3, 9.13).

Each host went by its own option, so an outdated one started a run again that was to wait, and the other way round.
"""

from datetime import timedelta

import pytest

from duly.testing import SimulatedCluster
from duly.testing.cluster import ClusterHost
from tests.cluster.judged_trace import judge_memory
from tests.cluster.witness import Callback, Witness

LEASE = timedelta(seconds=30)


def long(witness: Witness, host: ClusterHost) -> list[tuple[str, str, Callback, timedelta]]:
    """A task that is due every five minutes, and takes ten."""
    due = ",".join(map(str, range(1, 60, 5)))
    return [("long", f"{due} * * * *", witness.callback(host, "long", seconds=600, steps=60), timedelta(seconds=30))]


@pytest.mark.parametrize(
    ("old", "new", "began"),
    [("restart", "wait", ["12:01:00"]), ("wait", "restart", ["12:01:00", "12:01:50"])],
)
async def test_an_outdated_host_goes_by_the_option_in_force(old: str, new: str, began: list[str]) -> None:
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        witness = Witness(cluster)
        outdated, newer = await cluster.host(), await cluster.host()
        await outdated.scheduler(trace=True, interrupted=old).initialize(long(witness, outdated))
        await newer.scheduler(trace=True, interrupted=new).initialize(long(witness, newer))
        await cluster.advance(seconds=55)
        assert [run.host for run in witness.runs] == [newer.number]
        await newer.crash()
        await cluster.advance(seconds=60)
        assert cluster.memory.edition == 2  # the wait of a reinstatement has not passed
        assert witness.began("long") == began
        report = judge_memory(cluster.memory)
        assert not report.violated, [str(each) for each in report.violations]


async def test_the_option_comes_back_with_its_edition() -> None:
    """SPEC 9.17: the old set is in force again after two leases, and with it the option to start again."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        witness = Witness(cluster)
        old, new = await cluster.host(), await cluster.host()
        await old.scheduler(trace=True, interrupted="restart").initialize(long(witness, old))
        await new.scheduler(trace=True, interrupted="wait").initialize(long(witness, new))
        await cluster.advance(seconds=55)
        await new.crash()
        await cluster.advance(minutes=2)
        assert (cluster.memory.edition, cluster.memory.interrupted) == (1, "restart")
        assert witness.began("long") == ["12:01:00", "12:02:55"]
        assert not judge_memory(cluster.memory).violated


async def test_a_part_of_a_trace_begins_with_the_option_in_force() -> None:
    """The registers of a rotated trace said that what is interrupted starts again, whatever was in force."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        witness = Witness(cluster)
        one, other = await cluster.host(), await cluster.host()
        for host in (one, other):
            await host.scheduler(trace=True, interrupted="wait").initialize(long(witness, host))
        await cluster.advance(seconds=55)
        (run,) = witness.runs
        cluster.memory.rotate_trace(0)
        del cluster.memory.bases[0]  # as the next part does
        await (one if run.host == one.number else other).crash()
        await cluster.advance(minutes=3)
        assert witness.began("long") == ["12:01:00"]
        report = judge_memory(cluster.memory)
        assert report.first_segment == 2
        assert not report.violated, [str(each) for each in report.violations]
