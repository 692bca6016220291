"""Hosts of a shared store: which live, which are outdated, and what a host that joins would do."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from typing import Literal

import pytest

from duly.core.cron import parse_cron
from duly.core.moments import MICROSECONDS, Delay, Instant
from duly.core.registration import Registration, RunsOn
from duly.insight.cluster import (
    OUTDATED_MAX,
    TRANSACTION_MAX,
    cluster_status,
    edition_plan,
    host_text,
    problems_of,
    warnings_of,
)
from duly.insight.json_form import json_form
from duly.stores.port import ClusterRecord, Edition, HostName, StoredHost
from duly.stores.shared import set_digest

SECOND = MICROSECONDS
LEASE = 30 * SECOND
NOON = Instant(1_714_564_800 * SECOND)
AT = Instant(NOON + 3600 * SECOND)


def host(
    key: int, edition: int = 1, *, beat: int = 0, gone: Literal["left", "buried"] | None = None, since: int = 3600
) -> StoredHost:
    """A host that beat some seconds ago, and joined some seconds ago."""
    beat_at, joined_at = Instant(AT - beat * SECOND), Instant(AT - since * SECOND)
    return StoredHost(key, f"{key:032x}", f"web-{key}", joined_at, LEASE, edition, beat_at, gone)


def cluster(
    *hosts: StoredHost,
    edition: int = 1,
    since: int = 3600,
    open_since: Instant | None = None,
    digests: Sequence[str] = (),
) -> ClusterRecord:
    """A cluster whose edition in force was put in force some seconds ago."""
    editions = {n: Edition(digest, NOON) for n, digest in enumerate(digests or ("one", "two", "three")[:edition], 1)}
    return ClusterRecord(hosts, edition, Instant(AT - since * SECOND), editions, 7, open_since)


def codes(found: ClusterRecord, runs: dict[int, int] | None = None) -> list[str]:
    return [each.code for each in problems_of(cluster_status(found, runs or {}, AT), AT)]


def test_a_living_host_of_the_edition_in_force_is_health() -> None:
    assert codes(cluster(host(1))) == []
    assert codes(cluster(host(1, beat=40))) == []


@pytest.mark.parametrize(
    "found",
    [
        cluster(),
        cluster(host(1, gone="left"), host(2, gone="buried")),
        cluster(host(1, beat=41)),
        cluster(host(1), edition=2, since=5),
    ],
    ids=["none", "gone", "silent", "of another edition"],
)
def test_without_a_living_host_of_the_edition_in_force_a_store_is_unhealthy(found: ClusterRecord) -> None:
    assert codes(found) == ["no-living-host"]


def test_the_problem_says_who_was_last_and_what_is_left() -> None:
    """A host that died alone is buried by nobody, and its runs stay marked."""
    status = cluster_status(cluster(host(1, beat=120), host(2, beat=300)), {1: 3}, AT)
    (problem,) = problems_of(status, AT)
    assert (
        problem.text == "no host is living; the last beat was 2 min ago, and host 1 (web-1) left 3 runs marked running"
    )
    status = cluster_status(cluster(host(1), edition=2, since=5), {}, AT)
    (problem,) = problems_of(status, AT)
    assert problem.text == "no living host declares edition 2, which is in force; living hosts declare 1"


def test_a_host_may_be_outdated_for_ten_minutes() -> None:
    """SPEC 9.16: since its joining or since the edition was put in force, whichever was later."""
    allowed = OUTDATED_MAX // SECOND
    assert codes(cluster(host(1), host(2, 2), edition=2, since=allowed)) == []
    assert codes(cluster(host(1), host(2, 2), edition=2, since=allowed + 1)) == ["host-outdated"]
    assert codes(cluster(host(1, since=allowed), host(2, 2), edition=2)) == []
    assert codes(cluster(host(1, beat=90), host(2, 2), edition=2)) == []  # silent: a burial is near


def test_a_living_host_that_cannot_write_is_a_problem() -> None:
    """SPEC 9.20: with its reason, whatever letters and length that has; a host that is gone is none."""
    fault = "refuses the role a right\n" + "x" * 1_000
    unable = replace(host(2), fault=fault)
    (problem,) = problems_of(cluster_status(cluster(host(1), unable), {}, AT), AT)
    assert problem.code == "host-cannot-write"
    assert problem.text.startswith(
        "host 2 (web-2) cannot write, and this does not pass by itself: refuses the role a right\\n"
    )
    assert len(problem.text) < 400
    gone = replace(host(2, gone="buried"), fault=fault)
    assert codes(cluster(host(1), gone)) == []
    assert [each.fault for each in cluster_status(cluster(host(1), gone, unable), {}, AT).hosts] == [None, None, fault]


def test_a_transaction_may_be_open_for_an_hour() -> None:
    edge = Instant(AT - TRANSACTION_MAX)
    assert list(warnings_of(cluster(open_since=edge), AT)) == []
    (warning,) = warnings_of(cluster(open_since=Instant(edge - 1)), AT)
    assert warning.code == "old-transaction"
    assert list(warnings_of(cluster(), AT)) == []


def test_hosts_that_went_are_listed_for_an_hour_and_editions_while_they_are_declared() -> None:
    hosts = [host(1, beat=3601, gone="left"), host(2, beat=3600, gone="buried"), host(3, 2, beat=60), host(4, 2)]
    status = cluster_status(cluster(*hosts, edition=3), {4: 2}, AT)
    assert [(each.key, each.state, each.runs) for each in status.hosts] == [
        (2, "buried", 0),
        (3, "silent", 0),
        (4, "living", 2),
    ]
    assert [(each.edition, each.hosts) for each in status.editions] == [(2, 1), (3, 0)]
    form = json_form(status, UTC)["hosts"][-1]
    assert (form["beatAgeMs"], form["leaseMs"], form["label"]) == (0, 30_000, "web-4")
    assert form["outdatedSince"] == "2024-05-01T12:00:00+00:00"


def test_a_label_cannot_change_the_line_it_stands_in() -> None:
    assert host_text(HostName(3, None)) == "host 3"
    assert host_text(HostName(3, "a\n\x1b[31m")) == "host 3 (a\\n\\x1b[31m)"


# --- what a host that joins would do ---------------------------------------------------------------------------------


def declared(*names: str) -> list[Registration]:
    return [Registration(name, parse_cron("* * * * *"), print, RunsOn.THREAD, Delay(0)) for name in names]


def digest(*names: str) -> str:
    return set_digest(((name, "* * * * *", Delay(0)) for name in names), interrupted="restart")


OLD, NEW = digest("a"), digest("a", "b")


@pytest.mark.parametrize(
    ("names", "found", "verdict", "edition", "outdated"),
    [
        (("a",), cluster(host(1), digests=[OLD]), "joined", 1, []),
        (("a", "b"), cluster(host(1), digests=[OLD]), "applied", 2, [1]),
        (("a", "b"), cluster(host(1), host(2, beat=90), digests=[OLD]), "applied", 2, [1]),
        (("a",), cluster(host(1, 2), edition=2, digests=[OLD, NEW]), "outdated", 1, []),
        (("a",), cluster(host(1, 2, gone="left"), edition=2, digests=[OLD, NEW]), "applied", 1, []),
        (("a", "b"), cluster(host(1), host(2, 2), edition=1, digests=[OLD, NEW]), "outdated", 2, [2]),
        (("x",), cluster(host(1), digests=[OLD]), "foreign", None, []),
        (("x",), cluster(host(1, gone="buried"), digests=[OLD]), "applied", 2, []),
        (("a",), cluster(edition=0, digests=[]), "applied", 1, []),
    ],
    ids=[
        "in force", "new", "new, beside a silent one", "older", "older, nobody lives", "not newer than a living one",
        "no common name", "no common name, nobody lives", "copied from a file",
    ],
)  # fmt: skip
def test_what_becomes_of_a_declared_set(
    names: Sequence[str], found: ClusterRecord, verdict: str, edition: int | None, outdated: list[int]
) -> None:
    """SPEC 9.14."""
    if not found.edition:
        found = ClusterRecord((), 0, NOON, {}, 0, None)
    plan = edition_plan(declared(*names), ["a"], found, AT, interrupted="restart")
    assert (plan.verdict, plan.edition, [each.key for each in plan.outdated_hosts]) == (verdict, edition, outdated)


def test_hosts_that_differ_in_what_becomes_of_interrupted_runs_declare_different_sets() -> None:
    """SPEC 9.3."""
    found = cluster(host(1), digests=[OLD])
    assert edition_plan(declared("a"), ["a"], found, AT, interrupted="wait").verdict == "applied"
