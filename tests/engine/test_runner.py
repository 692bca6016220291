"""Living runs, and the context that tells whether code is inside one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

import duly
from duly.core.moments import Instant, Minute
from duly.core.registration import RunsOn
from duly.core.task import AwaitingRun, Owed, grounds_for
from duly.engine.runner import STRIDE_CALLS_MAX, Call, Run, run_around, run_on_stack
from duly.engine.watchdog import stack_of
from duly.errors import StoreError
from duly.events import Event, TaskRunCompleted, TaskRunFailed, TaskRunFenced
from duly.run_context import inside
from duly.stores.shared import HostIdentity
from duly.testing import SimulatedCluster, SimulatedHost
from duly.testing.cluster import ClusterHost
from duly.threads import JOIN_SECONDS, DaemonThreads
from tests.core.helpers import at, minute, task
from tests.engine.helpers import engine_of, fail, noop, registration, works
from tests.spec.helpers import ManualClock, told
from tests.stores.helpers import query

T = TypeVar("T")

NOW = at("2025-06-15T12:00:30")


def run_of(owner: object, *, outer: Run | None = None) -> Run:
    """A living run of a scheduler."""
    this = minute("2025-06-15T12:00")
    each = task("a", "* * * * *", AwaitingRun(Minute(this - 60)), runs_on=RunsOn.THREAD)
    grounds = grounds_for(each.state, Owed(this, this), NOW, this)
    assert grounds is not None
    return Run(each, 1, grounds, Call(owner, 0.0, None, UTC, outer))


def scheduler_threads(scheduler: duly.Scheduler) -> int:
    """How many threads for callbacks are free."""
    threads = engine_of(scheduler).runner.free_slots().threads
    assert threads is not None
    return threads


async def test_outside_of_every_run_there_is_none_around() -> None:
    """SPEC 4.3: stop from outside is fine."""
    assert run_around(object()) is None


async def test_a_run_is_around_the_code_of_its_callback() -> None:
    """SPEC 4.3: tasks it spawned and calls from its worker thread included."""
    owner = object()
    run = run_of(owner)
    inside.set(run)
    assert run_around(owner) is run
    threads = DaemonThreads(1, "duly-run")
    assert await threads.run(lambda: run_around(owner)) is run
    threads.close()

    async def spawned() -> Run | None:
        return run_around(owner)

    assert await asyncio.create_task(spawned()) is run


async def test_a_run_that_has_ended_is_around_nothing() -> None:
    """SPEC 4.3: inside means in the context of a run that has not ended."""
    owner = object()
    run = run_of(owner)
    inside.set(run)
    run.ended = True
    assert run_around(owner) is None


async def test_the_run_of_another_scheduler_is_none_of_mine() -> None:
    """Two schedulers in one process; a callback of one may stop the other."""
    mine, theirs = object(), object()
    inside.set(run_of(theirs))
    assert run_around(mine) is None
    assert run_around(theirs) is not None


async def test_a_scheduler_started_inside_a_run_is_inside_that_run() -> None:
    """SPEC 4.3: a run of an inner scheduler is inside the outer one's, too, and waiting for that would never end."""
    outer_owner, inner_owner = object(), object()
    outer = run_of(outer_owner)
    inside.set(run_of(inner_owner, outer=outer))
    assert run_around(outer_owner) is outer
    outer.ended = True
    assert run_around(outer_owner) is None
    assert run_around(inner_owner) is not None


def test_a_run_began_when_its_start_was_decided() -> None:
    """SPEC 3.9: one and the same clock sample."""
    run = run_of(object())
    assert run.started_at == NOW == Instant(run.grounds.at)
    assert run.runs_on is RunsOn.THREAD
    assert (run.ended, run.timed_out, run.cancellable, run.overdue) == (False, False, False, False)


