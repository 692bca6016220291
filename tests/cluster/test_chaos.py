"""Kills, freezes, cuts and restarts under real processes: nothing overlaps, nothing is lost (SPEC 9.3)."""

import faulthandler
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count as numbers
from pathlib import Path

import pytest

from tests.cluster.chaos import LEASE, THREE, Chaos, Place, Verdict
from tests.cluster.guards import PATIENCE, PREMISE, STEP_FENCE, WATCHED_LEASE
from tests.cluster.pgbouncer import PgBouncer
from tests.conftest import missing, soak_seconds
from tests.counts import count
from tests.networks import Network
from tests.postgres_server import QUICK, PostgresServer, debian_binaries
from tests.system.kill_faketime import library

pytestmark = [pytest.mark.chaos, pytest.mark.real_time]

FAULTS = {
    "kill": 5,
    "freeze": 8,
    "terminate": 4,
    "restart fast": 1,
    "restart immediate": 1,
    "terminate backends": 3,
    "restart pooler": 2,
    "cut requests": 3,
    "cut answers": 3,
    "cut both": 3,
    "step clock": 3,
    "slow store": 2,
}
"""Kinds of faults, by weight."""

EVERYWHERE = (
    Place("near"),
    Place("pooled", pooled=True),
    Place("with a wrong clock", own_clock=True),
    Place("far", cable=0),
    Place("far and patient", lease=1.5 * LEASE, cable=1),
)
"""One host of each kind: they are one scheduler."""

_schemas = numbers(1)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Two places away from the database."""
    network = Network(places=2)
    yield network
    network.remove()


@pytest.fixture(scope="module")
def server(network: Network) -> Iterator[PostgresServer]:
    """A server of the distribution, which tests may stop."""
    server = PostgresServer(debian_binaries(), (*QUICK, "max_connections=200"), network)
    yield server
    server.discard()


@pytest.fixture
def pooler(server: PostgresServer) -> Iterator[PgBouncer]:
    """A pooler in front of it, in transaction mode."""
    pooler = PgBouncer(server)
    yield pooler
    pooler.discard()


def new_schema() -> str:
    return f"chaos {next(_schemas)}"


# --- everything at once ----------------------------------------------------------------------------------------------


def rage(server: PostgresServer, pooler: PgBouncer, folder: Path, seconds: float, seed: int) -> Verdict:
    """All kinds of faults for so long, in a cluster with a host of each kind."""
    if library() is None:
        missing("libfaketime", "apt-get install faketime")
    faulthandler.cancel_dump_traceback_later()  # it takes its time
    chaos = Chaos(server, folder, new_schema(), EVERYWHERE, seed, pooler=pooler)
    try:
        chaos.start()
        chaos.wait_for_work()
        chaos.rage(seconds, FAULTS)
        unserved = chaos.quiet()
    finally:
        chaos.end()
    return chaos.judge(unserved)


def test_nothing_overlaps_and_nothing_is_lost(server: PostgresServer, pooler: PgBouncer, tmp_path: Path) -> None:
    """CLUSTER, tests 4: ten minutes of faults in `make test-all`."""
    seconds, least = count(600, 60), count(300, 25)
    verdict = rage(server, pooler, tmp_path, seconds, seed=1)
    print(verdict)
    assert verdict.violations == [], verdict
    assert verdict.runs > 20 * len(EVERYWHERE), verdict
    assert verdict.faults.total() >= least, verdict
    assert set(verdict.faults) == set(FAULTS), verdict


@pytest.mark.soak
def test_nothing_overlaps_and_nothing_is_lost_however_long(
    server: PostgresServer, pooler: PgBouncer, tmp_path: Path
) -> None:
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    verdict = rage(server, pooler, tmp_path, soak_seconds(), seed)
    print(verdict)
    assert verdict.violations == [], f"seed {seed}: {verdict}"
    assert verdict.faults.total() >= 1_000 * soak_seconds() / 3_600, f"seed {seed}: {verdict}"


# --- guards taken out ------------------------------------------------------------------------------------------------

ATTEMPTS = 3


def search(
    server: PostgresServer,
    folder: Path,
    guard: str,
    kinds: dict[str, int],
    found: Callable[[Chaos], list[object]],
    *,
    places: Sequence[Place] = THREE,
    leases: tuple[float, float] = (1.5, 3.0),
    aim: Callable[[Chaos], None] = lambda _: None,
) -> list[object]:
    """The faults of a cluster without a guard; from seed to seed, until something is found."""
    for seed in range(1, ATTEMPTS + 1):
        here = folder / str(seed)
        here.mkdir()
        chaos = Chaos(server, here, new_schema(), places, seed, without=(guard,))
        try:
            chaos.start()
            chaos.wait_for_work()
            aim(chaos)
            chaos.rage(25, kinds, leases=leases, pause=(0.3, 0.3), is_enough=partial(found, chaos))
            if violations := found(chaos):
                print(f"without the {guard}, {chaos.faults.total()} faults, seed {seed}: {violations[0]}")
                return violations
        finally:
            chaos.end()
    return []


def seen_in_steps(chaos: Chaos) -> list[object]:
    return list(chaos.overlaps())


def seen_in_the_log(chaos: Chaos) -> list[object]:
    return list(chaos.replay().served_twice)


def slow_beats(seconds: float) -> Callable[[Chaos], None]:
    """The host in the first place hears late that it was buried."""
    return lambda chaos: chaos.slow_down(chaos.places[0], beats=seconds)


def test_without_the_step_fence_runs_overlap(server: PostgresServer, tmp_path: Path) -> None:
    """A host that was frozen, and buried meanwhile, goes on until it hears of that."""
    assert search(server, tmp_path, STEP_FENCE, {"freeze one": 1}, seen_in_steps, aim=slow_beats(0.3))


def test_without_the_premise_minutes_are_served_twice(server: PostgresServer, tmp_path: Path) -> None:
    """A start is granted although what it was decided by is not true any more: one host with slow writes is enough."""

    def aim(chaos: Chaos) -> None:
        chaos.slow_down(chaos.places[0], others=0.6)

    assert search(server, tmp_path, PREMISE, {}, seen_in_the_log, aim=aim)


def test_without_patience_runs_overlap(server: PostgresServer, tmp_path: Path) -> None:
    """A host that was frozen for less than its lease is buried, wakes up, and trusts its lease."""
    assert search(server, tmp_path, PATIENCE, {"freeze one": 1}, seen_in_steps, leases=(0.5, 0.9), aim=slow_beats(0.3))


def test_by_the_lease_of_the_watcher_runs_overlap(server: PostgresServer, tmp_path: Path) -> None:
    """Hosts with different leases: one with a long lease is buried by the others after a short one."""
    places = (Place("patient", lease=4 * LEASE), Place("two"), Place("three"))
    assert search(
        server,
        tmp_path,
        WATCHED_LEASE,
        {"freeze patient": 1},
        seen_in_steps,
        places=places,
        leases=(0.45, 0.6),
        aim=slow_beats(1.0),
    )
