"""Set-up of the simulations: a log that is not filled."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def ignored() -> Iterator[None]:
    """Thousands of callbacks that fail on purpose would fill the log."""
    logger = logging.getLogger("duly")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)
