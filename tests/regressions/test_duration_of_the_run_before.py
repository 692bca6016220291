"""A task that failed at once was shown with "after 2.2 s": the one called before it had blocked the event loop."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import duly
from duly.cli.service.event_lines import event_line
from duly.core.changes import Batch, Ends, Starts, SuccessBlock
from duly.core.moments import Instant
from duly.events import TaskRunCompleted, TaskRunFailed
from duly.insight.run import run_report
from duly.insight.words import stretch
from duly.stores import SqliteReader, SqliteStore
from duly.stores.port import RunSelection
from duly.stores.sqlite.write import CALLS_MAX
from tests.engine.helpers import fail, noop, registration
from tests.spec.helpers import Ear, ManualClock
from tests.stores.contract import NOON, at, living, start, task
from tests.stores.helpers import query

Callback = Callable[[], object]


async def a_round() -> None:
    """Work that waits, but not for time."""
    await asyncio.sleep(0)


def in_a_thread() -> None:
    """Work that blocks a thread, but for no time."""


def blocking(clock: ManualClock, seconds: float, then: Callable[[], object]) -> Callback:
    """Work that blocks the event loop before anything else."""

    async def work() -> None:
        clock.advance(seconds)
        awaited = then()
        assert asyncio.iscoroutine(awaited)
        await awaited

    return work


async def durations(store: Path, clock: ManualClock, callbacks: list[Callback], ear: Ear | None) -> list[float]:
    """Have callbacks called in order; returns how many milliseconds each took, by history."""
    scheduler = duly.Scheduler(store, clock=clock, on_event=ear)
    registrations = [registration(f"{number:03}", "0 12 * * *", each) for number, each in enumerate(callbacks)]
    await scheduler.initialize(registrations)
    async with asyncio.timeout(30):
        while len(query(store, "SELECT run FROM runs")) < len(callbacks):  # noqa: ASYNC110  nothing may listen
            await asyncio.sleep(0.01)
    await asyncio.wait_for(scheduler.stop(), 30)
    reader = SqliteReader(store, clock.now)
    reports = reader.read(lambda view: [run_report(record) for record in view.runs(RunSelection())])
    took = {report.task: report.duration_ms for report in reports}
    return [took[name] or 0.0 for name, *_ in registrations]


@pytest.mark.parametrize("seconds", [0.0015, 2.2], ids=["in one slice", "over its slice"])
@pytest.mark.parametrize("then", [noop, fail, a_round], ids=["returns", "raises", "waits"])
@pytest.mark.parametrize("listens", [True, False], ids=["heard", "unheard"])
async def test_a_run_counts_from_its_own_call(
    store: Path, seconds: float, then: Callable[[], object], listens: bool
) -> None:
    """Whatever the one before did with the event loop, and in event, log and history alike."""
    clock, ear = ManualClock(), Ear() if listens else None
    instant = [noop, fail, a_round, in_a_thread, noop, noop]
    callbacks = [noop, blocking(clock, seconds, then), *instant]
    took = await durations(store, clock, callbacks, ear)
    assert took == [0, pytest.approx(1000 * seconds, abs=1), *[0] * len(instant)]
    if ear is None:
        return
    ends: list[TaskRunCompleted | TaskRunFailed] = [*ear.of(TaskRunCompleted), *ear.of(TaskRunFailed)]
    assert len(ends) == len(callbacks)
    for event in ends:
        in_history = took[int(event.task_name)]
        assert event.duration == pytest.approx(in_history, abs=1)
        line = event_line(event, datetime(2024, 6, 1, 12, tzinfo=UTC), lambda _: None)
        assert f"after {stretch(event.duration / 1000)}" in line.text


async def test_a_run_with_a_time_limit_counts_from_its_own_call(store: Path) -> None:
    """SPEC 3.10: the limit does, too."""
    clock, ear = ManualClock(), Ear()
    scheduler = duly.Scheduler(store, clock=clock, on_event=ear, run_timeout=timedelta(seconds=1))
    await scheduler.initialize(
        [registration("a", "0 12 * * *", blocking(clock, 2.2, noop)), registration("b", "0 12 * * *", noop)]
    )
    (ended,) = await ear.hear(TaskRunCompleted, "b")
    await scheduler.stop()
    assert ended.duration == 0


async def test_callbacks_that_each_block_a_little_do_not_add_up(store: Path) -> None:
    """A third of a millisecond each, two hundred of them, in several strides; to about a millisecond."""
    clock = ManualClock()
    took = await durations(store, clock, [blocking(clock, 0.0003, noop)] * 200, None)
    assert max(took) < 2


@pytest.mark.parametrize("calls", [1, 2, CALLS_MAX, CALLS_MAX + 1])
@pytest.mark.parametrize("gap", [False, True], ids=["neighbours", "others"])
@pytest.mark.parametrize("withdrawn", [False, True])
async def test_runs_of_one_start_keep_the_moments_of_their_calls(
    store: Path, calls: int, gap: bool, withdrawn: bool
) -> None:
    """Some of them took no time, and all ended at the same instant or a millisecond later."""
    tasks = [task(number) for number in range(1, 4 * calls + 2)]
    due = [each for number, each in enumerate(tasks) if number or not gap][:: 2 if gap else 1]
    async with living(SqliteStore(store)) as life:
        await life.declare(added=tasks)
        starts, grounds = Starts(), start(due[0], 0, at(NOON, 1)).grounds
        starts.add(due, 1, grounds)
        await life.store.write(Batch(starts.blocks), life.take_number())
        if withdrawn:
            await life.declare(orphaned=due[1:2])
        ends, expected = Ends(), []
        for number, each in enumerate(due):
            over = Instant(at(NOON, 20) + 1_000 * (number // 2))
            called = over if number % 3 == 0 else at(NOON, 1 + 0.25 * (number // 2))
            ends.add(SuccessBlock(over, grounds, [each], [1 + number], called))
            expected.append((1 + number, over, called))
        await life.store.write(Batch(ends.blocks), life.take_number())
    assert query(store, "SELECT run, ended_at, called_at FROM runs ORDER BY run") == expected
