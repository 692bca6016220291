"""Wait, decide, commit, launch; and settle what the callbacks came to.

The one order that survives a crash: a start is durable before its callback begins, an end is durable before the task
may start again, and the agenda changes only after the commit.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final

from duly.clock import Clock, in_slices
from duly.core.agenda import Agenda, Slots, decide
from duly.core.moments import MICROSECONDS, Instant, Minute, as_datetime
from duly.core.task import Correction, End, Running, Task, TaskState, Withdrawn, corrected, fail, succeed
from duly.events import ClockJumped, PollCompleted, PollingStarted, PollingStopped, PollStarted
from duly.execution import Execution
from duly.host import Host
from duly.journal import Journal
from duly.observing import Calls, Observer
from duly.reports import Reports, error_text
from duly.runs import Run
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
        observer: Observer | None = None,
        traced: bool = False,
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
        self._max_concurrency = max_concurrency
        self._stopping = stopping
        self._torn_down = torn_down
        self.journal = Journal(
            store,
            self._clock,
            sink,
            first_number=first_number,
            starts_allowed=self._may_start,
            ended=self._settle,
            observer=observer,
            traced=traced,
        )
        self.observer = observer
        self.calls = Calls(self._clock, self.journal.note)
        self.wake = asyncio.Event()
        self.parked = False
        """Asleep until the next look: nothing is ready, and nothing is being decided."""
        self.execution = Execution(
            host,
            pool_size=pool_size,
            run_timeout=run_timeout,
            owner=owner,
            scheduler_key=scheduler_key,
            record=self._record_end,
            recorded=self._recorded,
            tearing_down=lambda: self.tearing_down,
        )
        self._strays: dict[str, Run] = {}
        """Runs whose declaration has been withdrawn, by name: whoever takes the name waits for them."""
        self._owes = False
        self._closing = False
        self._abandoned = False
        self._stepped_back = False
        """The clock went back between an end and the moment it was durable: what it armed may lie too far ahead."""
        self._looked_for_overdue: Minute | None = None
        self.polling = False
        """There are tasks to watch, and it was told."""
        self._seen_now = self._clock.now()
        self._seen_elapsed = self._clock.elapsed()
        self.active_since = Instant(self._seen_now)
        self._main: asyncio.Task[None] | None = None
        event_loop = asyncio.get_running_loop()
        self._helpers = [event_loop.create_task(self.journal.run(), name="duly-journal")]
        if run_timeout is not None:
            self._helpers.append(event_loop.create_task(self.execution.keep_time(), name="duly-deadlines"))

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

    async def shutdown(self) -> Exception | None:
        """End the loop: running callbacks end, their ends are recorded. Returns the fault that kept any from it."""
        self._closing = True
        self.wake.set()
        try:
            while not self._is_at_rest():
                # The loop looks on meanwhile: time limits hold to the end.
                await self.execution.all_returned.wait()
                if (fault := await self._drain()) is not None:
                    await asyncio.wait(self.abandon())
                    return fault
                if self._main is not None:
                    await self._main
            if self.observer is not None:
                self.calls.close()
                if (fault := await self._drain()) is not None:
                    await asyncio.wait(self.abandon())
                    return fault
            self._finish(abandon=False)
            await self._store.close()
        except asyncio.CancelledError:
            self._tear_down()
            raise
        return None

    def _is_at_rest(self) -> bool:
        """Nothing looks, runs or is being written. A start whose commit came late may have begun once more."""
        looking = self._main is not None and not self._main.done()
        return not looking and self.execution.all_returned.is_set() and not self.journal.busy

    async def _drain(self) -> Exception | None:
        """Wait until everything is durable, for at most 30 s after the last callback returned (SPEC 4.3)."""
        self.journal.hurry()
        give_up_at = self._clock.elapsed() + STOP_PATIENCE_SECONDS
        while self.journal.busy and self.execution.all_returned.is_set():
            if (left := give_up_at - self._clock.elapsed()) <= 0:
                return self.journal.fault or TimeoutError("the store did not answer")
            self.journal.drained.clear()
            await self._clock.sleep_until(self._clock.now() + int(left * MICROSECONDS), self.journal.drained)
        return None

    def _finish(self, *, abandon: bool) -> None:
        for helper in self._helpers:
            helper.cancel()
        if abandon:
            self.release()
        else:
            self.execution.close(wait=True)

    def release(self) -> None:
        """Let go of threads, file and lock, whatever state they are in."""
        self.execution.close(wait=False)
        self._store.abandon()

    def abandon(self) -> list["asyncio.Task[None]"]:
        """The event loop, or the process, is going away: record nothing more, release everything.

        Returns what has been told to end and may take another round of the event loop to do so.
        """
        self._closing = self._abandoned = True
        tasks = [*self._helpers, *self.execution.drop()]
        if self._main is not None:
            tasks.append(self._main)
        self._finish(abandon=True)
        for task in tasks:
            task.cancel()
        return tasks

    def _tear_down(self) -> None:
        """The event loop is going away without a stop(), or under one that still waits (SPEC 3.11)."""
        if not self._abandoned:
            self.abandon()
            self._torn_down()

    def _is_over(self) -> bool:
        return self._closing and self.execution.all_returned.is_set()

    async def _live(self) -> None:
        try:
            while not self._is_over():
                try:
                    await self._look()
                except Exception as fault:
                    # Nothing is lost: what is owed follows from durable state. Look again soon.
                    self._sink.unexpected(fault)
                    self.wake.clear()
                    await self._clock.sleep_until(self._clock.now() + MICROSECONDS, self.wake)
        except asyncio.CancelledError:
            self._tear_down()
            raise

    # --- looking -----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        await self._watch_clock()
        now = self._clock.now()
        begun = self._clock.elapsed()
        if bool(self.agenda.size) != self.polling:
            self.polling = bool(self.agenda.size)
            self._sink.emit(PollingStarted() if self.polling else PollingStopped())
        await in_slices(self._clock, self._overdue_runs(Instant(now)))
        if self.polling and not self._stopping():
            self._store.touch()
            tell = self._sink.wants(PollStarted)
            if tell:
                self._sink.emit(PollStarted(as_datetime(now, self.agenda.zone), self.agenda.size))
            evaluated, executed = await self._start_owed()
            if tell:
                milliseconds = (self._clock.elapsed() - begun) * 1000
                self._sink.emit(PollCompleted(as_datetime(now, self.agenda.zone), evaluated, executed, milliseconds))
        if self._is_over():
            return
        self.parked = True
        try:
            await self._clock.sleep_until(self._next_look(), self.wake)
        finally:
            self.parked = False
        self.wake.clear()

    def _overdue_runs(self, now: Instant) -> Iterator[None]:
        """Tell, once for each run, that it outlives its task's next due minute; looked for once a minute."""
        minute = self.agenda.minute(now)
        if minute == self._looked_for_overdue:
            return
        self._looked_for_overdue = minute
        self.journal.note("WK", now, int(self._clock.elapsed() * MICROSECONDS))
        for run in list(self.execution.runs.values()):
            if not run.overdue and (due := self.agenda.due_since(run.task, now)) is not None:
                run.overdue = True
                self._reports.overdue(run, due, self.agenda.zone)
            yield

    def _next_look(self) -> Instant:
        now = Instant(self._clock.now())
        looks = [self.agenda.minute_ends(now)]
        if not self._stopping() and (timer := self.agenda.next_timer()) is not None:
            looks.append(timer)
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
        back = now < before or self._stepped_back
        if back or abs(jump) >= STEP_MICROSECONDS:
            self.journal.note("CK", now, before + passed)
        if back:
            self._stepped_back = False
            async with self.lock:
                await self._correct(Instant(now))
                await in_slices(self._clock, self.agenda.rebuild(Instant(now)))

    async def _correct(self, now: Instant) -> None:
        minute = self.agenda.minute(now)
        too_far = any(corrected(task.state, now, minute, task.delay) is not task.state for task in self.agenda.tasks())
        if too_far:
            await self.journal.commit([Correction(now, minute)])
            self.agenda.correct(now)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Nothing is decided meanwhile. Raises the store's fault instead of waiting for its end."""
        await self.journal.acquire(self.lock)
        try:
            yield
        finally:
            self.lock.release()

    def _may_start(self) -> bool:
        return not self._stopping() and not self._closing

    def free_slots(self) -> Slots:
        """How many callbacks may begin now."""
        total = None if self._max_concurrency is None else self._max_concurrency - len(self.execution.runs)
        return Slots(total, self.execution.free_threads)

    async def _start_owed(self) -> tuple[int, int]:
        """Start all that is owed and has a slot, chunk by chunk: one is launched while the next is being committed."""
        evaluated = executed = 0
        launching: list[Run] = []
        try:
            while self._may_start():
                async with self.lock:
                    now = Instant(self._clock.now())
                    if not self._may_start():
                        break  # a stop was called while the lock was somebody else's
                    if now < self._seen_now:
                        self.wake.set()  # the clock went back; that comes first, and at once
                        break
                    self._seen_now, self._seen_elapsed = now, self._clock.elapsed()
                    self.agenda.notice(now)
                    if not self.agenda.waiting:
                        break
                    decision = decide(
                        self.agenda, now, self.free_slots(), limit=CHUNK_STARTS_MAX, first_run=self._next_run
                    )
                    if self._host.audit is not None:
                        self._host.audit(self, decision)
                    if not decision.evaluated:
                        break
                    self._next_run += len(decision.starts)
                    commit = self.journal.submit(decision.starts) if decision.starts else None
                    await self.execution.launch(launching)
                    launching = []
                    granted = await commit if commit is not None else []
                    if granted is None:
                        break
                    self.agenda.apply(decision, granted)
                    launching = self.execution.admit(granted)
                evaluated += decision.evaluated
                executed += len(granted)
                self._reports.starts(granted, self.agenda, self.active_since)
        finally:
            # Durable starts are called whatever happens here, unless the event loop itself is going away.
            if not self.tearing_down:
                await self.execution.launch(launching)
        return evaluated, executed

    # --- settling ----------------------------------------------------------------------------------------------------

    def _record_end(self, run: Run, error: BaseException | None) -> None:
        """A callback is over: its end goes to the journal."""
        now, started_at = self._clock.now(), run.grounds.at
        # In whole milliseconds, but never before its start: runs that end together share one state, and one statement.
        at = Instant(max(now - now % 1000, started_at) if now >= started_at else now)
        task, state = run.task, run.task.state
        if self._closing:
            self.wake.set()  # it may have been the last one
        if error is None:
            self.journal.record(End(task, run.number, run.grounds, at))
            return
        retry_at, failures = None, 0
        if isinstance(state, Running):
            after = fail(state, at, task.delay)
            retry_at, failures = after.pending_retry_until, after.failures
        self.journal.record(End(task, run.number, run.grounds, at, error_text(error), retry_at, failures))

    async def _recorded(self) -> None:
        """Wait, not for long, until what was recorded is durable."""
        self.journal.drained.clear()
        await self._clock.sleep_until(self._clock.now() + MICROSECONDS, self.journal.drained)

    async def _settle(self, ends: Sequence[End]) -> None:
        """Ends are durable: their tasks may start again."""
        await in_slices(self._clock, self._settling(ends))
        if self._owes or self.agenda.waiting:
            self._owes = False
            self.wake.set()

    def _settling(self, ends: Sequence[End]) -> Iterator[None]:
        agenda, release, now_ = self.agenda, self.execution.release, self._clock.now
        tell = self._reports.ends_are_heard()
        before: TaskState | None = None
        after: TaskState | None = None
        at: Instant | None = None
        expression, until = "", Instant(0)
        for end in ends:
            task, state, now = end.task, end.task.state, now_()
            run = release(task)
            alike = state is before and end.at == at and end.error is None
            if alike and task.expression.text == expression and now < until:
                # States are values: who started and ended together, and owes nothing together, shares one.
                assert after is not None
                task.state = after
            elif isinstance(state, Running):
                task.state = succeed(state, end.at) if end.error is None else fail(state, end.at, task.delay)
                owes = agenda.review(task, Instant(now))
                self._owes |= owes or end.error is not None
                self._stepped_back |= end.at > now
                if end.error is None and not owes:
                    before, after, at, expression = state, task.state, end.at, task.expression.text
                    until = agenda.minute_ends(Instant(now))
            elif self._strays.get(task.name) is run:
                del self._strays[task.name]
                if run.successor is not None:
                    run.successor.predecessor_runs = False
                    self._owes |= agenda.review(run.successor, Instant(now))
            if tell or end.error is not None:
                self._reports.end(run, end, agenda.zone)
            yield

    # --- re-initialisation -------------------------------------------------------------------------------------------

    def withdraw(self, tasks: Sequence[Task]) -> None:
        """Declarations are gone: their runs go on, and whoever takes the name waits for them (SPEC 5.3)."""
        for task in tasks:
            run = self.execution.runs.get(task)
            if run is not None:
                # Here, and not when the agenda comes to it: a run may end while the agenda pauses.
                task.state = Withdrawn(task.state.served_through)
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
