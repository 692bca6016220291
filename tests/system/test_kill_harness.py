"""The checks of the killed program notice what they are there for: each of these would go unnoticed otherwise."""

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from duly.testing import SimulatedHost
from tests.spec.workload import Workload
from tests.stores.helpers import change, everything
from tests.system.fold import compare, look_into
from tests.system.kill_chain import Chain, ForkServer, Witness


@pytest.mark.chaos
def test_a_store_that_acknowledges_too_early_is_found_out_by_the_witness(tmp_path: Path) -> None:
    """SPEC 3.9: with a store that forgets its last batch when the process dies, some death shows it."""

    async def lives(starter: ForkServer) -> None:
        chains = [Chain(starter, tmp_path / str(seed), seed, forgetful=True) for seed in range(4)]
        await asyncio.gather(*(chain.run(8) for chain in chains))

    with ForkServer() as starter, pytest.raises(AssertionError, match="on record"):
        asyncio.run(lives(starter))
    for child in starter.started:  # the other chains had a process running
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store in which something ran, failed, and was cut short."""
    store = tmp_path_factory.mktemp("sound") / "state.db"

    async def make() -> None:
        async with SimulatedHost("2024-06-15T12:00:30", tz="UTC", store=store) as host:
            work = Workload(host)
            tasks = [
                work.task("quick"),
                work.task("long", takes=100),
                work.task("failing", fails=True, delay=timedelta(seconds=40)),
            ]
            await host.scheduler(trace=True).initialize(tasks)
            await host.advance(minutes=3)
            await host.crash()
            scheduler = host.scheduler(trace=True)
            await scheduler.initialize(tasks)
            await host.advance(minutes=3)
            stopping = asyncio.ensure_future(scheduler.stop())
            await host.advance(minutes=3)
            await stopping

    asyncio.run(make())
    return store.read_bytes()


def test_a_sound_store_is_found_sound(tmp_path: Path, sound: bytes) -> None:
    """The files that the next tests damage are whole before."""
    store = tmp_path / "state.db"
    store.write_bytes(sound)
    fold = compare(look_into(store))
    assert len(fold.starts) > 10
    assert "interrupted" in fold.outcomes.values()
    assert fold.resumed == 1


_LAST = "DELETE FROM trace WHERE seq = (SELECT max(seq) FROM trace WHERE line LIKE '{}%')"
_STARTS = "WHERE line LIKE '[\"RS%'"
_RUN = "run, generation, cause, scheduled, started_at, ended_at, outcome, error"
_TWICE = f"({_RUN}) SELECT {_RUN} FROM runs WHERE seq = 2"
DAMAGE = {
    "an end is missing in the trace": _LAST.format('["RE'),
    "a start is missing in the trace": _LAST.format('["RS'),
    "a start tells another cause": f"UPDATE trace SET line = replace(line, 'interrupted', 'cron') {_STARTS}",
    "a start comes before it is due": f"UPDATE trace SET line = replace(line, '17184528600', '17184528590') {_STARTS}",
    "a mark is behind": "UPDATE states SET served_through = served_through - 60 WHERE generation = 1",
    "a retry is forgotten": "UPDATE states SET pending_retry_until = NULL",
    "a success is forgotten": "UPDATE states SET last_success_at = NULL WHERE generation = 1",
    "history lacks a run": "DELETE FROM runs WHERE seq = 3",
    "history has an outcome wrong": "UPDATE runs SET outcome = 'success' WHERE outcome = 'interrupted'",
    "history has a run twice": f"INSERT INTO runs {_TWICE}",
    "a task is gone": "DELETE FROM states WHERE generation = 2",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_store_that_is_not_what_its_trace_leads_to_is_noticed(tmp_path: Path, sound: bytes, damage: str) -> None:
    """Store, trace and history are three accounts of the same; a difference in any is seen."""
    store = tmp_path / "state.db"
    store.write_bytes(sound)
    before = everything(store)
    change(store, DAMAGE[damage])
    assert everything(store) != before, "nothing was damaged"
    with pytest.raises(AssertionError):
        compare(look_into(store))


LINES = {
    "a run that overlaps another of its task": [("begin", 1, "a", 1), ("begin", 1, "a", 2)],
    "a run that begins twice": [("begin", 1, "a", 1), ("end", 1, "a", 1), ("begin", 1, "a", 1)],
    "more at once than allowed": [("begin", 1, name, run) for run, name in enumerate("abcd", 1)],
    "a life after death": [("begin", 2, "a", 1), ("end", 1, "b", 2)],
    "an end told twice": [("completed", 1, "a", 1), ("completed", 1, "a", 1)],
}


@pytest.mark.parametrize("what", LINES)
def test_a_witness_of_what_must_not_be_is_heard(tmp_path: Path, what: str) -> None:
    """S1, 3.10: by the callbacks' own word, whatever store and trace say."""
    file = tmp_path / "witness"
    file.write_text("".join(json.dumps([word, boot, 0, task, run]) + "\n" for word, boot, task, run in LINES[what]))
    with pytest.raises(AssertionError):
        Witness(file).read()
