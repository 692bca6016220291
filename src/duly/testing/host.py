"""A host whose time passes on request, and whose process can be killed: the real scheduler and store, without waiting.

Only time and crashes are simulated. The host works in any running event loop: the scheduler sees time through its clock
alone, store calls and blocking callbacks run inline, without threads, so a run is deterministic. The store is a real
SQLite file, written without waiting for the disk, because a simulated crash is that of a process and not of the
operating system.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from duly.core.agenda import Agenda, Decision, Slots
from duly.core.moments import MICROSECONDS, Instant, as_datetime, begin, instant_of, zone_name
from duly.core.registration import RunsOn
from duly.engine.engine import Engine
from duly.engine.host import Host
from duly.engine.lifecycle import Lifecycle
from duly.engine.loop import FIRST_CHUNK_STARTS
from duly.engine.options import Options, check_listener
from duly.engine.pacing import breathe
from duly.events import Event, PollCompleted, PollStarted, PropertyViolated, TaskRunStarted
from duly.formal.calendar import zone_named
from duly.formal.properties import BY_ID, PropertyKind
from duly.scheduler import Scheduler, scheduler_of
from duly.stores.port import Store
from duly.stores.shared import SharedStore
from duly.stores.sqlite import SqliteStore
from duly.testing.sim_clock import SimulatedClock, SimulatedTicker
from duly.testing.sim_threads import Dice, SeededPool, SeededWorker
from duly.threads import Inline, Threads
from duly.wiring import lifecycle_on

_IDLE_ROUNDS: Final = 10
"""Rounds of the event loop in which neither clock nor store is used, after which the host counts as settled.

