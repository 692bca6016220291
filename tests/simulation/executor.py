"""Runs a history: the real scheduler, the real store, on a simulated host in a seeded loop; then asks every oracle.

After its last step a history heals: nothing fails any more, callbacks return at once, what the store holds is declared
once more, and some minutes pass. Then nothing may be owed, stop() must return, and the trace has ended cleanly: what is
pending then is violated.
"""

import asyncio
import hashlib
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import duly
from duly.core.moments import MICROSECONDS
from duly.engine.engine import Engine
from duly.events import Event
from duly.stores import SqliteStore
from duly.testing import SimulatedHost
from tests.simulation import damage, loop
from tests.simulation.faults import Faults, FaultyStore
from tests.simulation.histories import (
    Crash,
    Damage,
    Declared,
    Doing,
    Freeze,
    History,
    Initialize,
    Pass,
    SetClock,
    Step,
    Stop,
    Suspend,
    as_test,
)
from tests.simulation.oracles import Evidence, Witness, complaints, durable_events, number_of_this_run

_PATIENCE_SECONDS: Final = 3 * 3600
_HEALING_SECONDS: Final = 61
_NOWHERE: Final = "/dev/shm"
_LOGGER: Final = logging.getLogger("duly")


@dataclass
class Call:
    """A call of the lifecycle, and what came of it."""

    verb: str
    outcome: str = "pending"  # returned, raised, cancelled, died
    error: str = ""


@dataclass
class Result:
    """The result of a history."""

    history: History
    wrongs: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    rows: list[Any] = field(default_factory=list)
    trace: bytes = b""
    witness: Witness = field(default_factory=Witness)
    simulated_seconds: float = 0
    deaths: int = 0
    referenced: bool = False
    """Whether the reference scheduler could be asked as well."""

    @property
    def fingerprint(self) -> str:
        """Equal for two executions that did the same in the same order."""
        told = [[(call.verb, call.outcome, call.error) for call in self.calls], self.witness.entries, self.wrongs]
        return hashlib.sha256(self.trace + repr(told).encode()).hexdigest()


class SimulationError(AssertionError):
    """A history after which something was wrong."""


