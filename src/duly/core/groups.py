"""Tasks that share an expression, what is due of it, and the waves in which they are asked what they owe."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

from duly.core.cron import CronExpression
from duly.core.moments import Minute
from duly.core.occurrences import latest_until, next_after
from duly.core.registration import Kind
from duly.core.task import Owed, Task
from duly.errors import CronCalculationError

NEVER: Final = Minute(1 << 62)


class Group:
    """The tasks of one expression, by kind, and its occurrences, computed once for all of them.

    Between two searches it knows a stretch of the calendar: that nothing is due after `_quiet_since` and before
    `next_due`, and which minute ended the stretch before. That answers nearly every question without another search.
    """

    __slots__ = (
        "_due",
        "_latest",
        "_looked_at",
        "_owed",
        "_quiet_before_due",
        "_quiet_since",
        "expression",
        "fresh_waves",
        "next_due",
        "tasks",
    )

    def __init__(self, expression: CronExpression) -> None:
        self.expression = expression
        self.tasks: dict[Kind, list[Task]] = {Kind.LOOP: [], Kind.THREAD: []}
        self.fresh_waves: dict[Kind, Wave | None] = {Kind.LOOP: None, Kind.THREAD: None}
        self.next_due = NEVER
        self._quiet_since = self._quiet_before_due = self._due = NEVER
        self._looked_at: Minute | None = None
        self._latest: Minute | None = None
        self._owed: dict[Minute, Owed | None] = {}

    def arrive(self, minute: Minute, zone: tzinfo) -> None:
        """Begin to know the calendar, in this minute."""
        # From the minute before it, because that is the mark of a task that is new in this one.
        self.look_ahead(Minute(minute - 60), zone)
        if self.next_due <= minute:
            self.look_ahead(minute, zone)

    def look_ahead(self, minute: Minute, zone: tzinfo) -> None:
        """Find the next due minute after this one."""
        self._quiet_before_due, self._due = self._quiet_since, self.next_due
        self._quiet_since = minute
        try:
            self.next_due = next_after(self.expression, minute, zone)
        except CronCalculationError:
            self.next_due = NEVER  # the calendar ends in 9999

    def owed(self, served_through: Minute, minute: Minute, zone: tzinfo) -> Owed | None:
        """The due minutes after a mark and up to this minute."""
        if self._quiet_since <= minute < self.next_due and self._quiet_since <= served_through:
            return None
        if minute != self._looked_at:
            if minute == self._quiet_since == self._due:
                self._latest = minute
            else:
                self._latest = latest_until(self.expression, minute, zone)
            self._looked_at = minute
            self._owed.clear()
        if self._latest is None or self._latest <= served_through:
            return None
        if served_through not in self._owed:
            if self._quiet_before_due <= served_through < self._due:
                earliest = self._due
            else:
                earliest = next_after(self.expression, served_through, zone)
            self._owed[served_through] = Owed(earliest, self._latest)
        return self._owed[served_through]


class Wave:
    """Tasks that are to be asked what they owe, in order, from `position` on."""

    __slots__ = ("group", "position", "tasks")

    def __init__(self, tasks: Sequence[Task], group: Group) -> None:
        self.tasks = tasks
        self.group = group
        self.position = 0
