"""Set-up of all tests: counts, repeats, hypothesis, a store with a host, and what a missing component means."""

import gc
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from packaging.requirements import Requirement

from duly.testing import SimulatedHost
from tests import counts
from tests.compute import PATIENCE_IS_OVER, REPEATS_MAX, Compute
from tests.programs import ROOT
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


def pytest_report_header() -> str:
    """Say how much of the large counts this run takes."""
    return counts.described()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest: whichever worker gets one, the other goes on with the rest."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Spare every later garbage collection the thousands of tests: they live as long as the process."""
    gc.collect()
    gc.freeze()


# --- repeats ---------------------------------------------------------------------------------------------------------

REPEATED = "repeated"
_was_late = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Remember whether a test failed because its patience was over."""
    if call.excinfo is not None and call.excinfo.errisinstance(PATIENCE_IS_OVER):
        item.stash[_was_late] = True
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test; again if it was not in time and the machine gave it no compute, which `tests/compute.py` explains.

    Fixtures are made anew for a repeat. A test that fails for any other reason is never repeated.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    on_the_machine = any(item.get_closest_marker(name) for name in ("chaos", "real_time", "system"))
    reports: list[pytest.TestReport] = []
    for repeat in range(REPEATS_MAX + 1):
        item.stash[_was_late] = False
        compute = Compute(with_thread=on_the_machine).begin()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        compute.end()
        if repeat == REPEATS_MAX or not (item.stash[_was_late] and compute.was_short):
            break
        item.user_properties.append((REPEATED, str(compute)))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that were repeated, and why: a machine that is always too busy should be known."""
    repeated = {
        (report.nodeid, number): why
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
        for number, (name, why) in enumerate(report.user_properties)
        if name == REPEATED
    }
    if repeated:
        terminalreporter.section("repeated, because the machine gave no compute")
        for (nodeid, _), why in repeated.items():
            terminalreporter.write_line(f"{nodeid}: {why}")


# --- fixtures --------------------------------------------------------------------------------------------------------


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


def require(component: str, hint: str, *, package: str | None = None) -> None:
    """Skip the calling test unless `component`, a Python module or a program on PATH, is there.

    With DULY_REQUIRE_ALL=1, as in CI, the test fails instead: a skip nobody reads is a test nobody has. Only what
    requirements/dev.in leaves out on this machine is skipped even then, for the reason that stands there. `package` is
    its name there, if that is not the name of the module.
    """
    if importlib.util.find_spec(component) is None and shutil.which(component) is None:
        if (reason := left_out(package or component, (ROOT / "requirements/dev.in").read_text())) is not None:
            pytest.skip(f"{component} is left out by requirements/dev.in: {reason}")
        missing(component, hint)


def left_out(component: str, requirements: str) -> str | None:
    """Why requirements leave a package out here: the comment of its line. None if they do not."""
    reason = None
    for line in requirements.splitlines():
        text, _, comment = line.partition("#")
        if not text.strip() or text.startswith("-"):
            continue
        requirement = Requirement(text)
        if requirement.name.replace("-", "_") == component.replace("-", "_"):
            if requirement.marker is None or requirement.marker.evaluate():
                return None
            reason = comment.strip()
    return reason


def missing(component: str, hint: str) -> NoReturn:
    """Skip the calling test, or fail it, because of a component that has been looked for."""
    message = f"{component} is missing: {hint}"
    if os.environ.get("DULY_REQUIRE_ALL") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
