"""Joining a shared store and declaring there: what is sent, said and traced, and what becomes of faults."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from duly.core.moments import Minute
from duly.core.news import Joined, Replaced
from duly.errors import DulyError, ScheduleTaskError, StoreError
from duly.events import (
    SchedulerInitializationCompleted,
    SchedulerInitializationStarted,
    SchedulerReinitializationCompleted,
    SchedulerReinitializationStarted,
    TaskAdded,
    TaskOrphaned,
)
from duly.formal.trace import CRON_CHARACTERS_MAX
from duly.testing import SimulatedCluster
from tests.cluster.witness import Witness, minutely
from tests.engine.helpers import registration
from tests.engine.pods import Pod, joined, yearly
from tests.spec.helpers import microseconds

LEASE = timedelta(seconds=30)


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    """It is noon and ten seconds."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        yield cluster


def declared(cluster: SimulatedCluster) -> list[Joined | Replaced]:
    """The declarations of all hosts, by the log."""
    contents = [entry.content for entry in cluster.memory.log.values()]
    return [content for content in contents if isinstance(content, Joined | Replaced)]


# --- joining ---------------------------------------------------------------------------------------------------------


async def test_the_tables_are_looked_after_once_and_before_anything_is_read(cluster: SimulatedCluster) -> None:
    """SPEC 9.2: a later initialize() finds them as they are."""
    requests: list[str] = []
    host = await cluster.host()
    host.on_request = lambda request, made: None if made else requests.append(request)
    pod = await Pod(cluster, host).declare(yearly("a"))
    assert requests[:3] == ["install", "load", "arrive"]
    await pod.declare(yearly("a", "b"))
    assert requests.count("install") == 1


async def test_a_host_tells_the_store_how_long_its_lease_is(cluster: SimulatedCluster) -> None:
    """SPEC 9.4: in microseconds, for those that watch it."""
    await joined(cluster, yearly("a"))
    assert cluster.memory.hosts[1].lease == 30_000_000


async def test_a_host_that_joins_has_heard_of_all_that_came_before_it(cluster: SimulatedCluster) -> None:
    """SPEC 9.9: also of its own joining, which it reads like any entry."""
    await joined(cluster, yearly("a"))
    pod = Pod(cluster, await cluster.host())
    pod.fail("beat")
    await pod.declare(yearly("a"))
    assert pod.membership.end_of_log == cluster.memory.last_seq()
    assert pod.membership.behind
    assert await pod.colleagues.learn()
    assert not pod.membership.behind


async def test_a_host_that_joins_goes_by_the_clock_of_the_store(cluster: SimulatedCluster) -> None:
    """SPEC 9.11: before its first beat is answered."""
    pod = Pod(cluster, await cluster.host(ahead=3600))
    pod.fail("beat")
    await pod.declare(yearly("a"))
    assert pod.member.connections.clock.now() == microseconds(cluster.now)


async def test_a_host_that_joins_corrects_records_that_lie_too_far_ahead(cluster: SimulatedCluster) -> None:
    """SPEC 2.5: the clock of the store was set back."""
    await joined(cluster, yearly("a"))
    await joined(cluster, yearly("a"))
    (state,) = cluster.memory.states.values()
    state.served_through = Minute(state.served_through + 10 * 86_400)
    await joined(cluster, yearly("a"))
    assert [content.corrected is not None for content in declared(cluster)] == [False, False, True]
    assert 1_000_000 * state.served_through <= microseconds(cluster.now)


async def test_a_host_says_where_its_callbacks_run_if_that_changes(cluster: SimulatedCluster) -> None:
    """SPEC 9.21: for the trace, whose slots count threads."""

    def block() -> None:
        """Run in a thread."""

    async def wait() -> None:
        """Run on the event loop."""

    pod = await joined(cluster, [registration(name, "0 0 1 1 *", block) for name in "ab"])
    assert cluster.memory.load().in_threads == {1, 2}
    callbacks = [("a", wait), ("b", block), ("c", wait), ("d", block)]
    await pod.declare([registration(name, "0 0 1 1 *", callback) for name, callback in callbacks])
    assert cluster.memory.load().in_threads == {2, 4}
    said = [(content.moved.to_threads, content.moved.to_loop) for content in declared(cluster)]
    assert said == [(((1, 2),), ()), (((4, 4),), ((1, 1),))]


# --- what is said ----------------------------------------------------------------------------------------------------


async def test_a_first_call_and_a_later_one_announce_what_they_changed(cluster: SimulatedCluster) -> None:
    """SPEC 4.1 and 5.1, on a shared store as elsewhere; a host that puts nothing in force has changed nothing."""
    pod = await joined(cluster, yearly("a", "b"))
    assert [event.total_registrations for event in pod.told(SchedulerInitializationStarted)] == [2]
    assert len(pod.told(SchedulerInitializationCompleted)) == 1
    await pod.declare(yearly("a", "c"))
    assert [event.total_registrations for event in pod.told(SchedulerReinitializationStarted)] == [2]
    assert len(pod.told(SchedulerReinitializationCompleted)) == len(pod.told(SchedulerInitializationCompleted)) == 1
    assert [event.task_name for event in pod.told(TaskAdded)] == ["a", "b", "c"]
    assert [event.task_name for event in pod.told(TaskOrphaned)] == ["b"]
    outdated = await joined(cluster, yearly("a", "b"))
    assert outdated.told(TaskAdded) == []
    assert outdated.told(TaskOrphaned) == []


