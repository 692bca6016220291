"""Tables that somebody changes by hand under real hosts: it is told, and nothing goes on for ever (SPEC 9.10, 9.21)."""

from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cluster.chaos import Chaos, Place
from tests.postgres_server import debian_binaries, server_of

pytestmark = pytest.mark.system

_schemas = count(1)

FREED = (
    "update states set run = null, run_cause = null, run_scheduled = null, pending_retry_until = null, failures = 0, "
    "first_started_at = null, first_scheduled = null, attempt = null"
)
"""As docs/cluster.md says: a run can stand beside a retry that it took the place of, or repeat an obligation."""


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    """Two hosts at work."""
    chaos = Chaos(server_of(debian_binaries()), tmp_path, f"surgery {next(_schemas)}", (Place("one"), Place("two")))
    try:
        chaos.start()
        chaos.wait_for_work()
        yield chaos
    finally:
        chaos.end()


def operate(chaos: Chaos, statement: str) -> None:
    chaos.server.execute(f"set search_path = {chaos.here}", statement)


def told(chaos: Chaos) -> Counter[str]:
    return Counter(line.partition("\t")[0] for lines in chaos.events().values() for line in lines)


@pytest.mark.parametrize(
    ("statement", "event"),
    [
        (FREED, "TaskRunFenced"),
        ("delete from log", "LeaseLost"),
        ("truncate hosts", "LeaseLost"),
        ("truncate hosts, log", "LeaseLost"),
        ("truncate runs", None),
        ("truncate marks, strays, arriving, editions", None),
    ],
)
def test_hosts_say_so_and_go_on(chaos: Chaos, statement: str, event: str | None) -> None:
    chaos.wait_for_runs("long")
    operate(chaos, statement)
    assert chaos.quiet() == []
    assert event is None or told(chaos)[event] > 0
    assert chaos.complaints() == []


@pytest.mark.parametrize("table", ["states", "cluster"])
def test_what_cannot_be_mended_is_told_once_and_goes_on_when_it_was_mended(chaos: Chaos, table: str) -> None:
    operate(chaos, f"create table saved as select * from {table}; truncate {table}")
    chaos.wait_for_event("StoreFault")
    operate(chaos, "select pg_sleep(5)")
    assert told(chaos)["StoreFault"] <= 2 * len(chaos.places)
    operate(chaos, f"insert into {table} select * from saved")
    if table == "states":  # what ran meanwhile has ended, and nothing says so
        operate(chaos, FREED)
    assert chaos.quiet() == []
    assert chaos.complaints() == []
