"""A standby that is lost, a failover, and a database that was set back, under real hosts (SPEC 9.20, 9.21)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.chaos import LEASE, Chaos
from tests.compute import NotInTimeError
from tests.postgres_server import PostgresServer, debian_binaries

pytestmark = pytest.mark.system

PATIENCE_SECONDS = 120.0


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the distribution, which the test may stop."""
    server = PostgresServer(debian_binaries())
    yield server
    server.discard()


@pytest.fixture
def standby(server: PostgresServer) -> Iterator[PostgresServer]:
    """A standby of it, without which it answers no write."""
    standby = PostgresServer(debian_binaries(), copies=server)
    server.execute("alter system set synchronous_standby_names = 'standby'", "select pg_reload_conf()")
    wait_for_the_standby(server)
    yield standby
    standby.discard()


def wait_for_the_standby(server: PostgresServer) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not server.execute("select 1 from pg_stat_replication where sync_state = 'sync'"):
        if time.monotonic() >= deadline:
            raise NotInTimeError("the standby does not come")
        time.sleep(0.1)


def end_of_log(chaos: Chaos) -> int:
    return int(str(chaos.server.execute(f"select coalesce(max(seq), 0) from {chaos.here}.log")[0][0]))


def test_without_its_standby_the_store_grants_nothing_and_after_a_failover_nothing_is_lost(
    server: PostgresServer, standby: PostgresServer, tmp_path: Path
) -> None:
    chaos = Chaos(server, tmp_path, "failover", standby=standby)
    try:
        chaos.start()
        chaos.wait_for_work()

        standby.stop("fast")
        lost_at = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        before = end_of_log(chaos)
        time.sleep(3 * LEASE)
        assert end_of_log(chaos) == before, "something was granted, or a host was buried"
        # A callback's own steps are held once the lease has run out; a second for the step that was under way.
        held = [step for step in chaos.steps() if step.at > lost_at + (LEASE + 1) * 1e9 and "blocking" not in step.task]
        assert held == []

        standby.start()
        assert chaos.quiet() == []
        if chaos.replay().burials:
            raise NotInTimeError("a host did not beat for a lease and a third")

        server.stop()
        standby.promote()
        chaos.server = standby
        assert chaos.quiet() == []
    finally:
        chaos.end()
    verdict = chaos.judge()
    assert verdict.violations == [], verdict
    assert not [line for lines in chaos.events().values() for line in lines if "set back" in line]


def test_hosts_join_anew_when_the_database_was_set_back(server: PostgresServer, tmp_path: Path) -> None:
    """SPEC 9.21: they are told so, keys are used again, and everything goes on."""
    chaos = Chaos(server, tmp_path, "rewind")
    try:
        chaos.start()
        chaos.wait_for_work()
        backup = server.back_up()
        # Another host comes after the backup: its key will be used again.
        chaos.strike("kill")
        assert chaos.quiet() == []
        hosts = chaos.processes()

        server.set_back(backup)
        assert chaos.quiet() == []
        assert chaos.processes() == hosts, "no process ended"
        told = {process for process, lines in chaos.events().items() if any("set back" in line for line in lines)}
        assert set(hosts) <= told
        # What was lost may have run twice, and the steps show it; the log goes on from the backup without a fault.
        replay = chaos.replay()
        assert (replay.wrongs, replay.served_twice) == ([], [])
    finally:
        chaos.end()
