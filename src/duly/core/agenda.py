"""All tasks, indexed by when they need attention, and `decide()`: what starts now and when to look again.

Tasks of one expression form a group: its occurrences are computed once for all of them. Groups wait in a calendar for
their next due minute, single tasks in a heap of timers for their retry or resumption. What is due moves, as a *wave*
of tasks, into one queue per kind of callback, longest owed first. Cost per look follows what is due, not what exists.

The agenda is an index, never the truth: being in a wave means being asked, and `obligation()` answers.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from duly.core.changes import Starts
from duly.core.cron import CronExpression
from duly.core.groups import Group, Wave
from duly.core.moments import LAST_INSTANT, MICROSECONDS, Instant, Minute, begin, minute_of
from duly.core.registration import Kind
from duly.core.steps import STEP_TASKS, Steps
from duly.core.task import (
    AwaitingRetry,
    AwaitingRun,
    Grounds,
    Interrupted,
    Owed,
    Task,
    TaskState,
    Withdrawn,
    corrected,
    grounds_for,
)

__all__ = ["Agenda", "Decision", "Group", "Slots", "Wave", "decide"]


class Slots(NamedTuple):
    """How many callbacks may begin now; None is no limit."""

    total: int | None = None
    threads: int | None = None

    def of(self, kind: Kind) -> int | None:
        """The free slots of a kind, by its own limit alone."""
        return self.threads if kind is Kind.THREAD else None


_Queue = list[tuple[Instant, int, Wave]]


@dataclass(slots=True)
class Decision:
    """What `decide` chose, and how far it went through the waves; nothing has changed yet."""

    at: Instant
    starts: Starts = field(default_factory=Starts)
    chosen: set[Task] | None = (
        None  # a task can stand in several waves of its group, and starts once; kept if there are
    )
    grounds: dict[tuple[int, Owed | None], Grounds | None] = field(default_factory=dict)
    """What the tasks asked so far owe, by the identity of their state."""
    evaluated: int = 0
    reached: list[tuple[Kind, Wave, int]] = field(default_factory=list)
    younger: dict[tuple[Kind, Instant, Group], dict[Task, None]] = field(default_factory=dict)
    """Tasks that were served after their wave had formed: what they owe by now waits its own turn, once."""
    put_off_since: Instant = LAST_INSTANT
    """Since when the longest owed of those is owed."""
    cut_short: bool = False
    """It ended before those whose turn comes after theirs: the next decision goes on."""


class Agenda:
    """The index over all declared tasks."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.size = 0
        self._groups: dict[str, Group] = {}
        self._calendar: list[tuple[Minute, int, Group]] = []
        self._timers: list[tuple[Instant, int, Task, AwaitingRetry | Interrupted]] = []
        self._queues: dict[Kind, _Queue] = {Kind.LOOP: [], Kind.THREAD: []}
        self._tickets = count()
        self._minute = Minute(0)
        self._minute_begins = self._minute_ends = Instant(0)

    def minute(self, now: Instant) -> Minute:
        """The minute that contains `now`; computed once, because it is asked for every start and end."""
        if not self._minute_begins <= now < self._minute_ends:
            self._minute = minute_of(now, self.zone)
            self._minute_begins = begin(self._minute)
            self._minute_ends = Instant(self._minute_begins + 60 * MICROSECONDS)
        return self._minute

    def minute_ends(self, now: Instant) -> Instant:
        """When the minute that contains `now` is over."""
        self.minute(now)
        return self._minute_ends

    # --- who is in it ------------------------------------------------------------------------------------------------

    def tasks(self) -> Iterator[Task]:
        """Every task, grouped by expression."""
        for group in self._groups.values():
            for tasks in group.tasks.values():
                yield from tasks

    def enter(self, tasks: Iterable[Task], now: Instant) -> Steps[None]:
        """Add tasks; what they owe already is queued, longest owed first. Yields so that others may work."""
        minute = self.minute(now)
        waiting: dict[tuple[str, Kind, Minute], list[Task]] = {}
        expression = group = state = None
        owing = False
        for index, task in enumerate(tasks):
            # Tasks mostly come in the order of their expressions, and in the same state as the one before.
            if task.expression is not expression or group is None:
                expression, state = task.expression, None
                group = self._group(task.expression, minute)
            if task.state is not state:
                state = task.state
                owing = group.owed(state.served_through, minute, self.zone) is not None
            group.tasks[task.kind].append(task)
            self.size += 1
            if type(state) is not AwaitingRun:
                self._arm(task)
            if owing:
                key = (task.expression.text, task.kind, task.state.served_through)
                waiting.setdefault(key, []).append(task)
            if index % STEP_TASKS == 0:
                yield
        for (text, kind, mark), those in waiting.items():
            owed = self._groups[text].owed(mark, minute, self.zone)
            if owed is not None:
                self._queue(kind, begin(owed.earliest), Wave(those, self._groups[text]))

    def leave(self, tasks: Sequence[Task]) -> Steps[None]:
        """Withdraw tasks. Waves and timers that still name them find nothing owed."""
        affected: dict[tuple[str, Kind], None] = {}  # in order, so that every run of a simulation is the same
        for task in tasks:
            affected[task.expression.text, task.kind] = None
            task.state = Withdrawn(task.state.served_through)
            yield
        for text, kind in affected:
            group = self._groups[text]
            group.tasks[kind] = [task for task in group.tasks[kind] if not isinstance(task.state, Withdrawn)]
            group.fresh_waves[kind] = None
            if not any(group.tasks.values()):
                del self._groups[text]
            yield
        self.size -= len(tasks)

    def change_kind(self, tasks: Sequence[tuple[Task, Kind]], now: Instant) -> None:
        """A preserved task's newest callback runs elsewhere: it moves to the other queue."""
        affected: dict[tuple[str, Kind], None] = {}  # in order, so that every run of a simulation is the same
        for task, kind in tasks:
            affected[task.expression.text, task.kind] = None
            task.kind = kind
            self._groups[task.expression.text].tasks[kind].append(task)
        for text, kind in affected:
            group = self._groups[text]
            group.tasks[kind] = [task for task in group.tasks[kind] if task.kind is kind]
            group.fresh_waves[kind] = None
        for task, _ in tasks:
            self.review(task, now)

    def rebuild(self, now: Instant, *, zone: tzinfo | None = None) -> Steps[None]:
        """Compute everything anew: the clock went back, or the zone changed. Yields so that others may work."""
        if zone is not None:
            self.zone = zone
            self._minute_ends = self._minute_begins  # minutes may begin elsewhere there
        tasks = list(self.tasks())
        self._groups.clear()
        self._calendar.clear()
        self._timers.clear()
        self._queues = {Kind.LOOP: [], Kind.THREAD: []}
        self.size = 0
        return self.enter(tasks, now)

    def too_far_ahead(self, now: Instant) -> Steps[bool]:
        """Whether the clock was set back so far that any state needs to be corrected."""
        minute = self.minute(now)
        for index, task in enumerate(self.tasks()):
            if corrected(task.state, now, minute, task.delay) is not task.state:
                return True
            if index % STEP_TASKS == 0:
                yield
        return False

    def correct(self, now: Instant) -> Steps[None]:
        """Apply SPEC 2.5 to every state. Yields so that others may work; nothing may be decided meanwhile."""
        minute = self.minute(now)
        for index, task in enumerate(self.tasks()):
            task.state = corrected(task.state, now, minute, task.delay)
            if index % STEP_TASKS == 0:
                yield

    # --- when to look ------------------------------------------------------------------------------------------------

    def queue_due(self, now: Instant) -> Steps[None]:
        """Move what has come due, or ripe, into the queues; a step is one group or one timer."""
        minute = self.minute(now)
        while self._calendar and self._calendar[0][0] <= minute:
            due, _, group = heappop(self._calendar)
            if self._groups.get(group.expression.text) is not group:
                continue  # all its tasks were withdrawn
            for kind, tasks in group.tasks.items():
                # A wave that nobody has touched asks every task already.
                if tasks and group.fresh_waves[kind] is None:
                    wave = group.fresh_waves[kind] = Wave(tasks, group)
                    self._queue(kind, begin(due), wave)
            group.look_ahead(minute, self.zone)
            self._await_next(group)
            yield
        while self._timers and self._timers[0][0] <= now:
            ripe, _, task, state = heappop(self._timers)
            if task.state is state:
                self._queue(task.kind, ripe, Wave((task,), self._groups[task.expression.text]))
            yield

    def next_timer(self) -> Instant | None:
        """When the earliest retry or resumption is ripe."""
        while self._timers and self._timers[0][2].state is not self._timers[0][3]:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def next_due(self) -> Minute | None:
        """The earliest minute that a group waits for; also one whose tasks have all been withdrawn since."""
        return self._calendar[0][0] if self._calendar else None

    @property
    def waiting(self) -> bool:
        """Whether anything is queued that has not been asked yet, for want of a slot."""
        return any(self._queues.values())

    def review(self, task: Task, now: Instant) -> bool:
        """Look at one task whose state has changed; True when it owes something already."""
        if isinstance(task.state, Withdrawn):
            return False
        self._arm(task)
        group = self._groups.get(task.expression.text)
        if group is None:
            return False  # a rebuild is under way, and will come to it
        owed = group.owed(task.state.served_through, self.minute(now), self.zone)
        if owed is not None:
            self._queue(task.kind, begin(owed.earliest), Wave((task,), group))
        return owed is not None

    def due_since(self, task: Task, now: Instant) -> Minute | None:
        """The earliest due minute that a task has not served, running or not."""
        group = self._groups.get(task.expression.text)
        if group is None or isinstance(task.state, Withdrawn):
            return None
        owed = group.owed(task.state.served_through, self.minute(now), self.zone)
        return None if owed is None else owed.earliest

    # --- what starts -------------------------------------------------------------------------------------------------

    def in_order(self, kind: Kind) -> Iterator[tuple[Instant, int, Wave]]:
        """The queued waves of a kind, longest owed first, without taking any out."""
        queue = self._queues[kind]
        frontier = [(queue[0], 0)] if queue else []
        while frontier:
            entry, index = heappop(frontier)
            yield entry
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(queue):
                    heappush(frontier, (queue[child], child))

    def apply(self, decision: Decision, granted: Starts) -> None:
        """The decision is durable: the tasks run, and the waves have been gone through as far as it did."""
        for block in granted.blocks:
            after = block.grounds.after
            for task in block.tasks:
                task.state = after
        for kind, wave, position in decision.reached:
            wave.position = position
            if wave.group.fresh_waves[kind] is wave:
                wave.group.fresh_waves[kind] = None
            queue = self._queues[kind]
            while queue and queue[0][2].position >= len(queue[0][2].tasks):
                heappop(queue)
        for (kind, since, group), tasks in decision.younger.items():
            self._queue(kind, since, Wave(tuple(tasks), group))

    def _group(self, expression: CronExpression, minute: Minute) -> Group:
        group = self._groups.get(expression.text)
        if group is None:
            group = self._groups[expression.text] = Group(expression)
            group.arrive(minute, self.zone)
            self._await_next(group)
        return group

    def _await_next(self, group: Group) -> None:
        heappush(self._calendar, (group.next_due, next(self._tickets), group))

    def _arm(self, task: Task) -> None:
        state = task.state
        if isinstance(state, AwaitingRetry):
            heappush(self._timers, (state.pending_retry_until, next(self._tickets), task, state))
        elif isinstance(state, Interrupted):
            for ripe in (state.resume_at, state.pending_retry_until):
                if ripe is not None:
                    heappush(self._timers, (ripe, next(self._tickets), task, state))

    def _queue(self, kind: Kind, since: Instant, wave: Wave) -> None:
        heappush(self._queues[kind], (since, next(self._tickets), wave))


