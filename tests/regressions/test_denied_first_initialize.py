"""A first initialize() took effect although its store reported a fault; the next one interrupted its runs."""

from datetime import timedelta
from pathlib import Path

from duly.errors import StoreError
from duly.stores import SqliteStore
from duly.stores.port import Replacement
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.stores.helpers import history

DELAY = timedelta(minutes=5)


class DenyingStore(SqliteStore):
    """A real store whose commit reports a fault, and then cannot be repeated."""

    denials = 2

    async def replace(self, replacement: Replacement, number: int) -> None:
        if self.denials == 2:
            await super().replace(replacement, number)
            self._fresh = True  # the fault came before it could know that it was done
        self.denials -= 1
        if self.denials >= 0:
            raise StoreError("denied", store=self.path)
        await super().replace(replacement, number)


async def test_a_scheduler_arrives_once_whatever_the_store_said(tmp_path: Path) -> None:
    """SPEC 3.7, 5.2: only a crash interrupts a run; a run that goes on has no place in the history yet."""
    path = tmp_path / "store.db"
    async with SimulatedHost("2024-06-01T12:00", "UTC", path) as first:
        await first.scheduler().initialize([])  # the file is there
    store = DenyingStore(path, worker=Inline(), synchronous="OFF")
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:

        async def long() -> None:
            await host.sleep(30)

        scheduler = host.scheduler(store)
        await scheduler.initialize([("long", "0 12 * * *", long, DELAY)])
        await host.advance(seconds=10)
        await scheduler.initialize([("long", "0 12 * * *", long, DELAY), ("more", "0 12 * * *", long, DELAY)])
        await host.advance(minutes=1)
        assert history(path) == [("long", "cron", "success"), ("more", "cron", "success")]
