"""Runs callbacks: admits durable starts, calls them on the loop or in a thread, and hears how each one ended."""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from itertools import chain, repeat
from typing import Final

from duly.clock import SLICE_SECONDS, Clock, breathe, give_way
from duly.core.changes import Starts
from duly.core.moments import MICROSECONDS
from duly.core.registration import RunsOn
from duly.core.task import Grounds, Task
from duly.engine.host import Host
from duly.engine.runs import Run, inside
from duly.threads import Threads

LAUNCHED_TOGETHER_MAX: Final = 64
"""Callbacks that begin in one round of the event loop, where they cannot begin at once.

Those that return without waiting are gone before the next begin, so that a burst never holds thousands of coroutines,
tasks and contexts, and the collector does not go through all of them, again and again, to find that they live.
"""

LAUNCHED_BEFORE_GIVING_WAY: Final = 128
"""Callbacks between two moments in which the writer's thread may have the interpreter."""


class Execution:
    """The living runs of one scheduler."""

    def __init__(
        self,
        host: Host,
        *,
        pool_size: int,
        run_timeout: timedelta | None,
        owner: object,
        scheduler_key: int,
        succeeded: Callable[[Run], None],
        failed: Callable[[Run, BaseException], None],
        recorded: Callable[[], Awaitable[None]],
        tearing_down: Callable[[], bool],
        is_writing: Callable[[], bool],
        ends_are_heard: Callable[[], bool],
    ) -> None:
        self.open = 0
        """How many runs are durable, and their end is not."""
        self.runs: dict[Task, Run] = {}
        """Those of them that are under way, or of whose end there is more to tell than that it came."""
        self.all_returned = asyncio.Event()
        """Set while no callback is under way."""
        self.all_returned.set()
        self._under_way = 0
        self._threads_used = 0
        self._admitted = 0.0
        self._outer: Run | None = None
        self._clock: Clock = host.clock
        self._eager = host.eager
        self._pool: Threads = host.new_pool(pool_size)
        self._timeout = run_timeout
        self._owner = owner
        self._key = scheduler_key
        self._succeeded = succeeded
        self._failed = failed
        self._recorded = recorded
        self._tearing_down = tearing_down
        self._is_writing = is_writing
        self._ends_are_heard = ends_are_heard
        self._measures = False  # somebody may want to hear how long runs took
        self._appointed = asyncio.Event()
        self._deadlines: deque[tuple[float, Run]] = deque()

    @property
    def free_threads(self) -> int:
        """How many blocking callbacks may begin."""
        # More than there are threads may be in use: an initialize() can turn a durable start into a blocking one.
        return max(0, self._pool.size - self._threads_used)

    def admit(self, granted: Starts) -> None:
        """Starts are durable: from here on they are running, and stop() waits for them."""
        key = self._key
        self._measures = self._ends_are_heard()
        self._admitted = self._clock.elapsed()
        self._outer = inside.get()  # the loop may have been started inside a run of another scheduler
        for block in granted.blocks:
            for run, task in enumerate(block.tasks, block.first_run):
                task.written_by = key
                if task.runs_on is RunsOn.THREAD:
                    self._prepare(task, run, block.grounds)
        self.open += granted.count
        self._under_way += granted.count
        if granted.count:
            self.all_returned.clear()

    def _prepare(self, task: Task, number: int, grounds: Grounds) -> Run:
        """A run that is about to be called; one that needs a thread has it from the moment it is admitted."""
        run = self.runs[task] = Run(task, number, grounds, self._owner, self._admitted)
        if run.runs_on is RunsOn.THREAD:
            self._threads_used += 1
        if self._outer is not None:
            run.outer = self._outer
        return run

    async def launch(self, starts: Starts) -> None:
        """Call them, a few at a time, so that others have their turn."""
        event_loop = asyncio.get_running_loop()
        begun = self._clock.elapsed()
        # Nothing is made of a start before its turn: thousands of runs that wait for it would be the collector's.
        numbered = chain.from_iterable(
            zip(repeat(block.grounds), enumerate(block.tasks, block.first_run)) for block in starts.blocks
        )
        for index, (grounds, (number, task)) in enumerate(numbered, 1):
            run = self.runs.get(task) or self._prepare(task, number, grounds)
            work = self._run_blocking(run) if run.runs_on is RunsOn.THREAD else self._run_on_loop(run)
            if self._eager:
                # mypy knows the oldest Python that is supported; this one is new in 3.12.
                begun_work = asyncio.Task(work, loop=event_loop, eager_start=True)  # type: ignore[call-arg]
                if not run.ended:
                    run.work = begun_work
                if index % 32 == 0 and self._clock.elapsed() - begun > SLICE_SECONDS:
                    await breathe()
                    begun = self._clock.elapsed()
            else:
                run.work = event_loop.create_task(work)
                if index % LAUNCHED_TOGETHER_MAX == 0:
                    await breathe()
            if index % LAUNCHED_BEFORE_GIVING_WAY == 0 and self._is_writing():
                give_way()

    def release(self, tasks: Sequence[Task]) -> list[Run | None]:
        """Their ends are durable: they, and their slots, are free. Returns what there is to tell of each run."""
        forget = self.runs.pop
        self.open -= len(tasks)
        released = [forget(task, None) for task in tasks]
        for run in released:
            if run is not None and run.runs_on is RunsOn.THREAD:
                self._threads_used -= 1
        return released

    # --- one run -----------------------------------------------------------------------------------------------------

    async def _run_on_loop(self, run: Run) -> None:
        inside.set(run)
        if self._timeout is not None:
            self._limit(run)
        try:
            await run.task.callback()
        except BaseException as raised:
            if self._conclude(run, raised):
                await self._interrupt_the_loop(run)
        else:
            if self._measures or run.timed_out or run.ended:
                self._conclude(run, None)
            else:  # what that would do, in a few steps: a burst goes through here a million times
                run.ended = True
                self._succeeded(run)
                del self.runs[run.task]
                self._under_way -= 1
                if not self._under_way:
                    self.all_returned.set()
            run.work = None  # its context refers to the run, so neither would go before the collector comes

    async def _run_blocking(self, run: Run) -> None:
        inside.set(run)
        if self._timeout is not None:
            self._limit(run)
        error: BaseException | None = None
        try:
            outcome = await self._pool.run(run.task.callback)
            if inspect.isawaitable(outcome):
                await self._await_outcome(run, outcome)
        except BaseException as raised:
            error = raised
        if self._conclude(run, error):
            await self._interrupt_the_loop(run)

    async def _await_outcome(self, run: Run, outcome: Awaitable[object]) -> None:
        """What a blocking callback hands back is awaited on the loop, unless its time is up already."""
        if run.timed_out:
            if inspect.iscoroutine(outcome):
                outcome.close()
            return
        run.cancellable = True
        await outcome

    def _limit(self, run: Run) -> None:
        """Its time begins."""
        assert self._timeout is not None
        run.begun = self._clock.elapsed()
        if not self._deadlines:
            self._appointed.set()
        self._deadlines.append((run.begun + self._timeout.total_seconds(), run))

    def _conclude(self, run: Run, error: BaseException | None) -> bool:
        """The callback is over: have its end recorded, unless the event loop is going away (SPEC 3.11).

        True when what it raised is to be raised out of the event loop.
        """
        if error is not None or run.timed_out:
            if isinstance(error, GeneratorExit) and not _is_on_a_loop():
                raise error  # not the callback's: the event loop is gone, and this coroutine is being closed
            if isinstance(error, asyncio.CancelledError) and self._tearing_down():
                return False
            if run.timed_out and not isinstance(error, KeyboardInterrupt):
                late = TimeoutError(f"run_timeout of {self._timeout} passed")
                late.__cause__ = None if isinstance(error, asyncio.CancelledError) else error
                error = late
            run.error = error
        if run.ended:
            return False
        run.ended = True
        if self._measures or error is not None:
            run.duration_ms = (self._clock.elapsed() - run.begun) * 1000
        if error is None:
            self._succeeded(run)
        else:
            self._failed(run, error)
        self._under_way -= 1
        if not self._under_way:
            self.all_returned.set()
        return isinstance(error, KeyboardInterrupt)

    async def _interrupt_the_loop(self, run: Run) -> None:
        """Recorded first, then out of the loop, as the person at the keyboard asked."""
        await self._recorded()
        assert run.error is not None
        raise run.error

    # --- time limits -------------------------------------------------------------------------------------------------

    async def keep_time(self) -> None:
        """Cancel what has had its time, whatever else goes on: a task of its own, until it is cancelled."""
        while True:
            self._appointed.clear()
            deadline = self.next_deadline()
            if deadline is None:
                await self._appointed.wait()
                continue
            left = min(deadline - self._clock.elapsed(), 60.0)
            await self._clock.sleep_until(self._clock.now() + int(left * MICROSECONDS) + 1, self._appointed)
            self.enforce_timeouts()

    def next_deadline(self) -> float | None:
        """When the next time limit is reached, in elapsed seconds."""
        while self._deadlines and self._deadlines[0][1].ended:
            self._deadlines.popleft()
        return self._deadlines[0][0] if self._deadlines else None

    def enforce_timeouts(self) -> None:
        """Cancel what has had its time; what cannot be cancelled will have failed when it ends (SPEC 3.10)."""
        elapsed = self._clock.elapsed()
        while (deadline := self.next_deadline()) is not None and deadline <= elapsed:
            _, run = self._deadlines.popleft()
            run.timed_out = True
            if run.cancellable and run.work is not None:
                run.work.cancel()

    # --- letting go --------------------------------------------------------------------------------------------------

    def drop(self) -> list["asyncio.Task[None]"]:
        """Nothing that still runs has an outcome from here on."""
        works = []
        for run in self.runs.values():
            run.ended = True
            if run.work is not None:
                works.append(run.work)
        return works

    def close(self, *, wait: bool) -> None:
        """End the threads."""
        self._pool.close(wait=wait)


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
