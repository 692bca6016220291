"""A fault at every request, answer and callback step of five scenarios: nothing overlaps, nothing is lost."""

import random
import secrets
import time
from collections import Counter

import pytest

from duly.engine import runner
from tests.cluster.fast_loop import run_fast
from tests.cluster.guards import STEP_FENCE, THREAD_GATE, take_out_of_a_host
from tests.cluster.scenarios import SCENARIOS, Fault, Point, drawn, faults_at, played
from tests.conftest import soak_seconds
from tests.counts import FULL, SEED, share

POINTS_MIN = 180
"""Of each scenario, without a fault; about as many requests as answers, and the steps of callbacks."""

PARTS = 4
QUICK = 25


async def points_of(scenario: str) -> list[Point]:
    kinds = (await played(scenario)).kinds
    return [Point(scenario, number, kind) for number, kind in enumerate(kinds, 1)]


def faults_of(point: Point) -> list[Fault]:
    """Every fault that can be there; where counts are not full, one by the number of the point.

    Its neighbours have others then, and another DULY_SEED gives it another one.
    """
    names, chance = faults_at(point.kind), random.Random(f"{SEED} {point}")
    if not FULL:
        names = (names[(point.number + random.Random(SEED).randrange(len(names))) % len(names)],)
    return [drawn(name, chance) for name in names]


async def strike(point: Point, fault: Fault) -> None:
    """Play the scenario of a point with a fault there; a failure says which."""
    try:
        stage = await played(point.scenario, point.number, fault)
    except AssertionError as error:
        raise AssertionError(f"played({point.scenario!r}, {point.number}, {fault}): {error}") from error
    assert stage.struck.startswith(point.kind), point


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_scenario_has_points_of_every_kind_on_every_host(scenario: str) -> None:
    stage = await played(scenario)
    kinds = Counter(stage.kinds)
    assert len(stage.kinds) >= POINTS_MIN
    assert kinds["step"] >= 15
    assert kinds["before"] >= kinds["after"] > 80
    assert stage.strikable == {host.number for host in stage.cluster.hosts} - {stage.timer.number}
    assert {fault.name for point in await points_of(scenario) for fault in faults_of(point)} == set(faults_at("before"))


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_fault_at_any_request_answer_or_step_is_survived(scenario: str, part: int) -> None:
    """On uvloop where there is one, because it is faster: five thousand faults take minutes."""

    async def strike_all() -> None:
        for point in share(await points_of(scenario), QUICK)[part::PARTS]:
            for fault in faults_of(point):
                await strike(point, fault)

    run_fast(strike_all())


async def test_a_host_without_the_step_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge can object: a callback that takes steps without a lease overlaps with the run that follows its own."""
    (point, *_) = [each for each in await points_of("a shared minute") if each.kind == "step"]
    await strike(point, Fault("cut off", 3))
    monkeypatch.setattr(runner, "stepping", vars(runner)["stepping"])  # so that it is put back afterwards
    take_out_of_a_host({STEP_FENCE})
    with pytest.raises(AssertionError, match="cut off"):
        await strike(point, Fault("cut off", 3))


async def test_a_host_without_the_thread_gate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge can object: a blocking callback begins when its host wakes up, after the run that repeated it."""
    freeze, points = Fault("freeze", 3), [each for each in await points_of("a retry") if each.kind == "after"]
    monkeypatch.setattr(runner.Runner, "_call_in_thread", vars(runner.Runner)["_call_in_thread"])
    take_out_of_a_host({THREAD_GATE})
    for point in points:
        try:
            await strike(point, freeze)
        except AssertionError:
            break
    else:
        pytest.fail("no objection")
    monkeypatch.undo()
    await strike(point, freeze)


@pytest.mark.soak
async def test_any_fault_at_any_point_is_survived() -> None:
    """`make soak MINUTES=n` goes on with fresh faults; a failure says how it is repeated."""
    until, tried, chance = time.monotonic() + soak_seconds(), 0, secrets.SystemRandom()
    points = [point for scenario in SCENARIOS for point in await points_of(scenario)]
    while time.monotonic() < until:
        point = chance.choice(points)
        await strike(point, drawn(chance.choice(faults_at(point.kind)), chance))
        tried += 1
    print(f"{tried} faults at points of scenarios")