async def test_the_run_on_a_stack_is_the_one_whose_callback_is_executed(host: SimulatedHost) -> None:
    """The watchdog names it; code outside of callbacks belongs to none."""
    found: list[Run | None] = []

    async def work() -> None:
        def deeper() -> None:
            found.append(run_on_stack(stack_of(threading.get_ident())))

        deeper()

    await host.scheduler().initialize([registration("a", callback=work)])
    await host.advance(seconds=1)
    (run,) = found
    assert run is not None
    assert run.task.name == "a"
    assert run_on_stack(stack_of(threading.get_ident())) is None


@pytest.mark.parametrize(("error", "cause"), [(asyncio.CancelledError, type(None)), (ValueError, ValueError)])
async def test_a_run_that_took_too_long_fails_with_what_it_raised_as_the_cause(
    host: SimulatedHost, error: type[BaseException], cause: type[object]
) -> None:
    """SPEC 3.10: the cancellation itself says nothing more."""

    async def work() -> None:
        try:
            await host.sleep(60)
        except asyncio.CancelledError:
            raise error from None

    await host.scheduler(run_timeout=timedelta(seconds=5)).initialize([registration("a", callback=work)])
    await host.advance(seconds=10)
    (failed,) = told(host, TaskRunFailed)
    assert failed.error.partition(";")[0] == "TimeoutError: the run took longer than run_timeout, 5 s"
    assert isinstance(failed.exception, TimeoutError)
    assert type(failed.exception.__cause__) is cause


async def test_threads_that_were_used_are_free_again(host: SimulatedHost) -> None:
    """SPEC 3.10: as many as before, and not more."""
    scheduler = host.scheduler()
    in_threads = [registration(name, callback=lambda: None) for name in "abc"]
    await scheduler.initialize([*in_threads, registration("d"), registration("e", callback=fail)])
    free = engine_of(scheduler).runner.free_slots().threads
    await host.advance(minutes=2)
    assert len(told(host, TaskRunCompleted)) == 12
    assert engine_of(scheduler).runner.free_slots().threads == free


async def test_threads_that_were_used_are_free_again_also_if_nothing_listens(store: Path) -> None:
    """SPEC 3.10: runs of which there is nothing to announce are not kept, but for their threads."""
    scheduler = duly.Scheduler(store, clock=ManualClock())
    called: list[int] = []
    await scheduler.initialize([registration(name, "0 12 * * *", lambda: called.append(1)) for name in "abc"])
    free = scheduler_threads(scheduler)
    async with asyncio.timeout(30):
        while len(called) < 3 or engine_of(scheduler).runner.open:  # noqa: ASYNC110  nothing listens
            await asyncio.sleep(0.001)
    assert scheduler_threads(scheduler) == free > 0
    await scheduler.stop()


async def test_a_run_that_returned_at_once_took_as_long_as_its_call(store: Path) -> None:
    """003 TaskRunCompleted: by the steady clock, and not in whole milliseconds as its end is stamped."""
    clock = ManualClock()
    ended: asyncio.Future[TaskRunCompleted] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        clock.advance(0.0075)

    def hear(event: Event) -> None:
        if isinstance(event, TaskRunCompleted):
            ended.set_result(event)

    scheduler = duly.Scheduler(store, clock=clock, on_event=hear)
    await scheduler.initialize([registration("a", "0 12 * * *", work)])
    assert (await asyncio.wait_for(ended, 30)).duration == pytest.approx(7.5)
    await scheduler.stop()


async def test_a_task_that_a_callback_left_behind_may_stop_the_scheduler(store: Path) -> None:
    """SPEC 4.3: its run has ended, although nothing listens to that."""
    scheduler = duly.Scheduler(store, clock=ManualClock())
    left: list[asyncio.Task[None]] = []
    over = asyncio.Event()

    async def stop() -> None:
        await over.wait()
        await scheduler.stop()

    async def work() -> None:
        left.append(asyncio.create_task(stop()))

    await scheduler.initialize([registration("a", "0 12 * * *", work)])
    async with asyncio.timeout(30):
        while not left or engine_of(scheduler).runner.open:  # noqa: ASYNC110  nothing listens
            await asyncio.sleep(0)
    over.set()
    await asyncio.wait_for(left[0], 30)


