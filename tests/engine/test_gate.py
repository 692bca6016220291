"""The gate: whether anything may start, whether the engine ends, and whether its event loop is going away."""

import asyncio
import contextlib

import pytest

from duly.engine.gate import Gate


async def test_nothing_may_start_while_a_stop_waits() -> None:
    """SPEC 4.3: a stop() closes the gate at once, and opens it again if it returns without an end."""
    gate = Gate(0)
    assert (gate.open, gate.stopping, gate.closing, gate.abandoned) == (True, False, False, False)
    gate.count_stops(2)
    assert (gate.open, gate.stopping) == (False, True)
    gate.count_stops(1)
    assert (gate.open, gate.stopping) == (False, True)
    gate.count_stops(0)
    assert (gate.open, gate.stopping) == (True, False)


@pytest.mark.parametrize("stops", [1, 2])
async def test_an_engine_that_begins_while_a_stop_waits_starts_nothing(stops: int) -> None:
    """SPEC 4.3: an initialize() that goes first does not open the gate."""
    gate = Gate(stops)
    assert (gate.open, gate.stopping, gate.closing) == (False, True, False)


async def test_a_gate_that_was_closed_stays_closed() -> None:
    """SPEC 4.3, 3.11: with or without a stop()."""
    gate = Gate(0)
    gate.close()
    assert (gate.open, gate.closing, gate.stopping) == (False, True, False)
    gate.count_stops(0)
    assert (gate.open, gate.closing, gate.stopping) == (False, True, False)


async def test_an_event_loop_goes_away_when_the_task_of_the_loop_is_cancelled() -> None:
    """SPEC 3.11: from the request on, and when the task has ended, by whatever way."""

    async def poll() -> None:
        await asyncio.Event().wait()

    async def give_up() -> None:
        raise asyncio.CancelledError

    gate = Gate(0)
    assert not gate.tearing_down
    gate.loop_task = asyncio.create_task(poll())
    await asyncio.sleep(0)
    assert not gate.tearing_down
    gate.loop_task.cancel()
    assert gate.tearing_down
    with contextlib.suppress(asyncio.CancelledError):
        await gate.loop_task
    assert gate.tearing_down
    gate.loop_task = asyncio.create_task(give_up())
    assert not gate.tearing_down
    await asyncio.wait([gate.loop_task])
    assert gate.tearing_down
