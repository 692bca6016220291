"""The trace of a simulated cluster: what it says, and that the checker objects to a cluster that is broken."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from duly.core.news import RUNS_OF_A_HOST, Changes, Ended, Position
from duly.errors import ScheduleTaskError, StoreError, TraceError
from duly.events import HostOptionOverruled
from duly.stores.shared import HostIdentity
from duly.testing import SimulatedCluster
from duly.testing.shared import SharedMemory
from tests.cluster.histories import keep_the_log
from tests.cluster.judged_trace import judge_lines, judge_memory
from tests.cluster.witness import Witness, minutely

LEASE = timedelta(seconds=30)


def cluster_at(moment: str = "2024-05-01T12:00:05", zone: str = "UTC") -> SimulatedCluster:
    return SimulatedCluster(moment, zone, lease=LEASE, callbacks_only_sleep=True)


def events_of(memory: SharedMemory) -> list[list[Any]]:
    return [json.loads(line) for line in list(memory.trace_lines())[1:-1]]


def violated(memory: SharedMemory) -> set[str]:
    report = judge_memory(memory)
    return {each.property for each in report.violations}


# --- what it says ----------------------------------------------------------------------------------------------------


async def test_hosts_that_come_work_and_go_leave_a_trace_that_is_over() -> None:
    """SPEC 9.19: the last one's SE seals it."""
    async with cluster_at() as cluster:
        witness = Witness(cluster)
        schedulers = []
        for _ in range(2):
            host = await cluster.host()
            schedulers.append(host.scheduler(trace=True, max_concurrency=7))
            await schedulers[-1].initialize(minutely(witness, host, "a", "b", seconds=20))
        await cluster.advance(minutes=3)
        for scheduler in schedulers:
            await scheduler.stop()
        lines = list(cluster.memory.trace_lines())
    report = judge_lines(lines)
    assert (report.ended, report.violated, report.crashes, report.tasks) == (True, False, 0, 2)
    events = [json.loads(line) for line in lines[1:-1]]
    assert [event[0] for event in events[:6]] == ["BT", "IS", "RG", "RG", "IE", "BT"]
    declared = [event for event in events if event[0] == "IE"]
    assert [(event[3], event[5], event[8], event[10], event[12]) for event in declared] == [
        (1, 2, 7, "UTC", False),
        (2, 2, 7, "UTC", False),
    ]
    assert declared[0][6] == declared[1][6] != ""  # both state the digest of what is in force
    assert [event[0] for event in events[-4:]] == ["RE", "SE", "SS", "SE"]
    assert {event[3] for event in events if event[0] == "RS"} == {1, 2}


async def test_a_host_that_learns_late_of_the_trace_leaves_no_hole() -> None:
    """Entries are the same whether a trace is kept or not; only notes are missing until the host knows."""
    async with cluster_at() as cluster:
        witness = Witness(cluster)
        old, new = await cluster.host(), await cluster.host()
        await (first := old.scheduler()).initialize(minutely(witness, old, "a", "b", seconds=70))
        await cluster.advance(minutes=1)
        assert list(cluster.memory.trace_lines()) == []
        old.cut_off = True
        await new.scheduler(trace=True).initialize(minutely(witness, new, "a", "c", seconds=70))
        await cluster.advance(seconds=10)
        old.cut_off = False
        await cluster.advance(minutes=2)
        await first.stop()
        lines = list(cluster.memory.trace_lines())
        header = json.loads(lines[0])
        report = judge_memory(cluster.memory)
    assert [each["key"] for each in header["registers"]["scheduler"]["hosts"]] == [1]
    assert {row[0]: row[8] is not None for row in header["registers"]["tasks"]} == {"a": True, "b": True}
    assert not report.violated, [str(each) for each in report.violations]
    ends = [json.loads(line) for line in lines[1:-1] if json.loads(line)[0] == "RE" and json.loads(line)[3] == 1]
    assert {end[4] for end in ends} == {"a", "b"}
    assert [event.option for event in old.events if isinstance(event, HostOptionOverruled)] == ["trace"]


