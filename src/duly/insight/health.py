"""The situation of each task, what is owed, and whether that is healthy.

Counts and problems follow from cohorts of tasks: what is owed is computed once for each expression and
`served_through`. Only the tasks that are shown are examined one by one.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import lru_cache
from itertools import islice
from typing import Final

from duly.core.cron import CronExpression
from duly.core.due import latest_due, next_due
from duly.core.moments import LAST_INSTANT, MICROSECONDS, Delay, Instant, Minute, begin, minute_of, zone_name
from duly.core.news import host_of
from duly.core.task import AwaitingRetry, AwaitingRun, Obligation, Running, interrupt, lateness_threshold
from duly.errors import CronCalculationError
from duly.insight.cluster import ClusterStatus, cluster_status, problems_of, warnings_of
from duly.insight.problem import Problem
from duly.insight.words import between, counted, names, stretch
from duly.insight.zone import zone_in_use
from duly.stores.port import Cohort, Holder, HostName, KnownTask, Snapshot, TaskPhase, View

POLL_PERIOD: Final = 60 * MICROSECONDS
STATES: Final = ("interrupted", "owed", "running", "retrying", "waiting")
"""The states of a task; those that need attention come first."""

_NAMES_MAX: Final = 5
_CALENDARS_MAX: Final = 20_000
"""Expressions whose occurrences are remembered."""

_OWING_MAX: Final = 20_000
"""Expressions whose latest due minutes are kept if they owe anything."""

_COHORTS_KEPT: Final = 2_000


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a store as a whole, and whether that is healthy."""

    store: str  #: the path of the store, or its URL without a password
    at: Instant  #: the moment at which the store was read
    healthy: bool  #: whether there are no problems
    problems: Sequence[Problem]  #: why it is unhealthy
    warnings: Sequence[Problem]
    """Problems that do no harm yet; a store with warnings is healthy."""

    zone: str  #: the zone in which the store is used
    host_zone: str  #: the zone of this host
    holder: Holder  #: the scheduler that holds the store, or held it last
    cluster: ClusterStatus | None
    """The hosts of a shared store; None: the store is embedded."""

    counts: Counter[str] = field(repr=False)
    """How many tasks are in each state."""

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return self.counts.total()


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The situation of one task."""

    task: str  #: the name
    expression: CronExpression  #: the cron expression
    retry_delay_ms: Delay  #: the retry delay in milliseconds
    state: str
    """`waiting`, `running`, `retrying`, `owed`, `interrupted`."""

    known_since: Instant  #: when this declaration was first registered
    last_attempt_at: Instant | None  #: when it last started
    last_success_at: Instant | None  #: when it last succeeded
    last_failure_at: Instant | None  #: when it last failed
    last_error: str | None  #: type and text of the exception of that failure
    failures: int  #: how many failures in a row came last
    pending_retry_until: Instant | None  #: when its retry is due
    next_at: Instant | None  #: when it starts next, seen from now; None: when its run has ended
    next_is: str | None  #: why it starts then: `cron`, `retry` or `interrupted`
    owed_since: Instant | None  #: since when it is owed a start
    late_ms: int
    """Milliseconds for which it could have been started already."""

    run_id: int | None  #: the number of its run, while it is running or interrupted
    host: HostName | None
    """The host of that run; None in an embedded store."""


class Situations:
    """The situation of single tasks at the moment of a snapshot; what their expressions owe is computed once.

    Parameters:
        snapshot: the store at one moment.
        host_zone: the zone of this host, for a store that names none.
    """

    snapshot: Snapshot
    zone: tzinfo

    def __init__(self, snapshot: Snapshot, host_zone: tzinfo) -> None:
        self.snapshot = snapshot
        self.zone = zone_in_use(snapshot.zone, host_zone)
        self._calendar = _Calendar(minute_of(snapshot.at, self.zone), self.zone)
        self._began = Instant(snapshot.holder.since or 0) if snapshot.holder.alive else Instant(0)
        """Nothing could be started before the scheduler that holds the store began."""

    def status_of(self, task: KnownTask) -> TaskStatus:
        """The situation of a task that was read together with the snapshot.

        Parameters:
            task: the task.
        """
        stored, state, at = task.stored, task.stored.state, self.snapshot.at
        assert isinstance(state, AwaitingRun | AwaitingRetry | Running)
        owed_since = self._calendar.owed_since(stored.expression, state.served_through)
        next_start = self._calendar.next_start(stored.expression)
        late = 0
        next_is: str | None = "cron"
        if task.phase is TaskPhase.RUNNING:
            label, next_at = "running", next_start if owed_since is None else None
        else:
            label = "waiting" if owed_since is None else "owed"
            reasons = [(next_start if owed_since is None else owed_since, "cron")]
            if isinstance(state, AwaitingRetry):
                label = "retrying" if owed_since is None else "owed"
                reasons.append((state.pending_retry_until, "retry"))
            elif isinstance(state, Running):
                label = "interrupted"
                reasons.append((interrupt(state, at, stored.delay, restart=True).resume_at, "interrupted"))
            next_at, next_is = min(((when, why) for when, why in reasons if when is not None), default=(None, None))
            if next_at is not None and next_at <= at:
                owed_since = next_at
                label = "owed" if label == "retrying" else label
                ended = max(state.last_success_at or 0, state.last_failure_at or 0)
                late = max(0, at - max(next_at, ended, self._began))
        return TaskStatus(
            stored.name,
            stored.expression,
            stored.delay,
            label,
            task.known_since,
            state.last_attempt_at,
            state.last_success_at,
            state.last_failure_at,
            None if state.last_failure_at is None else task.last_error,
            0 if isinstance(state, AwaitingRun) else state.failures,
            None if isinstance(state, AwaitingRun) else state.pending_retry_until,
            next_at,
            next_is,
            owed_since,
            late // 1000,
            stored.run,
            self._host_of(stored.run),
        )

    def _host_of(self, run: int | None) -> HostName | None:
        if run is None or not (key := host_of(run)):  # the runs of an embedded store have no host
            return None
        cluster = self.snapshot.cluster
        host = None if cluster is None else cluster.host(key)
        return HostName(key, None) if host is None else host.name


class Examination(Situations):
    """The tasks of a store at one moment, examined; to be used while its view is.

    Parameters:
        view: the store at one moment.
        host_zone: the zone of this host, for a store that names none.
        shown: the highest number of tasks that `most_urgent` will be asked for, and that `owed_for_longest` has.
    """

    anything_owed: bool
    longest_late: int
    owed_left_out: int
    owed_for_longest: Sequence[KnownTask]
    health: Health

    def __init__(self, view: View, host_zone: tzinfo, shown: int = 0) -> None:
        super().__init__(view.snapshot(), host_zone)
        self._view = view
        snapshot = self.snapshot
        self._threshold = lateness_threshold(view.count_tasks())
        self._bound = Instant(snapshot.at - self._threshold)
        """A task that could have been started before this is overdue."""
        self.counts: Counter[str] = Counter()
        self.anything_owed = False
        """Whether any task has been owed a start since some instant, even if it runs now."""
        self.longest_late = 0
        """Microseconds for which the task that is late for longest could have been started already."""
        self.latest_due: dict[str, Minute] = {}
        """The latest due minutes of expressions that owe tasks something, by their text; of so many at most."""
        self.owed_left_out = 0
        """Tasks that are owed something by other expressions alone."""
        self._retrying = 0
        """Tasks whose latest run failed and that do not run now, whether their retry is ripe or not."""
        shown = max(shown, _NAMES_MAX)
        self._interrupted = _Leading(shown)
        self._owed = _Leading(shown)
        self._overdue: Counter[TaskPhase] = Counter()
        self._overdue_interrupted = _Leading(shown)
        self._first_overdue = snapshot.at
        """Since when the task that has been overdue for longest could have been started."""
        for cohort in view.cohorts(self._bound):
            self._count(cohort)
        # A cohort also has tasks whose retry is not ripe, and these come last.
        owed = min(shown, self.counts["owed"])
        self.owed_for_longest = view.longest_owed(self._owed.first(owed), owed)
        """The tasks that have been owed for longest, at most `shown` of them."""
        self._longest_owed = list(map(self.status_of, self.owed_for_longest))
        self._longest_interrupted = self._longest(self._interrupted, min(shown, self.counts["interrupted"]))
        self._cluster = None
        if snapshot.cluster is not None:
            self._cluster = cluster_status(snapshot.cluster, view.runs_by_host(), snapshot.at)
        problems = list(self._problems())
        self.health = Health(
            snapshot.store,
            snapshot.at,
            not problems,
            problems,
            [] if snapshot.cluster is None else list(warnings_of(snapshot.cluster, snapshot.at)),
            zone_name(self.zone),
            zone_name(host_zone),
            snapshot.holder,
            self._cluster,
            self.counts,
        )

    # --- all tasks ---------------------------------------------------------------------------------------------------

    def _count(self, cohort: Cohort) -> None:
        owed_since = self._calendar.owed_since(cohort.expression, cohort.served_through)
        by_calendar = self._calendar.next_start(cohort.expression) if owed_since is None else owed_since
        by_calendar = LAST_INSTANT if by_calendar is None else by_calendar
        match cohort.phase:
            case TaskPhase.RUNNING:
                self.counts["running"] += cohort.tasks
                self.anything_owed |= owed_since is not None
            case TaskPhase.INTERRUPTED:
                self.counts["interrupted"] += cohort.tasks
                resume_at = self._resume_at(cohort)
                self._interrupted.add(cohort, min(by_calendar, resume_at))
                self.anything_owed |= min(by_calendar, resume_at) <= self.snapshot.at
                # A running scheduler may let interrupted runs wait on purpose; a dead one is a problem of its own.
                if self.snapshot.holder.alive and by_calendar <= resume_at and self._count_overdue(cohort, by_calendar):
                    self._overdue_interrupted.add(cohort, by_calendar)
                if by_calendar <= resume_at or not self.snapshot.holder.alive:
                    self._note_late(cohort, min(by_calendar, resume_at))
            case TaskPhase.WAITING | TaskPhase.RETRYING:
                idle = "retrying" if cohort.phase is TaskPhase.RETRYING else "waiting"
                self._retrying += cohort.tasks if cohort.phase is TaskPhase.RETRYING else 0
                owed = cohort.ripe if owed_since is None else cohort.tasks
                self.counts[idle] += cohort.tasks - owed
                if owed:
                    self.counts["owed"] += owed
                    self.anything_owed = True
                    if owed_since is not None:
                        self._note_latest_due(cohort)
                    self._owed.add(cohort, by_calendar)
                    self._count_overdue(cohort, by_calendar)
                    self._note_late(cohort, by_calendar)

    def _note_latest_due(self, cohort: Cohort) -> None:
        latest = self._calendar.latest_due(cohort.expression)
        assert latest is not None, "the cohort is owed a minute"
        if len(self.latest_due) < _OWING_MAX or cohort.expression.text in self.latest_due:
            self.latest_due[cohort.expression.text] = latest
        else:
            self.owed_left_out += cohort.tasks - cohort.ripe  # a ripe retry is owed whatever the expression

    def _resume_at(self, cohort: Cohort) -> Instant:
        """When interrupted tasks may start again without a due minute."""
        assert cohort.interruption is not None
        started_at, delay, interruptions = cohort.interruption
        run = Running(
            cohort.served_through,
            started_at,
            None,
            None,
            None,
            failures=0,
            interruptions=interruptions,
            obligation=Obligation(started_at, started_at, 1),  # decides nothing about when it may start
        )
        resume_at = interrupt(run, self.snapshot.at, delay, restart=True).resume_at
        assert resume_at is not None
        return resume_at

    def _count_overdue(self, cohort: Cohort, by_calendar: Instant) -> int:
        overdue = cohort.ended_before if by_calendar < self._bound else cohort.ripe_before
        if overdue and self._began < self._bound:
            self._overdue[cohort.phase] += overdue
            could_start = max(_earliest(cohort, by_calendar), self._began)
            self._first_overdue = min(self._first_overdue, could_start)
            return overdue
        return 0

    def _note_late(self, cohort: Cohort, since: Instant) -> None:
        could_start = max(_earliest(cohort, since), self._began)
        self.longest_late = max(self.longest_late, self.snapshot.at - could_start)

    def count_failing(self) -> int:
        """How many tasks have failed in their latest run, whether they wait for a retry, are owed it, or run again."""
        under_way = (
            task.stored.state
            for phase in (TaskPhase.RUNNING, TaskPhase.INTERRUPTED)
            for task in self._view.tasks(phase=phase)
        )
        return self._retrying + sum(isinstance(state, Running) and state.failures > 0 for state in under_way)

    # --- problems ----------------------------------------------------------------------------------------------------

    def _problems(self) -> Iterator[Problem]:
        if self._cluster is not None:
            yield from problems_of(self._cluster, self.snapshot.at)
            yield from self._overdue_problem()
        else:
            yield from self._problems_of_holder()

    def _problems_of_holder(self) -> Iterator[Problem]:
        holder, at = self.snapshot.holder, self.snapshot.at
        if self.counts["interrupted"] and not holder.alive:
            interrupted = [task.name for task in self._view.tasks(phase=TaskPhase.INTERRUPTED, limit=_NAMES_MAX)]
            yield _gone(holder, names(interrupted, self.counts["interrupted"]))
        yield from self._overdue_problem()
        yield from _poll_problem(holder, at, self.counts.total())

    def _overdue_problem(self) -> Iterator[Problem]:
        if overdue := self._overdue.total():
            longest = stretch((self.snapshot.at - self._first_overdue) / MICROSECONDS)
            yield Problem("overdue", f"{names(self._overdue_names(), overdue)} overdue, by {longest} at most")

    def _overdue_names(self) -> list[str]:
        """The names of the tasks that have been overdue for longest, in alphabetical order."""
        interrupted = self._overdue[TaskPhase.INTERRUPTED]
        overdue = self._longest_owed[: self._overdue.total() - interrupted]
        if interrupted:
            overdue += self._longest(self._overdue_interrupted, min(_NAMES_MAX, interrupted))
        longest = sorted(overdue, key=lambda status: -status.late_ms)[:_NAMES_MAX]
        return sorted(status.task for status in longest)

    # --- single tasks ------------------------------------------------------------------------------------------------

    def all_tasks(self) -> Iterator[TaskStatus]:
        """Every task, by name."""
        return map(self.status_of, self._view.tasks())

    def most_urgent(self, limit: int) -> Sequence[TaskStatus]:
        """The first tasks in the order of `STATES`; within a state the longest owed first, then by name.

        Parameters:
            limit: how many tasks at most.
        """
        chosen = self._longest_interrupted[:limit]
        chosen += self._longest_owed[: limit - len(chosen)]
        # After these phases, all that is left of the tasks in any phase is waiting.
        for phase in (TaskPhase.RUNNING, TaskPhase.RETRYING, None):
            if (room := limit - len(chosen)) > 0:
                taken = {each.task for each in chosen}
                found = self._view.tasks(phase=phase, limit=limit)
                chosen += islice((self.status_of(task) for task in found if task.name not in taken), room)
        return chosen

    def _longest(self, cohorts: "_Leading", limit: int) -> list[TaskStatus]:
        return [self.status_of(task) for task in self._view.longest_owed(cohorts.first(limit), limit)]


def _gone(holder: Holder, left: str) -> Problem:
    gone = f"process {holder.pid}, which held the store, is gone" if holder.pid else "no scheduler holds the store"
    return Problem("holder-gone", f"{gone}, and left {left} marked running")


def _poll_problem(holder: Holder, at: Instant, tasks: int) -> Iterator[Problem]:
    if not tasks:
        return
    if holder.last_poll_at is None:
        yield Problem("never-polled", "no scheduler has polled here: the store has no lock file")
    elif at - holder.last_poll_at > POLL_PERIOD + lateness_threshold(tasks):
        released = "" if holder.alive else ", and no scheduler holds the store"
        yield Problem("poll-too-old", f"the last poll was {between(holder.last_poll_at, at)} ago{released}")


def with_holder_of(view: View, health: Health) -> Health:
    """The health of a moment ago with the holder, or the hosts, of this one; tasks are not counted again.

    Parameters:
        view: the store at this moment.
        health: its health at an earlier one.
    """
    snapshot = view.snapshot()
    holder, at = snapshot.holder, snapshot.at
    overdue = [problem for problem in health.problems if problem.code == "overdue"]
    if snapshot.cluster is not None:
        cluster = cluster_status(snapshot.cluster, view.runs_by_host(), at)
        problems = [*problems_of(cluster, at), *overdue]
        warnings = list(warnings_of(snapshot.cluster, at))
        return replace(
            health, healthy=not problems, problems=problems, warnings=warnings, holder=holder, cluster=cluster
        )
    gone = [problem for problem in health.problems if problem.code == "holder-gone" and not holder.alive]
    running = health.counts["running"]
    if running and not holder.alive:
        gone = [_gone(holder, counted(running + health.counts["interrupted"], "task"))]
    problems = [*gone, *overdue, *_poll_problem(holder, at, health.tasks)]
    return replace(health, healthy=not problems, problems=problems, holder=holder)


class _Leading:
    """The cohorts that have the longest owed tasks; keeps no more of them than that many tasks need."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._cohorts: list[tuple[Cohort, Instant]] = []
        self._prune_at = _COHORTS_KEPT

    def add(self, cohort: Cohort, since: Instant) -> None:
        """Add a cohort that is owed since an instant."""
        self._cohorts.append((cohort, since))
        if len(self._cohorts) >= self._prune_at:
            self._cohorts = self.first(self._tasks)
            self._prune_at = max(_COHORTS_KEPT, 2 * len(self._cohorts))

    def first(self, limit: int) -> list[tuple[Cohort, Instant]]:
        """The cohorts without those whose tasks all come after `limit` tasks of others."""
        found = 0
        for cohort, since in sorted(self._cohorts, key=lambda entry: _latest(*entry)):
            found += cohort.tasks
            if found >= limit:
                bound = _latest(cohort, since)
                return [entry for entry in self._cohorts if _earliest(*entry) <= bound]
        return self._cohorts


