"""Which of these tests start the real program: half a second each, which adds up."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of a module that knows how to start it."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "tests.cli.program" in item.path.read_text():
            item.add_marker(pytest.mark.program)
