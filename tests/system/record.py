"""The counts of a test of faults, for the report: one JSON line a test in the file that DULY_RELIABILITY names."""

import json
import os


def record(kind: str, **counts: float) -> None:
    """Append `{"kind", "test", **counts}`; without DULY_RELIABILITY nothing is kept."""
    path = os.environ.get("DULY_RELIABILITY")
    if not path:
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0]
    line = json.dumps({"kind": kind, "test": test, **counts}) + "\n"
    # One write to a file opened for appending: the lines of parallel workers do not mix.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