def decide(agenda: Agenda, now: Instant, slots: Slots, *, limit: int, first_run: int) -> Decision:
    """Choose what starts now, longest owed first; only reads.

    At most `limit` starts, found by asking about twice as many tasks at most, so that one decision is short. When
    `evaluated` is not 0 there may be more to find: apply the decision and decide again.
    """
    decision = Decision(now)
    minute = agenda.minute(now)
    room = limit if slots.total is None else min(limit, slots.total)
    walks = [_Walk(agenda, kind, slots.of(kind)) for kind in Kind]
    while True:
        open_walks = [walk for walk in walks if walk.wave is not None and walk.room != 0]
        if not open_walks or decision.starts.count >= room or decision.evaluated >= 2 * limit:
            break
        walk = min(open_walks, key=lambda each: each.since)
        if decision.put_off_since < walk.since:
            decision.cut_short = True
            break
        walk.ask(decision, minute, room=room, most=limit, first_run=first_run)
    for walk in walks:
        decision.reached.extend(walk.reached)
    return decision


class _Walk:
    """One kind's way through its queue within one decision."""

    def __init__(self, agenda: Agenda, kind: Kind, room: int | None) -> None:
        self.kind = kind
        self.room = sys.maxsize if room is None else max(room, 0)
        self.reached: list[tuple[Kind, Wave, int]] = []
        self._zone = agenda.zone
        self._walked: set[Group] = set()
        self._waves = agenda.in_order(kind)
        self.wave: Wave | None
        self.since: Instant
        self._position: int
        self._advance()

    def ask(self, decision: Decision, minute: Minute, *, room: int, most: int, first_run: int) -> None:
        """Ask at most `most` tasks of the present wave, until it, the slots or the room is used up."""
        wave = self.wave
        assert wave is not None
        group, starts = wave.group, decision.starts
        # A group's waves may name a task twice, those of different groups never do.
        if decision.chosen is None and group in self._walked:
            decision.chosen = {start.task for start in starts.singles()}
        self._walked.add(group)
        begun = self._position
        end = min(len(wave.tasks), begun + most)
        # Each task asked is one start at most: as many as there is room for can be asked together.
        while space := min(end - self._position, room - starts.count, self.room):
            tasks = wave.tasks[self._position : self._position + space]
            self._position += space
            self._ask_these(tasks, decision, group, minute, first_run)
        decision.evaluated += self._position - begun
        self.reached.append((self.kind, wave, self._position))
        if self._position >= len(wave.tasks):
            self._advance()

    def _ask_these(
        self, tasks: Sequence[Task], decision: Decision, group: Group, minute: Minute, first_run: int
    ) -> None:
        kind, starts, chosen = self.kind, decision.starts, decision.chosen
        # States are shared, so in a wave of many the same answer serves all in the same situation.
        seen = tasks[0].state
        grounds = self._grounds(seen, decision, group, minute)
        if (
            chosen is None
            and grounds is not None
            and grounds.owed_since <= self.since
            and _are_alike(tasks, seen, kind)
        ):
            # The common case, in which thousands are due together: no task needs to be asked by itself.
            starts.add(tasks, first_run + starts.count, grounds)
            self.room -= len(tasks)
            return
        before = starts.count
        for task in tasks:
            if task.state is not seen:
                seen = task.state
                grounds = self._grounds(seen, decision, group, minute)
            if grounds is None or task.kind is not kind or task.predecessor_runs:
                continue
            if grounds.owed_since > self.since:
                # In order, and each once: it may stand in more than one wave from before it was served.
                decision.younger.setdefault((kind, grounds.owed_since, group), {})[task] = None
                decision.put_off_since = min(decision.put_off_since, grounds.owed_since)
                continue
            if chosen is not None:
                if task in chosen:
                    continue
                chosen.add(task)
            starts.add((task,), first_run + starts.count, grounds)
        self.room -= starts.count - before

    def _grounds(self, state: TaskState, decision: Decision, group: Group, minute: Minute) -> Grounds | None:
        """Computed once for all tasks of a decision in the same situation, so that they are also written together."""
        owed = group.owed(state.served_through, minute, self._zone)
        situation = id(state), owed
        if situation not in decision.grounds:
            decision.grounds[situation] = grounds_for(state, owed, decision.at, minute)
        return decision.grounds[situation]

    def _advance(self) -> None:
        """On to the next wave, and how far it was asked before; None when there is no more."""
        entry = next(self._waves, None)
        if entry is None:
            self.wave = None
        else:
            self.since, _, self.wave = entry
            self._position = self.wave.position


def _are_alike(tasks: Sequence[Task], state: TaskState, kind: Kind) -> bool:
    """Whether all of them are in this state, run in this place, and wait for nobody."""
    return not [None for task in tasks if task.state is not state or task.kind is not kind or task.predecessor_runs]
