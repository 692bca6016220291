"""Every event about hosts of a shared store occurs, and says what docs/reference/events.md says."""

import logging
from datetime import datetime, timedelta

import pytest

from duly.errors import StoreError
from duly.events import (
    Event,
    HostJoined,
    HostLost,
    LeaseSuspended,
    StoreFault,
    StoreRecovered,
    TaskEvent,
    TaskRunFenced,
    TaskRunStarted,
)
from duly.testing import SimulatedCluster
from tests.cluster.witness import Witness, minutely
from tests.engine.pods import Pod, joined, yearly
from tests.engine.test_events import ABOUT_HOSTS

LEASE = timedelta(seconds=30)


async def idle() -> None:
    """A callback that does nothing."""


async def test_every_event_about_hosts_occurs() -> None:
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        witness = Witness(cluster)
        first, second = await cluster.host(), await cluster.host()
        schedulers = [first.scheduler(), second.scheduler(trace=True)]  # overruled
        for scheduler, host in zip(schedulers, (first, second), strict=True):
            await scheduler.initialize(minutely(witness, host, "kept", "old", seconds=50, steps=50))  # joined
        await cluster.advance(minutes=1)
        cluster.is_down = True
        await cluster.advance(minutes=1)  # suspended
        cluster.is_down = False
        await cluster.advance(minutes=1)  # resumed
        running = next(host for host in (first, second) if host.number == witness.runs[-1].host)
        running.freeze()
        await cluster.advance(minutes=2)  # buried
        await running.thaw()
        await cluster.advance(seconds=1)  # lost, fenced
        running.cut_off = True
        await cluster.advance(seconds=20)  # cannot join again
        running.cut_off = False
        await cluster.advance(minutes=2)
        third = await cluster.host()
        newer = third.scheduler()
        await newer.initialize(minutely(witness, third, "kept", "new"))  # superseded
        await cluster.advance(minutes=2)
        await third.set_clock("2024-05-01T13:00:00")  # skewed
        await cluster.advance(seconds=10)
        await newer.stop()  # left, and reinstated
        await cluster.advance(minutes=4)
        told: list[Event] = [event for host in cluster.hosts for event in host.events]
        assert witness.overlaps() == []
    # A refusal takes two hosts that decide in one instant; here they have their turns.
    assert ABOUT_HOSTS - {event.name for event in told} <= {"StartsRefused"}


@pytest.mark.parametrize("permanent", [False, True])
async def test_beats_that_fail_are_one_fault_with_its_reason_until_one_is_answered(permanent: bool) -> None:
    """SPEC 9.20: a host that has nothing to write says why its lease is suspended, and whether that passes."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        pod = await joined(cluster, yearly("a"))

        def refuse(request: str, made: bool) -> None:
            if request == "beat":
                raise StoreError("refuses the role a right", store="shared memory", permanent=permanent)

        pod.host.on_request = refuse
        await cluster.advance(seconds=40)
        pod.host.on_request = None
        await cluster.advance(seconds=10)
        pod.host.on_request = refuse
        await cluster.advance(seconds=10)
        faults, recovered = pod.told(StoreFault), pod.told(StoreRecovered)
    assert [(fault.operation, fault.retry_in_ms, fault.permanent) for fault in faults] == [
        ("beat", 5_000, permanent or None),
        ("beat", 5_000, permanent or None),
    ]
    assert "refuses the role a right" in faults[0].error
    assert ("permanent" in faults[0].fields) is permanent
    assert [(event.operation, event.attempts) for event in recovered] == [("beat", 9)]


@pytest.mark.parametrize("request_", ["write", "news"])
async def test_a_fault_that_does_not_pass_is_on_record_until_the_request_succeeds(request_: str) -> None:
    """SPEC 9.20: `status` is to be unhealthy, and reads the store alone."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        pod = await joined(cluster, [("a", "* * * * *", idle, timedelta(seconds=1))])
        other = await joined(cluster, [("a", "* * * * *", idle, timedelta(seconds=1))])
        permanent = True

        def refuse(request: str, made: bool) -> None:
            if request == request_:
                raise StoreError("refuses the role a right", store="shared memory", permanent=permanent)

        pod.host.on_request = refuse
        await cluster.advance(minutes=3)
        assert [host.fault for host in cluster.memory.hosts.values()] == ["refuses the role a right", None]
        pod.host.on_request = None
        await cluster.advance(minutes=2)
        assert [host.fault for host in cluster.memory.hosts.values()] == [None, None]
        permanent = False
        pod.host.on_request = refuse
        await cluster.advance(minutes=3)
        assert [host.fault for host in cluster.memory.hosts.values()] == [None, None]
        assert pod.told(StoreFault)
        assert not other.told(StoreFault)