@pytest.mark.parametrize("hours", [-0.2, -5.0, -30.0, 0.02, 3.0])
@pytest.mark.parametrize("alone", [True, False])
async def test_steps_of_the_stores_clock_are_told_once_it_shows_less(hours: float, alone: bool) -> None:
    """SPEC 2.5, 9.11: instants of the log go back only with the clock of the store, and a CK says so."""
    async with cluster_at() as cluster:
        witness = Witness(cluster)
        hosts = [await cluster.host() for _ in range(1 if alone else 3)]
        for host in hosts:
            await host.scheduler(trace=True).initialize(minutely(witness, host, "a", "b", seconds=25))
        await cluster.advance(minutes=2, seconds=10)
        cluster.set_clock(seconds=3600 * hours)
        await cluster.advance(minutes=5)
        if alone:
            await hosts[0].crash()
            cluster.set_clock(seconds=-300)
            host = await cluster.host()
            await host.scheduler(trace=True).initialize(minutely(witness, host, "a", "b", seconds=25))
            await cluster.advance(minutes=3)
        told = events_of(cluster.memory)
        report = judge_memory(cluster.memory)
    assert not report.violated, [str(each) for each in report.violations]
    assert any(event[0] == "CK" for event in told)


async def test_places_and_zones_and_withdrawn_runs_are_told() -> None:
    """RG has where a callback runs; a run of a withdrawn declaration goes on, and the next one waits for it."""

    def blocks() -> None:
        pass

    async with cluster_at(zone="Europe/Berlin") as cluster:
        witness = Witness(cluster)
        host = await cluster.host()
        scheduler = host.scheduler(trace=True)
        work = witness.callback(host, "a", seconds=90, steps=9)
        delay = timedelta(seconds=5)
        await scheduler.initialize([("a", "* * * * *", work, delay), ("b", "* * * * *", blocks, delay)])
        await cluster.advance(minutes=1)

        async def waits() -> None:
            await host.sleep(1)

        await scheduler.initialize([("a", "* * * * *", work, 2 * delay), ("b", "* * * * *", waits, delay)])
        await cluster.advance(minutes=3)
        await scheduler.stop()
        report = judge_memory(cluster.memory)
        registered = [event[4:7] + event[9:10] + event[11:] for event in events_of(cluster.memory) if event[0] == "RG"]
    assert registered == [
        ["a", 1, "new", "Europe/Berlin", "loop"],
        ["b", 2, "new", "Europe/Berlin", "thread"],
        ["a", 3, "overridden", "Europe/Berlin", "loop"],
        ["b", 2, "preserved", "Europe/Berlin", "loop"],
    ]
    assert not report.violated, [str(each) for each in report.violations]


async def test_a_refused_call_and_a_refused_stop_are_told() -> None:
    async with cluster_at() as cluster:
        host = await cluster.host()
        scheduler = host.scheduler(trace=True)

        async def stops() -> None:
            await scheduler.stop()

        await scheduler.initialize([("a", "* * * * *", stops, timedelta(minutes=5))])
        await cluster.advance(minutes=1)
        with pytest.raises(Exception, match="already scheduled"):
            await scheduler.initialize([("a", "* * * * *", stops, timedelta(0))] * 2)
        await cluster.advance(seconds=1)
        await scheduler.stop()
        letters = [event[0] for event in events_of(cluster.memory)]
        report = judge_memory(cluster.memory)
    assert letters.count("SF") >= 1
    assert (letters.count("IS"), letters.count("IF")) == (2, 1)
    assert (report.ended, report.violated) == (True, False)


async def test_a_hole_in_the_log_is_refused() -> None:
    async with cluster_at() as cluster:
        witness = Witness(cluster)
        host = await cluster.host()
        await host.scheduler(trace=True).initialize(minutely(witness, host, "a"))
        await cluster.advance(minutes=3)
        del cluster.memory.log[4]
        with pytest.raises(TraceError, match="entry 4 is missing"):
            judge_memory(cluster.memory)


