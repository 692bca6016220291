"""Group commit: what arrives during a write forms the next batch, and a fault of the store loses nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from duly.core.changes import Batch, Ends, Starts, SuccessBlock
from duly.core.moments import Instant, Minute
from duly.core.registration import read_registrations
from duly.core.resolution import Resolution, resolve
from duly.core.steps import finish
from duly.core.task import Change, Correction, End, Grounds, Owed, Running, Start, Task, fail, grounds_for, succeed
from duly.engine import journal as journal_module
from duly.engine.gate import Gate
from duly.engine.host import Host
from duly.engine.journal import Granted, Journal
from duly.engine.lease import BeatLease
from duly.engine.options import Options
from duly.engine.outbox import Outbox
from duly.engine.setup import Setup
from duly.engine.trace import Trace
from duly.engine.traffic import Traffic
from duly.errors import StoreError
from duly.events import Event, StoreFault, StoreRecovered
from duly.formal.registers import RegisterSnapshot
from duly.formal.trace import WK
from duly.stores import SqliteStore
from duly.stores.port import Outcome, Replacement, TraceRows
from duly.threads import Inline
from tests.spec.helpers import ManualClock, history, rows, stored


class Disk(SqliteStore):
    """The embedded store, on a disk that can be slow, and can fail before or after it has written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, worker=Inline(), synchronous="OFF")
        self.ready = asyncio.Event()
        self.ready.set()
        self.faults: list[str] = []
        self.permanent = False
        self.refuses: set[int] = set()
        self.fence: int | None = None
        self.attempts: list[tuple[int, list[Change]]] = []

    async def write(self, batch: Batch, number: int, trace: Iterable[tuple[Any, ...]] = ()) -> Outcome:
        self.attempts.append((number, list(batch.singles())))
        await self.ready.wait()
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            raise StoreError("the disk is full", store=self.path, permanent=self.permanent)
        await super().write(batch, number, trace)
        if fault == "after":
            raise StoreError("the disk is not sure", store=self.path)
        starts = {each.run for each in batch.singles() if isinstance(each, Start)}
        return Outcome(frozenset(starts & self.refuses), fence=self.fence)


