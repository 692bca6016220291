"""How much of a large count a run of the tests takes: all of it in `make test-all`, a seeded share in `make test`.

Histories, crash points, zones, fuzzed texts: thousands of cases of one kind. `make test-all` sets DULY_COUNTS=full and
takes every one of them. Everywhere else a share is taken, and it is always the same one unless DULY_SEED names another:
a red build means that the code changed, not the dice. This module is the only one that reads the two.
"""

import os
import random
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

FULL: Final = os.environ.get("DULY_COUNTS", "") == "full"
SEED: Final = os.environ.get("DULY_SEED", "0")


def share(every: Sequence[T], quick: int) -> Sequence[T]:
    """All of them, or, where counts are not full, `quick` of them, chosen by the seed and in their order."""
    if FULL or quick >= len(every):
        return every
    # By the seed and the number alone: what is asked for first, and by which process, changes nothing.
    chosen = random.Random(f"{SEED} {len(every)} {quick}").sample(range(len(every)), quick)
    return [every[index] for index in sorted(chosen)]


def count(full: int, quick: int) -> int:
    """A number of cases that are drawn elsewhere, such as hypothesis's examples."""
    return full if FULL else quick


def described() -> str:
    """The share that this run takes, for the head of its report."""
    if FULL:
        return "counts: full"
    return f"counts: a share, DULY_SEED={SEED} (`make test-all` takes all)"
