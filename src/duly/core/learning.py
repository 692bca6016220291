"""Tasks of one host as the log of a shared store says they are: what other hosts started, ended and buried.

An entry of the log is applied by the functions that apply this host's own starts and ends. What a host has learnt up to
a position is what it would load from a snapshot of that position.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from duly.core.agenda import Agenda
from duly.core.moments import Instant
from duly.core.news import Buried, Ended, Joined, Left, LogEntry, Started, Written, host_of
from duly.core.steps import STEP_TASKS, Steps
from duly.core.task import AwaitingRetry, AwaitingRun, Running, Task, TaskState, Withdrawn, fail, interrupt, succeed


class Learner:
    """The knowledge of one host: its own tasks by generation, and the runs of others."""

    def __init__(self, agenda: Agenda, host: int) -> None:
        self._agenda = agenda
        self._host = host
        self._restart = True
        self._tasks: dict[int, Task] = {}
        self._runs: dict[int, int] = {}
        """Runs of other hosts, by the generation of their task."""
        self._blocked: dict[int, int] = {}
        """Generations that wait for a run of an earlier declaration, by that run."""

    def know(
        self, tasks: Iterable[Task], runs: Mapping[int, int], blocked: Mapping[int, int], *, restart: bool
    ) -> Steps[None]:
        """Begin with tasks of this host that are in force, runs under way and declarations that wait, by generation.

        `restart`: whether interrupted runs start again, which is part of the set in force.
        """
        self._restart = restart
        self._tasks.clear()
        for index, task in enumerate(tasks):
            self._tasks[task.generation] = task
            if index % STEP_TASKS == 0:
                yield
        self._runs = {generation: run for generation, run in runs.items() if host_of(run) != self._host}
        self._blocked = {run: generation for generation, run in blocked.items()}
        for generation in blocked:
            if (waiting := self._tasks.get(generation)) is not None:
                waiting.predecessor_runs = True

    def is_elsewhere(self, task: Task) -> bool:
        """Whether another host runs a task."""
        return task.generation in self._runs

    def runs_of(self, host: int) -> int:
        """How many tasks another host runs, of those that this one declares."""
        return sum(host_of(run) == host for run in self._runs.values())

    def learn(self, entry: LogEntry, now: Instant) -> Steps[bool]:
        """Apply what another host wrote; False: it has changed the set in force, and this host must load anew."""
        match entry.content:
            case Written() as written:
                yield from self._written(written, now)
            case Buried(host):
                yield from self._buried(host, entry.at, now)
            case Joined(corrected=corrected):
                if corrected is not None:
                    yield from self._agenda.correct(corrected.at)
            case Left():
                pass
            case _:
                return False
        return True

    def _written(self, written: Written, now: Instant) -> Steps[None]:
        fenced, refused = frozenset(written.fenced), frozenset(written.refused)
        for ended in written.ends:
            yield from self._ended(ended, fenced, now)
        for started in written.starts:
            yield from self._started(started, refused)
        if written.corrected is not None:
            yield from self._agenda.correct(written.corrected.at)

    def _started(self, block: Started, refused: frozenset[int]) -> Steps[None]:
        after = _shared(lambda state: _running(state, block))
        for index, generation in enumerate(block.generations):
            task = self._tasks.get(generation)
            if generation not in refused and task is not None:
                task.state = after(task.state)
                task.written_by = host_of(block.first_run)
                self._runs[generation] = block.first_run + index
            if index % STEP_TASKS == 0:
                yield

    def _ended(self, block: Ended, fenced: frozenset[int], now: Instant) -> Steps[None]:
        over: list[Task] = []
        for index, (generation, run) in enumerate(zip(block.generations, block.runs, strict=True)):
            if run in fenced:
                continue
            self._unblock(run, now)
            task = self._tasks.get(generation)
            if task is not None and self._runs.get(generation) == run:
                del self._runs[generation]
                task.written_by = host_of(run)
                if not isinstance(task.state, Withdrawn):
                    over.append(task)
            if index % STEP_TASKS == 0:
                yield
        after = _shared(lambda state: succeed(_as_running(state), block.at))
        for task in over:
            self._become(task, after(task.state) if block.failure is None else _failed(task, block), now)
            yield

    def _buried(self, host: int, at: Instant, now: Instant) -> Steps[None]:
        """Runs of a host that is gone are interrupted; declarations that waited for one of them may start."""
        for run in [run for run in self._blocked if host_of(run) == host]:
            self._unblock(run, now)
        interrupted = [generation for generation, run in self._runs.items() if host_of(run) == host]
        for generation in interrupted:
            del self._runs[generation]
            task = self._tasks[generation]
            self._become(task, interrupt(_as_running(task.state), at, task.delay, restart=self._restart), now)
            yield

    def _unblock(self, run: int, now: Instant) -> None:
        task = self._tasks.get(self._blocked.pop(run, 0))
        if task is not None:
            task.predecessor_runs = False
            self._agenda.review(task, now)

    def _become(self, task: Task, state: TaskState, now: Instant) -> None:
        task.state = state
        self._agenda.review(task, now)


def _shared(transition: Callable[[TaskState], TaskState]) -> Callable[[TaskState], TaskState]:
    """A transition that gives tasks which share a state one new state: of many, nearly all do."""
    known: dict[int, tuple[TaskState, TaskState]] = {}  # with the old state, so that its identity is not used again

    def after(state: TaskState) -> TaskState:
        if id(state) not in known:
            known[id(state)] = state, transition(state)
        return known[id(state)][1]

    return after


def _as_running(state: TaskState) -> Running:
    assert isinstance(state, Running), "a run that ends was started, and its start stands earlier in the log"
    return state


def _running(state: TaskState, block: Started) -> TaskState:
    """The state after a start that another host made, from whatever this host knew before."""
    if isinstance(state, Withdrawn):
        return state
    return Running(
        served_through=block.served_through,
        last_attempt_at=block.at,
        last_success_at=state.last_success_at,
        last_failure_at=state.last_failure_at,
        pending_retry_until=block.pending_retry_until,
        failures=0 if isinstance(state, AwaitingRun) else state.failures,
        interruptions=block.interruptions,
        obligation=block.obligation,
    )


def _failed(task: Task, block: Ended) -> AwaitingRetry:
    """The state after a failure on another host, whose clock armed the retry."""
    failure = block.failure
    assert failure is not None and failure.pending_retry_until is not None, "the declaration is in force"
    after = fail(_as_running(task.state), block.at, task.delay)
    return replace(after, pending_retry_until=failure.pending_retry_until, failures=failure.failures)
