"""Lives of a scenario's program: with every point at which it could die on record, and from any such point on.

What survives a process is what is durable and what its callbacks did. Both change only when a store commits, at a
callback's first step and at its return. Death before and after each of these is therefore exhaustive for processes;
death at another moment is equal to the next of them (FORMAL D3). Each point keeps the store's bytes and what had been
witnessed by then. A crash is then: nothing of the old process, a new one on those bytes, some time later.
"""

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from duly import Scheduler
from duly.core.changes import Batch
from duly.stores import SqliteStore
from duly.stores.port import Replacement, TraceRow
from duly.testing import SimulatedHost
from duly.testing.sim_threads import Dice, SeededWorker
from duly.threads import Inline, Threads
from tests.simulation import loop
from tests.simulation.oracles import Evidence, Witness, instant_of, judge, number_of_this_run
from tests.simulation.reference import local
from tests.simulation.scenarios import SCENARIOS, YEAR, Deed, Scenario, Task

_PATIENCE: timedelta = timedelta(days=3)
"""Longer than any callback of any scenario takes."""


class Point(NamedTuple):
    """A moment at which the process can die, and what survives."""

    kind: str
    at: int  # microseconds
    image: bytes | None  # of the store; None: there is no file yet
    seq: int  # the last durable event
    witnessed: int  # how many entries of the witness


