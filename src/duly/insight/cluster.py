"""The hosts of a shared store: which of them live, what they declare, and what is wrong with that."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from duly.core.moments import MICROSECONDS, Instant
from duly.core.registration import Registration
from duly.insight.problem import Problem
from duly.insight.words import between, counted, listed
from duly.stores.port import ClusterRecord, HostName, StoredHost
from duly.text import plain

OUTDATED_MAX: Final = 600 * MICROSECONDS
"""A rollout takes some minutes; a host that is outdated for longer was forgotten."""

TRANSACTION_MAX: Final = 3_600 * MICROSECONDS
GONE_SHOWN: Final = 3_600 * MICROSECONDS
"""Hosts that went within this time are listed."""

_LABEL_LETTERS_MAX: Final = 60
_FAULT_LETTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class HostStatus:
    """The situation of one host."""

    key: int  #: the key of the host, unique in its store
    identifier: str  #: the scheduler, as the store names it
    label: str | None  #: its name for people, if it was given one
    state: str
    """`living`, `silent` (its beat is so old that another host would bury it), `left`, `buried`."""

    since: Instant  #: when it joined
    edition: int  #: the number of the set of tasks that it declares
    outdated_since: Instant | None
    """Since when another edition than its own has been in force; None: its own is."""

    last_beat_at: Instant  #: its last beat
    beat_age_ms: int  #: how long ago that was
    lease_ms: int  #: how long it trusts a beat
    runs: int
    """Runs of it that are under way."""

    fault: str | None
    """The reason why it cannot write to the store until somebody acts; None: it is not known to have one."""

    @property
    def name(self) -> HostName:
        """As its runs name it."""
        return HostName(self.key, self.label)


@dataclass(frozen=True, slots=True)
class EditionStatus:
    """A set of tasks that hosts on record declare, or that is in force."""

    edition: int  #: its number
    first_seen_at: Instant  #: when it was first declared
    hosts: int
    """Living hosts that declare it."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The hosts and editions of a shared store."""

    edition: int
    """The edition in force."""

    in_force_since: Instant  #: since when it has been in force
    position: int
    """The number of the latest entry of the log."""

    editions: Sequence[EditionStatus]  #: the edition in force, and those that hosts on record declare
    hosts: Sequence[HostStatus]
    """The hosts on record, and the ones that went within the last hour."""


def cluster_status(cluster: ClusterRecord, runs: Mapping[int, int], at: Instant) -> ClusterStatus:
    """The hosts of a store at a moment, given how many runs of each are under way."""
    shown = [each for each in cluster.hosts if each.gone is None or at - each.beat_at <= GONE_SHOWN]
    hosts = [_host_status(each, cluster, runs.get(each.key, 0), at) for each in shown]
    living = [each.edition for each in hosts if each.state == "living"]
    editions = [
        EditionStatus(number, cluster.editions[number].since, living.count(number))
        for number in sorted({cluster.edition, *(each.edition for each in cluster.hosts if each.gone is None)})
        if number in cluster.editions
    ]
    return ClusterStatus(cluster.edition, cluster.in_force_since, cluster.position, editions, hosts)


def _host_status(host: StoredHost, cluster: ClusterRecord, runs: int, at: Instant) -> HostStatus:
    outdated = host.gone is None and host.edition != cluster.edition
    return HostStatus(
        host.key,
        host.identifier,
        host.label,
        host.gone or ("silent" if host.is_silent(at) else "living"),
        host.since,
        host.edition,
        max(host.since, cluster.in_force_since) if outdated else None,
        host.beat_at,
        max(0, at - host.beat_at) // 1000,
        host.lease // 1000,
        runs,
        host.fault if host.gone is None else None,
    )


def host_text(host: HostName | HostStatus) -> str:
    """A host for people: its key, and its label if it has one."""
    if host.label is None:
        return f"host {host.key}"
    return f"host {host.key} ({plain(host.label, longest=_LABEL_LETTERS_MAX)})"


# --- health ----------------------------------------------------------------------------------------------------------


