"""A correct cluster was accused: an end that a cut-off host wrote late made others late for all the time before.

The end of a run has the instant at which its callback returned. Its host wrote it minutes later, when it reached the
store again; R1 counted from the return, although the run went on for everybody else until the end was written.
"""

from datetime import timedelta

from duly.testing import SimulatedCluster
from tests.cluster.judged_trace import judge_memory
from tests.cluster.witness import Witness, minutely


async def test_a_task_whose_end_was_written_late_is_not_owed_since_its_callback_returned() -> None:
    async with SimulatedCluster(
        "2024-05-01T12:00:05", "UTC", lease=timedelta(minutes=5), callbacks_only_sleep=True
    ) as cluster:
        witness = Witness(cluster)
        first = await cluster.host()
        await first.scheduler(trace=True).initialize(minutely(witness, first, "a", seconds=40))
        second = await cluster.host()
        await second.scheduler(trace=True).initialize(minutely(witness, second, "a"))
        await cluster.advance(seconds=10)
        first.cut_off = True  # with a run under way, that returns long before the host is missed
        await cluster.advance(minutes=3)

        def cut_again(request: str, made: bool) -> None:
            first.cut_off = first.cut_off or (made and request == "write")

        first.on_request = cut_again
        first.cut_off = False  # for as long as it takes to write the end; the next start is the other host's
        await cluster.advance(minutes=1)
        assert [run.host for run in witness.of("a")] == [1, 2, 2]
        report = judge_memory(cluster.memory)
        assert not report.violated, [str(each) for each in report.violations]
