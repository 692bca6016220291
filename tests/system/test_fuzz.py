"""Bytes that someone else wrote, changed by a fuzzer that sees which branches they reach: a value or a typed error."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import require, soak_seconds
from tests.counts import count
from tests.programs import ROOT, environment
from tests.system.fuzz_targets import TARGETS
from tests.system.record import record

CORPUS = ROOT / "tests" / "system" / "corpus"
CASES = {"cron": count(8_000, 500), "record": count(8_000, 500), "trace": count(6_000, 400)}
"""Of each target; the same ones every time, as the seed is."""


def fuzz(name: str, scratch: Path, *options: str) -> int:
    """Run the fuzzer from the kept corpus; new finds go to the scratch folder. Returns the number of cases."""
    finds = scratch / "finds"
    finds.mkdir()
    process = subprocess.run(
        [
            *(sys.executable, "-m", "tests.system.fuzz_run", name, *options),
            *("-max_len=4096", "-timeout=60", f"-artifact_prefix={scratch}/", str(finds), str(CORPUS / name)),
        ],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        check=False,
    )
    said = process.stderr.decode(errors="replace") + process.stdout.decode(errors="replace")
    assert process.returncode == 0, f"a case breaks a promise; keep it as tests/system/corpus/{name}:\n{said[-4000:]}"
    done = re.search(r"Done (\d+) runs", said)
    assert done is not None, said[-2000:]
    return int(done[1])


@pytest.mark.parametrize("name", TARGETS)
def test_readers_of_foreign_bytes_keep_their_promises(name: str, tmp_path: Path) -> None:
    """SPEC 5.5, 6.1: coverage-guided, deterministic, from the kept corpus; see fuzz_targets for what must hold."""
    require("atheris", "make .venv/.dev-ready; it has builds for Linux on x86-64 only")
    cases = fuzz(name, tmp_path, "-seed=1", f"-runs={CASES[name]}")
    assert cases >= CASES[name]
    record("fuzzing", cases=cases, corpus=len(list((CORPUS / name).iterdir())))


@pytest.mark.parametrize("name", TARGETS)
def test_every_kept_case_keeps_the_promises(name: str) -> None:
    """The corpus again, without a fuzzer: on every platform, and with a traceback that points into the source."""
    kept = sorted((CORPUS / name).iterdir())
    assert len(kept) >= 15
    for case in kept:
        TARGETS[name](case.read_bytes())


@pytest.mark.soak
@pytest.mark.parametrize("name", TARGETS)
def test_readers_of_foreign_bytes_for_as_long_as_there_is_time(name: str, tmp_path: Path) -> None:
    """With a random seed, for DULY_SOAK_MINUTES; a case that breaks a promise is printed, to be kept."""
    require("atheris", "make .venv/.dev-ready; it has builds for Linux on x86-64 only")
    seconds = math.ceil(soak_seconds())  # in whole ones, and none at all would be for ever
    cases = fuzz(name, tmp_path, f"-max_total_time={seconds}")
    record("fuzzing (soak)", cases=cases, minutes=seconds / 60)
