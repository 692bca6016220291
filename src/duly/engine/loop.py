"""Wait, decide, commit, launch; and settle what the callbacks came to.

The one order that survives a crash: a start is durable before its callback begins, an end is durable before the task
may start again, and the agenda changes only after the commit.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from duly.clock import Clock, breathe, in_slices
from duly.core.agenda import Agenda, Slots, decide
from duly.core.changes import Ends, Starts, SuccessBlock
from duly.core.cron import CronExpression
from duly.core.moments import MICROSECONDS, Instant, Minute, as_datetime
from duly.core.steps import STEP_TASKS, Steps
from duly.core.task import Correction, End, Grounds, Running, Task, TaskState, Withdrawn, fail, succeed
from duly.engine.announce import Reports, error_text
from duly.engine.host import Host
from duly.engine.journal import Journal
from duly.engine.runner import Execution
from duly.engine.runs import Run
from duly.engine.shutdown import Life
from duly.engine.sink import Sink
from duly.engine.trace import Calls, Observer
from duly.events import ClockJumped, PollCompleted, PollingStarted, PollingStopped, PollStarted
from duly.stores.port import Store

CHUNK_STARTS_MAX: Final = 5_000
"""Starts of one commit. It bounds how many are durable but not yet called when the process dies."""

FIRST_CHUNK_STARTS: Final = 625
"""Starts of the first commit of a look; each may have twice as many as the one before it. Nothing is called before the
first is durable, so it is small; while its starts are called, the next is written."""

LARGE_CHUNK: Final = 500
"""So many tasks asked at once, and others have their turn before the next ones are."""

STEP_MICROSECONDS: Final = 1 * MICROSECONDS
"""A wall clock that moved this much more, or less, than time passed has been stepped."""

SETTLED_TOGETHER: Final = 64
"""Durable ends that are settled without a pause, as of one and the same moment."""


@dataclass(slots=True)
class Stray:
    """A withdrawn declaration that still runs, and the one that waits for its end."""

    task: Task
    successor: Task | None = None


class Loop(Life):
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
            more_ends=lambda: not self.execution.all_returned.is_set(),
            starts_follow=lambda: self._bursting,
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
            succeeded=self._record_success,
            failed=self._record_failure,
            recorded=self._recorded,
            tearing_down=lambda: self.tearing_down,
            is_writing=lambda: self.journal.at_the_store,
            ends_are_heard=self._reports.ends_are_heard,
        )
        self._strays: dict[str, Stray] = {}
        """Declarations that were withdrawn while they ran, by name: whoever takes the name waits for their ends."""
        self._owes = False
        self._bursting = False
        """A full chunk of starts is on its way to the disk: when it is there, the next one follows at once."""
        self._closing = False
        self._abandoned = False
        self._stepped_back = False
        """The clock went back between an end and the moment it was durable: what it armed may lie too far ahead."""
        self._looked_for_overdue: Minute | None = None
        self.polling = False
        """There are tasks to watch, and it was told."""
        self._seen_now = self._clock.now()
        self._seen_elapsed = self._clock.elapsed()
        self._noticed = Instant(self._seen_now)
        """As of when the agenda knows what is due."""
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
        await in_slices(self._clock, self._overdue_runs(Instant(now)), steps_between_clock_reads=STEP_TASKS)
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

    def _overdue_runs(self, now: Instant) -> Steps[None]:
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
        # Calling what was started takes time: a minute that ended meanwhile is looked at now, and not a minute later.
        looked = min(now, self._noticed) if self.polling and self._may_start() else now
        looks = [self.agenda.minute_ends(looked)]
        if not self._stopping() and (timer := self.agenda.next_timer()) is not None:
            looks.append(timer)
        return max(now, min(looks))

    async def _watch_clock(self) -> None:
        """Notice steps of the wall clock; set right what a step back left too far ahead (SPEC 2.5)."""
        now = self._clock.now()
        back = now < self._seen_now or self._stepped_back
        self._see(now, back=back)
        if back:
            self._stepped_back = False
            async with self.lock:
                await self._correct(Instant(now))
                await in_slices(self._clock, self.agenda.rebuild(Instant(now)))

    def _see(self, now: int, *, back: bool = False) -> None:
        """Remember what the wall clock shows, and tell if it has been stepped since the last time."""
        before, elapsed = self._seen_now, self._clock.elapsed()
        passed = int((elapsed - self._seen_elapsed) * MICROSECONDS)
        self._seen_now, self._seen_elapsed = now, elapsed
        jump = now - before - passed
        stepped = abs(jump) >= STEP_MICROSECONDS
        if stepped and self._sink.wants(ClockJumped):
            old, new = as_datetime(before + passed, self.agenda.zone), as_datetime(now, self.agenda.zone)
            self._sink.emit(ClockJumped(old, new, jump // 1000))
        if stepped or back:
            self.journal.note("CK", now, before + passed)

    def entering(self, now: Instant) -> None:
        """Tasks enter the agenda by this clock sample: a clock that shows less at the next look has gone back."""
        if self._main is None:
            self._seen_now = max(self._seen_now, now)  # nothing has been looked at before
        elif now >= self._seen_now:
            self._see(now)

    async def _correct(self, now: Instant) -> None:
        if await in_slices(self._clock, self.agenda.too_far_ahead(now)):
            await self.journal.commit(Correction(now, self.agenda.minute(now)))
            # The same to whatever ends meanwhile, before or after: it is already so in the store.
            await in_slices(self._clock, self.agenda.correct(now))

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
        total = None if self._max_concurrency is None else self._max_concurrency - self.execution.open
        return Slots(total, self.execution.free_threads)

    async def _start_owed(self) -> tuple[int, int]:
        """Start all that is owed and has a slot, chunk by chunk: one is launched while the next is being committed."""
        evaluated = executed = 0
        limit = FIRST_CHUNK_STARTS
        launching = Starts()
        try:
            while self._may_start():
                async with self.lock:
                    now = Instant(self._clock.now())
                    if not self._may_start():
                        break  # a stop was called while the lock was somebody else's
                    if now < self._seen_now:
                        self.wake.set()  # the clock went back; that comes first, and at once
                        break
                    self._see(now)
                    await in_slices(self._clock, self.agenda.queue_due(now), steps_between_clock_reads=8)
                    self._noticed = now
                    if not self.agenda.waiting or not self._may_start():
                        break
                    # Ends may have settled meanwhile: what they set free starts after them.
                    noticed, now = now, Instant(self._clock.now())
                    if now < noticed or self.agenda.minute(now) != self.agenda.minute(noticed):
                        continue
                    self._see(now)
                    decision = decide(self.agenda, now, self.free_slots(), limit=limit, first_run=self._next_run)
                    if self._host.audit is not None:
                        self._host.audit(self, decision)
                    if not decision.evaluated:
                        break
                    self._next_run += decision.starts.count
                    commit = self.journal.submit(decision.starts) if decision.starts.count else None
                    self._bursting = decision.starts.count >= limit
                    limit = min(2 * limit, CHUNK_STARTS_MAX)
                    await self.execution.launch(launching)
                    launching = Starts()
                    granted = await commit if commit is not None else Starts()
                    if granted is None:
                        break
                    self.agenda.apply(decision, granted)
                    self.execution.admit(granted)
                    launching = granted
                evaluated += decision.evaluated
                executed += granted.count
                self._reports.starts(granted, self.agenda, self.active_since)
                if decision.evaluated >= LARGE_CHUNK:
                    await breathe()  # between what so many cost, started or not, and asking as many again
        finally:
            self._bursting = False
            # Durable starts are called whatever happens here, unless the event loop itself is going away.
            if not self.tearing_down:
                await self.execution.launch(launching)
        return evaluated, executed

    # --- settling ----------------------------------------------------------------------------------------------------

    def _record_success(self, run: Run) -> None:
        """A callback returned: its end goes to the journal."""
        grounds = run.grounds
        self.journal.succeeded(run.task, run.number, grounds, self._end_of(grounds))

    def _record_failure(self, run: Run, error: BaseException) -> None:
        """A callback failed: the same, with what it raised and when it is tried again."""
        at, task, state = self._end_of(run.grounds), run.task, run.task.state
        retry_at, failures = None, 0
        if isinstance(state, Running):
            after = fail(state, at, task.delay)
            retry_at, failures = after.pending_retry_until, after.failures
        self.journal.record(End(task, run.number, run.grounds, at, error_text(error), retry_at, failures))

    def _end_of(self, grounds: Grounds) -> Instant:
        """When it is over: in whole milliseconds, so that runs share an end, a state and a statement."""
        if self._closing:
            self.wake.set()  # it may have been the last one
        now = self._clock.now()
        at = now - now % 1000  # but never before its start
        return Instant(at if at >= grounds.at else min(now, grounds.at))

    async def _recorded(self) -> None:
        """Wait, not for long, until what was recorded is durable."""
        self.journal.drained.clear()
        await self._clock.sleep_until(self._clock.now() + MICROSECONDS, self.journal.drained)

    async def _settle(self, ends: Ends) -> None:
        """Ends are durable: their tasks may start again."""
        await in_slices(self._clock, self._settling(ends))
        if self._owes or self.agenda.waiting:
            self._owes = False
            self.wake.set()

    def _settling(self, ends: Ends) -> Steps[None]:
        for block in ends.blocks:
            if isinstance(block, SuccessBlock):
                yield from self._settling_successes(block)
            else:
                (run,) = self.execution.release((block.task,))
                self._settle_failure(run, block, Instant(self._clock.now()))
                yield

    def _settling_successes(self, block: SuccessBlock) -> Steps[None]:
        agenda, at, tell = self.agenda, block.at, self._reports.ends_are_heard()
        before: TaskState | None = None
        after: TaskState | None = None
        for first in range(0, len(block.tasks), SETTLED_TOGETHER):
            tasks = block.tasks[first : first + SETTLED_TOGETHER]
            released = self.execution.release(tasks)
            now = Instant(self._clock.now())
            self._stepped_back |= at > now
            expression: CronExpression | None = None
            for task in tasks:
                state = task.state
                if state is before and task.expression is expression:
                    # States are values: who started and ended together, and owes nothing together, shares one.
                    assert after is not None
                    task.state = after
                elif isinstance(state, Running):
                    if state is not before or after is None:
                        before, after = state, succeed(state, at)
                    task.state = after
                    owes = agenda.review(task, now)
                    self._owes |= owes
                    expression = None if owes else task.expression
                else:
                    self._settle_stray(task, now)
            if tell:
                numbers = block.runs[first : first + SETTLED_TOGETHER]
                for task, number, run in zip(tasks, numbers, released, strict=True):
                    self._reports.end(End(task, number, block.grounds, at), run, agenda.zone)
            yield

    def _settle_failure(self, run: Run | None, end: End, now: Instant) -> None:
        task, state = end.task, end.task.state
        if isinstance(state, Running):
            task.state = fail(state, end.at, task.delay)
            self.agenda.review(task, now)
            self._owes = True
            self._stepped_back |= end.at > now
        else:
            self._settle_stray(task, now)
        self._reports.end(end, run, self.agenda.zone)

    def _settle_stray(self, task: Task, now: Instant) -> None:
        """The run of a withdrawn declaration is over: whoever has its name need not wait any more."""
        stray = self._strays.get(task.name)
        if stray is not None and stray.task is task:
            del self._strays[task.name]
            if stray.successor is not None:
                stray.successor.predecessor_runs = False
                self._owes |= self.agenda.review(stray.successor, now)

    # --- re-initialisation -------------------------------------------------------------------------------------------

    def withdraw(self, tasks: Sequence[Task]) -> None:
        """Declarations are gone: their runs go on, and whoever takes the name waits for them (SPEC 5.3)."""
        for task in tasks:
            if isinstance(task.state, Running):
                # Here, and not when the agenda comes to it: a run may end while the agenda pauses.
                task.state = Withdrawn(task.state.served_through)
                self._strays[task.name] = Stray(task)
            elif task.predecessor_runs:
                self._strays[task.name].successor = None

    def adopt(self, tasks: Sequence[Task]) -> None:
        """New declarations wait for a run of an earlier one of the same name."""
        if self._strays:
            for task in tasks:
                stray = self._strays.get(task.name)
                if stray is not None:
                    stray.successor = task
                    task.predecessor_runs = True
