"""Wait, decide, commit, launch; run callbacks and settle their outcomes.

The one order that survives a crash: a start is durable before its callback begins, an end is durable before the task
may start again, and the agenda changes only after the commit.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from duly.clock import SLICE_SECONDS, Clock, breathe, in_slices
from duly.core.agenda import Agenda, Slots, decide
from duly.core.moments import MICROSECONDS, Instant, as_datetime, begin, minute_of
from duly.core.registration import Kind
from duly.core.task import (
    AwaitingRetry,
    Correction,
    End,
    Running,
    Start,
    Task,
    corrected,
    fail,
    succeed,
)
from duly.events import (
    ClockJumped,
    PollCompleted,
    PollingStarted,
    PollingStopped,
    PollStarted,
)
from duly.host import Host
from duly.journal import Journal
from duly.reports import Reports, error_text
from duly.runs import Pool, Run, inside
from duly.sink import Sink
from duly.stores.port import Store

CHUNK_STARTS_MAX: Final = 5_000
"""Starts of one commit. It bounds how many are durable but not yet called when the process dies."""

STEP_MICROSECONDS: Final = 1 * MICROSECONDS
"""A wall clock that moved this much more, or less, than time passed has been stepped."""

STOP_PATIENCE_SECONDS: Final = 30.0


class Loop:
    """The running half of a scheduler: from one initialize() to the stop that ends it."""

    def __init__(
        self,
        host: Host,
        store: Store,
        sink: Sink,
        agenda: Agenda,
        *,
        first_run: int,
        first_number: int,
        scheduler_key: int,
        max_concurrency: int | None,
        run_timeout: timedelta | None,
        pool_size: int,
        owner: object,
        stopping: Callable[[], bool],
        torn_down: Callable[[], None],
    ) -> None:
        self.agenda = agenda
        self.lock = asyncio.Lock()
        """Held while starts are being decided and committed, or the agenda is being replaced."""
        self._host = host
        self._clock: Clock = host.clock
        self._store = store
        self._sink = sink
        self._reports = Reports(sink)
        self._next_run = first_run
        self._key = scheduler_key
        self._max_concurrency = max_concurrency
        self._timeout = None if run_timeout is None else run_timeout.total_seconds()
        self._pool: Pool = host.new_pool(pool_size)
        self._owner = owner
        self._stopping = stopping
        self._torn_down = torn_down
        self.journal = Journal(
            store, self._clock, sink, first_number=first_number, starts_allowed=self._may_start, ended=self._settle
        )
        self.wake = asyncio.Event()
        self.parked = False
        """Asleep until the next look: nothing is ready, and nothing is being decided."""
        self._runs: dict[Task, Run] = {}
        self._strays: dict[str, Run] = {}
        self._threads_used = 0
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self._deadlines: deque[tuple[float, Run]] = deque()
        self._closing = False
        self._polling = False
        self._seen_now = self._clock.now()
        self._seen_elapsed = self._clock.elapsed()
        self.active_since = Instant(self._seen_now)
        self._main: asyncio.Task[None] | None = None
        self._writer = asyncio.get_running_loop().create_task(self.journal.run(), name="duly-journal")

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look, unless a stop came first; the first look follows at once (SPEC 3.8)."""
        if self._main is None and not self._closing:
            self.active_since = Instant(self._clock.now())
            self._main = asyncio.get_running_loop().create_task(self._live(), name="duly-loop")

    @property
    def tearing_down(self) -> bool:
        """Whether the event loop is going away without a stop()."""
        return self._main is not None and (self._main.cancelling() > 0 or self._main.cancelled())

    @property
    def runs(self) -> Sequence[Run]:
        """The living runs."""
        return list(self._runs.values())

    async def shutdown(self) -> Exception | None:
        """End the loop: running callbacks end, their ends are recorded. Returns the fault that kept any from it."""
        self._closing = True
        self.wake.set()
        if self._main is not None:
            await self._main
        while self._runs:
            # The journal takes a run off when its end is durable; until its callback returns there is no hurry.
            await self._all_ended.wait()
            fault = await self._drain()
            if fault is not None:
                self._finish(abandon=True)
                return fault
        fault = await self._drain()
        self._finish(abandon=fault is not None)
        if fault is None:
            await self._store.close()
        return fault

    async def _drain(self) -> Exception | None:
        self.journal.hurry()
        give_up_at = self._clock.elapsed() + STOP_PATIENCE_SECONDS
        while self.journal.busy:
            if (left := give_up_at - self._clock.elapsed()) <= 0:
                return self.journal.fault or TimeoutError("the store did not answer")
            self.journal.drained.clear()
            await self._clock.sleep_until(self._clock.now() + int(left * MICROSECONDS), self.journal.drained)
        return None

    def _finish(self, *, abandon: bool) -> None:
        self._writer.cancel()
        self._pool.close(wait=not abandon)
        if abandon:
            self._store.abandon()

    def abandon(self) -> list["asyncio.Task[None]"]:
        """The event loop, or the process, is going away: record nothing more, release everything.

        Returns what has been told to end and may take another round of the event loop to do so.
        """
        self._closing = True
        tasks = [self._writer]
        for run in self._runs.values():
            run.ended = True
            if run.work is not None:
                tasks.append(run.work)
        if self._main is not None:
            tasks.append(self._main)
        self._finish(abandon=True)
        for task in tasks:
            task.cancel()
        return tasks

    async def _live(self) -> None:
        try:
            while not self._closing:
                try:
                    await self._look()
                except Exception as fault:
                    # Nothing is lost: what is owed follows from durable state. Look again soon.
                    self._sink.unexpected(fault)
                    self.wake.clear()
                    await self._clock.sleep_until(self._clock.now() + MICROSECONDS, self.wake)
        except asyncio.CancelledError:
            if not self._closing:
                self.abandon()
                self._torn_down()
            raise

    # --- looking -----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        await self._watch_clock()
        now = self._clock.now()
        begun = self._clock.elapsed()
        if bool(self.agenda.size) != self._polling:
            self._polling = bool(self.agenda.size)
            self._sink.emit(PollingStarted() if self._polling else PollingStopped())
        if self._polling and not self._stopping():
            self._store.touch()
            tell = self._sink.wants(PollStarted)
            if tell:
                self._sink.emit(PollStarted(as_datetime(now, self.agenda.zone), self.agenda.size))
            evaluated, executed = await self._start_owed()
            if tell:
                milliseconds = (self._clock.elapsed() - begun) * 1000
                self._sink.emit(PollCompleted(as_datetime(now, self.agenda.zone), evaluated, executed, milliseconds))
        self._enforce_timeouts()
        if self._closing:
            return
        self.parked = True
        try:
            await self._clock.sleep_until(self._next_look(), self.wake)
        finally:
            self.parked = False
        self.wake.clear()

    def _next_look(self) -> Instant:
        now = Instant(self._clock.now())
        looks = [Instant(begin(minute_of(now, self.agenda.zone)) + 60 * MICROSECONDS)]
        if not self._stopping() and (timer := self.agenda.next_timer()) is not None:
            looks.append(timer)
        while self._deadlines and self._deadlines[0][1].ended:
            self._deadlines.popleft()
        if self._deadlines:
            left = self._deadlines[0][0] - self._clock.elapsed()
            looks.append(Instant(now + int(left * MICROSECONDS) + 1))
        return max(now, min(looks))

    async def _watch_clock(self) -> None:
        """Notice steps of the wall clock; set right what a step back left too far ahead (SPEC 2.5)."""
        now, elapsed = self._clock.now(), self._clock.elapsed()
        before, passed = self._seen_now, int((elapsed - self._seen_elapsed) * MICROSECONDS)
        self._seen_now, self._seen_elapsed = now, elapsed
        jump = now - before - passed
        if abs(jump) >= STEP_MICROSECONDS and self._sink.wants(ClockJumped):
            self._sink.emit(
                ClockJumped(
                    as_datetime(before + passed, self.agenda.zone), as_datetime(now, self.agenda.zone), jump // 1000
                )
            )
        if now < before:
            async with self.lock:
                await self._correct(Instant(now))
                await in_slices(self._clock, self.agenda.rebuild(Instant(now)))

    async def _correct(self, now: Instant) -> None:
        minute = minute_of(now, self.agenda.zone)
        too_far = any(corrected(task.state, now, minute, task.delay) is not task.state for task in self.agenda.tasks())
        if too_far:
            await self.journal.commit([Correction(now, minute)])
            self.agenda.correct(now)

    def _may_start(self) -> bool:
        return not self._stopping() and not self._closing

    def _slots(self) -> Slots:
        total = None if self._max_concurrency is None else self._max_concurrency - len(self._runs)
        return Slots(total, self._pool.size - self._threads_used)

    async def _start_owed(self) -> tuple[int, int]:
        """Start all that is owed and has a slot, chunk by chunk: one is launched while the next is being committed."""
        evaluated = executed = 0
        launching: list[Run] = []
        try:
            while self._may_start():
                async with self.lock:
                    now = Instant(self._clock.now())
                    if now < self._seen_now:
                        break  # the clock went back; that comes first
                    self._seen_now, self._seen_elapsed = now, self._clock.elapsed()
                    self.agenda.notice(now)
                    if not self.agenda.waiting:
                        break
                    decision = decide(self.agenda, now, self._slots(), limit=CHUNK_STARTS_MAX, first_run=self._next_run)
                    if not decision.evaluated:
                        break
                    self._next_run += len(decision.starts)
                    commit = self.journal.submit(decision.starts) if decision.starts else None
                    await self._launch(launching)
                    launching = []
                    granted = await commit if commit is not None else []
                    if granted is None:
                        break
                    self.agenda.apply(decision, granted)
                    launching = self._admit(granted)
                evaluated += decision.evaluated
                executed += len(granted)
                self._reports.starts(decision, granted, self._runs, self.agenda, self.active_since)
        finally:
            # Durable starts are called whatever happens here, unless the event loop itself is going away.
            if not self.tearing_down:
                await self._launch(launching)
        return evaluated, executed

    # --- running -----------------------------------------------------------------------------------------------------

    def _admit(self, granted: Sequence[Start]) -> list[Run]:
        elapsed = self._clock.elapsed()
        runs = []
        for start in granted:
            run = Run(start.task, start.run, start.grounds, self._owner, elapsed)
            start.task.written_by = self._key
            self._runs[start.task] = run
            if run.kind is Kind.THREAD:
                self._threads_used += 1
            runs.append(run)
        if runs:
            self._all_ended.clear()
        return runs

    async def _launch(self, runs: Sequence[Run]) -> None:
        event_loop = asyncio.get_running_loop()
        begun = self._clock.elapsed()
        for index, run in enumerate(runs):
            if self._timeout is not None:
                run.begun = self._clock.elapsed()
                self._deadlines.append((run.begun + self._timeout, run))
            work = self._run_blocking(run) if run.kind is Kind.THREAD else self._run_on_loop(run)
            if self._host.eager:
                run.work = asyncio.Task(work, loop=event_loop, eager_start=True)  # type: ignore[call-arg]
            else:
                run.work = event_loop.create_task(work)
            if index % 32 == 31 and self._clock.elapsed() - begun > SLICE_SECONDS:
                await breathe()
                begun = self._clock.elapsed()

    async def _run_on_loop(self, run: Run) -> None:
        run.outer = inside.get()
        inside.set(run)
        run.cancellable = True
        error: BaseException | None = None
        try:
            await run.task.callback()
        except GeneratorExit:
            raise  # the event loop is gone
        except BaseException as raised:
            error = raised
        await self._conclude(run, error)

    async def _run_blocking(self, run: Run) -> None:
        run.outer = inside.get()
        inside.set(run)
        error: BaseException | None = None
        try:
            outcome = await self._pool.run(run.task.callback)
            if inspect.isawaitable(outcome):
                run.cancellable = True
                if run.timed_out:
                    raise TimeoutError("run_timeout passed")
                await outcome
        except GeneratorExit:
            raise
        except BaseException as raised:
            error = raised
        await self._conclude(run, error)

    async def _conclude(self, run: Run, error: BaseException | None) -> None:
        """The callback is over: have its end recorded, unless the event loop is going away (SPEC 3.11)."""
        if run.ended or (isinstance(error, asyncio.CancelledError) and self.tearing_down):
            return
        run.ended = True
        run.duration_ms = (self._clock.elapsed() - run.begun) * 1000
        if run.timed_out:
            limit = timedelta(seconds=self._timeout or 0)
            late = TimeoutError(f"run_timeout of {limit} passed")
            late.__cause__ = error if not isinstance(error, asyncio.CancelledError) else None
            error = late
        self._record_end(run, error)
        if isinstance(error, KeyboardInterrupt):
            # Recorded first, then out of the loop, as the person at the keyboard asked.
            self.journal.drained.clear()
            await self._clock.sleep_until(self._clock.now() + MICROSECONDS, self.journal.drained)
            raise error

    def _record_end(self, run: Run, error: BaseException | None) -> None:
        at = Instant(self._clock.now())
        task, state = run.task, run.task.state
        if error is None:
            self.journal.record(End(task, run.number, run.grounds, at))
            return
        run.error = error
        retry_at, failures = None, 0
        if isinstance(state, Running):
            after = fail(state, at, task.delay)
            retry_at, failures = after.pending_retry_until, after.failures
        self.journal.record(End(task, run.number, run.grounds, at, error_text(error), retry_at, failures))

    def _enforce_timeouts(self) -> None:
        elapsed = self._clock.elapsed()
        while self._deadlines and self._deadlines[0][0] <= elapsed:
            _, run = self._deadlines.popleft()
            if not run.ended:
                run.timed_out = True
                if run.cancellable and run.work is not None:
                    run.work.cancel()

    # --- settling ----------------------------------------------------------------------------------------------------

    def _settle(self, ends: Sequence[End]) -> None:
        """Ends are durable: their tasks may start again."""
        now = Instant(self._clock.now())
        owes = False
        for end in ends:
            task = end.task
            run = self._runs.pop(task)
            if run.kind is Kind.THREAD:
                self._threads_used -= 1
            state = task.state
            if isinstance(state, Running):
                task.state = succeed(state, end.at) if end.error is None else fail(state, end.at, task.delay)
                owes |= self.agenda.review(task, now) or isinstance(task.state, AwaitingRetry)
            elif self._strays.get(task.name) is run:
                del self._strays[task.name]
                if run.successor is not None:
                    run.successor.predecessor_runs = False
                    owes |= self.agenda.review(run.successor, now)
            self._reports.end(run, end, self.agenda.zone)
        if owes or self.agenda.waiting:
            self.wake.set()
        if not self._runs:
            self._all_ended.set()

    # --- re-initialisation -------------------------------------------------------------------------------------------

    def withdraw(self, tasks: Sequence[Task]) -> None:
        """Declarations are gone: their runs go on, and whoever takes the name waits for them (SPEC 5.3)."""
        for task in tasks:
            run = self._runs.get(task)
            if run is not None:
                self._strays[task.name] = run
            elif task.predecessor_runs:
                self._strays[task.name].successor = None

    def adopt(self, tasks: Sequence[Task]) -> None:
        """New declarations wait for a run of an earlier one of the same name."""
        if self._strays:
            for task in tasks:
                run = self._strays.get(task.name)
                if run is not None:
                    run.successor = task
                    task.predecessor_runs = True
