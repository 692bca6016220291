"""What `import duly` loads: what a scheduler needs, and not the checker, the command line or anything that reports."""

import subprocess
import sys

import pytest

# Each name stands for itself and everything below it.
NOT_LOADED = (
    "click", "orjson", "rich", "uvloop",
    "duly.cli", "duly.insight", "duly.integrations", "duly.simulation", "duly.testing", "duly.web",
    "duly.formal.checking", "duly.formal.fast_path", "duly.formal.machine", "duly.formal.monitor",
    "duly.formal.properties", "duly.formal.reader", "duly.formal.registers", "duly.formal.witnesses",
)  # fmt: skip


def in_a_fresh_interpreter(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def loaded_by(statement: str) -> set[str]:
    """The modules of a fresh interpreter after a statement."""
    return set(in_a_fresh_interpreter(f"import sys\n{statement}\nprint(*sys.modules)").split())


def forbidden(modules: set[str]) -> set[str]:
    return {module for module in modules for name in NOT_LOADED if module == name or module.startswith(f"{name}.")}


def test_importing_duly_loads_neither_the_checker_nor_the_command_line() -> None:
    """The checker alone has a second calendar, a second parser and a dozen modules, and most schedulers use none."""
    loaded = loaded_by("import duly; duly.Scheduler, duly.stores")
    assert "duly.scheduler" in loaded
    assert not forbidden(loaded)


@pytest.mark.parametrize("statement", ["import duly.formal.reader", "import duly.testing", "import duly.cli.app"])
def test_the_list_names_modules_that_exist(statement: str) -> None:
    """A module that is renamed must be renamed in the list, or the test above holds nothing."""
    assert forbidden(loaded_by(statement))


def test_every_public_name_of_the_checker_is_loaded_at_its_first_use() -> None:
    """`from duly.formal import *` asks for each of them, and fails if one has no module."""
    program = "from duly.formal import *\nfrom duly import formal\nprint(*set(formal.__all__) - set(globals()))"
    assert in_a_fresh_interpreter(program) == "\n"


def test_a_name_that_the_checker_does_not_have_is_refused() -> None:
    import duly.formal

    with pytest.raises(AttributeError, match="has no attribute 'Checkers'"):
        duly.formal.Checkers  # noqa: B018
    assert set(dir(duly.formal)) >= set(duly.formal.__all__)


def test_the_former_name_of_a_register_snapshot_works_and_warns() -> None:
    """It is `RegisterSnapshot` since there is another snapshot: that of a store."""
    import duly.formal

    with pytest.warns(DeprecationWarning, match="RegisterSnapshot"):
        former = duly.formal.Snapshot
    assert former is duly.formal.RegisterSnapshot
