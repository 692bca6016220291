"""Knowledge that the parts of an engine have of each other before anything has happened."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from duly.stores.sqlite.trace import export
from duly.testing import SimulatedHost
from tests.engine.helpers import noop


async def test_a_scheduler_that_begins_takes_no_clock_for_one_that_went_back(store: Path) -> None:
    """SPEC 2.5, 7.6: in a life without a step of the clock, the trace tells of none."""
    async with SimulatedHost("2024-05-01T12:00:10", "UTC", store=store) as host:
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize([("task", "* * * * *", noop, timedelta(minutes=1))])
        await host.advance(minutes=2)
        await scheduler.stop()
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)) as connection:
        trace = b"".join(export(connection, clean=True))
    assert trace.count(b'"RS"') == 3
    assert b'"CK"' not in trace
