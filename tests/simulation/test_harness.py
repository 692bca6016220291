"""The simulation itself is tested: bugs that are put in on purpose are found, told apart, made small, and reproduced.

Each mutant breaks one promise of the specification, in the core, the shell or the store. An oracle that never
complained would pass every history; these show that it does complain, and soon.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import duly.core.agenda
import duly.core.task
import duly.engine.declare
import duly.engine.runner
import duly.engine.settle
import duly.engine.shutdown
from duly.core.changes import Batch, Starts
from duly.core.moments import LAST_INSTANT, Instant
from duly.core.task import AwaitingRetry, AwaitingRun, Interrupted, Running, Start
from duly.engine.gate import Gate
from duly.engine.journal import Journal
from duly.engine.runner import Runner
from duly.stores.port import COMPLETE, Outcome
from duly.stores.sqlite import SqliteStore
from duly.stores.sqlite.write import Statements
from tests.counts import share
from tests.simulation.executor import SimulationError, check, execute
from tests.simulation.generation import history_of
from tests.simulation.histories import Declared, Doing, History, Initialize, Pass, as_test
from tests.simulation.shrinking import shrunk

SEEDS = range(300)

Mutation = Callable[[pytest.MonkeyPatch], None]


def lose_retries(patch: pytest.MonkeyPatch) -> None:
    """SPEC 3.4: a failure arms a retry."""
    fail = duly.core.task.fail

    def never(run: Running, at: Instant, delay: Any) -> AwaitingRetry:
        return replace(fail(run, at, delay), pending_retry_until=LAST_INSTANT)

    fails(patch, never)


def retry_at_once(patch: pytest.MonkeyPatch) -> None:
    """SPEC 3.6: the delay is waited, and never nothing."""
    fail = duly.core.task.fail
    fails(patch, lambda run, at, delay: replace(fail(run, at, delay), pending_retry_until=at))


def fails(patch: pytest.MonkeyPatch, fail: Callable[[Running, Instant, Any], AwaitingRetry]) -> None:
    """Where an end is recorded, and where it is settled."""
    patch.setattr(duly.engine.runner, "fail", fail)
    patch.setattr(duly.engine.settle, "fail", fail)


def keep_marks(patch: pytest.MonkeyPatch) -> None:
    """SPEC 3.1: every start raises the mark to its own minute."""
    begin_run = duly.core.task.begin_run
    patch.setattr(
        duly.core.task,
        "begin_run",
        lambda state, *given: replace(begin_run(state, *given), served_through=state.served_through),
    )


def forget_interruptions(patch: pytest.MonkeyPatch) -> None:
    """SPEC 3.7: an interrupted run is owed again."""

    def forget(run: Running, *_: Any, **__: Any) -> AwaitingRun:
        return AwaitingRun(run.served_through, run.last_attempt_at, run.last_success_at, run.last_failure_at)

    patch.setattr(duly.engine.declare, "interrupt", forget)


def hurry_after_crashes(patch: pytest.MonkeyPatch) -> None:
    """SPEC 3.7: interrupted twice in a row, a task waits first."""
    interrupt = duly.core.task.interrupt

    def at_once(run: Running, now: Instant, delay: Any, *, restart: bool) -> Interrupted:
        state = interrupt(run, now, delay, restart=restart)
        return replace(state, resume_at=min(run.last_attempt_at, now)) if restart else state

    patch.setattr(duly.engine.declare, "interrupt", at_once)


def skip_missed(patch: pytest.MonkeyPatch) -> None:
    """SPEC 3.2: what was missed is served once, however late."""
    obligation = duly.core.task.obligation

    def strict(state: Any, owed: Any, now: Instant) -> Any:
        if owed is not None and now - owed.latest * 1_000_000 >= 60_000_000:
            owed = None
        return obligation(state, owed, now)

    patch.setattr(duly.core.task, "obligation", strict)


def start_twice(patch: pytest.MonkeyPatch) -> None:
    """SPEC 3.9: a durable start is called, once."""
    launch = Runner.launch

    async def twice(self: Runner, starts: Starts) -> None:
        await launch(self, starts)
        await launch(self, Starts(start for start in starts.singles() if start.run % 5 == 0))

    patch.setattr(Runner, "launch", twice)


def stop_at_once(patch: pytest.MonkeyPatch) -> None:
    """SPEC 4.3: stop waits for running callbacks."""
    patch.setattr(duly.engine.shutdown, "_is_at_rest", lambda engine: not engine.journal.busy)


def start_while_stopping(patch: pytest.MonkeyPatch) -> None:
    """SPEC 4.3: nothing starts once stop was called."""
    begin = Gate.__init__
    patch.setattr(Gate, "__init__", lambda self, open_stops: begin(self, 0))
    patch.setattr(Gate, "count_stops", lambda self, open_stops: None)
    patch.setattr(Gate, "close", lambda self: setattr(self, "closing", True))


def apply_writes_again(patch: pytest.MonkeyPatch) -> None:
    """The port: what is repeated under its own number is applied once."""
    patch.setattr(Statements, "already", lambda *_: False)


def drop_failed_writes(patch: pytest.MonkeyPatch) -> None:
    """SPEC 4.6: a storage fault loses nothing."""
    write = SqliteStore.write
    faults = {"met": 0}

    async def forget(self: SqliteStore, batch: Batch, number: int, trace: Any = ()) -> Any:
        faults["met"] += 1
        kept = (
            Batch.of(each for each in batch.singles() if isinstance(each, Start)) if faults["met"] % 7 == 0 else batch
        )
        return await write(self, kept, number, trace)

    patch.setattr(SqliteStore, "write", forget)


def ignore_steps_back(patch: pytest.MonkeyPatch) -> None:
    """SPEC 2.5: a mark too far ahead is lowered."""
    patch.setattr(duly.core.agenda, "corrected", lambda state, *_: state)
    patch.setattr(duly.engine.declare, "corrected", lambda state, *_: state)


def start_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """SPEC 3.9: a start is durable before its callback begins."""
    write = Journal._write

    async def answer_first(self: Journal, batch: Batch, trace: Any) -> Outcome | None:
        if any(isinstance(each, Start) for each in batch.singles()) and self.fault is None:
            self._number += 1
            return COMPLETE
        return await write(self, batch, trace)

    patch.setattr(Journal, "_write", answer_first)


MUTANTS: Sequence[Mutation] = (
    lose_retries,
    retry_at_once,
    keep_marks,
    forget_interruptions,
    hurry_after_crashes,
    skip_missed,
    start_twice,
    stop_at_once,
    start_while_stopping,
    apply_writes_again,
    drop_failed_writes,
    ignore_steps_back,
    start_before_it_is_durable,
)


@pytest.mark.parametrize("mutant", share(MUTANTS, 5), ids=lambda mutant: mutant.__name__)
def test_a_bug_that_is_put_in_is_found(mutant: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """FORMAL D3: the harness is worth what it catches; each of these within a few hundred seeds."""
    mutant(monkeypatch)
    found = next((seed for seed in SEEDS if execute(history_of(seed)).wrongs), None)
    assert found is not None, f"{mutant.__name__} was not noticed in {len(SEEDS)} histories"


RETRIED = History(
    seed=7,
    steps=(
        Initialize(
            tasks=(Declared(name="b"), Declared(cron="0 * * * *", delay_ms=5_000, doings=(Doing(end="raises"),)))
        ),
        Pass(seconds=60),
        Initialize(tasks=(Declared(cron="0 * * * *", delay_ms=5_000),)),
        Pass(seconds=125),
    ),
)


def test_a_failing_history_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that do not matter are left out, and the rest still fails."""
    lose_retries(monkeypatch)
    smallest = shrunk(RETRIED, lambda history: bool(execute(history).wrongs))
    assert execute(smallest).wrongs
    assert smallest.seed == 0
    assert sum(isinstance(step, Initialize) for step in smallest.steps) == 1
    assert not any(task.name == "b" for step in smallest.steps if isinstance(step, Initialize) for task in step.tasks)


def test_a_failure_prints_a_ready_made_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text runs as it stands, fails while the bug is there, and passes without it."""
    with monkeypatch.context() as patch:
        lose_retries(patch)
        with pytest.raises(SimulationError, match="def test_found_by_simulation") as told:
            check(RETRIED)
        assert '["RS",' in str(told.value)  # its trace
        assert as_test(RETRIED) in str(told.value)
        namespace: dict[str, Any] = {}
        exec(as_test(RETRIED), namespace)
        with pytest.raises(SimulationError):
            namespace["test_found_by_simulation"]()
    namespace["test_found_by_simulation"]()


def test_the_text_of_a_history_makes_the_same_history() -> None:
    """For a hundred seeds: `repr` loses nothing."""
    namespace: dict[str, Any] = {}
    exec("\n".join(as_test(RETRIED).splitlines()[:5]), namespace)
    for seed in range(100):
        history = history_of(seed)
        assert eval(repr(history), namespace) == history