class _Execution:
    """One history under way."""

    def __init__(self, history: History, folder: Path) -> None:
        self.history = history
        self.result = Result(history)
        self.store = folder / "duly.db"
        self.host = SimulatedHost(
            history.at, history.zone, self.store, idle_looks=history.idle_looks, seed=history.seed
        )
        self.faults = Faults(self.host, history.faults, died=self.die, looks=self.watch_clock)
        self.scheduler: duly.Scheduler | None = None
        self.life = 0  # how often the process has died
        self.living: set[str] = set()
        self.runs: Counter[str] = Counter()
        self.callers: list[asyncio.Task[None]] = []
        self.declared: tuple[Declared, ...] = ()
        self.deaths: dict[int, int] = {}
        self.pauses: list[tuple[int, int]] = []
        self.calm = False
        self.last_call = Call("none")
        # A time limit ends a run a microsecond after the instant it is stamped with: with few slots, that decides
        # which of two tasks that are owed equally long comes first.
        self.instants_are_sure = not history.faults and not {"run_timeout", "max_concurrency"} <= history.options.keys()
        """Whether an obvious scheduler can tell when things happened: neither a fault nor an unnoticed step hid it."""

    # --- the process -------------------------------------------------------------------------------------------------

    def new_scheduler(self) -> duly.Scheduler:
        store = SqliteStore(self.store, worker=self.host._new_worker(), synchronous="OFF")
        options = dict(self.history.options)
        if "run_timeout" in options:
            options["run_timeout"] = timedelta(seconds=options["run_timeout"])
        return self.host.scheduler(FaultyStore(store, self.faults), trace=True, **options)

    def die(self) -> None:
        """At this very step."""
        self.watch_clock()
        self.host._kill()
        self.life += 1
        self.living.clear()
        self.scheduler = None
        self.deaths.setdefault(durable_events(self.store), self.host._clock.wall)
        self.result.deaths += 1

    # --- callbacks ---------------------------------------------------------------------------------------------------

    def registrations(self, tasks: tuple[Declared, ...]) -> list[Any]:
        return [(each.name, each.cron, self.callback(each), timedelta(milliseconds=each.delay_ms)) for each in tasks]

    def callback(self, declared: Declared) -> Callable[[], object]:
        """The work of a task; a blocking one hands back what takes time."""

        async def on_loop() -> None:
            await self.run(declared.name, self.next_doing(declared))

        def block() -> Awaitable[None]:
            return on_loop()

        return block if declared.blocking else on_loop

    def next_doing(self, declared: Declared) -> Doing:
        number, self.runs[declared.name] = self.runs[declared.name], self.runs[declared.name] + 1
        if self.calm or not declared.doings:
            return Doing()
        return declared.doings[number % len(declared.doings)]

    async def run(self, name: str, doing: Doing) -> None:
        """One run, watched."""
        life, number = self.life, number_of_this_run()
        if name in self.living:
            self.result.wrongs.append(f"task {name} overlaps itself at run {number}")
        self.living.add(name)
        self.result.witness.note("begin", name, number)
        try:
            await self.do(doing, life)
        except BaseException:
            self.ended(life, "raise", name, number)
            raise
        self.ended(life, "return", name, number)

    def ended(self, life: int, deed: str, name: str, number: int) -> None:
        if life == self.life:  # a process that has died since sees nothing more
            self.living.discard(name)
            self.result.witness.note(deed, name, number)
            self.watch_clock()

    async def do(self, doing: Doing, life: int) -> None:
        try:
            if doing.seconds:
                await self.host.sleep(doing.seconds)
        except asyncio.CancelledError:
            if doing.end != "resists" or life != self.life:
                raise
        if doing.end == "raises":
            raise RuntimeError("bad luck")
        if doing.end == "exits":
            raise SystemExit(3)
        if doing.end == "gives up":
            raise asyncio.CancelledError
        scheduler = self.scheduler
        if doing.end == "stops" and scheduler is not None:
            try:
                await scheduler.stop()
            except duly.StopSchedulerError:
                self.result.errors["StopSchedulerError"] += 1
            else:
                self.result.wrongs.append("a stop inside a callback returned")
        if doing.end == "declares" and scheduler is not None:
            again = tuple(Declared(each.name, each.cron, each.delay_ms, each.blocking) for each in self.declared)
            await self.call("declares", partial(scheduler.initialize, self.registrations(again)))

    # --- calls -------------------------------------------------------------------------------------------------------

    async def call(self, verb: str, work: Callable[[], Awaitable[None]]) -> None:
        """One call of the lifecycle: what it raises is its outcome."""
        call, life = Call(verb), self.life
        if verb != "declares":
            self.last_call = call
        self.result.calls.append(call)
        self.watch_clock()
        try:
            await work()
        except asyncio.CancelledError:
            call.outcome = "cancelled" if life == self.life else "died"
            raise
        except duly.DulyError as error:
            call.outcome, call.error = "raised", type(error).__name__
            self.result.errors[call.error] += 1
        else:
            call.outcome = "returned"

    @property
    def engine(self) -> Engine | None:
        """The engine that runs, if one does."""
        return None if self.scheduler is None else self.scheduler._lifecycle.engine

    def watch_clock(self) -> None:
        """If the clock has been set, and the scheduler has not looked since, what happens now has a strange instant."""
        if (engine := self.engine) is not None:
            self.instants_are_sure &= abs(self.host._clock.wall - engine.loop.wall.expected()) < MICROSECONDS

    async def until_done(self, caller: "asyncio.Task[None]") -> None:
        """Let time pass, from alarm to alarm, until a call has ended."""
        clock = self.host._clock
        give_up_at = clock.passed + _PATIENCE_SECONDS * MICROSECONDS
        await self.host.advance()
        while not caller.done():
            alarm = clock.next_alarm()
            if alarm is None or alarm > give_up_at:
                self.result.wrongs.append("a call does not end")
                caller.cancel()
                return
            await self.host._let_pass(max(0, alarm - clock.passed))

    async def called(self, verb: str, work: Callable[[], Awaitable[None]], step: Initialize | Stop) -> None:
        caller = asyncio.ensure_future(self.call(verb, work))
        self.callers.append(caller)
        if step.cancelled_after is not None:
            for _ in range(1 + step.cancelled_after):
                await asyncio.sleep(0)
            caller.cancel()
        if not step.background:
            await self.until_done(caller)

    # --- steps -------------------------------------------------------------------------------------------------------

    async def take(self, step: Step) -> None:
        host = self.host
        if isinstance(step, Initialize):
            if not step.wrong:
                self.declared = step.tasks
            if self.scheduler is None:
                self.scheduler = self.new_scheduler()
            argument = damage.spoil(self.registrations(step.tasks), step.wrong)
            await self.called("initialize", partial(self.scheduler.initialize, argument), step)
        elif isinstance(step, Stop):
            if self.scheduler is not None:
                await self.called("stop", self.scheduler.stop, step)
        elif isinstance(step, Pass):
            await host.advance(seconds=step.seconds)
        elif isinstance(step, Freeze):
            with self.pausing():
                await host.jump(seconds=step.seconds)
        elif isinstance(step, Suspend | SetClock):
            with self.pausing():
                await host.set_clock(host.now + timedelta(seconds=step.seconds))
        elif isinstance(step, Crash):
            self.die()
            await host.crash()
        elif isinstance(step, Damage):
            await self.suffer_damage(step.kind)
        else:
            await self.suffer_intruder()

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """The scheduler cannot decide meanwhile, nor before its next look."""
        clock = self.host._clock
        begin = clock.wall
        yield
        engine = self.engine
        polls = [
            alarm for alarm, _, wake, asleep in clock._sleepers if asleep[0] and engine and wake is engine.gate.wake
        ]
        self.pauses.append((begin, clock.wall + min(polls, default=clock.passed) - clock.passed))

    async def suffer_damage(self, kind: str) -> None:
        self.die()
        await self.host.crash()
        if not damage.can_be_done(self.store):
            return
        before = self.store.read_bytes()
        expected = damage.do(self.store, kind)
        damaged = self.store.read_bytes()
        was_calm, self.faults.calm = self.faults.calm, True
        try:
            await self.new_scheduler().initialize(self.registrations(self.declared))
        except duly.DulyError as error:
            if type(error) is not expected:
                self.result.wrongs.append(f"damage ({kind}) raised {error!r}, and not {expected.__name__}")
            self.result.errors[type(error).__name__] += 1
        else:
            self.result.wrongs.append(f"damage ({kind}) went unnoticed")
        self.faults.calm = was_calm
        if self.store.read_bytes() != damaged:
            self.result.wrongs.append(f"a store that was refused ({kind}) has been changed")
        self.store.write_bytes(before)

    async def suffer_intruder(self) -> None:
        if self.scheduler is None or self.engine is None or self.scheduler._lifecycle.under_way:
            return
        intruder = self.host.scheduler(SqliteStore(self.store, worker=self.host._new_worker(), synchronous="OFF"))
        try:
            await intruder.initialize(self.registrations(self.declared))
        except duly.StoreLockedError:
            self.result.errors["StoreLockedError"] += 1
        else:
            self.result.wrongs.append("two schedulers share one store")
        self.host._lifecycles.remove(intruder._lifecycle)

    # --- all of it ---------------------------------------------------------------------------------------------------

    async def happen(self) -> None:
        event_loop = asyncio.get_running_loop()
        assert isinstance(event_loop, loop.SeededLoop)
        self.host._rest = event_loop.rest
        async with self.host:
            began = self.host._clock.passed
            for step in self.history.steps:
                await self.take(step)
            await self.heal()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            self.result.wrongs += sorted(f"a task of the event loop is left behind: {task.get_coro()}" for task in left)
            self.result.events = self.host.events
            self.result.faults.update({kind.name: times for kind, times in self.faults.met.items()})
            self.result.simulated_seconds = (self.host._clock.passed - began) / MICROSECONDS
            self.judge()

    async def heal(self) -> None:
        """Nothing goes wrong any more: all that is owed is served, and everything can be stopped."""
        self.calm = self.faults.calm = True
        for caller in self.callers:
            await self.until_done(caller)
        await asyncio.gather(*self.callers, return_exceptions=True)
        stored = damage.stored_tasks(self.store)
        tasks = tuple(Declared(name, cron, delay) for name, (cron, delay) in stored.items()) or self.declared
        await self.take(Initialize(tasks))
        if self.last_call.outcome != "returned":
            self.result.wrongs.append(f"nothing fails any more, and this did: {self.last_call}")
            return
        while self.living:
            await self.host.advance(seconds=_HEALING_SECONDS)
        await self.host.advance(seconds=_HEALING_SECONDS)
        engine = self.engine
        if engine is None:
            self.result.wrongs.append("the scheduler is gone")
            return
        if not engine.runner.open:
            assert engine.trace is not None
            assert engine.trace.monitor is not None
            if owed := sorted(engine.trace.monitor.obligations(self.host._clock.wall)):
                self.result.wrongs.append(f"{owed} are owed, nothing is in the way, and nothing starts")
        await self.take(Stop())
        if self.last_call.outcome != "returned":
            self.result.wrongs.append(f"nothing fails any more, and this did: {self.last_call}")

    def judge(self) -> None:
        """Every oracle."""
        evidence = Evidence.of(
            self.host,
            self.store,
            clean=True,
            witness=self.result.witness,
            deaths=self.deaths,
            pauses=merged(self.pauses),
            bounded=not self.history.faults,
        )
        reference = self.result.referenced = self.instants_are_sure and in_order(evidence.rows)
        self.result.trace, self.result.rows = evidence.trace, list(evidence.rows)
        self.result.wrongs += complaints(evidence, reference=reference)


