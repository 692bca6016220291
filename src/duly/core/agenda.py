"""All tasks in force, indexed by when they need attention, and `decide()`: what starts now.

Tasks of one expression form a group, whose occurrences are computed once. Groups wait in a calendar for their next due
minute, single tasks in a heap of timers for their retry or resumption. When they are due they move, as a *due list* of
tasks, into one of two queues (event loop, threads), longest owed first. A poll costs what is due, not what exists.

Where several hosts share the work, a due list is divided, and the parts of other hosts are held back for a while.

The agenda is only an index: a task in a due list is asked what it owes, and `obligation()` answers.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from duly.core.changes import Starts
from duly.core.cron import CronExpression
from duly.core.groups import DueList, Group, Parts
from duly.core.moments import LAST_INSTANT, MICROSECONDS, Instant, Minute, begin, minute_of
from duly.core.registration import RunsOn
from duly.core.resolution import NO_MARKS, Mark, lowered_marks
from duly.core.share import ALL, Share
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

__all__ = ["Agenda", "Decision", "DueList", "Group", "Slots", "decide"]


class Slots(NamedTuple):
    """How many callbacks may begin now; None is no limit."""

    total: int | None = None
    threads: int | None = None

    def of(self, runs_on: RunsOn) -> int | None:
        """How many callbacks may begin on the event loop, or in threads, apart from the limit for both together."""
        return self.threads if runs_on is RunsOn.THREAD else None


_Queue = list[tuple[Instant, int, DueList]]


@dataclass(slots=True)
class Decision:
    """The choice of `decide`, and how far it went through the due lists; the agenda has not changed yet."""

    at: Instant
    starts: Starts = field(default_factory=Starts)
    chosen: set[Task] | None = None
    """Tasks that start; kept from the second due list of one group on, because both may contain the same task."""
    grounds: dict[tuple[int, Owed | None], Grounds | None] = field(default_factory=dict)
    """Why tasks start, or None, by the identity of their state and what is owed."""
    evaluated: int = 0
    """How many tasks were asked what they owe."""
    progress: list[tuple[RunsOn, DueList, int]] = field(default_factory=list)
    """How far each due list was gone through."""
    requeue: dict[tuple[RunsOn, Instant, Group], dict[Task, None]] = field(default_factory=dict)
    """Tasks that owe only something newer than their due list; they are queued again, as owed since then."""
    requeue_since: Instant = LAST_INSTANT
    """The earliest instant in `requeue`."""
    stopped_early: bool = False
    """Whether the next due list is owed since later than a task in `requeue`, which must come first."""


class Agenda:
    """The index over all tasks in force."""

    def __init__(self, zone: tzinfo, scheduler_key: int = 0) -> None:
        self.zone = zone
        self._scheduler_key = scheduler_key  # of the scheduler that writes the starts
        self.size = 0
        self.marks: Mapping[str, Mark] = NO_MARKS
        """The marks of withdrawn declarations, by name; for the next initialize()."""
        self.share: Share = ALL
        """Which part of what falls due is this scheduler's own; it counts for what is queued from now on."""
        self._groups: dict[str, Group] = {}
        self._calendar: list[tuple[Minute, int, Group]] = []
        self._timers: list[tuple[Instant, int, Task, AwaitingRetry | Interrupted]] = []
        self._queues: dict[RunsOn, _Queue] = {RunsOn.LOOP: [], RunsOn.THREAD: []}
        self._held_back: list[tuple[Instant, int, RunsOn, Instant, DueList]] = []
        """Due lists that are other hosts' first, by the instant from which this one takes them."""
        self._tickets = count()
        self._minute = Minute(0)
        self._minute_begins = self._minute_ends = Instant(0)

    def minute(self, now: Instant) -> Minute:
        """The minute that contains `now`; kept, because every start and every end needs it."""
        if not self._minute_begins <= now < self._minute_ends:
            self._minute = minute_of(now, self.zone)
            self._minute_begins = begin(self._minute)
            self._minute_ends = Instant(self._minute_begins + 60 * MICROSECONDS)
        return self._minute

    def minute_ends(self, now: Instant) -> Instant:
        """The instant at which the minute that contains `now` ends."""
        self.minute(now)
        return self._minute_ends

    # --- tasks in force ----------------------------------------------------------------------------------------------

    def tasks(self) -> Iterator[Task]:
        """Every task, grouped by expression."""
        for group in self._groups.values():
            for tasks in group.tasks.values():
                yield from tasks

    def enter(self, tasks: Iterable[Task], now: Instant) -> Steps[None]:
        """Add tasks, and queue what they owe already, longest owed first."""
        minute = self.minute(now)
        waiting: dict[tuple[str, RunsOn, Minute], list[Task]] = {}
        expression = group = state = None
        owing = False
        for index, task in enumerate(tasks):
            # Mostly a task has the expression and the state of the one before it, so both are looked up rarely.
            if task.expression is not expression or group is None:
                expression, state = task.expression, None
                group = self._group(task.expression, minute)
            if task.state is not state:
                state = task.state
                owing = group.owed(state.served_through, minute, self.zone) is not None
            group.tasks[task.runs_on].append(task)
            self.size += 1
            if type(state) is not AwaitingRun:
                self._arm(task)
            if owing:
                key = (task.expression.text, task.runs_on, task.state.served_through)
                waiting.setdefault(key, []).append(task)
            if index % STEP_TASKS == 0:
                yield
        for (text, runs_on, served_through), owing_tasks in waiting.items():
            owed = self._groups[text].owed(served_through, minute, self.zone)
            if owed is not None:
                self._queue(runs_on, begin(owed.earliest), DueList(owing_tasks, self._groups[text]))

    def leave(self, tasks: Sequence[Task]) -> Steps[None]:
        """Withdraw tasks; due lists and timers that still contain them find that they owe nothing."""
        affected: dict[tuple[str, RunsOn], None] = {}  # a set with an order, so that simulations can be repeated
        for task in tasks:
            affected[task.expression.text, task.runs_on] = None
            task.state = Withdrawn(task.state.served_through)
            yield
        for text, runs_on in affected:
            group = self._groups[text]
            group.tasks[runs_on] = [task for task in group.tasks[runs_on] if not isinstance(task.state, Withdrawn)]
            group.untouched[runs_on] = None
            if not any(group.tasks.values()):
                del self._groups[text]
            yield
        self.size -= len(tasks)

    def change_queue(self, tasks: Sequence[tuple[Task, RunsOn]], now: Instant) -> None:
        """Move preserved tasks to the other queue, because their newest callbacks run elsewhere."""
        affected: dict[tuple[str, RunsOn], None] = {}  # a set with an order, so that simulations can be repeated
        for task, runs_on in tasks:
            affected[task.expression.text, task.runs_on] = None
            task.runs_on = runs_on
            self._groups[task.expression.text].tasks[runs_on].append(task)
        for text, runs_on in affected:
            group = self._groups[text]
            group.tasks[runs_on] = [task for task in group.tasks[runs_on] if task.runs_on is runs_on]
            group.untouched[runs_on] = None
        for task, _ in tasks:
            self.review(task, now)

    def rebuild(self, now: Instant, *, zone: tzinfo | None = None) -> Steps[None]:
        """Build the whole index again, because the clock was set back or the zone changed."""
        if zone is not None:
            self.zone = zone
            self._minute_ends = self._minute_begins  # compute the minute again: in this zone it may begin elsewhere
        return self.refill(list(self.tasks()), now)

    def refill(self, tasks: Sequence[Task], now: Instant) -> Steps[None]:
        """Build the whole index again, for these tasks."""
        self._groups.clear()
        self._calendar.clear()
        self._timers.clear()
        self._held_back.clear()
        self._queues = {RunsOn.LOOP: [], RunsOn.THREAD: []}
        self.size = 0
        return self.enter(tasks, now)

    def too_far_ahead(self, now: Instant) -> Steps[bool]:
        """Whether the clock was set back so far that any state, or a mark, needs to be corrected."""
        minute = self.minute(now)
        if lowered_marks(self.marks, now, minute) is not self.marks:
            return True
        for index, task in enumerate(self.tasks()):
            if corrected(task.state, now, minute, task.delay) is not task.state:
                return True
            if index % STEP_TASKS == 0:
                yield
        return False

    def correct(self, now: Instant) -> Steps[None]:
        """Apply SPEC 2.5 to every state and mark; nothing may be decided before the last step."""
        minute = self.minute(now)
        self.marks = lowered_marks(self.marks, now, minute)
        for index, task in enumerate(self.tasks()):
            task.state = corrected(task.state, now, minute, task.delay)
            if index % STEP_TASKS == 0:
                yield

    # --- what is due -------------------------------------------------------------------------------------------------

    def queue_due(self, now: Instant) -> Steps[None]:
        """Queue the tasks of groups that are due and of timers that are ripe; a step is one group or one timer."""
        minute = self.minute(now)
        while self._calendar and self._calendar[0][0] <= minute:
            due, _, group = heappop(self._calendar)
            if self._groups.get(group.expression.text) is not group:
                continue  # all its tasks were withdrawn
            for runs_on, tasks in group.tasks.items():
                # A due list that no decision has touched yet will ask every task of the group anyway.
                if tasks and group.untouched[runs_on] is None:
                    if self.share.divides:
                        self._queue_parts_of_group(runs_on, begin(due), group)
                    else:
                        group.untouched[runs_on] = due_list = DueList(tasks, group)
                        self._queue(runs_on, begin(due), due_list)
            group.look_ahead(minute, self.zone)
            self._await_next(group)
            yield
        while self._timers and self._timers[0][0] <= now:
            ripe, _, task, state = heappop(self._timers)
            if task.state is state:
                self._queue(task.runs_on, ripe, DueList((task,), self._groups[task.expression.text]))
            yield
        while self.has_ripe_share(now):
            # With a new ticket: what is left of its own part comes first, where no other host is at work yet.
            _, _, runs_on, since, due_list = heappop(self._held_back)
            heappush(self._queues[runs_on], (since, next(self._tickets), due_list))

    def has_ripe_share(self, now: Instant) -> bool:
        """Whether the time has come for due lists that were held back, because other hosts may be slow or gone."""
        return bool(self._held_back) and self._held_back[0][0] <= now

    def next_timer(self) -> Instant | None:
        """The instant at which the next retry or resumption is ripe, or a due list is held back no longer."""
        while self._timers and self._timers[0][2].state is not self._timers[0][3]:
            heappop(self._timers)
        timer = self._timers[0][0] if self._timers else None
        turn = self._held_back[0][0] if self._held_back else None
        return turn if timer is None or (turn is not None and turn < timer) else timer

    def next_due(self) -> Minute | None:
        """The earliest due minute that a group waits for, even if all its tasks have been withdrawn since."""
        return self._calendar[0][0] if self._calendar else None

    @property
    def waiting(self) -> bool:
        """Whether a due list is queued, new or left over for want of a slot."""
        return any(self._queues.values())

    def review(self, task: Task, now: Instant) -> bool:
        """Index one task whose state has changed; True if it owes a due minute already."""
        if isinstance(task.state, Withdrawn):
            return False
        self._arm(task)
        group = self._groups.get(task.expression.text)
        if group is None:
            return False  # a rebuild is under way, and has not come to this group yet
        owed = group.owed(task.state.served_through, self.minute(now), self.zone)
        if owed is not None:
            self._queue(task.runs_on, begin(owed.earliest), DueList((task,), group))
        return owed is not None

    def due_since(self, task: Task, now: Instant) -> Minute | None:
        """The earliest due minute that no start of a task has served, whether or not the task is running."""
        group = self._groups.get(task.expression.text)
        if group is None or isinstance(task.state, Withdrawn):
            return None
        owed = group.owed(task.state.served_through, self.minute(now), self.zone)
        return None if owed is None else owed.earliest

    # --- what starts -------------------------------------------------------------------------------------------------

    def due_lists(self, runs_on: RunsOn) -> Iterator[tuple[Instant, int, DueList]]:
        """The due lists of a queue with the instants since when they are owed, longest first; removes none."""
        queue = self._queues[runs_on]
        frontier = [(queue[0], 0)] if queue else []
        while frontier:
            entry, index = heappop(frontier)
            yield entry
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(queue):
                    heappush(frontier, (queue[child], child))

    def apply(self, decision: Decision, granted: Starts) -> None:
        """Carry out a decision that is durable: granted tasks are running, due lists move on, tasks are requeued."""
        for block in granted.blocks:
            after = block.grounds.after
            for task in block.tasks:
                task.state = after
                task.written_by = self._scheduler_key
        for runs_on, due_list, position in decision.progress:
            due_list.position = position
            if due_list.group.untouched[runs_on] is due_list:
                due_list.group.untouched[runs_on] = None
            queue = self._queues[runs_on]
            while queue and queue[0][2].position >= len(queue[0][2].tasks):
                heappop(queue)
        for (runs_on, since, group), tasks in decision.requeue.items():
            self._queue(runs_on, since, DueList(tuple(tasks), group))

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

    def _queue(self, runs_on: RunsOn, since: Instant, due_list: DueList) -> None:
        share, tasks = self.share, due_list.tasks
        if not share.divides:
            heappush(self._queues[runs_on], (since, next(self._tickets), due_list))
        elif len(tasks) == 1:
            self._hold_back(share.turn(tasks[0].generation, tasks[0].written_by, since), runs_on, since, due_list)
        else:
            for _, part, turn in share.parts(tasks, since, tasks[0].generation):
                self._hold_back(turn, runs_on, since, DueList(part, due_list.group))

    def _queue_parts_of_group(self, runs_on: RunsOn, since: Instant, group: Group) -> None:
        """Queue this host's part of a group that is due, and hold back those of others.

        Parts are touched at different times; one that no decision has touched yet will ask all its tasks anyway.
        """
        share, tasks = self.share, group.tasks[runs_on]
        queued = group.parts.get(runs_on)
        if queued is None or not queued.divide(tasks, share.keys):
            queued = group.parts[runs_on] = Parts(tasks, share.keys)
        for place, part, turn in share.parts(tasks, since, tasks[0].generation):
            before = queued.lists.get(place)
            if before is None or before.position:
                queued.lists[place] = due_list = DueList(part, group)
                self._hold_back(turn, runs_on, since, due_list)

    def _hold_back(self, turn: Instant, runs_on: RunsOn, since: Instant, due_list: DueList) -> None:
        if turn <= since:
            heappush(self._queues[runs_on], (since, next(self._tickets), due_list))
        else:
            heappush(self._held_back, (turn, next(self._tickets), runs_on, since, due_list))


