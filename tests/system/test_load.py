"""Many at once, and callbacks without manners: the scheduler goes on, and says what is late (SPEC 3.10, 3.11, 4.2)."""

import asyncio
import io
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly.formal.checking import Report, check
from duly.stores.sqlite.trace import export
from tests.compute import NotInTimeError
from tests.programs import ROOT, environment
from tests.stores.helpers import history, integrity, query
from tests.system.clocks import LongMinute
from tests.system.load_program import DELAY, MINUTELY, read
from tests.system.record import record

PATIENCE_SECONDS = 150


class Outcome:
    """How a program ended, and what it left."""

    def __init__(self, folder: Path, program: str, *arguments: str) -> None:
        self.store, self.witness = folder / "store.db", folder / "witness"
        process = subprocess.run(
            [
                *(sys.executable, "-u", "-m", "tests.system.load_program", program),
                *(str(self.store), str(self.witness), *arguments),
            ],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        self.code = process.returncode
        self.said = process.stdout.decode()
        self.complaint = process.stderr.decode()

    def facts(self, word: str) -> list[list[object]]:
        """The witness's text after a word."""
        return [fact[1:] for fact in read(self.witness) if fact[0] == word]

    def ended_well(self) -> "Outcome":
        assert (self.code, self.said) == (0, "done\n"), self.complaint
        return self


def judged(store: Path, *, clean: bool = True) -> Report:
    """The verdicts on what a store's trace tells; R1 and its kin would measure the machine, and are left out."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)) as connection:
        report = check(io.BytesIO(b"".join(export(connection, clean=clean))), bounded=False)
    assert not report.violated, report.violations
    assert integrity(store) == "ok"
    return report


@pytest.mark.system
def test_ten_thousand_tasks_due_at_once_with_slow_callbacks_and_a_cap(tmp_path: Path) -> None:
    """SPEC 3.10: never more than max_concurrency at once, each of them once, none lost, on the loop and in threads."""
    outcome = Outcome(tmp_path, "crowd").ended_well()
    ((told,),) = outcome.facts("crowd")
    assert isinstance(told, dict)
    assert told["left"] == 0
    assert 100 < told["peak"] <= 200, "the cap is used, and holds"
    assert told["threads"] <= 3, "its threads are gone: what is left is the program's own"
    runs = Counter(name for name, _, _ in history(outcome.store))
    assert len(runs) == 10_000
    assert set(runs.values()) == {1}
    report = judged(outcome.store)
    assert report.ended
    record("load, due at once", tasks=10_000, runs=sum(runs.values()), most_at_once=told["peak"])


@pytest.mark.real_time
def test_callbacks_without_manners_fail_alone(tmp_path: Path) -> None:
    """SPEC 3.10, 3.11, 4.2, 4.3: BaseExceptions, swallowed cancellation, spawned tasks, calls from the inside."""
    outcome = Outcome(tmp_path, "bad_manners").ended_well()
    results = {name: result for name, _, result in history(outcome.store)}
    raising = {"StrangeError", "SystemExit", "GeneratorExit", "CancelledError", "MemoryError", "RecursionError"}
    assert {name: results[name] for name in raising} == dict.fromkeys(raising, "failure")
    assert results["in a thread"] == "failure"
    assert outcome.facts("swallowed"), "its time was up"
    assert ["swallows"] in outcome.facts("ended")
    assert results["swallows"] == "failure", "it ended by itself, and had failed by then"
    assert ["stop"] in outcome.facts("refused"), "a callback that stopped its own scheduler would wait for itself"
    assert ["initialize"] in outcome.facts("accepted")
    assert ["stop in a task of a callback"] in outcome.facts("refused")
    ((error,),) = query(outcome.store, "SELECT error FROM runs JOIN tasks USING (generation) WHERE name = 'neighbour'")
    if error is not None and "run_timeout" in error:
        raise NotInTimeError("a callback that does nothing had not ended when its time was up")
    assert results["neighbour"] == "success"
    assert outcome.facts("began").count(["neighbour"]) == 1
    report = judged(outcome.store)
    assert report.ended
    record("load, callbacks without manners", callbacks=len(results))


@pytest.mark.real_time
def test_a_start_that_a_blocked_loop_delayed_is_told(tmp_path: Path) -> None:
    """000 R1: TaskStartDelayed names the task that had to wait, and by how much."""
    outcome = Outcome(tmp_path, "late_by_a_blocked_loop").ended_well()
    if outcome.facts("began")[0] != ["blocks"]:
        raise NotInTimeError("the hour had begun before the scheduler, whose clock shows a minute in each second")
    # The task that blocks may be late as well, if the machine is busy.
    ((_, lateness_ms, threshold_ms),) = [fact for fact in outcome.facts("delayed") if fact[0] == "victim"]
    assert isinstance(lateness_ms, int)
    assert isinstance(threshold_ms, int)
    assert lateness_ms > threshold_ms
    assert outcome.facts("began").count(["victim"]) == 1
    judged(outcome.store)
    record("load, callbacks without manners", callbacks=2)


@pytest.mark.system
@pytest.mark.parametrize(
    ("program", "code", "names", "interrupted"),
    [
        ("endless", 0, ["coroutine", "thread"], ["coroutine", "thread"]),
        ("exits", 17, ["leave", "other"], ["leave", "other"]),
        ("forks", 0, ["forks"], []),
    ],
)
def test_a_callback_that_never_ends_exits_or_forks_leaves_a_store_that_goes_on(
    tmp_path: Path, program: str, code: int, names: list[str], interrupted: list[str]
) -> None:
    """SPEC 3.7, 3.11, 5.7: the process ends without hanging; the next one takes the store and repeats what was cut."""
    outcome = Outcome(tmp_path, program)
    assert outcome.code == code, outcome.complaint
    following = Outcome(tmp_path, "survivor", ",".join(names), ",".join(interrupted)).ended_well()
    assert following.facts("interrupted") == [interrupted]
    report = judged(following.store)
    assert report.ended
    assert report.crashes == bool(interrupted)
    record("load, callbacks without manners", callbacks=len(names))


@pytest.mark.system
async def test_a_thousand_initialize_and_stop_calls_racing(tmp_path: Path) -> None:
    """SPEC 4.2, 4.3: all return, in an order that a trace can tell; the last one decides; nothing is left behind."""
    dice = random.Random(6)
    store = tmp_path / "store.db"
    scheduler = duly.Scheduler(store, clock=LongMinute(), trace=True, max_concurrency=8)
    ran = asyncio.Event()

    async def quick() -> None:
        ran.set()
        await asyncio.sleep(dice.random() / 200)

    def registrations() -> list[tuple[str, str, object, timedelta]]:
        return [(f"task {number}", MINUTELY, quick, DELAY) for number in dice.sample(range(6), dice.randrange(6))]

    called = cancelled = lives = 0
    for burst in range(10):
        calls: list[asyncio.Task[None]] = []
        for _ in range(100):
            if dice.random() < 0.7:
                calls.append(asyncio.create_task(scheduler.initialize(registrations())))
            else:
                calls.append(asyncio.create_task(scheduler.stop()))
            if dice.random() < 0.1:
                await asyncio.sleep(dice.random() / 100)
            if dice.random() < 0.05:
                cancelled += dice.choice(calls).cancel()
        outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE_SECONDS)
        assert [each for each in outcomes if each is not None and not isinstance(each, asyncio.CancelledError)] == []
        called += len(calls)
        # With no stop open any more, it is alive: a task of a new name starts at once.
        ran.clear()
        await scheduler.initialize([*registrations(), (f"burst {burst}", MINUTELY, quick, DELAY)])
        await asyncio.wait_for(ran.wait(), PATIENCE_SECONDS)
        lives += 1
    final = registrations()
    await scheduler.initialize(final)
    await scheduler.stop()
    stored = {name for (name,) in query(store, "SELECT name FROM tasks WHERE retired_at IS NULL")}
    assert stored == {name for name, *_ in final}
    assert judged(store).ended
    await asyncio.sleep(0)
    assert {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("duly")} == set()
    record("load, racing calls", calls=called + lives + 2, cancelled=cancelled)
