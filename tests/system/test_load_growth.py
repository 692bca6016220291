"""Runs without end: memory, threads, file handles and the store stay as they are; by counts, never by speed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import soak_seconds
from tests.programs import ROOT, environment
from tests.system.load_growth import HISTORY, Sample, plot
from tests.system.record import record

RUNS = 50_000
SOAK_RUNS = 1_000_000
LOG_BYTES_MAX = 2 * 8_000 * 4096
"""The write-ahead log is folded into the store every 8,000 pages; a batch may be under way when it is due."""


def _lived(folder: Path, runs: int, samples: int, seconds: float = 0) -> list[Sample]:
    arguments = (folder / "store.db", runs, samples, seconds)
    process = subprocess.run(
        [sys.executable, "-m", "tests.system.load_growth", *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return [Sample(**json.loads(line)) for line in process.stdout.splitlines()]


def _does_not_grow(samples: list[Sample]) -> None:
    """The resources in use in the second half of a life, against its first half; the very beginning is warming up."""
    half = len(samples) // 2
    early, late = samples[1:half], samples[half:]
    for name, slack in (("threads", 0), ("descriptors", 2), ("objects", 5_000)):
        before, after = (max(getattr(sample, name) for sample in part) for part in (early, late))
        assert after <= before + slack, f"{name} grew from {before} to {after}"
    resident = [max(sample.resident_bytes for sample in part) for part in (early, late)]
    assert resident[1] <= 1.15 * resident[0] + 8e6, f"memory grew from {resident[0]} to {resident[1]}"
    # Trimming is done by the batch: there may be one more batch than the bound.
    assert all(sample.run_rows <= HISTORY + 6_000 for sample in samples)
    stored = [max(sample.store_bytes for sample in part) for part in (early, late)]
    assert stored[1] <= max(stored[0], 2_000_000) + 1_000_000, f"the store grew from {stored[0]} to {stored[1]}"
    assert all(sample.log_bytes <= LOG_BYTES_MAX for sample in samples)


@pytest.mark.system
def test_fifty_thousand_runs_leave_nothing_behind(tmp_path: Path) -> None:
    """Bounded history, and no growth of memory, objects, threads, file handles, store or log."""
    samples = _lived(tmp_path, RUNS, 20)
    assert samples[-1].runs >= RUNS
    _does_not_grow(samples)
    record("load, growth", runs=samples[-1].runs, resident_mb=round(samples[-1].resident_bytes / 1e6, 1))


@pytest.mark.soak
def test_a_million_runs_leave_nothing_behind_and_are_plotted(tmp_path: Path) -> None:
    """A million runs, however short the soak is; then more, until it is over.

    The picture goes to build/growth.svg.
    """
    samples = _lived(tmp_path, SOAK_RUNS, 200, soak_seconds())
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    (build / "growth.svg").write_text(plot(samples))
    assert samples[-1].runs >= SOAK_RUNS
    _does_not_grow(samples)
    record("load, growth (soak)", runs=samples[-1].runs, resident_mb=round(samples[-1].resident_bytes / 1e6, 1))


def test_what_grows_is_noticed() -> None:
    """The judge of the samples is not blind: each of the things that must not grow is made to grow once."""
    steady = Sample(0, 50_000_000, 100_000, 6, 12, 3_000_000, 9_000_000, HISTORY)
    names = ("threads", "descriptors", "objects", "resident_bytes", "run_rows", "store_bytes", "log_bytes")
    growth = (1, 1, 10_000, 2_000_000, 1_000, 500_000, 10_000_000)
    _does_not_grow([steady] * 20)
    for name, step in zip(names, growth, strict=True):
        fields = {field: getattr(steady, field) for field in Sample.__dataclass_fields__}
        growing = [Sample(**{**fields, name: fields[name] + step * number}) for number in range(20)]
        with pytest.raises(AssertionError):
            _does_not_grow(growing)
    assert plot([steady, Sample(**{**{f: getattr(steady, f) for f in Sample.__dataclass_fields__}, "runs": 9})])
