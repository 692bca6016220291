"""Thousands of seeded histories of a simulated cluster: nothing overlaps, nothing is served twice, nothing is lost."""

import secrets
import time

import pytest

from tests.cluster.histories import History
from tests.conftest import soak_seconds
from tests.counts import share

PARTS = 20
SEEDS = range(1, 3_001)


@pytest.mark.parametrize("part", range(PARTS))
async def test_nothing_overlaps_and_nothing_is_lost_whatever_happens(part: int) -> None:
    for seed in share(SEEDS, 20)[part::PARTS]:
        await History(seed).play()


@pytest.mark.soak
async def test_fresh_seeds_of_clusters_find_nothing() -> None:
    """`make soak MINUTES=n` goes on with fresh seeds; a failure names its seed, and `History(seed)` repeats it."""
    until, tried = time.monotonic() + soak_seconds(), 0
    while time.monotonic() < until:
        await History(secrets.randbits(62)).play()
        tried += 1
    print(f"{tried} histories of clusters")
