"""Same seed, same bytes: twice in one process, under other hash seeds, and under every Python that is there.

What is compared is the history that a seed makes, the
exported trace to the byte, and what callers and callbacks saw, in order.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.simulation.executor import execute
from tests.simulation.fingerprints import fingerprint
from tests.simulation.generation import history_of

ROOT = Path(__file__).parents[2]
SEEDS = (3, 21, 77, 418, 994, 1273)
OLDEST = (3, 11)


def interpreters() -> list[str]:
    """One of each Python version from 3.11 on that can be found, this one left out."""
    found: dict[tuple[int, int], str] = {}
    candidates = [shutil.which(f"python3.{minor}") for minor in range(11, 16)]
    candidates += map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python")))
    for candidate in filter(None, candidates):
        told = subprocess.run(
            [candidate, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=False
        )
        if told.returncode == 0:
            major, minor = map(int, told.stdout.split())
            if (major, minor) >= OLDEST and (major, minor) != sys.version_info[:2]:
                found[major, minor] = candidate
    return [found[version] for version in sorted(found)]


def fingerprints(python: str, libraries: Path, **environment: str) -> dict[int, str]:
    """The traces of the seeds by another process."""
    told = subprocess.run(
        [python, "-m", "tests.simulation.fingerprints", *map(str, SEEDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{libraries}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return {int(seed): digest for seed, digest in (line.split() for line in told.stdout.splitlines())}


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """The packages that duly needs, which are pure Python, and nothing else that is installed here."""
    for package in ("tzdata", "tzlocal"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        (tmp_path / package).symlink_to(Path(spec.origin).parent)
    return tmp_path


def test_a_seed_is_one_history() -> None:
    """Twice in one process, after others have run in between."""
    for seed in SEEDS[:4]:
        first, second = execute(history_of(seed)), execute(history_of(seed))
        assert first.trace
        assert first.trace == second.trace
        assert first.fingerprint == second.fingerprint


def test_two_seeds_are_two_histories() -> None:
    """The fingerprint tells them apart, so equal ones mean something."""
    assert len({fingerprint(seed) for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_hash_seeds_change_nothing(hash_seed: str, libraries: Path) -> None:
    """No set or dict of anything decides what happens."""
    expected = {seed: fingerprint(seed) for seed in SEEDS}
    assert fingerprints(sys.executable, libraries, PYTHONHASHSEED=hash_seed) == expected


@pytest.mark.system
def test_python_versions_change_nothing(libraries: Path) -> None:
    """The simulated host starts tasks non-eagerly, and the dice are duly's own."""
    if not (others := interpreters()):
        missing("another Python", "install python3.12 or python3.13 beside this one")
    expected = {seed: fingerprint(seed) for seed in SEEDS}
    for python in others:
        assert fingerprints(python, libraries) == expected, python
