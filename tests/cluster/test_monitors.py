"""`monitor=True` on simulated hosts: each host judges the trace of all of them while it grows."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest

import duly.engine.shared_monitor
from duly.core.news import RUNS_OF_A_HOST, Ended, Started, Unreadable, Written
from duly.core.task import Cause, Obligation
from duly.errors import HostZoneError, StoreError
from duly.events import Event, HostOptionOverruled, PropertyViolated, StoreFault, StoreRecovered
from duly.scheduler import Scheduler
from duly.testing import SimulatedCluster
from duly.testing.cluster import ClusterHost
from duly.testing.shared import SharedMemory
from tests.cluster.histories import History, keep_the_log
from tests.cluster.judged_trace import judge_memory
from tests.cluster.test_traces import BROKEN, crossing
from tests.cluster.witness import Witness, minutely
from tests.counts import share
from tests.engine.test_shared_lifecycle import Connections

LEASE = timedelta(seconds=30)
BEAT = LEASE.total_seconds() / 6
PARTS = 10
SEEDS = range(5_001, 5_301)


def cluster_at(moment: str = "2024-05-01T12:00:05", zone: Any = "UTC") -> SimulatedCluster:
    return SimulatedCluster(moment, zone, lease=LEASE, callbacks_only_sleep=True)


async def watched(cluster: SimulatedCluster, *names: str, seconds: float = 0, **options: Any) -> ClusterHost:
    """A host with a monitor that has joined."""
    host = await cluster.host()
    await scheduler_on(host, **options).initialize(minutely(Witness(cluster), host, *names, seconds=seconds))
    return host


def scheduler_on(host: ClusterHost, **options: Any) -> Scheduler:
    return host.scheduler(**{"monitor": True, **options})


def told(host: ClusterHost, kind: type[Event]) -> list[Any]:
    return [event for event in host.events if isinstance(event, kind)]


def violated(host: ClusterHost) -> list[tuple[str, int, str | None]]:
    """The violations that a host has announced, which a test expected."""
    host._faults.clear()
    return [(event.property, event.position, event.task_name) for event in told(host, PropertyViolated)]


def requests_of(host: ClusterHost) -> Counter[str]:
    """Counts the requests of a host from now on."""
    made: Counter[str] = Counter()
    host.on_request = lambda request, answered: made.update([request] * answered)
    return made


def start_what_is_not_owed(memory: SharedMemory) -> int:
    """An entry with a start that should not be, and one with its end; returns the number of the first."""
    key, seq, now = memory.living()[0].key, memory.last_seq() + 1, memory._clock()
    generation = min(memory.states)
    run, of = key * RUNS_OF_A_HOST + 10**9 + seq, Obligation(now, now, 1)
    start = Started((generation,), run, Cause.CRON, now, now, memory.states[generation].served_through, None, 0, of)
    end = Ended((generation,), (run,), now, Cause.CRON, now, now, None, of)
    memory._append(seq, key, -seq, now, Written((), (start,), None, (), ()))
    memory._append(seq + 1, key, -seq - 1, now, Written((end,), (), None, (), ()))
    return seq


# --- nothing is found where nothing is wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(PARTS))
async def test_monitors_of_all_hosts_find_nothing_whatever_happens(part: int) -> None:
    """Deaths, freezes, outages, lost answers, burials, new editions: as `duly verify`, which judges the whole of it."""
    for seed in share(SEEDS, 20)[part::PARTS]:
        await History(seed, monitor=True).play()


@pytest.mark.parametrize("hours", [-0.2, -5.0, -30.0, 0.02, 3.0])
async def test_monitors_find_nothing_when_the_clock_of_the_store_is_set(hours: float) -> None:
    async with cluster_at() as cluster:
        hosts = [await watched(cluster, "a", "b", seconds=25) for _ in range(3)]
        await cluster.advance(minutes=2, seconds=10)
        cluster.set_clock(seconds=3600 * hours)
        await cluster.advance(minutes=5)
        assert [violated(host) for host in hosts] == [[], [], []]
        assert [told(host, StoreFault) for host in hosts] == [[], [], []]


async def test_a_burst_of_thousands_is_judged_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duly.engine.shared_monitor, "ENTRIES_TOGETHER", 3)
    async with cluster_at() as cluster:
        names = [f"task {number}" for number in range(3_000)]
        hosts = [await watched(cluster, *names, seconds=1) for _ in range(2)]
        requests = requests_of(hosts[0])
        await cluster.advance(minutes=2)
        entries = cluster.memory.last_seq()
        assert [violated(host) for host in hosts] == [[], []]
    assert entries > 12
    assert requests["trace_after"] > entries // 3


# --- a store that is broken is found out -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", BROKEN)
async def test_each_host_tells_of_each_violation_once(how: str) -> None:
    """Two hosts, one of which is buried and joins again: both say what the checker says about the whole trace."""
    breaks, expected = BROKEN[how]
    async with cluster_at() as cluster:
        keep_the_log(cluster.memory)
        breaks(cluster.memory)
        hosts = [await watched(cluster, *"abcd", seconds=25) for _ in range(2)]
        await cluster.advance(minutes=1, seconds=58)
        hosts[0].freeze()
        await cluster.advance(minutes=1, seconds=30)
        await hosts[0].thaw()
        await cluster.advance(minutes=3)
        await crossing(cluster)
        await cluster.advance(seconds=BEAT)
        found = [violated(host) for host in hosts]
        judged = [(each.property, each.task) for each in judge_memory(cluster.memory).violations]
    assert {name for name, _, _ in found[0]} & expected
    assert found[0] == found[1]
    assert [(name, task) for name, _, task in found[0]] == judged


async def test_the_position_of_a_violation_is_the_entry_of_the_log() -> None:
    """It is the number that all hosts agree on, wherever their monitors began."""
    async with cluster_at() as cluster:
        hosts = [await watched(cluster, "a") for _ in range(2)]
        await cluster.advance(minutes=2, seconds=10)
        seq = start_what_is_not_owed(cluster.memory)
        await cluster.advance(seconds=BEAT)
        for host in hosts:
            assert violated(host) == [("S2", seq, "a"), ("S3", seq + 1, "a")]
            (first, _) = told(host, PropertyViolated)
            assert first.registers["host"] == 1


async def test_what_was_written_before_a_stop_is_judged_before_it_returns() -> None:
    """`duly run --monitor` ends with another exit code if there was a violation, even just before its end."""
    async with cluster_at() as cluster:
        host = await cluster.host()
        scheduler = scheduler_on(host)
        await scheduler.initialize(minutely(Witness(cluster), host, "a"))
        await cluster.advance(minutes=1, seconds=10)
        seq = start_what_is_not_owed(cluster.memory)
        await scheduler.stop()
        assert [position for _, position, _ in violated(host)] == [seq, seq + 1]


async def test_as_many_violations_are_announced_as_an_embedded_store_announces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duly.engine.shared_monitor, "ANNOUNCED_MAX", 3)
    async with cluster_at() as cluster:
        host = await watched(cluster, "a")
        await cluster.advance(minutes=1, seconds=10)
        for _ in range(3):
            start_what_is_not_owed(cluster.memory)
            await cluster.advance(seconds=BEAT)
        assert len(violated(host)) == 3
        assert len(judge_memory(cluster.memory).violations) == 6


# --- where a monitor begins ------------------------------------------------------------------------------------------


async def test_a_host_that_joins_later_reads_from_the_base_and_tells_what_happens_from_then_on() -> None:
    """A host that starts does not repeat what others have told; what follows is judged by the whole trace."""
    async with cluster_at() as cluster:
        first = await watched(cluster, "a")
        await cluster.advance(minutes=3)
        start_what_is_not_owed(cluster.memory)
        await cluster.advance(minutes=3)
        known = violated(first)
        assert len(known) == 2
        late = await cluster.host()
        requests = requests_of(late)
        await scheduler_on(late).initialize(minutely(Witness(cluster), late, "a"))
        await cluster.advance(minutes=3)
        assert requests["trace_start"] == 1
        assert (violated(late), violated(first)) == ([], known)
        seq = start_what_is_not_owed(cluster.memory)
        await cluster.advance(seconds=BEAT)
        assert violated(late) == violated(first)[len(known) :] == [("S2", seq, "a"), ("S3", seq + 1, "a")]


async def test_a_host_that_joins_after_a_rotation_begins_from_the_newest_base() -> None:
    """Tasks that were there before the base, runs that went on, hosts and marks: nothing of it is taken for wrong."""
    async with cluster_at() as cluster:
        memory = cluster.memory
        first = await watched(cluster, "a", "b", seconds=70)
        for _ in range(3):
            await cluster.advance(minutes=4)
            memory.rotate_trace(1)
        assert [row.base.segment for row in memory.bases] == [3, 4]
        assert [task.run is not None for task in memory.bases[-1].base.tasks] == [True, True]
        late = await watched(cluster, "a", "b", seconds=70)
        await cluster.advance(minutes=5)
        assert [violated(host) for host in (first, late)] == [[], []]


async def test_a_host_that_was_buried_goes_on_where_its_monitor_was() -> None:
    async with cluster_at() as cluster:
        hosts = [await watched(cluster, "a") for _ in range(2)]
        await cluster.advance(minutes=2, seconds=10)
        start_what_is_not_owed(cluster.memory)
        await cluster.advance(seconds=BEAT)
        requests = requests_of(hosts[0])
        hosts[0].freeze()
        await cluster.advance(minutes=2)
        start_what_is_not_owed(cluster.memory)
        await hosts[0].thaw()
        await cluster.advance(minutes=2)
        assert (requests["replace"], requests["trace_start"]) == (1, 0)  # it has joined again
        assert violated(hosts[0]) == violated(hosts[1])
        assert len(violated(hosts[0])) == 4


async def test_a_trace_that_was_cut_below_a_monitor_is_begun_anew() -> None:
    """A host that reads late finds two new bases: it says nothing wrong, nothing twice, and judges on."""
    async with cluster_at() as cluster:
        memory = cluster.memory
        hosts = [await watched(cluster, "a", seconds=20) for _ in range(2)]
        await cluster.advance(minutes=2, seconds=40)
        start_what_is_not_owed(memory)
        await cluster.advance(seconds=BEAT)
        refuse = Refusing(hosts[0])
        for _ in range(2):
            await cluster.advance(minutes=3)
            memory.rotate_trace(1)
        memory.prune(0, 0, 5_000)
        assert memory.bases[0].base.segment == 2
        refuse.answers = True
        await cluster.advance(minutes=2)
        assert refuse.made["trace_start"] == 1
        assert violated(hosts[0]) == violated(hosts[1])
        assert len(violated(hosts[0])) == 2
        start_what_is_not_owed(memory)
        await cluster.advance(seconds=BEAT)
        assert violated(hosts[0]) == violated(hosts[1])
        assert len(violated(hosts[0])) == 4


class Refusing:
    """Lets no question about the trace through until it `answers`."""

    def __init__(self, host: ClusterHost) -> None:
        self.answers = False
        self.made: Counter[str] = Counter()
        self._host = host
        host.on_request = self._look

    def _look(self, request: str, made: bool) -> None:
        self.made[request] += made
        if request.startswith("trace_") and not self.answers:
            raise StoreError("away", store="shared memory", operation="trace", code="", permanent=False)


async def test_a_store_that_does_not_answer_is_asked_again_with_the_next_beat() -> None:
    async with cluster_at() as cluster:
        host = await watched(cluster, "a")
        await cluster.advance(minutes=1)
        refuse = Refusing(host)
        await cluster.advance(minutes=2)
        assert [fault.operation for fault in told(host, StoreFault)] == ["trace"]
        assert told(host, StoreRecovered) == []
        refuse.answers = True
        await cluster.advance(seconds=2 * BEAT)
        (recovered,) = told(host, StoreRecovered)
        assert (recovered.operation, recovered.attempts > 2) == ("trace", True)
        start_what_is_not_owed(cluster.memory)
        await cluster.advance(seconds=BEAT)
        assert violated(host)


async def test_a_store_that_is_away_keeps_no_stop_waiting() -> None:
    async with cluster_at() as cluster:
        host = await cluster.host()
        scheduler = scheduler_on(host)
        await scheduler.initialize(minutely(Witness(cluster), host, "a"))
        refuse = Refusing(host)
        await cluster.advance(minutes=2)
        asked = refuse.made.copy()
        await scheduler.stop()
        assert (refuse.made["leave"], asked["leave"]) == (1, 0)
        assert len(told(host, StoreFault)) == 1


# --- no trace, or one that cannot be read ----------------------------------------------------------------------------


async def test_a_monitor_keeps_a_trace() -> None:
    async with cluster_at() as cluster:
        host = await watched(cluster, "a")
        assert cluster.memory.traced
        assert told(host, HostOptionOverruled) == []


async def test_a_monitor_without_a_trace_says_so_and_judges_nothing_until_there_is_one() -> None:
    """SPEC 9.3: whether a trace is kept is the choice of the host that puts the set in force."""
    async with cluster_at() as cluster:
        witness = Witness(cluster)
        plain = await cluster.host()
        await plain.scheduler().initialize(minutely(witness, plain, "a"))
        host = await watched(cluster, "a")
        await cluster.advance(minutes=2, seconds=10)
        start_what_is_not_owed(cluster.memory)
        await cluster.advance(minutes=1)
        overruled = [(event.option, event.value, event.in_force) for event in told(host, HostOptionOverruled)]
        assert overruled == [("trace", True, False), ("monitor", True, False)]
        assert violated(host) == []
        newer = await watched(cluster, "a", "b")  # another set, and a trace with it
        await cluster.advance(minutes=3)
        assert violated(host) == violated(newer) == []
        start_what_is_not_owed(cluster.memory)
        await cluster.advance(seconds=BEAT)
        assert violated(host) == violated(newer) != []


async def test_a_trace_that_ends_is_judged_to_its_end_and_no_further() -> None:
    async with cluster_at() as cluster:
        host = await watched(cluster, "a")
        await cluster.advance(minutes=1, seconds=10)
        seq = start_what_is_not_owed(cluster.memory)
        plain = await cluster.host()
        await plain.scheduler().initialize(minutely(Witness(cluster), plain, "a", "b"))
        assert not cluster.memory.traced
        start_what_is_not_owed(cluster.memory)
        await cluster.advance(minutes=2)
        assert [position for _, position, _ in violated(host)] == [seq, seq + 1]
        assert [event.option for event in told(host, HostOptionOverruled)] == ["trace", "monitor"]


def lose(memory: SharedMemory) -> None:
    """An entry is deleted by hand."""
    del memory.log[memory.last_seq() - 1]


def garble(memory: SharedMemory) -> None:
    """An entry of a later version of duly."""
    seq = memory.last_seq() - 1
    memory.log[seq] = replace(memory.log[seq], content=Unreadable("dreamt"))


@pytest.mark.parametrize(("spoil", "why"), [(lose, "is missing"), (garble, "'dreamt'")])
async def test_a_trace_that_cannot_be_read_is_told_once_and_left_until_it_is_cut(
    spoil: Callable[[SharedMemory], None], why: str
) -> None:
    """Nothing that follows a hole can be judged; the next base has all that a monitor needs."""
    async with cluster_at() as cluster:
        memory = cluster.memory
        host = await watched(cluster, "a", seconds=20)
        await cluster.advance(minutes=2)
        refuse = Refusing(host)
        await cluster.advance(minutes=2)
        spoil(memory)
        refuse.answers = True
        await cluster.advance(minutes=2)
        unreadable = [fault for fault in told(host, StoreFault) if why in fault.error]
        assert len(unreadable) == 1
        asked = refuse.made["trace_start"]
        await cluster.advance(seconds=40)
        start_what_is_not_owed(memory)
        await cluster.advance(minutes=2)
        assert violated(host) == []
        memory.rotate_trace(1)
        await cluster.advance(minutes=2, seconds=40)
        assert refuse.made["trace_start"] == asked + 1
        assert violated(host) == []
        start_what_is_not_owed(memory)
        await cluster.advance(seconds=BEAT)
        assert violated(host)
        assert [fault for fault in told(host, StoreFault) if why in fault.error] == unreadable


async def test_a_store_that_was_set_back_is_judged_from_its_newest_base() -> None:
    """Its last entries were never there, and others take their place: numbers that were judged come again."""
    async with cluster_at() as cluster:
        memory = cluster.memory
        host = await watched(cluster, "a")
        await cluster.advance(minutes=5, seconds=10)
        start_what_is_not_owed(memory)
        await cluster.advance(seconds=BEAT)
        assert len(violated(host)) == 2
        requests = requests_of(host)
        for seq in sorted(memory.log)[-2:]:
            del memory.log[seq]
        await cluster.advance(minutes=3)
        assert (requests["replace"], requests["trace_start"]) == (1, 1)  # its host has joined again
        assert len(violated(host)) == 2
        start_what_is_not_owed(memory)
        await cluster.advance(seconds=BEAT)
        assert len(violated(host)) == 4


class Nowhere(tzinfo):
    """A zone that no checker finds by a name."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, when: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, when: datetime | None) -> None:
        return None


