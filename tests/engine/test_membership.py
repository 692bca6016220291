"""One host of a shared store: what its writes tell it, its beats, and its end."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from duly.core.changes import Batch
from duly.core.moments import Instant, Minute, minute_of
from duly.core.news import Written
from duly.core.task import Correction
from duly.engine.membership import Connections, Listener, Membership
from duly.errors import HostGoneError, StoreError
from duly.stores.shared import BeatAnswer
from duly.testing import SimulatedCluster
from duly.testing.cluster import ClusterHost, WiredFunctions
from tests.cluster.witness import Witness, minutely
from tests.engine.helpers import engine_of, registration
from tests.spec.helpers import microseconds

LEASE = timedelta(seconds=30)
SECOND = 1_000_000
YEARLY = registration("yearly", "0 0 1 1 *")


class Ears(Listener):
    """Remember what a membership tells, but for answered beats."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def heard(self, answer: BeatAnswer) -> None:
        """A beat was answered."""

    def suspended(self, seconds: float) -> None:
        self.told.append("suspended")

    def resumed(self, seconds: float) -> None:
        self.told.append(("resumed", seconds))

    def lost(self, error: StoreError) -> None:
        self.told.append(("lost", type(error)))

    def skewed(self, microseconds: int) -> None:
        self.told.append(("skewed", microseconds))

    def buried(self, key: int, seq: int) -> None:
        """This host has buried another; the tests of `Colleagues` look at what follows."""
        return

    def deserted(self) -> None:
        """No running host declares the edition in force."""
        return

    def unanswered_beat(self, fault: StoreError, retry_in_seconds: float) -> None:
        """A beat failed."""
        return

    def answered_again(self, beats: int) -> None:
        """A beat was answered after others that failed."""
        return

    def stumbled(self, fault: Exception) -> None:
        raise AssertionError("a defect") from fault


class Closable(WiredFunctions):
    """A connection that knows whether it is closed."""

    closed = False

    def close(self) -> None:
        """Close it."""
        self.closed = True


class Bench:
    """The membership of a host, whose beats the test sends, on clocks that it moves."""

    def __init__(self, cluster: SimulatedCluster, host: ClusterHost, joined: Membership, parts: Connections) -> None:
        self.cluster = cluster
        self.host = host
        self.boot = 1_000.0
        self.ahead = 0
        """Microseconds by which the wall clock is ahead of that of the store."""
        self.requests: Counter[str] = Counter()
        self.functions = Closable(cluster.memory, host)
        surroundings = replace(parts.host, boottime=lambda: self.boot, wall=lambda: self.wall)
        self.connections = replace(parts, functions=self.functions, worker=parts.host.new_worker(), host=surroundings)
        self.ears = Ears()
        self.membership = Membership(
            self.connections, joined.me, joined.position, sent=self.boot, edition_in_force=joined.edition_in_force
        )
        host.on_request = self._count

    def _count(self, request: str, made: bool) -> None:
        self.requests[request] += not made

    @property
    def wall(self) -> int:
        """The wall clock of the host."""
        return microseconds(self.cluster.now) + self.ahead

    def pass_by(self, seconds: float) -> None:
        """Time passes for this host and for the store."""
        self.boot += seconds
        self.cluster.set_clock(seconds=seconds)

    async def live(self, seconds: float) -> None:
        """Let time pass in the cluster, a tenth of a second at a time."""
        for _ in range(round(seconds * 10)):
            for _ in range(5):
                await asyncio.sleep(0)
            await self.cluster.advance(seconds=0.1)

    async def beat(self) -> None:
        """Send a beat, and hear what comes of it."""
        self.membership.listener = self.ears
        self.membership.beat()
        await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A host that has just joined; its scheduler does nothing as long as the time of the cluster does not pass."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        host = await cluster.host()
        scheduler = host.scheduler()
        await scheduler.initialize([YEARLY])
        member = engine_of(scheduler).member
        assert member is not None
        yield Bench(cluster, host, member.membership, member.connections)


# --- the log ---------------------------------------------------------------------------------------------------------


