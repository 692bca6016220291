"""The evidence about one task and its runs, and what follows from it by arithmetic."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import islice
from typing import Final, NamedTuple

from duly.core.cron import CronExpression, parse_cron
from duly.core.due import next_due
from duly.core.moments import Delay, Instant, Minute, after, begin, minute_of
from duly.core.task import effective
from duly.stores.port import (
    ClusterRecord,
    Declaration,
    HistoryExtent,
    Hold,
    RunRecord,
    RunSelection,
    Snapshot,
    StoredHost,
    View,
)

OCCURRENCES_COUNTED_MAX: Final = 10_000
"""More occurrences than this are not counted one by one."""

_RUNS_AROUND: Final = 1_000
"""Runs before a minute, and from it on, that are looked at."""


class Absence(NamedTuple):
    """A time without a scheduler, as far as it is on record."""

    last_seen: Instant | None
    """The latest sign of life before it; None: there is none on record."""

    back_at: Instant | None
    """When a scheduler took over the store again; None: none has."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about a task.

    Runs are in the order of their numbers, which no clock can change; in a shared store, where each host numbers its
    own, in the order of their starts (SPEC 9.11).
    """

    task: str  #: the name of the task
    zone: tzinfo  #: the zone of the question
    now: Instant  #: when the store was read
    declarations: Sequence[Declaration]  #: the declarations of that name on record, the latest last
    runs: Sequence[RunRecord]  #: its runs around the minute asked about, in the order of their starts
    served_through: Minute | None = None  #: no minute up to this one is owed; None: the task is not in force
    pending_retry_until: Instant | None = None  #: when its retry is due
    history_complete_since: Instant | None = None
    """from when on history has every run that ended; None: it has dropped nothing"""

    arrivals: Sequence[Instant] = ()  #: when schedulers took the store over, and when hosts joined
    last_sign_of_life: Callable[[Instant], Instant | None] = lambda before: None
    """The latest instant before another at which a scheduler was alive: it started or ended a run of any task, say."""

    alive: bool = False  #: whether a scheduler holds the store
    last_poll: Instant | None = None  #: when it last polled
    cluster: ClusterRecord | None = None
    """The hosts of a shared store."""

    holds: Callable[[int, Instant, Instant], Sequence[Hold]] = lambda host, since, until: ()
    """The times between two instants in which a host, by its key, held the steps of its callbacks."""

    # --- runs --------------------------------------------------------------------------------------------------------

    def run_before(self, moment: Instant) -> RunRecord | None:
        """The last run that started before a moment.

        Parameters:
            moment: the moment.
        """
        return next((run for run in reversed(self.runs) if run.started_at < moment), None)

    def run_that_served(self, minute: Minute) -> RunRecord | None:
        """The first run that started in a minute or after it: it served whatever was owed for that minute.

        Parameters:
            minute: the minute.
        """
        return next((run for run in self.runs if minute_of(run.started_at, self.zone) >= minute), None)

    def declaration_of(self, run: RunRecord) -> Declaration | None:
        """The declaration that a run belongs to; None if it is no longer on record.

        Parameters:
            run: the run.
        """
        return next((each for each in self.declarations if each.generation == run.generation), None)

    def comes_before(self, one: RunRecord, other: RunRecord) -> bool:
        """Whether a run was started before another, whatever the clock said.

        Parameters:
            one: a run.
            other: another run.
        """
        return self.runs.index(one) < self.runs.index(other)

    def host_of(self, run: RunRecord) -> StoredHost | None:
        """The host that started a run, if it is on record.

        Parameters:
            run: the run.
        """
        return None if run.host is None or self.cluster is None else self.cluster.host(run.host.key)

    def holds_during(self, run: RunRecord) -> Sequence[Hold]:
        """The times in which the host of a run held its steps and has gone on, as far as they are on record.

        Parameters:
            run: the run.
        """
        if run.host is None:
            return ()
        return self.holds(run.host.key, run.started_at, self.now if run.ended_at is None else run.ended_at)

    def holds_since(self, run: RunRecord) -> Instant | None:
        """Since when the host of a run that goes on has not trusted its lease; None if it does.

        Parameters:
            run: the run.
        """
        host = self.host_of(run)
        if host is None or host.gone is not None or run.outcome != "running":
            return None
        trusted_until = Instant(host.beat_at + host.lease)
        return trusted_until if trusted_until < self.now else None

    def retry_after(self, failed: RunRecord) -> Instant:
        """When the retry of a failed run was ripe.

        Parameters:
            failed: the run.
        """
        declaration = self.declaration_of(failed)
        delay = declaration.retry_delay_ms if declaration is not None else Delay(0)
        return after(Instant(failed.ended_at or failed.started_at), effective(delay))

    def served_by(self, run: RunRecord) -> list[Minute]:
        """The occurrences that a run served, up to OCCURRENCES_COUNTED_MAX.

        Parameters:
            run: the run.

        Raises:
            InvalidCronExpressionError: the expression of its declaration cannot be read.
        """
        declaration = self.declaration_of(run)
        if declaration is None:
            return []
        previous = self.run_before(run.started_at)
        if previous is None and self.history_complete_since is not None:
            return [minute_of(run.scheduled_time, self.zone)]  # what was served before it is no longer on record
        served_through = Minute(minute_of(declaration.known_since, self.zone) - 60)
        if previous is not None:
            served_through = max(served_through, minute_of(previous.started_at, self.zone))
        last = minute_of(run.started_at, self.zone)
        due = self._occurrences(parse_cron(declaration.expression), served_through, last)
        return list(islice(due, OCCURRENCES_COUNTED_MAX))

    def _occurrences(self, expression: CronExpression, since: Minute, last: Minute) -> Iterator[Minute]:
        due = since
        while (due := next_due(expression, due, self.zone)) <= last:
            yield due

    def lateness(self, run: RunRecord) -> int:
        """Microseconds from the first thing that a run served to its start.

        Parameters:
            run: the run.

        Raises:
            InvalidCronExpressionError: the expression of its declaration cannot be read.
        """
        if run.cause == "cron" and (occurrences := self.served_by(run)):
            return run.started_at - begin(occurrences[0])
        return 0 if run.cause == "interrupted" else max(0, run.started_at - run.scheduled_time)

    # --- schedulers --------------------------------------------------------------------------------------------------

    def absence(self, since: Instant, until: Instant | None) -> Absence | None:
        """The time without a scheduler that a takeover between two moments ended.

        Parameters:
            since: the first of the moments.
            until: the second one; None: an absence that goes on counts, too.
        """
        arrivals = [each for each in self.arrivals if since < each and (until is None or each <= until)]
        if arrivals:
            return Absence(self.last_sign_of_life(arrivals[0]), arrivals[-1])
        return Absence(self.last_poll, None) if until is None and not self.alive else None


def evidence_of(view: View, task: str, around: Instant, zone: tzinfo, extent: HistoryExtent | None = None) -> Evidence:
    """The evidence of a store about a task; to be used while the view is.

    Parameters:
        view: the store at one moment.
        task: the name of the task.
        around: the instant around which its runs are read.
        zone: the zone of the question.
        extent: that of the history, if it is known from a moment ago: finding it takes a scan.
    """
    snapshot = view.snapshot()
    in_force = view.task(task)
    state = None if in_force is None else in_force.stored.state
    earlier = view.runs(RunSelection(task, until=around), limit=_RUNS_AROUND, tracebacks=True)
    later = view.runs(RunSelection(task, since=around), limit=_RUNS_AROUND, oldest_first=True, tracebacks=True)
    return Evidence(
        task=task,
        zone=zone,
        now=snapshot.at,
        declarations=view.declarations(task),
        runs=sorted((*earlier, *later), key=_by_number if snapshot.cluster is None else _by_start),
        served_through=None if state is None else state.served_through,
        pending_retry_until=getattr(state, "pending_retry_until", None),
        history_complete_since=complete_since(view, snapshot, extent),
        arrivals=snapshot.arrivals,
        last_sign_of_life=view.last_sign_of_life,
        alive=snapshot.holder.alive,
        last_poll=snapshot.holder.last_poll_at,
        cluster=snapshot.cluster,
        holds=view.holds,
    )


def _by_number(run: RunRecord) -> tuple[int, int]:
    return run.run_id, 0


def _by_start(run: RunRecord) -> tuple[int, int]:
    return run.started_at, run.run_id


def complete_since(view: View, snapshot: Snapshot, extent: HistoryExtent | None = None) -> Instant | None:
    """From when on history has every run that ended; None if it has dropped nothing.

    Runs enter history when they end, so what was dropped shows as missing runs, and everything that ended after the
    oldest record is there.
    """
    extent = view.extent() if extent is None else extent
    if not extent.runs:
        return snapshot.at if view.has_started() else None  # no history is kept at all
    if extent.runs == extent.runs_ever:
        return None
    return snapshot.at if extent.oldest_end is None else extent.oldest_end
