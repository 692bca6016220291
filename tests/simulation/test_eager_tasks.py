"""Eager tasks against the properties: an event loop all of whose tasks take their first step at once.

duly calls callbacks at once on every Python. Since 3.12 an application may make that the rule for its whole event loop
(`asyncio.eager_task_factory`); duly's own tasks then begin in another order, and every oracle must be as content as
before. On Python 3.11 there is nothing of the kind: what remains is the plain loop, with which the other is compared.
"""

import asyncio
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from duly.testing import SimulatedHost
from tests.counts import share
from tests.simulation.crashes import Life, first_life, lived
from tests.simulation.oracles import Evidence, Witness, judge, observed
from tests.simulation.scenarios import BOOT, SCENARIOS, Scenario

HAS_EAGER_TASKS: Final = sys.version_info >= (3, 12)

WAYS: Final = ("plain", "eager") if HAS_EAGER_TASKS else ("plain",)
"""How the tasks of the event loop start."""

DEATHS: Final = 6
"""Crash points of each scenario that are tried with each way."""

in_every_way: Final = pytest.mark.parametrize("way", WAYS)
in_every_scenario: Final = pytest.mark.parametrize(
    ("scenario", "way"),
    [
        pytest.param(scenario, way, id=f"{scenario.name} {way}")
        for scenario in SCENARIOS
        for way in WAYS
        if way != "plain" or scenario is BOOT  # all of the plain ones are in test_crash_everywhere
    ],
)


pytestmark = pytest.mark.usefixtures("ignored")


def beginning(scenario: Scenario, way: str) -> Life:
    """A first life in which tasks start in this way."""
    return replace(first_life(scenario), eager_tasks=way == "eager")


@in_every_scenario
def test_whatever_the_way_of_starting_the_same_tasks_start_at_the_same_instants(scenario: Scenario, way: str) -> None:
    """SPEC 7, FORMAL D4: all oracles, and the same multiset of starts as with plain tasks."""
    eager, plain = lived(beginning(scenario, way)), lived(beginning(scenario, "plain"))
    assert eager.evidence is not None
    assert plain.evidence is not None
    assert observed(eager.evidence) == observed(plain.evidence)


@in_every_scenario
def test_death_is_survived_whatever_the_way_of_starting(scenario: Scenario, way: str) -> None:
    """FORMAL D3: a sample of the crash points; which there are depends on the way of starting."""
    life = lived(beginning(scenario, way))
    for number in share(range(0, len(life.points), -(-len(life.points) // DEATHS)), 2):
        lived(life.dies_at(number))


@in_every_way
async def test_the_first_step_of_a_callback_is_taken_inside_the_launch(way: str) -> None:
    """A callback does not wait for a round of the event loop, whatever the tasks of the application do."""
    inside_the_launch: list[bool] = []

    async def look_around() -> None:
        inside_the_launch.append("launch" in [frame.name for frame in traceback.extract_stack()])

    with tasks_started(way):
        async with SimulatedHost("2024-01-01T12:00:30", "UTC") as host:
            await host.scheduler().initialize([("x", "* * * * *", look_around, timedelta(0))])
            await host.advance(minutes=1)
    assert inside_the_launch == [True, True]


@contextmanager
def tasks_started(way: str) -> Iterator[None]:
    """On the running event loop, from here on."""
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if way == "eager" and sys.version_info >= (3, 12):
        loop.set_task_factory(asyncio.eager_task_factory)
    try:
        yield
    finally:
        loop.set_task_factory(factory)


@in_every_way
async def test_callbacks_that_finish_in_their_first_step_leave_nothing_behind(way: str, tmp_path: Path) -> None:
    """SPEC 3.9, 4.3: such a run ends inside its launch; stop() from a task of an eager loop still waits for all."""
    before = asyncio.all_tasks()
    witness, store = Witness(), tmp_path / "duly.db"
    numbers = count()

    async def at_once() -> None:
        next(numbers)

    async def fails() -> None:
        raise ValueError("at once")

    async def yields() -> None:
        await asyncio.sleep(0)

    minutely = [
        (name, "* * * * *", witness.watch(name, callback), timedelta(seconds=7))
        for name, callback in (("at once", at_once), ("fails", fails), ("yields", yields))
    ]
    with tasks_started(way):
        async with SimulatedHost("2024-01-01T12:00:30", "UTC", store=store) as host:
            scheduler = host.scheduler(trace=True)
            await scheduler.initialize(minutely)
            await host.advance(minutes=4)
            again = asyncio.ensure_future(scheduler.initialize(minutely))
            await asyncio.gather(again, asyncio.ensure_future(scheduler.stop()))
            evidence = Evidence.of(host, store, clean=True, witness=witness)
    judge(evidence)
    assert next(numbers) == 5
    assert asyncio.all_tasks() == before
