"""A real process, killed or failed by its disk at the k-th system call on its store's files, for every k."""

import functools
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import soak_seconds
from tests.system import points
from tests.system.points import Ground, Point, prepare
from tests.system.record import record

Attempt = Callable[[Ground, Point], Counter[str]]
HARM: dict[str, Attempt] = {
    "killed": points.killed_and_begun_again,
    "failed once": functools.partial(points.failed, lasting=False),
    "failed from there on": functools.partial(points.failed, lasting=True),
}
KINDS = {
    "killed": "kill, at a system call",
    "failed once": "disk, a system call fails once",
    "failed from there on": "disk, a system call fails for good",
}
BEGINNINGS = {"first start-up": False, "after a crash": True}
POINTS_MIN = 4
"""The trials of a soak, however short it is."""


def _those_that_can(harm: str, found: list[Point]) -> list[Point]:
    return [point for point in found if harm == "killed" or point.call not in points.NEVER_FAIL]


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("harm", "beginning"),
    [
        ("killed", "first start-up"),
        ("failed once", "first start-up"),
        ("failed once", "after a crash"),
        ("failed from there on", "after a crash"),
    ],
)
def test_a_life_hurt_at_some_of_its_system_calls_loses_nothing(tmp_path: Path, harm: str, beginning: str) -> None:
    """SPEC 3.9, 4.3, 4.5, 4.6: of each call that it makes on its store's files, the one in the middle."""
    ground = prepare(tmp_path, used=BEGINNINGS[beginning])
    some = _those_that_can(harm, ground.middle())
    total = sum(points.tried(some, functools.partial(HARM[harm], ground)), Counter[str]())
    record(KINDS[harm], **total)
    assert total["points"] == len(some) >= 8


@pytest.mark.soak
@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_life_hurt_at_every_single_one_of_its_system_calls_loses_nothing(
    tmp_path: Path, harm: str, beginning: str
) -> None:
    """For every k, in random order: if the time of the soak ends before all are tried, the next soak tries others.

    If it does not, all of them are tried again: threads meet in other ways.
    """
    until = time.monotonic() + soak_seconds()
    ground = prepare(tmp_path, used=BEGINNINGS[beginning])
    every = _those_that_can(harm, ground.points())
    total: Counter[str] = Counter()
    left: list[Point] = []
    while total["points"] < POINTS_MIN or time.monotonic() < until:
        left = left or random.sample(every, len(every))
        some, left = left[: points.SIDE_BY_SIDE], left[points.SIDE_BY_SIDE :]
        total += sum(points.tried(some, functools.partial(HARM[harm], ground)), Counter[str]())
    print(f"{beginning}, {harm}: {total['points']} of {len(every)} points; {ground.calls}")
    record(f"{KINDS[harm]} (soak)", **total)