def _earliest(cohort: Cohort, since: Instant) -> Instant:
    """When the first task of a cohort could have been started."""
    by_calendar = max(since, cohort.first_end)
    return by_calendar if cohort.first_ripe is None else min(by_calendar, cohort.first_ripe)


def _latest(cohort: Cohort, since: Instant) -> Instant:
    """When each task of a cohort could have been started at the latest."""
    return max(since, cohort.last_end)


class _Calendar:
    """The due minutes of expressions, last and next, seen from one minute; each is computed once."""

    def __init__(self, minute: Minute, zone: tzinfo) -> None:
        self._minute = minute
        self._zone = zone
        self.latest_due = lru_cache(_CALENDARS_MAX)(self._find_latest_due)
        self._first_due = lru_cache(_CALENDARS_MAX)(self._find_first_due)
        self.next_start = lru_cache(_CALENDARS_MAX)(self._find_next_start)

    def owed_since(self, expression: CronExpression, served_through: Minute) -> Instant | None:
        """The first due minute after `served_through`, if it has come."""
        latest = self.latest_due(expression)
        if latest is None or latest <= served_through:
            return None
        return self._first_due(expression, served_through)

    def _find_latest_due(self, expression: CronExpression) -> Minute | None:
        return latest_due(expression, self._minute, self._zone)

    def _find_first_due(self, expression: CronExpression, served_through: Minute) -> Instant:
        return begin(next_due(expression, served_through, self._zone))

    def _find_next_start(self, expression: CronExpression) -> Instant | None:
        try:
            return begin(next_due(expression, self._minute, self._zone))
        except CronCalculationError:
            return None  # the calendar ends in 9999
