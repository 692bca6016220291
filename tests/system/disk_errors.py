"""A short life of a scheduler on a disk that fails at a chosen operation, once or from there on."""

import asyncio
import itertools
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

import duly
from duly.events import Event
from duly.stores.sqlite import SqliteStore
from duly.stores.sqlite import store as embedded
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.spec.workload import Registration
from tests.system.fold import compare, look_into
from tests.system.kill_chain import judge
from tests.system.power_apsw import WatchedVFS, stand_in
from tests.system.power_verdict import MEMORY

CODES = {
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "size": apsw.SQLITE_IOERR_FSTAT,
    "delete": apsw.SQLITE_IOERR_DELETE,
    "open": apsw.SQLITE_CANTOPEN,
}
_names = itertools.count()


@dataclass
class BrokenDisk:
    """Counts operations, and lets the chosen ones fail."""

    fails_at: int | None
    persistent: bool
    full: bool = False
    operations: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    healed: bool = False

    def heal(self) -> None:
        """Fix a lasting fault, once it has shown itself."""
        self.healed |= self.persistent and bool(self.failed)

    def hook(self, operation: str, file: str) -> None:
        """Before each operation of the store's file system."""
        self.operations += 1
        at = self.fails_at
        if self.healed or at is None or self.operations < at or (self.operations > at and not self.persistent):
            return
        if self.full and operation != "write":
            return
        self.failed[operation] += 1
        raise apsw.exception_for(apsw.SQLITE_FULL if self.full else CODES[operation])


Call = Callable[[], Awaitable[None]]


class Short:
    """The life itself: three tasks, four minutes, a re-initialisation in the middle."""

    def __init__(self, store: Path, disk: BrokenDisk) -> None:
        self._store = store
        self._disk = disk
        self.events: list[Event] = []
        self.refusals: list[str] = []
        self.begun: list[str] = []

    async def live(self) -> None:
        """From the first initialize() to the stop; what is refused is tried again when the disk has healed."""
        async with SimulatedHost("2024-06-15T12:00:30", tz="UTC") as host:
            store = SqliteStore(self._store, worker=Inline())
            scheduler = host.scheduler(store, on_event=self.events.append, trace=True)
            tasks = [self._task(host, "quick", 1), self._task(host, "failing", 2, fails=True)]
            await self._insist(host, lambda: scheduler.initialize(tasks))
            await host.advance(minutes=1)
            self._disk.heal()
            await host.advance(minutes=1)
            more = [*tasks, self._task(host, "late", 1)]
            await self._insist(host, lambda: scheduler.initialize(more))
            await host.advance(minutes=2)
            self._disk.heal()
            await host.advance(minutes=1)
            await self._insist(host, scheduler.stop)

    def _task(self, host: SimulatedHost, label: str, takes: float, *, fails: bool = False) -> Registration:
        async def run() -> None:
            self.begun.append(label)
            await host.sleep(takes)
            if fails:
                raise RuntimeError("as it should")

        return (label, "1,3,6 12 * * *", run, timedelta(seconds=90))

    async def _insist(self, host: SimulatedHost, call: Call) -> None:
        error: BaseException | None = None
        for _ in range(3):
            work = asyncio.ensure_future(call())
            await host.advance(minutes=1)
            assert work.done(), "a call that hangs"
            error = work.exception()
            if error is None:
                return
            assert isinstance(error, duly.DulyError), f"an error of no type of ours: {error!r}"
            self.refusals.append(type(error).__name__)
            self._disk.heal()
        raise AssertionError(f"still refused when the disk had healed: {error!r}")


def run(disk: BrokenDisk, patch: pytest.MonkeyPatch) -> Short:
    """One life on such a disk; afterwards the store must be sound, and its own trace's story, whatever happened."""
    name = f"broken-{next(_names)}"
    vfs = WatchedVFS(name, lambda *_: None, disk.hook)
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="duly-disk-") as folder, patch.context() as patched:
        patched.setattr(embedded, "sqlite3", stand_in(name))
        patched.setattr(embedded, "CHECKPOINT_PAGES", 20)
        short = Short(Path(folder) / "state.db", disk)
        asyncio.run(short.live())
        vfs.unregister()
        fold = compare(look_into(Path(folder) / "state.db"))
        gave_up = "StopSchedulerError" in short.refusals  # SPEC 4.3: the ends of the last runs may be missing
        assert gave_up or not fold.running()
        assert gave_up or len(fold.ends) == len(fold.starts)
        assert sorted(name for name, _ in fold.starts.values()) == sorted(short.begun)
        judge(Path(folder) / "state.db", clean=not gave_up)
    return short
