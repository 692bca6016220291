"""Turns on the event loop: long work lets others run in between."""

import asyncio

import pytest

from duly.core.steps import Steps
from duly.engine.pacing import SLICE_SECONDS, breathe, paced
from tests.spec.helpers import ManualClock


class Neighbour:
    """Something else on the event loop, that counts how often it has its turn."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turns += 1

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@pytest.mark.parametrize(
    ("steps", "seconds_each", "least", "most"),
    [
        (10_000, 0.0, 0, 0),  # quick steps: others wait
        (10_000, SLICE_SECONDS / 1_000, 5, 10),
        (640, SLICE_SECONDS / 10, 9, 10),  # asked every 64 steps
        (640, 1.0, 9, 10),
        (0, 1.0, 0, 0),
    ],
)
async def test_many_steps_are_gone_through_in_slices(steps: int, seconds_each: float, least: int, most: int) -> None:
    """Architecture: slices of at most 10 ms, yielding between them."""
    clock, neighbour = ManualClock(), Neighbour()
    await breathe()
    taken: list[int] = []

    def work() -> Steps[str]:
        for n in range(steps):
            clock.advance(seconds_each)
            taken.append(n)
            yield
        return "done"

    before = neighbour.turns
    result = await paced(clock, work(), steps_between_clock_reads=64)
    assert least <= neighbour.turns - before <= most
    assert taken == list(range(steps))
    assert result == "done"
    await neighbour.leave()


async def test_an_error_in_a_step_comes_through() -> None:
    """SPEC 1.4: the first failure is raised."""

    def work() -> Steps[None]:
        yield
        raise KeyError("second")

    with pytest.raises(KeyError):
        await paced(ManualClock(), work())


def test_slices_are_short() -> None:
    """Architecture: at most 10 ms."""
    assert 0 < SLICE_SECONDS <= 0.010