Nothing inside the scheduler takes as many rounds between two uses of the clock or the store; a callback that still runs
then waits for something else."""

_FORSAKEN_ROUNDS: Final = 5 * _IDLE_ROUNDS
"""Rounds of the event loop in which nothing happens, after which nobody will move the clock while a stop() waits."""

_REAL_SECONDS: Final = 0.01
_ROUNDS_MAX: Final = 1_000_000
_THREADS: Final = 8
_AUDITED_TASKS_MAX: Final = 500
"""Above this, decisions are not audited: the monitor would be asked about every task at each of them."""

_POLLS: Final[frozenset[type[Event]]] = frozenset({PollStarted, PollCompleted})


class SimulatedHost:
    """A computer in a test: a clock you move, a disk that survives, a process you can kill.

    ```python
    async with SimulatedHost("2024-03-31T01:50", "Europe/Berlin") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("report", "30 2 * * *", report, timedelta(minutes=5))])
        await host.advance(days=1)
    ```

    `events` lists every event of every scheduler on this host, except the two that each poll makes. While `stop()` is
    awaited and nothing else moves the clock, time passes until the callbacks that `sleep()` have ended.

    Parameters:
        at: what the clock shows at first: ISO text or a `datetime`; naive ones are meant in `tz`.
        tz: the host's zone, by name or as a `tzinfo`.
        store: a path that outlives the host, or a store; by default the disk is gone with the host.
        idle_looks: whether a poll that finds nothing due takes place if a trace or a listener could notice it. A poll
            that nothing could notice is always left out, so a year passes in seconds; False leaves out all of them.
        callbacks_only_sleep: a promise that callbacks wait for nothing but `sleep()`: while all of them sleep, the host
            is known to be quiet.
        seed: chooses among the orders in which things can happen: which of the sleepers that wake at one moment goes
            first, how soon a store's call or a blocking callback has its turn. 0 is the plain order. The same seed
            gives the same history, to the byte.

    Raises:
        TypeError: `at` is neither text nor a `datetime`, or `tz` neither a name nor a `tzinfo`.
        ValueError: `at` is not ISO 8601, there is no such zone, or `seed` is not a whole number from 0 on.
    """

    def __init__(
        self,
        at: str | datetime,
        tz: str | tzinfo,
        store: str | Path | Store | None = None,
        *,
        idle_looks: bool = True,
        callbacks_only_sleep: bool = False,
        seed: int = 0,
    ) -> None:
        if type(seed) is not int or seed < 0:
            raise ValueError(f"a seed is a whole number that is not negative, got {seed!r}")
        self._dice = Dice(seed) if seed else None
        self._zone = _zone(tz)
        self._zone_has_a_name = _is_named(self._zone)
        self._clock = SimulatedClock(instant_of(self._moment(at)), self._zone, self._dice)
        self._idle_polls = idle_looks
        self._clock.put_off = self._put_off
        self._given_store = store
        self._folder: str | None = None
        self._identifiers = count(1)
        self._host = Host(
            clock=self._clock,
            new_identifier=lambda: f"{next(self._identifiers):032x}",
            new_pool=self._new_pool,
            default_threads=_THREADS,
            new_worker=self._new_worker,
            new_ticker=lambda: SimulatedTicker(self._clock),
            boottime=self._clock.boottime,
            wall=self._clock.now,
            chance=lambda: 0.5 if self._dice is None else self._dice.below(1_000) / 1_000,
            watches_the_loop=False,
            until_stopped=self._until_stopped,
            audit=self._audit,
        )
        self._lifecycles: list[Lifecycle] = []
        self._inside = False
        self._passing = False
        self._passing_for_a_stop = False
        self._faults: list[str] = []  # what the monitor holds against the scheduler, until it is raised
        self._rest: Callable[[], Awaitable[None]] | None = None
        """Waits until nothing on the event loop is ready, where that can be known; elsewhere it is found out."""
        self._callbacks_only_sleep = callbacks_only_sleep
        self.events: list[Event] = []

    async def __aenter__(self) -> "SimulatedHost":
        if self._given_store is None:
            self._folder = tempfile.mkdtemp(prefix="duly-simulated-")
        self._inside = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.crash()
        self._inside = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if kind is None:
            self._complain()  # of what came after time had passed for the last time

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The wall clock, in the host's zone."""
        return as_datetime(self._clock.wall, self._zone)

    def starts(self, task: str) -> list[datetime]:
        """The moments at which a task was started on this host, in the host's zone; crashed schedulers included.

        Parameters:
            task: the name of the task.
        """
        return [
            event.actual_time for event in self.events if isinstance(event, TaskRunStarted) and event.task_name == task
        ]

    def scheduler(self, store: str | Path | Store | SharedStore | None = None, **options: Any) -> Scheduler:
        """A `Scheduler` on this host's clock and disk.

        Parameters:
            store: a path or a store of its own; the host's disk by default.
            **options: `Scheduler`'s own options, but for `clock`. `monitor` is on unless it is given, so a violated
                property fails the test.

        Raises:
            RuntimeError: the host is not entered with `async with`.
            TypeError: `clock` was given, or `on_event` cannot be called.
        """
        if not self._inside:
            raise RuntimeError("use the host as an async context manager: `async with SimulatedHost(...) as host:`")
        if "clock" in options:
            raise TypeError("a scheduler on a simulated host has the host's clock; leave `clock` out")
        theirs = options.pop("on_event", None)
        check_listener(theirs)

        def on_event(event: Event) -> None:
            if type(event) not in _POLLS:
                self.events.append(event)
            # Bounds are engineering targets: a test with a faulty store or a full pool may well miss one.
            if isinstance(event, PropertyViolated) and BY_ID[event.property].kind is not PropertyKind.BOUNDED:
                self._faults.append(f"{event.property} violated: {event.task_name or ''} {event.sentence} {event}")
            if theirs is not None:
                theirs(event)

        options.setdefault("monitor", self._zone_has_a_name)
        place = store if store is not None else self._store_place()
        if isinstance(place, str | Path):
            place = SqliteStore(place, worker=self._new_worker(), synchronous="OFF")
        ignored = _POLLS if theirs is None else frozenset[type[Event]]()
        lifecycle = lifecycle_on(self._host, place, Options(on_event=on_event, **options), ignored=ignored)
        self._lifecycles.append(lifecycle)
        return scheduler_of(lifecycle)

    def _new_worker(self) -> Threads:
        return worker_of(self._dice, self._clock)

    def _new_pool(self, size: int) -> Threads:
        return pool_of(size, self._dice)

    def _store_place(self) -> str | Path | Store:
        if self._given_store is not None:
            return self._given_store
        assert self._folder is not None
        return Path(self._folder) / "duly.db"

    # --- what happens ------------------------------------------------------------------------------------------------

    async def advance(self, **duration: float) -> None:
        """Let time pass; everything due runs, and settles, at its own instant. Nothing given lets the host settle.

        Parameters:
            **duration: as `timedelta` takes it, such as `minutes=5`.

        Raises:
            TypeError: a keyword that `timedelta` does not have.
            ValueError: a negative duration.
            RuntimeError: time is passing already, the host is not entered, or something runs without ever waiting.
            AssertionError: the scheduler has violated a property.
        """
        await self._let_pass(microseconds_of("advance", duration))

    async def advance_to(self, when: str | datetime) -> None:
        """Let time pass until the wall clock shows a moment.

        Parameters:
            when: the moment: ISO text or a `datetime`; naive ones are meant in the host's zone.

        Raises:
            TypeError: `when` is neither text nor a `datetime`.
            ValueError: `when` is not ISO 8601, or before now.
            RuntimeError: time is passing already, the host is not entered, or something runs without ever waiting.
            AssertionError: the scheduler has violated a property.
        """
        microseconds = instant_of(self._moment(when)) - self._clock.wall
        if microseconds < 0:
            raise ValueError(f"{when} is before {self.now}: time only passes forward; set_clock() sets the clock back")
        await self._let_pass(microseconds)

    async def jump(self, **duration: float) -> None:
        """Let wall clock and passing time leap at once, as after a suspend or a freeze; then settle.

        Parameters:
            **duration: as `timedelta` takes it, such as `hours=8`.

        Raises:
            TypeError: a keyword that `timedelta` does not have.
            ValueError: a negative duration.
            RuntimeError: the host is not entered, or something runs without ever waiting.
            AssertionError: the scheduler has violated a property.
        """
        microseconds = microseconds_of("jump", duration)
        await self._settle()
        self._clock.pass_by(microseconds)
        await self._settle()

    async def set_clock(self, when: str | datetime) -> None:
        """Set the wall clock, forward or back; no time passes, so a scheduler notices at its next poll.

        Parameters:
            when: what it shows then: ISO text or a `datetime`; naive ones are meant in the host's zone.

        Raises:
            TypeError: `when` is neither text nor a `datetime`.
            ValueError: `when` is not ISO 8601.
            RuntimeError: the host is not entered, or something runs without ever waiting.
            AssertionError: the scheduler has violated a property.
        """
        self._require_inside()
        moment = instant_of(self._moment(when))
        self._clock.restore_polls()
        self._clock.wall = moment
        if not self._idle_polls:
            for engine in self._engines():
                engine.gate.wake.set()  # it may be asleep for longer than a minute
        await self._settle()

    async def sleep(self, seconds: float) -> None:
        """For callbacks: work that takes some time.

        Parameters:
            seconds: how long, in passing time.

        Raises:
            ValueError: a negative number.
            RuntimeError: the host is not entered.
        """
        self._require_inside()
        if not seconds >= 0:
            raise ValueError(f"sleep takes a number of seconds that is not negative, got {seconds!r}")
        await self._clock.nap(int(seconds * MICROSECONDS))

    async def crash(self) -> None:
        """The process dies now: running callbacks vanish, nothing more is recorded, the disk keeps what was durable.

        Schedulers made before are dead; `host.scheduler()` makes one as a new process would.
        """
        tasks = self._kill()
        current = asyncio.current_task()
        # Callbacks may resist their cancellation; a dead process does not wait for them.
        for _ in range(_IDLE_ROUNDS):
            if all(task.done() or task is current for task in tasks):
                break
            await breathe()

    def _kill(self) -> list["asyncio.Task[Any]"]:
        """Let the process die at this very step, wherever that is; returns the asyncio tasks that have to end."""
        dead, self._lifecycles = self._lifecycles, []
        reason = "this scheduler died in host.crash(); make another with host.scheduler()"
        return [task for lifecycle in dead for task in lifecycle.die(reason)]

    # --- how it is done ----------------------------------------------------------------------------------------------

    async def _until_stopped(self, stop: "asyncio.Task[None]") -> None:
        """Let time pass while a stop() waits for it and the test does not move the clock.

        A test that awaits stop() cannot call advance() meanwhile. One that has begun a stop() in a task of its own can,
        and comes first: it is waited for until nothing happens any more.
        """
        idle = 0
        while self._rest is None and not stop.done():
            before = self._clock.signs_of_life
            await breathe()
            idle = 0 if self._passing or self._clock.signs_of_life != before else idle + 1
            if idle < _FORSAKEN_ROUNDS:
                continue
            idle = 0
            alarm = self._clock.next_alarm()
            if alarm is None or not self._waits_for_time():
                await asyncio.wait([stop], timeout=_REAL_SECONDS)  # for something that is not of this host
                continue
            self._passing_for_a_stop = True
            try:
                await self._pass(max(0, alarm - self._clock.passed))
            finally:
                self._passing_for_a_stop = False

    def _waits_for_time(self) -> bool:
        """Whether a run, a time limit or a write that is repeated waits for time to pass; a poll does not count."""
        return bool(self._clock.naps) or any(
            engine.journal.busy or engine.runner.next_deadline() is not None for engine in self._engines()
        )

    async def _let_pass(self, microseconds: int) -> None:
        while self._passing_for_a_stop:
            await breathe()
        await self._pass(microseconds)

    async def _pass(self, microseconds: int) -> None:
        self._require_inside()
        if self._passing:
            raise RuntimeError(
                "time is passing already: one advance() at a time; inside a callback, await host.sleep()"
            )
        self._passing = True
        try:
            goal = self._clock.passed + microseconds
            await self._settle()
            while (alarm := self._clock.next_alarm()) is not None and alarm <= goal:
                self._clock.put_off_again()
                if self._clock.next_alarm() != alarm:
                    continue
                self._clock.pass_by(max(0, alarm - self._clock.passed))
                await self._settle()
            self._clock.pass_by(max(0, goal - self._clock.passed))
            await self._settle()
            for _ in range(_IDLE_ROUNDS if self._rest is None else 0):
                await breathe()  # the test's own tasks act on what has happened, too
        finally:
            self._passing = False

    async def _settle(self) -> None:
        """Wait until nothing of any scheduler is ready."""
        self._require_inside()
        if self._rest is not None:
            await self._rest()
            return self._complain()
        idle = 0
        for _ in range(_ROUNDS_MAX):
            if not self._clock.waking and self._is_settled():
                return self._complain()
            before = self._clock.signs_of_life
            await breathe()
            idle = idle + 1 if self._clock.signs_of_life == before else 0
            if idle >= _IDLE_ROUNDS:
                return self._complain()
        raise RuntimeError("the host does not settle: something keeps running without waiting for time to pass")

    def _is_settled(self) -> bool:
        """Whether nothing of any scheduler, and no run, is ready."""
        return all(map(_is_quiet, self._lifecycles)) and not self._any_run_awake()

    def _any_run_awake(self) -> bool:
        """Whether a run may have something to do now; a run that goes on may, unless it is known to sleep."""
        runs = sum(engine.runner.open for engine in self._engines())
        return runs > 0 and not (self._callbacks_only_sleep and runs == len(self._clock.naps))

    def _engines(self) -> Iterator[Engine]:
        """The engines that run on this host."""
        for lifecycle in self._lifecycles:
            if (engine := lifecycle.engine) is not None:
                yield engine

    def _put_off(self, instant: int, wake: asyncio.Event) -> int:
        """When a loop that wants to poll at an instant has something to find; time is the host's, so it can know."""
        for engine in self._engines():
            agenda = engine.agenda
            if engine.gate.wake is not wake or not agenda.size:
                continue
            if instant < agenda.minute_ends(self._clock.wall):
                break  # a retry or a time limit, and not the end of a minute
            if self._idle_polls and _leaves_a_mark(engine):
                break
            polls = [] if (due := agenda.next_due()) is None else [begin(due)]
            if (timer := agenda.next_timer()) is not None:
                polls.append(timer)
            if (deadline := engine.runner.next_deadline()) is not None:
                polls.append(Instant(self._clock.wall + int((deadline - self._clock.elapsed()) * MICROSECONDS) + 1))
            return max(instant, min(polls, default=instant))
        return instant

    def _audit(self, agenda: Agenda, decision: Decision, slots: Slots) -> None:
        """Compare a decision with the monitor's opinion, which comes from other code: they must be equal."""
        engine = next(engine for engine in self._engines() if engine.agenda is agenda)
        monitor = None if engine.trace is None else engine.trace.monitor
        if monitor is None or agenda.size > _AUDITED_TASKS_MAX:
            return
        chosen = {start.task.name for start in decision.starts.singles()}
        # Some are put off to the next decision of this poll, behind tasks that are owed for longer.
        put_off = {task.name for tasks in decision.requeue.values() for task in tasks} - chosen
        obliged = set(monitor.obligations(decision.at)) - put_off
        if chosen - obliged or _had_room(agenda, decision, slots, obliged - chosen):
            self._faults.append(
                f"at {self.now} the scheduler starts {sorted(chosen)}, and the monitor obliges it to {sorted(obliged)}"
            )

    def _complain(self) -> None:
        if self._faults:
            faults, self._faults = self._faults, []
            raise AssertionError("the scheduler is at odds with its specification:\n" + "\n".join(faults))

    def _require_inside(self) -> None:
        if not self._inside:
            raise RuntimeError("use the host as an async context manager: `async with SimulatedHost(...) as host:`")

    def _moment(self, when: str | datetime) -> datetime:
        if isinstance(when, str):
            try:
                when = datetime.fromisoformat(when)
            except ValueError as cause:
                raise ValueError(f"not an ISO 8601 moment: {when!r} (for example 2024-03-31T01:50)") from cause
        if not isinstance(when, datetime):
            raise TypeError(f"a moment is ISO text or a datetime, got {type(when).__name__}")
        return when.replace(tzinfo=self._zone) if when.tzinfo is None else when


