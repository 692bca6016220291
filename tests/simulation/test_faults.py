"""Each kind of fault does to a real store what it says (FORMAL D2), on a scheduler that must bear it (SPEC 4.6)."""

import asyncio
from pathlib import Path

import pytest

from duly.core.changes import Batch
from duly.core.moments import MICROSECONDS
from duly.errors import StoreError
from duly.stores import SqliteStore
from duly.testing import SimulatedHost
from tests.simulation.executor import check
from tests.simulation.faults import Fault, Faults, FaultyStore, Kind
from tests.simulation.histories import Declared, Doing, History, Initialize, Pass
from tests.stores.helpers import query

WRITE = 4
"""The operation by which the run of 00:01 starts in `history_with`: open, replace, the first start, its end, this."""


class _Died(Exception):  # noqa: N818 - it is the name of the thing
    """Raised where a process would be gone."""


def history_with(fault: Fault, operation: int = WRITE) -> History:
    """A minutely task, two minutes, and one fault."""
    tasks = (Declared(doings=(Doing(seconds=1),)),)
    return History(
        steps=(Initialize(tasks=tasks), Pass(seconds=120), Initialize(tasks=tasks)), faults={operation: fault}
    )


@pytest.mark.parametrize("operation", range(8))
@pytest.mark.parametrize("kind", Kind)
def test_every_fault_at_every_operation_is_borne(kind: Kind, operation: int) -> None:
    """SPEC 4.5, 4.6: whatever happens to any operation, nothing is lost, doubled or wrong, and the fault was met."""
    result = check(history_with(Fault(kind, 45), operation))
    assert result.faults[kind.name] == 1


def write_at_fault(kind: Kind, path: Path) -> tuple[int, int, list[str]]:
    """One write that meets a fault: rows of its trace afterwards, seconds it took, and what became of it."""
    told: list[str] = []

    async def meet() -> tuple[int, int]:
        async with SimulatedHost("2024-01-01T00:00", "UTC") as host:

            def die() -> None:
                raise _Died

            inner = SqliteStore(path, worker=host._new_worker(), synchronous="OFF")
            faults = Faults(host, {0: Fault(kind, 45)}, died=die)
            scheduler = host.scheduler(inner, trace=True)
            await scheduler.initialize([])
            await host.advance()  # its first look is on record
            before = rows()
            work = asyncio.ensure_future(FaultyStore(inner, faults).write(Batch(), 1_000, [("WK", 1, 1)]))
            begun = host._clock.wall
            while not work.done():
                await host.advance(seconds=1)
            try:
                await work
            except (_Died, StoreError) as error:
                told.append(type(error).__name__)
            assert faults.met[kind] == 1
            return rows() - before, (host._clock.wall - begun) // MICROSECONDS

    def rows() -> int:
        return int(query(path, "SELECT count(*) FROM trace")[0][0])

    applied, seconds = asyncio.run(meet())
    return applied, seconds, told


@pytest.mark.parametrize(
    ("kind", "applied", "at_least", "outcome"),
    [
        (Kind.CRASH_BEFORE, 0, 0, ["_Died"]),
        (Kind.CRASH_AFTER, 1, 0, ["_Died"]),
        (Kind.REFUSED, 0, 0, ["StoreError"]),
        (Kind.UNACKNOWLEDGED, 1, 0, ["StoreError"]),
        (Kind.SLOW, 1, 45, []),
        (Kind.HUNG, 1, 45, []),
        (Kind.HUNG_AFTER, 1, 45, []),
        (Kind.FROZEN, 1, 45, []),
        (Kind.STEPPED, 1, 45, []),
    ],
)
def test_a_fault_does_what_it_says(kind: Kind, applied: int, at_least: int, outcome: list[str], tmp_path: Path) -> None:
    """Before or after it is durable, told or not, at once or late."""
    rows, seconds, told = write_at_fault(kind, tmp_path / "duly.db")
    assert rows == applied
    assert seconds >= at_least
    assert told == outcome