async def test_a_zone_without_a_name_is_refused_as_with_an_embedded_store() -> None:
    async with cluster_at(zone=Nowhere()) as cluster:
        with pytest.raises(HostZoneError, match="needs a zone with a name"):
            await watched(cluster, "a")
        assert cluster.memory.hosts == {}


# --- its price -------------------------------------------------------------------------------------------------------


async def test_a_host_without_a_monitor_asks_nothing_about_the_trace() -> None:
    async with cluster_at() as cluster:
        host = await cluster.host()
        requests = requests_of(host)
        await host.scheduler(trace=True).initialize(minutely(Witness(cluster), host, "a"))
        await cluster.advance(minutes=5)
        assert not requests.keys() & {"trace_start", "trace_after"}
        assert "duly-monitor" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_a_monitor_asks_at_most_once_a_beat_and_not_at_all_when_nothing_was_written() -> None:
    async with cluster_at() as cluster:
        host = await watched(cluster, "a")
        requests = requests_of(host)
        await cluster.advance(minutes=10)
        assert 10 <= requests["trace_after"] <= requests["write"]
        assert requests["trace_start"] == 0


async def test_nothing_is_left_of_a_monitor_whose_scheduler_has_stopped_or_died() -> None:
    async with cluster_at() as cluster:
        before = asyncio.all_tasks()
        host = await cluster.host()
        store = Connections(cluster.memory, host)
        scheduler = scheduler_on(host, store=store)
        await scheduler.initialize(minutely(Witness(cluster), host, "a"))
        assert "duly-monitor" in {task.get_name() for task in asyncio.all_tasks()}
        await cluster.advance(minutes=1)
        assert store.open["writes"] == 2
        await scheduler.stop()
        assert asyncio.all_tasks() == before
        assert store.open["writes"] == 0
        await scheduler.initialize(minutely(Witness(cluster), host, "a"))
        await cluster.advance(minutes=1)
        await host.crash()
        assert asyncio.all_tasks() == before
        assert store.open["writes"] == 1  # that of the dead host's writes