class WatchedClock(ManualClock):
    """A clock that remembers how long it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        self.waits.append((instant - self.now()) / 1_000_000)
        await super().sleep_until(instant, wake)


async def settle() -> None:
    """Let everything that is ready have its turn."""
    for _ in range(30):
        await asyncio.sleep(0)


class Bench:
    """A journal on a store with a few tasks in it."""

    def __init__(self, path: Path, tasks: list[Task], disk: Disk, clock: WatchedClock) -> None:
        self.path = path
        self.tasks = tasks
        self.disk = disk
        self.clock = clock
        self.events: list[Event] = []
        self.ended: list[list[str]] = []
        self.gate = Gate(open_stops=0)
        self.traffic = Traffic()
        self.defect: Exception | None = None
        self.may_settle = asyncio.Event()
        self.may_settle.set()
        setup = Setup(Options(), Host(clock), disk, Outbox(clock, self.events.append))
        self.journal = Journal(setup, disk, self.gate, self.traffic, first_number=100)

    def record(self, end: End) -> None:
        """A callback is over."""
        if end.error is None:
            self.journal.succeeded(SuccessBlock(end.at, end.grounds, [end.task], [end.run]))
        else:
            self.journal.failed(end)

    async def end(self, ends: Ends) -> None:
        if self.defect is not None:
            raise self.defect
        await self.may_settle.wait()
        assert all(stored(self.path, end.task.name)["run"] is None for end in ends.singles()), "durable first"
        self.ended.append([end.task.name for end in ends.singles()])

    def start(self, index: int, run: int) -> Start:
        task, now = self.tasks[index], Instant(self.clock.now())
        minute = Minute(now // 60_000_000 * 60)
        grounds = grounds_for(task.state, Owed(minute, minute), now, minute)
        assert grounds is not None
        return Start(task, run, grounds)

    def finish(self, start: Start, *, error: str | None = None) -> End:
        """The start is durable, its callback has ended."""
        grounds: Grounds = start.grounds
        at = Instant(self.clock.now())
        run: Running = grounds.after
        if error is None:
            start.task.state = succeed(run, at)
            return End(start.task, start.run, grounds, at)
        after = start.task.state = fail(run, at, start.task.delay)
        return End(start.task, start.run, grounds, at, error, after.pending_retry_until, after.failures)

    def running(self) -> set[str]:
        """Which tasks the store calls running."""
        found = rows(self.path, "SELECT name FROM tasks JOIN states USING (generation) WHERE run IS NOT NULL")
        return {row["name"] for row in found}

    def batches(self) -> list[list[str]]:
        """The batches that were written, in order, attempts of the same number taken together."""
        by_number = dict(self.disk.attempts)
        return [[_word(change) for change in by_number[number]] for number in sorted(by_number)]


def _word(change: Change) -> str:
    return "correction" if isinstance(change, Correction) else f"{type(change).__name__.lower()} {change.task.name}"


def never_fenced(ends: Ends) -> None:
    """The lease of an embedded store is never lost."""
    raise AssertionError(ends)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    path = tmp_path / "state.db"
    disk, clock = Disk(path), WatchedClock()
    now, numbers = Instant(clock.now()), count(1)
    persisted = await disk.open("1" * 32, now)
    declared = finish(read_registrations([(f"t{n}", "* * * * *", settle, timedelta(seconds=5)) for n in range(6)]))
    resolution = finish(resolve(declared, {}, now=now, zone=UTC, new_generations=lambda: next(numbers)))
    await disk.replace(Replacement(resolution, None, "UTC", now), persisted.next_number)
    bench = Bench(path, resolution.added, disk, clock)
    writer = asyncio.create_task(bench.journal.run(bench.end, never_fenced))
    yield bench
    writer.cancel()
    with suppress(asyncio.CancelledError):
        await writer
    await disk.close()


@pytest.fixture
async def traced(bench: Bench) -> AsyncIterator[Bench]:
    """A journal that keeps a trace."""
    replacement = Replacement(Resolution(Instant(bench.clock.now())), None, "UTC", Instant(bench.clock.now()))
    registers = RegisterSnapshot.of_stored((), crashed=False, zone="UTC")
    await bench.disk.replace(replace(replacement, trace=TraceRows([], registers)), 50)
    setup = Setup(Options(trace=True), Host(bench.clock), bench.disk, Outbox(bench.clock, bench.events.append))
    bench.journal = Journal(setup, bench.disk, bench.gate, bench.traffic, Trace(setup, registers), first_number=100)
    writer = asyncio.create_task(bench.journal.run(bench.end, never_fenced))
    yield bench
    writer.cancel()
    with suppress(asyncio.CancelledError):
        await writer


# --- group commit ----------------------------------------------------------------------------------------------------


async def test_a_start_is_granted_when_it_is_durable(bench: Bench) -> None:
    """SPEC 3.9: a start is durable before its callback begins."""
    bench.disk.ready.clear()
    answer = bench.journal.commit(Starts([bench.start(0, 1)]))
    await settle()
    assert not answer.done()
    assert bench.running() == set()
    bench.disk.ready.set()
    granted = await answer
    assert granted is not None
    assert [start.run for start in granted.singles()] == [1]
    assert bench.running() == {"t0"}


@pytest.mark.parametrize("error", [None, "it failed"])
async def test_an_end_is_written_at_once_even_if_nothing_else_comes(bench: Bench, error: str | None) -> None:
    """SPEC 3.9: it does not wait for the next start."""
    granted = await bench.journal.commit(Starts([bench.start(0, 1)]))
    assert granted is not None
    await settle()
    for start in granted.singles():
        bench.record(bench.finish(start, error=error))
    await settle()
    assert bench.running() == set()
    assert bench.ended == [["t0"]]


async def test_notes_are_on_record_when_a_flush_returns(traced: Bench) -> None:
    """SPEC 7.6: those that wait, and those of a batch that is being written; with nothing noted it returns at once."""
    journal, disk = traced.journal, traced.disk
    await asyncio.wait_for(journal.flush_notes(), 30)
    disk.ready.clear()
    journal.note(WK(0, Instant(traced.clock.now()), 1))
    waiting = asyncio.create_task(journal.flush_notes())
    await settle()
    assert not waiting.done()
    at_hand = asyncio.create_task(journal.flush_notes())
    journal.note(WK(0, Instant(traced.clock.now()), 2))
    await settle()
    assert not waiting.done()
    assert not at_hand.done()
    disk.ready.set()
    await asyncio.wait_for(asyncio.gather(waiting, at_hand), 30)
    assert [row["count(*)"] for row in rows(traced.path, "SELECT count(*) FROM trace WHERE line LIKE '[\"WK\"%'")] == [
        2
    ]


@pytest.mark.parametrize("faults", [0, 1])
async def test_a_flush_of_notes_that_are_written_does_not_wait_until_ends_are_settled(
    traced: Bench, faults: int
) -> None:
    """SPEC 7.6: they are on record with their batch, also if that was written at the second attempt."""
    granted = await traced.journal.commit(Starts([traced.start(0, 1)]))
    assert granted is not None
    traced.may_settle.clear()
    traced.disk.faults = ["before"] * faults
    traced.record(traced.finish(next(granted.singles())))
    traced.journal.note(WK(0, Instant(traced.clock.now()), 1))
    await settle()
    await asyncio.wait_for(traced.journal.flush_notes(), 30)
    assert traced.ended == []
    assert traced.journal.busy
    traced.may_settle.set()
    await settle()
    assert traced.ended == [["t0"]]


async def test_what_arrives_during_a_write_forms_the_next_batch(bench: Bench) -> None:
    """Architecture: the batch is whatever gathered during the last commit; latency stays one commit."""
    first = await bench.journal.commit(Starts([bench.start(0, 1), bench.start(1, 2)]))
    assert first is not None
    bench.disk.ready.clear()
    second = bench.journal.commit(Starts([bench.start(2, 3)]))
    await settle()
    for start in first.singles():
        bench.record(bench.finish(start))
    third = bench.journal.commit(Starts([bench.start(3, 4)]))
    fourth = bench.journal.commit(Starts([bench.start(4, 5), bench.start(5, 6)]))
    await settle()
    bench.disk.ready.set()
    await asyncio.gather(second, third, fourth)
    await settle()
    assert bench.batches() == [
        ["start t0", "start t1"],
        ["start t2"],
        ["end t0", "end t1", "start t3", "start t4", "start t5"],
    ]
    assert bench.ended == [["t0", "t1"]]
    assert bench.running() == {"t2", "t3", "t4", "t5"}


async def test_ends_come_before_starts_in_a_batch(bench: Bench) -> None:
    """SPEC 3.9: an end is durable before the task may start again."""
    granted = await bench.journal.commit(Starts([bench.start(0, 1)]))
    assert granted is not None
    bench.disk.ready.clear()
    other = bench.journal.commit(Starts([bench.start(1, 2)]))
    await settle()
    ending = bench.finish(next(granted.singles()))
    again = bench.journal.commit(Starts([bench.start(0, 3)]))
    bench.record(ending)
    bench.disk.ready.set()
    await asyncio.gather(other, again)
    assert bench.batches()[-1] == ["end t0", "start t0"]
    assert stored(bench.path, "t0")["run"] == 3


async def test_ends_are_told_once_they_are_durable_with_what_they_came_to(bench: Bench) -> None:
    """SPEC 3.4: success clears the retry, failure arms it; history hears of both."""
    granted = await bench.journal.commit(Starts([bench.start(0, 1), bench.start(1, 2)]))
    assert granted is not None
    bench.clock.advance(2)
    first, second = granted.singles()
    bench.record(bench.finish(first))
    bench.record(bench.finish(second, error="it broke"))
    await settle()
    assert bench.ended == [["t0", "t1"]]
    failed = stored(bench.path, "t1")
    assert failed["pending_retry_until"] == bench.clock.now() + 5_000_000
    assert (failed["failures"], stored(bench.path, "t0")["failures"]) == (1, 0)
    assert [each["outcome"] for name in ("t0", "t1") for each in history(bench.path, name)] == ["success", "failure"]


async def test_numbers_grow_by_one_with_each_batch(bench: Bench) -> None:
    """Store port: the number identifies the call."""
    for run in range(1, 4):
        await bench.journal.commit(Starts([bench.start(run, run)]))
    assert [number for number, _ in bench.disk.attempts] == [100, 101, 102]
    assert bench.journal.next_number() == 103


async def test_ends_of_a_burst_are_written_with_the_starts_that_follow(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Architecture: one commit for both; but not for longer than a moment, for a crash would repeat those runs."""
    monkeypatch.setattr(journal_module, "BURST_ENDS_MIN", 2)
    monkeypatch.setattr(journal_module, "GATHERING_SECONDS_MAX", 600.0)
    granted = await bench.journal.commit(Starts([bench.start(n, n + 1) for n in range(4)]))
    assert granted is not None
    bench.traffic.starts_follow = True
    for start in list(granted.singles())[:2]:
        bench.record(bench.finish(start))
    await settle()
    assert bench.ended == []
    await bench.journal.commit(Starts([bench.start(4, 5)]))
    assert bench.batches()[1:] == [["end t0", "end t1", "start t4"]]
    monkeypatch.setattr(journal_module, "GATHERING_SECONDS_MAX", 0.0)
    for start in list(granted.singles())[2:]:
        bench.record(bench.finish(start))
    await settle()
    assert bench.ended == [["t0", "t1"], ["t2", "t3"]]