def decide(agenda: Agenda, now: Instant, slots: Slots, *, limit: int, first_run: int) -> Decision:
    """Choose what starts now, longest owed first; only reads.

    It chooses at most `limit` starts and asks at most about twice as many tasks, so that one decision is short. While
    `evaluated` is not 0 there may be more to find: apply the decision and decide again.
    """
    decision = Decision(now)
    minute = agenda.minute(now)
    room = limit if slots.total is None else min(limit, slots.total)
    walks = [_Walk(agenda, runs_on, slots.of(runs_on)) for runs_on in RunsOn]
    while True:
        open_walks = [walk for walk in walks if walk.due_list is not None and walk.room != 0]
        if not open_walks or decision.starts.count >= room or decision.evaluated >= 2 * limit:
            break
        walk = min(open_walks, key=lambda each: each.since)
        if decision.requeue_since < walk.since:
            decision.stopped_early = True
            break
        walk.ask(decision, minute, room=room, most=limit, first_run=first_run)
    for walk in walks:
        decision.progress.extend(walk.progress)
    return decision


class _Walk:
    """The way of one decision through the due lists of one queue."""

    def __init__(self, agenda: Agenda, runs_on: RunsOn, room: int | None) -> None:
        self.runs_on = runs_on
        self.room = sys.maxsize if room is None else max(room, 0)
        self.progress: list[tuple[RunsOn, DueList, int]] = []
        self._zone = agenda.zone
        self._walked: set[Group] = set()
        self._due_lists = agenda.due_lists(runs_on)
        self.due_list: DueList | None
        self.since: Instant
        self._position: int
        self._advance()

    def ask(self, decision: Decision, minute: Minute, *, room: int, most: int, first_run: int) -> None:
        """Ask at most `most` tasks of the present due list, as long as there are slots and room for starts."""
        due_list = self.due_list
        assert due_list is not None
        group, starts = due_list.group, decision.starts
        # Two due lists of one group may contain the same task; lists of different groups cannot.
        if decision.chosen is None and group in self._walked:
            decision.chosen = {start.task for start in starts.singles()}
        self._walked.add(group)
        begun = self._position
        end = min(len(due_list.tasks), begun + most)
        # A task gives one start at most, so as many tasks as there is room for are asked together.
        while space := min(end - self._position, room - starts.count, self.room):
            tasks = due_list.tasks[self._position : self._position + space]
            self._position += space
            self._ask_these(tasks, decision, group, minute, first_run)
        decision.evaluated += self._position - begun
        self.progress.append((self.runs_on, due_list, self._position))
        if self._position >= len(due_list.tasks):
            self._advance()

    def _ask_these(
        self, tasks: Sequence[Task], decision: Decision, group: Group, minute: Minute, first_run: int
    ) -> None:
        runs_on, starts, chosen = self.runs_on, decision.starts, decision.chosen
        # Tasks in the same situation share their state object, so one answer serves many of them.
        seen = tasks[0].state
        grounds = self._grounds(seen, decision, group, minute)
        if (
            chosen is None
            and grounds is not None
            and grounds.owed_since <= self.since
            and _are_equal(tasks, seen, runs_on)
        ):
            # The common case of thousands that are due together: one block, and no task is asked by itself.
            starts.add(tasks, first_run + starts.count, grounds)
            self.room -= len(tasks)
            return
        before = starts.count
        for task in tasks:
            if task.state is not seen:
                seen = task.state
                grounds = self._grounds(seen, decision, group, minute)
            if grounds is None or task.runs_on is not runs_on or task.predecessor_runs:
                continue
            if grounds.owed_since > self.since:
                # A dict, because a task that is in two older due lists must be requeued once.
                decision.requeue.setdefault((runs_on, grounds.owed_since, group), {})[task] = None
                decision.requeue_since = min(decision.requeue_since, grounds.owed_since)
                continue
            if chosen is not None:
                if task in chosen:
                    continue
                chosen.add(task)
            starts.add((task,), first_run + starts.count, grounds)
        self.room -= starts.count - before

    def _grounds(self, state: TaskState, decision: Decision, group: Group, minute: Minute) -> Grounds | None:
        """The grounds of tasks in this state, computed once per decision, so that they share a block of starts."""
        owed = group.owed(state.served_through, minute, self._zone)
        situation = id(state), owed
        if situation not in decision.grounds:
            decision.grounds[situation] = grounds_for(state, owed, decision.at, minute)
        return decision.grounds[situation]

    def _advance(self) -> None:
        """Go on with the next due list, from where earlier decisions stopped."""
        entry = next(self._due_lists, None)
        if entry is None:
            self.due_list = None
        else:
            self.since, _, self.due_list = entry
            self._position = self.due_list.position


def _are_equal(tasks: Sequence[Task], state: TaskState, runs_on: RunsOn) -> bool:
    """Whether all tasks have this very state object, belong to this queue, and wait for no predecessor's run."""
    return not [
        None for task in tasks if task.state is not state or task.runs_on is not runs_on or task.predecessor_runs
    ]
