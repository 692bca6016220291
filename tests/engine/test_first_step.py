"""First steps of awkward callbacks: on each kind of event loop they end as they would as tasks of their own.

Each runs in a burst with all the others, twice, and beside callbacks that look whether anything was left to them.
"""

import asyncio
import contextlib
import gc
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

import duly
from duly.engine.first_step import EagerTasks, FirstSteps, RestOfSteps, StandIns, Work
from duly.errors import StopSchedulerError

HAS_EAGER_TASKS: Final = sys.version_info >= (3, 12)
Steps = Callable[[], FirstSteps]
WAYS: Final[list[Steps]] = [EagerTasks] if HAS_EAGER_TASKS else [StandIns]

# --- awkward callbacks, by how they end -------------------------------------------------------------------------------

Callback = Callable[[], Awaitable[None]]
CALLBACKS: dict[str, tuple[Callback, str]] = {}
"""By name: the callback, and the class of the error that history must have; empty if it succeeds."""

chosen: ContextVar[str] = ContextVar("chosen", default="nothing")
tasks_seen: list[Any] = []
waits_in_vain: list[tuple["asyncio.Task[Any]", "asyncio.Future[None]"]] = []
schedulers: list[duly.Scheduler] = []


def ends_with(error: str = "") -> Callable[[Callback], Callback]:
    """Put a callback into the table."""

    def put(callback: Callback) -> Callback:
        CALLBACKS[callback.__name__] = (callback, error)
        return callback

    return put


def this_task() -> "asyncio.Task[Any]":
    """The current task, which there always is, and which nothing has cancelled."""
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    assert not task.done()
    return task


@ends_with()
async def returns_at_once() -> None:
    assert this_task().get_name()
    assert chosen.get() == "nothing"


@ends_with("ValueError")
async def raises_at_once() -> None:
    chosen.set("something")
    raise ValueError("at once")


@ends_with("ValueError")
async def raises_after_a_wait() -> None:
    await asyncio.sleep(0)
    raise ValueError("later")


@ends_with()
async def keeps_its_context_across_waits() -> None:
    chosen.set("mine")
    for _ in range(3):
        await asyncio.sleep(0)
        assert chosen.get() == "mine"
    await asyncio.sleep(0.001)
    assert chosen.get() == "mine"


@ends_with()
async def has_one_task_from_the_first_step_to_the_last() -> None:
    before = this_task()
    await asyncio.sleep(0)
    assert this_task() is before
    await asyncio.sleep(0.001)
    assert this_task() is before


@ends_with()
async def gives_its_context_and_its_run_to_its_children() -> None:
    run = duly.current_run()
    chosen.set("inherited")

    async def child() -> tuple[str, object]:
        return chosen.get(), duly.current_run()

    assert await asyncio.create_task(child()) == ("inherited", run)
    assert [await child() async for _ in _twice()] == 2 * [("inherited", run)]


async def _twice() -> Any:
    for number in range(2):
        await asyncio.sleep(0)
        yield number


@ends_with()
async def survives_its_own_time_limit() -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()
    assert this_task().get_name()


@ends_with("TimeoutError")
async def has_no_time_at_all() -> None:
    async with asyncio.timeout(0):
        await asyncio.Event().wait()


@ends_with("TimeoutError")
async def waits_for_too_long() -> None:
    await asyncio.wait_for(asyncio.Event().wait(), 0.001)


@ends_with()
async def leaves_a_time_limit_at_once() -> None:
    async with asyncio.timeout(0):  # noqa: ASYNC100  never reaching an await is the point
        pass


@ends_with()
async def gathers() -> None:
    assert [*await asyncio.gather(_number(1), _number(2))] == [1, 2]


async def _number(number: int) -> int:
    await asyncio.sleep(0)
    return number


@ends_with("ExceptionGroup")
async def is_cancelled_by_its_own_group_of_tasks() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_fails())
        await asyncio.Event().wait()


async def _fails() -> None:
    raise ValueError("a child")


@ends_with()
async def cancels_itself_and_returns() -> None:
    this_task().cancel()


@ends_with("CancelledError")
async def cancels_itself_and_waits() -> None:
    this_task().cancel("mine")
    await asyncio.sleep(0)


@ends_with("CancelledError")
async def raises_a_cancellation() -> None:
    raise asyncio.CancelledError("mine")


@ends_with()
async def swallows_its_cancellation() -> None:
    task = this_task()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    task.uncancel()
    await asyncio.sleep(0)


@ends_with("CancelledError")
async def is_cancelled_before_its_second_step() -> None:
    """The next callback of the burst does it, in the same round of the event loop."""
    future = asyncio.get_running_loop().create_future()
    waits_in_vain.append((this_task(), future))
    with pytest.raises(asyncio.CancelledError, match="from outside") as cancelled:
        await future
    assert future.cancelled()
    raise cancelled.value


@ends_with()
async def is_the_next_one_that_cancels() -> None:
    task, _ = waits_in_vain.pop()
    assert task is not this_task()
    task.cancel("from outside")


