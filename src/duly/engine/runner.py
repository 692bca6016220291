"""Runs callbacks on the event loop or in threads, and stamps and records how each one ended."""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from types import FrameType
from typing import TYPE_CHECKING, Final

from duly.core.agenda import Slots
from duly.core.changes import StartBlock, Starts, SuccessBlock
from duly.core.moments import MICROSECONDS, Instant, as_datetime
from duly.core.registration import Callback, RunsOn
from duly.core.task import End, Grounds, Running, Task, fail, idempotency_key
from duly.engine.failure import error_text, traceback_text
from duly.engine.first_step import FirstSteps, first_steps
from duly.engine.gate import Gate
from duly.engine.journal import Journal
from duly.engine.lease import ALWAYS, Lease, stepping
from duly.engine.pacing import SLICE_SECONDS, breathe, give_way
from duly.engine.setup import Setup
from duly.engine.traffic import Traffic
from duly.events import TaskRunCompleted
from duly.run_context import CurrentRun, RunInContext, inside

if TYPE_CHECKING:
    from duly.engine.watchdog import LoopWatchdog

STRIDE_CALLS_MAX: Final = 64
"""Callbacks of one stride. Those that return in it leave nothing behind for the garbage collector to visit.

A stride has costs of its own: with 16, the event loop's thread took 6 % more processor time for 100,000 due tasks, and
256 took as much as 64. A whole chunk took 6 % more as well: what is left of its block is copied for each slice.
"""

CALLS_BETWEEN_CLOCK_READS: Final = 8
"""How often a stride looks how much time has passed, while its callbacks return in one and the same millisecond."""

CALLED_TOGETHER_SECONDS: Final = 0.001
"""Callbacks of a stride that are called within this time count from the first of these calls.

It is the millisecond to which ends are stamped. A stride of callbacks that return at once takes less: by their ends
they took no time, so that these do not differ in it, and are written together.
"""

INTERRUPT_PATIENCE_SECONDS: Final = 1.0
"""How long a KeyboardInterrupt waits for its run's end to become durable."""


# --- a run -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """The facts that runs share whose starts became durable together, and that are called in the same instant."""

    owner: object
    """The scheduler."""

    elapsed: float
    """When they are called, in elapsed seconds, to within `CALLED_TOGETHER_SECONDS`: durations count from here."""

    at: Instant | None
    """That moment by the wall clock."""

    zone: tzinfo
    """The host's."""

    outer: RunInContext | None = None
    """The run, of another scheduler, inside which this scheduler was started."""

    fence: int | None = None
    """The fence of their starts in a shared store."""

    lease: Lease = ALWAYS
    """The right of their host to act."""

    def again(self, elapsed: float, at: Instant) -> "Call":
        """The call, at a later moment, of starts that became durable together with these."""
        return Call(self.owner, elapsed, at, self.zone, self.outer, self.fence, self.lease)

    def called_at(self, ended: Instant) -> Instant | None:
        """When a run was called that ended at this instant.

        Ends are in whole milliseconds: a run that took less than one was called when it ended.
        """
        return ended if self.at is not None and ended - self.at < 1000 else self.at


class Run:
    """One run, from the call of its callback to the end of it."""

    __slots__ = ("__dict__", "call", "ended", "grounds", "number", "task", "work")

    # Few runs have these: the default is a class attribute, and a value of its own goes into the run's dictionary.
    runs_on = RunsOn.LOOP
    cancellable = True  # a thread is not; an awaitable that it returned is
    begun: float | None = None  # elapsed seconds, if it has a time limit: from its own call
    timed_out = False
    told = False  # that the lease of its host is lost
    overdue = False  # announced once
    duration_ms: float | None = None  # None: nothing listened when it ended
    error: BaseException | None = None
    _description: CurrentRun | None = None  # None: it has not been asked for

    def __init__(self, task: Task, number: int, grounds: Grounds, call: Call) -> None:
        self.task = task
        self.number = number
        self.grounds = grounds
        self.call = call
        self.work: asyncio.Task[None] | None = None  # None: it has not waited yet
        self.ended = False
        if task.runs_on is RunsOn.THREAD:
            self.runs_on = RunsOn.THREAD  # a later initialize() may change where the task's next runs go
            self.cancellable = False

    def tell(self) -> None:
        """It was told that the lease of its host is lost."""
        self.told = True

    @property
    def outer(self) -> RunInContext | None:
        """The run inside which its scheduler was started."""
        return self.call.outer

    @property
    def started_at(self) -> Instant:
        """When its start was decided."""
        return self.grounds.at

    def describe(self) -> CurrentRun:
        """The value of `current_run()` inside of it."""
        if self._description is None:
            task, grounds, zone = self.task, self.grounds, self.call.zone
            obligation = grounds.obligation
            self._description = CurrentRun(
                task.name,
                self.number,
                as_datetime(grounds.at, zone),
                as_datetime(obligation.scheduled, zone),
                grounds.cause.value,
                obligation.attempt,
                idempotency_key(task.name, task.generation, obligation.first_started_at),
                self.call.fence,
                self.call.lease.check,
            )
        return self._description