async def test_the_trace_has_each_call_before_what_came_of_it(cluster: SimulatedCluster) -> None:
    """SPEC 7.6, FORMAL: with the host's steady clock, and a digest of the tasks in force."""
    pod = await joined(cluster, yearly("a"), trace=True)
    await cluster.advance(seconds=3)
    await pod.declare(yearly("a", "b"))
    other = await joined(cluster, yearly("a", "b"))
    await other.scheduler.stop()
    await pod.scheduler.stop()
    events = [json.loads(line) for line in cluster.memory.trace_lines()][1:-1]
    calls = [(event[0], event[3]) for event in events if event[0] not in ("WK", "BT")]
    first, second = ["IS", "RG", "IE"], ["IS", "IE", "SS", "SE"]
    assert calls == [(each, 1) for each in first * 2] + [(each, 2) for each in second] + [("SS", 1), ("SE", 1)]
    said = [content.said for content in declared(cluster)]
    assert [each.mono for each in said] == [0, 3_000_000, 0]
    assert said[0].digest != said[1].digest == said[2].digest
    assert all(len(each.digest) == 16 for each in said)


async def test_a_host_that_knows_of_no_trace_sends_no_digest(cluster: SimulatedCluster) -> None:
    """A digest of a million tasks takes its time."""
    await joined(cluster, yearly("a"))
    assert [content.said.digest for content in declared(cluster)] == [""]


@pytest.mark.parametrize("trace", [True, False])
async def test_a_text_that_no_trace_can_hold_is_refused_if_there_is_one(cluster: SimulatedCluster, trace: bool) -> None:
    """SPEC 7.6."""
    minutes = ",".join(["0"] * CRON_CHARACTERS_MAX)
    long = [registration("long", f"{minutes} 0 1 1 *")]
    if trace:
        with pytest.raises(DulyError, match="in a trace has at most"):
            await joined(cluster, long, trace=True)
        assert cluster.memory.hosts == {}
    else:
        await joined(cluster, long)


# --- faults ----------------------------------------------------------------------------------------------------------


async def test_a_fault_names_the_first_task_that_would_have_changed(cluster: SimulatedCluster) -> None:
    """SPEC 4.6; where there is no task, there is none to name."""
    pod = Pod(cluster, await cluster.host())
    pod.fail("replace")
    with pytest.raises(StoreError):
        await pod.scheduler.initialize([])
    await joined(cluster, yearly("a", "b"))
    with pytest.raises(ScheduleTaskError) as raised:
        await pod.scheduler.initialize(yearly("a", "b", "c", "d"))
    assert raised.value.details["name"] == "c"


async def test_a_fault_before_anything_is_compared_names_the_first_task_of_a_later_call(
    cluster: SimulatedCluster,
) -> None:
    """SPEC 4.6; an empty set has none to name."""
    pod = await joined(cluster, yearly("a"))
    pod.fail("load")
    with pytest.raises(ScheduleTaskError) as raised:
        await pod.scheduler.initialize([registration("b", "0 0 2 1 *"), *yearly("a")])
    assert (raised.value.details["name"], raised.value.details["cronExpression"]) == ("b", "0 0 2 1 *")
    with pytest.raises(StoreError):
        await pod.scheduler.initialize([])
    assert pod.names() == {"a"}


async def test_a_declaration_that_cannot_be_loaded_is_loaded_after_the_next_beat(
    cluster: SimulatedCluster,
) -> None:
    """SPEC 9.13: it is on record, so the call has succeeded."""
    pod = await joined(cluster, yearly("a"))
    loads = 0

    def fail_second(request: str, made: bool) -> None:
        nonlocal loads
        loads += request == "load" and not made
        if request == "load" and loads == 2:
            raise StoreError("no answer", store="shared memory")

    pod.host.on_request = fail_second
    await pod.declare(yearly("a", "b"))
    await cluster.advance(seconds=6)
    assert loads == 3
    assert pod.names() == {"a", "b"}
    assert pod.colleagues.unanswered is None


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_call_that_is_given_up_while_it_commits_takes_effect(cluster: SimulatedCluster, is_first: bool) -> None:
    """SPEC 4.2: it goes through to its end, even without its caller."""
    witness = Witness(cluster)
    host = await cluster.host()
    pod = Pod(cluster, host)
    if not is_first:
        await pod.declare(minutely(witness, host, "a"))

    def freeze(request: str, made: bool) -> None:
        if request == "replace" and made:
            host.freeze()  # the answer is under way

    host.on_request = freeze
    calling = asyncio.ensure_future(pod.scheduler.initialize(minutely(witness, host, "a", "b")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert host.frozen
    calling.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    await host.thaw()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(calling, 30)
    await cluster.advance(minutes=1)
    assert witness.began("b")[-1] == "12:01:00"
