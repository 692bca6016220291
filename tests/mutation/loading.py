"""A plugin of pytest for the run that finds out which tests run which lines.

It loads all modules that have mutants before any test is collected. Some of them are imported when they are first
needed, which is in the middle of a test: what they run then would pass for a part of that test. And it notes the tests
that fork, because what they do in the other process is not seen.
"""

import contextlib
import importlib
import os
from typing import Final

import pytest

from tests.mutation.covering import python_files

PACKAGES: Final = ("src/duly/core/", "src/duly/formal/", "src/duly/engine/", "src/duly/stores/")
FORKS: Final = "DULY_MUTATION_FORKS"
"""The environment variable that names the file for the names of tests that fork."""


def load() -> None:
    """Import the modules that have mutants."""
    for file in python_files(*PACKAGES):
        name = file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__")
        with contextlib.suppress(ImportError):  # it needs an extra that is not installed, and so do its tests
            importlib.import_module(name.replace("/", "."))


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Coverage is measured from here on, or earlier."""
    load()
    if FORKS in os.environ:
        os.register_at_fork(before=_note_fork)


def _note_fork() -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    with open(os.environ[FORKS], "a") as file:
        file.write(f"{test}\n")
