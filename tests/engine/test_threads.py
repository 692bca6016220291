"""Daemon threads for blocking calls: of callbacks, several at once, and of a store, one after the other."""

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from duly.threads import DaemonThreads, default_threads


@pytest.fixture
async def pool() -> AsyncIterator[DaemonThreads]:
    pool = DaemonThreads(4, "duly-run")
    yield pool
    pool.close()


def workers() -> set[threading.Thread]:
    """The threads for callbacks that are alive."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("duly-run")}


async def test_a_blocking_callback_runs_in_a_daemon_thread(pool: DaemonThreads) -> None:
    """SPEC 3.10: our own daemon threads; SPEC 1.3: blocking code cannot stall the scheduler."""
    thread = await pool.run(threading.current_thread)
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert thread in workers()


async def test_what_a_callback_returns_comes_back(pool: DaemonThreads) -> None:
    """SPEC 1.3: an awaitable it returns is awaited on the loop."""
    answer = object()
    assert await pool.run(lambda: answer) is answer
    nothing: Callable[[], object] = lambda: None  # noqa: E731
    assert await pool.run(nothing) is None


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
    pool: DaemonThreads, error: BaseException
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


async def test_stop_iteration_comes_back_as_the_cause_of_an_error(pool: DaemonThreads) -> None:
    """SPEC 3.11: a future cannot carry it, and the run must have failed all the same."""
    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        await pool.run(lambda: next(iter(())))
    assert isinstance(caught.value.__cause__, StopIteration)


async def test_threads_are_used_again(pool: DaemonThreads) -> None:
    """SPEC 3.10: started as they are needed, one after the other needs one."""
    assert len({await pool.run(threading.get_ident) for _ in range(20)}) == 1
    assert len(workers()) == 1


async def test_as_many_threads_as_callbacks_at_once(pool: DaemonThreads) -> None:
    """SPEC 3.10: no callback waits behind another one while there is a slot."""
    together = threading.Barrier(4, timeout=30)
    for _ in range(3):
        await asyncio.gather(*(pool.run(together.wait) for _ in range(4)))
    assert len(workers()) == 4


async def test_the_event_loop_goes_on_while_a_callback_blocks(pool: DaemonThreads) -> None:
    """SPEC 1.3: blocking code cannot stall the scheduler."""
    release = threading.Event()
    blocked = asyncio.ensure_future(pool.run(lambda: release.wait(30)))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not blocked.done()
    release.set()
    assert await blocked is True


async def test_closing_ends_every_thread() -> None:
    """No threads left after stop; the pool for blocking callbacks is ours."""
    before = workers()
    pool = DaemonThreads(3, "duly-run")
    together = threading.Barrier(3, timeout=30)
    await asyncio.gather(*(pool.run(together.wait) for _ in range(3)))
    mine = workers() - before
    assert len(mine) == 3
    pool.close()
    assert not any(thread.is_alive() for thread in mine)
    pool.close()  # closing twice is fine


async def test_a_pool_that_was_never_used_has_no_threads() -> None:
    """SPEC 3.10: a scheduler of coroutine functions makes none."""
    before = threading.active_count()
    pool = DaemonThreads(32, "duly-run")
    assert threading.active_count() == before
    pool.close()


async def test_closing_does_not_wait_for_a_callback_that_never_returns() -> None:
    """SPEC 3.11: torn down without stop, the process still exits without hanging."""
    pool, release = DaemonThreads(2, "duly-run"), threading.Event()
    blocked = asyncio.ensure_future(pool.run(lambda: release.wait(30)))
    await asyncio.sleep(0)
    (thread,) = workers()
    pool.close(wait=False)
    assert thread.is_alive()
    release.set()
    assert await blocked is True
    thread.join(30)
    assert not thread.is_alive(), "it ends when its callback does"


async def test_a_callback_that_returns_after_its_caller_is_gone_disturbs_nobody(pool: DaemonThreads) -> None:
    """SPEC 3.10: a thread cannot be cancelled; what it comes to is then nobody's."""
    release = threading.Event()
    gone = asyncio.ensure_future(pool.run(lambda: release.wait(30)))
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
    pool, release, threads = DaemonThreads(1, "duly-run"), threading.Event(), set[threading.Thread]()
    runs: list[asyncio.Future[Any]] = []

    async def torn_down() -> None:
        runs.append(asyncio.ensure_future(pool.run(lambda: release.wait(30))))
        await asyncio.sleep(0)
        threads.update(workers())

    asyncio.run(torn_down())
    release.set()
    pool.close()
    (thread,) = threads
    assert not thread.is_alive()
    assert complaints == []


