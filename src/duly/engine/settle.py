"""Durable ends: tasks get their new states, slots become free, and successors of replaced runs may start."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from duly.core.agenda import Agenda
from duly.core.changes import Ends, SuccessBlock
from duly.core.cron import CronExpression
from duly.core.moments import Instant
from duly.core.steps import Steps
from duly.core.task import End, Running, Task, TaskState, Withdrawn, fail, succeed
from duly.engine import announce
from duly.engine.gate import Gate
from duly.engine.pacing import paced
from duly.engine.runner import Runner
from duly.engine.setup import Setup
from duly.engine.traffic import Traffic
from duly.events import TaskRunCompleted, TaskRunFenced

SETTLED_TOGETHER: Final = 64
"""Durable ends that are settled without a pause, as of one and the same moment."""


@dataclass(slots=True)
class ReplacedRun:
    """A run that goes on although its declaration was replaced or removed, and the task that waits for its end."""

    task: Task
    successor: Task | None = None


class ReplacedRuns:
    """The replaced runs of one engine, by the name of their task: a new declaration of that name waits (SPEC 5.3)."""

    def __init__(self) -> None:
        self.by_name: dict[str, ReplacedRun] = {}

    def withdraw(self, tasks: Sequence[Task]) -> None:
        """Declarations are replaced or removed; their runs go on."""
        for task in tasks:
            if isinstance(task.state, Running):
                # Here, and not when the agenda comes to it: a run may end while the agenda pauses.
                task.state = Withdrawn(task.state.served_through)
                self.by_name[task.name] = ReplacedRun(task)
            elif task.predecessor_runs and task.name in self.by_name:  # and not for a run on another host
                self.by_name[task.name].successor = None

    def adopt(self, tasks: Sequence[Task]) -> None:
        """New declarations wait for a run of an earlier one of their name."""
        if self.by_name:
            for task in tasks:
                replaced = self.by_name.get(task.name)
                if replaced is not None:
                    replaced.successor = task
                    task.predecessor_runs = True

    def ended(self, task: Task) -> Task | None:
        """A run is over that may be a replaced one; returns the task that waited for it."""
        replaced = self.by_name.get(task.name)
        if replaced is None or replaced.task is not task:
            return None
        del self.by_name[task.name]
        if replaced.successor is not None:
            replaced.successor.predecessor_runs = False
        return replaced.successor


class Settlement:
    """Settles the durable ends of one engine."""

    def __init__(
        self, setup: Setup, agenda: Agenda, runner: Runner, replaced: ReplacedRuns, gate: Gate, traffic: Traffic
    ) -> None:
        self.on_fenced: Callable[[str], None] = lambda _: None
        """Called with the name of a task whose run was fenced off."""
        self._clock = setup.clock
        self._outbox = setup.outbox
        self._host = setup.outbox.host  # of this engine: another may have joined when its last run ends
        self._agenda = agenda
        self._runner = runner
        self._replaced = replaced
        self._gate = gate
        self._traffic = traffic

    async def settle(self, ends: Ends) -> None:
        """Settle ends, and wake the loop if anything may start now, or after a retry delay."""
        retries = await paced(self._clock, self.steps(ends))
        if retries or self._agenda.waiting:
            self._gate.wake.set()

    def fence(self, ends: Ends) -> None:
        """Runs are over that are not on record any more, so that their ends are not either: what they held is free."""
        for end in ends.singles():
            self._runner.release((end.task,))
            self._replaced.ended(end.task)
            self._outbox.emit(TaskRunFenced(end.task.name, end.run, host=self._host))
            self.on_fenced(end.task.name)

    def steps(self, ends: Ends) -> Steps[bool]:
        """Settle ends block by block; returns whether any of their tasks will owe a start after a retry delay."""
        retries = False
        for block in ends.blocks:
            if isinstance(block, SuccessBlock):
                yield from self._successes(block)
            else:
                retries |= self._failure(block)
                yield
        return retries

    def _successes(self, block: SuccessBlock) -> Steps[None]:
        agenda, at, wanted = self._agenda, block.at, self._outbox.wants(TaskRunCompleted)
        before: TaskState | None = None
        after: TaskState | None = None
        for first in range(0, len(block.tasks), SETTLED_TOGETHER):
            tasks = block.tasks[first : first + SETTLED_TOGETHER]
            released = self._runner.release(tasks)
            now = Instant(self._clock.now())
            self._traffic.end_lies_ahead |= at > now
            expression: CronExpression | None = None
            for task in tasks:
                state = task.state
                if state is before and task.expression is expression:
                    # Tasks with the same old state and expression owe nothing alike, and get the same new state.
                    assert after is not None
                    task.state = after
                elif isinstance(state, Running):
                    if state is not before or after is None:
                        before, after = state, succeed(state, at)
                    task.state = after
                    expression = None if agenda.review(task, now) else task.expression
                else:
                    self._free_successor(task, now)
            if wanted:
                runs = block.runs[first : first + SETTLED_TOGETHER]
                for task, number, run in zip(tasks, runs, released, strict=True):
                    duration_ms = None if run is None else run.duration_ms
                    ended = End(task, number, block.grounds, at, called_at=block.called_at)
                    announce.end(self._outbox, ended, agenda.zone, duration_ms=duration_ms)
            yield

    def _failure(self, end: End) -> bool:
        """Returns whether the task waits for a retry delay now."""
        (run,) = self._runner.release((end.task,))
        task, state, now = end.task, end.task.state, Instant(self._clock.now())
        retries = isinstance(state, Running)
        if isinstance(state, Running):
            task.state = fail(state, end.at, task.delay)
            self._agenda.review(task, now)
            self._traffic.end_lies_ahead |= end.at > now
        else:
            self._free_successor(task, now)
        duration_ms, exception = (None, None) if run is None else (run.duration_ms, run.error)
        announce.end(self._outbox, end, self._agenda.zone, duration_ms=duration_ms, exception=exception)
        return retries

    def _free_successor(self, task: Task, now: Instant) -> None:
        """The run of a withdrawn declaration is over: the task that waited for it may start."""
        if (successor := self._replaced.ended(task)) is not None:
            self._agenda.review(successor, now)
