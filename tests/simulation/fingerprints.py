"""Run histories in a process of its own, and print what came of them: `python -m tests.simulation.fingerprints 1 2 3`.

Needs the standard library, duly and what duly needs: so it runs under every Python, whatever is installed there.
"""

import hashlib
import sys

from tests.simulation.executor import execute
from tests.simulation.generation import history_of


def fingerprint(seed: int) -> str:
    """The history itself, its trace, and what its callers and callbacks saw."""
    history = history_of(seed)
    return hashlib.sha256((repr(history) + execute(history).fingerprint).encode()).hexdigest()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(argument, fingerprint(int(argument)))