async def test_a_batch_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Architecture: many ends are written in several transactions, none of them long."""
    monkeypatch.setattr(journal_module, "BATCH_CHANGES_MAX", 2)
    granted = await bench.journal.commit(Starts([bench.start(n, n + 1) for n in range(5)]))
    assert granted is not None
    for start in granted.singles():
        bench.record(bench.finish(start))
    await settle()
    assert bench.ended == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert bench.running() == set()


async def test_the_journal_is_busy_until_all_is_written_and_told(bench: Bench) -> None:
    """SPEC 4.3: stop waits for ends to be recorded."""
    granted = await bench.journal.commit(Starts([bench.start(0, 1)]))
    await settle()
    assert granted is not None
    assert not bench.journal.busy
    bench.disk.ready.clear()
    bench.record(bench.finish(next(granted.singles())))
    assert bench.journal.busy
    await settle()
    assert bench.journal.busy
    progress = asyncio.create_task(bench.journal.progress(bench.clock.elapsed() + 60))
    await settle()
    assert not progress.done()
    bench.disk.ready.set()
    assert await asyncio.wait_for(progress, 10)
    assert not bench.journal.busy
    assert bench.ended == [["t0"]]


async def test_a_start_that_the_store_refuses_is_not_granted(bench: Bench) -> None:
    """Store port: a start is a claim that may be refused; the others are granted, with their fence."""
    bench.disk.refuses, bench.disk.fence = {2}, 77
    granted = await bench.journal.commit(Starts([bench.start(n, n + 1) for n in range(3)]))
    assert granted is not None
    assert [start.run for start in granted.singles()] == [1, 3]
    assert granted.fence == 77


async def test_a_caller_that_is_gone_does_not_disturb_the_journal(bench: Bench) -> None:
    """SPEC 4.3: a write that has begun is completed, whatever waits for it."""
    bench.disk.ready.clear()
    answer = bench.journal.commit(Starts([bench.start(0, 1)]))
    await settle()
    answer.cancel()
    bench.disk.ready.set()
    assert await bench.journal.commit(Starts([bench.start(1, 2)])) is not None
    assert bench.running() == {"t0", "t1"}


async def test_a_defect_in_what_follows_an_end_does_not_end_the_journal(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """SPEC 4.6: nothing ends the loop; what is not expected is logged."""
    granted = await bench.journal.commit(Starts([bench.start(0, 1)]))
    assert granted is not None
    bench.defect = ZeroDivisionError("a defect of ours")
    bench.record(bench.finish(next(granted.singles())))
    await settle()
    bench.defect = None
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert not bench.journal.busy
    assert await bench.journal.commit(Starts([bench.start(1, 2)])) is not None


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_a_failed_write_is_repeated_under_its_own_number(bench: Bench, fault: str) -> None:
    """SPEC 4.6: reported, retried with backoff; and a commit that succeeded all the same is not applied twice."""
    granted = await bench.journal.commit(Starts([bench.start(0, 1)]))
    assert granted is not None
    bench.disk.faults = [fault, fault]
    bench.record(bench.finish(next(granted.singles()), error="it broke"))
    await settle()
    assert bench.ended == []
    assert isinstance(bench.journal.fault, StoreError)
    bench.clock.advance(0.1)
    await settle()
    bench.clock.advance(0.2)
    await settle()
    assert [number for number, _ in bench.disk.attempts] == [100, 101, 101, 101]
    assert bench.ended == [["t0"]]
    assert bench.journal.fault is None
    assert len(history(bench.path, "t0")) == 1
    assert stored(bench.path, "t0")["failures"] == 1


async def test_a_fault_is_told_once_and_so_is_its_end(bench: Bench) -> None:
    """StoreFault, StoreRecovered; however often it was tried in between."""
    bench.disk.faults = ["before"] * 4
    answer = bench.journal.commit(Starts([bench.start(0, 1)]))
    for _ in range(6):
        await settle()
        bench.clock.advance(10)
    await answer
    fault, recovered = bench.events
    assert isinstance(fault, StoreFault)
    assert (fault.operation, fault.error_type, fault.retry_in_ms) == ("write", "StoreError", 100)
    assert "the disk is full" in fault.error
    assert isinstance(recovered, StoreRecovered)
    assert recovered.attempts == 5


async def test_what_arrives_during_a_fault_waits_and_is_written_after_it(bench: Bench) -> None:
    """SPEC 4.6: delays what waits for it, loses nothing, and keeps the order."""
    bench.disk.faults = ["before"]
    first = bench.journal.commit(Starts([bench.start(0, 1)]))
    await settle()
    second = bench.journal.commit(Starts([bench.start(1, 2)]))
    await settle()
    assert not first.done()
    assert len(bench.disk.attempts) == 1
    bench.clock.advance(0.1)
    await asyncio.gather(first, second)
    assert bench.batches() == [["start t0"], ["start t1"]]


async def test_the_backoff_doubles_up_to_half_a_minute(bench: Bench) -> None:
    """SPEC 4.6: retried with backoff, and not before it is over."""
    waits = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30]
    bench.disk.faults = ["before"] * len(waits)
    answer = bench.journal.commit(Starts([bench.start(0, 1)]))
    await settle()
    for attempts, wait in enumerate(waits, 1):
        assert len(bench.disk.attempts) == attempts
        bench.clock.advance(wait - 0.01)
        await settle()
        assert len(bench.disk.attempts) == attempts
        bench.clock.advance(0.02)
        await settle()
    assert answer.done()
    assert bench.clock.waits == waits


async def test_a_stop_hurries_the_journal(bench: Bench) -> None:
    """SPEC 4.3: if ends cannot be stored, stop keeps trying: at once, and then every second."""
    granted = await bench.journal.commit(Starts([bench.start(0, 1)]))
    assert granted is not None
    bench.disk.faults = ["before"] * 9
    bench.record(bench.finish(next(granted.singles())))
    for _ in range(8):
        await settle()
        bench.clock.advance(bench.clock.waits[-1])
    await settle()
    assert bench.clock.waits[-1] == 25.6
    bench.journal.hurry()
    await settle()
    assert bench.ended == [["t0"]], "not after 25.6 seconds, but now"
    bench.disk.faults = ["before"] * 6
    answer = bench.journal.commit(Starts([bench.start(1, 2)]))
    tries = len(bench.clock.waits)
    while not answer.done():
        await settle()
        bench.clock.advance(1)
    assert bench.clock.waits[tries:] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


async def test_a_wait_for_progress_ends_at_its_deadline(bench: Bench) -> None:
    """SPEC 4.3: a stop waits no longer than it may; a deadline that has come is not waited for."""
    assert await bench.journal.progress(bench.clock.elapsed()) is False
    waiting = asyncio.create_task(bench.journal.progress(bench.clock.elapsed() + 60))
    await settle()
    bench.clock.advance(59.9)
    await settle()
    assert not waiting.done()
    bench.clock.advance(0.2)
    assert await asyncio.wait_for(waiting, 30)


async def test_a_store_fails_if_it_fails_again_at_once(bench: Bench) -> None:
    """SPEC 4.6: a caller that cannot wait has the failed write repeated before it gives up."""
    failing = asyncio.create_task(bench.journal.failing())
    bench.disk.faults = ["before"]
    await bench.journal.commit(Starts([bench.start(0, 1)]))
    await settle()
    assert not failing.done(), "the second attempt succeeded"
    bench.disk.faults = ["before", "before"]
    _ = bench.journal.commit(Starts([bench.start(1, 2)]))
    assert isinstance(await asyncio.wait_for(failing, 30), StoreError)
    assert [number for number, _ in bench.disk.attempts] == [100, 100, 101, 101]


async def test_a_lock_that_a_failing_write_keeps_is_not_waited_for(bench: Bench) -> None:
    """SPEC 4.6: the caller has the store's fault, and takes no lock when that is free at last."""
    lock = asyncio.Lock()
    await lock.acquire()
    bench.disk.faults = ["before"] * 3
    _ = bench.journal.commit(Starts([bench.start(0, 1)]))
    with pytest.raises(StoreError):
        async with asyncio.timeout(30), bench.journal.holding(lock):
            pytest.fail("the lock is not free")
    assert lock.locked()
    lock.release()
    await settle()
    assert not lock.locked()


