"""A host among others: what it learns, loads, divides and says."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from duly.core.moments import Instant
from duly.core.news import Unreadable, Written
from duly.core.task import Running
from duly.engine import journal as journal_module
from duly.engine.colleagues import UNEXPLAINED_MAX
from duly.errors import ScheduleTaskError, StoreError
from duly.events import (
    DeclarationSuperseded,
    HostClockSkewed,
    HostJoined,
    HostLeft,
    HostLost,
    HostOptionOverruled,
    LeaseResumed,
    StartsRefused,
    StoreFault,
    StoreRecovered,
)
from duly.stores.shared import BeatAnswer, HostIdentity, LivingHost
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


# --- learning --------------------------------------------------------------------------------------------------------


async def test_news_that_cannot_be_read_are_a_fault_until_they_can(cluster: SimulatedCluster) -> None:
    """SPEC 9.20: told once, and so is its end; nothing may be decided meanwhile."""
    pod = await joined(cluster, yearly("a"), trace=True)
    pod.fail("news")
    assert [await pod.colleagues.learn() for _ in range(3)] == [False, False, False]
    pod.host.on_request = None
    assert [await pod.colleagues.learn() for _ in range(2)] == [True, True]
    (fault,) = pod.told(StoreFault)
    assert (fault.operation, fault.error_type, fault.retry_in_ms) == ("news", "StoreError", 1000)
    assert [(event.operation, event.attempts) for event in pod.told(StoreRecovered)] == [("news", 4)]
    await cluster.advance(seconds=1)
    assert sum(line.startswith(b'["LR"') for line in cluster.memory.trace_lines()) == 1
    pod.fail("news")
    assert not await pod.colleagues.learn()
    assert len(pod.told(StoreFault)) == 2


async def test_news_that_cannot_be_read_after_the_loss_of_the_lease_are_no_fault(cluster: SimulatedCluster) -> None:
    """SPEC 9.6: the loss is announced elsewhere."""
    pod = await joined(cluster, yearly("a"))
    pod.fail("news")
    pod.membership.lease.lose()
    assert await pod.colleagues.learn() is False
    assert pod.told(StoreFault) == []


async def test_a_host_that_finds_no_news_is_not_behind(cluster: SimulatedCluster) -> None:
    """SPEC 9.9: what it had heard of was its own; but not if it hears of more meanwhile."""
    pod = await joined(cluster, yearly("a"))
    pod.membership.hear_of(1_000)
    assert await pod.colleagues.learn()
    assert not pod.membership.behind

    def hear(request: str, made: bool) -> None:
        if request == "news" and made:
            pod.membership.hear_of(2_000)

    pod.membership.hear_of(1_000)
    pod.host.on_request = hear
    assert await pod.colleagues.learn()
    assert pod.membership.behind


async def test_a_set_that_another_host_put_in_force_is_loaded_whatever_stands_after_it_in_the_log(
    cluster: SimulatedCluster,
) -> None:
    """SPEC 9.13."""
    pod = await joined(cluster, yearly("a", "b"))
    other = await joined(cluster, yearly("a", "b"))
    pod.host.freeze()
    await other.declare(yearly("a"))
    await joined(cluster, yearly("a"))
    pod.host.frozen = False
    assert pod.names() == {"a", "b"}
    assert await pod.colleagues.learn()
    assert pod.names() == {"a"}
    assert not pod.membership.behind


async def test_a_host_that_is_too_far_behind_loads_anew(cluster: SimulatedCluster) -> None:
    """SPEC 9.9: the entries that it would need are gone."""
    pod = await joined(cluster, yearly("a", "b"))
    await joined(cluster, yearly("a", "b"))
    pod.membership.hear_of(cluster.memory.last_seq())
    cluster.memory.prune(0, 0, 1_000)
    assert await pod.colleagues.learn()
    assert pod.membership.position.seq == cluster.memory.last_seq()
    assert pod.sharing() == (1, 2)


async def test_an_entry_of_a_kind_that_a_newer_version_wrote_is_loaded(cluster: SimulatedCluster) -> None:
    """Hosts of two versions of the library work side by side: what the entry changed stands in the store."""
    pod = await joined(cluster, yearly("a", "b"))
    other = await joined(cluster, yearly("a", "b"))
    pod.host.freeze()
    await other.declare(yearly("a"))
    pod.host.frozen = False
    memory = cluster.memory
    seq = memory.last_seq()
    memory.log[seq] = replace(memory.log[seq], content=Unreadable("halted"))
    assert pod.names() == {"a", "b"}
    assert await pod.colleagues.learn()
    assert pod.names() == {"a"}
    assert pod.membership.position.seq == seq
    await cluster.advance(minutes=2)
    assert pod.told(StoreFault) == []


async def test_an_instant_in_the_log_has_passed_for_its_readers(cluster: SimulatedCluster) -> None:
    """SPEC 9.11: before a beat tells them what time it is."""
    pod = await joined(cluster, yearly("a"))
    cluster.set_clock(seconds=1)
    await joined(cluster, yearly("a"))
    assert await pod.colleagues.learn()
    assert pod.member.connections.clock.now() >= microseconds(cluster.now)


async def test_a_host_learns_from_the_log_who_shares_the_work(cluster: SimulatedCluster) -> None:
    """SPEC 9.8: before a beat tells; a joining is announced once, and so is a leaving."""
    pod = await joined(cluster, yearly("a", "b"))
    second = await joined(cluster, yearly("a", "b"))
    third = await joined(cluster, yearly("a", "b"))
    assert pod.sharing() == (1,)
    assert await pod.colleagues.learn()
    assert pod.sharing() == (1, 2, 3)
    await second.declare(yearly("a", "b"))
    await second.scheduler.stop()
    assert await pod.colleagues.learn()
    assert pod.sharing() == (1, 3)
    assert [event.host for event in pod.told(HostJoined)] == [2, 3]
    assert [event.host for event in pod.told(HostLeft)] == [2]
    await cluster.advance(seconds=1)
    pod.host.freeze()  # no beat tells it
    await cluster.advance(seconds=2)
    cluster.memory.bury(third.membership.me, 3, None)
    pod.host.frozen = False
    assert await pod.colleagues.learn()
    assert pod.sharing() == (1,)
    assert pod.engine.agenda.share.since == pod.member.connections.clock.now()


async def test_a_host_learns_which_host_ran_a_task(cluster: SimulatedCluster) -> None:
    """SPEC 9.8: that host is asked first the next time; and an end frees no task that waits for another run."""
    witness = Witness(cluster)
    first, second = await cluster.host(), await cluster.host()
    pod = await Pod(cluster, first, max_concurrency=1).declare(minutely(witness, first, "a", "b", seconds=3))
    await Pod(cluster, second).declare(minutely(witness, second, "a", "b", seconds=3))
    await cluster.advance(seconds=2)
    assert [(run.task, run.host) for run in witness.runs] == [("a", 1), ("b", 2)]
    assert await pod.colleagues.learn()
    a, b = sorted(pod.engine.agenda.tasks(), key=lambda task: task.name)
    assert (a.written_by, b.written_by) == (1, 2)
    a.predecessor_runs = True
    await cluster.advance(seconds=4)
    assert await pod.colleagues.learn()
    assert not isinstance(b.state, Running)
    assert a.predecessor_runs


async def test_a_minute_that_fell_due_during_a_run_elsewhere_is_owed_when_that_run_ends(
    cluster: SimulatedCluster,
) -> None:
    """SPEC L1, 9.8: the host that ran it does nothing more, and another does not wait for the next minute."""
    witness = Witness(cluster)
    first, second = await cluster.host(), await cluster.host()
    await Pod(cluster, first).declare(minutely(witness, first, "a", seconds=70))
    await Pod(cluster, second).declare(minutely(witness, second, "a", seconds=1))
    await cluster.advance(seconds=60)

    def freeze(request: str, made: bool) -> None:
        if request == "write" and made:
            first.freeze()

    first.on_request = freeze
    await cluster.advance(seconds=30)
    assert first.frozen
    assert [(run.host, f"{run.began:%H:%M}") for run in witness.runs] == [(1, "12:00"), (2, "12:01")]


# --- declarations without an answer ----------------------------------------------------------------------------------


async def test_a_declaration_whose_answer_was_lost_is_served_as_soon_as_the_log_tells(
    cluster: SimulatedCluster,
) -> None:
    """SPEC 9.13, 4.6: also by the host that comes after this one."""
    witness = Witness(cluster)
    host = await cluster.host()
    pod = await Pod(cluster, host).declare(minutely(witness, host, "a"))
    pod.fail("replace", after=True)
    with pytest.raises(ScheduleTaskError):
        await pod.scheduler.initialize(minutely(witness, host, "a", "b"))
    pod.host.on_request = None
    await cluster.advance(minutes=2)
    assert pod.names() == {"a", "b"}
    assert witness.began("b") == ["12:00:15", "12:01:00", "12:02:00"], "a beat tells that the log goes on"
    me = pod.membership.me
    cluster.memory.bury(HostIdentity(me.key, me.identifier), me.key, None)
    await cluster.advance(minutes=2)
    assert len(witness.of("b")) == 5


async def test_a_declaration_whose_answer_was_lost_is_served_after_a_load(cluster: SimulatedCluster) -> None:
    """SPEC 9.13: the log that tells of it may be gone already."""
    pod = await joined(cluster, yearly("a"))
    pod.fail("replace", after=True)
    with pytest.raises(ScheduleTaskError):
        await pod.scheduler.initialize(yearly("a", "b"))
    await pod.colleagues.load()
    assert pod.names() == {"a", "b"}
    assert pod.told(DeclarationSuperseded) == []


# --- refusals --------------------------------------------------------------------------------------------------------


async def test_refusals_that_the_log_explains_make_no_host_load_anew(cluster: SimulatedCluster) -> None:
    """SPEC 9.9: only as many in a row as nothing explains; each of them asks for the clock of the store."""
    pod = await joined(cluster, yearly("a"))
    beats = 0

    def count(request: str, made: bool) -> None:
        nonlocal beats
        beats += request == "beat" and made

    pod.host.on_request = count
    for _ in range(2):
        for _ in range(UNEXPLAINED_MAX - 1):
            pod.colleagues.refused(1)
        assert not pod.membership.must_load
        pod.membership.hear_of(1_000)
        pod.colleagues.refused(1)
        assert not pod.membership.must_load
        assert await pod.colleagues.learn()
    for _ in range(2):
        for number in range(1, UNEXPLAINED_MAX + 1):
            pod.colleagues.refused(1)
            assert pod.membership.must_load == (number == UNEXPLAINED_MAX)
        await pod.colleagues.load()
    assert [event.starts for event in pod.told(StartsRefused)] == [1] * (4 * UNEXPLAINED_MAX)
    for _ in range(5):
        await asyncio.sleep(0)
    assert beats == 1


# --- loading ---------------------------------------------------------------------------------------------------------


async def test_a_host_that_has_loaded_is_not_behind_and_wakes_its_loop(cluster: SimulatedCluster) -> None:
    pod = await joined(cluster, yearly("a"), trace=True)
    pod.membership.must_load = True
    pod.engine.gate.wake.clear()
    assert pod.member.notes.kept
    pod.member.notes.kept = False
    await pod.colleagues.load()
    assert not pod.membership.behind
    assert pod.engine.gate.wake.is_set()
    assert pod.member.notes.kept


async def test_names_that_were_removed_elsewhere_are_remembered(cluster: SimulatedCluster) -> None:
    """SPEC 5.1: a task that is declared again within its minute does not run it twice, on whichever host."""
    witness = Witness(cluster)
    hosts = [await cluster.host() for _ in range(2)]
    pods = [await Pod(cluster, host).declare(minutely(witness, host, "a", "b")) for host in hosts]
    await cluster.advance(seconds=1)
    await pods[1].declare(minutely(witness, hosts[1], "a"))
    assert await pods[0].colleagues.learn()
    assert "b" in pods[0].engine.agenda.marks
    await pods[0].declare(minutely(witness, hosts[0], "a", "b"))
    await cluster.advance(seconds=10)
    assert witness.began("b") == ["12:00:10"]


async def test_tasks_that_a_host_does_not_declare_hide_none_that_it_does(cluster: SimulatedCluster) -> None:
    """SPEC 9.14: a newer set is in force, in which tasks of this host come after others."""
    old = timedelta(minutes=2)
    pod = await joined(cluster, yearly("a", delay=old))
    other = await joined(cluster, yearly("a") + yearly("z", delay=old))
    await other.declare(yearly("z", "a", delay=old))
    await pod.colleagues.load()
    assert pod.names() == {"a"}
    assert pod.told(DeclarationSuperseded)[-1].tasks_withdrawn == 0


async def test_a_task_with_another_expression_or_delay_is_not_the_one_that_a_host_declares(
    cluster: SimulatedCluster,
) -> None:
    """SPEC 9.14, 5.2."""
    pod = await joined(cluster, yearly("a", "b", "c"))
    changed = [*yearly("a", delay=timedelta(0)), registration("b", "0 0 2 1 *"), *yearly("c")]
    await joined(cluster, changed)
    assert await pod.colleagues.learn()
    assert pod.names() == {"c"}
    (superseded,) = pod.told(DeclarationSuperseded)
    assert (superseded.tasks_withdrawn, superseded.tasks_unknown) == (2, 2)
    await pod.colleagues.load()
    assert len(pod.told(DeclarationSuperseded)) == 1


async def test_a_host_is_not_superseded_by_its_own_declaration(cluster: SimulatedCluster) -> None:
    pod = await joined(cluster, yearly("a"))
    await pod.declare(yearly("a", "b"))
    assert pod.told(DeclarationSuperseded) == []


async def test_a_host_that_was_there_before_is_not_announced_as_new(cluster: SimulatedCluster) -> None:
    """It declares another set, which a host that joins is announced for as well."""
    first = await joined(cluster, yearly("a"))
    second = await joined(cluster, yearly("a"))
    await first.declare(yearly("a", "b"))
    assert await second.colleagues.learn()
    assert second.told(HostJoined) == []


async def test_an_option_that_does_not_count_is_told_once_and_again_after_it_did(cluster: SimulatedCluster) -> None:
    """SPEC 9.3: `history` and `trace` are those of the host that put the set in force."""
    pod = await joined(cluster, yearly("a"), history=500)
    other = await joined(cluster, yearly("a", "b"), history=700, trace=True)
    assert await pod.colleagues.learn()
    await pod.colleagues.load()
    told = [(event.option, event.value, event.in_force) for event in pod.told(HostOptionOverruled)]
    assert told == [("history", 500, 700), ("trace", False, True)]
    await pod.declare(yearly("a"))
    assert await other.colleagues.learn()
    assert len(pod.told(HostOptionOverruled)) == 2
    await other.declare(yearly("a", "b"))
    assert await pod.colleagues.learn()
    assert len(pod.told(HostOptionOverruled)) == 4


async def test_a_host_knows_which_runs_are_its_own_and_which_go_on_elsewhere(cluster: SimulatedCluster) -> None:
    """SPEC 9.6, 9.10: a run of a host that is gone was interrupted, and goes on nowhere."""
    witness = Witness(cluster)
    pods = []
    for _ in range(2):
        host = await cluster.host()
        tasks = minutely(witness, host, "a", "b", "c", "d", "e", seconds=600)
        pods.append(await Pod(cluster, host, max_concurrency=2).declare(tasks))
    await cluster.advance(seconds=8)
    by_host = {run.task: run.host for run in witness.runs}
    assert sorted(by_host.values()) == [1, 1, 2, 2]
    for pod in pods:
        await pod.colleagues.load()
        assert set(pod.colleagues.own_runs()) == {task for task in by_host if by_host[task] == pod.host.number}
        running = {task.name for task in pod.engine.agenda.tasks() if isinstance(task.state, Running)}
        assert running == by_host.keys()
    pod, gone = pods
    cluster.memory.bury(gone.membership.me, gone.membership.me.key, None)
    await pod.colleagues.load()
    running = {task.name for task in pod.engine.agenda.tasks() if isinstance(task.state, Running)}
    assert running == {task for task in by_host if by_host[task] == 1}


async def test_a_task_that_is_changed_while_it_runs_here_waits_for_the_end_of_that_run(
    cluster: SimulatedCluster,
) -> None:
    """SPEC 5.3, on a shared store as elsewhere."""
    witness = Witness(cluster)
    host = await cluster.host()
    ((name, cron, callback, _),) = minutely(witness, host, "a", seconds=70)
    pod = await Pod(cluster, host).declare([(name, cron, callback, timedelta(0))])
    await cluster.advance(seconds=10)
    await pod.declare([(name, cron, callback, timedelta(hours=1))])
    await cluster.advance(seconds=130)
    assert witness.began("a") == ["12:00:10", "12:01:20", "12:02:30"]


async def test_a_run_that_was_written_off_by_hand_keeps_its_task_here_until_it_ends(cluster: SimulatedCluster) -> None:
    """SPEC 9.10: the store does not know of it, this process does; others are not kept waiting."""
    witness = Witness(cluster)
    host = await cluster.host()
    pod = await Pod(cluster, host).declare(minutely(witness, host, "a", "b", seconds=70))
    await cluster.advance(seconds=10)
    (task,) = [each for each in pod.engine.agenda.tasks() if each.name == "a"]
    state = cluster.memory.states[task.generation]
    state.run = state.run_cause = state.run_scheduled = None
    state.last_success_at = state.last_attempt_at
    pod.membership.must_load = True
    assert await pod.colleagues.learn()
    waits = {each.name: each.predecessor_runs for each in pod.engine.agenda.tasks()}
    assert waits == {"a": True, "b": False}
    assert sorted(pod.colleagues.own_runs()) == ["a", "b"]
    await cluster.advance(seconds=65)
    assert witness.began("a") == ["12:00:10", "12:01:20"]
    assert witness.overlaps() == []


# --- beats -----------------------------------------------------------------------------------------------------------


def living(*hosts: tuple[int, int]) -> tuple[LivingHost, ...]:
    """Hosts by key and edition."""
    return tuple(LivingHost(key, 1, edition, 30_000_000) for key, edition in hosts)


async def test_an_answered_beat_tells_who_shares_the_work(cluster: SimulatedCluster) -> None:
    """SPEC 9.8: hosts that declare the set in force; the loop is woken if there are news."""
    pod = await joined(cluster, yearly("a"))
    now = Instant(microseconds(cluster.now))
    pod.engine.gate.wake.clear()
    pod.colleagues.heard(BeatAnswer(now, pod.membership.position.seq, living((1, 1), (7, 1), (9, 2))))
    assert pod.sharing() == (1, 7)
    assert not pod.engine.gate.wake.is_set()
    pod.colleagues.heard(BeatAnswer(now, pod.membership.position.seq + 1, living((1, 1))))
    assert pod.sharing() == (1,)
    assert pod.engine.gate.wake.is_set()


async def test_a_lease_that_is_trusted_again_begins_the_courtesy_anew(cluster: SimulatedCluster) -> None:
    """SPEC 9.8: twice as long as the last write took."""
    pod = await joined(cluster, yearly("a"), trace=True)
    await cluster.advance(seconds=7)
    pod.membership.latency = 0.75
    pod.engine.gate.wake.clear()
    pod.colleagues.resumed(1.5)
    share = pod.engine.agenda.share
    assert (share.courtesy, share.since) == (1_500_000, pod.member.connections.clock.now())
    assert [event.after_ms for event in pod.told(LeaseResumed)] == [1500]
    assert pod.engine.gate.wake.is_set()
    await cluster.advance(seconds=1)
    assert sum(line.startswith(b'["LR"') for line in cluster.memory.trace_lines()) == 1


async def test_a_burial_is_told_with_the_name_of_the_host_and_its_entry_is_read(cluster: SimulatedCluster) -> None:
    """SPEC 9.5."""
    pod = await joined(cluster, yearly("a"))
    await joined(cluster, yearly("a"))
    await pod.colleagues.load()
    pod.engine.gate.wake.clear()
    pod.colleagues.buried(2, 1_000)
    assert [(event.host, event.label) for event in pod.told(HostLost)] == [(2, "host 2")]
    assert pod.membership.end_of_log == 1_000
    assert pod.engine.gate.wake.is_set()


async def test_a_burial_whose_answer_is_lost_is_told_once(cluster: SimulatedCluster) -> None:
    """SPEC 9.5: this host asked for it, and reads in the log that it took effect."""
    pod = await joined(cluster, yearly("a"))
    other = await joined(cluster, yearly("a"))
    await cluster.advance(seconds=10)
    buried = []

    def lose_the_answer(request: str, made: bool) -> None:
        if request == "bury" and made:
            buried.append(cluster.now)
            pod.host.lose_answers = 1

    pod.host.on_request = lose_the_answer
    await other.host.crash()
    await cluster.advance(minutes=2)
    assert len(buried) == 1
    assert [(event.host, event.label) for event in pod.told(HostLost)] == [(2, "host 2")]


async def test_burials_that_fail_do_not_keep_a_host_from_beating(cluster: SimulatedCluster) -> None:
    """SPEC 9.4: each may wait for a sixth of a lease, so one that fails is the last before the next beat."""
    pod = await joined(cluster, yearly("a"))
    others = [await joined(cluster, yearly("a")) for _ in range(3)]
    await cluster.advance(seconds=10)
    requests = []

    def refuse_burials(request: str, made: bool) -> None:
        if not made:
            requests.append(request)
            if request == "bury":
                raise StoreError("no answer", store="shared memory")

    pod.host.on_request = refuse_burials
    for other in others:
        await other.host.crash()
    await cluster.advance(seconds=70)
    assert requests.count("bury") > 1
    beats_and_burials = [request for request in requests if request in {"beat", "bury"}]
    assert ("bury", "bury") not in pairwise(beats_and_burials)
    pod.host.on_request = None
    await cluster.advance(seconds=20)
    assert sorted(event.host for event in pod.told(HostLost)) == [2, 3, 4]


async def test_a_burial_that_always_fails_does_not_keep_others_unburied(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 9.4: the next look begins behind the host whose burial failed."""
    pod = await joined(cluster, yearly("a"))
    others = [await joined(cluster, yearly("a")) for _ in range(3)]
    await cluster.advance(seconds=10)
    bury = cluster.memory.bury

    def keep_host_2(me: HostIdentity, who: int, beat: int | None) -> int | None:
        if who == 2:
            raise StoreError("somebody has locked its row", store="shared memory")
        return bury(me, who, beat)

    monkeypatch.setattr(cluster.memory, "bury", keep_host_2)
    for other in others:
        await other.host.crash()
    await cluster.advance(seconds=90)
    assert sorted(event.host for event in pod.told(HostLost)) == [3, 4]
    monkeypatch.setattr(cluster.memory, "bury", bury)
    await cluster.advance(seconds=20)
    assert sorted(event.host for event in pod.told(HostLost)) == [2, 3, 4]