async def test_a_host_that_joined_knows_the_log_up_to_there(bench: Bench) -> None:
    assert not bench.membership.behind
    await bench.membership.write(Batch(), 5)
    assert bench.membership.position.seq == bench.cluster.memory.last_seq()
    assert not bench.membership.behind


async def test_an_answer_tells_that_others_have_written(bench: Bench) -> None:
    """SPEC 9.9: the position stays before what this host has not read."""
    other = await bench.cluster.host()
    await other.scheduler().initialize([YEARLY])
    before = bench.membership.position
    await bench.membership.write(Batch(), 5)
    assert bench.membership.position == before
    assert bench.membership.end_of_log == bench.cluster.memory.last_seq()
    assert bench.membership.behind


async def test_a_correction_is_loaded_from_the_store(bench: Bench) -> None:
    """SPEC 2.5, 9.11: what it made of each record stands there alone."""
    now = Instant(microseconds(bench.cluster.now))
    correction = Correction(now, minute_of(now, bench.connections.clock.zone()))
    await bench.membership.write(Batch([correction]), 5)
    assert not bench.membership.must_load, "there was nothing to correct"
    (state,) = bench.cluster.memory.states.values()
    state.served_through = Minute(state.served_through + 10 * 86_400)
    await bench.membership.write(Batch([correction]), 6)
    assert bench.membership.must_load


async def test_a_host_knows_how_long_its_last_write_took(bench: Bench) -> None:
    """SPEC 9.8: courtesy is twice as long."""

    def slow(request: str, made: bool) -> None:
        bench.boot += 0.25 * made

    bench.host.on_request = slow
    assert bench.membership.latency == 0
    await bench.membership.write(Batch(), 5)
    assert bench.membership.latency == 0.25


async def test_refused_starts_are_not_counted_as_runs(bench: Bench) -> None:
    """CLUSTER, write: a host says how many of its runs are on record before its starts."""
    witness = Witness(bench.cluster)
    host = await bench.cluster.host()
    await host.scheduler().initialize([YEARLY, *minutely(witness, host, "report", "backup")])
    await bench.cluster.advance(minutes=1)
    bench.cluster.memory.states[2].blocked_by = 77
    await bench.cluster.advance(minutes=3)
    written = [entry.content for entry in bench.cluster.memory.news(bench.membership.position).entries]
    started = [content for content in written if isinstance(content, Written) and content.starts]
    assert any(content.refused for content in started)
    assert {content.running for content in started} == {0}


async def test_a_write_tells_that_the_host_was_buried(bench: Bench) -> None:
    """SPEC 9.6: the lease is lost at once, and not with the next beat; it is told once, also to a late listener."""
    membership, me = bench.membership, bench.membership.me
    bench.cluster.memory.bury(me, me.key, None)
    with pytest.raises(HostGoneError):
        await membership.write(Batch(), 5)
    assert membership.lease.lost
    membership.listen(bench.ears)
    with pytest.raises(HostGoneError):
        await membership.write(Batch(), 6)
    await asyncio.sleep(0)
    assert bench.ears.told == [("lost", HostGoneError)]


async def test_a_host_that_has_ended_tells_of_no_loss(bench: Bench) -> None:
    """SPEC 9.19: it was buried while it stopped, which its stop() says."""
    membership, me = bench.membership, bench.membership.me
    membership.listener = bench.ears
    membership.vanish()
    bench.cluster.memory.bury(me, me.key, None)
    with pytest.raises(HostGoneError):
        await membership.write(Batch(), 5)
    await asyncio.sleep(0)
    assert bench.ears.told == []


# --- beats -----------------------------------------------------------------------------------------------------------


async def test_a_host_beats_six_times_in_a_lease(bench: Bench) -> None:
    """SPEC 9.4."""
    before = bench.requests["beat"]
    await bench.cluster.advance(seconds=60)
    assert bench.requests["beat"] - before == 12


async def test_a_host_in_a_hurry_beats_at_once(bench: Bench) -> None:
    """SPEC 9.9: it may have taken the clock of the store for another."""
    bench.membership.begin()
    await bench.live(1)
    assert bench.requests["beat"] == 1
    bench.membership.hurry()
    await bench.live(0.2)
    assert bench.requests["beat"] == 2
    bench.membership.vanish()


