"""Living runs, the context that tells whether code is inside one, and the threads for blocking callbacks."""

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from duly.core.moments import Instant, Minute
from duly.core.registration import Kind
from duly.core.task import AwaitingRun, Owed, grounds_for
from duly.engine.runs import Run, ThreadPool, default_pool_size, inside, run_around
from tests.core.helpers import at, minute, task

NOW = at("2025-06-15T12:00:30")


def run_of(owner: object, *, outer: Run | None = None) -> Run:
    """A living run of a scheduler."""
    this = minute("2025-06-15T12:00")
    each = task("a", "* * * * *", AwaitingRun(Minute(this - 60)), kind=Kind.THREAD)
    grounds = grounds_for(each.state, Owed(this, this), NOW, this)
    assert grounds is not None
    run = Run(each, 1, grounds, owner, 0.0)
    run.outer = outer
    return run


@pytest.fixture
async def pool() -> AsyncIterator[ThreadPool]:
    pool = ThreadPool(4)
    yield pool
    pool.close(wait=True)


def workers() -> set[threading.Thread]:
    """The threads for callbacks that are alive."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("duly-run")}


# --- threads ---------------------------------------------------------------------------------------------------------


async def test_a_blocking_callback_runs_in_a_daemon_thread(pool: ThreadPool) -> None:
    """SPEC 3.10: our own daemon threads; SPEC 1.3: blocking code cannot stall the scheduler."""
    thread = await pool.run(threading.current_thread)
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert thread in workers()


async def test_what_a_callback_returns_comes_back(pool: ThreadPool) -> None:
    """SPEC 1.3: an awaitable it returns is awaited on the loop."""
    answer = object()
    assert await pool.run(lambda: answer) is answer
    assert await pool.run(lambda: None) is None


class Odd(BaseException):
    """No Exception at all."""


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        StopAsyncIteration(),
        TimeoutError(),
        RecursionError(),
        MemoryError(),
        ExceptionGroup("several", [ValueError("x")]),
        Odd(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_callback_raises_comes_back_and_the_thread_goes_on(
    pool: ThreadPool, error: BaseException
) -> None:
    """SPEC 3.11: a callback that raises anything has failed; other tasks go on."""

    def raises() -> None:
        raise error

    before = await pool.run(threading.get_ident)
    caught: BaseException | None = None
    try:
        await pool.run(raises)
    except BaseException as raised:
        caught = raised
    assert caught is error
    assert await pool.run(threading.get_ident) == before


async def test_stop_iteration_comes_back_as_the_cause_of_an_error(pool: ThreadPool) -> None:
    """SPEC 3.11: a future cannot carry it, and the run must have failed all the same."""
    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        await pool.run(lambda: next(iter(())))
    assert isinstance(caught.value.__cause__, StopIteration)


async def test_threads_are_used_again(pool: ThreadPool) -> None:
    """SPEC 3.10: started as they are needed, one after the other needs one."""
    assert len({await pool.run(threading.get_ident) for _ in range(20)}) == 1
    assert len(workers()) == 1


async def test_as_many_threads_as_callbacks_at_once(pool: ThreadPool) -> None:
    """SPEC 3.10: no callback waits behind another one while there is a slot."""
    together = threading.Barrier(4, timeout=30)
    for _ in range(3):
        await asyncio.gather(*(pool.run(together.wait) for _ in range(4)))
    assert len(workers()) == 4


async def test_the_event_loop_goes_on_while_a_callback_blocks(pool: ThreadPool) -> None:
    """SPEC 1.3: blocking code cannot stall the scheduler."""
    release = threading.Event()
    blocked = asyncio.create_task(pool.run(lambda: release.wait(30)))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not blocked.done()
    release.set()
    assert await blocked is True


async def test_closing_ends_every_thread() -> None:
    """No threads left after stop; the pool for blocking callbacks is ours."""
    before = workers()
    pool = ThreadPool(3)
    together = threading.Barrier(3, timeout=30)
    await asyncio.gather(*(pool.run(together.wait) for _ in range(3)))
    mine = workers() - before
    assert len(mine) == 3
    pool.close(wait=True)
    assert not any(thread.is_alive() for thread in mine)
    pool.close(wait=True)  # closing twice is fine


async def test_a_pool_that_was_never_used_has_no_threads() -> None:
    """SPEC 3.10: a scheduler of coroutine functions makes none."""
    before = threading.active_count()
    pool = ThreadPool(32)
    assert threading.active_count() == before
    pool.close(wait=True)


async def test_closing_does_not_wait_for_a_callback_that_never_returns() -> None:
    """SPEC 3.11: torn down without stop, the process still exits without hanging."""
    pool, release = ThreadPool(2), threading.Event()
    blocked = asyncio.create_task(pool.run(lambda: release.wait(30)))
    await asyncio.sleep(0)
    (thread,) = workers()
    pool.close(wait=False)
    assert thread.is_alive()
    release.set()
    assert await blocked is True
    thread.join(30)
    assert not thread.is_alive(), "it ends when its callback does"


async def test_a_callback_that_returns_after_its_caller_is_gone_disturbs_nobody(pool: ThreadPool) -> None:
    """SPEC 3.10: a thread cannot be cancelled; what it comes to is then nobody's."""
    release = threading.Event()
    gone = asyncio.create_task(pool.run(lambda: release.wait(30)))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    release.set()
    assert await asyncio.wait_for(pool.run(lambda: "next"), 30) == "next"


