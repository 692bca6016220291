"""`kill -9`, exhaustively: a short life killed at every single write, synchronisation and removal it makes."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import require
from tests.faults.disk_program import command, run, words
from tests.faults.fold import compare, look_into
from tests.faults.kill_chain import environment, judge
from tests.faults.record import record


@pytest.mark.soak
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "unlink", "ftruncate", "openat"])
def test_killed_at_the_kth_system_call_for_every_k_the_next_start_finds_all_of_it(tmp_path: Path, call: str) -> None:
    """SPEC 3.9, 4.5: each point is a life of its own; the store is sound, the next life begins, and stops cleanly."""
    require("strace", "apt-get install strace")
    point, step = 1, 5 if call == "openat" else 1  # an interpreter opens hundreds of files before ours
    while _killed_at(tmp_path / str(point) / "state.db", call, point):
        point += step
    record("kill, every system call", **{call: point})
    assert point > 3


def _killed_at(store: Path, call: str, point: int) -> bool:
    store.parent.mkdir()
    options = ["-f", "-qq", "-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={point}"]
    died = subprocess.run(
        ["strace", *options, *command(store, 3, 20)],
        cwd=Path(__file__).parents[2],
        env=environment(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    if died.returncode == 0:
        return False
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    if store.exists() and store.stat().st_size:
        compare(look_into(store))
    assert words(run(store, 3, 20))[-2:] == ["stopped", "longest pause"]
    compare(look_into(store))
    judge(store, clean=True)
    return True
