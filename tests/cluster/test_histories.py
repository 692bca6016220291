"""Thousands of seeded histories of a simulated cluster: nothing overlaps, nothing is served twice, nothing is lost."""

import secrets
import time
from collections.abc import Iterable

import pytest

from tests.cluster.fast_loop import run_fast
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
    run_fast(play(share(SEEDS, 20)[part::PARTS]))


@pytest.mark.soak
async def test_fresh_seeds_of_clusters_find_nothing() -> None:
    """`make soak MINUTES=n` goes on with fresh seeds; a failure names its seed, and `History(seed)` repeats it."""
    until, tried = time.monotonic() + soak_seconds(), 0
    while time.monotonic() < until:
        await History(secrets.randbits(62)).play()
        tried += 1
    print(f"{tried} histories of clusters")