@ends_with("CancelledError")
async def is_cancelled_when_it_could_go_on() -> None:
    """A cancellation that comes before the second step counts, even if the awaited thing is done."""
    future = asyncio.get_running_loop().create_future()
    waits_in_vain.append((this_task(), future))
    await future


@ends_with()
async def is_the_next_one_that_lets_it_go_on_and_cancels() -> None:
    task, future = waits_in_vain.pop()
    future.set_result(None)
    task.cancel()


@ends_with("CancelledError")
async def is_cancelled_before_its_second_step_while_it_gathers() -> None:
    """An awaitable that takes a round of the event loop to be cancelled is waited for."""
    waits_in_vain.append((this_task(), asyncio.get_running_loop().create_future()))
    await asyncio.gather(_number(1), _number(2))


@ends_with()
async def is_the_next_one_that_cancels_what_gathers() -> None:
    task, _ = waits_in_vain.pop()
    task.cancel()


class Reluctant(asyncio.Future[None]):
    """Takes a while to be cancelled, as a task does that cleans up."""

    def cancel(self, msg: Any = None) -> bool:
        self.get_loop().call_later(0.001, super().cancel, msg)
        return True


@ends_with("CancelledError")
async def is_cancelled_before_its_second_step_and_waits_for_what_it_waits_for() -> None:
    future = Reluctant()
    waits_in_vain.append((this_task(), future))
    try:
        await future
    finally:
        assert future.cancelled()


@ends_with()
async def is_the_next_one_that_cancels_what_takes_a_while() -> None:
    task, _ = waits_in_vain.pop()
    task.cancel()


@ends_with()
async def leaves_a_task_that_goes_on() -> None:
    """A child that nothing waits for cancels the task of its parent, which is over."""
    parent, loop = this_task(), asyncio.get_running_loop()
    loop.call_soon(parent.cancel)


@ends_with()
async def keeps_its_task() -> None:
    tasks_seen.append(this_task())
    assert len(set(map(id, tasks_seen))) == len(tasks_seen), "a task that is known elsewhere is not used again"


@ends_with()
async def keeps_its_task_and_waits() -> None:
    await keeps_its_task()
    await asyncio.sleep(0)


@ends_with("SystemExit")
async def exits_at_once() -> None:
    sys.exit("at once")


@ends_with("SystemExit")
async def exits_later() -> None:
    await asyncio.sleep(0)
    sys.exit("later")


@ends_with()
async def cannot_stop_its_scheduler() -> None:
    with pytest.raises(StopSchedulerError):
        await schedulers[0].stop()
    with pytest.raises(StopSchedulerError):
        await asyncio.create_task(schedulers[0].stop())


# --- on each kind of event loop ---------------------------------------------------------------------------------------


def _eager() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]  # new in 3.12
    return loop


def _debugging() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    return loop


LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop, "debug": _debugging} | (
    {"eager": _eager} if HAS_EAGER_TASKS else {}
)


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    """An event loop of each kind."""
    for kept in (tasks_seen, waits_in_vain, schedulers):
        kept.clear()
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner


