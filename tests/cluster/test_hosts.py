"""SPEC 9: hosts of one shared store, simulated: who starts what, what a freeze, a death and an outage do."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from duly.errors import LeaseLostError, StopSchedulerError, StoreError
from duly.events import (
    HostClockSkewed,
    HostJoined,
    HostLeft,
    HostLost,
    HostOptionOverruled,
    LeaseLost,
    LeaseResumed,
    LeaseSuspended,
    StartsRefused,
    TaskRunFenced,
)
from duly.testing import SimulatedCluster
from tests.cluster.judged_trace import judge_memory
from tests.cluster.witness import Witness, minutely

LEASE = timedelta(seconds=30)
NAMES = [f"task {number}" for number in range(12)]


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    """It is noon."""
    async with SimulatedCluster("2024-05-01T12:00:10", "Europe/Berlin", lease=LEASE) as cluster:
        yield cluster


@pytest.fixture
def witness(cluster: SimulatedCluster) -> Witness:
    """Nothing has run."""
    return Witness(cluster)


async def turn() -> None:
    """Let tasks that were cancelled end."""
    for _ in range(5):
        await asyncio.sleep(0)


# --- who starts what -------------------------------------------------------------------------------------------------


async def test_a_minute_is_served_once_by_any_of_three_hosts(cluster: SimulatedCluster, witness: Witness) -> None:
    for _ in range(3):
        host = await cluster.host()
        await host.scheduler().initialize(minutely(witness, host, "report"))
    await cluster.advance(minutes=10)
    assert len(witness.of("report")) == 11
    assert len(set(witness.began("report"))) == 11
    assert witness.overlaps() == []


async def test_the_work_of_a_minute_is_divided_among_the_hosts(cluster: SimulatedCluster, witness: Witness) -> None:
    """SPEC 9.8: each takes its share at once, and nothing waits."""
    for _ in range(3):
        host = await cluster.host()
        await host.scheduler().initialize(minutely(witness, host, *NAMES))
    await cluster.advance(minutes=1)
    witness.runs.clear()
    await cluster.advance(minutes=4)
    assert Counter(run.host for run in witness.runs) == {1: 16, 2: 16, 3: 16}
    assert {run.began.second for run in witness.runs} == {0}


async def test_a_host_that_joins_later_shares_the_work(cluster: SimulatedCluster, witness: Witness) -> None:
    first = await cluster.host()
    await first.scheduler().initialize(minutely(witness, first, *NAMES))
    await cluster.advance(minutes=2)
    second = await cluster.host()
    await second.scheduler().initialize(minutely(witness, second, *NAMES))
    await cluster.advance(minutes=1)
    witness.runs.clear()
    await cluster.advance(minutes=2)
    assert Counter(run.host for run in witness.runs) == {1: 12, 2: 12}
    assert any(isinstance(event, HostJoined) for event in first.events)


async def test_a_host_that_stops_leaves_its_share_to_the_others_at_once(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.19."""
    first, second = await cluster.host(), await cluster.host()
    schedulers = []
    for host in (first, second):
        schedulers.append(host.scheduler())
        await schedulers[-1].initialize(minutely(witness, host, *NAMES))
    await cluster.advance(minutes=1)
    await schedulers[0].stop()
    witness.runs.clear()
    await cluster.advance(minutes=3)
    assert Counter(run.host for run in witness.runs) == {2: 36}
    assert [event.host for event in second.events if isinstance(event, HostLeft)] == [1]