def test_a_callback_that_returns_after_the_loop_is_gone_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 3.11: nobody waits any more."""
    complaints: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", complaints.append)
    pool, release, threads = ThreadPool(1), threading.Event(), set[threading.Thread]()
    runs: list[asyncio.Task[Any]] = []

    async def torn_down() -> None:
        runs.append(asyncio.create_task(pool.run(lambda: release.wait(30))))
        await asyncio.sleep(0)
        threads.update(workers())

    asyncio.run(torn_down())
    release.set()
    pool.close(wait=True)
    (thread,) = threads
    assert not thread.is_alive()
    assert complaints == []


@pytest.mark.parametrize(("cores", "threads"), [(1, 5), (4, 8), (28, 32), (64, 32), (None, 5)])
def test_there_are_a_few_more_threads_than_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, threads: int
) -> None:
    """SPEC 3.10: `min(32, cores + 4)` of them."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert default_pool_size() == threads


# --- context ---------------------------------------------------------------------------------------------------------

word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="nothing")


async def test_a_callback_sees_the_context_of_its_caller_and_changes_only_its_own(pool: ThreadPool) -> None:
    """SPEC 4.3: a context variable decides, in the worker thread too."""

    def speaks() -> str:
        heard = word.get()
        word.set("changed")
        return heard

    word.set("hello")
    assert await pool.run(speaks) == "hello"
    assert word.get() == "hello"
    assert await pool.run(speaks) == "hello", "nothing is left over in the thread"


async def test_outside_of_every_run_there_is_none_around() -> None:
    """SPEC 4.3: stop from outside is fine."""
    assert run_around(object()) is None


async def test_a_run_is_around_the_code_of_its_callback(pool: ThreadPool) -> None:
    """SPEC 4.3: tasks it spawned and calls from its worker thread included."""
    owner = object()
    run = run_of(owner)
    inside.set(run)
    assert run_around(owner) is run
    assert await pool.run(lambda: run_around(owner)) is run

    async def spawned() -> Run | None:
        return run_around(owner)

    assert await asyncio.create_task(spawned()) is run


async def test_a_run_that_has_ended_is_around_nothing() -> None:
    """SPEC 4.3: inside means in the context of a run that has not ended."""
    owner = object()
    run = run_of(owner)
    inside.set(run)
    run.ended = True
    assert run_around(owner) is None


async def test_the_run_of_another_scheduler_is_none_of_mine() -> None:
    """Two schedulers in one process; a callback of one may stop the other."""
    mine, theirs = object(), object()
    inside.set(run_of(theirs))
    assert run_around(mine) is None
    assert run_around(theirs) is not None


async def test_a_scheduler_started_inside_a_run_is_inside_that_run() -> None:
    """SPEC 4.3: a run of an inner scheduler is inside the outer one's, too, and waiting for that would never end."""
    outer_owner, inner_owner = object(), object()
    outer = run_of(outer_owner)
    inside.set(run_of(inner_owner, outer=outer))
    assert run_around(outer_owner) is outer
    outer.ended = True
    assert run_around(outer_owner) is None
    assert run_around(inner_owner) is not None


def test_a_run_began_when_its_start_was_decided() -> None:
    """SPEC 3.9: one and the same clock sample."""
    run = run_of(object())
    assert run.started_at == NOW == Instant(run.grounds.at)
    assert run.kind is Kind.THREAD
    assert (run.ended, run.timed_out, run.cancellable, run.overdue) == (False, False, False, False)