async def test_a_run_that_was_dropped_has_no_outcome(host: SimulatedHost, caplog: pytest.LogCaptureFixture) -> None:
    """SPEC 3.11: the event loop is going away, and the run is interrupted, whatever becomes of it still."""

    async def break_later() -> None:
        await host.sleep(5)
        raise ValueError("too late")

    scheduler = host.scheduler()
    await scheduler.initialize(
        [registration("a", callback=works(host, 5)), registration("b", callback=break_later)],
    )
    await host.advance(seconds=1)
    dropped = engine_of(scheduler).runner.drop()
    await host.advance(seconds=10)
    assert [work.done() and work.exception() for work in dropped] == [None, None]
    assert told(host, TaskRunCompleted) + told(host, TaskRunFailed) == []
    await host.crash()


# --- ends of a burst that nothing listens to -------------------------------------------------------------------------


async def ended_runs(store: Path, clock: ManualClock, callbacks: Sequence[Callable[[], Awaitable[None]]]) -> list[Any]:
    """Have callbacks called in order; returns run, generation, outcome, start and end of each, by history."""
    scheduler = duly.Scheduler(store, clock=clock)
    await scheduler.initialize(
        [registration(f"{number:03}", "0 12 * * *", callback) for number, callback in enumerate(callbacks)]
    )
    async with asyncio.timeout(30):
        while not engine_of(scheduler).loop.parked:  # noqa: ASYNC110  nothing listens
            await asyncio.sleep(0)
    await asyncio.wait_for(scheduler.stop(), 30)
    return query(store, "SELECT run, generation, outcome, started_at, ended_at FROM runs ORDER BY seq")


async def test_callbacks_that_return_at_once_have_numbers_in_order(store: Path) -> None:
    """SPEC 3.9: also if they take more than one stride."""
    runs = await ended_runs(store, ManualClock(), [noop] * (2 * STRIDE_CALLS_MAX + 2))
    assert [(run, generation) for run, generation, *_ in runs] == [
        (number, number) for number in range(1, 2 * STRIDE_CALLS_MAX + 3)
    ]


async def test_callbacks_of_a_burst_know_the_numbers_of_their_runs(store: Path) -> None:
    """SPEC 10.1: also those that are called in a later stride."""
    numbers: list[str | int] = []

    async def note() -> None:
        run = duly.current_run()
        assert run is not None
        numbers.append(run.run_id)

    callbacks = [note] * (STRIDE_CALLS_MAX + 2)
    runs = await ended_runs(store, ManualClock(), callbacks)
    assert numbers == [run for run, *_ in runs] == list(range(1, STRIDE_CALLS_MAX + 3))


async def test_callbacks_that_return_at_once_each_have_their_own_end(store: Path) -> None:
    """SPEC 3.9: to the millisecond, and in the order in which they ended."""
    clock = ManualClock()

    async def late() -> None:
        clock.advance(0.005)

    runs = await ended_runs(store, clock, [noop, late, fail, noop, late])
    began = runs[0][3]
    assert [(generation, outcome, end - began) for _, generation, outcome, _, end in runs] == [
        *((1, "success", 0), (2, "success", 5_000), (3, "failure", 5_000)),
        *((4, "success", 5_000), (5, "success", 10_000)),
    ]


async def test_an_end_in_the_millisecond_of_its_start_is_not_before_it(store: Path) -> None:
    """SPEC 3.9: ends are stamped in whole milliseconds, but for these."""
    clock = ManualClock("2024-06-01T12:00:00.000500+00:00")

    async def short() -> None:
        clock.advance(0.0002)

    ((_, _, _, start, end),) = await ended_runs(store, clock, [short])
    assert start % 1_000 == 500
    assert end == start


# --- blocking callbacks on a shared store ----------------------------------------------------------------------------