async def test_a_suspended_lease_says_since_when_no_beat_was_answered() -> None:
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        pod = await joined(cluster, yearly("a"))
        await cluster.advance(seconds=12)  # the last beat was sent at 12:00:20
        pod.host.cut_off = True
        await cluster.advance(seconds=60)
        (suspended,) = pod.told(LeaseSuspended)
    assert suspended.since.isoformat() == "2024-05-01T12:00:20+00:00"


async def test_a_joining_is_told_with_the_name_of_the_host() -> None:
    """A host that learns of it from the log has not seen its row."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        pod = await joined(cluster, yearly("a"))
        await joined(cluster, yearly("a"))  # the set in force
        await joined(cluster, yearly("a", "b"))  # another one
        await cluster.advance(seconds=6)
        assert [(event.host, event.label) for event in pod.told(HostJoined)] == [(2, "host 2"), (3, "host 3")]


async def test_one_host_warns_of_a_burial_and_the_others_tell_it_for_those_who_look_closely() -> None:
    """SPEC 9.5: with the name of the host, and the number of its runs."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        witness = Witness(cluster)
        pods = []
        for _ in range(3):
            host = await cluster.host()
            pods.append(await Pod(cluster, host).declare(minutely(witness, host, "a", "b", "c", seconds=50, steps=50)))
        await cluster.advance(minutes=1)
        lost, *others = sorted(pods, key=lambda pod: pod.host.number != witness.runs[-1].host)
        runs = sum(state.run is not None and state.run // 10**12 == lost.host.number
                   for state in cluster.memory.states.values())  # fmt: skip
        lost.host.freeze()
        await cluster.advance(minutes=1)
        told = [event for pod in others for event in pod.told(HostLost)]
    assert runs > 0
    number = lost.host.number
    assert [(event.name, event.host, event.label, event.runs) for event in told] == [
        ("HostLost", number, f"host {number}", runs)
    ] * 2
    assert sorted(event.level for event in told) == [logging.DEBUG, logging.WARNING]


async def test_each_event_about_a_task_names_its_host() -> None:
    """Also after a host was buried, and another one goes on in its process; an embedded store has no hosts."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        witness = Witness(cluster)
        first, second = await cluster.host(), await cluster.host()
        for host in (first, second):
            await host.scheduler().initialize(minutely(witness, host, "a", "b", seconds=50, steps=50))
        await cluster.advance(minutes=1)
        running = next(host for host in (first, second) if host.number == witness.runs[-1].host)
        running.freeze()
        await cluster.advance(minutes=2)
        await running.thaw()
        await cluster.advance(minutes=6)
        told: list[Event] = [event for host in cluster.hosts for event in host.events]
    assert {event.host for event in told if isinstance(event, TaskEvent)} == {1, 2, 3}
    assert all(event.fields["host"] == event.host for event in told if isinstance(event, TaskEvent))
    by_run = [event for event in told if isinstance(event, TaskRunStarted | TaskRunFenced)]
    assert all(event.host == event.run_id // 10**12 for event in by_run)
    assert {type(event) for event in by_run} == {TaskRunStarted, TaskRunFenced}
    noon = datetime(2024, 5, 1, 12)
    assert "host" not in TaskRunStarted("task", noon, noon, "cron", 1).fields
