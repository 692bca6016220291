"""Hundreds of seeded interleavings of initialize() and stop(), called by many tasks at once, and from callbacks.

Each seed is a history: several tasks declare, redeclare and stop one scheduler; some declarations are wrong, some
callers are cancelled in the middle, the disk is full now and then, callbacks work, fail, and call the scheduler that
runs them. Whatever happened, the calls took effect in call order, and these hold (SPEC 4 and 5):

- no task ever overlaps itself, whatever it has been declared to be meanwhile;
- nothing starts after stop() was called, and when it returns, nothing that ran before is running;
- in the end the last effective declaration is in force, with its newest callbacks, in the scheduler and in the store;
- every call ends, every run has one start and one end, no task of the event loop is left, the store is sound.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

import duly
from duly.core.changes import Batch
from duly.core.task import Start
from duly.events import (
    Event,
    SchedulerStopped,
    SchedulerStopRequested,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunStarted,
)
from duly.stores import Outcome, SqliteStore
from duly.testing import SimulatedHost
from duly.testing.sim_threads import Dice, SeededWorker
from duly.threads import Inline, Threads
from tests.counts import share
from tests.stores.helpers import full_disk, integrity, query, stored_tasks

T = TypeVar("T")

NAMES = ("a", "b", "c", "d", "e")
CRONS = ("* * * * *", "0-59 * * * *", "30 12 * * *")
MINUTELY = CRONS[:2]
DELAYS = (0, 5, 90)
SEEDS = 250

Declaration = dict[str, tuple[str, int]]
"""Name to cron text and delay in milliseconds."""


class WatchedStore(SqliteStore):
    """The embedded store, which remembers the latest start whose commit has begun."""

    latest_start = 0

    async def write(self, batch: Batch, number: int, *rest: Any, **more: Any) -> Outcome:
        """From here on these starts may enter their callbacks, whatever is called meanwhile (SPEC 4.3)."""
        self.latest_start = max([self.latest_start, *(each.run for each in batch.singles() if isinstance(each, Start))])
        return await super().write(batch, number, *rest, **more)


@dataclass
class Call:
    """One call of initialize() or stop(), in call order."""

    number: int
    declaration: Declaration | None  # None: a stop
    outcome: str = "pending"
    latest_start: int = 0  # for a stop: the last start whose commit had begun when it was called

    @property
    def is_stop(self) -> bool:
        """Whether it is a stop."""
        return self.declaration is None


@dataclass
class Situation:
    """Where the scheduler may stand, as far as the outcomes of the calls tell."""

    running: bool
    declaration: Declaration | None  # None: nothing has ever been stored
    number: int | None  # of the call whose callbacks are in force


@dataclass
class History:
    """One seed: the dice, the scheduler, what was called, and what came of it."""

    seed: int
    host: SimulatedHost
    store: Path
    dice: random.Random = field(init=False)
    watched: WatchedStore = field(init=False)
    scheduler: duly.Scheduler = field(init=False)
    calls: list[Call] = field(default_factory=list)
    alive: Counter[str] = field(default_factory=Counter)
    begun: list[tuple[str, int]] = field(default_factory=list)  # task and call whose callback it was
    open_runs: dict[int, int] = field(default_factory=dict)  # entry in `begun` to calls made by then
    faulty: bool = False  # the disk has been full
    calm: bool = False  # callbacks return at once
    wrongs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        options: dict[str, Any] = {}
        if self.dice.random() < 0.3:
            options["max_concurrency"] = self.dice.randint(1, 3)
        clock = self.host._clock
        worker: Threads = SeededWorker(Dice(self.seed), alive=clock.now) if self.seed % 2 else Inline()
        self.watched = WatchedStore(self.store, worker=worker, synchronous="OFF")
        self.scheduler = self.host.scheduler(store=self.watched, on_event=self.hear, **options)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def initialize(self, *, inside: bool = False) -> None:
        """Declare something, right or wrong."""
        number = len(self.calls)
        names = self.dice.sample(NAMES, self.dice.randint(0, len(NAMES)))
        declaration = {name: (self.dice.choice(CRONS), 1000 * self.dice.choice(DELAYS)) for name in names}
        registrations: list[Any] = [
            (name, cron, self.callback(name, number), timedelta(milliseconds=delay))
            for name, (cron, delay) in declaration.items()
        ]
        if self.dice.random() < 0.2:
            registrations.insert(self.dice.randint(0, len(registrations)), ("wrong", "* * *", print, timedelta(0)))
        call = Call(number, declaration)
        stopping = [each for each in self.calls if each.is_stop and each.outcome in ("pending", "cancelled")]
        self.calls.append(call)
        try:
            await self.scheduler.initialize(registrations)
        except duly.SchedulerStoppingError:
            call.outcome = "raised"
            if not inside or not stopping:
                self.wrongs.append(f"call {number} found a stop where none was in its way")
        except duly.RegistrationError:
            call.outcome = "raised"
        except (duly.ScheduleTaskError, duly.StoreError) as error:
            call.outcome = "raised"
            if not self.faulty:
                self.wrongs.append(f"call {number} met a fault of a sound disk: {error!r}")
        except asyncio.CancelledError:
            call.outcome = "cancelled"
            raise
        else:
            call.outcome = "returned"
            if inside and any(each.outcome == "pending" for each in stopping):
                self.wrongs.append(f"call {number} returned inside a callback that a stop is waiting for")

    async def stop(self) -> None:
        """Stop, and look whether that is true."""
        call = Call(len(self.calls), None, latest_start=self.watched.latest_start)
        self.calls.append(call)
        entries = set(self.open_runs)
        try:
            await self.scheduler.stop()
        except duly.StopSchedulerError:
            call.outcome = "raised"
            if not self.faulty:
                self.wrongs.append(f"stop {call.number} could not store ends on a sound disk")
        except asyncio.CancelledError:
            call.outcome = "cancelled"
            raise
        else:
            call.outcome = "returned"
            if left := entries & set(self.open_runs):
                self.wrongs.append(f"stop {call.number} returned while {len(left)} runs went on that it had found")

    async def stop_inside(self) -> None:
        """From inside a callback, that is refused, and counts for nothing."""
        try:
            await self.scheduler.stop()
        except duly.StopSchedulerError:
            return
        self.wrongs.append("a stop inside a callback returned")

    # --- what runs ---------------------------------------------------------------------------------------------------

    def callback(self, name: str, number: int) -> Callable[[], Any]:
        """The deeds of a task: work, fail, call the scheduler; sometimes it blocks."""
        if self.dice.random() < 0.2:

            def block() -> None:
                with self.living(name, number):
                    pass

            return block

        async def run() -> None:
            with self.living(name, number):
                if self.calm:
                    return
                if self.dice.random() < 0.6:
                    await self.host.sleep(self.dice.choice([0, 1, 10, 45, 70, 130]))
                deed = self.dice.random()
                if deed < 0.05:
                    await self.stop_inside()
                elif deed < 0.15 and len(self.calls) < 60:
                    await self.initialize(inside=True)
                elif deed < 0.3:
                    raise RuntimeError("bad luck")

        return run

    @contextlib.contextmanager
    def living(self, name: str, number: int) -> Iterator[None]:
        """Note a run, and that no other one of the same task is under way."""
        entry = len(self.begun)
        self.begun.append((name, number))
        self.open_runs[entry] = len(self.calls)
        self.alive[name] += 1
        if self.alive[name] > 1:
            self.wrongs.append(f"task {name} overlaps itself")
        try:
            yield
        finally:
            self.alive[name] -= 1
            del self.open_runs[entry]

    def hear(self, event: Event) -> None:
        """Nothing starts after a stop was called, but what had been committed."""
        if isinstance(event, TaskRunStarted):
            for call in self.calls:
                if call.is_stop and call.outcome == "pending":
                    if event.run_id > call.latest_start:
                        self.wrongs.append(f"run {event.run_id} of {event.task_name} started after stop {call.number}")

    # --- the history -------------------------------------------------------------------------------------------------

    async def act(self) -> None:
        """One of the tasks that use the scheduler."""
        for _ in range(self.dice.randint(1, 6)):
            for _ in range(self.dice.choice([0, 0, 1, 2, 5, 12])):
                await asyncio.sleep(0)
            deed: Awaitable[None] = self.initialize() if self.dice.random() < 0.75 else self.stop()
            if self.dice.random() < 0.25:
                await self.cancelled_after(self.dice.choice([0, 1, 2, 3, 4, 6, 9, 15]), deed)
            else:
                await deed
            if self.dice.random() < 0.3:
                await self.host.sleep(self.dice.choice([1, 20, 61, 100]))

    async def cancelled_after(self, rounds: int, deed: Awaitable[None]) -> None:
        """Let it be called, and cancel its caller after some rounds of the event loop, if it is still waiting."""
        caller = asyncio.ensure_future(deed)
        for _ in range(1 + rounds):
            await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])

    async def happen(self) -> None:
        """Let all of it happen, with time passing in between."""
        actors = [asyncio.ensure_future(self.act()) for _ in range(self.dice.randint(2, 7))]
        for _ in range(500):
            if all(actor.done() for actor in actors):
                break
            if self.seed % 3 == 0 and self.dice.random() < 0.2:
                await self.suffer()
            for _ in range(self.dice.randint(0, 8)):
                await asyncio.sleep(0)
            await self.host.advance(seconds=self.dice.choice([0, 0, 0.5, 7, 31, 60]))
        for actor in actors:
            assert actor.done(), "a call does not end"
            actor.result()

    async def suffer(self) -> None:
        """The disk is full for a while."""
        self.faulty = True
        with full_disk():
            for _ in range(self.dice.randint(0, 6)):
                await asyncio.sleep(0)
            if self.dice.random() < 0.5:
                await self.host.advance(seconds=self.dice.choice([0.05, 3, 20, 61]))

    # --- what must have come of it -----------------------------------------------------------------------------------

    def possible(self) -> list[Situation]:
        """Where the calls, taken in order, may have led: a cancelled one had all of its effect or none."""
        situations = [Situation(running=False, declaration=None, number=None)]
        for call in self.calls:
            if call.declaration is not None:
                declared = Situation(True, call.declaration, call.number)
                if call.outcome == "returned":
                    situations = [declared]
                elif call.outcome == "cancelled":
                    situations.append(declared)
            else:
                situations = [Situation(False, each.declaration, each.number) for each in situations]
        return situations

    def agrees(self, situation: Situation, since: int) -> bool:
        """Whether what is stored, and what has run since then, is what this situation says."""
        if (stored_tasks(self.store) if self.highest_generation() else None) != (situation.declaration or None):
            if situation.declaration or stored_tasks(self.store):
                return False
        ran = set(self.begun[since:])
        if not situation.running:
            return not ran
        expected = {name for name, (cron, _) in (situation.declaration or {}).items() if cron in MINUTELY}
        return {name for name, _ in ran} == expected and {number for _, number in ran} <= {situation.number}

    def highest_generation(self) -> int:
        """Whether anything has ever been declared in this store."""
        if not self.store.exists() or not self.store.stat().st_size:
            return 0
        return int(query(self.store, "SELECT count(*) FROM tasks")[0][0])


async def settle(history: History) -> int:
    """Let what is under way end; returns where the runs begin that belong to the last declaration alone."""
    history.calm = True
    await history.host.advance(minutes=5)
    return len(history.begun)


@pytest.mark.parametrize("seed", share(range(SEEDS), 60))
async def test_calls_that_overlap_take_effect_in_call_order_and_leave_everything_sound(
    seed: int, tmp_path: Path
) -> None:
    """SPEC 4.1–4.6, 5.1–5.3: whatever the interleaving."""
    before = asyncio.all_tasks()
    store = tmp_path / "state.db"
    async with SimulatedHost("2024-01-01T12:00:20", "UTC", store=store) as host:
        history = History(seed, host, store)
        await history.happen()
        since = await settle(history)
        await host.advance(minutes=2)
        assert history.wrongs == []
        assert "pending" not in [call.outcome for call in history.calls]
        possible = history.possible()
        assert any(history.agrees(each, since) for each in possible), (possible, history.begun[since:])
        stopping = asyncio.ensure_future(history.scheduler.stop())
        await host.advance(minutes=5)
        assert stopping.done()
        stopping.result()
        check_records(history)
    assert asyncio.all_tasks() == before


def check_records(history: History) -> None:
    """After the last stop: every start has its one end, in the events and in the store."""
    events = history.host.events
    started = [event.run_id for event in events if isinstance(event, TaskRunStarted)]
    ended = [event.run_id for event in events if isinstance(event, TaskRunCompleted | TaskRunFailed)]
    requested = [event for event in events if isinstance(event, SchedulerStopRequested)]
    stopped = [event for event in events if isinstance(event, SchedulerStopped)]
    assert len(started) == len(set(started)) == len(history.begun)
    assert len(ended) == len(set(ended))
    assert not history.open_runs
    if not history.highest_generation():
        return
    assert integrity(history.store) == "ok"
    recorded = query(history.store, "SELECT run FROM runs WHERE outcome != 'interrupted' ORDER BY run")
    assert [run for (run,) in recorded] == sorted(ended)
    in_force = query(history.store, "SELECT generation FROM tasks WHERE retired_at IS NULL ORDER BY 1")
    assert query(history.store, "SELECT generation FROM states ORDER BY 1") == in_force
    if len(stopped) == len(requested):  # no stop had to give up for want of a disk
        assert sorted(ended) == sorted(started)
        assert query(history.store, "SELECT count(*) FROM states WHERE run IS NOT NULL") == [(0,)]
    else:
        assert history.faulty