async def test_a_failure_on_one_host_is_tried_again_after_its_delay_and_not_twice(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    failures = []

    async def fails() -> None:
        failures.append(cluster.now)
        if len(failures) < 3:
            raise ValueError("no")

    for _ in range(2):
        host = await cluster.host()
        await host.scheduler().initialize([("once", "0 12 * * *", fails, timedelta(seconds=20))])
    await cluster.advance(minutes=5)
    assert [moment.strftime("%M:%S") for moment in failures] == ["00:10", "00:30", "00:50"]


# --- death -----------------------------------------------------------------------------------------------------------


async def test_the_run_of_a_host_that_dies_goes_on_elsewhere_after_a_lease_and_a_third(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.5, and 3.7 for the interrupted run; the look that buries comes as soon as it may."""
    first, second = await cluster.host(), await cluster.host()
    await first.scheduler().initialize(minutely(witness, first, "long", seconds=200, steps=50))
    await cluster.advance(seconds=5)
    await second.scheduler().initialize(minutely(witness, second, "long", seconds=200, steps=50))
    assert witness.began("long") == ["12:00:10"]
    await cluster.advance(seconds=10)
    died = cluster.now
    await first.crash()
    await cluster.advance(seconds=60)
    again = witness.of("long")[1]
    assert again.host == 2
    assert LEASE < again.began - died <= LEASE * 4 / 3 + timedelta(seconds=1)
    assert [event.host for event in second.events if isinstance(event, HostLost)] == [1]
    assert witness.overlaps() == []


async def test_minutes_that_fall_due_while_every_host_is_dead_are_served_once_when_one_comes_back(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    host = await cluster.host()
    await host.scheduler().initialize(minutely(witness, host, "report"))
    await cluster.advance(minutes=2)
    await host.crash()
    await cluster.advance(minutes=10)
    witness.runs.clear()
    fresh = await cluster.host()
    await fresh.scheduler().initialize(minutely(witness, fresh, "report"))
    await cluster.advance(seconds=20)
    assert witness.began("report") == ["12:12:11"]  # after the courtesy towards a host that may still run


# --- freezes ---------------------------------------------------------------------------------------------------------


async def test_a_host_that_was_frozen_for_long_takes_no_further_step_of_its_callbacks(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.6: it finds that it was buried, its run is cancelled, and it joins again by itself."""
    first, second = await cluster.host(), await cluster.host()
    await first.scheduler().initialize(minutely(witness, first, "long", seconds=300, steps=300))
    await second.scheduler().initialize(minutely(witness, second, "long", seconds=300, steps=300))
    await cluster.advance(seconds=20)
    first.freeze()
    await cluster.advance(seconds=90)
    await first.thaw()
    await cluster.advance(seconds=30)
    assert [run.outcome for run in witness.of("long")] == ["cancelled", "running"]
    assert witness.overlaps() == []
    assert [type(event) for event in first.events if isinstance(event, LeaseLost | TaskRunFenced)] == [
        LeaseLost,
        TaskRunFenced,
    ]
    await cluster.advance(minutes=10)
    assert witness.overlaps() == []
    assert {host.key for host in cluster.memory.living()} == {2, 3}


async def test_a_callback_that_waits_for_long_is_cancelled_at_once_and_cleans_up_undisturbed(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.6: it need not take a step to be told, and is told once while it cleans up."""
    first, second = await cluster.host(), await cluster.host()
    told: list[tuple[str, datetime]] = []

    async def waits_for_hours() -> None:
        try:
            await first.sleep(4 * 3600)
        except asyncio.CancelledError as error:
            told.append((type(error).__name__, cluster.now))
            await first.sleep(3)
            await first.sleep(3)
            told.append(("cleaned up", cluster.now))
            raise

    await first.scheduler().initialize([("long", "* * * * *", waits_for_hours, timedelta(seconds=30))])
    await second.scheduler().initialize(minutely(witness, second, "long", seconds=300, steps=300))
    await cluster.advance(seconds=20)
    first.freeze()
    await cluster.advance(seconds=90)
    await first.thaw()
    woken = cluster.now
    await cluster.advance(seconds=10)
    assert told == [("LeaseLostError", woken), ("cleaned up", woken + timedelta(seconds=6))]
    assert [type(event) for event in first.events if isinstance(event, LeaseLost | TaskRunFenced)] == [
        LeaseLost,
        TaskRunFenced,
    ]


async def test_a_short_freeze_is_not_noticed_by_the_callbacks(cluster: SimulatedCluster, witness: Witness) -> None:
    first, second = await cluster.host(), await cluster.host()
    await first.scheduler().initialize(minutely(witness, first, "long", seconds=45, steps=45))
    await second.scheduler().initialize(minutely(witness, second, "long", seconds=45, steps=45))
    await cluster.advance(seconds=8)
    first.freeze()
    await cluster.advance(seconds=20)
    await first.thaw()
    await cluster.advance(seconds=40)
    run = witness.of("long")[0]
    assert run.outcome == "returned"
    assert witness.overlaps() == []
    assert not [event for event in first.events if isinstance(event, LeaseLost)]


# --- the store is away -----------------------------------------------------------------------------------------------


async def test_an_outage_of_the_store_holds_callbacks_and_loses_nothing(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.20: with nobody to bury it, an outage of any length cancels nothing."""
    hosts = [await cluster.host() for _ in range(2)]
    for host in hosts:
        await host.scheduler().initialize(minutely(witness, host, "long", seconds=100, steps=100))
    await cluster.advance(seconds=20)
    cluster.is_down = True
    await cluster.advance(minutes=10)
    (run,) = witness.of("long")
    held_at = run.last_step
    cluster.is_down = False
    await cluster.advance(minutes=3)
    assert witness.of("long")[0].outcome == "returned"
    assert held_at.strftime("%H:%M") in ("12:00", "12:01")
    assert witness.overlaps() == []
    runner = next(host for host in hosts if host.number == run.host)
    told = [type(event) for event in runner.events if isinstance(event, LeaseSuspended | LeaseResumed | LeaseLost)]
    assert told == [LeaseSuspended, LeaseResumed]
    assert len(witness.of("long")) >= 2  # the minutes that fell due meanwhile are served


async def test_a_host_that_is_cut_off_is_buried_and_comes_back_as_another(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    first, second = await cluster.host(), await cluster.host()
    for host in (first, second):
        await host.scheduler().initialize(minutely(witness, host, *NAMES, seconds=5, steps=5))
    await cluster.advance(minutes=1)
    first.cut_off = True
    await cluster.advance(minutes=3)
    assert [host.key for host in cluster.memory.living()] == [2]
    first.cut_off = False
    await cluster.advance(minutes=3)
    assert [host.key for host in cluster.memory.living()] == [2, 3]
    assert witness.overlaps() == []
    minutes = Counter((run.task, run.began.strftime("%H:%M")) for run in witness.runs if run.outcome == "returned")
    assert all(minutes[name, f"12:{minute:02}"] >= 1 for name in NAMES for minute in range(1, 7))


@pytest.mark.parametrize("request_", ["write", "beat", "news"])
async def test_a_lost_answer_changes_nothing(cluster: SimulatedCluster, witness: Witness, request_: str) -> None:
    """A number takes effect once, and its answer is given again."""
    hosts = [await cluster.host() for _ in range(2)]
    for host in hosts:
        await host.scheduler().initialize(minutely(witness, host, *NAMES))
    await cluster.advance(minutes=1)
    witness.runs.clear()
    lost = Counter[str]()

    def lose_every_second(request: str, made: bool) -> None:
        if made and request == request_:
            lost[request] += 1
            hosts[0].lose_answers = lost[request] % 2

    hosts[0].on_request = lose_every_second
    await cluster.advance(minutes=10)
    hosts[0].on_request = None
    assert lost[request_] > 2
    assert set(Counter((run.task, run.began.strftime("%H:%M")) for run in witness.runs).values()) == {1}
    assert len(witness.runs) == 10 * len(NAMES)


async def test_a_run_that_is_not_on_record_any_more_frees_its_slot(cluster: SimulatedCluster, witness: Witness) -> None:
    """SPEC 9.10: its end is answered as fenced, and the host goes on."""
    host = await cluster.host()
    tasks = minutely(witness, host, "long", seconds=10)
    await host.scheduler(max_concurrency=1).initialize(tasks)
    await cluster.advance(seconds=5)
    state = cluster.memory.states[1]  # somebody wrote the run off, in the store
    state.run = state.run_cause = state.run_scheduled = None
    state.last_success_at = state.last_attempt_at
    await cluster.advance(minutes=3)
    assert [event.task_name for event in host.events if isinstance(event, TaskRunFenced)] == ["long"]
    assert witness.began("long")[-3:] == ["12:01:00", "12:02:00", "12:03:00"]


async def test_a_run_that_is_not_on_record_any_more_keeps_no_later_declaration_waiting(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.10, 5.3: its own declaration was replaced before its end was fenced off."""
    host = await cluster.host()
    scheduler = host.scheduler()
    for number, cron in enumerate(("0 12 * * *", "0 13 * * *", "3 12 * * *")):
        work = witness.callback(host, "a", seconds=10)
        await scheduler.initialize([("a", cron, work, timedelta(seconds=30))])
        await cluster.advance(seconds=2)
        if number == 1:  # somebody wrote the run off, in the store
            cluster.memory.strays.clear()
            cluster.memory.states[2].blocked_by = None
            await cluster.advance(seconds=30)
    assert [event.task_name for event in host.events if isinstance(event, TaskRunFenced)] == ["a"]
    await cluster.advance(minutes=3)
    assert witness.began("a") == ["12:00:10", "12:03:00"]


# --- stopping --------------------------------------------------------------------------------------------------------


async def test_a_stop_waits_for_its_runs_and_leaves(cluster: SimulatedCluster, witness: Witness) -> None:
    """SPEC 9.19, 4.3: nothing of the scheduler goes on afterwards."""
    host, before = await cluster.host(), asyncio.all_tasks()
    scheduler = host.scheduler()
    await scheduler.initialize(minutely(witness, host, "long", seconds=17.5, steps=4))
    await cluster.advance(seconds=5)
    await scheduler.stop()
    (run,) = witness.of("long")
    assert run.outcome == "returned"
    assert cluster.memory.living() == []
    assert [row.outcome for row in cluster.memory.runs] == ["success"]
    await turn()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(("answered", "gives_up"), [(0, 30), (20, 48)])
async def test_a_stop_gives_up_half_a_minute_after_the_last_answer(answered: int, gives_up: int) -> None:
    """SPEC 9.19: the held run is torn down, and the host buries itself; joining is an answer, too."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=timedelta(seconds=12)) as cluster:
        witness, host = Witness(cluster), await cluster.host()
        scheduler, before = host.scheduler(), asyncio.all_tasks()
        joined = cluster.now

        def answer_no_beat_for_long(request: str, made: bool) -> None:
            if request == "beat" and cluster.now >= joined + timedelta(seconds=answered):
                raise StoreError("no answer", store="shared memory", operation=request)

        host.on_request = answer_no_beat_for_long
        await scheduler.initialize(minutely(witness, host, "long", seconds=300, steps=300))
        await cluster.settle()
        (run,) = witness.of("long")
        stopping = asyncio.create_task(scheduler.stop())
        await cluster.advance(seconds=gives_up - 1)  # beats are sent every two seconds
        assert run.outcome == "running"
        await cluster.advance(seconds=1)
        assert run.outcome == "cancelled"
        with pytest.raises(StopSchedulerError) as raised:
            await stopping
        assert isinstance(raised.value.__cause__, TimeoutError)
        assert [row.outcome for row in cluster.memory.runs] == ["interrupted"]
        await turn()
        assert asyncio.all_tasks() == before


async def test_a_host_that_is_buried_while_it_stops_says_so(cluster: SimulatedCluster, witness: Witness) -> None:
    """SPEC 9.19."""
    first, second = await cluster.host(), await cluster.host()
    scheduler = first.scheduler()
    await scheduler.initialize(minutely(witness, first, "long", seconds=300, steps=300))
    await cluster.advance(seconds=5)
    await second.scheduler().initialize(minutely(witness, second, "long", seconds=300, steps=300))
    stopping = asyncio.create_task(scheduler.stop())
    await cluster.settle()
    first.freeze()
    await cluster.advance(seconds=90)
    await first.thaw()
    await cluster.advance(seconds=30)
    with pytest.raises(StopSchedulerError) as raised:
        await stopping
    assert isinstance(raised.value.__cause__, LeaseLostError)
    assert witness.overlaps() == []


async def test_a_stop_that_cannot_leave_says_so(cluster: SimulatedCluster, witness: Witness) -> None:
    """SPEC 9.19: nothing is under way; the others will bury the host."""
    host, before = await cluster.host(), asyncio.all_tasks()
    scheduler = host.scheduler()
    await scheduler.initialize(minutely(witness, host, "report"))
    await cluster.advance(seconds=5)
    cluster.is_down = True
    began = cluster.now
    with pytest.raises(StopSchedulerError) as raised:
        await scheduler.stop()
    assert type(raised.value.__cause__) is StoreError
    assert timedelta(seconds=30) <= cluster.now - began <= timedelta(seconds=31)
    await turn()
    assert asyncio.all_tasks() == before


async def test_a_host_that_is_buried_in_the_instant_in_which_it_leaves_says_so(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.19: its runs are interrupted; that they had ended is on record."""
    host = await cluster.host()
    scheduler = host.scheduler()
    await scheduler.initialize(minutely(witness, host, "report"))
    await cluster.advance(seconds=5)

    def bury(request: str, made: bool) -> None:
        if request == "leave" and not made:
            cluster.memory.hosts[1].gone = "b"

    host.on_request = bury
    with pytest.raises(StopSchedulerError) as raised:
        await scheduler.stop()
    assert isinstance(raised.value.__cause__, LeaseLostError)
    assert [row.outcome for row in cluster.memory.runs] == ["success"]


async def test_a_scheduler_can_be_initialised_again_after_a_stop(cluster: SimulatedCluster, witness: Witness) -> None:
    host = await cluster.host()
    scheduler = host.scheduler()
    for _ in range(3):
        await scheduler.initialize(minutely(witness, host, "report"))
        await cluster.advance(minutes=1)
        await scheduler.stop()
    assert len(cluster.memory.hosts) == 3
    assert len(witness.of("report")) == 4


# --- clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clock", "skew_ms"), [("2024-05-01T13:02:10", 3_600_000), ("2024-05-01T11:02:10", -3_600_000)]
)
async def test_a_host_whose_clock_is_wrong_says_so_once_and_serves_the_same_minutes(
    cluster: SimulatedCluster, witness: Witness, clock: str, skew_ms: int
) -> None:
    """SPEC 9.11: the clock of the store counts; told again when the clock was right in between."""
    hosts = [await cluster.host() for _ in range(2)]
    for host in hosts:
        await host.scheduler().initialize(minutely(witness, host, *NAMES))
    await cluster.advance(minutes=2)
    assert not [event for host in hosts for event in host.events if isinstance(event, HostClockSkewed)]
    witness.runs.clear()
    await hosts[0].set_clock(clock)
    await cluster.advance(minutes=5)
    assert [event.skew_ms for event in hosts[0].events if isinstance(event, HostClockSkewed)] == [skew_ms]
    await hosts[0].set_clock("2024-05-01T12:07:11")  # a second
    await cluster.advance(minutes=1)
    await hosts[0].set_clock("2024-05-01T12:08:13")  # three
    await cluster.advance(minutes=1)
    assert [event.skew_ms for event in hosts[0].events if isinstance(event, HostClockSkewed)] == [skew_ms, 3_000]
    assert set(Counter((run.task, run.began.strftime("%H:%M")) for run in witness.runs).values()) == {1}
    assert len(witness.runs) == 7 * len(NAMES)
    assert Counter(run.host for run in witness.runs).keys() == {1, 2}


# --- tables that were changed by hand --------------------------------------------------------------------------------


async def test_a_refusal_that_the_log_does_not_explain_makes_a_host_load_anew(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.9: somebody has blocked a task by hand; the host finds out, and does not ask for ever."""
    host = await cluster.host()
    await host.scheduler().initialize(minutely(witness, host, "report", "backup"))
    await cluster.advance(minutes=1)
    witness.runs.clear()
    cluster.memory.states[1].blocked_by = 77
    await cluster.advance(minutes=5)
    assert len([event for event in host.events if isinstance(event, StartsRefused)]) == 3
    assert Counter(run.task for run in witness.runs) == {"backup": 5}


# --- what a host that joins alone changes ----------------------------------------------------------------------------


async def test_a_host_that_joins_alone_acts_on_the_correction_that_it_made(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 2.5 and 9.11: the clock of the store was set back while no host ran; the joining corrects all states."""
    first = await cluster.host()
    scheduler = first.scheduler(trace=True)
    await scheduler.initialize(minutely(witness, first, "report"))
    await cluster.advance(minutes=2)
    await scheduler.stop()
    cluster.set_clock(seconds=-5 * 3600)
    witness.runs.clear()
    second = await cluster.host()
    await second.scheduler(trace=True).initialize(minutely(witness, second, "report"))
    await cluster.advance(minutes=10)
    assert len(witness.of("report")) == 10  # this minute counts as served
    assert not judge_memory(cluster.memory).violations


async def test_options_of_a_host_that_joins_alone_count_at_once(cluster: SimulatedCluster, witness: Witness) -> None:
    """SPEC 9.3: it does not say that others have overruled what it has just put in force, and keeps a trace."""
    first = await cluster.host()
    scheduler = first.scheduler(history=50)
    await scheduler.initialize(minutely(witness, first, "report"))
    await scheduler.stop()
    second = await cluster.host()
    await second.scheduler(history=60, trace=True).initialize(minutely(witness, second, "report"))
    await cluster.advance(minutes=5)
    assert (cluster.memory.history, cluster.memory.traced) == (60, True)
    assert [event for event in second.events if isinstance(event, HostOptionOverruled)] == []
    assert sum(line.startswith(b'["WK"') for line in cluster.memory.trace_lines()) == 6