def run_around(owner: object) -> Run | None:
    """The run of this owner that has not ended and inside which the caller is, if there is one (SPEC 4.3)."""
    run = inside.get()
    while run is not None:
        if isinstance(run, Run) and run.call.owner is owner and not run.ended:
            return run
        run = run.outer
    return None


def run_on_stack(stack: Iterable[FrameType]) -> Run | None:
    """The run whose callback a thread is executing, given the stack of that thread."""
    for frame in stack:
        if frame.f_code in Runner.executing:
            run: Run = frame.f_locals["run"]
            return run
    return None


# --- all runs --------------------------------------------------------------------------------------------------------


class Runner:
    """The runs of one engine: admits durable starts, launches them, and records their ends."""

    def __init__(
        self,
        setup: Setup,
        journal: Journal,
        gate: Gate,
        traffic: Traffic,
        watchdog: "LoopWatchdog | None" = None,
        lease: Lease = ALWAYS,
    ) -> None:
        self.open = 0
        """How many runs have a durable start, and no durable end."""
        self.runs: dict[Task, Run] = {}
        """Open runs that need an object: running, failed, on a thread, or listened to."""
        self.all_returned = asyncio.Event()
        """Set while no callback is under way."""
        self.all_returned.set()
        self.threads_used = 0
        self.before: Sequence[Runner] = ()
        """Runners of hosts that were buried: their runs keep their slots until they end in this process (SPEC 9.6)."""
        self._setup = setup
        self._clock = setup.clock
        self._journal = journal
        self._gate = gate
        self._traffic = traffic
        self._watchdog = watchdog
        self._lease = lease
        self._is_fenced = lease is not ALWAYS
        self._pool = setup.host.new_pool(setup.threads)
        self._call: Call | None = None
        """Of the starts that were admitted last."""
        self._timed = False  # something listens to how long runs take
        self._returned: SuccessBlock | None = None
        """Ends of the stride under way that are not recorded yet; all of one instant and one start."""
        self._timeout = setup.options.run_timeout
        self._deadlines: deque[tuple[float, Run]] = deque()
        self._first_deadline = asyncio.Event()
        """Set when a run gets a time limit while no other has one."""

    def free_slots(self) -> Slots:
        """How many callbacks may begin now."""
        most = self._setup.options.max_concurrency
        taken, threads = self.open, self.threads_used
        for each in self.before:
            taken += each.open
            threads += each.threads_used
        # More threads than there are may be in use: an initialize() can turn a durable start into a blocking one.
        return Slots(None if most is None else max(0, most - taken), max(0, self._pool.size - threads))

    def admit(self, granted: Starts, zone: tzinfo) -> None:
        """Durable starts take their slots; from here on stop() waits for them. `zone` is the host's."""
        # The engine may have been started inside a run of another scheduler.
        begun, at = self._clock.elapsed(), Instant(self._clock.now())
        call = Call(self._setup, begun, at, zone, inside.get(), granted.fence, self._lease)
        self._call = call
        for block in granted.blocks:
            for number, task in enumerate(block.tasks, block.first_run):
                if task.runs_on is RunsOn.THREAD:  # it holds its thread from now on
                    self.runs[task] = Run(task, number, block.grounds, call)
                    self.threads_used += 1
        self.open += granted.count
        self._traffic.under_way += granted.count
        if granted.count:
            self.all_returned.clear()
            if self._watchdog is not None:
                self._watchdog.watch()

    async def launch(self, starts: Starts) -> None:
        """Call admitted starts, a few at a time, so that other tasks of the event loop have their turn."""
        self._timed = self._setup.outbox.wants(TaskRunCompleted)
        slice_began, steps = self._clock.elapsed(), first_steps()
        for block in starts.blocks:
            called = 0
            while called < len(block.tasks):
                called += self._stride(block, called, steps, slice_began)
                if self._clock.elapsed() - slice_began > SLICE_SECONDS:
                    if self._traffic.at_the_store:
                        give_way()
                    await breathe()
                    slice_began = self._clock.elapsed()

    def _stride(self, block: StartBlock, first: int, steps: FirstSteps, slice_began: float) -> int:
        """Call one callback after the other; ends of those that return at once are recorded together.

        Returns how many were called: fewer than a stride's when their slice of time is over.
        """
        tasks, first_run = block.tasks[first : first + STRIDE_CALLS_MAX], block.first_run + first - 1
        runs, grounds, called = self.runs, block.grounds, 0
        call = self._call_again(self._clock.elapsed())
        returned = self._returned
        begin, run_on_loop = steps.begin, self._run_on_loop
        with steps:
            for called, task in enumerate(tasks, 1):
                # Create a Run only when it is called: thousands of waiting ones slow every garbage collection.
                run = runs.get(task) if runs else None
                if run is None:
                    run = Run(task, first_run + called, grounds, call)
                else:  # it held its thread until now
                    run.call = call
                waiting = begin(run_on_loop(run) if run.runs_on is RunsOn.LOOP else self._run_in_thread(run))
                if waiting is not None and not run.ended:
                    run.work = waiting
                    runs[task] = run
                now_returned = self._returned
                if (
                    now_returned is not returned  # the first end of its millisecond, or a failure
                    or now_returned is None
                    or waiting is not None
                    or called % CALLS_BETWEEN_CLOCK_READS == 0
                ):
                    returned = now_returned
                    elapsed = self._clock.elapsed()
                    if elapsed - slice_began > SLICE_SECONDS:
                        break
                    if elapsed - call.elapsed > CALLED_TOGETHER_SECONDS:
                        call = self._call_again(elapsed)
                        self._record_returned()  # ends that are recorded together share their call
                        returned = None
        self._record_returned()
        return called

    def _call_again(self, elapsed: float) -> Call:
        """The call of admitted starts that are called from now on."""
        assert self._call is not None
        return self._call.again(elapsed, Instant(self._clock.now()))

    def _record_returned(self) -> None:
        """Record the ends of callbacks that returned in their first step, and have not been recorded yet."""
        returned = self._returned
        if returned is not None:
            self._returned = None
            self._journal.succeeded(returned)
            self._count_returned(len(returned.tasks))

    def release(self, tasks: Sequence[Task]) -> list[Run | None]:
        """Free the slots of runs whose ends are durable; returns the run objects that were kept for them."""
        self.open -= len(tasks)
        if not self.runs:
            return [None] * len(tasks)
        forget = self.runs.pop
        released = [forget(task, None) for task in tasks]
        for run in released:
            if run is not None and run.runs_on is RunsOn.THREAD:
                self.threads_used -= 1
        return released

    # --- one run -----------------------------------------------------------------------------------------------------

    async def _run_on_loop(self, run: Run) -> None:
        inside.set(run)
        if self._timeout is not None:
            self._limit(run)
        try:
            if self._is_fenced:
                await stepping(_called(run.task.callback), self._lease, self._is_torn_down, run.tell)
            else:
                await run.task.callback()
        except BaseException as raised:
            if self._conclude(run, raised):
                await self._interrupt_the_loop(run)
        else:
            if run.work is not None or self._timed or run.timed_out:
                self._conclude(run, None)
            else:  # as _conclude does, for the whole stride at once: a burst goes through here a million times
                run.ended = True
                grounds = run.grounds
                at = stamp(self._clock.now(), grounds)
                returned = self._returned
                if returned is None or returned.at != at:
                    self._record_returned()
                    self._returned = returned = SuccessBlock(at, grounds, [], [], run.call.called_at(at))
                returned.tasks.append(run.task)
                returned.runs.append(run.number)
            run.work = None  # its context refers to the run: without this only a garbage collection frees the two

    async def _run_in_thread(self, run: Run) -> None:
        inside.set(run)
        if self._timeout is not None:
            self._limit(run)
        error: BaseException | None = None
        try:
            if self._is_fenced:
                outcome = await self._call_in_thread(run)
            else:
                outcome = await self._pool.run(run.task.callback)
            if inspect.isawaitable(outcome):
                await self._await_outcome(run, outcome)
        except BaseException as raised:
            error = raised
        if self._conclude(run, error):
            await self._interrupt_the_loop(run)

    async def _await_outcome(self, run: Run, outcome: Awaitable[object]) -> None:
        """Await on the event loop what a blocking callback returned, unless its time is up already."""
        if run.timed_out:
            if inspect.iscoroutine(outcome):
                outcome.close()
            return
        run.cancellable = True
        if self._is_fenced:
            await stepping(_awaited(outcome), self._lease, self._is_torn_down, run.tell)
        else:
            await outcome

    async def _call_in_thread(self, run: Run) -> object:
        """Call a blocking callback as soon as the lease is trusted; asked in the thread, in the instant of the call."""
        lease = self._lease
        while True:
            if not lease.trusted() and not lease.lost:
                await lease.hold()
            lease.check_lost()
            called, outcome = await self._pool.run(lambda: _call_if_trusted(run.task.callback, lease))
            if called:
                return outcome

    def _is_torn_down(self) -> bool:
        return self._gate.tearing_down

    def _conclude(self, run: Run, error: BaseException | None) -> bool:
        """Record how a run ended, unless the event loop is going away (SPEC 3.11).

        True when what it raised is to be raised out of the event loop.
        """
        if error is not None or run.timed_out:
            if isinstance(error, GeneratorExit) and not _is_on_a_loop():
                raise error  # not the callback's: the event loop is gone, and this coroutine is being closed
            if isinstance(error, asyncio.CancelledError) and self._gate.tearing_down:
                return False
            if run.timed_out and not isinstance(error, KeyboardInterrupt):
                late = TimeoutError(outlasted(self._timeout))
                late.__cause__ = None if isinstance(error, asyncio.CancelledError) else error
                error = late
            run.error = error
        if run.ended:
            return False
        run.ended = True
        self._record_returned()  # ends stay in the order in which they came
        at = stamp(self._clock.now(), run.grounds)
        if self._timed or error is not None:
            begun = run.call.elapsed if run.begun is None else run.begun
            run.duration_ms = (self._clock.elapsed() - begun) * 1000
        if run.duration_ms is not None or run.runs_on is RunsOn.THREAD:
            self.runs[run.task] = run  # until its end is durable: there is something to announce, or a thread to free
        else:
            del self.runs[run.task]
        if error is None:
            called_at = run.call.called_at(at)
            self._journal.succeeded(SuccessBlock(at, run.grounds, [run.task], [run.number], called_at))
        else:
            self._journal.failed(failure(run, error, at))
        self._count_returned(1)
        return isinstance(error, KeyboardInterrupt)

    def _count_returned(self, callbacks: int) -> None:
        """Count callbacks that are over; a stop() waits for the last one, and so does the loop."""
        self._traffic.under_way -= callbacks
        if not self._traffic.under_way:
            self.all_returned.set()
            if self._gate.closing:
                self._gate.wake.set()

    async def _interrupt_the_loop(self, run: Run) -> None:
        """Have the end recorded first, then raise the KeyboardInterrupt out of the event loop (SPEC 3.11)."""
        deadline = self._clock.elapsed() + INTERRUPT_PATIENCE_SECONDS
        while self._journal.busy and await self._journal.progress(deadline):
            pass
        assert run.error is not None
        work = asyncio.current_task()
        assert work is not None
        work.add_done_callback(_retrieve)
        raise run.error

    # --- time limits -------------------------------------------------------------------------------------------------

    def _limit(self, run: Run) -> None:
        """Begin the time that a run may take."""
        assert self._timeout is not None
        run.begun = begun = self._clock.elapsed()
        if not self._deadlines:
            self._first_deadline.set()
        self._deadlines.append((begun + self._timeout.total_seconds(), run))

    async def keep_time(self) -> None:
        """Cancel runs at their time limits, whatever else goes on; a task of its own, until it is cancelled."""
        while True:
            self._first_deadline.clear()
            deadline = self.next_deadline()
            if deadline is None:
                await self._first_deadline.wait()
                continue
            left = min(deadline - self._clock.elapsed(), 60.0)
            await self._clock.sleep_until(self._clock.now() + int(left * MICROSECONDS) + 1, self._first_deadline)
            self.enforce_timeouts()

    def next_deadline(self) -> float | None:
        """When the next time limit is reached, in elapsed seconds."""
        while self._deadlines and self._deadlines[0][1].ended:
            self._deadlines.popleft()
        return self._deadlines[0][0] if self._deadlines else None

    def enforce_timeouts(self) -> None:
        """Cancel runs whose time is up; one that cannot be cancelled will have failed when it ends (SPEC 3.10)."""
        elapsed = self._clock.elapsed()
        while (deadline := self.next_deadline()) is not None and deadline <= elapsed:
            _, run = self._deadlines.popleft()
            run.timed_out = True
            if run.cancellable and run.work is not None:
                run.work.cancel()

    # --- ending ------------------------------------------------------------------------------------------------------

    def tell_of_the_loss(self) -> None:
        """The lease is lost: coroutines hear of it now, and not when what they wait for comes (SPEC 9.6).

        One that knows of it already is left to its clean-up.
        """
        for run in self.runs.values():
            if run.cancellable and not run.told and run.work is not None:
                run.work.cancel()  # which the fence turns into a LeaseLostError

    def drop(self) -> list["asyncio.Task[None]"]:
        """Let no run that still goes on have an outcome; returns the tasks in which they go on."""
        works = []
        for run in self.runs.values():
            run.ended = True
            if run.work is not None:
                works.append(run.work)
        return works

    def close(self, *, wait: bool) -> None:
        """End the threads."""
        self._pool.close(wait=wait)
        if self._watchdog is not None:
            self._watchdog.close(wait=wait)

    executing: Final = frozenset({_run_on_loop.__code__, _run_in_thread.__code__})
    """The functions inside which a callback is executed on the event loop; the run is their local `run`."""


