"""How an engine ends: with a stop(), with its event loop, and with its process."""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import duly
from duly.core.changes import Batch
from duly.engine.host import system_host
from duly.engine.options import Options
from duly.errors import StopSchedulerError, StoreError
from duly.events import TaskRunStarted
from duly.formal.trace import RS
from duly.scheduler import scheduler_of
from duly.stores import SqliteStore
from duly.stores.port import Outcome, TraceRow
from duly.stores.sqlite.lock import read_holder
from duly.testing import SimulatedHost
from duly.threads import JOIN_SECONDS, DaemonThreads, Inline
from duly.wiring import lifecycle_on
from tests.engine.helpers import engine_of, registration, works
from tests.spec.helpers import ManualClock, told
from tests.stores.helpers import history, query

NEVER_TODAY = "0 0 1 1 *"


class Pool(DaemonThreads):
    """Threads for callbacks that remember whether their end was waited for."""

    def __init__(self) -> None:
        super().__init__(1, "duly-run")
        self.waited: list[bool] = []

    def close(
        self, last: Callable[[], object] | None = None, *, wait: bool = True, seconds: float = JOIN_SECONDS
    ) -> None:
        self.waited.append(wait)
        super().close(last, wait=wait, seconds=seconds)


def on_pool(store: Path, pool: Pool) -> duly.Scheduler:
    """A scheduler on this computer, with these threads."""
    host = replace(system_host(ManualClock()), new_pool=lambda size: pool)
    return scheduler_of(lifecycle_on(host, store, Options()))


async def test_a_stop_waits_until_the_threads_have_ended(store: Path) -> None:
    """SPEC 4.3: when it returns, nothing of the scheduler is left."""
    pool = Pool()
    scheduler = on_pool(store, pool)
    await scheduler.initialize([registration(callback=lambda: None)])
    await scheduler.stop()
    assert pool.waited == [True]


def test_an_event_loop_that_goes_away_does_not_wait_for_threads(store: Path) -> None:
    """SPEC 3.11: a blocking callback that never returns would keep the process from ending."""
    pool = Pool()
    asyncio.run(on_pool(store, pool).initialize([registration(callback=lambda: None)]))
    assert pool.waited == [False]


class SlowStore(SqliteStore):
    """A store whose writes begin when the test says so, and take some rounds of the event loop."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, worker=Inline())
        self.asked = asyncio.Event()
        self.may_begin = asyncio.Event()

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        self.asked.set()
        await self.may_begin.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().write(batch, number, trace)


@pytest.mark.parametrize("rounds", [0, 30])
async def test_the_end_of_a_run_that_began_while_stop_waited_is_recorded(store: Path, rounds: int) -> None:
    """SPEC 4.3: its start was being committed when stop() was called, so it may run, and its end is recorded too."""

    async def work() -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    slow = SlowStore(store)
    scheduler = duly.Scheduler(slow, clock=ManualClock())
    await scheduler.initialize([registration(callback=work)])
    await asyncio.wait_for(slow.asked.wait(), 30)
    stopping = asyncio.ensure_future(scheduler.stop())
    await asyncio.sleep(0)
    slow.may_begin.set()
    await asyncio.wait_for(stopping, 30)
    assert history(store) == [("task", "cron", "success")]


async def test_a_scheduler_whose_tasks_were_all_cancelled_is_initialised_anew(store: Path) -> None:
    """SPEC 3.11, 4.1: something cancelled every task of the event loop, which goes on."""
    scheduler = duly.Scheduler(store, clock=ManualClock())
    for _ in range(2):
        await scheduler.initialize([registration("task", NEVER_TODAY)])
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not read_holder(str(store)).alive
    await scheduler.initialize([registration("task", NEVER_TODAY)])
    assert read_holder(str(store)).alive
    await scheduler.stop()
    assert not read_holder(str(store)).alive


@pytest.mark.parametrize("rounds", range(12))
async def test_a_crash_at_any_moment_of_a_first_initialize_leaves_nothing_behind(store: Path, rounds: int) -> None:
    """SPEC 4.5: the store is free, nothing goes on, and the next process declares its tasks."""
    before = asyncio.all_tasks()
    async with SimulatedHost("2024-01-01T12:00:00", "UTC", store) as host:
        call = asyncio.ensure_future(host.scheduler().initialize([registration()]))
        for _ in range(rounds):
            await asyncio.sleep(0)
        await host.crash()
        await asyncio.wait([call])
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        assert not read_holder(str(store)).alive
        begun = len(told(host, TaskRunStarted))
        await host.advance(minutes=1)
        assert len(told(host, TaskRunStarted)) == begun
        await host.scheduler().initialize([registration()])
        await host.advance(minutes=1)
        assert len(told(host, TaskRunStarted)) > begun


async def test_a_stop_returns_as_soon_as_the_last_callback_has(host: SimulatedHost) -> None:
    """SPEC 4.3: and not with the next minute."""
    scheduler = host.scheduler()
    await scheduler.initialize([registration(callback=works(host, 20))])
    await host.advance(seconds=5)
    await scheduler.stop()
    assert f"{host.now:%H:%M:%S}" == "12:00:50"


async def test_a_stop_is_the_last_thing_in_the_trace(host: SimulatedHost, store: Path) -> None:
    """FORMAL SE: with the number of the stop() that it was, and durable when that returns."""
    scheduler = host.scheduler(trace=True)
    await scheduler.initialize([registration()])
    await host.advance(seconds=5)
    await scheduler.stop()
    *_, (last,) = query(store, "SELECT line FROM trace ORDER BY seq")
    assert json.loads(last)[0] == "SE"


class FullAtTheEnd(SqliteStore):
    """A store on a disk that has no room for the end of a trace."""

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        if any(letters == "SE" for letters, *_ in trace):
            raise StoreError("no room", store=self.path)
        return await super().write(batch, number, trace)


async def test_a_stop_that_cannot_end_its_trace_says_so(host: SimulatedHost, store: Path) -> None:
    """SPEC 4.3: all runs have ended and are on record, but that the scheduler was stopped is not."""
    scheduler = host.scheduler(FullAtTheEnd(store, worker=Inline()), trace=True)
    await scheduler.initialize([registration()])
    await host.advance(seconds=5)
    with pytest.raises(StopSchedulerError) as raised:
        await scheduler.stop()
    assert isinstance(raised.value.__cause__, StoreError)
    assert history(store) == [("task", "cron", "success")]
    assert not read_holder(str(store)).alive


# --- a stop() on a simulated host ------------------------------------------------------------------------------------


async def test_what_the_monitor_finds_while_stop_waits_is_raised_by_stop() -> None:
    """The test awaits stop(), and nothing else could tell it."""

    async def be_forged() -> None:
        async with SimulatedHost("2024-05-01T12:00", "UTC") as host:
            scheduler = host.scheduler()
            await scheduler.initialize([registration(callback=works(host, 20))])
            await host.advance(seconds=1)
            engine_of(scheduler).journal.note(RS(0, host._clock.now(), "task", 1, 99, "cron", 0))
            await scheduler.stop()

    with pytest.raises(AssertionError, match="at odds with its specification"):
        await be_forged()