async def test_a_caller_that_is_cancelled_as_it_gets_a_lock_does_not_keep_it(bench: Bench) -> None:
    """SPEC 4.3: a call that was given up leaves everything as it was."""
    lock = asyncio.Lock()
    await lock.acquire()
    before = asyncio.all_tasks()

    async def hold() -> None:
        async with bench.journal.holding(lock):
            pytest.fail("it was cancelled before")

    holding = asyncio.create_task(hold())
    await settle()
    lock.release()
    await asyncio.sleep(0)  # the lock is taken, and the caller does not know yet
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    await settle()
    assert not lock.locked()
    assert asyncio.all_tasks() == before


async def test_a_flush_repeats_a_failed_write_at_once_and_then_raises_its_fault(traced: Bench) -> None:
    """SPEC 4.6, 7.6: a call whose notes cannot be written fails now, and not after a backoff."""
    journal, disk = traced.journal, traced.disk
    disk.faults = ["before"]
    journal.note(WK(0, Instant(traced.clock.now()), 1))
    await asyncio.wait_for(journal.flush_notes(), 30)
    disk.faults = ["before"] * 3
    journal.note(WK(0, Instant(traced.clock.now()), 2))
    with pytest.raises(StoreError):
        await asyncio.wait_for(journal.flush_notes(), 30)
    assert [number for number, _ in disk.attempts] == [100, 100, 101, 101]