def outlasted(limit: timedelta | None) -> str:
    """The failure of a run that took longer than `run_timeout`."""
    return f"the run took longer than run_timeout, {limit.total_seconds() if limit else 0:g} s"


def stamp(now: int, grounds: Grounds) -> Instant:
    """The instant of an end: in whole milliseconds, so that runs share an end, a state and a statement."""
    at = now - now % 1000  # but never before the start
    return Instant(at if at >= grounds.at else min(now, grounds.at))


def failure(run: Run, error: BaseException, at: Instant) -> End:
    """The end of a run that failed, with what it raised and when it is tried again."""
    task, state = run.task, run.task.state
    retry_at, failures = None, 0
    if isinstance(state, Running):
        after = fail(state, at, task.delay)
        retry_at, failures = after.pending_retry_until, after.failures
    called_at = run.call.called_at(at)
    return End(
        task, run.number, run.grounds, at, error_text(error), retry_at, failures, called_at, traceback_text(error)
    )


async def _called(callback: Callback) -> None:
    """A callback as a coroutine, so that not even its call happens outside of its steps."""
    await callback()


async def _awaited(outcome: Awaitable[object]) -> None:
    await outcome


def _call_if_trusted(callback: Callback, lease: Lease) -> tuple[bool, object]:
    if not lease.trusted():
        return False, None
    return True, callback()


def _retrieve(ended: "asyncio.Task[None]") -> None:
    """Retrieve what a task raised out of the event loop: asyncio would report it once more when it forgets the task."""
    if not ended.cancelled():
        ended.exception()


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
