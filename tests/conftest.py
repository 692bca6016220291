"""What all tests share: how hypothesis searches, and what happens when a component is missing."""

import importlib.util
import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every run and every machine: a red build means that the code changed, not the dice.
# Deadlines would measure the machine. `make soak` throws the dice instead, and for longer.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile(
    "soak", max_examples=10_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci")  # `--hypothesis-profile=soak` comes after this, and wins


def require(component: str, hint: str) -> None:
    """Skip the calling test unless `component`, a Python module or a program on PATH, is there.

    With DULY_REQUIRE_ALL=1, as in CI, the test fails instead: a skip nobody reads is a test nobody has.
    """
    if importlib.util.find_spec(component) is not None or shutil.which(component) is not None:
        return
    message = f"{component} is missing: {hint}"
    if os.environ.get("DULY_REQUIRE_ALL") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
