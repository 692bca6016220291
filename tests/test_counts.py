"""A share is a part of the whole, the same for one seed and another for another."""

import subprocess
import sys

from tests.programs import ROOT, environment

ASK = """
from tests.counts import count, described, share
print(list(share(range(1000), 5)), count(100, 7), list(share("ab", 5)))
print(described())
"""


def asked(**variables: str) -> list[str]:
    """The counts of a process with these variables."""
    told = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=ROOT,
        env={**environment(), "DULY_COUNTS": "", "DULY_SEED": "0", **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return told.stdout.splitlines()


def test_a_share_is_chosen_by_the_seed() -> None:
    """Twice the same, with another seed another; and the head of the report names the seed."""
    first, head = asked()
    assert first.endswith("] 7 ['a', 'b']")
    assert asked() == [first, head]
    assert "DULY_SEED=0" in head
    other, head = asked(DULY_SEED="17")
    assert other != first
    assert "DULY_SEED=17" in head


def test_full_counts_leave_nothing_out() -> None:
    """As `make test-all` has them."""
    every, head = asked(DULY_COUNTS="full")
    assert every == f"{list(range(1000))} 100 ['a', 'b']"
    assert head == "counts: full"
