"""Tasks that share an expression, its due minutes, and the lists of tasks that are to be asked what they owe."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

from duly.core.cron import CronExpression
from duly.core.due import latest_due, next_due
from duly.core.moments import Minute
from duly.core.registration import RunsOn
from duly.core.task import Owed, Task
from duly.errors import CronCalculationError

NEVER: Final = Minute(1 << 62)


class Group:
    """The tasks of one expression, by where they run, and its occurrences, computed once for all of them.

    It remembers the stretch of the calendar around now: nothing is due after `_quiet_since` and before `next_due`, and
    before it nothing was due after `_quiet_before_due` and before `_due`. That answers nearly every question without
    another search.
    """

    __slots__ = (
        "_due",
        "_latest",
        "_looked_at",
        "_owed",
        "_quiet_before_due",
        "_quiet_since",
        "expression",
        "next_due",
        "parts",
        "tasks",
        "untouched",
    )

    def __init__(self, expression: CronExpression) -> None:
        self.expression = expression
        self.tasks: dict[RunsOn, list[Task]] = {RunsOn.LOOP: [], RunsOn.THREAD: []}
        self.untouched: dict[RunsOn, DueList | None] = {RunsOn.LOOP: None, RunsOn.THREAD: None}
        """The queued due list of all tasks, as long as no decision has asked any of them."""
        self.parts: dict[RunsOn, Parts] = {}
        """Where hosts share what is due: the parts that were queued last."""
        self.next_due = NEVER
        self._quiet_since = self._quiet_before_due = self._due = NEVER
        self._looked_at: Minute | None = None
        self._latest: Minute | None = None
        self._owed: dict[Minute, Owed | None] = {}

    def arrive(self, minute: Minute, zone: tzinfo) -> None:
        """Search the calendar for the first time, in this minute."""
        # From the minute before, because that is `served_through` of a task that is declared in this minute.
        self.look_ahead(Minute(minute - 60), zone)
        if self.next_due <= minute:
            self.look_ahead(minute, zone)

    def look_ahead(self, minute: Minute, zone: tzinfo) -> None:
        """Search for the next due minute after this one."""
        self._quiet_before_due, self._due = self._quiet_since, self.next_due
        self._quiet_since = minute
        try:
            self.next_due = next_due(self.expression, minute, zone)
        except CronCalculationError:
            self.next_due = NEVER  # the calendar ends in 9999

    def owed(self, served_through: Minute, minute: Minute, zone: tzinfo) -> Owed | None:
        """The due minutes after `served_through` and up to this minute."""
        if self._quiet_since <= minute < self.next_due and self._quiet_since <= served_through:
            return None
        if minute != self._looked_at:
            if minute == self._quiet_since == self._due:
                self._latest = minute
            else:
                self._latest = latest_due(self.expression, minute, zone)
            self._looked_at = minute
            self._owed.clear()
        if self._latest is None or self._latest <= served_through:
            return None
        if served_through not in self._owed:
            if self._quiet_before_due <= served_through < self._due:
                earliest = self._due
            else:
                earliest = next_due(self.expression, served_through, zone)
            self._owed[served_through] = Owed(earliest, self._latest)
        return self._owed[served_through]


class Parts:
    """Due lists that are the parts of a group's tasks, one for each host, by their place."""

    __slots__ = ("_keys", "_number", "_tasks", "lists")

    def __init__(self, tasks: Sequence[Task], keys: tuple[int, ...]) -> None:
        self.lists: dict[int, DueList] = {}
        self._tasks, self._number, self._keys = tasks, len(tasks), keys

    def divide(self, tasks: Sequence[Task], keys: tuple[int, ...]) -> bool:
        """Whether they are still the parts of these tasks for these hosts."""
        return self._tasks is tasks and self._number == len(tasks) and self._keys == keys


class DueList:
    """Tasks that are due together; those from `position` on have not been asked yet what they owe."""

    __slots__ = ("group", "position", "tasks")

    def __init__(self, tasks: Sequence[Task], group: Group) -> None:
        self.tasks = tasks
        self.group = group
        self.position = 0