@dataclass
class Life:
    """One process: what it began with, and what is left of it."""

    scenario: Scenario
    begin: int
    image: bytes | None = None
    witness: Witness = field(default_factory=Witness)
    deaths: dict[int, int] = field(default_factory=dict)
    died_at: tuple[int, ...] = ()  # the points at which those before it did
    until: int | None = None  # the scenario's own end unless given
    store_class: type["WatchedStore"] | None = None
    hesitation: int | None = None
    """A seed: store and callbacks take some rounds of the event loop, as threads do; None: they are prompt."""
    eager_tasks: bool = False  # every task of the event loop takes its first step at once
    records_points: bool = True
    dies_in_place_at: int | None = None  # at this point, really, instead of on paper
    is_dead: bool = False
    points: list[Point] = field(default_factory=list)
    declared: dict[str, tuple[str, int]] = field(default_factory=dict)
    evidence: Evidence | None = None
    stored: "WatchedStore | None" = None

    @property
    def number(self) -> int:
        """The number of processes so far, with this one."""
        return len(self.died_at) + 1

    @property
    def seconds(self) -> float:
        """Simulated time that has passed in it."""
        assert self.evidence is not None
        return (self.evidence.now - self.begin) / 1_000_000

    def point(self, kind: str) -> None:
        """The process could die here."""
        if not self.records_points or self.is_dead:
            return
        assert self.stored is not None
        assert self.host is not None
        image, seq = self.stored.image()
        self.points.append(Point(kind, instant_of(self.host.now), image, seq, len(self.witness.entries)))
        if self.dies_in_place_at == len(self.points) - 1:
            assert self._body is not None
            self.is_dead = True  # nothing more is witnessed, nothing more is stored, nothing more is done
            self.stored.abandon()
            self._body.cancel()

    # --- what the program does ---------------------------------------------------------------------------------------

    host: SimulatedHost | None = None
    _body: "asyncio.Task[None] | None" = None

    async def run(self, folder: Path) -> None:
        """Live from the beginning to a clean stop, or to death in place, and keep the evidence."""
        scenario, zone = self.scenario, ZoneInfo(self.scenario.zone)
        path = folder / f"life-{self.number}.db"
        if self.image is not None:
            path.write_bytes(self.image)
        async with SimulatedHost(local(self.begin, zone), zone, store=path, idle_looks=scenario.idle_looks) as host:
            self.host = host
            host._identifiers = count(1_000 * self.number)  # another process, another identifier
            if self.eager_tasks and sys.version_info >= (3, 12):
                asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
            kind = self.store_class or WatchedStore
            self.stored = kind(path, self)
            scheduler = host.scheduler(self.stored, trace=True, **scenario.options)
            self._body = asyncio.ensure_future(self._perform(host, scheduler))
            await asyncio.wait([self._body])
            if self.is_dead:
                await host.crash()
            else:
                self._body.result()
                self.evidence = Evidence.of(
                    host, path, clean=True, witness=self.witness, deaths=self.deaths, declared=self.declared
                )

    async def _perform(self, host: SimulatedHost, scheduler: Scheduler) -> None:
        """The acts of the scenario; one that came while no process lived is found done, or undone."""
        scenario = self.scenario
        first = instant_of(datetime.fromisoformat(scenario.begin).replace(tzinfo=ZoneInfo(scenario.zone)))
        # Whatever the clock shows when it comes, a program begins with its first act.
        moments = [
            (min(first, self.begin) if not act.minutes else first + int(act.minutes * 60_000_000), act.tasks)
            for act in scenario.acts
        ]
        until = self.until if self.until is not None else first + int(scenario.minutes * 60_000_000)
        passed = [tasks for at, tasks in moments if at <= self.begin]
        ahead = [(at, tasks) for at, tasks in moments if self.begin < at <= until]
        calls: list[asyncio.Task[None]] = []
        for at, tasks in [(self.begin, passed[-1]), *ahead, (until, None)]:
            await host.advance_to(local(at, ZoneInfo(scenario.zone)))
            if tasks is not None:
                self.declared = {task.name: (task.cron, int(1_000 * task.delay)) for task in tasks}
                calls.append(asyncio.ensure_future(scheduler.initialize([self._registration(each) for each in tasks])))
            elif calls:
                calls.append(asyncio.ensure_future(scheduler.stop()))
            await host.advance()
        for _ in range(_PATIENCE // timedelta(minutes=5)):
            if all(call.done() for call in calls):
                break
            await host.advance(minutes=5)
        for call in calls:
            await call

    def _registration(self, task: Task) -> tuple[str, str, Any, timedelta]:
        async def work() -> None:
            assert self.host is not None
            run, deed = self._enter(task)
            try:
                await self.host.sleep(deed.seconds)
                for _ in range(0 if self.hesitation is None else hash((self.hesitation, run)) % 6):
                    await asyncio.sleep(0)
            except asyncio.CancelledError:  # its time is up; or its process is gone, and this leaves no trace
                self._leave(task, run, Deed(fails=True))
            self._leave(task, run, deed)

        def block() -> None:
            self._leave(task, *self._enter(task))

        return task.name, task.cron, block if task.blocking else work, timedelta(seconds=task.delay)

    def _enter(self, task: Task) -> tuple[int, Deed]:
        assert self.host is not None
        run = number_of_this_run()
        self._note("begin", task, run)
        self.point("first step")
        return run, task.deed(self.host.now)

    def _leave(self, task: Task, run: int, deed: Deed) -> None:
        self._note("raise" if deed.fails else "return", task, run)
        self.point("return")
        if deed.fails:
            raise RuntimeError("it did not work")

    def _note(self, deed: str, task: Task, run: int) -> None:
        if not self.is_dead:
            self.witness.note(deed, task.name, run)

    # --- what comes after it -----------------------------------------------------------------------------------------

    def dies_at(self, number: int, *, again: bool = False) -> "Life":
        """The life after a death at one of its points, which may die `again`.

        How long no process is running in between follows from the number.
        """
        point, scenario = self.points[number], self.scenario
        downtime = scenario.downtimes[number % len(scenario.downtimes)]
        begin = point.at + int(downtime * 1_000_000)
        return Life(
            scenario,
            begin,
            point.image,
            Witness(self.witness.entries[: point.witnessed]),
            {point.seq: point.at, **self.deaths},  # of several deaths with nothing between, the first counts
            (*self.died_at, number),
            begin + int(scenario.run_on * 60_000_000),
            self.store_class,
            self.hesitation,
            self.eager_tasks,
            records_points=again,
        )


class WatchedStore(SqliteStore):
    """The embedded store; before and after each commit, the process can die."""

    def __init__(self, path: Path, life: Life) -> None:
        worker: Threads = Inline()
        if life.hesitation is not None:
            assert life.host is not None
            worker = SeededWorker(Dice(life.hesitation + life.number), alive=life.host._clock.now)
        super().__init__(path, worker=worker, synchronous="OFF")
        self.life = life

    # Where the worker works, so that nothing comes between a point and its commit. `open` and `touch` commit nothing.

    def _replace(self, replacement: Replacement, number: int) -> None:
        self.life.point("before replace")
        super()._replace(replacement, number)
        self.life.point("after replace")

    def _write(self, batch: Batch, number: int, trace: Iterable[TraceRow]) -> None:
        self.life.point("before write")
        super()._write(batch, number, trace)
        self.life.point("after write")

    def image(self) -> tuple[bytes | None, int]:
        """The bytes on the disk now, and the last event in it."""
        if self._connection is None:
            path = Path(self.path)
            if not path.exists():
                return None, 0
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                return _image(connection)
        return _image(self._connection)


def _image(connection: sqlite3.Connection) -> tuple[bytes | None, int]:
    image = connection.serialize()
    if not image or not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'trace'").fetchone():
        return image or None, 0
    return image, connection.execute("SELECT max(seq) FROM trace").fetchone()[0] or 0


# --- running them -----------------------------------------------------------------------------------------------------


@contextmanager
def a_disk() -> Iterator[Path]:
    """A folder in memory, where there is one: deaths are those of processes, and the disk lives on."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="duly-crashes-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def lived(life: Life) -> Life:
    """Let it happen, to a clean end, and have it judged by every oracle; an objection says how to see it again."""
    try:
        with a_disk() as folder:
            if life.hesitation is None:
                asyncio.run(life.run(folder))
            else:  # which ready callback goes first is drawn as well
                loop.run(life.run(folder), seed=life.hesitation + life.number)
        assert life.evidence is not None
        judge(life.evidence)
    except Exception as error:
        told = [repr(life.scenario.name), *map(str, life.died_at)]
        ways = ("hesitation", "eager_tasks")
        told += [f"{way}={getattr(life, way)}" for way in ways if getattr(life, way)]
        error.add_note(f'again: python -c "from tests.simulation.crashes import relive; relive({", ".join(told)})"')
        raise
    return life


def relive(name: str, *points: int, **more: Any) -> Life:
    """A scenario, by its name, with a death at each of these points."""
    (scenario,) = (each for each in (*SCENARIOS, YEAR) if each.name == name)
    life = base(scenario, **more)
    for point in points:
        life = lived(life.dies_at(point, again=True))
    return life


def first_life(scenario: Scenario, **more: Any) -> Life:
    """The life in which nothing goes wrong; not lived yet."""
    first = datetime.fromisoformat(scenario.begin).replace(tzinfo=ZoneInfo(scenario.zone))
    return Life(scenario, instant_of(first), **more)


def base(scenario: Scenario, **more: Any) -> Life:
    """The life in which nothing goes wrong, with all of its points."""
    return lived(first_life(scenario, **more))