async def test_a_beat_tells_what_time_it_is(bench: Bench) -> None:
    """SPEC 9.11: the clock of the store counts."""
    bench.cluster.set_clock(seconds=3600)
    await bench.beat()
    assert bench.connections.clock.now() == microseconds(bench.cluster.now)


@pytest.mark.parametrize("end", ["vanished", "buried"])
async def test_a_host_that_is_gone_beats_no_more(bench: Bench, end: str) -> None:
    """SPEC 9.6, 9.19."""
    if end == "vanished":
        bench.membership.vanish()
    else:
        bench.membership.lease.lose()
    before = bench.requests["beat"]
    await bench.beat()
    assert bench.requests["beat"] == before


@pytest.mark.parametrize("step", [1.5, -1.5])
async def test_a_wall_clock_that_moves_by_itself_suspends_the_lease_until_the_next_answer(
    bench: Bench, step: float
) -> None:
    """SPEC 9.4: the machine may have been paused, without its steady clock noticing."""
    await bench.beat()
    bench.pass_by(5)
    bench.ahead += int(step * SECOND)
    bench.host.cut_off = True
    await bench.beat()
    assert not bench.membership.lease.trusted()
    bench.host.cut_off = False
    bench.pass_by(5)
    await bench.beat()
    assert bench.membership.lease.trusted()
    assert bench.ears.told == ["suspended", ("resumed", 5.0)]


async def test_a_host_that_reaches_the_store_again_says_for_how_long_it_held_its_callbacks(bench: Bench) -> None:
    """SPEC 9.6: on record, for people; a host that was in time has nothing to say."""
    await bench.beat()
    assert bench.cluster.memory.holds == []
    bench.host.cut_off = True
    bench.pass_by(LEASE.total_seconds() + 15)
    await bench.beat()
    assert bench.cluster.memory.holds == []
    bench.host.cut_off = False
    bench.pass_by(5)
    await bench.beat()
    now = Instant(microseconds(bench.cluster.now))
    assert bench.cluster.memory.holds == [(bench.membership.me.key, now - 20 * SECOND, now)]
    bench.pass_by(5)
    await bench.beat()
    assert len(bench.cluster.memory.holds) == 1


async def test_a_wall_clock_that_runs_a_little_faster_suspends_nothing(bench: Bench) -> None:
    """SPEC 9.4: each beat is compared with the one before."""
    for _ in range(4):
        await bench.beat()
        bench.pass_by(5)
        bench.ahead += int(0.4 * SECOND)
        bench.host.cut_off = True
    assert bench.membership.lease.trusted()
    assert bench.ears.told == []


@pytest.mark.parametrize(
    ("ahead", "told"),
    [
        (2 * SECOND, []),
        (2 * SECOND + 1, [("skewed", 2 * SECOND + 1)]),
        (-2 * SECOND, []),
        (-2 * SECOND - 1, [("skewed", -2 * SECOND - 1)]),
    ],
)
async def test_a_wall_clock_that_differs_by_more_than_two_seconds_is_reported(
    bench: Bench, ahead: int, told: list[object]
) -> None:
    """SPEC 9.11: with the first beat."""
    bench.ahead = ahead
    await bench.beat()
    assert bench.ears.told == told


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_a_host_tries_to_leave_every_half_second_for_half_a_minute(bench: Bench) -> None:
    """SPEC 9.19."""
    bench.host.cut_off = True
    leaving = asyncio.create_task(bench.membership.close())
    await bench.live(29.5)
    assert not leaving.done()
    assert bench.requests["leave"] == 60
    await bench.live(1)
    with pytest.raises(StoreError):
        await asyncio.wait_for(leaving, 30)


async def test_a_host_that_is_torn_down_buries_itself_and_closes_its_connection(bench: Bench) -> None:
    """SPEC 9.19: the others need not wait for a lease."""
    bench.membership.abandon()
    assert bench.cluster.memory.living() == []
    assert bench.functions.closed
