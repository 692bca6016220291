"""An I/O error at the k-th operation, for every k until a life passes clean, once and lasting."""

import logging

import pytest

from duly.events import StoreFault, StoreRecovered
from tests.conftest import require
from tests.counts import share
from tests.system.disk_errors import BrokenDisk, run
from tests.system.record import record

PARTS = 4


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    require("apsw", "pip install apsw")
    caplog.set_level(logging.CRITICAL, logger="duly")


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    ("persistent", "full"),
    [(False, False), (True, False), (True, True)],
    ids=["once", "until it is fixed", "full until there is room"],
)
def test_an_error_at_every_single_operation_is_typed_or_reported_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, persistent: bool, full: bool, part: int
) -> None:
    """SPEC 4.5, 4.6, 5.2: reads, writes, syncs, truncations, opens, sizes and deletions, each of them, one life each.

    A call is refused with an error of ours and succeeds later, or the fault is reported, retried and told to be over;
    every run is recorded exactly once, and the checker finds nothing.
    """
    clean = BrokenDisk(None, persistent)
    expected = sorted(run(clean, monkeypatch).begun)
    refused = faults = 0
    points = share(range(1 + part, clean.operations + 1, PARTS), 6)
    for fails_at in points:
        disk = BrokenDisk(fails_at, persistent, full)
        life = run(disk, monkeypatch)
        told = [type(event) for event in life.events]
        gave_up = "StopSchedulerError" in life.refusals  # with the fault still there (SPEC 4.3)
        assert told.count(StoreFault) - told.count(StoreRecovered) in ({0, 1} if gave_up else {0}), fails_at
        if not disk.failed.total():
            continue
        refused += len(life.refusals)
        faults += told.count(StoreFault)
        if not persistent and not life.refusals:
            assert set(life.begun) == set(expected)
    record("disk, I/O errors", operations=len(points), refused=refused, faults=faults)
    assert refused + faults > len(points) // 10
