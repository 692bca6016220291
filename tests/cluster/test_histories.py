"""Thousands of seeded histories of a simulated cluster: nothing overlaps, nothing is served twice, nothing is lost."""

import asyncio
import importlib.util
import secrets
import time
from collections.abc import Iterable

import pytest

from tests.cluster.histories import History
from tests.conftest import soak_seconds
from tests.counts import share

PARTS = 20
SEEDS = range(1, 3_001)


async def play(seeds: Iterable[int]) -> None:
    for seed in seeds:
        await History(seed).play()


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_overlaps_and_nothing_is_lost_whatever_happens(part: int) -> None:
    """On uvloop where there is one: a history is the same on every event loop, and takes three quarters of the time."""
    seeds = share(SEEDS, 20)[part::PARTS]
    if importlib.util.find_spec("uvloop") is None:
        asyncio.run(play(seeds))
    else:
        import uvloop

        uvloop.run(play(seeds))


@pytest.mark.soak
async def test_fresh_seeds_of_clusters_find_nothing() -> None:
    """`make soak MINUTES=n` goes on with fresh seeds; a failure names its seed, and `History(seed)` repeats it."""
    until, tried = time.monotonic() + soak_seconds(), 0
    while time.monotonic() < until:
        await History(secrets.randbits(62)).play()
        tried += 1
    print(f"{tried} histories of clusters")
