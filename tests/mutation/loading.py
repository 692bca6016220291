"""A plugin of pytest: loads all modules that have mutants before any test is collected.

Some of them are imported when they are first needed, which is in the middle of a test. What they run then would pass
for a part of that test.
"""

import importlib

import pytest

from tests.mutation.covering import python_files

PACKAGES = ("src/duly/core/", "src/duly/formal/", "src/duly/engine/", "src/duly/stores/")


def load() -> None:
    """Import them."""
    for file in python_files(*PACKAGES):
        name = file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__")
        importlib.import_module(name.replace("/", "."))


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Coverage is measured from here on, or earlier."""
    load()