def in_order(rows: Sequence[Any]) -> bool:
    """Whether what was stamped by a clock that had been set back stands behind the row that tells of it."""
    latest = 0
    for letters, _, at, *_ in rows:
        if letters not in ("BT", "CK") and at < latest:
            return False
        latest = at
    return True


def merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches of time, those that overlap as one."""
    answer: list[tuple[int, int]] = []
    for begin, end in sorted(stretches):
        if answer and begin <= answer[-1][1]:
            answer[-1] = (answer[-1][0], max(answer[-1][1], end))
        else:
            answer.append((begin, end))
    return answer


def execute(history: History) -> Result:
    """Run a history to its end; what is wrong with it stands in the result."""
    was_disabled, _LOGGER.disabled = _LOGGER.disabled, True  # events are kept; thousands of log lines would add nothing
    folder = Path(tempfile.mkdtemp(prefix="duly-history-", dir=_NOWHERE if os.path.isdir(_NOWHERE) else None))
    try:
        execution = _Execution(history, folder)
        try:
            loop.run(execution.happen(), seed=history.seed)
        except Exception as error:
            execution.result.wrongs.append(f"{type(error).__name__}: {error}")
            execution.result.trace = damage.exported(execution.store)
        return execution.result
    finally:
        _LOGGER.disabled = was_disabled
        shutil.rmtree(folder, ignore_errors=True)


def check(history: History) -> Result:
    """Run a history, and raise if anything is wrong: with a test to paste, and with the trace."""
    result = execute(history)
    if result.wrongs:
        told = [*result.wrongs, "", as_test(history), "its trace:", result.trace.decode()]
        raise SimulationError("\n".join(told))
    return result
