"""What all tests share: how hypothesis searches, a store with a host and work, and what a missing component means."""

import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

from duly.testing import SimulatedHost
from tests.spec.workload import Workload

# The same examples on every run and every machine: a red build means that the code changed, not the dice.
# Deadlines would measure the machine. `make soak` throws the dice instead, and for longer.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile(
    "soak", max_examples=10_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci")  # `--hypothesis-profile=soak` comes after this, and wins

# A shell that runs something in the background lets it ignore Ctrl-C, and what ignores it passes that on to the
# programs it starts. Tests that press Ctrl-C in a program mean one that was started from a prompt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a store can be; nothing is there yet."""
    return tmp_path / "state.db"


@pytest.fixture
async def host(store: Path) -> AsyncIterator[SimulatedHost]:
    """A machine half a minute after noon, with that store on its disk."""
    async with SimulatedHost("2024-01-01T12:00:30", "UTC", store=store) as simulated:
        yield simulated


@pytest.fixture
def work(host: SimulatedHost) -> Workload:
    """Callbacks that work on that machine, and remember when."""
    return Workload(host)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that another user can look into, as those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="duly-public-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def soak_seconds() -> float:
    """How long a test of `make soak MINUTES=n` goes on; a minute where nobody says."""
    return 60 * float(os.environ.get("DULY_SOAK_MINUTES", "1"))


def require(component: str, hint: str) -> None:
    """Skip the calling test unless `component`, a Python module or a program on PATH, is there.

    With DULY_REQUIRE_ALL=1, as in CI, the test fails instead: a skip nobody reads is a test nobody has.
    """
    if importlib.util.find_spec(component) is None and shutil.which(component) is None:
        missing(component, hint)


def missing(component: str, hint: str) -> NoReturn:
    """Skip the calling test, or fail it, because of a component that has been looked for."""
    message = f"{component} is missing: {hint}"
    if os.environ.get("DULY_REQUIRE_ALL") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
