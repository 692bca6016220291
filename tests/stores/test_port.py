"""Values of the ports that answer questions about themselves."""

from dataclasses import replace
from typing import Any, cast

import pytest

from duly.core.moments import Instant
from duly.core.task import idempotency_key
from duly.stores.port import DEFAULT_HISTORY, ClusterRecord, HostName, KnownTask, RunRecord, StoredHost, TaskPhase

LEASE = 30_000_000
HOST = StoredHost(3, "a" * 32, "here", Instant(0), LEASE, 1, Instant(1_000), None)
SILENT_AFTER = Instant(1_000 + LEASE + 10_000_000)
RUN = RunRecord(7, "report", 2, "* * * * *", "cron", Instant(0), Instant(5), None, "running")


def test_a_host_is_named_as_its_runs_name_it() -> None:
    assert HOST.name == HostName(3, "here")


def test_a_host_is_silent_after_its_lease_and_a_third_and_living_until_then() -> None:
    """SPEC 9.5: one that is gone is neither."""
    for at, silent in ((Instant(1_000), False), (SILENT_AFTER, False), (Instant(SILENT_AFTER + 1), True)):
        assert (HOST.is_silent(at), HOST.is_living(at)) == (silent, not silent)
        for how in ("left", "buried"):
            gone = replace(HOST, gone=cast(Any, how))
            assert (gone.is_silent(at), gone.is_living(at)) == (False, False)


def test_a_host_is_found_by_its_key() -> None:
    hosts = [replace(HOST, key=key) for key in (1, 3, 8)]
    cluster = ClusterRecord(hosts, 1, Instant(0), {}, 0, None)
    assert [cluster.host(key) for key in (1, 3, 8, 4)] == [*hosts, None]


@pytest.mark.parametrize("phase", TaskPhase)
def test_a_task_knows_its_phase(phase: TaskPhase) -> None:
    task = KnownTask(cast(Any, None), Instant(0), None, None, phase, None)
    assert (task.running, task.interrupted) == (phase is TaskPhase.RUNNING, phase is TaskPhase.INTERRUPTED)


def test_a_run_has_the_key_of_its_first_attempt() -> None:
    """SPEC 10.1: a retry has the same one; of a run that an older schema recorded it is not known."""
    again = RUN._replace(run_id=8, attempt=2, started_at=Instant(9), first_started_at=Instant(5))
    assert again.key == idempotency_key("report", 2, Instant(5))
    assert RUN.key is None


def test_a_hundred_thousand_runs_are_kept_by_default() -> None:
    """As the documents say."""
    assert DEFAULT_HISTORY == 100_000