@pytest.mark.parametrize(("cores", "threads"), [(1, 5), (4, 8), (28, 32), (64, 32), (None, 5)])
def test_there_are_a_few_more_threads_than_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, threads: int
) -> None:
    """SPEC 3.10: `min(32, cores + 4)` of them."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert default_threads() == threads


word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="nothing")


async def test_a_callback_sees_the_context_of_its_caller_and_changes_only_its_own(pool: DaemonThreads) -> None:
    """SPEC 4.3: a context variable decides, in the worker thread too."""

    def speaks() -> str:
        heard = word.get()
        word.set("changed")
        return heard

    word.set("hello")
    assert await pool.run(speaks) == "hello"
    assert word.get() == "hello"
    assert await pool.run(speaks) == "hello", "nothing is left over in the thread"


# --- a single thread -------------------------------------------------------------------------------------------------


async def test_a_single_thread_runs_calls_in_their_order() -> None:
    """Store port: calls of one verb never overtake each other."""
    one, done = DaemonThreads(1, "duly-run"), list[int]()
    await asyncio.gather(*(one.run(lambda n=n: done.append(n)) for n in range(100)))  # type: ignore[misc]
    assert done == list(range(100))
    assert len(workers()) == 1
    one.close()


async def test_the_last_call_runs_after_all_earlier_ones() -> None:
    """Store port, abandon: what is being written now still completes, then everything is released."""
    one, release, done = DaemonThreads(1, "duly-run"), threading.Event(), list[str]()
    earlier = [
        asyncio.ensure_future(one.run(lambda: done.append("slow") if release.wait(30) else None)),
        asyncio.ensure_future(one.run(lambda: done.append("second"))),
    ]
    await asyncio.sleep(0)
    release.set()
    one.close(lambda: done.append("last"))
    assert done == ["slow", "second", "last"]
    assert not workers()
    await asyncio.gather(*earlier)


def test_the_last_call_needs_no_thread_and_no_event_loop() -> None:
    """Store port, abandon: a store that was never opened has no thread."""
    done: list[threading.Thread] = []
    DaemonThreads(1, "duly-run").close(lambda: done.append(threading.current_thread()))
    assert done == [threading.current_thread()]


async def test_threads_that_were_closed_can_be_used_again() -> None:
    """Store port: a closed store can be opened again."""
    one = DaemonThreads(1, "duly-run")
    for _ in range(3):
        thread = await one.run(threading.current_thread)
        one.close()
        assert not thread.is_alive()


async def test_a_call_that_outlives_its_closing_holds_up_nothing_after_it() -> None:
    """Store port, abandon: a write that hangs ends with its own thread; the store can be opened again meanwhile."""
    one, release = DaemonThreads(1, "duly-run"), threading.Event()
    hanging = asyncio.ensure_future(one.run(lambda: release.wait(30)))
    await asyncio.sleep(0)
    one.close(wait=False)
    assert await asyncio.wait_for(one.run(lambda: "next"), 30) == "next"
    release.set()
    assert await hanging is True
    assert await asyncio.wait_for(one.run(lambda: "again"), 30) == "again"
    one.close()
