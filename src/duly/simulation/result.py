"""The result of a simulation: every start, and a summary of each task."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from duly.core.cron import CronExpression
from duly.core.due import next_due
from duly.core.moments import Instant, Minute, as_datetime, begin, instant_of, minute_of, zone_name
from duly.events import Event, TaskInterrupted, TaskRunCompleted, TaskRunFailed, TaskRunStarted
from duly.insight.zone_changes import ZoneChange, leaps_at, zone_changes
from duly.simulation.scenario import Downtime, Scenario


@dataclass(frozen=True, slots=True)
class SimulatedStart:
    """One start, and what became of it."""

    task: str
    at: Instant
    cause: str
    """`cron`, `retry`, `interrupted`."""

    outcome: str
    """`success`, `failure`, `interrupted`, `running`."""

    owed_since: Instant
    lateness_ms: int
    """From `owed_since` to the start."""

    serves: int
    """How many occurrences it served: one as a rule, several after downtime or a long run, none for a retry."""

    duration_ms: int | None


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """The starts of one task, counted."""

    task: str
    expression: CronExpression
    starts: int
    failures: int
    retries: int
    interrupted: int
    restarts: int
    """Starts that repeat an interrupted run."""

    missed: int
    """Occurrences that passed without a start in their minute; a later start served them, all at once."""

    skipped: int
    """Minutes that the expression names and the zone skips."""

    repeated: int
    """Minutes that occur twice, and were due the first time only."""

    latest: Instant | None
    longest_lateness_ms: int
    still_owed: int
    """Occurrences that no start has served when the stretch ends."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """All that happened."""

    zone: str
    from_: Instant
    to: Instant
    seed: int
    down: Sequence[Downtime]
    crashes: Sequence[Instant]
    notes: Sequence[str]
    """Notes for a reader of the result, such as a crash that found no scheduler running."""

    tasks: Sequence[TaskSummary]
    starts: Sequence[SimulatedStart]


class Recorder:
    """Turns the events of the scheduler into starts."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._expressions = {each.name: each.expression for each in scenario.registrations}
        # As the scheduler has it for new tasks: the minute in which they are declared may be owed already.
        first = Minute(minute_of(scenario.begin, scenario.zone) - 60)
        self._served_through = dict.fromkeys(self._expressions, first)
        self._starts: list[SimulatedStart] = []
        self._missed = dict.fromkeys(self._expressions, 0)
        self._under_way: dict[int, int] = {}
        """Indices of starts by the number of the run."""
        self._latest: dict[str, int] = {}
        """Indices of the latest starts, by task."""

    def record(self, events: Sequence[Event]) -> None:
        """Record events, in their order."""
        for event in events:
            match event:
                case TaskRunStarted():
                    self._started(event)
                case TaskRunCompleted():
                    self._ended(event.run_id, "success", event.duration)
                case TaskRunFailed():
                    self._ended(event.run_id, "failure", event.duration)
                case TaskInterrupted():
                    index = self._latest[event.task_name]
                    self._starts[index] = replace(self._starts[index], outcome="interrupted")
                case _:
                    pass

    def _started(self, event: TaskRunStarted) -> None:
        zone, name = self._scenario.zone, event.task_name
        at = instant_of(event.actual_time)
        minute = minute_of(at, zone)
        served = self._occurrences_until(name, minute)
        owed_since = instant_of(event.scheduled_time) if event.cause == "retry" else at
        if served and event.cause == "cron":
            owed_since = begin(served[0])
        self._served_through[name] = max(minute, self._served_through[name])
        self._missed[name] += len(served) - (minute in served[-1:])
        self._under_way[event.run_id] = self._latest[name] = len(self._starts)
        late = round((at - owed_since) / 1000)
        self._starts.append(SimulatedStart(name, at, event.cause, "running", owed_since, late, len(served), None))

    def _ended(self, run_id: int, outcome: str, duration_ms: float) -> None:
        index = self._under_way.pop(run_id)
        self._starts[index] = replace(self._starts[index], outcome=outcome, duration_ms=round(duration_ms))

    def _occurrences_until(self, name: str, minute: Minute) -> list[Minute]:
        """The occurrences that a start in a minute serves."""
        expression, zone = self._expressions[name], self._scenario.zone
        found = []
        due = next_due(expression, self._served_through[name], zone)
        while due <= minute:
            found.append(due)
            due = next_due(expression, due, zone)
        return found

    def result(self, notes: Sequence[str]) -> Simulation:
        """All that happened; tasks in the order of their declaration."""
        scenario = self._scenario
        by_task: dict[str, list[SimulatedStart]] = {name: [] for name in self._expressions}
        for start in self._starts:
            by_task[start.task].append(start)
        since, until = (as_datetime(each, scenario.zone) for each in (scenario.begin, scenario.last))
        changes = tuple(zone_changes(scenario.zone, since, until))
        return Simulation(
            zone_name(scenario.zone),
            scenario.begin,
            scenario.end,
            scenario.seed,
            scenario.down,
            scenario.crashes,
            notes,
            [self._summary(name, starts, changes) for name, starts in by_task.items()],
            self._starts,
        )

    def _summary(self, name: str, starts: Sequence[SimulatedStart], changes: Sequence[ZoneChange]) -> TaskSummary:
        scenario, expression = self._scenario, self._expressions[name]
        minutes = {"skipped": 0, "repeated": 0}
        for leap in leaps_at(changes, expression):
            minutes[leap.kind] += len(leap.minutes)
        return TaskSummary(
            task=name,
            expression=expression,
            starts=len(starts),
            failures=sum(each.outcome == "failure" for each in starts),
            retries=sum(each.cause == "retry" for each in starts),
            interrupted=sum(each.outcome == "interrupted" for each in starts),
            restarts=sum(each.cause == "interrupted" for each in starts),
            missed=self._missed[name],
            skipped=minutes["skipped"],
            repeated=minutes["repeated"],
            latest=starts[-1].at if starts else None,
            longest_lateness_ms=max((each.lateness_ms for each in starts), default=0),
            still_owed=len(self._occurrences_until(name, minute_of(scenario.last, scenario.zone))),
        )
