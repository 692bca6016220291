"""The bounded shadows R1, R2 and L2ᵇ: how long an obligation may stay open while the process had compute.

Liveness cannot be refuted by a prefix; that something took longer than its bound can. The bound runs while

- the task is owed, the scheduler is active and the task's own last run has ended,
- slots of its kind are free,
- there is evidence of compute: events, wake-ups among them, follow each other within `GAP`. After a longer silence, a
  step of the clock or a boot it starts anew, because a process that was frozen or suspended is not late.

So a trace without wake-ups can hide lateness, but one that shows it is proof. Tasks wait in a queue for their deadline,
with one valid entry each; a state that has changed is noticed when its entry comes up.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from duly.core.moments import MICROSECONDS, Instant
from duly.formal.calendar import NEVER
from duly.formal.registers import Registers, TaskRegisters

GAP: Final = 90 * MICROSECONDS
"""A loop that wakes at every minute boundary is never silent for longer than this, if it has compute."""

STOP_BOUND: Final = 60 * MICROSECONDS
"""A stop keeps trying to store ends for 30 s after the last callback has ended (SPEC 4.3), then raises."""


def bound(tasks: int) -> int:
    """B, in microseconds (000 R1)."""
    return 60 * MICROSECONDS * max(10_000, tasks) // 10_000


class Promptness:
    """The deadlines of tasks and of open stops; a missed one is reported with its property, task and sentence."""

    def __init__(self, registers: Registers, report: Callable[[str, TaskRegisters | None, str], None]) -> None:
        self._registers = registers
        self._report = report
        self._heap: list[Instant] = []
        self._waiting: dict[Instant, list[TaskRegisters]] = {}  # by deadline: tasks of one expression share theirs
        self._stop_deadline: Instant = NEVER
        self.bound = bound(0)

    def alarm(self) -> Instant:
        """The first deadline: nothing can be late before it."""
        return min(self._heap[0] if self._heap else NEVER, self._stop_deadline)

    def rebuild(self) -> None:
        """Compute every deadline anew: the clock went back, or other tasks are declared."""
        self.bound = bound(self._registers.declared)
        self._heap.clear()
        self._waiting.clear()
        for task in self._registers.tasks.values():
            task.watched = NEVER
            self._queue(task, self._deadline(task))
        self.watch_stop()

    def watch(self, task: TaskRegisters) -> None:
        """A run has ended: its task may be owed again, earlier than it was expected."""
        deadline = Instant(min(task.next_due, task.retry_at) + self.bound)
        if deadline < task.watched:
            self._queue(task, deadline)

    def watch_stop(self) -> None:
        """A stop, or the last run while one is open, begins or ends."""
        registers = self._registers
        waiting = registers.stops and not registers.running
        self._stop_deadline = Instant(registers.clock + STOP_BOUND) if waiting else NEVER

    def ring(self, now: Instant) -> None:
        """Report the deadlines that have been missed."""
        while self._heap and self._heap[0] < now:
            come = heappop(self._heap)
            for task in self._waiting.pop(come):
                if come != task.watched:
                    continue  # a later entry took its place
                task.watched = NEVER
                deadline = self._deadline(task)
                if deadline < now:
                    self._report_late(task, now)
                else:
                    self._queue(task, deadline)
        if self._stop_deadline < now:
            self._judge_stop(now)

    def _queue(self, task: TaskRegisters, deadline: Instant) -> None:
        if deadline >= NEVER:
            return
        task.watched = deadline
        waiting = self._waiting.get(deadline)
        if waiting is None:
            self._waiting[deadline] = [task]
            heappush(self._heap, deadline)
        else:
            waiting.append(task)

    def _deadline(self, task: TaskRegisters) -> Instant:
        """The deadline of what the task owes, or will owe; NEVER while an event must come first, which asks again."""
        registers = self._registers
        since = task.next_due
        if not (task.declared and registers.active):
            return NEVER
        if task.run is None:
            if task.retry_at < since:
                since = task.retry_at
        elif task.epoch == registers.epoch:
            return NEVER
        else:
            since, _ = registers.owed_since(task)
        free_since = registers.free_since(thread=task.thread)
        if free_since == NEVER:  # no slot: it waits its turn, and has its bound again from then on
            free_since = registers.clock
        return Instant(max(since, registers.active_since, task.ended, free_since, registers.compute_since) + self.bound)

    def _report_late(self, task: TaskRegisters, now: Instant) -> None:
        since, why = self._registers.owed_since(task)
        late, most = (now - since) // MICROSECONDS, self.bound // MICROSECONDS
        property_id = "R2" if why == "interrupted" else "R1"
        self._report(property_id, task, f"owed ({why}) for {late} s and not started; the bound is {most} s")

    def _judge_stop(self, now: Instant) -> None:
        since = max(self._stop_deadline - STOP_BOUND, self._registers.compute_since)
        if now - since > STOP_BOUND:
            late = (now - since) // MICROSECONDS
            self._report("L2ᵇ", None, f"a stop is open {late} s after the last run ended")
            self._stop_deadline = NEVER
        else:
            self._stop_deadline = Instant(since + STOP_BOUND)
