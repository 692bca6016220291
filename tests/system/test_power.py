"""Whatever part of the unsynchronised writes survives, nothing acknowledged is lost or corrupt.

FORMAL D3: every prefix of what was written, with all, none, torn pieces and arbitrary subsets of what no sync covered
yet. `synchronous=OFF` and `NORMAL` go through the same harness and must lose something, or it would prove nothing.
"""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import require
from tests.system.power_disk import Acknowledge, Step, Sync, Write
from tests.system.power_program import record_process, record_simulated
from tests.system.power_verdict import tally
from tests.system.record import record


def numbers(counts: Counter[str]) -> dict[str, int]:
    """The counts for the report."""
    return {word: counts[word] for word in ("cuts", "whole", "lost", "corrupt", "refused")}


def extent(recording: list[Step]) -> dict[str, int]:
    """How much was recorded."""
    return {
        "writes": sum(isinstance(step, Write) for step in recording),
        "syncs": sum(isinstance(step, Sync) for step in recording),
        "acknowledged": sum(isinstance(step, Acknowledge) for step in recording),
    }


@pytest.mark.slow
def test_every_power_cut_of_a_simulated_scheduler_keeps_all_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 3.9, 7.6: the store's own statements through apsw; at least a thousand cuts, all of them whole."""
    require("apsw", "pip install apsw")
    recording = asyncio.run(record_simulated(tmp_path, "FULL", monkeypatch))
    monkeypatch.undo()
    counts = tally(recording, 1)
    record("power loss, apsw", **extent(recording), **numbers(counts))
    assert counts["whole"] == counts["cuts"] >= 1_000, counts


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_the_same_harness_finds_what_less_synchronisation_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synchronous: str
) -> None:
    """A harness that finds no loss where there must be one proves nothing."""
    require("apsw", "pip install apsw")
    recording = asyncio.run(record_simulated(tmp_path, synchronous, monkeypatch))
    monkeypatch.undo()
    counts = tally(recording, 1, every=10)
    record("power loss, apsw, negative control", **numbers(counts))
    assert counts["lost"], counts


@pytest.mark.chaos
def test_every_power_cut_of_the_real_program_keeps_all_that_was_acknowledged(tmp_path: Path) -> None:
    """SPEC 3.9, 7.6: a recording of the killed program's own system calls, rebuilt at every step."""
    require("strace", "apt-get install strace")
    recording = record_process(tmp_path, "FULL", 2.5)
    recorded = extent(recording)
    # How long a recording is depends on the machine, how many of its cuts are judged does not: every n-th of them.
    possible = 3 * (len(recording) - recorded["acknowledged"]) + recorded["writes"]
    counts = tally(recording, 2, every=max(1, possible // 1_100))
    record("power loss, recorded", **recorded, **numbers(counts))
    assert counts["whole"] == counts["cuts"] >= 1_000, counts


@pytest.mark.chaos
@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_a_recording_of_the_real_program_with_less_synchronisation_shows_losses(
    tmp_path: Path, synchronous: str
) -> None:
    """The negative control of the recording."""
    require("strace", "apt-get install strace")
    recording = record_process(tmp_path, synchronous, 1.0)
    counts = tally(recording, 3, every=10)
    record("power loss, recorded, negative control", **extent(recording), **numbers(counts))
    assert counts["lost"], counts
