"""How an engine ends: after its last callback, when a stop() asks for it, or at once, when the event loop goes away."""

import asyncio
from typing import Any, Final

from duly.core.moments import MICROSECONDS
from duly.engine.calls import Calls
from duly.engine.engine import Engine
from duly.engine.lease import BeatLease
from duly.errors import HostGoneError, LeaseLostError, StoreError

STOP_PATIENCE_SECONDS: Final = 30.0
"""How long a stop() tries to store ends after the last callback returned (SPEC 4.3)."""


async def shut_down(engine: Engine, calls: Calls) -> BaseException | None:
    """Let running callbacks end, record their ends, release everything; returns the fault that kept ends from it."""
    called_at = engine.setup.host.boottime()
    engine.gate.close()
    engine.gate.wake.set()
    try:
        while not _is_at_rest(engine):
            # The loop polls on meanwhile, and time limits hold to the end.
            if (fault := await _all_returned(engine, called_at)) is not None:
                return fault
            if (fault := await _drain(engine)) is not None:
                return fault
            if engine.gate.loop_task is not None:
                await engine.gate.loop_task
        if (fault := await _close_calls(engine, calls)) is not None:
            return fault
        for helper in engine.helpers:
            helper.cancel()
        engine.runner.close(wait=True)
        if engine.lease.lost:
            return LeaseLostError()
        try:
            await engine.recorder.close()
        except HostGoneError:
            return LeaseLostError()
        except StoreError as unanswered:
            return unanswered
    except asyncio.CancelledError:
        tear_down(engine)
        raise
    return None


async def _close_calls(engine: Engine, calls: Calls) -> Exception | None:
    """Have in the trace that the stop() is complete: a host of a shared store has it there when it leaves."""
    if engine.member is not None:
        calls.close(engine.member.membership)
    elif engine.trace is not None:
        calls.close(engine.journal)
        return await _drain(engine)
    return None


async def _all_returned(engine: Engine, called_at: float) -> Exception | None:
    """Wait for the last callback; one that is held for want of a lease is waited for 30 seconds (SPEC 9.19)."""
    returned, clock, lease = engine.runner.all_returned, engine.setup.clock, engine.lease
    if not isinstance(lease, BeatLease):
        await returned.wait()
        return None
    waiting = asyncio.ensure_future(returned.wait())
    try:
        while not returned.is_set():
            silent_for = engine.setup.host.boottime() - max(called_at, lease.answered_at)
            if not lease.lost and not lease.trusted() and silent_for >= STOP_PATIENCE_SECONDS:
                await asyncio.wait(abandon(engine))
                return TimeoutError("the store has answered no beat since stop() was called")
            look = asyncio.ensure_future(clock.sleep_until(clock.now() + MICROSECONDS, asyncio.Event()))
            await asyncio.wait({waiting, look}, return_when=asyncio.FIRST_COMPLETED)
            look.cancel()
    finally:
        waiting.cancel()
    return None


def _is_at_rest(engine: Engine) -> bool:
    """Nothing polls, runs or is being written. A start whose commit came late may have begun once more."""
    task = engine.gate.loop_task
    polls = task is not None and not task.done()
    return not polls and engine.runner.all_returned.is_set() and not engine.journal.busy


async def _drain(engine: Engine) -> Exception | None:
    """Wait until everything is durable; if that takes too long, abandon the engine and return the store's fault."""
    journal, deadline = engine.journal, engine.setup.clock.elapsed() + STOP_PATIENCE_SECONDS
    journal.hurry()
    while journal.busy and engine.runner.all_returned.is_set():
        if not await journal.progress(deadline):
            fault = journal.fault or TimeoutError("the store did not answer")
            await asyncio.wait(abandon(engine))
            return fault
    return None


def tear_down(engine: Engine) -> None:
    """The event loop is going away without a stop(), or under one that still waits (SPEC 3.11)."""
    if not engine.gate.abandoned:
        abandon(engine)


def abandon(engine: Engine) -> list["asyncio.Task[Any]"]:
    """Record nothing more, and release everything at once: the event loop, or the process, is going away.

    Returns the tasks that were cancelled and may take another round of the event loop to end.
    """
    engine.gate.close()
    engine.gate.abandoned = True
    tasks: list[asyncio.Task[Any]] = [*engine.helpers, *engine.runner.drop()]
    if engine.gate.loop_task is not None:
        tasks.append(engine.gate.loop_task)
    release(engine)
    for task in tasks:
        task.cancel()
    return tasks


def release(engine: Engine) -> None:
    """Let go of threads, file and lock, whatever state they are in."""
    engine.runner.close(wait=False)
    engine.recorder.abandon()
