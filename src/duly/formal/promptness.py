"""The bounded shadows R1, R2 and L2ᵇ: how long an obligation may stay open while the process had compute.

Liveness cannot be refuted by a prefix; that something took longer than its bound can. The bound runs while

- the task is owed, the scheduler is active and the task's own last run has ended,
- slots of its kind are free,
- there is evidence of compute: events, wake-ups among them, follow each other within `GAP`. After a longer silence, a
  step of the clock or a boot it starts anew, because a process that was frozen or suspended is not late.

In a shared store this is asked of each host that is active and declares the edition in force, by its own events and
slots: a task is late if one of these hosts could have started it for longer than the bound. After a burial the bound
starts anew, because the others have to share the work once more. It does so when another edition comes in force: a
reinstated one owes what fell due before. And it does so for a host that reaches the store again (LR). An end that this
host then writes, however long ago the callback returned, counts from the LR on: no other host could know of it before.

So a trace without wake-ups can hide lateness, but one that shows it is proof. Tasks wait in a queue for their deadline,
with one valid entry each; a state that has changed is noticed when its entry comes up.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from duly.core.moments import MICROSECONDS, Instant
from duly.formal.calendar import NEVER
from duly.formal.registers import HostRegisters, Registers, TaskRegisters

GAP: Final = 90 * MICROSECONDS
"""A loop that wakes at every minute boundary is never silent for longer than this, if it has compute."""

NEXT_LOOK: Final = 1 * MICROSECONDS
"""How soon a task that waits for a sign of life of another host is looked at again."""

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
            self._queue(
                task, min((self._deadline(task, host) for host in self._registers.hosts.values()), default=NEVER)
            )

    def watch(self, task: TaskRegisters) -> None:
        """A run has ended: its task may be owed again, earlier than it was expected."""
        deadline = Instant(min(task.next_due, task.retry_at) + self.bound)
        if deadline < task.watched:
            self._queue(task, deadline)

    def watch_stop(self, host: HostRegisters) -> None:
        """A stop, or the last run while one is open, begins or ends on a host."""
        waiting = host.stops and not host.running
        self._put_stop_deadline(host, Instant(host.clock + STOP_BOUND) if waiting else NEVER)

    def _put_stop_deadline(self, host: HostRegisters, deadline: Instant) -> None:
        host.stop_deadline = deadline
        self._stop_deadline = min(each.stop_deadline for each in self._registers.hosts.values())

    def ring(self, host: HostRegisters, now: Instant) -> None:
        """Report the deadlines that this host, whose event it is, has missed."""
        while self._heap and self._heap[0] < now:
            come = heappop(self._heap)
            for task in self._waiting.pop(come):
                if come != task.watched:
                    continue  # a later entry took its place
                task.watched = NEVER
                deadline = self._deadline(task, host)
                if deadline < now:
                    self._report_late(task, now)
                else:
                    self._queue(task, self._earliest(task, host, deadline, now))
        if host.stop_deadline < now:
            self._judge_stop(host, now)

    def _earliest(self, task: TaskRegisters, host: HostRegisters, deadline: Instant, now: Instant) -> Instant:
        """The deadline of a task on this host, or an earlier one on another host of a shared store."""
        if self._registers.shared:
            for other in self._registers.hosts.values():
                if (
                    other is not host
                ):  # that one may have been dead for long: only its own next event shows that it is not
                    deadline = min(deadline, max(self._deadline(task, other), Instant(now + NEXT_LOOK)))
        return deadline

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

    def _deadline(self, task: TaskRegisters, host: HostRegisters) -> Instant:
        """Until when a host may let a task wait; NEVER while an event must come first, which asks again."""
        registers = self._registers
        since = task.next_due
        if not (task.declared and host.active and host.edition == registers.edition):
            return NEVER
        if task.run is None:
            if task.retry_at < since:
                since = task.retry_at
        elif task.epoch in registers.lives:
            return NEVER
        else:
            since, _ = registers.owed_since(task)
        free_since = host.free_since(thread=task.thread)
        if free_since == NEVER:  # no slot: it waits its turn, and has its bound again from then on
            free_since = host.clock
        begun = max(since, host.active_since, task.ended, free_since, host.compute_since)
        if registers.shared:
            begun = max(begun, registers.buried_at, registers.in_force_since)
        return Instant(begun + self.bound)

    def _report_late(self, task: TaskRegisters, now: Instant) -> None:
        since, why = self._registers.owed_since(task)
        late, most = (now - since) // MICROSECONDS, self.bound // MICROSECONDS
        property_id = "R2" if why == "interrupted" else "R1"
        self._report(property_id, task, f"owed ({why}) for {late} s and not started; the bound is {most} s")

    def _judge_stop(self, host: HostRegisters, now: Instant) -> None:
        since = max(host.stop_deadline - STOP_BOUND, host.compute_since)
        if now - since > STOP_BOUND:
            late = (now - since) // MICROSECONDS
            self._report("L2ᵇ", None, f"a stop is open {late} s after the last run ended")
            self._put_stop_deadline(host, NEVER)
        else:
            self._put_stop_deadline(host, Instant(since + STOP_BOUND))