def outcomes(store: Path) -> Counter[tuple[str, str]]:
    """How often each callback ended with each class of error, by history."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT name, coalesce(error, '') FROM runs JOIN tasks USING (generation)").fetchall()
    return Counter((name.split("/")[1], re.split("[:;]", error)[0].rpartition(".")[2]) for name, error in rows)


async def burst(store: Path) -> None:
    """All callbacks, twice, due at once; a callback that waits for the next one finds it behind itself."""
    scheduler = duly.Scheduler(store)
    schedulers.append(scheduler)
    await scheduler.initialize(
        [
            (f"{times}/{name}", "* * * * *", callback, timedelta(days=1))
            for times in range(2)
            for name, (callback, _) in CALLBACKS.items()
        ]
    )
    await ended(store, 2 * len(CALLBACKS))
    await scheduler.stop()


async def ended(store: Path, runs: int) -> None:
    """Return when history has as many runs; nothing listens to the scheduler, which would take another path then."""
    async with asyncio.timeout(60):
        while sum(outcomes(store).values()) < runs:  # noqa: ASYNC110  a store tells nobody
            await asyncio.sleep(0.01)


def test_awkward_callbacks_end_as_they_would_as_tasks_of_their_own(runner: asyncio.Runner, tmp_path: Path) -> None:
    """SPEC 3.11: in a burst, on each kind of event loop; none of them leaves anything to the next."""
    runner.run(burst(tmp_path / "store.db"))
    told = outcomes(tmp_path / "store.db")
    # A minute may begin during the test, and all run once more.
    assert set(told) == {(name, error) for name, (_, error) in CALLBACKS.items()}
    assert min(told.values()) >= 2
    gc.collect()  # a task that was destroyed while it was pending would say so now


@pytest.mark.parametrize("timeout", [timedelta(milliseconds=50)])
def test_a_time_limit_cancels_a_callback_that_began_in_a_burst(
    runner: asyncio.Runner, tmp_path: Path, timeout: timedelta
) -> None:
    """SPEC 3.10: `run_timeout`; what is cancelled is the callback that waits, and none that began with it."""

    async def for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        scheduler = duly.Scheduler(tmp_path / "store.db", run_timeout=timeout)
        names = {"in vain": for_ever, "short": _fails_not, "in vain too": for_ever}
        await scheduler.initialize(
            [(f"0/{name}", "* * * * *", callback, timedelta(days=1)) for name, callback in names.items()]
        )
        await ended(tmp_path / "store.db", len(names))
        await scheduler.stop()

    runner.run(main())
    assert set(outcomes(tmp_path / "store.db")) == {
        ("in vain", "TimeoutError"),
        ("in vain too", "TimeoutError"),
        ("short", ""),
    }


async def _fails_not() -> None:
    pass


# --- the two ways -----------------------------------------------------------------------------------------------------

both_ways = pytest.mark.parametrize("way", WAYS)


async def _nothing() -> None:
    pass


@both_ways
async def test_a_coroutine_that_is_over_after_its_first_step_has_no_task(way: Steps) -> None:
    """Nothing of it meets the event loop."""
    before = asyncio.current_task()
    with way() as steps:
        assert steps.begin(_nothing()) is None
    assert asyncio.current_task() is before


@both_ways
async def test_a_coroutine_that_waits_goes_on_in_the_task_that_it_began_in(way: Steps) -> None:
    """The task is its own, also after the event loop has turned."""
    seen: list[Any] = []

    async def waits() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    steps = way()
    with steps:
        works = [waits(), waits()]
        tasks = [steps.begin(work) for work in works]
        assert None not in tasks
        assert tasks[0] is not tasks[1]
    await asyncio.gather(*filter(None, tasks))
    assert seen == [*tasks, *tasks]
    with steps:  # and again, when the event loop has turned
        assert steps.begin(_nothing()) is None


@both_ways
async def test_a_task_says_where_its_coroutine_waits(way: Steps) -> None:
    """`Task.print_stack` and debuggers find the callback."""

    async def waits() -> None:
        await asyncio.Event().wait()

    with way() as steps:
        task = steps.begin(waits())
    assert task is not None
    await asyncio.sleep(0)
    assert [frame.f_code.co_name for frame in task.get_stack()] == ["waits"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@both_ways
async def test_what_is_left_over_can_be_cancelled_without_a_trace(way: Steps) -> None:
    """Something cancels every task of the event loop before it turns: no task ends with an error."""
    before = asyncio.all_tasks()
    with way() as steps:
        assert steps.begin(_nothing()) is None
    left_over = asyncio.all_tasks() - before
    for task in left_over:
        task.cancel()
    ended = await asyncio.gather(*left_over, return_exceptions=True)
    assert {type(each) for each in ended} <= {asyncio.CancelledError}


def test_an_exception_is_thrown_in_either_form() -> None:
    """As coroutines take it: alone, or after its class and before a traceback."""
    error = ValueError("thrown")
    for form in ((error,), (ValueError, error, None)):
        with pytest.raises(ValueError, match="thrown") as raised:
            RestOfSteps().throw(*form)
        assert raised.value is error


@both_ways
async def test_a_coroutine_can_be_closed_by_its_task(way: Steps) -> None:
    """As debuggers and test frameworks do with tasks whose event loop is gone: its clean-up runs."""
    cleaned_up = False

    async def waits() -> None:
        nonlocal cleaned_up
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up = True

    with way() as steps:
        task = steps.begin(waits())
    assert task is not None
    await asyncio.sleep(0)
    coroutine: Any = task.get_coro()
    coroutine.close()
    assert cleaned_up
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, RuntimeError):  # the coroutine can take no further step
        await task


@both_ways
def test_a_coroutine_that_began_and_goes_on_is_closed_with_its_event_loop(way: Steps) -> None:
    """SPEC 3.11: torn down, it is cancelled; its clean-up runs."""
    cleaned_up = False

    async def waits() -> None:
        nonlocal cleaned_up
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up = True

    async def main() -> None:
        with way() as steps:
            steps.begin(waits())

    asyncio.run(main())
    assert cleaned_up


@pytest.mark.skipif(HAS_EAGER_TASKS, reason="eager tasks take the place of stand-ins since Python 3.12")
async def test_callbacks_that_leave_no_trace_share_a_task() -> None:
    """The saving of a stand-in: a task for each of a thousand callbacks that return at once."""
    seen = []

    async def looks() -> None:
        seen.append(id(asyncio.current_task()))

    with StandIns() as steps:
        for _ in range(100):
            steps.begin(looks())
    assert len(set(seen)) == 1


@pytest.mark.skipif(HAS_EAGER_TASKS, reason="eager tasks take the place of stand-ins since Python 3.12")
async def test_the_rest_of_a_coroutine_is_for_its_task_alone() -> None:
    """A stand-in's coroutine is nothing that an application could await."""
    with StandIns() as steps:
        task = steps.begin(asyncio.sleep(0))
    assert task is not None
    rest: Work = task.get_coro()  # type: ignore[assignment]
    with pytest.raises(TypeError, match="only the task"):
        await rest
    await task
