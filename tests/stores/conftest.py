"""The places on which each store is asked to keep its contract."""

from pathlib import Path

import pytest

from tests.stores.contract import Place


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A file, and what lives in memory."""
    return Place(tmp_path / "state.db" if request.param == "file" else ":memory:")