def _had_room(agenda: Agenda, decision: Decision, slots: Slots, left_out: set[str]) -> bool:
    """Whether there was a free slot for any of the tasks that a decision left out."""
    started = decision.starts.count
    # They stand behind some that were put off, or behind very many, and have their turn in the next decision.
    if decision.stopped_early or decision.evaluated >= 2 * FIRST_CHUNK_STARTS:
        return False
    if slots.total is not None and started >= slots.total:
        return False
    on_threads = sum(start.task.runs_on is RunsOn.THREAD for start in decision.starts.singles())
    if slots.threads is None or on_threads < slots.threads:
        return bool(left_out)
    return any(task.name in left_out and task.runs_on is not RunsOn.THREAD for task in agenda.tasks())


def _leaves_a_mark(engine: Engine) -> bool:
    """Whether a poll that finds nothing due could be noticed from outside."""
    setup = engine.setup
    is_heard = setup.options.trace or setup.outbox.wants(PollStarted)
    return is_heard or engine.runner.open > 0 or type(setup.store) is not SqliteStore


def _is_quiet(lifecycle: Lifecycle) -> bool:
    """Whether a scheduler, its runs aside, surely has nothing to do until time passes."""
    if lifecycle.under_way:
        return False
    engine = lifecycle.engine
    if engine is None:
        return True
    return engine.loop.parked and not engine.gate.wake.is_set() and not engine.journal.busy