class Queue:
    """One thread for callbacks: calls wait until the test lets them begin."""

    size = 1

    def __init__(self) -> None:
        self.may_begin = asyncio.Event()
        self.may_begin.set()

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call, when it may begin."""
        await self.may_begin.wait()
        return call()

    def close(
        self, last: Callable[[], object] | None = None, *, wait: bool = True, seconds: float = JOIN_SECONDS
    ) -> None:
        """There is no thread to end."""


class Machine:
    """A host of a shared store whose blocking callbacks note when they are called, and whose beats may fail."""

    def __init__(self, cluster: SimulatedCluster, host: ClusterHost) -> None:
        self.cluster = cluster
        self.host = host
        self.queue = Queue()
        host._host = replace(host._host, new_pool=lambda size: self.queue)
        host.on_request = self._fail
        self.answers = True
        """Whether beats are answered."""
        self.rest_seconds = 5
        self.called: list[str] = []
        self.awaited: list[str] = []

    def _fail(self, request: str, made: bool) -> None:
        if request == "beat" and not self.answers:
            raise StoreError("no answer", store="shared memory")

    def work(self) -> Awaitable[None]:
        """Block, and return something to be awaited on the event loop."""
        self.called.append(f"{self.cluster.now:%H:%M:%S}")
        return self.rest()

    async def rest(self) -> None:
        """Two steps, by default five seconds apart."""
        await self.host.sleep(self.rest_seconds)
        self.awaited.append(f"{self.cluster.now:%H:%M:%S}")

    async def begin(self) -> None:
        """Declare a task that is due at noon."""
        await self.host.scheduler().initialize([registration("a", "0 12 * * *", self.work)])

    def outcomes(self) -> list[str]:
        """How runs ended, by the store."""
        return [row.outcome for row in self.cluster.memory.runs]


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    """It is noon and ten seconds."""
    async with SimulatedCluster("2024-05-01T12:00:10", "UTC", lease=timedelta(seconds=30)) as cluster:
        yield Machine(cluster, await cluster.host())


async def test_a_blocking_callback_is_called_and_what_it_returns_is_awaited(machine: Machine) -> None:
    """SPEC 1.3, on a shared store as elsewhere."""
    await machine.begin()
    await machine.cluster.advance(seconds=10)
    assert (machine.called, machine.awaited) == (["12:00:10"], ["12:00:15"])
    assert machine.outcomes() == ["success"]


async def test_a_blocking_callback_is_not_called_while_the_lease_is_not_trusted(machine: Machine) -> None:
    """SPEC 9.6: asked in the thread, in the instant of the call; it is called when a beat is answered, once."""
    machine.queue.may_begin.clear()
    await machine.begin()
    await machine.cluster.advance(seconds=1)
    machine.answers = False
    await machine.cluster.advance(seconds=39)  # the thread was busy for longer than the lease
    machine.queue.may_begin.set()
    await machine.cluster.advance(seconds=3)
    assert machine.called == []
    machine.answers = True
    await machine.cluster.advance(seconds=17)
    assert (machine.called, machine.awaited) == (["12:00:55"], ["12:01:00"])
    assert machine.outcomes() == ["success"]


async def test_a_blocking_callback_whose_start_was_granted_too_late_is_held(machine: Machine) -> None:
    """SPEC 9.6: the answer arrives when the lease has run out."""

    def freeze(request: str, made: bool) -> None:
        if request == "write" and made:
            machine.host.freeze()
            machine.host.on_request = machine._fail

    machine.host.on_request = freeze
    await machine.begin()
    machine.answers = False
    await machine.cluster.advance(seconds=35)
    await machine.host.thaw()
    await machine.cluster.advance(seconds=3)
    assert machine.called == []
    machine.answers = True
    await machine.cluster.advance(seconds=15)
    assert len(machine.called) == len(machine.awaited) == 1


async def test_a_blocking_callback_of_a_buried_host_is_not_called_any_more(machine: Machine) -> None:
    """SPEC 9.6: its start stands on record as interrupted, and is repeated by the host that comes after it."""
    machine.queue.may_begin.clear()
    await machine.begin()
    await machine.cluster.advance(seconds=1)
    machine.answers = False
    await machine.cluster.advance(seconds=40)
    machine.queue.may_begin.set()
    await machine.cluster.advance(seconds=1)  # now it waits for the lease
    (host,) = machine.cluster.memory.living()
    machine.cluster.memory.bury(HostIdentity(host.key, host.identifier), host.key, None)
    machine.answers = True
    await machine.cluster.advance(seconds=4)
    assert machine.called == []
    assert [event.task_name for event in machine.host.events if isinstance(event, TaskRunFenced)] == ["a"]
    await machine.cluster.advance(seconds=20)
    assert len(machine.called) == len(machine.awaited) == 1
    assert machine.outcomes() == ["interrupted", "success"]


async def test_a_thread_of_a_buried_host_is_not_free_before_its_callback_has_returned(machine: Machine) -> None:
    """SPEC 9.6, 3.10: the host that comes after it has as many threads fewer."""
    machine.queue.may_begin.clear()
    scheduler = machine.host.scheduler()
    await scheduler.initialize([registration("a", "0 12 * * *", machine.work)])
    await machine.cluster.advance(seconds=1)
    (host,) = machine.cluster.memory.living()
    machine.cluster.memory.bury(HostIdentity(host.key, host.identifier), host.key, None)
    await machine.cluster.advance(seconds=15)
    assert engine_of(scheduler).runner.free_slots().threads == 0
    machine.queue.may_begin.set()
    await machine.cluster.advance(seconds=20)  # the run is repeated, and is over
    assert engine_of(scheduler).runner.free_slots().threads == 1


async def test_an_awaitable_of_a_blocking_callback_takes_no_step_while_the_lease_is_not_trusted(
    machine: Machine,
) -> None:
    """SPEC 9.6: as every coroutine callback."""
    machine.rest_seconds = 38
    await machine.begin()
    await machine.cluster.advance(seconds=1)
    machine.answers = False
    await machine.cluster.advance(seconds=40)
    assert machine.awaited == []
    machine.answers = True
    await machine.cluster.advance(seconds=10)
    assert machine.awaited == ["12:00:55"]


async def test_a_slot_of_a_buried_host_is_not_free_before_its_callback_has_ended(machine: Machine) -> None:
    """SPEC 9.6: `max_concurrency` holds in this process, whichever host began a run."""
    machine.queue.may_begin.clear()
    scheduler = machine.host.scheduler(max_concurrency=5)
    await scheduler.initialize([registration("a", "0 12 * * *", machine.work)])
    await machine.cluster.advance(seconds=1)
    (host,) = machine.cluster.memory.living()
    machine.cluster.memory.bury(HostIdentity(host.key, host.identifier), host.key, None)
    await machine.cluster.advance(seconds=15)
    assert len(machine.cluster.memory.living()) == 1
    assert engine_of(scheduler).runner.free_slots().total == 4
    machine.queue.may_begin.set()
    await machine.cluster.advance(seconds=20)  # the run is repeated, and is over
    assert engine_of(scheduler).runner.free_slots().total == 5


async def test_a_callback_that_knows_of_the_loss_is_left_to_its_clean_up(machine: Machine) -> None:
    """SPEC 9.6: it hears of it once, however often the engine is told."""
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await machine.host.sleep(600)
        except asyncio.CancelledError:
            await machine.host.sleep(4)
            cleaned.append(f"{machine.cluster.now:%H:%M:%S}")
            raise

    scheduler = machine.host.scheduler()
    await scheduler.initialize([registration("a", "0 12 * * *", work)])
    await machine.cluster.advance(seconds=1)
    runner = engine_of(scheduler).runner
    (host,) = machine.cluster.memory.living()
    machine.cluster.memory.bury(HostIdentity(host.key, host.identifier), host.key, None)
    await machine.cluster.advance(seconds=6)
    assert cleaned == []
    runner.tell_of_the_loss()
    await machine.cluster.advance(seconds=6)
    assert len(cleaned) == 1
