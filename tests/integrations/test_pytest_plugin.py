"""The fixture `simulated_host`, in runs of pytest as its users have them."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from duly.testing import SimulatedHost
from tests.conftest import require
from tests.programs import ROOT

pytest_plugins = ("pytester",)


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


MINUTE = timedelta(minutes=1)
BERLIN = ZoneInfo("Europe/Berlin")
PAGE = ROOT / "docs" / "integrations" / "pytest.md"
HEAD = """
import sys
from datetime import timedelta
import pytest
MINUTE = timedelta(minutes=1)
"""


def run(pytester: pytest.Pytester, code: str, *arguments: str) -> pytest.RunResult:
    """A run in a process of its own, with the plug-ins that are named and no others: those here take seconds."""
    pytester.makepyfile(HEAD + code)
    return pytester.runpytest_subprocess(
        "--strict-markers", "-W", "error", "-p", "duly.integrations.pytest_plugin", *arguments
    )


@pytest.mark.duly(at="2026-03-28T12:00", tz="Europe/Berlin")
async def test_a_test_moves_the_clock_of_its_host(simulated_host: SimulatedHost) -> None:
    """In this run, too: the entry point is there, and the marker says when and where."""
    assert simulated_host.now == datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    await simulated_host.scheduler().initialize([("task", "30 2,3 * * *", lambda: None, MINUTE)])
    await simulated_host.advance(days=1)
    assert simulated_host.starts("task") == [datetime(2026, 3, 29, 3, 30, tzinfo=BERLIN)]  # 02:30 does not exist
    assert simulated_host.starts("other") == []


async def test_without_a_marker_it_is_noon_utc(simulated_host: SimulatedHost) -> None:
    """A moment that does not depend on when the tests are run."""
    assert simulated_host.now == datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("UTC"))


def test_it_works_in_the_strict_mode_of_pytest_asyncio_and_names_what_is_wrong(pytester: pytest.Pytester) -> None:
    """The example of the page; markers with other parameters, another zone, a violation of a property."""
    (example,) = re.findall("^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    result = run(
        pytester,
        example
        + """
@pytest.mark.asyncio
@pytest.mark.duly(at="2026-03-29T01:00", tz="Europe/Berlin")
async def test_passes(simulated_host):
    await simulated_host.scheduler().initialize([("task", "30 2 * * *", print, MINUTE)])
    await simulated_host.advance(hours=20)
    assert len(simulated_host.starts("task")) == 0

@pytest.mark.asyncio
@pytest.mark.duly(when="noon")
async def test_other_parameter(simulated_host): ...

@pytest.mark.asyncio
@pytest.mark.duly("2026-03-29T01:00")
async def test_no_keyword(simulated_host): ...

@pytest.mark.asyncio
@pytest.mark.duly(tz="Europe/Nowhere")
async def test_other_zone(simulated_host): ...

@pytest.mark.asyncio
async def test_violation(simulated_host):
    # What no scheduler should do is brought about by a decision that leaves out a task.
    import duly.engine.loop
    from duly.core.agenda import Slots, decide
    duly.engine.loop.decide = lambda agenda, now, slots, **options: decide(agenda, now, Slots(0, 0), **options)
    await simulated_host.scheduler().initialize([("task", "* * * * *", lambda: None, MINUTE)])
    await simulated_host.advance(minutes=1)
""",
        "-p",
        "pytest_asyncio.plugin",
        "-o",
        "asyncio_mode=strict",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
    )
    result.assert_outcomes(passed=2, failed=1, errors=3)
    result.stdout.fnmatch_lines(["*the marker duly takes at=, tz=, store=, *; got *when*"])
    result.stdout.fnmatch_lines(["*the marker duly: no such time zone: 'Europe/Nowhere'*"])
    result.stdout.fnmatch_lines(["*at odds with its specification*"])


def test_it_works_with_anyio(pytester: pytest.Pytester) -> None:
    """Without pytest-asyncio."""
    require("anyio", "pip install -r requirements/dev.txt")
    result = run(
        pytester,
        """
pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"

async def test_passes(simulated_host):
    await simulated_host.scheduler().initialize([("task", "0 * * * *", lambda: None, MINUTE)])
    await simulated_host.advance(hours=2)
    assert len(simulated_host.starts("task")) == 3
    assert "pytest_asyncio" not in sys.modules
""",
        "-p",
        "anyio.pytest_plugin",
    )
    result.assert_outcomes(passed=1)


def test_other_runs_of_pytest_load_next_to_nothing(pytester: pytest.Pytester) -> None:
    """A project that merely has duly in its environment: no engine, no store, no simulated host."""
    result = run(
        pytester,
        """
def test_what_is_loaded():
    heavy = ("duly.testing", "duly.engine", "duly.stores.", "duly.formal")
    assert not {name for name in sys.modules if name.startswith(heavy)}
    assert "sqlite3" not in sys.modules

def test_the_marker_is_known(pytestconfig):
    assert any(line.startswith("duly(at=") for line in pytestconfig.getini("markers"))
""",
    )
    result.assert_outcomes(passed=2)


def test_the_entry_point_is_declared() -> None:
    """pyproject.toml: pytest finds the plug-in by it."""
    from importlib.metadata import entry_points

    (entry,) = entry_points(group="pytest11", name="duly")
    assert entry.value == "duly.integrations.pytest_plugin"
    assert Path(entry.load().__file__).name == "pytest_plugin.py"
