"""`kill -9`: a program with a dozen tasks is killed at random instants, and nothing but the last moment is lost."""

import asyncio
import json
import math
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compute import NotInTimeError
from tests.conftest import require, soak_seconds
from tests.programs import environment
from tests.system.kill_chain import Chain, ForkServer, Starter
from tests.system.kill_faketime import FakedTimeStarter, library
from tests.system.record import record

SIDE_BY_SIDE = 10
CYCLES = 10


@pytest.fixture(scope="module")
def starter() -> Iterator[ForkServer]:
    with ForkServer() as starter:
        yield starter


def lives_of(starter: Starter, folder: Path, seeds: range, cycles: int, *, until: float = math.inf) -> Counter[str]:
    """Run programs side by side, each killed `cycles` times, and not again after `until`; they mostly wait."""

    async def all_of_them() -> list[Chain]:
        chains = [Chain(starter, folder / str(seed), seed) for seed in seeds]
        await asyncio.gather(*(chain.run(cycles, until=until) for chain in chains))
        return chains

    chains = asyncio.run(all_of_them())
    verify(chains[0].store)
    total: Counter[str] = Counter()
    for chain in chains:
        total += chain.counts
    return total


def verify(store: Path) -> None:
    """An operator's way: ask the command line."""
    command = [sys.executable, "-m", "duly", "verify", "--no-bounds", "--json", str(store)]
    asked = subprocess.run(command, env=environment(), capture_output=True, timeout=60, check=False)
    assert asked.returncode == 0, (asked.stdout + asked.stderr).decode()
    verdicts = json.loads(asked.stdout)
    assert verdicts["ended"], verdicts


@pytest.mark.chaos
@pytest.mark.parametrize("part", range(5))
def test_killed_at_random_instants_nothing_durable_is_lost_and_nothing_runs_twice(
    starter: ForkServer, tmp_path: Path, part: int
) -> None:
    """SPEC 3.2, 3.7, 3.9, S1, S2: the witness, the store, the trace and the checker agree after every death.

    Five hundred deaths in all five parts. No run overlaps another of its task, every stretch of missed minutes is
    served by one start, every interrupted run is restarted once and, from the second in a row on, after its wait.
    """
    counts = lives_of(starter, tmp_path, range(part * SIDE_BY_SIDE, (part + 1) * SIDE_BY_SIDE), CYCLES)
    record("kill", **counts)
    assert counts["cycles"] == SIDE_BY_SIDE * CYCLES
    if any(counts[what] <= SIDE_BY_SIDE for what in ("interrupted", "resumed", "stretches")):
        raise NotInTimeError(f"nothing of interest has been killed: {counts}")


@pytest.mark.chaos
def test_killed_on_a_clock_that_libfaketime_makes_fast_it_keeps_its_promises_all_the_same(tmp_path: Path) -> None:
    """On the host's own clock, without the clock protocol, and in a new interpreter for each start."""
    require("faketime", "apt-get install faketime")
    preload = library()
    assert preload is not None, "faketime is there, and its library is not"
    starter = FakedTimeStarter(preload)
    try:
        counts = lives_of(starter, tmp_path, range(1000, 1003), 4)
    finally:
        starter.close()
    record("kill under libfaketime", **counts)
    assert counts["cycles"] == 12
    if counts["starts"] <= 12:
        raise NotInTimeError(f"nothing of interest has been killed: {counts}")


@pytest.mark.soak
def test_killed_for_hours_nothing_durable_is_lost_and_nothing_runs_twice(starter: ForkServer, tmp_path: Path) -> None:
    """For as long as the soak goes on, with more kills of each program and fresh seeds.

    However short that is, each program is killed once.
    """
    until = time.monotonic() + soak_seconds()
    folder = tmp_path / "lives"
    total: Counter[str] = Counter()
    seed = int(time.time()) * 1000
    while time.monotonic() < until:
        print("seed", seed)
        folder.mkdir()
        total += lives_of(starter, folder, range(seed, seed + SIDE_BY_SIDE), 4 * CYCLES, until=until)
        shutil.rmtree(folder)  # in a night there would be thousands of stores
        seed += SIDE_BY_SIDE
    record("kill (soak)", **total)
    assert total["cycles"] >= SIDE_BY_SIDE
