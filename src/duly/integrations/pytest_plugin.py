"""A fixture for tests of what you schedule: `simulated_host`, a machine whose clock the test moves.

pytest loads this module in every run of an environment that has duly, so it does next to nothing until the fixture is
used: only then `duly.testing` is imported. The fixture is asynchronous; pytest-asyncio or anyio runs it.
"""

import inspect
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from duly.testing import SimulatedHost

DEFAULT_AT: Final = "2026-01-01T12:00"
DEFAULT_ZONE: Final = "UTC"

_MARKER: Final = (
    'duly(at="2026-03-29T01:00", tz="Europe/Berlin"): the moment and the zone in which `simulated_host` begins; '
    "takes the parameters of duly.testing.SimulatedHost"
)


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker, and make the fixture in the way that the plug-in for asynchronous tests wants it."""
    config.addinivalue_line("markers", _MARKER)
    fixture: Callable[[Any], Any] = pytest.fixture
    # By the name of its entry point, or by that of its module, if `-p pytest_asyncio.plugin` loads it.
    if any(config.pluginmanager.hasplugin(name) for name in ("asyncio", "pytest_asyncio.plugin")):
        import pytest_asyncio  # it is loaded already; in its strict mode it runs no fixtures but its own

        fixture = pytest_asyncio.fixture
    holder = ModuleType("duly_fixtures")  # pytest looks for fixtures in modules and classes
    setattr(holder, "simulated_host", fixture(simulated_host))  # noqa: B010 - a type checker knows no such attribute
    config.pluginmanager.register(holder, holder.__name__)


async def simulated_host(request: pytest.FixtureRequest) -> "AsyncIterator[SimulatedHost]":
    """A host of `duly.testing`, at noon UTC unless the marker `duly` says otherwise; its disk is gone after the test.

    The test fails if its scheduler violates a property of the specification.
    """
    from duly.testing import SimulatedHost

    marker = request.node.get_closest_marker("duly")
    options: dict[str, Any] = {"at": DEFAULT_AT, "tz": DEFAULT_ZONE}
    if marker is not None:
        known = list(inspect.signature(SimulatedHost).parameters)
        if marker.args or not marker.kwargs.keys() <= set(known):
            pytest.fail(f"the marker duly takes {', '.join(f'{name}=' for name in known)}; got {marker}", pytrace=False)
        options |= marker.kwargs
    try:
        host = SimulatedHost(**options)
    except (TypeError, ValueError) as error:
        pytest.fail(f"the marker duly: {error}", pytrace=False)
    async with host:
        yield host
