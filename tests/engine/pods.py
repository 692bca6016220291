"""Hosts of a simulated cluster, each with its scheduler and the parts of its engine, for tests that look at these."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import duly
from duly.errors import StoreError
from duly.events import Event
from duly.testing import SimulatedCluster
from duly.testing.cluster import ClusterHost
from tests.engine.helpers import Registration, engine_of, registration

E = TypeVar("E", bound=Event)

YEARLY: Final = "0 0 1 1 *"
"""Not due while these tests last."""


def yearly(*names: str, delay: timedelta = timedelta(minutes=1)) -> list[Registration]:
    """Tasks of which no run begins."""
    return [registration(name, YEARLY, delay=delay) for name in names]


class Pod:
    """A host, its scheduler, and what it knows of the others."""

    def __init__(self, cluster: SimulatedCluster, host: ClusterHost, **options: Any) -> None:
        self.cluster = cluster
        self.host = host
        self.scheduler: duly.Scheduler = host.scheduler(**options)

    async def declare(self, registrations: Sequence[Registration]) -> "Pod":
        """Call initialize()."""
        await self.scheduler.initialize(registrations)
        engine = engine_of(self.scheduler)
        assert engine.colleagues is not None
        assert engine.member is not None
        self.engine, self.colleagues, self.member = engine, engine.colleagues, engine.member
        self.membership = engine.member.membership
        return self

    def told(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.host.events if isinstance(event, kind)]

    def names(self) -> set[str]:
        """The tasks that it serves."""
        return {task.name for task in self.engine.agenda.tasks()}

    def sharing(self) -> tuple[int, ...]:
        """The keys of the hosts that share the work, as far as it knows."""
        return self.engine.agenda.share.keys

    def fail(self, *requests: str, after: bool = False) -> None:
        """Have requests fail from now on, before or after they were made."""

        def cut(request: str, made: bool) -> None:
            if request in requests and made is after:
                raise StoreError("no answer", store="shared memory")

        self.host.on_request = cut


async def joined(cluster: SimulatedCluster, registrations: Sequence[Registration], **options: Any) -> Pod:
    """Another host, which declares these tasks."""
    return await Pod(cluster, await cluster.host(), **options).declare(registrations)