# --- a stop overtakes ------------------------------------------------------------------------------------------------


async def test_a_start_is_withdrawn_if_a_stop_comes_before_its_commit_begins(bench: Bench) -> None:
    """SPEC 4.3: nothing starts after it was called."""
    bench.disk.ready.clear()
    begun = bench.journal.commit(Starts([bench.start(0, 1)]))
    await settle()
    waiting = bench.journal.commit(Starts([bench.start(1, 2)]))
    bench.gate.count_stops(1)
    bench.disk.ready.set()
    answers: list[Granted] = [await begun, await waiting]
    assert [None if each is None else each.count for each in answers] == [1, None]
    assert bench.running() == {"t0"}
    assert bench.batches() == [["start t0"]]


async def test_a_start_whose_commit_had_begun_is_granted_also_after_a_fault(bench: Bench) -> None:
    """SPEC 4.3: it may still enter its callback, counts as running, and stop waits for it."""
    bench.disk.faults = ["after"]
    begun = bench.journal.commit(Starts([bench.start(0, 1)]))
    await settle()
    bench.gate.count_stops(1)
    bench.clock.advance(0.1)
    granted = await begun
    assert granted is not None
    assert bench.running() == {"t0"}


async def test_ends_and_corrections_are_written_during_a_stop(bench: Bench) -> None:
    """SPEC 4.3: all running callbacks, whose ends are recorded; SPEC 2.5: a correction is no start."""
    granted = await bench.journal.commit(Starts([bench.start(0, 1)]))
    assert granted is not None
    bench.gate.count_stops(1)
    now = Instant(bench.clock.now() - 86_400_000_000)
    bench.record(bench.finish(next(granted.singles())))
    correction = bench.journal.commit(Correction(now, Minute(now // 60_000_000 * 60)))
    refused = bench.journal.commit(Starts([bench.start(1, 2)]))
    granted = await correction
    assert granted is not None
    assert granted.count == 0
    assert await refused is None
    await settle()
    assert bench.batches()[-1] == ["end t0", "correction"]
    assert bench.ended == [["t0"]]
    assert stored(bench.path, "t0")["served_through"] == now // 60_000_000 * 60


async def test_a_batch_of_nothing_but_withdrawn_starts_is_not_written(bench: Bench) -> None:
    """SPEC 4.3: a stop leaves no trace of what never began."""
    bench.gate.count_stops(1)
    assert await bench.journal.commit(Starts([bench.start(0, 1)])) is None
    await settle()
    assert bench.disk.attempts == []
    assert not bench.journal.busy


# --- a lease ---------------------------------------------------------------------------------------------------------


class LeasedBench:
    """A journal whose host may lose its lease, with the ends that were fenced off."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.lease = BeatLease(30.0, bench.clock.elapsed, sent=bench.clock.elapsed())
        self.fenced: list[list[str]] = []
        setup = Setup(Options(), Host(bench.clock), bench.disk, Outbox(bench.clock, bench.events.append))
        bench.journal = Journal(setup, bench.disk, bench.gate, bench.traffic, first_number=100, lease=self.lease)

    def fence(self, ends: Ends) -> None:
        """The ends are not recorded."""
        self.fenced.append([end.task.name for end in ends.singles()])


@pytest.fixture
async def leased(bench: Bench) -> AsyncIterator[LeasedBench]:
    leased = LeasedBench(bench)
    writer = asyncio.create_task(bench.journal.run(bench.end, leased.fence))
    yield leased
    writer.cancel()
    with suppress(asyncio.CancelledError):
        await writer


async def test_a_host_that_was_buried_records_nothing_any_more(leased: LeasedBench) -> None:
    """SPEC 9.6: its ends are fenced off, and its starts withdrawn."""
    bench = leased.bench
    granted = await bench.journal.commit(Starts([bench.start(0, 1)]))
    assert granted is not None
    leased.lease.lose()
    bench.record(bench.finish(next(granted.singles())))
    assert await bench.journal.commit(Starts([bench.start(1, 2)])) is None
    await settle()
    assert [number for number, _ in bench.disk.attempts] == [100]
    assert (leased.fenced, bench.ended) == ([["t0"]], [])
    assert not bench.journal.busy


async def test_a_write_that_fails_is_given_up_with_the_lease(leased: LeasedBench) -> None:
    """SPEC 9.6: it is not repeated, and the journal has no fault any more."""
    bench = leased.bench
    granted = await bench.journal.commit(Starts([bench.start(0, 1)]))
    assert granted is not None
    bench.disk.faults = ["before"] * 9
    bench.record(bench.finish(next(granted.singles())))
    await settle()
    assert bench.journal.fault is not None
    leased.lease.lose()
    bench.clock.advance(0.1)
    await settle()
    assert leased.fenced == [["t0"]]
    assert bench.journal.fault is None
    assert not bench.journal.busy
    assert [type(event) for event in bench.events] == [StoreFault]


async def test_a_write_that_fails_because_the_host_was_buried_is_no_fault_of_the_store(leased: LeasedBench) -> None:
    """SPEC 9.6: the loss of the lease is announced elsewhere."""
    bench = leased.bench
    bench.disk.ready.clear()
    answer = bench.journal.commit(Starts([bench.start(0, 1)]))
    await settle()
    leased.lease.lose()
    bench.disk.faults = ["before"]
    bench.disk.ready.set()
    assert await asyncio.wait_for(answer, 30) is None
    assert bench.events == []
    assert bench.journal.fault is None


@pytest.mark.parametrize(("permanent", "longest"), [(False, [1.0, 1.0]), (True, [1.6, 3.2])])
async def test_a_server_that_restarts_is_asked_every_second(
    leased: LeasedBench, permanent: bool, longest: list[float]
) -> None:
    """SPEC 9.20: but not one that refuses for good, such as for a right that is missing."""
    bench = leased.bench
    bench.disk.faults, bench.disk.permanent = ["before"] * 6, permanent
    answer = bench.journal.commit(Starts([bench.start(0, 1)]))
    while not answer.done():
        await settle()
        bench.clock.advance(5)
    assert bench.clock.waits == [0.1, 0.2, 0.4, 0.8, *longest]