@pytest.mark.parametrize("loads", [False, True])
async def test_a_declaration_whose_answer_was_lost_is_taken_in_when_the_store_tells_it(loads: bool) -> None:
    """A commit can succeed and still report a fault: the host then serves what it has put in force."""
    async with cluster_at() as cluster:
        witness = Witness(cluster)
        host = await cluster.host()
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize(minutely(witness, host, "a", "b"))
        await cluster.advance(minutes=1)

        def lose(request: str, made: bool) -> None:
            if request == "replace" and made:
                raise StoreError("lost", store="shared memory", operation=request, code="", permanent=False)

        host.on_request = lose
        with pytest.raises(ScheduleTaskError):
            await scheduler.initialize(minutely(witness, host, "a", "c"))
        host.on_request = None
        if loads:  # the log has forgotten the entry by the time the host reads
            cluster.memory.pruned = cluster.memory.last_seq()
        await cluster.advance(minutes=2)
        assert len(witness.of("c")) >= 2
        await scheduler.stop()
        report = judge_memory(cluster.memory)
    assert (report.ended, report.violated) == (True, False)


# --- the judge objects -----------------------------------------------------------------------------------------------


def grant_everything(memory: SharedMemory) -> None:
    """A store that grants a start although its record has changed since, or its task runs elsewhere."""
    start = memory._start

    def granted(block: Any, generation: int, run: int, me: int, seq: int, seen: int) -> bool:
        state = memory.states.get(generation)
        if state is not None:
            state.run, state.changed, state.blocked_by = None, 0, None
        return start(block, generation, run, me, seq, seen)

    memory._start = granted  # type: ignore[method-assign]


def let_the_dead_write(memory: SharedMemory) -> None:
    """A store that records what a buried host says."""
    memory._check_host = lambda me: None  # type: ignore[method-assign]
    end = memory._end

    def kept(block: Ended, me: int, seq: int) -> list[int]:
        end(block, me, seq)
        return []

    memory._end = kept  # type: ignore[method-assign]


def forget_marks(memory: SharedMemory) -> None:
    """A store that forgets which minute was served."""
    start = memory._start

    def forgetful(block: Any, generation: int, run: int, me: int, seq: int, seen: int) -> bool:
        granted = start(block, generation, run, me, seq, seen)
        memory.states[generation].served_through -= 120  # type: ignore[assignment]
        return granted

    memory._start = forgetful  # type: ignore[method-assign]


BROKEN: dict[str, tuple[Callable[[SharedMemory], None], set[str]]] = {
    "a start is granted although it must be refused": (grant_everything, {"S1", "S2"}),
    "the end of a buried host is recorded": (let_the_dead_write, {"S6b", "E2", "EW"}),
    "what was served is forgotten": (forget_marks, {"S2"}),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_the_checker_objects_to_a_broken_store(how: str) -> None:
    """The judge can object: without a guard of the store, properties are violated in this very history."""
    breaks, expected = BROKEN[how]
    found = await disturbed(breaks)
    assert found & expected, found
    assert await disturbed(lambda memory: None) == set()


async def disturbed(breaks: Callable[[SharedMemory], None]) -> set[str]:
    """Two hosts at the same tasks, one of which is frozen until it is buried, and goes on."""
    async with cluster_at() as cluster:
        keep_the_log(cluster.memory)
        breaks(cluster.memory)
        witness = Witness(cluster)
        hosts = [await cluster.host() for _ in range(2)]
        for host in hosts:
            await host.scheduler(trace=True).initialize(minutely(witness, host, *"abcd", seconds=25, steps=5))
        await cluster.advance(minutes=1, seconds=58)
        hosts[0].freeze()
        await cluster.advance(minutes=1, seconds=30)
        await hosts[0].thaw()
        await cluster.advance(minutes=3)
        # A decision that was made before the other host wrote, and reaches the store after it.
        await crossing(cluster)
        return violated(cluster.memory)


async def crossing(cluster: SimulatedCluster) -> None:
    """Repeat the last start of each living host under a new number, as a host that decides by old news would."""
    memory = cluster.memory
    for host in memory.living():
        starts = [
            block
            for entry in memory.log.values()
            if entry.host == host.key and hasattr(entry.content, "starts")
            for block in entry.content.starts
        ]
        if starts:
            last = max(starts, key=lambda block: block.at)
            run = host.key * RUNS_OF_A_HOST + 10**9
            again = Changes(starts=(type(last)(**{**_fields(last), "first_run": run}),))
            memory.write(HostIdentity(host.key, host.identifier), 10**6, Position(memory.pruned, None), again)


def _fields(block: Any) -> dict[str, Any]:
    return {name: getattr(block, name) for name in block.__dataclass_fields__}
