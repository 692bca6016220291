"""Guards of the protocol, and how a test takes one out: in the process of a host, or in the functions of a schema.

A harness that finds nothing when a guard is missing tests nothing. Nothing in duly itself can be switched off.
"""

from collections.abc import Collection
from typing import Any, Final

from duly.core import watch
from duly.core.watch import Seen, Watch
from duly.engine import runner
from duly.stores.postgres.connection import Connection

STEP_FENCE: Final = "step fence"
"""No step of a callback is taken while the lease is not trusted."""

THREAD_GATE: Final = "thread gate"
"""No blocking callback begins in its thread while the lease is not trusted."""

PREMISE: Final = "premise"
"""A start is granted only if nothing has changed since what its host had seen."""

PATIENCE: Final = "patience"
"""A host is buried only after its beat stood still for longer than it trusts its lease, without a gap in the looks."""

WATCHED_LEASE: Final = "watched lease"
"""The lease of the host that is watched counts, and not that of the host that watches."""


def take_out_of_a_host(guards: Collection[str]) -> None:
    """Let this process be a host without these guards."""
    if STEP_FENCE in guards:
        setattr(runner, "stepping", _unfenced)  # noqa: B010  # mypy knows that it is another function
    if THREAD_GATE in guards:
        setattr(runner.Runner, "_call_in_thread", _ungated)  # noqa: B010
    if PATIENCE in guards:
        setattr(watch, "PATIENCE", 1 / 6)  # noqa: B010  # one beat that did not come
        setattr(watch, "LONGEST_GAP", float("inf"))  # noqa: B010
    if WATCHED_LEASE in guards:
        look = Watch.look

        def by_own_lease(self: Watch, sent: float, answered: float, running: list[Seen]) -> list[Seen]:
            return look(self, sent, answered, [each._replace(lease=self._lease) for each in running])

        setattr(Watch, "look", by_own_lease)  # noqa: B010


def take_out_of_a_schema(guards: Collection[str], connection: Connection) -> None:
    """Let the functions of a store be without these guards."""
    if PREMISE in guards:
        change(connection, "write_1", "and s.changed <= seen_ ", "")


def change(connection: Connection, function: str, old: str, new: str) -> None:
    """Replace a text that stands once in a function of the store."""
    asked = f"select pg_get_functiondef('{connection.schema}.{function}'::regproc)"
    ((definition,),) = connection.send(asked, limit_seconds=15)[0]
    assert definition is not None
    assert definition.count(old) == 1, f"{function} has {old!r} {definition.count(old)} times"
    connection.send(definition.replace(old, new), limit_seconds=15)


async def _unfenced(work: Any, *_: object) -> Any:
    """`stepping` without its fence."""
    return await work


async def _ungated(self: Any, run: runner.Run) -> object:
    """`Runner._call_in_thread` without its gate."""
    return await self._pool.run(run.task.callback)