def pool_of(size: int, dice: Dice | None) -> Threads:
    """The threads of callbacks."""
    return Inline(size) if dice is None else SeededPool(size, dice)


def worker_of(dice: Dice | None, clock: SimulatedClock) -> Threads:
    """The simulated thread of a store."""
    return Inline() if dice is None else SeededWorker(dice, alive=clock.now)


def microseconds_of(verb: str, duration: dict[str, float]) -> int:
    try:
        microseconds = timedelta(**duration) // timedelta(microseconds=1)
    except TypeError as cause:
        raise TypeError(f"{verb}() takes timedelta's keywords, such as minutes=5: {cause}") from None
    if microseconds < 0:
        raise ValueError(f"{verb}() moves time forward; set_clock() moves the wall clock back")
    return microseconds


def _is_named(zone: tzinfo) -> bool:
    """Whether a monitor can find the zone by its name, which is not so for a zone that a test made up."""
    try:
        return zone_named(zone_name(zone)).utcoffset(datetime(2024, 7, 1)) == zone.utcoffset(datetime(2024, 7, 1))
    except ValueError:
        return False


def _zone(tz: str | tzinfo) -> tzinfo:
    if isinstance(tz, tzinfo):
        return tz
    if not isinstance(tz, str):
        raise TypeError(f"tz is a zone name or a tzinfo, got {type(tz).__name__}")
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError) as cause:
        raise ValueError(f"no such time zone: {tz!r} (for example Europe/Berlin)") from cause
