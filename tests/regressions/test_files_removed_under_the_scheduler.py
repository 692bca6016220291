"""After its store file was removed, a scheduler went on writing to the deleted file, and reported nothing.

SQLite goes on writing to a file that has lost its name. `tests/system/test_disk_files.py` has the whole family: the
file, its WAL, its lock, and a second scheduler that came in between.
"""

import os
from pathlib import Path

from duly.events import StoreFault, TaskRunCompleted
from duly.testing import SimulatedHost
from tests.spec.workload import Workload


async def test_nothing_is_told_to_be_durable_that_the_next_start_cannot_find(tmp_path: Path) -> None:
    """SPEC 3.9, 4.6, 7.6: from the removal on, no start and no end is reported; the fault is."""
    store = tmp_path / "state.db"
    async with SimulatedHost("2024-06-15T12:00:30", tz="UTC", store=store) as host:
        work = Workload(host)
        await host.scheduler().initialize([work.task("a")])
        await host.advance(minutes=2)
        completed = sum(isinstance(event, TaskRunCompleted) for event in host.events)
        os.unlink(store)
        await host.advance(minutes=10)
        assert sum(isinstance(event, TaskRunCompleted) for event in host.events) == completed == len(work.ended) > 0
        assert sum(isinstance(event, StoreFault) for event in host.events) == 1
