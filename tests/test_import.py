"""Modules are loaded when needed: `import duly` loads names, a scheduler its engine, and neither of them the rest."""

import inspect
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import duly

# Each name stands for itself and everything below it. A scheduler loads what `import duly` does not; the rest is loaded
# by those who use it.
NOT_FOR_A_SCHEDULER = (
    "click", "orjson", "psycopg", "rich", "uvloop",
    "duly.cli", "duly.insight", "duly.integrations", "duly.simulation", "duly.testing", "duly.web",
    "duly.formal.checking", "duly.formal.fast_path", "duly.formal.machine", "duly.formal.monitor",
    "duly.formal.properties", "duly.formal.reader", "duly.formal.registers", "duly.formal.witnesses",
    "duly.core.learning", "duly.engine.cluster", "duly.engine.colleagues", "duly.engine.membership",
    "duly.engine.shared_clock", "duly.engine.shared_lifecycle", "duly.engine.shared_monitor",
    "duly.stores.shared", "duly.stores.shared_trace", "duly.stores.sqlite.reader",
)  # fmt: skip
NOT_FOR_ITS_NAMES = (*NOT_FOR_A_SCHEDULER, "duly.engine", "duly.events", "duly.formal", "duly.stores", "sqlite3")


def in_a_fresh_interpreter(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def loaded_by(statement: str) -> set[str]:
    """The modules of a fresh interpreter after a statement."""
    return set(in_a_fresh_interpreter(f"import sys\n{statement}\nprint(*sys.modules)").split())


def within(modules: set[str], names: tuple[str, ...]) -> set[str]:
    return {module for module in modules for name in names if module == name or module.startswith(f"{name}.")}


def test_importing_duly_loads_its_names_only() -> None:
    """Many programs import duly to declare tasks, and leave it to another to run them."""
    loaded = loaded_by("import duly; duly.Scheduler, duly.parse_cron, duly.Clock, duly.errors")
    assert "duly.scheduler" in loaded
    assert not within(loaded, NOT_FOR_ITS_NAMES)


def test_a_scheduler_loads_its_engine_and_neither_the_checker_nor_the_command_line() -> None:
    """The checker alone has a second calendar and a second parser, and most schedulers need none of it."""
    loaded = loaded_by("import duly; duly.Scheduler(':memory:')")
    assert {"duly.engine.loop", "duly.stores.sqlite.store"} <= loaded
    assert not within(loaded, NOT_FOR_A_SCHEDULER)


@pytest.mark.parametrize(
    "statement",
    [
        "import duly.formal.reader",
        "import duly.testing",
        "import duly.cli.app",
        "import duly.engine.cluster",
        "import duly.stores.sqlite.reader",
    ],
)
def test_the_lists_name_modules_that_exist(statement: str) -> None:
    """A module that is renamed must be renamed in the lists, or the tests above hold nothing."""
    assert within(loaded_by(statement), NOT_FOR_A_SCHEDULER)


@pytest.mark.parametrize("package", ["duly", "duly.formal", "duly.insight", "duly.stores", "duly.stores.sqlite"])
def test_every_public_name_is_loaded_at_its_first_use(package: str) -> None:
    """`import *` asks for each of them, and fails if one has no module."""
    program = f"import {package} as package\nfrom {package} import *\nprint(*set(package.__all__) - set(globals()))"
    assert in_a_fresh_interpreter(program) == "\n"


@pytest.mark.parametrize("package", ["duly", "duly.formal", "duly.insight", "duly.stores", "duly.stores.sqlite"])
def test_a_name_that_a_package_does_not_have_is_refused(package: str) -> None:
    module = import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Checkers'"):
        module.Checkers  # noqa: B018
    assert set(dir(module)) >= set(module.__all__)


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every class, method and function of the public packages, by its full name."""
    for package in ("duly", "duly.errors", "duly.events", "duly.formal", "duly.insight", "duly.stores", "duly.testing"):
        module = import_module(package)
        for name in getattr(module, "__all__", None) or [name for name in vars(module) if name.endswith("Error")]:
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                yield f"{package}.{name}", value
            for attribute, member in vars(value).items() if inspect.isclass(value) else ():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if inspect.isfunction(function) and (attribute == "__init__" or not attribute.startswith("_")):
                    yield f"{package}.{name}.{attribute}", function


def test_the_types_of_the_public_names_can_be_read() -> None:
    """Tools such as Sphinx, and libraries that inject dependencies, ask for them with `typing.get_type_hints`."""
    found = dict(public_callables())
    assert len(found) > 300
    hints = {name: get_type_hints(each) for name, each in found.items()}
    kinds = str | os.PathLike[str] | duly.stores.Store | duly.stores.SharedStore
    assert hints["duly.Scheduler.__init__"]["store"] == kinds
    assert hints["duly.Scheduler.__init__"]["on_event"] == Callable[[duly.events.Event], object] | None


def test_the_former_name_of_a_register_snapshot_works_and_warns() -> None:
    """It is `RegisterSnapshot` since there is another snapshot: that of a store."""
    import duly.formal

    with pytest.warns(DeprecationWarning, match="RegisterSnapshot"):
        former = duly.formal.Snapshot
    assert former is duly.formal.RegisterSnapshot


def test_the_default_of_history_is_that_of_stores() -> None:
    """The signature of `Scheduler` repeats it, because `import duly` does not load the stores."""
    from duly.stores.port import DEFAULT_HISTORY

    assert inspect.signature(duly.Scheduler).parameters["history"].default == DEFAULT_HISTORY


def test_names_of_the_package_and_the_text_of_a_scheduler_are_for_people() -> None:
    """`dir(duly)` has the public names, and no module that happened to be loaded; a scheduler names its store."""
    import duly

    assert {name for name in dir(duly) if not name.startswith("__")} == set(duly.__all__)
    assert repr(duly.Scheduler(":memory:")) == "<duly.Scheduler on SqliteStore(':memory:'), not running>"


def test_the_package_knows_its_version() -> None:
    """`duly.__version__` is what pip shows, looked up when it is asked for."""
    declared = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]["version"]
    assert duly.__version__ == declared
    assert "importlib.metadata" not in loaded_by("import duly")
    assert not hasattr(duly, "__versions__")


def test_the_version_is_not_made_up_where_duly_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source tree on the path has no metadata."""

    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", nothing)
    with pytest.raises(AttributeError, match="not installed"):
        duly.__version__  # noqa: B018 - asked for


@pytest.mark.parametrize("url", ["postgresql://app:s3cret@db/shop", "postgres://db/shop"])
def test_a_url_of_postgresql_is_not_taken_for_a_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 9.1: it names a shared store; nothing is connected to before `initialize`."""
    monkeypatch.chdir(tmp_path)
    text = repr(duly.Scheduler(url))
    assert "(schema duly)" in text
    assert "s3cret" not in text
    assert list(tmp_path.iterdir()) == []
