"""All tasks, indexed by when they need attention, and `decide()`: what starts now and when to look again.

Tasks of one expression form a group: its occurrences are computed once for all of them. Groups wait in a calendar for
their next due minute, single tasks in a heap of timers for their retry or resumption. What is due moves, as a *wave*
of tasks, into one queue per kind of callback, longest owed first. Cost per look follows what is due, not what exists.

The agenda is an index, never the truth: being in a wave means being asked, and `obligation()` answers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from duly.core.cron import CronExpression
from duly.core.moments import MICROSECONDS, Instant, Minute, begin, minute_of
from duly.core.occurrences import latest_until, next_after
from duly.core.registration import Kind
from duly.core.task import (
    AwaitingRetry,
    Grounds,
    Interrupted,
    Owed,
    Start,
    Task,
    Withdrawn,
    corrected,
    grounds_for,
)
from duly.errors import CronCalculationError

_NEVER: Final = Minute(1 << 62)


class Slots(NamedTuple):
    """How many callbacks may begin now; None is no limit."""

    total: int | None = None
    threads: int | None = None

    def of(self, kind: Kind) -> int | None:
        """The free slots of a kind, by its own limit alone."""
        return self.threads if kind is Kind.THREAD else None


class Group:
    """The tasks of one expression, by kind, and its occurrences, computed once for all of them."""

    __slots__ = ("_latest", "_looked_at", "_owed", "expression", "fresh_waves", "tasks")

    def __init__(self, expression: CronExpression) -> None:
        self.expression = expression
        self.tasks: dict[Kind, list[Task]] = {Kind.LOOP: [], Kind.THREAD: []}
        self.fresh_waves: dict[Kind, Wave | None] = {Kind.LOOP: None, Kind.THREAD: None}
        self._looked_at: Minute | None = None
        self._latest: Minute | None = None
        self._owed: dict[Minute, Owed | None] = {}

    def owed(self, served_through: Minute, minute: Minute, zone: tzinfo) -> Owed | None:
        """The due minutes after a mark and up to this minute."""
        if minute != self._looked_at:
            self._latest = latest_until(self.expression, minute, zone)
            self._looked_at = minute
            self._owed.clear()
        if self._latest is None or self._latest <= served_through:
            return None
        if served_through not in self._owed:
            self._owed[served_through] = Owed(next_after(self.expression, served_through, zone), self._latest)
        return self._owed[served_through]


class Wave:
    """Tasks that are to be asked what they owe, in order, from `position` on."""

    __slots__ = ("group", "position", "tasks")

    def __init__(self, tasks: Sequence[Task], group: Group) -> None:
        self.tasks = tasks
        self.group = group
        self.position = 0


_Queue = list[tuple[Instant, int, Wave]]


@dataclass(slots=True)
class Decision:
    """What `decide` chose, and how far it went through the waves; nothing has changed yet."""

    at: Instant
    starts: list[Start] = field(default_factory=list)
    chosen: set[Task] | None = None  # a task can stand in several waves, and starts once; kept from the second wave on
    evaluated: int = 0
    reached: list[tuple[Kind, Wave, int]] = field(default_factory=list)
    younger: dict[tuple[Kind, Instant, Group], list[Task]] = field(default_factory=dict)
    """Tasks that were served after their wave had formed: what they owe by now waits its own turn."""


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

    def enter(self, tasks: Iterable[Task], now: Instant) -> Iterator[None]:
        """Add tasks; what they owe already is queued, longest owed first. Yields so that others may work."""
        minute = self.minute(now)
        waiting: dict[tuple[str, Kind, Minute], list[Task]] = {}
        for task in tasks:
            group = self._groups.get(task.expression.text)
            if group is None:
                group = self._groups[task.expression.text] = Group(task.expression)
                self._await_next(group, minute)
            group.tasks[task.kind].append(task)
            self.size += 1
            self._arm(task)
            if group.owed(task.state.served_through, minute, self.zone) is not None:
                waiting.setdefault((task.expression.text, task.kind, task.state.served_through), []).append(task)
            yield
        for (text, kind, mark), owing in waiting.items():
            group = self._groups[text]
            owed = group.owed(mark, minute, self.zone)
            if owed is not None:
                self._queue(kind, begin(owed.earliest), Wave(owing, group))

    def leave(self, tasks: Sequence[Task]) -> Iterator[None]:
        """Withdraw tasks. Waves and timers that still name them find nothing owed."""
        affected: set[tuple[str, Kind]] = set()
        for task in tasks:
            affected.add((task.expression.text, task.kind))
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
        affected: set[tuple[str, Kind]] = set()
        for task, kind in tasks:
            affected.add((task.expression.text, task.kind))
            task.kind = kind
            self._groups[task.expression.text].tasks[kind].append(task)
        for text, kind in affected:
            group = self._groups[text]
            group.tasks[kind] = [task for task in group.tasks[kind] if task.kind is kind]
            group.fresh_waves[kind] = None
        for task, _ in tasks:
            self.review(task, now)

    def rebuild(self, now: Instant, *, zone: tzinfo | None = None) -> Iterator[None]:
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

    def correct(self, now: Instant) -> int:
        """Apply SPEC 2.5 to every state after the clock was set back; returns how many were too far ahead."""
        minute = self.minute(now)
        changed = 0
        for task in self.tasks():
            state = corrected(task.state, now, minute, task.delay)
            if state is not task.state:
                task.state = state
                changed += 1
        return changed

    # --- when to look ------------------------------------------------------------------------------------------------

    def notice(self, now: Instant) -> None:
        """Move what has come due, or ripe, into the queues."""
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
            self._await_next(group, minute)
        while self._timers and self._timers[0][0] <= now:
            ripe, _, task, state = heappop(self._timers)
            if task.state is state:
                self._queue(task.kind, ripe, Wave((task,), self._groups[task.expression.text]))

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

    def apply(self, decision: Decision, granted: Iterable[Start]) -> None:
        """The decision is durable: the tasks run, and the waves have been gone through as far as it did."""
        for start in granted:
            start.task.state = start.grounds.after
        for kind, wave, position in decision.reached:
            wave.position = position
            if wave.group.fresh_waves[kind] is wave:
                wave.group.fresh_waves[kind] = None
            queue = self._queues[kind]
            while queue and queue[0][2].position >= len(queue[0][2].tasks):
                heappop(queue)
        for (kind, since, group), tasks in decision.younger.items():
            self._queue(kind, since, Wave(tasks, group))

    def _await_next(self, group: Group, minute: Minute) -> None:
        try:
            due = next_after(group.expression, minute, self.zone)
        except CronCalculationError:
            due = _NEVER  # the calendar ends in 9999
        heappush(self._calendar, (due, next(self._tickets), group))

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
        if not open_walks or len(decision.starts) >= room or decision.evaluated >= 2 * limit:
            break
        walk = min(open_walks, key=lambda each: each.since)
        walk.ask(decision, minute, room=room, most=limit, first_run=first_run)
    for walk in walks:
        decision.reached.extend(walk.reached)
    return decision


class _Walk:
    """One kind's way through its queue within one decision."""

    def __init__(self, agenda: Agenda, kind: Kind, room: int | None) -> None:
        self.kind = kind
        self.room = -1 if room is None else max(room, 0)  # never reaches 0 when there is no limit
        self.reached: list[tuple[Kind, Wave, int]] = []
        self._zone = agenda.zone
        self._waves = agenda.in_order(kind)
        self._position = 0
        self.wave: Wave | None = None
        self.since = Instant(0)
        self._advance()

    def ask(self, decision: Decision, minute: Minute, *, room: int, most: int, first_run: int) -> None:
        """Ask at most `most` tasks of the present wave, until it, the slots or the room is used up."""
        wave = self.wave
        assert wave is not None
        tasks, group, starts, now = wave.tasks, wave.group, decision.starts, decision.at
        if starts and decision.chosen is None:
            decision.chosen = {start.task for start in starts}
        chosen = decision.chosen
        begun = position = self._position
        end = min(len(tasks), begun + most)
        seen: object = None
        grounds: Grounds | None = None
        while position < end and len(starts) < room and self.room != 0:
            task = tasks[position]
            position += 1
            state = task.state
            # States are shared, so in a wave of many the same answer serves all in the same situation.
            if state is not seen:
                seen = state
                owed = group.owed(state.served_through, minute, self._zone)
                grounds = grounds_for(state, owed, now, minute)
            if grounds is None:
                continue
            if task.kind is not self.kind or task.predecessor_runs:
                continue
            if grounds.owed_since > self.since:
                decision.younger.setdefault((self.kind, grounds.owed_since, group), []).append(task)
                continue
            if chosen is not None:
                if task in chosen:
                    continue
                chosen.add(task)
            starts.append(Start(task, first_run + len(starts), grounds))
            self.room -= 1
        decision.evaluated += position - begun
        self._position = position
        self.reached.append((self.kind, wave, position))
        if position >= len(tasks):
            self._advance()

    def _advance(self) -> None:
        entry = next(self._waves, None)
        self.since, self.wave = (entry[0], entry[2]) if entry else (Instant(0), None)
        self._position = self.wave.position if self.wave is not None else 0
