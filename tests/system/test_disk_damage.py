"""Flipped bits, cut files, wrong and newer schemas: refused with a typed error and left as they are.

Damage that SQLite and duly cannot see (a flipped letter of an error message) is taken as it is; then the scheduler
must live on it, and what it reports must be faults of the store, never anything else (SPEC 4.6, 5.5).
"""

import asyncio
import contextlib
import logging
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly.events import Event, StoreFault, TaskRunStarted
from duly.stores.sqlite import schema
from duly.testing import SimulatedHost
from tests.counts import count, share
from tests.spec.workload import Registration
from tests.stores.helpers import change, contents, integrity
from tests.system.record import record

TASKS = 40
FLIPS = 150


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="duly")


async def _fail() -> None:
    raise RuntimeError("a reason worth keeping")


async def _nothing() -> None:
    pass


def registrations() -> list[Registration]:
    return [
        (f"task {index}", "* * * * *", _fail if index % 4 == 0 else _nothing, timedelta(minutes=5))
        for index in range(TASKS)
    ]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store that has seen some minutes, in one file."""
    store = tmp_path_factory.mktemp("sound") / "state.db"

    async def make() -> None:
        async with SimulatedHost("2024-06-15T12:00:30", tz="UTC") as host:
            scheduler = host.scheduler(store, trace=True)
            await scheduler.initialize(registrations())
            await host.advance(minutes=5)
            await scheduler.stop()

    asyncio.run(make())
    assert integrity(store) == "ok"
    return store.read_bytes()


def live_on(store: Path) -> str:
    """`refused`, with the file as it was; or `accepted`: it lives, and all it reports is a fault of the store."""
    before = contents(store)
    events: list[Event] = []

    async def life() -> str:
        async with SimulatedHost("2024-06-15T12:10:30", tz="UTC") as host:
            scheduler = host.scheduler(store, on_event=events.append, trace=True)
            try:
                await scheduler.initialize(registrations())
            except duly.DulyError:
                assert contents(store) == before, "it was refused, and changed"
                return "refused"
            await host.advance(minutes=2)
            stopping = asyncio.ensure_future(scheduler.stop())
            await host.advance(minutes=1)
            assert stopping.done(), "a stop that hangs"
            error = stopping.exception()
            assert error is None or isinstance(error, duly.StopSchedulerError), repr(error)
            return "faulty" if any(isinstance(event, StoreFault) for event in events) else "accepted"

    outcome = asyncio.run(life())
    if outcome == "accepted":
        started = {event.task_name for event in events if isinstance(event, TaskRunStarted)}
        assert started == {name for name, *_ in registrations()}, "a task has fallen silent without a word"
    return outcome


def flipped(content: bytes, position: int, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[position] ^= 1 << bit
    return bytes(damaged)


@pytest.mark.parametrize("where", ["header", "first page", "anywhere", "rows of tasks and states"])
def test_a_flipped_bit_is_refused_or_survived_and_never_a_surprise(tmp_path: Path, sound: bytes, where: str) -> None:
    """SPEC 5.5: a hundred and fifty bits of each region, one at a time, in a file of some ninety thousand bytes."""
    dice = random.Random(where)
    regions: dict[str, Callable[[], int]] = {
        "header": lambda: dice.randrange(100),
        "first page": lambda: dice.randrange(100, 4096),
        "anywhere": lambda: dice.randrange(len(sound)),
        "rows of tasks and states": lambda: dice.choice(places),
    }
    needles = (b"task ", b"* * * * *")
    places = [start + offset for needle in needles for start in _finds(sound, needle) for offset in range(12)]
    outcomes: Counter[str] = Counter()
    store = tmp_path / "state.db"
    flips = count(FLIPS, 20)
    for _ in range(flips):
        for file in tmp_path.iterdir():
            file.unlink()
        position, bit = regions[where](), dice.randrange(8)
        store.write_bytes(flipped(sound, position, bit))
        try:
            outcomes[live_on(store)] += 1
        except BaseException as error:
            error.add_note(f"bit {bit} of byte {position}")
            raise
    record("disk, flipped bits", flips=flips, **outcomes)
    if flips == FLIPS:
        assert outcomes["refused"], outcomes


def _finds(content: bytes, needle: bytes) -> list[int]:
    found, start = [], content.find(needle)
    while start >= 0:
        found.append(start)
        start = content.find(needle, start + 1)
    return found


def test_a_file_cut_at_any_length_is_refused_and_stays_as_it_is(tmp_path: Path, sound: bytes) -> None:
    """SPEC 5.5: at each page, and inside pages; a file of no bytes is a first start-up."""
    store = tmp_path / "state.db"
    dice = random.Random(0)
    every = [*range(4096, len(sound), 4096), *(dice.randrange(1, len(sound)) for _ in range(30)), 1, 15, 16, 99, 511]
    lengths = share(every, 20)
    outcomes: Counter[str] = Counter()
    for length in lengths:
        for file in tmp_path.iterdir():
            file.unlink()
        store.write_bytes(sound[:length])
        outcome = live_on(store)
        assert outcome == "refused", (length, outcome)
        outcomes[outcome] += 1
    record("disk, cut files", lengths=len(lengths), **outcomes)


WRONG = {
    "of another program": f"PRAGMA application_id = {0x12345678}",
    "of no program": "PRAGMA application_id = 0",
    "of the next version": f"PRAGMA user_version = {schema.VERSION + 1}",
    "of a version long after": "PRAGMA user_version = 2000000000",
    "of a version below all": "PRAGMA user_version = -1",
    "without tasks": "DROP TABLE tasks",
    "without states": "DROP TABLE states",
    "without runs": "DROP TABLE runs",
    "without trace": "DROP TABLE trace",
    "without segments": "DROP TABLE segments",
    "without meta": "DROP TABLE meta",
    "without schedulers": "DROP TABLE schedulers",
    "without a counter": "DELETE FROM meta WHERE key = 'run'",
    "with a counter of text": "UPDATE meta SET value = 'many' WHERE key = 'written'",
    "with a column by another name": "ALTER TABLE states RENAME COLUMN served_through TO served",
    "without a column": "ALTER TABLE tasks DROP COLUMN cron",
    "with a scheduler of no name": "UPDATE schedulers SET identifier = x'00ff' WHERE key = 1",
    "without one state": "DELETE FROM states WHERE generation = 1",
    "with a state of no task": "UPDATE states SET generation = 999999 WHERE generation = 1",
    "with a mark of text": "UPDATE states SET served_through = 'noon' WHERE generation = 1",
    "with a cron of nonsense": "UPDATE tasks SET cron = 'whenever' WHERE generation = 1",
    "with a name of bytes": "UPDATE tasks SET name = x'00ff' WHERE generation = 1",
}


@pytest.mark.parametrize("damage", WRONG)
def test_a_store_with_a_wrong_schema_is_refused_and_stays_as_it_is(tmp_path: Path, sound: bytes, damage: str) -> None:
    """SPEC 5.5: whatever is wrong with it, the error is one of ours, and not one byte has changed."""
    store = tmp_path / "state.db"
    store.write_bytes(sound)
    change(store, WRONG[damage])
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert live_on(store) == "refused"


def test_a_newer_schema_is_named_with_both_versions(tmp_path: Path, sound: bytes) -> None:
    """A store of a later duly: the error says which version it is of, and which this one knows."""
    store = tmp_path / "state.db"
    store.write_bytes(sound)
    change(store, f"PRAGMA user_version = {schema.VERSION + 1}")

    async def initialize() -> None:
        with pytest.raises(duly.StoreVersionError) as caught:
            await duly.Scheduler(store).initialize([])
        assert str(schema.VERSION + 1) in str(caught.value)
        assert str(schema.VERSION) in str(caught.value)

    asyncio.run(initialize())
