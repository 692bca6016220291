"""Thousands of seeded histories: the real scheduler and store through crashes, faults, clock steps; then the oracles.

A seed is a history, the same for ever (FORMAL D4). When one fails, the test prints a smaller history that fails too, as
a test to paste, and its trace.
"""

from collections import Counter

import pytest

from tests.counts import share
from tests.simulation.executor import SimulationError, check, execute
from tests.simulation.generation import history_of, year_of
from tests.simulation.histories import History
from tests.simulation.reach import everything, reached
from tests.simulation.shrinking import shrunk
from tests.system.record import record

WATCHED = range(600)
"""Seeds whose histories are also asked what they have reached."""

BATCH = 40
BATCHES = [range(first, first + BATCH) for first in range(WATCHED.stop, 3_000, BATCH)]
YEARS = range(9)
SECONDS_OF_A_YEAR = 365 * 86_400


def test_the_simulation_is_as_large_as_promised() -> None:
    """At least 3,000 seeded histories and 8 simulated years in every run of all tests."""
    assert len(WATCHED) + sum(map(len, BATCHES)) >= 3_000
    assert len(YEARS) >= 8  # each of them is one at least, which its test asserts


@pytest.mark.parametrize("seeds", share(BATCHES, 5), ids=str)
def test_many_histories(seeds: range) -> None:
    """FORMAL D4: whatever happened, all oracles agree with what came of it."""
    for seed in seeds:
        check_seed(seed)
    record("simulation, seeded histories", histories=len(seeds))


@pytest.mark.slow
def test_every_cause_transition_error_and_fault_is_reached() -> None:
    """Reachability counters; a simulation in which something never happens proves nothing about it."""
    found: Counter[str] = Counter()
    for seed in WATCHED:
        found += check_seed(seed)
    assert not (missing := sorted(each for each in everything() if not found[each])), missing
    assert found["reference asked"] > len(WATCHED) / 4  # elsewhere faults and unnoticed steps hide instants from it
    record("simulation, seeded histories", histories=len(WATCHED))


@pytest.mark.parametrize("seed", share(YEARS, 2))
def test_a_year(seed: int) -> None:
    """At least eight simulated years; these are nine, each with its crashes, clock changes and steps."""
    result = check(year_of(seed))
    assert result.simulated_seconds >= SECONDS_OF_A_YEAR
    assert sum(row[0] == "RS" for row in result.rows) >= 50
    record("simulation, years", years=1)


def check_seed(seed: int) -> Counter[str]:
    """Run the history of a seed; what it reached, or, if anything is wrong, a smaller history that fails as well."""
    history = history_of(seed)
    result = execute(history)
    if result.wrongs:
        smallest = shrunk(history, fails, attempts_max=300)
        try:
            check(smallest)
        except SimulationError as error:
            pytest.fail(f"seed {seed}: {error}", pytrace=False)
        check(history)
    return reached(result)


def fails(history: History) -> bool:
    """Whether anything is wrong after it."""
    return bool(execute(history).wrongs)