def problems_of(status: ClusterStatus, at: Instant) -> Iterator[Problem]:
    """Why the hosts of a store are not in order (SPEC 9.16, 9.20)."""
    living = [each for each in status.hosts if each.state == "living"]
    if not any(each.edition == status.edition for each in living):
        yield Problem("no-living-host", _nobody(status, living, at))
    for host in living:
        if host.outdated_since is not None and at - host.outdated_since > OUTDATED_MAX:
            text = f"{host_text(host)} declares edition {host.edition}, and has been outdated for "
            yield Problem("host-outdated", text + between(host.outdated_since, at))
        if host.fault is not None:
            fault = plain(host.fault, longest=_FAULT_LETTERS_MAX)
            yield Problem(
                "host-cannot-write", f"{host_text(host)} cannot write, and this does not pass by itself: {fault}"
            )


def _nobody(status: ClusterStatus, living: Sequence[HostStatus], at: Instant) -> str:
    if living:
        others = listed([str(number) for number in sorted({each.edition for each in living})])
        return f"no living host declares edition {status.edition}, which is in force; living hosts declare {others}"
    text = "no host is living"
    if beats := [each.last_beat_at for each in status.hosts]:
        text += f"; the last beat was {between(max(beats), at)} ago"
    for host in status.hosts:
        if host.state == "silent" and host.runs:
            text += f", and {host_text(host)} left {counted(host.runs, 'run')} marked running"
    return text


def warnings_of(cluster: ClusterRecord, at: Instant) -> Iterator[Problem]:
    """The warnings: they do no harm yet."""
    since = cluster.oldest_transaction_at
    if since is not None and at - since > TRANSACTION_MAX:
        text = f"a transaction in this database has been open for {between(since, at)}: it keeps old versions of rows "
        yield Problem("old-transaction", text + "that every beat updates; end it")


# --- what a host that joins would do ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EditionPlan:
    """The fate of a set of tasks if a host joins that declares it (SPEC 9.14)."""

    verdict: Literal["joined", "applied", "outdated", "foreign"]
    """`joined`: it is in force. `applied`: it is put in force. `outdated`: a newer one stays in force, and nothing
    changes. `foreign`: it is refused, because it shares no name with the set in force."""

    edition: int | None
    """The number that it has, or gets; None if it is refused."""

    in_force: int  #: the edition in force now
    outdated_hosts: Sequence[HostName]
    """Living hosts that become outdated, or stay so."""


def edition_plan(
    declared: Sequence[Registration],
    stored_names: Sequence[str],
    cluster: ClusterRecord,
    at: Instant,
    *,
    interrupted: Literal["restart", "wait"],
) -> EditionPlan:
    """The fate of a set of tasks if a host joins that declares it.

    Parameters:
        declared: the set, as `Registration`s.
        stored_names: the names of the tasks in force.
        cluster: what the store knows of its hosts: `Snapshot.cluster`.
        at: the moment at which it would join.
        interrupted: that option of its scheduler, which is part of a set.
    """
    from duly.stores.shared import set_digest  # a plan alone needs it, and pages need to be quick

    digest = set_digest(((each.name, each.expression.text, each.delay) for each in declared), interrupted=interrupted)
    living = [each for each in cluster.hosts if each.is_living(at)]
    in_force = cluster.edition
    if in_force in cluster.editions and cluster.editions[in_force].digest == digest:
        return EditionPlan("joined", in_force, in_force, _others(living, in_force))
    in_force_lives = any(each.edition == in_force for each in living)
    if in_force_lives and stored_names and set(stored_names).isdisjoint(each.name for each in declared):
        return EditionPlan("foreign", None, in_force, ())
    known = [number for number, edition in cluster.editions.items() if edition.digest == digest]
    edition = max(known) if known else max(cluster.editions, default=0) + 1
    if edition > max((each.edition for each in living), default=0):
        return EditionPlan("applied", edition, in_force, _others(living, edition))
    return EditionPlan("outdated", edition, in_force, _others(living, in_force))


def _others(living: Sequence[StoredHost], edition: int) -> list[HostName]:
    return [each.name for each in living if each.edition != edition]
