"""A scheduler whose files are removed, replaced or moved away under it (SPEC 4.6, 5.7)."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly.events import StoreFault, StoreRecovered
from duly.testing import SimulatedHost
from tests.spec.workload import Workload
from tests.stores.helpers import contents, history, integrity
from tests.system.fold import compare, look_into
from tests.system.record import record

START = "2024-06-15T12:00:30"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def host(store: Path) -> AsyncIterator[SimulatedHost]:
    async with SimulatedHost(START, tz="UTC", store=store) as host:
        yield host


@pytest.fixture
def work(host: SimulatedHost) -> Workload:
    return Workload(host)


def told(host: SimulatedHost, kind: type[StoreFault] | type[StoreRecovered]) -> int:
    return sum(isinstance(event, kind) for event in host.events)


def last_fault(host: SimulatedHost) -> str:
    return [event.error for event in host.events if isinstance(event, StoreFault)][-1]


async def running(host: SimulatedHost, work: Workload) -> duly.Scheduler:
    """A scheduler with a quick, a long and a failing task, two minutes into its life."""
    scheduler = host.scheduler(trace=True)
    await scheduler.initialize([work.task("quick"), work.task("long", takes=45), work.task("failing", fails=True)])
    await host.advance(minutes=2)
    return scheduler


async def stop(host: SimulatedHost, scheduler: duly.Scheduler) -> None:
    """Stop, and let the time pass that runs need for their ends, or a stop for its patience."""
    stopping = asyncio.ensure_future(scheduler.stop())
    await host.advance(minutes=2)
    await stopping


def move(store: Path, folder: Path) -> None:
    """All files of a store but its lock, into another folder."""
    folder.mkdir(exist_ok=True)
    for suffix in ("", "-wal", "-shm"):
        shutil.move(f"{store}{suffix}", folder / f"{store.name}{suffix}")


def put(store: Path, content: bytes) -> None:
    """Something else in the store's place."""
    store.write_bytes(content)


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
async def test_a_file_that_is_moved_away_is_a_fault_until_it_is_back_and_nothing_is_lost(
    host: SimulatedHost, work: Workload, store: Path, replaced: bool
) -> None:
    """SPEC 4.6: reported and retried, never written into nowhere; what took its place is not touched."""
    scheduler = await running(host, work)
    before = len(history(store))
    move(store, store.parent / "elsewhere")
    if replaced:
        put(store, b"something else entirely")
    await host.advance(minutes=5)
    assert told(host, StoreFault) == 1
    assert ("replaced" if replaced else "removed") in last_fault(host)
    assert told(host, StoreRecovered) == 0
    with pytest.raises(duly.ScheduleTaskError, match="while in use"):
        await scheduler.initialize([work.task("another")])
    if replaced:
        assert contents(store) == {"": b"something else entirely"}
        os.unlink(store)
    move(store.parent / "elsewhere" / store.name, store.parent)
    await host.advance(minutes=3)
    assert told(host, StoreRecovered) == 1
    await stop(host, scheduler)
    fold = compare(look_into(store))
    assert not fold.running()
    assert len(history(store)) == len(work.begun) > before
    record("disk, file moved away", runs=len(work.begun), faults=1)


async def test_a_file_that_is_removed_for_good_is_a_fault_to_the_end_and_stop_says_so(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.3, 4.6: the loop lives, a stop gives up after its patience, and the next start is a first one."""
    scheduler = await running(host, work)
    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{store}{suffix}")
    await host.advance(minutes=10)
    assert told(host, StoreFault) == 1
    with pytest.raises(duly.StopSchedulerError) as caught:
        await stop(host, scheduler)
    assert isinstance(caught.value.__cause__, duly.StoreError)
    assert "removed" in str(caught.value.__cause__)
    assert contents(store) == {}
    await scheduler.initialize([work.task("anew")])
    await host.advance(minutes=1)
    assert work.starts("anew")
    await scheduler.stop()
    assert {name for name, _, _ in history(store)} == {"anew"}


async def test_a_wal_that_is_removed_loses_nothing(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 3.9, 4.6: what was committed is folded into the file before anything new is, and a crash finds all of it."""
    await running(host, work)
    os.unlink(f"{store}-wal")
    await host.advance(minutes=5)
    assert "-wal" in contents(store)
    await host.crash()
    fold = compare(look_into(store))
    assert len(fold.starts) == len(work.begun)
    assert len(fold.ends) == len(work.ended)
    record("disk, WAL removed", runs=len(fold.starts))


async def test_a_lock_file_that_is_removed_is_taken_anew_so_a_second_scheduler_stays_out(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.7: two live schedulers never share a store, even after a careless clean-up."""
    scheduler = await running(host, work)
    os.unlink(f"{store}.lock")
    await host.advance(minutes=1)
    with pytest.raises(duly.StoreLockedError, match=str(os.getpid())):
        await host.scheduler().initialize([work.task("intruder")])
    await host.advance(minutes=1)
    assert told(host, StoreFault) == 0
    await stop(host, scheduler)
    compare(look_into(store))


async def test_a_scheduler_whose_lock_was_removed_and_taken_by_another_writes_nothing_more(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 5.7: the second scheduler has the store by then; the first one reports that, and leaves it alone."""
    first = await running(host, work)
    os.unlink(f"{store}.lock")
    second = duly.Scheduler(store, trace=True)
    await second.initialize([("theirs", "0 0 1 1 *", _nothing, timedelta(0))])
    await host.advance(minutes=3)
    assert told(host, StoreFault) == 1
    assert str(os.getpid()) in last_fault(host)
    await second.stop()
    assert look_into(store).states.keys() == {"theirs"}
    await host.advance(minutes=2)
    assert look_into(store).states.keys() == {"theirs"}, "it came back, as if nothing had happened meanwhile"
    with pytest.raises(duly.StopSchedulerError, match="Another scheduler used"):
        await stop(host, first)
    assert look_into(store).states.keys() == {"theirs"}


async def _nothing() -> None:
    pass


@pytest.mark.parametrize("folded", [False, True], ids=["all in the WAL", "folded into the file"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
async def test_a_file_cut_short_under_the_scheduler_is_survived_or_refused_in_our_words(
    host: SimulatedHost, work: Workload, store: Path, share: float, folded: bool
) -> None:
    """SPEC 4.6, 5.5: that cannot be undone, but the loop goes on, and the next start is sound or refused as damaged."""
    scheduler = await running(host, work)
    if folded:
        await stop(host, scheduler)
        scheduler = await running(host, work)
    begun = len(work.begun)
    os.truncate(store, int(share * os.stat(store).st_size))
    await host.advance(minutes=5)
    assert told(host, StoreFault) or len(work.begun) > begun
    await host.crash()
    try:
        await host.scheduler(trace=True).initialize([work.task("quick")])
    except duly.DulyError:
        return
    assert integrity(store) == "ok"
