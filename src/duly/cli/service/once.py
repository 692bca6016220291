"""`duly run --once`: one task, now, without a scheduler and without a store."""

import asyncio
import contextlib
import inspect
import shlex
from datetime import timedelta

from duly import events
from duly.cli.file_watch import pause
from duly.cli.output import Exit, fail
from duly.cli.service.events_log import ApplicationLog, EventsLog
from duly.cli.target import Loaded, Target, load
from duly.clock import Clock, SystemClock
from duly.core.moments import Instant, as_datetime
from duly.core.registration import Callback, Registration, RunsOn
from duly.core.task import idempotency_key
from duly.engine.failure import error_text
from duly.engine.host import system_host
from duly.engine.runner import outlasted
from duly.insight.words import names
from duly.run_context import CurrentRun, entered
from duly.text import meant, plain

_MICROSECOND = timedelta(microseconds=1)


async def run_once(target: Target, name: str, limit: timedelta | None, log: EventsLog) -> Exit:
    """Run a task of a target, and say how it ended; `limit` is the time that it may take."""
    registration = _named(name, await load(target))
    ApplicationLog(log).install()
    clock = SystemClock()
    now = clock.now()
    started = as_datetime(now, clock.zone())
    # Nothing repeats this run. No declaration has number 0, so no run of a scheduler has its key.
    run = CurrentRun(name, 0, started, started, "manual", 1, idempotency_key(name, 0, Instant(now)))

    def report(event: events.Event) -> None:
        log.event(event, lambda _: registration.expression)

    report(events.TaskRunStarted(name, started, started, run.cause, run.run_id))
    begun = clock.elapsed()
    with entered(run):
        error = await _error_of(registration, limit, clock)
    duration = (clock.elapsed() - begun) * 1000
    if error is None:
        report(events.TaskRunCompleted(name, duration, run.run_id))
        return Exit.OK
    report(events.TaskRunFailed(name, duration, error_text(error), run.run_id, exception=error))
    return Exit.NO


def _named(name: str, loaded: Loaded) -> Registration:
    found = next((each for each in loaded.registrations if each.name == name), None)
    if found is None:
        known = [each.name for each in loaded.registrations]
        close = meant(name, known)
        hint = f"did you mean {shlex.quote(plain(close))}?" if close else f"it has {names(known)}" if known else None
        fail(f"{loaded.target.text} has no task {plain(name)!r}", hint)
    return found


async def _error_of(registration: Registration, limit: timedelta | None, clock: Clock) -> BaseException | None:
    """The error that the callback raised, or that its time was up; None if it returned."""
    work = asyncio.ensure_future(_error_raised(registration.callback, registration.runs_on))
    limits = [] if limit is None else [asyncio.ensure_future(pause(clock, limit // _MICROSECOND))]
    try:
        await asyncio.wait([work, *limits], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return TimeoutError(outlasted(limit))
        return work.result()
    finally:
        for each in (work, *limits):
            each.cancel()
            if each is not work or registration.runs_on is RunsOn.LOOP:
                with contextlib.suppress(BaseException):
                    await each


async def _error_raised(callback: Callback, runs_on: RunsOn) -> BaseException | None:
    """Call it as a scheduler does: a coroutine function on the event loop, anything else in a thread.

    Its error is returned: raised out of a task of asyncio, SystemExit and KeyboardInterrupt would end the event loop,
    and a CancelledError would lose its traceback.
    """
    try:
        outcome = callback() if runs_on is RunsOn.LOOP else await system_host().new_pool(1).run(callback)
        if inspect.isawaitable(outcome):
            await outcome
    except BaseException as error:
        return error
    return None
