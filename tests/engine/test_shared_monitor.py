"""The monitor of a host of a shared store: what it announces and from where on, how it meets faults, how it ends."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar

import pytest

import duly.engine.shared_monitor
from duly.core.news import Unreadable
from duly.engine.gate import Gate
from duly.engine.pacing import breathe
from duly.engine.shared_monitor import Judge, SharedMonitor
from duly.errors import StoreError
from duly.events import PropertyViolated, StoreFault, StoreRecovered
from duly.stores.shared_trace import TracePart
from duly.testing import SimulatedCluster
from duly.testing.cluster import Direct, MemoryStore, Wire
from duly.testing.shared import SharedMemory
from duly.threads import DaemonThreads
from tests.cluster.test_monitors import start_what_is_not_owed, violated
from tests.engine.helpers import registration
from tests.engine.pods import Pod, joined, yearly

T = TypeVar("T")

LEASE: Final = timedelta(seconds=30)
BEAT: Final = LEASE.total_seconds() / 6
ROUNDS: Final = 10
"""Rounds of the event loop in which a monitor looks: a cluster counts as settled when the loops of its hosts are."""

LOOKS_MAX: Final = 10
"""Looks after which any trace of these tests has been read."""

HANGING_SECONDS_MAX: Final = 5.0
"""Seconds after which a look that hangs gives up: half of what a close that waits would wait for."""


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    """A cluster at noon and five seconds."""
    async with SimulatedCluster("2024-05-01T12:00:05", "UTC", lease=LEASE) as cluster:
        yield cluster


@pytest.fixture
async def memory(cluster: SimulatedCluster) -> SharedMemory:
    """A store with a trace of one host, which runs a task every minute and has no monitor."""
    await joined(cluster, [registration("a")], trace=True)
    await cluster.advance(minutes=1)
    return cluster.memory


async def beats(cluster: SimulatedCluster, number: int = 1) -> None:
    """Let hosts beat, and monitors look."""
    await cluster.advance(seconds=number * BEAT)
    for _ in range(ROUNDS):
        await breathe()


def judge_of(memory: SharedMemory, *, joined_at: int, wire: Wire | None = None) -> Judge:
    """A judge that announces what is wrong from an entry on."""
    judge = Judge(MemoryStore(memory, wire=wire).connect())
    judge.joined(joined_at)
    return judge


def look(judge: Judge) -> list[tuple[str, int]]:
    """Judge all that there is, as a monitor does after a beat; returns what is announced, and where that is."""
    for _ in range(LOOKS_MAX):
        if not judge.look():
            break
    else:
        pytest.fail("it never comes to the end")
    found = [(each.property, each.seq) for each in judge.found]
    judge.found.clear()
    return found


# --- what is announced -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "announced"), [(-1, "S2 S3"), (0, "S2 S3"), (1, "S3"), (2, "")])
async def test_violations_are_announced_from_the_entry_of_the_joining_on(
    memory: SharedMemory, after: int, announced: str
) -> None:
    """Two entries are wrong, one after the other; what stands before the joining was told by others."""
    seq = start_what_is_not_owed(memory)
    found = look(judge_of(memory, joined_at=seq + after))
    assert found == [each for each in (("S2", seq), ("S3", seq + 1)) if each[0] in announced.split()]


@pytest.mark.parametrize(("after", "announced"), [(-1, "S2 S3"), (0, "S2 S3"), (1, "S3"), (2, "")])
async def test_a_joining_with_a_number_that_came_before_counts_from_there(
    memory: SharedMemory, after: int, announced: str
) -> None:
    """A store that was set back gives numbers again, and with them other entries."""
    seq = start_what_is_not_owed(memory)
    judge = judge_of(memory, joined_at=seq + 50)
    judge.joined(seq + after)
    assert look(judge) == [each for each in (("S2", seq), ("S3", seq + 1)) if each[0] in announced.split()]


async def test_a_later_joining_of_the_same_scheduler_leaves_nothing_out(memory: SharedMemory) -> None:
    """A host that was buried joins again: what happened meanwhile is announced, too."""
    seq = start_what_is_not_owed(memory)
    judge = judge_of(memory, joined_at=seq)
    judge.joined(seq + 50)
    assert look(judge) == [("S2", seq), ("S3", seq + 1)]


async def test_a_trace_that_is_read_again_after_the_store_was_set_back_repeats_nothing(memory: SharedMemory) -> None:
    """Two wrong entries stayed; the next two are gone, and others, as wrong, have their numbers."""
    first = start_what_is_not_owed(memory)
    second = start_what_is_not_owed(memory)
    judge = judge_of(memory, joined_at=1)
    announced = [("S2", first), ("S3", first + 1), ("S2", second), ("S3", second + 1)]
    assert look(judge) == announced
    for seq in (second, second + 1):
        del memory.log[seq]
    assert start_what_is_not_owed(memory) == second
    judge.joined(second)
    assert look(judge) == announced[2:]


async def test_a_hundred_violations_are_announced_and_no_more(memory: SharedMemory) -> None:
    """A limit of docs/cluster.md, the same as with an embedded store: the first hundred, in their order."""
    judge = judge_of(memory, joined_at=1)
    wrong = [start_what_is_not_owed(memory) for _ in range(51)]
    assert look(judge) == [each for seq in wrong[:50] for each in (("S2", seq), ("S3", seq + 1))]
    start_what_is_not_owed(memory)
    assert look(judge) == []


# --- what is read ----------------------------------------------------------------------------------------------------


class Parts:
    """A wire that keeps the parts of the trace that the store hands over."""

    def __init__(self) -> None:
        self.read: list[TracePart] = []

    def carry(self, request: str, call: Callable[[], T]) -> T:
        """Make the request."""
        answer = call()
        if isinstance(answer, TracePart):
            self.read.append(answer)
        return answer


async def test_a_declaration_is_read_once(cluster: SimulatedCluster) -> None:
    """Declarations may be a million, and a part of the trace is read with each beat."""
    pod = await joined(cluster, yearly("a", "b"), trace=True)
    parts = Parts()
    judge = judge_of(cluster.memory, joined_at=1, wire=parts)
    assert look(judge) == []
    await joined(cluster, yearly("a", "b"), trace=True)
    assert look(judge) == []
    await pod.scheduler.initialize(yearly("a", "b", "c"))
    assert look(judge) == []
    assert [sorted(part.declarations) for part in parts.read] == [[1, 2], [], [3]]


async def test_the_event_loop_gets_the_lock_after_every_so_many_events_of_one_entry_or_several(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the monitor would keep the interpreter's lock as long as a burst of thousands is judged."""
    turns: list[None] = []
    monkeypatch.setattr(duly.engine.shared_monitor, "ROWS_BETWEEN_SLEEPS", 10)
    monkeypatch.setattr(duly.engine.shared_monitor, "give_way", lambda: turns.append(None))
    await joined(cluster, [registration(f"task {number}") for number in range(27)], trace=True)
    await cluster.advance(minutes=2)
    events = len(list(cluster.memory.trace_lines())) - 2  # without header and seal
    assert look(judge_of(cluster.memory, joined_at=1)) == []
    assert (len(turns), events > 100) == (events // 10, True)


# --- faults ----------------------------------------------------------------------------------------------------------


class Away:
    """Answers nothing that a host asks about the trace while it `is_away`, and counts that."""

    def __init__(self, pod: Pod) -> None:
        self.is_away = True
        self.in_vain = 0
        pod.host.on_request = self._look

    def _look(self, request: str, made: bool) -> None:
        if self.is_away and not made and request.startswith("trace_"):
            self.in_vain += 1
            raise StoreError("no answer", store="shared memory")


async def watching(cluster: SimulatedCluster) -> Pod:
    """A host with a monitor, which has read all that there is."""
    pod = await joined(cluster, yearly("a"), monitor=True)
    await cluster.advance(seconds=1)
    return pod


def faults(pod: Pod) -> list[tuple[str, str, str, int, bool | None]]:
    """The faults that a host has told of."""
    told = pod.told(StoreFault)
    return [(each.operation, each.error_type, each.error, each.retry_in_ms, each.permanent) for each in told]


async def test_each_outage_is_told_once_and_so_is_its_end(cluster: SimulatedCluster) -> None:
    """Looks are repeated with the next beats, although nothing more was written; attempts count from the first."""
    pod = await watching(cluster)
    fault = ("trace", "StoreError", "no answer", 5_000, None)
    away = Away(pod)
    other = await joined(cluster, yearly("a"), trace=True)
    await beats(cluster, 3)
    assert (away.in_vain, faults(pod), pod.told(StoreRecovered)) == (3, [fault], [])
    away.is_away = False
    await beats(cluster)
    assert pod.told(StoreRecovered) == [StoreRecovered("trace", 4)]
    away.is_away = True
    await other.scheduler.stop()
    await beats(cluster)
    assert (away.in_vain, faults(pod)) == (4, [fault, fault])
    away.is_away = False
    await beats(cluster)
    assert pod.told(StoreRecovered) == [StoreRecovered("trace", 4), StoreRecovered("trace", 2)]
    seq = start_what_is_not_owed(cluster.memory)
    await beats(cluster)
    assert violated(pod.host) == [("S2", seq, "a")]
    assert (len(faults(pod)), len(pod.told(StoreRecovered))) == (2, 2)


async def test_a_host_that_stops_while_the_store_is_away_asks_it_nothing_about_the_trace(
    cluster: SimulatedCluster,
) -> None:
    """An answer to what is left would be waited for."""
    pod = await watching(cluster)
    away = Away(pod)
    await joined(cluster, yearly("a"), trace=True)
    await beats(cluster)
    assert away.in_vain == 1
    await pod.scheduler.stop()
    assert away.in_vain == 1


async def test_a_host_that_stops_after_an_outage_judges_what_is_left(cluster: SimulatedCluster) -> None:
    """An outage that is over is forgotten."""
    pod = await watching(cluster)
    away = Away(pod)
    await joined(cluster, yearly("a"), trace=True)
    await beats(cluster)
    away.is_away = False
    await beats(cluster)
    seq = start_what_is_not_owed(cluster.memory)
    await pod.scheduler.stop()
    assert violated(pod.host) == [("S2", seq, "a")]


@pytest.mark.parametrize("missing", [2, 3])
async def test_an_entry_that_is_missing_is_named_with_what_follows_from_it(
    cluster: SimulatedCluster, memory: SharedMemory, missing: int
) -> None:
    """A hole does not pass by itself as an outage does, and the text says so."""
    assert memory.last_seq() > missing
    del memory.log[missing]
    pod = await joined(cluster, [registration("a")], monitor=True)
    await beats(cluster)
    text = f"the log was cut: entry {missing} is missing; nothing is judged until the trace is cut"
    assert faults(pod) == [("trace", "LookupError", text, 5_000, None)]


# --- begin and end ---------------------------------------------------------------------------------------------------


async def test_a_beat_may_be_answered_before_the_first_look(cluster: SimulatedCluster) -> None:
    """A host beats from its joining on, and its monitor has its first turn when the loop has begun."""
    pod = await joined(cluster, yearly("a"), trace=True)
    seq = start_what_is_not_owed(cluster.memory)
    monitor = SharedMonitor(pod.engine.setup, MemoryStore(cluster.memory))
    monitor.hear_of(seq + 1)
    judging = asyncio.create_task(monitor.run(1, Gate(0)))
    await beats(cluster)
    assert violated(pod.host) == [("S2", seq, "a")]
    judging.cancel()


async def test_a_monitor_that_has_never_run_has_nothing_to_finish(cluster: SimulatedCluster) -> None:
    """A stop() may come before its first turn."""
    pod = await joined(cluster, yearly("a"), trace=True)
    start_what_is_not_owed(cluster.memory)
    parts = Parts()
    monitor = SharedMonitor(pod.engine.setup, MemoryStore(cluster.memory, wire=parts))
    await monitor.finish()
    monitor.close()
    assert (pod.told(PropertyViolated), parts.read) == ([], [])


class Hanging(Direct):
    """A wire on which a question about the trace waits for its `release`."""

    def __init__(self) -> None:
        self.begun, self.release, self.over = threading.Event(), threading.Event(), threading.Event()
        self.was_released = False

    def carry(self, request: str, call: Callable[[], T]) -> T:
        """Make the request, sooner or later."""
        if request == "trace_start":
            self.begun.set()
            self.was_released = self.release.wait(HANGING_SECONDS_MAX)
            self.over.set()
        return super().carry(request, call)


async def test_a_monitor_that_is_released_does_not_wait_for_a_look_that_is_under_way(cluster: SimulatedCluster) -> None:
    """An event loop that is going away waits for nothing, and a base of a million tasks takes seconds."""
    pod = await joined(cluster, yearly("a"), trace=True)
    setup, wire, gate = pod.engine.setup, Hanging(), Gate(0)
    in_a_thread = replace(setup.host, new_worker=partial(DaemonThreads, 1, "looks"))
    monitor = SharedMonitor(replace(setup, host=in_a_thread), MemoryStore(cluster.memory, wire=wire))
    judging = asyncio.create_task(monitor.run(1, gate))
    assert await asyncio.to_thread(wire.begun.wait, HANGING_SECONDS_MAX)
    gate.abandoned = True
    judging.cancel()
    await asyncio.wait([judging])
    wire.release.set()
    assert await asyncio.to_thread(wire.over.wait, HANGING_SECONDS_MAX)
    assert wire.was_released


async def test_what_follows_a_newer_base_is_judged_though_an_entry_before_it_cannot_be_read(
    cluster: SimulatedCluster, memory: SharedMemory
) -> None:
    """A violation there was told when something else was written, and not at all if the host stopped before."""
    judge = judge_of(memory, joined_at=1)
    assert look(judge) == []
    await joined(cluster, [registration("a")], trace=True)
    seq = memory.last_seq()
    memory.log[seq] = replace(memory.log[seq], content=Unreadable("dreamt"))
    memory.rotate_trace(1)
    bad = start_what_is_not_owed(memory)
    assert [(each, where) for each, where in look(judge) if where >= bad] == [("S2", bad)]
    assert len(judge.unreadable) == 1
