"""The facts about a trio, from the steps that its callbacks noted and from nothing else; instants are in seconds."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.cluster.witness import BEGIN, CUT, END, STEP, Step

MINUTE = 60.0


@dataclass
class Run:
    """One run of a task, as it noted itself."""

    task: str
    host: str
    steps: list[float] = field(default_factory=list)
    """When it took its steps; the first is its begin."""

    outcome: str | None = None
    """How it ended; None: it did not, or it was killed."""

    @property
    def began(self) -> float:
        """When its callback was called."""
        return self.steps[0]

    @property
    def last(self) -> float:
        """When it took its last step."""
        return self.steps[-1]


def runs_of(steps: Iterable[Step]) -> list[Run]:
    """All runs, in the order in which they began. Clean-up after a cancellation is no step."""
    found: dict[str, Run] = {}
    for step in sorted(steps):
        if step.what == BEGIN:
            found[step.run] = Run(step.task, step.host, [step.at])
        elif step.what in (STEP, END, CUT) and step.run in found:
            if step.what != CUT:
                found[step.run].steps.append(step.at)
            if step.what != STEP:
                found[step.run].outcome = step.what
    return sorted(found.values(), key=lambda run: run.began)


class Span(NamedTuple):
    """The least and the most of some counts."""

    least: int
    most: int


def starts_a_minute(runs: Sequence[Run], tasks: Iterable[str], minutes: Iterable[float]) -> Span:
    """How often tasks that are due in each minute were started in it; minutes are named by their first second."""
    counted = Counter((run.task, run.began // MINUTE) for run in runs)
    counts = [counted[task, minute // MINUTE] for minute in minutes for task in tasks]
    return Span(min(counts), max(counts))


def overlap_seconds(runs: Sequence[Run], paused: Run, resumed_at: float) -> float:
    """For how long a run that was paused took steps beside other runs of its task, after it was resumed.

    A step stands for the time until the next one: a run that took one step in the course of another counts with 0 s.
    """
    others = [run for run in runs if run.task == paused.task and run is not paused]
    after = [at for at in paused.steps if at >= resumed_at]
    pieces = []
    for other in others:
        within = [at for at in after if other.began <= at <= other.last]
        if within:
            pieces.append((within[0], within[-1]))
    return _length(pieces)


def steps_beside(runs: Sequence[Run], paused: Run, resumed_at: float) -> int:
    """How many steps that were."""
    others = [run for run in runs if run.task == paused.task and run is not paused]
    after = [at for at in paused.steps if at >= resumed_at]
    return sum(any(other.began <= at <= other.last for other in others) for at in after)


def run_at(runs: Sequence[Run], task: str, host: str, instant: float) -> Run | None:
    """The run of a task that goes on at an instant on a host, or the last one that began there before it."""
    before = [run for run in runs if run.task == task and run.host == host and run.began <= instant]
    return before[-1] if before else None


def first_start(runs: Sequence[Run], task: str, after: float, until: float) -> float | None:
    """How long after an instant a task was first started; None: not until the other instant."""
    return next((run.began - after for run in runs if run.task == task and after < run.began <= until), None)


def made_up(runs: Sequence[Run], tasks: Iterable[str], since: float, until: float) -> Span:
    """How often each task was started in a stretch in which no minute begins: for minutes that were missed."""
    counted = Counter(run.task for run in runs if since <= run.began < until)
    counts = [counted[task] for task in tasks]
    return Span(min(counts), max(counts))


def lateness(runs: Sequence[Run], tasks: Iterable[str], minute: float, within: float) -> float | None:
    """How long after a minute began the last of the tasks was started for the first time; None: one was not."""
    first: dict[str, float] = {}
    for run in runs:
        if minute <= run.began < minute + within:
            first.setdefault(run.task, run.began - minute)
    wanted = list(tasks)
    return max(first[task] for task in wanted) if all(task in first for task in wanted) else None


@dataclass(frozen=True)
class Due:
    """The outcome of tasks that were due together."""

    tasks: int
    started: int
    """Tasks that were started at all."""

    runs: int
    first_start_s: float | None
    last_start_s: float | None
    """When the last of the tasks was started for the first time; None: not all were."""

    by_host: dict[str, int]


def due_together(runs: Sequence[Run], tasks: int, due: float, until: float) -> Due:
    """Tasks that fell due at one instant, as far as they were started until another."""
    seen = [run for run in runs if due <= run.began <= until]
    first: dict[str, float] = {}
    for run in seen:
        first.setdefault(run.task, run.began - due)
    return Due(
        tasks=tasks,
        started=len(first),
        runs=len(seen),
        first_start_s=min(first.values(), default=None),
        last_start_s=max(first.values()) if len(first) == tasks else None,
        by_host=dict(Counter(run.host for run in seen)),
    )


def _length(pieces: Iterable[tuple[float, float]]) -> float:
    """The length of the union of some stretches of time."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(pieces):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
