"""Living runs, and the context that tells whether code is inside one."""

import asyncio
from datetime import UTC

from duly.core.moments import Instant, Minute
from duly.core.registration import RunsOn
from duly.core.task import AwaitingRun, Owed, grounds_for
from duly.engine.runner import Call, Run, run_around
from duly.run_context import inside
from duly.threads import DaemonThreads
from tests.core.helpers import at, minute, task

NOW = at("2025-06-15T12:00:30")


def run_of(owner: object, *, outer: Run | None = None) -> Run:
    """A living run of a scheduler."""
    this = minute("2025-06-15T12:00")
    each = task("a", "* * * * *", AwaitingRun(Minute(this - 60)), runs_on=RunsOn.THREAD)
    grounds = grounds_for(each.state, Owed(this, this), NOW, this)
    assert grounds is not None
    return Run(each, 1, grounds, Call(owner, 0.0, None, UTC, outer))


async def test_outside_of_every_run_there_is_none_around() -> None:
    """SPEC 4.3: stop from outside is fine."""
    assert run_around(object()) is None


async def test_a_run_is_around_the_code_of_its_callback() -> None:
    """SPEC 4.3: tasks it spawned and calls from its worker thread included."""
    owner = object()
    run = run_of(owner)
    inside.set(run)
    assert run_around(owner) is run
    threads = DaemonThreads(1, "duly-run")
    assert await threads.run(lambda: run_around(owner)) is run
    threads.close()

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
    assert run.runs_on is RunsOn.THREAD
    assert (run.ended, run.timed_out, run.cancellable, run.overdue) == (False, False, False, False)