async def test_many_failures_are_written_in_several_batches(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 9.20: each carries a traceback, and other hosts wait while a batch is written."""
    monkeypatch.setattr(journal_module, "SHARED_FAILURES_MAX", 2)

    async def fail() -> None:
        raise ValueError("no")

    await joined(cluster, [registration(f"t{number}", "* * * * *", fail) for number in range(5)])
    await cluster.advance(seconds=1)
    written = [entry.content for entry in cluster.memory.log.values() if isinstance(entry.content, Written)]
    ends = [len(each.ends) for each in written if each.ends]
    assert max(ends) <= 2
    assert sum(ends) == 5


async def test_a_skew_is_told_in_milliseconds(cluster: SimulatedCluster) -> None:
    """SPEC 9.11."""
    pod = await joined(cluster, yearly("a"))
    pod.colleagues.skewed(2_500_000)
    assert [event.skew_ms for event in pod.told(HostClockSkewed)] == [2_500]


async def test_a_host_of_the_highest_edition_that_is_left_acts_when_the_one_in_force_is_deserted(
    cluster: SimulatedCluster,
) -> None:
    """SPEC 9.17."""
    pod = await joined(cluster, yearly("a"))
    called: list[int] = []
    pod.colleagues.on_deserted = lambda: called.append(1)
    now, seq = Instant(microseconds(cluster.now)), pod.membership.position.seq
    for hosts, times in [(((1, 1), (2, 2)), 0), (((1, 1), (2, 1)), 1), (((1, 1), (2, 0)), 2)]:
        pod.colleagues.heard(BeatAnswer(now, seq, living(*hosts)))
        pod.colleagues.deserted()
        assert len(called) == times
