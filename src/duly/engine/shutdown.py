"""How an engine ends: after its last callback, when a stop() asks for it, or at once, when the event loop goes away."""

import asyncio
from typing import Any, Final

from duly.engine.calls import Calls
from duly.engine.engine import Engine

STOP_PATIENCE_SECONDS: Final = 30.0
"""How long a stop() tries to store ends after the last callback returned (SPEC 4.3)."""


async def shut_down(engine: Engine, calls: Calls) -> Exception | None:
    """Let running callbacks end, record their ends, release everything; returns the fault that kept ends from it."""
    engine.gate.close()
    engine.gate.wake.set()
    try:
        while not _is_at_rest(engine):
            # The loop polls on meanwhile, and time limits hold to the end.
            await engine.runner.all_returned.wait()
            if (fault := await _drain(engine)) is not None:
                return fault
            if engine.gate.loop_task is not None:
                await engine.gate.loop_task
        if engine.trace is not None:
            calls.close(engine.journal)
            if (fault := await _drain(engine)) is not None:
                return fault
        for helper in engine.helpers:
            helper.cancel()
        engine.runner.close(wait=True)
        await engine.setup.store.close()
    except asyncio.CancelledError:
        tear_down(engine)
        raise
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
    engine.setup.store.abandon()
