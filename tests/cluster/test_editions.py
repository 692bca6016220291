"""SPEC 9.13 to 9.18: which of several declared sets is in force, on simulated hosts."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from duly.errors import ForeignSetError, ScheduleTaskError, TaskListMismatchError
from duly.events import DeclarationSuperseded, EditionReinstated, HostZoneChanged
from duly.scheduler import Scheduler
from duly.testing import SimulatedCluster
from duly.testing.cluster import ClusterHost
from tests.cluster.histories import granted_starts, judge, keep_the_log
from tests.cluster.judged_trace import judge_memory
from tests.cluster.witness import Witness, minutely

LEASE = timedelta(seconds=30)
OLD = ("kept", "old")
NEW = ("kept", "new")


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    """It is shortly after noon."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=LEASE) as cluster:
        yield cluster


@pytest.fixture
def witness(cluster: SimulatedCluster) -> Witness:
    """Nothing has run."""
    return Witness(cluster)


def in_force(cluster: SimulatedCluster) -> set[str]:
    """The names of the tasks in force."""
    return {task.name for task in cluster.memory.tasks.values() if task.retired_at is None}


def served_minutes(cluster: SimulatedCluster, task: str) -> list[int]:
    """The minutes after noon for which starts of a task were granted."""
    return [
        (scheduled // 1_000_000 // 60) % 60
        for generation, scheduled, cause in granted_starts(cluster.memory)
        if cluster.memory.tasks[generation].name == task and cause == "cron"
    ]


async def pod(cluster: SimulatedCluster, witness: Witness, *names: str) -> tuple[ClusterHost, Scheduler]:
    """A host that declares these tasks."""
    host = await cluster.host()
    scheduler = host.scheduler(trace=True)
    await scheduler.initialize(minutely(witness, host, *names))
    return host, scheduler


# --- the table: {same, new, older} x {in force has living hosts, has none} x {first, re-initialise} -------------------


async def test_the_first_host_with_the_set_in_force_changes_nothing(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    await pod(cluster, witness, *OLD)
    await pod(cluster, witness, *OLD)
    assert (cluster.memory.edition, in_force(cluster)) == (1, set(OLD))


async def test_the_same_set_after_all_hosts_are_gone_changes_nothing(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    host, _ = await pod(cluster, witness, *OLD)
    await host.crash()
    await cluster.advance(minutes=5)
    await pod(cluster, witness, *OLD)
    assert (cluster.memory.edition, in_force(cluster)) == (1, set(OLD))


async def test_a_new_set_is_put_in_force_while_the_old_one_lives(cluster: SimulatedCluster, witness: Witness) -> None:
    old, _ = await pod(cluster, witness, *OLD)
    await pod(cluster, witness, *NEW)
    await cluster.advance(minutes=1)
    assert (cluster.memory.edition, in_force(cluster)) == (2, set(NEW))
    (superseded,) = [event for event in old.events if isinstance(event, DeclarationSuperseded)]
    assert (superseded.edition, superseded.superseded_by) == (1, 2)
    assert (superseded.tasks_withdrawn, superseded.tasks_unknown) == (1, 1)


async def test_a_new_set_is_put_in_force_when_nobody_lives(cluster: SimulatedCluster, witness: Witness) -> None:
    _, scheduler = await pod(cluster, witness, *OLD)
    await scheduler.stop()
    await pod(cluster, witness, *NEW)
    assert (cluster.memory.edition, in_force(cluster)) == (2, set(NEW))


async def test_an_older_set_joins_as_outdated_while_the_newer_one_lives(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.14: the restart of an old pod never brings the old set back."""
    await pod(cluster, witness, *OLD)
    await pod(cluster, witness, *NEW)
    again, _ = await pod(cluster, witness, *OLD)
    assert (cluster.memory.edition, in_force(cluster)) == (2, set(NEW))
    assert [event.superseded_by for event in again.events if isinstance(event, DeclarationSuperseded)] == [2]


async def test_an_older_set_is_put_in_force_when_nobody_lives(cluster: SimulatedCluster, witness: Witness) -> None:
    _first, one = await pod(cluster, witness, *OLD)
    _second, two = await pod(cluster, witness, *NEW)
    for scheduler in (one, two):
        await scheduler.stop()
    await pod(cluster, witness, *OLD)
    assert (cluster.memory.edition, in_force(cluster)) == (1, set(OLD))


async def test_declaring_the_set_in_force_again_makes_no_edition(cluster: SimulatedCluster, witness: Witness) -> None:
    host, scheduler = await pod(cluster, witness, *OLD)
    await scheduler.initialize(minutely(witness, host, *OLD))
    assert cluster.memory.edition == 1


async def test_a_later_initialize_with_a_new_set_makes_an_edition(cluster: SimulatedCluster, witness: Witness) -> None:
    host, scheduler = await pod(cluster, witness, *OLD)
    other, _ = await pod(cluster, witness, *OLD)
    await scheduler.initialize(minutely(witness, host, *NEW))
    await cluster.advance(minutes=1)
    assert (cluster.memory.edition, in_force(cluster)) == (2, set(NEW))
    assert [event for event in other.events if isinstance(event, DeclarationSuperseded)]


async def test_a_later_initialize_with_an_old_set_makes_a_new_edition_all_the_same(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.15: it is an explicit act."""
    await pod(cluster, witness, *OLD)
    host, scheduler = await pod(cluster, witness, *NEW)
    await scheduler.initialize(minutely(witness, host, *OLD))
    assert (cluster.memory.edition, in_force(cluster)) == (3, set(OLD))


@pytest.mark.parametrize(
    ("names", "edition"),
    [
        pytest.param(NEW, 2, id="same"),
        pytest.param(("kept", "newer"), 3, id="new"),
        pytest.param(OLD, 3, id="older"),
    ],
)
@pytest.mark.parametrize("leaves", [True, False], ids=["left", "buried"])
async def test_a_later_initialize_counts_also_when_the_edition_in_force_has_lost_its_hosts(
    cluster: SimulatedCluster, witness: Witness, names: tuple[str, ...], edition: int, leaves: bool
) -> None:
    """SPEC 9.15: the set in force makes no edition, any other one does; that of the host itself, too."""
    keep_the_log(cluster.memory)
    old, scheduler = await pod(cluster, witness, *OLD)
    new, other = await pod(cluster, witness, *NEW)
    await cluster.advance(minutes=1)
    await (other.stop() if leaves else new.crash())
    await cluster.advance(seconds=50)  # less than two leases after the last beat, and more than a burial takes
    assert [row.edition for row in cluster.memory.living()] == [1]
    assert (cluster.memory.edition, in_force(cluster)) == (2, set(NEW))
    await scheduler.initialize(minutely(witness, old, *names))
    assert (cluster.memory.edition, in_force(cluster)) == (edition, set(names))
    assert [row.edition for row in cluster.memory.living()] == [edition]
    await cluster.advance(minutes=6)
    assert (cluster.memory.edition, in_force(cluster)) == (edition, set(names))
    assert [event for event in old.events if isinstance(event, EditionReinstated)] == []
    judge(cluster, witness, "")
    assert served_minutes(cluster, "kept") == list(range(9))


async def test_a_host_whose_set_comes_back_is_not_outdated(cluster: SimulatedCluster, witness: Witness) -> None:
    """SPEC 9.15: the set has a new number, for every host that declares it."""
    old, _ = await pod(cluster, witness, *OLD)
    new, scheduler = await pod(cluster, witness, *NEW)
    await cluster.advance(minutes=1)
    await scheduler.initialize(minutely(witness, new, *OLD))
    assert {row.edition for row in cluster.memory.living()} == {3}
    await cluster.advance(minutes=1)
    witness.runs.clear()
    await cluster.advance(minutes=4)
    # Both have a share of the work, and nobody waits for the other.
    assert {run.host for run in witness.runs} == {old.number, new.number}
    assert {run.began.second for run in witness.runs} == {0}
    superseded = [event.superseded_by for event in old.events if isinstance(event, DeclarationSuperseded)]
    assert superseded == [2]
    await scheduler.stop()
    await cluster.advance(minutes=4)
    assert cluster.memory.edition == 3
    assert not any(isinstance(event, EditionReinstated) for event in old.events)


async def test_the_trace_says_that_a_set_came_back_for_other_hosts_too(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """Otherwise the checker would ask nothing of them: their edition would not be the one in force."""
    old, new = await cluster.host(), await cluster.host()
    await old.scheduler(trace=True).initialize(minutely(witness, old, *OLD))
    scheduler = new.scheduler(trace=True)
    await scheduler.initialize(minutely(witness, new, *NEW))
    await cluster.advance(minutes=1)
    await scheduler.initialize(minutely(witness, new, *OLD))
    await cluster.advance(minutes=1)
    await scheduler.stop()
    await cluster.advance(minutes=4)
    events = [json.loads(line) for line in cluster.memory.trace_lines()][1:-1]
    assert [(event[3], event[4]) for event in events if event[0] == "RN"] == [(new.number, old.number)]
    assert [event[-2] for event in events if event[0] == "IE"] == [1, 2, 3]
    assert not judge_memory(cluster.memory).violated


async def test_a_request_that_was_lost_is_not_taken_for_one_of_another_host(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """The edition of a host may change by the call of another: only the number of its request tells that it arrived."""
    old = await cluster.host()
    scheduler = old.scheduler()
    await scheduler.initialize(minutely(witness, old, *OLD))
    new, newer = await pod(cluster, witness, *NEW)
    await cluster.advance(minutes=1)
    old.cut_off = True
    with pytest.raises(ScheduleTaskError):
        await scheduler.initialize(minutely(witness, old, "kept", "never"))
    old.cut_off = False
    await newer.initialize(minutely(witness, new, *OLD))
    await cluster.advance(minutes=1)
    witness.runs.clear()
    await newer.stop()
    await cluster.advance(minutes=2)
    assert (cluster.memory.edition, in_force(cluster)) == (3, set(OLD))
    assert {run.task for run in witness.runs} == set(OLD)


# --- what hosts do with them -----------------------------------------------------------------------------------------


async def test_a_host_that_is_alone_and_has_moved_serves_the_minutes_of_its_new_zone(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.12, 2.1: every initialize() asks for the zone."""
    host = await cluster.host()
    scheduler = host.scheduler()
    tasks = [("noon", "0 12 * * *", witness.callback(host, "noon"), timedelta(seconds=30))]
    await scheduler.initialize(tasks)
    await cluster.advance(minutes=1)
    witness.runs.clear()
    host._clock._zone = ZoneInfo("America/New_York")
    await scheduler.initialize(tasks)
    assert [event.new_zone for event in host.events if isinstance(event, HostZoneChanged)] == ["America/New_York"]
    await cluster.advance(hours=24)
    assert [run.began.astimezone(ZoneInfo("America/New_York")).hour for run in witness.runs] == [12]


async def test_during_a_rollout_each_host_runs_what_it_declares_and_nothing_is_lost(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.13, SPEC 9.16, SPEC 9.18: an old host never runs what it does not know; either runs what is in both."""
    old, _ = await pod(cluster, witness, *OLD)
    await cluster.advance(minutes=2)
    new, _ = await pod(cluster, witness, *NEW)
    await cluster.advance(minutes=5)
    assert {run.task for run in witness.runs if run.host == old.number} <= {"kept", "old"}
    assert {run.task for run in witness.runs if run.host == new.number} <= {"kept", "new"}
    kept = witness.began("kept")
    assert [moment[:5] for moment in kept] == [f"12:{minute:02}" for minute in range(8)]
    assert witness.began("old")[-1] < "12:03"
    assert [moment[:5] for moment in witness.began("new")] == [f"12:{minute:02}" for minute in range(2, 8)]


async def test_a_rollback_needs_nothing_but_stopping_the_new_hosts(cluster: SimulatedCluster, witness: Witness) -> None:
    """SPEC 9.17: two leases after the last new host left, the old set is in force again."""
    old, _ = await pod(cluster, witness, *OLD)
    _, scheduler = await pod(cluster, witness, *NEW)
    await cluster.advance(minutes=3)
    witness.runs.clear()
    await scheduler.stop()
    await cluster.advance(minutes=3)
    assert (cluster.memory.edition, in_force(cluster)) == (1, set(OLD))
    assert [event.edition for event in old.events if isinstance(event, EditionReinstated)] == [1]
    assert [moment[:5] for moment in witness.began("kept")] == ["12:04", "12:05", "12:06"]
    assert witness.began("old")
    assert witness.overlaps() == []


async def test_a_rollback_takes_place_with_hosts_that_refuse_mismatches(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """`on_mismatch` is about what the application asks for; here another host has left."""
    old = await cluster.host()
    await old.scheduler(on_mismatch="refuse").initialize(minutely(witness, old, *OLD))
    _, scheduler = await pod(cluster, witness, *NEW)
    await cluster.advance(minutes=1)
    await scheduler.stop()
    await cluster.advance(minutes=3)
    assert in_force(cluster) == set(OLD)


async def test_a_canary_that_comes_back_puts_its_own_set_in_force_again(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    await pod(cluster, witness, *OLD)
    for _ in range(3):
        canary, _ = await pod(cluster, witness, *NEW)
        assert in_force(cluster) == set(NEW)
        await canary.crash()
        await cluster.advance(minutes=4)
        assert in_force(cluster) == set(OLD)
    assert sorted({edition for edition, _ in cluster.memory.editions.items()}) == [1, 2]


async def test_a_canary_that_flaps_loses_and_doubles_nothing_of_what_is_unchanged(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.17: it stays for half a minute or two, is stopped or killed, and comes back before or after a rollback."""
    keep_the_log(cluster.memory)
    for _ in range(2):
        await pod(cluster, witness, *OLD)
    flaps = [(35, 20, True), (20, 50, False), (130, 5, True), (61, 200, False), (5, 70, True), (29, 31, False)]
    for stays, is_away, stops in flaps:
        canary, scheduler = await pod(cluster, witness, *NEW)
        assert (cluster.memory.edition, in_force(cluster)) == (2, set(NEW))
        await cluster.advance(seconds=stays)
        await (scheduler.stop() if stops else canary.crash())
        await cluster.advance(seconds=is_away)
    await cluster.advance(minutes=6)
    assert in_force(cluster) == set(OLD)
    assert sorted(cluster.memory.editions) == [1, 2]
    judge(cluster, witness, "")
    assert served_minutes(cluster, "kept") == list(range(cluster.now.minute + 1))


async def test_a_rolling_deploy_of_three_versions_with_a_rollback_and_a_restart_of_an_old_pod(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.14 to 9.17: no occurrence of the task that all versions have is lost or served twice."""
    keep_the_log(cluster.memory)
    versions = (("kept", "one"), ("kept", "two"), ("kept", "two", "three"))
    first = [await pod(cluster, witness, *versions[0]) for _ in range(3)]
    await cluster.advance(seconds=70)
    second = []
    for number, (_, scheduler) in enumerate(first[:2]):
        second.append(await pod(cluster, witness, *versions[1]))
        await cluster.advance(seconds=15)
        await scheduler.stop()
        await cluster.advance(seconds=25)
        assert (cluster.memory.edition, in_force(cluster)) == (2, set(versions[1])), number
    # The old pod that is left dies and is restarted in the middle: it is outdated, and changes nothing.
    await first[2][0].crash()
    await cluster.advance(seconds=20)
    restarted, old = await pod(cluster, witness, *versions[0])
    assert [event.superseded_by for event in restarted.events if isinstance(event, DeclarationSuperseded)] == [2]
    third = [await pod(cluster, witness, *versions[2]) for _ in range(2)]
    await cluster.advance(minutes=2, seconds=20)
    assert (cluster.memory.edition, in_force(cluster)) == (3, set(versions[2]))
    # Version three is withdrawn, pod by pod: the newest that lives then is version two.
    for _, scheduler in third:
        await scheduler.stop()
        await cluster.advance(seconds=40)
    await cluster.advance(minutes=1)
    assert (cluster.memory.edition, in_force(cluster)) == (2, set(versions[1]))
    # And version two, too: one pod is killed, the other one stopped.
    await second[0][0].crash()
    await second[1][1].stop()
    await cluster.advance(minutes=4)
    assert (cluster.memory.edition, in_force(cluster)) == (1, set(versions[0]))
    await pod(cluster, witness, *versions[0])
    await old.stop()
    await cluster.advance(minutes=4)
    judge(cluster, witness, "")
    assert served_minutes(cluster, "kept") == list(range(cluster.now.minute + 1))


async def test_a_run_of_a_withdrawn_declaration_is_waited_for_by_its_successor_on_another_host(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 5.3, cluster-wide."""
    old, new = await cluster.host(), await cluster.host()
    await old.scheduler().initialize([("job", "* * * * *", witness.callback(old, "job", seconds=100, steps=10), LEASE)])
    await cluster.advance(seconds=5)
    await new.scheduler().initialize(
        [("job", "* * * * *", witness.callback(new, "job", seconds=5, steps=1), timedelta(seconds=1))]
    )
    await cluster.advance(minutes=5)
    first, second, *_ = witness.of("job")
    assert (first.host, first.outcome, second.host) == (old.number, "returned", new.number)
    assert second.began >= first.last_step
    assert witness.overlaps() == []


# --- refusals --------------------------------------------------------------------------------------------------------


async def test_a_set_without_a_common_name_is_taken_for_another_application(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.14."""
    await pod(cluster, witness, *OLD)
    host = await cluster.host()
    scheduler = host.scheduler()
    with pytest.raises(ForeignSetError, match="schema"):
        await scheduler.initialize(minutely(witness, host, "other"))
    assert [row.key for row in cluster.memory.living()] == [1]
    await scheduler.initialize(minutely(witness, host, *OLD))
    assert len(cluster.memory.living()) == 2


@pytest.mark.parametrize("names", [NEW, OLD])
async def test_on_mismatch_refuse_refuses_a_newer_set_and_an_older_one(
    cluster: SimulatedCluster, witness: Witness, names: tuple[str, ...]
) -> None:
    await pod(cluster, witness, *OLD)
    if names is OLD:
        await pod(cluster, witness, *NEW)
    host = await cluster.host()
    with pytest.raises(TaskListMismatchError):
        await host.scheduler(on_mismatch="refuse").initialize(minutely(witness, host, *names))
    assert in_force(cluster) == (set(NEW) if names is OLD else set(OLD))


async def test_on_mismatch_refuse_refuses_a_set_that_differs_in_interrupted_alone(
    cluster: SimulatedCluster, witness: Witness
) -> None:
    """SPEC 9.13, 9.14: it is another edition; in a first call and in a later one."""
    await pod(cluster, witness, *OLD)
    host = await cluster.host()
    tasks = minutely(witness, host, *OLD)
    with pytest.raises(TaskListMismatchError, match="interrupted is 'wait' and was 'restart'") as raised:
        await host.scheduler(on_mismatch="refuse", interrupted="wait").initialize(tasks)
    assert raised.value.details["interrupted"] == {"stored": "restart", "declared": "wait"}
    assert raised.value.details["changed"] == {}
    scheduler = host.scheduler(on_mismatch="refuse")
    await scheduler.initialize(tasks)
    other = await cluster.host()
    await other.scheduler(interrupted="wait").initialize(minutely(witness, other, *OLD))
    await cluster.advance(seconds=10)
    with pytest.raises(TaskListMismatchError, match="interrupted is 'restart' and was 'wait'"):
        await scheduler.initialize(tasks)
    assert cluster.memory.edition == 2
